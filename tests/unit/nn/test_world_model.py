from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from sharpwave import nn
from sharpwave.algorithms.dreamer import DreamerV3Config
from sharpwave.config.presets import settings_of
from sharpwave.losses.world_model import draw
from sharpwave.nn import world_layers
from sharpwave.nn.world_codecs import entries_of
from sharpwave.nn.world_layers import Head
from sharpwave.nn.world_model import RSSM, Latent

IMAGE = spaces.Box(0, 255, (64, 64, 3), np.uint8)
VECTOR = spaces.Box(-1, 1, (3,), np.float32)
MIXED = spaces.Dict({"image": IMAGE, "vector": VECTOR, "kind": spaces.Discrete(3, start=1)})
SMALL: dict[str, Any] = {
    "deter": 16,
    "hidden": 8,
    "latents": 4,
    "classes": 5,
    "units": 12,
    "depth": 8,
}


def model(space: Any = VECTOR, n_actions: int = 2, **options: Any) -> nn.WorldModel:
    generator = np.random.default_rng(0)
    return nn.WorldModel(space, n_actions, **{**SMALL, **options}, generator=generator)


def batch_of(space: Any, steps: int = 6, n: int = 3, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    space.seed(seed)
    drawn = [[space.sample() for _ in range(n)] for _ in range(steps)]

    def stacked(pick: Any) -> Any:
        return torch.as_tensor(np.array([[pick(one) for one in row] for row in drawn]))

    is_dict = isinstance(space, spaces.Dict)
    obs = {k: stacked(lambda x, k=k: x[k]) for k in space} if is_dict else stacked(lambda x: x)
    return {
        "obs": obs,
        "prev_actions": torch.tensor(rng.normal(size=(steps, n, 2)), dtype=torch.float32),
        "rewards": torch.tensor(rng.normal(size=(steps, n)), dtype=torch.float32),
        "is_first": torch.tensor(rng.random((steps, n)) < 0.3),
        "is_terminal": torch.tensor(rng.random((steps, n)) < 0.2),
    }


@pytest.mark.parametrize(
    ("preset", "millions"),
    [
        ("size12m", 10.5),
        ("size25m", 23.5),
        ("size50m", 41.6),
        ("size100m", 93.5),
        ("size200m", 165.9),
    ],
)
def test_sizes_are_those_that_are_published(
    preset: str, millions: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unwritten(_: Any, shape: tuple[int, ...], *__: Any) -> Any:
        return np.empty(shape, np.float32)  # memory that nobody touches

    monkeypatch.setattr(world_layers, "truncated_normal", unwritten)
    config = DreamerV3Config(**settings_of("dreamer_v3", preset))
    generator = np.random.default_rng(0)
    sizes = config.model_options
    with torch.device("meta"):
        world = nn.WorldModel(IMAGE, 6, **sizes, generator=generator)
        heads = [Head(world.n_features, 3, config.units, n, generator) for n in (6, 255)]
    count = sum(p.numel() for part in (world, *heads) for p in part.parameters())
    assert round(count / 1e6, 1) == millions


def test_the_recurrent_unit_is_that_of_the_definition() -> None:
    rssm = model(blocks=4).rssm.double()
    rng = np.random.default_rng(1)
    deter, stoch = rng.normal(size=(2, 16)), rng.normal(size=(2, 4, 5))
    action = rng.normal(size=(2, 2)) * 3

    def layer(part: Any, x: Any) -> Any:
        y = x @ part.linear.weight.detach().numpy().T + part.linear.bias.detach().numpy()
        return silu(rms(y, part.norm))

    def rms(y: Any, norm: Any) -> Any:
        return y / np.sqrt((y**2).mean(-1, keepdims=True) + 1e-4) * norm.scale.detach().numpy()

    def silu(y: Any) -> Any:
        return y / (1 + np.exp(-y))

    bounded = action / np.maximum(1.0, np.abs(action))
    shared = np.concatenate(
        [
            layer(rssm.of_deter, deter),
            layer(rssm.of_stoch, stoch.reshape(2, -1)),
            layer(rssm.of_action, bounded),
        ],
        1,
    )
    weight, bias = (x.detach().numpy() for x in (rssm.block_layer.weight, rssm.block_layer.bias))
    gates_weight, gates_bias = (x.detach().numpy() for x in (rssm.gates.weight, rssm.gates.bias))
    blocks = []
    for b in range(4):
        own = np.concatenate([deter[:, 4 * b : 4 * b + 4], shared], 1)
        blocks.append(own @ weight[b] + bias[b])
    hidden = silu(rms(np.concatenate(blocks, 1), rssm.block_norm))
    expected = []
    for b in range(4):
        gates = hidden[:, 4 * b : 4 * b + 4] @ gates_weight[b] + gates_bias[b]
        reset, candidate, update = np.split(gates, 3, 1)
        candidate = np.tanh(candidate / (1 + np.exp(-reset)))
        update = 1 / (1 + np.exp(-(update - 1)))
        expected.append(update * candidate + (1 - update) * deter[:, 4 * b : 4 * b + 4])
    found = rssm.step(Latent(torch.tensor(deter), torch.tensor(stoch)), torch.tensor(action))
    np.testing.assert_allclose(found.detach().numpy(), np.concatenate(expected, 1), atol=1e-6)


@pytest.mark.parametrize("bias", [-1.0, -3.0])
def test_the_share_that_a_step_rewrites_begins_as_it_is_told(bias: float) -> None:
    rssm = model(update_bias=bias).rssm
    with torch.no_grad():
        rssm.gates.weight.zero_()  # candidates are 0: what is left was there
        after = rssm.step(Latent(torch.ones(2, 16), torch.zeros(2, 4, 5)), torch.zeros(2, 2))
    kept = torch.full((2, 16), 1 - torch.tensor(bias).sigmoid().item())
    torch.testing.assert_close(after, kept)


def test_draws_are_one_hot_with_the_gradient_of_their_probabilities() -> None:
    logits = torch.randn(4000, 3, requires_grad=True)
    shared = torch.tensor([0.2, 0.5, 0.3]).log().expand(4000, 3)
    uniform = torch.rand(4000, 3, generator=torch.Generator().manual_seed(0))
    noise = -torch.log(-torch.log(uniform))
    drawn = draw(shared, noise)
    assert torch.allclose(drawn.mean(0), torch.tensor([0.2, 0.5, 0.3]), atol=0.03)
    log_probs = logits.log_softmax(-1)
    sample = draw(log_probs, noise)
    assert torch.equal(sample.detach().round(), (sample.detach() > 0.5).float())
    weights = torch.randn(4000, 3)
    (through,) = torch.autograd.grad((sample * weights).sum(), logits, retain_graph=True)
    (plain,) = torch.autograd.grad((log_probs.exp() * weights).sum(), logits)
    torch.testing.assert_close(through, plain)


def test_nothing_passes_the_beginning_of_an_episode() -> None:
    world = model()
    one, other = batch_of(VECTOR), batch_of(VECTOR, seed=5)
    for name in ("obs", "prev_actions"):
        other[name][3:] = one[name][3:]
    for batch in (one, other):
        batch["is_first"][:] = False
        batch["is_first"][3] = True
    other["prev_actions"][3] += 1.0
    generators = [torch.Generator().manual_seed(0) for _ in range(2)]
    seen = [
        world.observe(batch, world.rssm.initial(3), generator)
        for batch, generator in zip((one, other), generators, strict=True)
    ]
    for a, b in zip(seen[0].latents, seen[1].latents, strict=True):
        assert torch.equal(a[3:], b[3:])
        assert not torch.equal(a[:3], b[:3])


def test_a_stored_state_goes_on_as_the_unbroken_sequence() -> None:
    world = model(unimix=0.0)
    with torch.no_grad():  # certain latents, whatever is drawn
        world.rssm.posterior_head.output.weight.mul_(1e4)
    batch = batch_of(VECTOR)
    batch["is_first"][:] = False
    whole = world.observe(batch, world.rssm.initial(3))
    cut = {name: column[3:] for name, column in batch.items()}
    stored = Latent(*(part[2] for part in whole.latents))
    rest = world.observe(cut, stored)
    torch.testing.assert_close(rest.latents.deter, whole.latents.deter[3:])


@pytest.mark.parametrize("space", [VECTOR, IMAGE, MIXED], ids=["vector", "image", "mixed"])
def test_every_part_gets_a_gradient(space: Any) -> None:
    world = model(space)
    batch = batch_of(space, steps=4, n=2)
    with torch.no_grad():  # their first weights of zero let nothing through
        world.reward_head.output.weight.add_(0.1)
    observed = world.observe(batch, world.rssm.initial(2))
    losses = world.loss(batch, observed)
    assert {loss.shape for loss in losses.values()} == {(4, 2)}
    assert all(torch.isfinite(loss).all() for loss in losses.values())
    world._free_nats = 0.0
    total = sum(loss.mean() for loss in world.loss(batch, observed).values())
    torch.as_tensor(total).backward()
    still = [n for n, p in world.named_parameters() if p.grad is None or not p.grad.any()]
    assert still == []
    shown = world.decode(observed.latents)
    entries = shown if isinstance(shown, dict) else {"obs": shown}
    for name, entry in entries_of(space).items():
        assert entries[name].shape == (4, 2, *(entry.shape or ()))


def test_a_model_that_is_new_expects_no_reward() -> None:
    world = model()
    latents = Latent(torch.randn(7, 16), torch.randn(7, 4, 5))
    assert world.rewards(latents).tolist() == [0.0] * 7


def test_integers_are_actions_too() -> None:
    """A batch of replay of discrete actions failed in the midst of the first step."""
    world, batch = model(), batch_of(VECTOR)
    chosen = torch.randint(2, (6, 3), generator=torch.Generator().manual_seed(0))
    one_hot = torch.nn.functional.one_hot(chosen, 2).float()
    found, expected = (
        world.observe({**batch, "prev_actions": x}, world.rssm.initial(3), torch.manual_seed(0))
        for x in (chosen, one_hot)
    )
    assert torch.equal(found.latents.deter, expected.latents.deter)
    one, other = (
        world.imagine(world.rssm.initial(3), x, torch.manual_seed(0)) for x in (chosen, one_hot)
    )
    assert torch.equal(one.deter, other.deter)


def test_a_loss_without_states_observes_them_from_nothing() -> None:
    world, batch = model(), batch_of(VECTOR)
    torch.manual_seed(0)
    observed = world.observe(batch, world.rssm.initial(3))
    expected = world.loss(batch, observed)
    torch.manual_seed(0)
    for name, loss in world.loss(batch).items():
        assert torch.equal(loss, expected[name]), name


def test_losses_fall_by_half() -> None:
    world = model()
    flat = nn.FlatParameters(world)
    optimizer = nn.LaProp(flat, lr=3e-3, warmup=10)
    batch = batch_of(VECTOR, steps=8, n=8)
    history = []
    for _ in range(60):
        losses = world.loss(batch, world.observe(batch, world.rssm.initial(8)))
        total = losses["reconstruction"] + losses["reward"] + losses["continue"]
        loss = (total + losses["dynamics"] + 0.1 * losses["representation"]).mean()
        flat.backward(loss)
        optimizer.step()
        history.append(loss.item() - 1.1)  # free nats
    assert np.mean(history[-5:]) < 0.5 * history[0]


@pytest.mark.long
def test_a_chain_without_chance_is_predicted_exactly() -> None:
    """Five places in a row: actions move by one, and the model says where ten of them lead."""
    space = spaces.Discrete(5)
    world = model(space, units=32, hidden=32, deter=64, unimix=0.0, free_nats=0.0)
    flat = nn.FlatParameters(world)
    optimizer = nn.LaProp(flat, lr=0.0, warmup=20)
    rng = np.random.default_rng(0)

    def walks(n: int, steps: int) -> dict[str, Any]:
        moves = rng.integers(0, 2, (steps, n))
        places = np.zeros((steps, n), np.int64)
        places[0] = 2
        for t in range(1, steps):
            places[t] = np.clip(places[t - 1] + 2 * moves[t] - 1, 0, 4)
        first = np.zeros((steps, n), bool)
        first[0] = True
        return {
            "obs": torch.tensor(places),
            "prev_actions": torch.tensor(np.eye(2, dtype=np.float32)[moves]),
            "rewards": torch.tensor((places == 4).astype(np.float32)),
            "is_first": torch.tensor(first),
            "is_terminal": torch.zeros(steps, n),
        }

    for t in range(450):
        optimizer.set_lr(5e-3 * (1 - t / 450))  # a constant one erred on two of ten seeds
        batch = walks(16, 16)
        losses = world.loss(batch, world.observe(batch, world.rssm.initial(16)))
        loss = sum(x.mean() for x in losses.values())
        flat.backward(torch.as_tensor(loss))
        optimizer.step()
    batch = walks(20, 15)
    with torch.no_grad():
        seen = world.observe({k: v[:5] for k, v in batch.items()}, world.rssm.initial(20)).latents
        state = Latent(*(part[-1] for part in seen))
        dreamt = world.imagine(state, batch["prev_actions"][5:])
        assert (world.decode(dreamt) == batch["obs"][5:]).float().mean() == 1.0
        assert (world.rewards(dreamt) - batch["rewards"][5:]).abs().max() < 0.2


def image_of(*shape: int) -> spaces.Box:
    return spaces.Box(0, 255, shape, np.uint8)


@pytest.mark.parametrize(
    ("space", "error", "message"),
    [
        (image_of(60, 60, 3), ValueError, "64 x 64 or 96 x 96.*, got 60 x 60 x 3"),
        (image_of(4, 84, 84), ValueError, "got 4 x 84 x 84: .*ResizeObservation"),
        (image_of(1, 64, 64, 3), ValueError, "got 1 x 64 x 64 x 3: .*ResizeObservation"),
        (
            image_of(3, 64, 64),
            ValueError,
            "channels last, 64 x 64 x 3, got 3 x 64 x 64: .*Transform",
        ),
        (
            spaces.Dict({"a": image_of(64, 64, 3), "b": image_of(96, 96, 3)}),
            ValueError,
            "one size, got 'a' of 64 x 64, 'b' of 96 x 96",
        ),
        (spaces.Dict({}), ValueError, "must have an entry"),
        (spaces.Box(0, 1, (64, 64, 3), np.float32), TypeError, "must be uint8, got float32"),
        (spaces.MultiBinary(3), TypeError, "must be a Box or Discrete, got MultiBinary"),
    ],
)
def test_spaces_that_are_not_known_are_named(space: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        model(space)


def test_blocks_divide_what_is_remembered() -> None:
    with pytest.raises(ValueError, match="deter must be a multiple of blocks, 8, got 20"):
        model(deter=20)


def test_blocks_divide_the_channels_of_images() -> None:
    with pytest.raises(ValueError, match=r"depth \* 4 .* multiple of blocks, 8, .* got depth=3"):
        model(IMAGE, depth=3)
    assert model(VECTOR, depth=3).encoder.size == 12


def observed_both_ways(dtype: torch.dtype) -> Any:
    """A model, what it observes by its twin and step by step, and all that has a gradient."""
    made = RSSM(
        3, 7, deter=16, hidden=8, latents=3, classes=4, blocks=4, generator=np.random.default_rng(0)
    ).to(dtype)
    generator = torch.Generator().manual_seed(1)
    tokens, actions = (torch.randn(6, 5, n, generator=generator, dtype=dtype) for n in (7, 3))
    is_first = torch.rand(6, 5, generator=generator) < 0.2
    classes = torch.randint(4, (5, 3), generator=generator)
    deter = torch.randn(5, 16, generator=generator, dtype=dtype)
    latent = Latent(deter, torch.nn.functional.one_hot(classes, 4).to(dtype))
    inputs = [one.requires_grad_() for one in (tokens, actions, *latent)]
    noise = made.noise((6, 5), generator)
    assert made.is_as_built
    quick = made.observe(tokens, actions, is_first, latent, torch.Generator().manual_seed(2))
    noise = made.noise((6, 5), torch.Generator().manual_seed(2))
    defined = made.observe_stepwise(tokens, actions, is_first, latent, noise)
    return quick, defined, [*made.parameters(), *inputs]


@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-5), (torch.float32, 1e-4)])
def test_the_quick_way_to_observe_is_the_defined_one(dtype: torch.dtype, close: float) -> None:
    quick, defined, leaves = observed_both_ways(dtype)
    gradients = []
    for observed in (quick, defined):
        generator = torch.Generator().manual_seed(3)
        parts = (*observed.latents, observed.posterior, observed.prior)
        weights = [torch.randn(part.shape, generator=generator) for part in parts]
        loss = sum((part * weight).sum() for part, weight in zip(parts, weights, strict=True))
        gradients.append(torch.autograd.grad(torch.as_tensor(loss), leaves))
    for one, other in zip(
        (*quick.latents, quick.posterior), (*defined.latents, defined.posterior), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=close, atol=close, check_dtype=False)
    for one, other in zip(*gradients, strict=True):
        scale = other.abs().max().item()
        torch.testing.assert_close(one, other, rtol=close, atol=close * max(1.0, scale))


def test_a_step_that_somebody_replaced_is_taken() -> None:
    calls = []

    class Own(RSSM):
        def step(self, latent: Latent, action: torch.Tensor) -> torch.Tensor:
            calls.append(1)
            return super().step(latent, action)

    options: Any = {"deter": 8, "hidden": 4, "latents": 2, "classes": 2, "blocks": 2}
    made = Own(1, 2, **options, generator=np.random.default_rng(0))
    assert not made.is_as_built
    made.observe(
        torch.zeros(3, 1, 2), torch.zeros(3, 1, 1), torch.zeros(3, 1, dtype=torch.bool),
        made.initial(1),
    )  # fmt: skip
    made.imaginer()(made.initial(1), torch.zeros(1, 1), made.noise((1,), None))
    assert len(calls) == 4
    other = RSSM(1, 2, **options, generator=np.random.default_rng(0))
    other.of_deter = torch.nn.Sequential(other.of_deter, torch.nn.Identity())  # type: ignore[assignment]
    assert not other.is_as_built


def test_imagining_quickly_is_imagining() -> None:
    made = RSSM(
        2, 3, deter=16, hidden=8, latents=3, classes=4, blocks=4, generator=np.random.default_rng(0)
    )
    latent, noise = made.initial(5), made.noise((4, 5), None)
    quick = latent
    with torch.no_grad():
        step = made.imaginer()
        for t in range(4):
            action = torch.full((5, 2), 0.5 * t)
            latent, quick = (way(one, action, noise[t]) for way, one in
                             ((made.imagine, latent), (step, quick)))  # fmt: skip
            for one, other in zip(latent, quick, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
