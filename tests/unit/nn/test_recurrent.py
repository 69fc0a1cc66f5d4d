"""Recurrent policies: a sequence evaluated at once equals its steps, whatever begins inside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sharpwave.nn import ActorCritic
from sharpwave.nn.recurrent import EpisodePieces, make_rnn, step, unroll
from tests.unit.nn.test_features import NESTED, stacked

BOX = spaces.Box(-1, 1, (3,))
SIZE = 6

each_kind = pytest.mark.parametrize("kind", ["lstm", "gru"])


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make(kind: str, actions: spaces.Space[Any] | None = None, **options: Any) -> ActorCritic:
    return ActorCritic(
        options.pop("observation_space", BOX),
        actions or spaces.Discrete(3),
        hidden=(8,),
        recurrent=kind,
        recurrent_size=SIZE,
        generator=np.random.default_rng(0),
        **options,
    )


def rollout(net: ActorCritic, starts: Tensor, state: Tensor, **options: Any) -> dict[str, Tensor]:
    """Acts step after step and stacks what came of it."""
    steps, envs = starts.shape
    obs = torch.randn(steps, envs, 3, generator=seeded(1))
    generator = seeded(2)
    rows = []
    for t in range(steps):
        acted = net.act(obs[t], state=state, starts=starts[t], generator=generator, **options)
        bootstrap = net.values(obs[t], state=state, starts=starts[t])
        torch.testing.assert_close(bootstrap, acted.values)
        assert acted.state is not None
        state = acted.state
        rows.append((acted.actions, acted.log_probs, acted.values))
    actions, log_probs, values = (torch.stack(column) for column in zip(*rows, strict=True))
    return {"obs": obs, "actions": actions, "log_probs": log_probs, "values": values}


def assert_evaluation_equals_acting(net: ActorCritic, starts: Tensor, seed: int = 0) -> None:
    initial = net.initial_state(starts.shape[1])
    assert initial is not None
    state = torch.randn(initial.shape, generator=seeded(seed))
    data = rollout(net, starts, state)
    evaluated = net.evaluate(data["obs"], data["actions"], state=state, starts=starts)
    for name in ("log_probs", "values"):
        torch.testing.assert_close(getattr(evaluated, name), data[name], rtol=1e-5, atol=1e-5)
    assert evaluated.entropy.shape == starts.shape


@pytest.mark.long
@given(
    kind=st.sampled_from(["lstm", "gru"]),
    steps=st.integers(1, 12),
    envs=st.integers(1, 5),
    chance=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    seed=st.integers(0, 2**31),
)
def test_evaluating_a_sequence_equals_acting_step_by_step(
    kind: str, steps: int, envs: int, chance: float, seed: int
) -> None:
    starts = torch.rand(steps, envs, generator=seeded(seed)) < chance
    assert_evaluation_equals_acting(make(kind), starts, seed)


@each_kind
@pytest.mark.parametrize("options", [{}, {"squash": True}, {"gsde": True}])
def test_continuous_actions_too(kind: str, options: dict[str, Any]) -> None:
    starts = torch.rand(9, 4, generator=seeded(5)) < 0.2
    assert_evaluation_equals_acting(make(kind, spaces.Box(-1, 1, (2,)), **options), starts)


@each_kind
def test_steps_one_by_one_equal_packed_ones_with_their_gradients(kind: str) -> None:
    rnn = make_rnn(kind, 3, SIZE, np.random.default_rng(0))
    k = 2 if kind == "lstm" else 1
    x = torch.randn(7, 4, 3, generator=seeded())
    state = torch.randn(k, 4, SIZE, generator=seeded(1))
    for chance in (0.0, 0.3, 1.0):
        starts = torch.rand(7, 4, generator=seeded(2)) < chance
        carried, outputs = state, []
        for t in range(7):
            output, carried = step(rnn, x[t], carried, starts[t])
            outputs.append(output)
        expected, packed = torch.stack(outputs), unroll(rnn, x, state, EpisodePieces(starts))
        torch.testing.assert_close(packed, expected, rtol=1e-5, atol=1e-6)
        weights = torch.randn(packed.shape, generator=seeded(3))
        gradients = [
            torch.autograd.grad((result * weights).sum(), list(rnn.parameters()))
            for result in (packed, expected)
        ]
        torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-5)


@each_kind
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "one by one"])
def test_steps_that_are_not_valid_leave_the_state_as_it_is(
    kind: str, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others come out as if there were nothing between them, and so do their gradients."""
    rnn = make_rnn(kind, 3, SIZE, np.random.default_rng(0))
    k = 2 if kind == "lstm" else 1
    x = torch.randn(7, 5, 3, generator=seeded())
    state = torch.randn(k, 5, SIZE, generator=seeded(1))
    starts = torch.rand(7, 5, generator=seeded(2)) < 0.2
    valid = torch.rand(7, 5, generator=seeded(3)) < 0.5
    valid[:, 4] = False
    expected = torch.zeros(7, 5, SIZE)
    for env in range(5):
        carried = state[:, env : env + 1]
        for t in range(7):
            if starts[t, env]:  # which holds, whether or not it is valid
                carried = torch.zeros_like(carried)
            if valid[t, env]:
                output, carried = step(rnn, x[t, env : env + 1], carried, None)
                expected[t, env] = output[0]
    monkeypatch.setattr(EpisodePieces, "one_by_one", not packed)
    found = unroll(rnn, x, state, EpisodePieces(starts, valid))
    torch.testing.assert_close(found[valid], expected[valid], rtol=1e-5, atol=1e-6)
    assert found.isfinite().all()
    gradients = [
        torch.autograd.grad(outputs[valid].square().sum(), list(rnn.parameters()))
        for outputs in (found, expected)
    ]
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-5)
    nothing = unroll(rnn, x, state, EpisodePieces(starts, torch.zeros_like(valid)))
    assert nothing.isfinite().all()


@each_kind
def test_steps_run_one_by_one_where_looking_at_the_starts_would_wait(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rnn = make_rnn(kind, 3, SIZE, np.random.default_rng(0))
    x, starts = torch.randn(5, 2, 3), torch.rand(5, 2) < 0.3
    state = torch.zeros(2 if kind == "lstm" else 1, 2, SIZE)
    packed = unroll(rnn, x, state, EpisodePieces(starts))
    monkeypatch.setattr(EpisodePieces, "one_by_one", True)
    torch.testing.assert_close(unroll(rnn, x, state, EpisodePieces(starts)), packed)


@each_kind
def test_nothing_passes_the_beginning_of_an_episode(kind: str) -> None:
    net = make(kind)
    starts = torch.zeros(6, 2, dtype=torch.bool)
    starts[3, 0] = True
    obs = torch.randn(6, 2, 3, generator=seeded(), requires_grad=True)
    evaluated = net.evaluate(obs, torch.zeros(6, 2, dtype=torch.int64), starts=starts)
    (gradient,) = torch.autograd.grad(evaluated.values[5].sum(), obs)
    assert not gradient[:3, 0].any()
    assert gradient[3:, 0].any(-1).all()
    assert gradient[:, 1].any(-1).all()


@each_kind
def test_a_new_episode_acts_as_the_first(kind: str) -> None:
    net = make(kind)
    obs = torch.randn(4, 3, generator=seeded())
    initial = net.initial_state(4)
    assert initial is not None
    assert initial.shape == ((4 if kind == "lstm" else 2), 4, SIZE)
    assert not initial.any()
    first = net.act(obs, state=initial, deterministic=True)
    later = net.act(
        obs,
        state=torch.randn(initial.shape, generator=seeded(1)),
        starts=torch.ones(4, dtype=torch.bool),
        deterministic=True,
    )
    for mine, other in zip(first, later, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=0)
    torch.testing.assert_close(net.act(obs, deterministic=True).values, first.values)


def test_the_given_state_is_left_as_it_was() -> None:
    net = make("lstm")
    state = torch.randn(4, 2, SIZE, generator=seeded())
    kept = state.clone()
    net.act(torch.zeros(2, 3), state=state, starts=torch.tensor([True, False]))
    assert torch.equal(state, kept)


def test_recurrent_layers_stand_before_the_actor() -> None:
    names = [name for name, _ in make("lstm").named_parameters()]
    weights = ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"]
    assert names[:8] == [f"{net}_rnn.{w}" for net in ("actor", "critic") for w in weights]
    assert names[8] == "actor.0.weight"


def test_nested_image_observations_in_sequences() -> None:
    net = make("gru", observation_space=NESTED)

    def fold(nest: Any) -> Any:
        if isinstance(nest, dict):
            return {key: fold(leaf) for key, leaf in nest.items()}
        if isinstance(nest, tuple):
            return tuple(map(fold, nest))
        return nest.reshape(2, 3, *nest.shape[1:])

    evaluated = net.evaluate(
        fold(stacked(NESTED, 6)),
        torch.zeros(2, 3, dtype=torch.int64),
        starts=torch.zeros(2, 3, dtype=torch.bool),
        masks=torch.ones(2, 3, 3, dtype=torch.bool),
    )
    assert evaluated.values.shape == (2, 3)
    (evaluated.values + evaluated.log_probs).sum().backward()
    assert all(p.grad is not None for p in net.parameters())


def test_unknown_kinds_and_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="recurrent must be None, 'lstm' or 'gru', got 'rnn'"):
        make("rnn")
    with pytest.raises(ValueError, match="recurrent_size must be positive, got 0"):
        make_rnn("gru", 3, 0, np.random.default_rng(0))
