"""Gradients of SAC and TD3 by hand are those of autograd."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import sharpwave as sw
from sharpwave.nn import Critics, SACByHand, SquashedActor, TD3ByHand
from sharpwave.train.replay import ReplayBatch

ROWS = 48
BOX = spaces.Box(-np.inf, np.inf, (2, 3), np.float32)
OBSERVATIONS: dict[str, spaces.Space[Any]] = {
    "matrix": BOX,
    "wide": spaces.Box(-1.0, 1.0, (40,), np.float32),
    "discrete": spaces.Discrete(5),
    "nested": spaces.Dict({"where": BOX, "which": spaces.Discrete(3)}),
}


def environment(observation_space: Any, dim: int = 3) -> Any:
    import gymnasium as gym

    class Spaces(gym.Env[Any, Any]):
        action_space = spaces.Box(-1.0, 1.0, (dim,), np.float32)

        def __init__(self) -> None:
            self.observation_space = observation_space

        def step(self, action: Any) -> Any:
            raise NotImplementedError

    return Spaces


def random_obs(space: Any, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    if isinstance(space, spaces.Dict):
        return {key: random_obs(inner, seed) for key, inner in space.items()}
    if isinstance(space, spaces.Discrete):
        return torch.from_numpy(rng.integers(space.n, size=ROWS))
    return torch.from_numpy(rng.normal(size=(ROWS, *space.shape)).astype(np.float32))


def pair(cls: Any, space: Any, dim: int = 3, **options: Any) -> tuple[Any, Any]:
    """Two of an algorithm that differ in how they take gradients, some steps from their start."""
    options = {"hidden": (16, 12), "seed": 4, "learning_rate": 3e-3, "backend": "torch", **options}
    if cls is sw.TD3:
        options["policy_delay"] = 1
    both = [cls(environment(space, dim), **options) for _ in range(2)]
    assert both[0].by_hand is not None
    both[1].by_hand = None
    for algorithm in both:
        algorithm.follow_schedules(1.0)
        for flat in (algorithm.flat_critics, algorithm.flat_actor):
            flat.data.mul_(2.0)
            flat.grad.fill_(float("nan"))  # what is left over from before must not matter
    return both[0], both[1]


def batch(space: Any, dim: int = 3, *, weighted: bool = False, rows: int = ROWS) -> ReplayBatch:
    rng = np.random.default_rng(1)

    def tensor(array: Any) -> torch.Tensor:
        return torch.from_numpy(np.asarray(array, np.float32))

    return ReplayBatch(
        obs=random_obs(space, 2),
        actions=tensor(rng.uniform(-1, 1, (rows, dim))),
        rewards=tensor(rng.normal(size=rows)),
        next_obs=random_obs(space, 3),
        discounts=tensor(0.9 * (rng.random(rows) < 0.8)),
        weights=tensor(rng.uniform(0.1, 1, rows)) if weighted else None,
    )


def same_steps(hand: Any, auto: Any, step: ReplayBatch, count: int = 3) -> None:
    for _ in range(count):
        mine, theirs = copy.copy(step), copy.copy(step)
        first, second = hand.gradient_step(mine), auto.gradient_step(theirs)
        torch.testing.assert_close(first, second, rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(mine.td_errors, theirs.td_errors, rtol=1e-3, atol=1e-5)
        for name in ("flat_critics", "flat_actor"):
            found, expected = getattr(hand, name).grad, getattr(auto, name).grad
            scale = expected.abs().max().item()
            assert scale > 0
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4 * scale)
        for algorithm in (hand, auto):
            algorithm.gradient_steps += 1


@pytest.mark.parametrize("cls", [sw.SAC, sw.TD3, sw.DDPG])
class TestSteps:
    @pytest.mark.parametrize("observations", OBSERVATIONS)
    def test_of_any_observations(self, cls: Any, observations: str) -> None:
        space = OBSERVATIONS[observations]
        same_steps(*pair(cls, space), batch(space))

    @pytest.mark.parametrize("dim", [1, 2, 7, 40])
    def test_of_any_number_of_actions(self, cls: Any, dim: int) -> None:
        same_steps(*pair(cls, BOX, dim), batch(BOX, dim))

    @pytest.mark.parametrize(
        "options",
        [
            {"n_critics": 1},
            {"n_critics": 5},
            {"activation": "tanh"},
            {"hidden": (7,)},
            {"hidden": (33, 8, 40)},
            {"max_grad_norm": 0.01},
        ],
        ids=str,
    )
    def test_of_any_network(self, cls: Any, options: dict[str, Any]) -> None:
        same_steps(*pair(cls, BOX, **options), batch(BOX))

    def test_of_weighted_rows(self, cls: Any) -> None:
        same_steps(*pair(cls, BOX), batch(BOX, weighted=True))


@pytest.mark.parametrize("bias", [-30.0, 5.0])
def test_deviations_at_their_bounds_get_no_gradient(bias: float) -> None:
    hand, auto = pair(sw.SAC, BOX)
    for algorithm in (hand, auto):
        with torch.no_grad():
            list(algorithm.policy.net)[-1].bias[3:] = bias
    same_steps(hand, auto, batch(BOX), count=1)
    assert (list(hand.policy.net)[-1].bias.grad[3:] == 0).all()


class TestWhereItCannot:
    @pytest.mark.parametrize(
        ("options", "reason"),
        [
            ({"gsde": True}, "noise of its own"),
            ({"batch_norm": True}, "actor"),
            ({"activation": "silu"}, "activations other than"),
        ],
    )
    def test_it_says_why(self, options: dict[str, Any], reason: str) -> None:
        generator = np.random.default_rng(0)
        policy = SquashedActor(BOX, 2, generator=generator, **options)
        critics = Critics(BOX, 2, generator=generator)
        assert reason in str(SACByHand.why_not(policy, critics))
        with pytest.raises(TypeError, match="by hand"):
            SACByHand(policy, critics, critics)

    @pytest.mark.parametrize(
        ("options", "reason"),
        [
            ({"layer_norm": True}, "normalises"),
            ({"batch_norm": True}, "normalises"),
            ({"n_outputs": 3}, "several outputs"),
            ({"hidden": ()}, "no hidden layer"),
            ({"activation": "elu"}, "ELU"),
        ],
    )
    def test_it_says_what_is_in_the_way_of_critics(
        self, options: dict[str, Any], reason: str
    ) -> None:
        generator = np.random.default_rng(0)
        policy = SquashedActor(BOX, 2, generator=generator)
        critics = Critics(BOX, 2, generator=generator, **options)
        assert reason in str(SACByHand.why_not(policy, critics))

    def test_learned_features_are_left_to_autograd(self) -> None:
        image = spaces.Box(0, 255, (3, 40, 40), np.uint8)
        generator = np.random.default_rng(0)
        policy = SquashedActor(image, 2, generator=generator)
        critics = Critics(image, 2, generator=generator)
        assert "features" in str(SACByHand.why_not(policy, critics))
        assert "SquashedActor" in str(TD3ByHand.why_not(policy, critics))
