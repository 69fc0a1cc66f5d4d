from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from sharpwave.algorithms.dreamer import DreamerV3Config, DreamerV3Learner
from sharpwave.learners.sequences import SequenceBatch
from tests.reference.dreamer import Step
from tests.reference.world_model import laprop

OBS = spaces.Box(-1, 1, (3,), np.float32)
SMALL: dict[str, Any] = {
    "deter": 16,
    "hidden": 8,
    "latents": 3,
    "classes": 4,
    "units": 8,
    "blocks": 4,
    "imagination": 4,
    "learning_rate": 1e-3,
    "warmup": 0,
}


MIXED = spaces.Dict(
    {
        "image": spaces.Box(0, 255, (64, 64, 3), np.uint8),
        "kind": spaces.Discrete(4, start=2),
        "vector": OBS,
    }
)
BOX = spaces.Box(-1, 1, (2,), np.float32)


def learner(action_space: Any = None, obs_space: Any = OBS, **options: Any) -> DreamerV3Learner:
    config = DreamerV3Config(**{**SMALL, **options})
    made = DreamerV3Learner(config, obs_space, action_space or spaces.Discrete(3), seeds=0)
    # Heads that begin at zero let no gradient through, which would hide most of the step.
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for head in (made.world.reward_head, made.critic, made.slow_critic, made.actor.head):
            head.output.weight.normal_(std=0.3, generator=generator)
    return made


def batch_of(steps: int = 6, n: int = 4, *, discrete: bool = True, **columns: Any) -> SequenceBatch:
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 3, (steps, n)) if discrete else rng.normal(size=(steps, n, 2))
    is_last = rng.random((steps, n)) < 0.3
    is_first = np.zeros((steps, n), bool)
    is_first[1:] = is_last[:-1]
    drawn: dict[str, Any] = {
        "obs": torch.tensor(rng.normal(size=(steps, n, 3)).astype(np.float32)),
        "prev_actions": torch.tensor(actions if discrete else actions.astype(np.float32)),
        "rewards": torch.tensor((rng.normal(size=(steps, n)) * ~is_first).astype(np.float32)),
        "is_first": torch.tensor(is_first),
        "is_last": torch.tensor(is_last),
        "is_terminal": torch.tensor(is_last & (rng.random((steps, n)) < 0.5)),
        "deter": torch.tensor(rng.normal(size=(n, 16)).astype(np.float16)),
        "stoch": torch.tensor(rng.integers(0, 4, (n, 3)).astype(np.uint8)),
    }
    return SequenceBatch(**{**drawn, **columns})


def gumbels(made: DreamerV3Learner) -> Any:
    """The noise of a learner's draws in its order, from a copy of its generator."""
    generator = torch.Generator()
    generator.set_state(made.generator.get_state())

    def draw(shape: tuple[int, ...], normal: bool = False) -> Any:
        if normal:
            return torch.empty(shape).normal_(generator=generator).double()
        uniform = torch.empty(shape).uniform_(1e-6, 1 - 1e-6, generator=generator)
        return -torch.log(-torch.log(uniform)).double()

    return draw


def seen_of(space: Any, steps: int, n: int) -> Any:
    """Observations [T, B, ...] of a space; integers as a buffer has them."""
    rng = np.random.default_rng(1)
    if isinstance(space, spaces.Dict):
        return {name: seen_of(one, steps, n) for name, one in space.items()}
    if isinstance(space, spaces.Discrete):
        return torch.tensor(space.start + rng.integers(0, space.n, (steps, n)))
    if space.dtype == np.uint8:
        return torch.tensor(rng.integers(0, 256, (steps, n, *space.shape), np.uint8))
    return torch.tensor(rng.normal(size=(steps, n, *space.shape)).astype(np.float32))


OTHER: dict[str, Any] = {
    "layers": 2,
    "head_layers": 2,
    "prior_layers": 1,
    "posterior_layers": 2,
    "bins": 41,
    "reconstruction_coef": 0.5,
    "reward_coef": 2.0,
    "continue_coef": 0.0,
    "dynamics_coef": 0.7,
    "representation_coef": 0.3,
    "slow_coef": 0.5,
    "policy_coef": 3.0,
    "value_coef": 0.2,
    "min_std": 0.3,
    "max_std": 2.0,
}
"""Another value of every option that the definition knows."""
STEPS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "vectors": (OBS, None, {"imag_last": None}),
    "last": (OBS, None, {"imag_last": 3}),
    "continuous": (OBS, BOX, {}),
    "integers": (spaces.Discrete(5), None, {}),
    "mixed": (MIXED, BOX, {"depth": 2}),
    "options": (OBS, None, OTHER),
    "continuous options": (OBS, BOX, OTHER),
}


@pytest.mark.parametrize("case", STEPS)
@pytest.mark.long(only=["mixed", "continuous options"])
def test_a_gradient_step_is_that_of_the_definition(case: str) -> None:
    obs_space, action_space, options = STEPS[case]
    made = learner(action_space, obs_space, **options)
    steps, n = (3, 2) if case == "mixed" else (6, 4)
    discrete = action_space is None
    obs = seen_of(obs_space, steps, n)
    batch, config = batch_of(steps, n, discrete=discrete, obs=obs), made.config
    named = dict(made.policy.named_parameters())
    weights = {k: p.detach().double().requires_grad_() for k, p in named.items()}
    slow = {k: p.detach().double() for k, p in made.slow_critic.named_parameters()}
    entries = dict(obs_space) if isinstance(obs_space, spaces.Dict) else {"obs": obs_space}
    step = Step(weights, slow, config, gumbels(made), entries, made.actor.size, discrete)
    expected = step.losses(batch)
    factors = {
        **{f"{name}_loss": coef for name, coef in config.model_coefs.items()},
        "actor_loss": config.policy_coef,
        "critic_loss": config.value_coef,
        "replay_value_loss": config.replay_value_coef,
    }
    assert factors.keys() == expected.keys()
    total = sum(factors[name] * loss for name, loss in expected.items())
    torch.as_tensor(total).backward()
    before = [weights[k].detach().numpy() for k in named]
    grads = [torch.as_tensor(weights[k].grad).numpy() for k in named]

    metrics = made.update(batch)
    for name, loss in expected.items():
        assert metrics[name].item() == pytest.approx(loss.item(), rel=1e-4, abs=1e-5), name
    norm = np.sqrt(sum((grad**2).sum() for grad in grads))
    assert metrics["grad_norm"].item() == pytest.approx(norm, rel=1e-3)
    moved = laprop(before, [grads], lr=1e-3, agc=0.3, warmup=0)
    for (name, parameter), wanted, grad in zip(named.items(), moved, grads, strict=True):
        clear = np.abs(grad) > 1e-6 * max(1.0, np.abs(grad).max())  # its sign decides the step
        found = parameter.detach().numpy()
        np.testing.assert_allclose(found[clear], wanted[clear], atol=1e-5, err_msg=name)
    for k, parameter in made.slow_critic.named_parameters():
        fast = named[f"critic.{k}"].detach()
        torch.testing.assert_close(
            parameter.detach(), torch.lerp(slow[k].float(), fast, config.slow_rate)
        )


def test_no_gradient_of_the_behavior_reaches_the_model_but_that_of_replayed_values() -> None:
    for coef, reaches in ((0.0, False), (0.3, True)):
        made = learner(replay_value_coef=coef)
        batch = batch_of()
        _, observed, _ = made.model_loss(batch)
        loss, _ = made.behavior_loss(batch, observed)
        grads = torch.autograd.grad(loss, list(made.world.parameters()), allow_unused=True)
        assert any(grad is not None and bool(grad.any()) for grad in grads) == reaches


def test_what_follows_an_end_changes_nothing_before_it() -> None:
    """A truncated episode bootstraps from its own last state, not from the next episode."""
    made = learner(imagination=1)
    flags: dict[str, Any] = {"is_first": torch.zeros(6, 4, dtype=torch.bool)}
    flags["is_last"], flags["is_terminal"] = flags["is_first"].clone(), flags["is_first"].clone()
    flags["is_last"][2] = True
    flags["is_first"][3] = True
    batch = batch_of(**flags)
    other = replace(batch, rewards=batch.rewards.clone())
    other.rewards[3:] += 100.0
    bootstrap, values = torch.ones(6, 4), []
    errors = made._value_errors

    def watched(logits: Any, returns: Any, slow: Any) -> Any:
        values.append(returns)
        return errors(logits, returns, slow)

    made._value_errors = watched  # type: ignore[method-assign]
    for one in (batch, other):
        made.generator.manual_seed(0)
        _, observed, _ = made.model_loss(one)
        made._replay_loss(one, observed.latents, bootstrap)
    assert torch.equal(values[0][:2], values[1][:2])
    assert not torch.equal(values[0][3:], values[1][3:])
    last = values[0][1]
    torch.testing.assert_close(last, batch.rewards[2] + (1 - 1 / 333))


@pytest.mark.parametrize("space", [None, spaces.Box(-2, 2, (2,), np.float32)], ids=str)
def test_actions_have_a_memory_and_are_within_bounds(space: Any) -> None:
    made = learner(space)
    obs = torch.randn(5, 3)
    state = made.initial_state(5)
    starts = torch.ones(5, dtype=torch.bool)
    acted = made.act(obs, explore=True, state=state, starts=starts)
    later = made.act(obs, explore=True, state=acted.state, starts=~starts)
    assert not torch.equal(acted.state, later.state)
    actions = made.action_map.to_env(later.actions.detach().numpy())
    assert all(made.action_space.contains(action) for action in actions)
    columns = made.extra_columns()
    assert set(acted.extra or {}) == set(columns)
    for name, (dtype, shape) in columns.items():
        column = (acted.extra or {})[name]
        assert column.shape == (5, *shape)
        assert str(column.dtype) == f"torch.{dtype}"


def test_stored_states_begin_sequences() -> None:
    made = learner()
    batch = batch_of(is_first=torch.zeros(6, 4, dtype=torch.bool))
    made.generator.manual_seed(0)
    _, one, _ = made.model_loss(batch)
    made.generator.manual_seed(0)
    _, other, _ = made.model_loss(replace(batch, deter=batch.deter + 1))
    assert not torch.equal(one.latents.deter, other.latents.deter)
    made.generator.manual_seed(0)
    _, none, _ = made.model_loss(replace(batch, deter=None, stoch=None))
    assert not torch.equal(one.latents.deter, none.latents.deter)


@pytest.mark.parametrize("discrete", [True, False], ids=["discrete", "continuous"])
def test_learning_goes_on_from_a_state(discrete: bool) -> None:
    space = spaces.Discrete(3) if discrete else spaces.Box(-1, 1, (2,), np.float32)
    batch = batch_of(discrete=discrete)
    one, other = learner(space), learner(space)
    for _ in range(2):
        one.update(batch)
    other.load_state_dict(one.state_dict())
    for made in (one, other):
        made.update(batch)
    assert torch.equal(one.flats["policy"].data, other.flats["policy"].data)
    assert torch.equal(one.flats["slow_critic"].data, other.flats["slow_critic"].data)
    assert torch.equal(one.return_range, other.return_range)


def test_losses_fall() -> None:
    made, batch = learner(learning_rate=1e-2), batch_of()
    history = [made.update(batch)["reconstruction_loss"].item() for _ in range(40)]
    assert history[-1] < 0.5 * history[0]


@pytest.mark.parametrize("discrete", [True, False], ids=["discrete", "continuous"])
def test_bfloat16_computes_about_the_same(discrete: bool) -> None:
    space = spaces.Discrete(3) if discrete else spaces.Box(-1, 1, (2,), np.float32)
    batch = batch_of(discrete=discrete)
    exact, rounded = learner(space), learner(space, bf16=True)
    wanted, found = exact.update(batch), rounded.update(batch)
    for name in ("reconstruction", "reward", "continue", "dynamics", "representation"):
        loss = found[f"{name}_loss"]
        assert loss.dtype == torch.float32
        assert loss.item() == pytest.approx(wanted[f"{name}_loss"].item(), rel=0.05), name
    assert not torch.equal(exact.flats["policy"].data, rounded.flats["policy"].data)
    for name, parameter in rounded.policy.named_parameters():  # no part lost its gradient
        other = dict(exact.policy.named_parameters())[name]
        assert bool(other.grad.any()) == bool(parameter.grad.any()), name
    assert {p.dtype for p in rounded.policy.parameters()} == {torch.float32}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"deter": 18}, "deter must be a multiple of blocks, 4, got 18"),
        ({"lam": 1.5}, "lam must be"),
        ({"imag_last": 0}, "imag_last must be"),
        ({"unimix": -0.1}, "unimix must be"),
        ({"bins": 40}, "bins must be odd and at least 3, got 40"),
        ({"reward_coef": -1.0}, "reward_coef must be at least 0, got -1"),
        ({"value_coef": -1.0}, "value_coef must be at least 0, got -1"),
        ({"posterior_layers": 0}, "posterior_layers must be greater than 0, got 0"),
        ({"min_std": 0.5, "max_std": 0.4}, "max_std must be at least 0.5, got 0.4"),
    ],
    ids=lambda value: "" if isinstance(value, str) else next(iter(value)),
)
def test_bad_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DreamerV3Config(**{**SMALL, **options})


def test_short_sequences_are_imagined_from_in_full_where_nothing_else_is_said() -> None:
    assert DreamerV3Config(sequence_length=4).imag_last == 8
    with pytest.raises(ValueError, match="imag_last must be from 2 to sequence_length, 4, got 6"):
        DreamerV3Config(sequence_length=4, imag_last=6)
    metrics, whole = (learner(imag_last=k, sequence_length=6).update(batch_of()) for k in (8, None))
    assert torch.equal(metrics["actor_loss"], whole["actor_loss"])


def test_actions_that_nobody_knows_are_named() -> None:
    with pytest.raises(TypeError, match="action_space must be Discrete or Box, got MultiBinary"):
        DreamerV3Learner(DreamerV3Config(**SMALL), OBS, spaces.MultiBinary(2), seeds=0)
