"""PPO's learner with kernels beside the one that autograd differentiates."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

import sharpwave as sw
from sharpwave.algorithms.ppo import FusedPPOLearner, PPOLearner
from sharpwave.core.ranks import ALONE
from sharpwave.learners import choose
from sharpwave.learners.batch import OnPolicyBatch
from sharpwave.learners.fused import why_not_fused
from sharpwave.primitives.small_policy import tensors as small
from sharpwave.primitives.small_ppo import tensors as small_ppo

ROWS, OBS = 96, 5
ACTIONS: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(3),
    "box": spaces.Box(-1.0, 1.0, (2,)),
}


OPTIONS: dict[str, dict[str, Any]] = {
    "one layer": {"hidden": (12,), "activation": "relu"},
    "clipped": {"clip_vloss": True, "ent_coef": 0.0, "target_kl": 0.01},
    "raw": {
        "normalize_advantages": False,
        "hidden": {"actor": (9,), "critic": (8, 8, 8)},
        "activation": "elu",
    },
}


class Seen(gym.Env[Any, Any]):
    """Says what observations and actions are, and is never stepped."""

    observation_space = spaces.Box(-np.inf, np.inf, (OBS,), np.float32)

    def __init__(self, action_space: Any) -> None:
        self.action_space = action_space


def learner(kind: Any, actions: str = "box", device: str = "cpu", **options: Any) -> Any:
    defaults: dict[str, Any] = {
        "hidden": (16, 16),
        "batch_size": 40,
        "n_epochs": 1,
        "learning_rate": 1e-3,
        "seed": 5,
    }
    make = partial(Seen, ACTIONS[actions])
    given = {**defaults, "backend": "torch", "device": device, **options}
    return sw.PPO(make, learner=kind, **given).learner


def batch(of: Any, seed: int) -> OnPolicyBatch:
    """Steps of the policy as it is."""
    generator = torch.Generator("cpu").manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(of.device)

    obs = normal(ROWS, OBS)
    acted = of.policy.act(obs, generator=torch.Generator(of.device).manual_seed(seed))
    advantages = normal(ROWS) + obs[:, 0] * acted.actions.reshape(ROWS, -1)[:, 0]
    returns = acted.values + advantages
    return OnPolicyBatch(obs, acted.actions, acted.log_probs, acted.values, advantages, returns)


@pytest.mark.long
@pytest.mark.parametrize("actions", ACTIONS)
@pytest.mark.parametrize(
    "options",
    [
        {"hidden": (12,), "activation": "relu"},
        {"clip_vloss": True, "ent_coef": 0.0, "target_kl": 0.01},
        {
            "normalize_advantages": False,
            "hidden": {"actor": (9,), "critic": (8, 8, 8)},
            "activation": "elu",
        },
    ],
    ids=["plain", "clipped", "raw"],
)
def test_fifty_updates_are_those_of_the_definition(actions: str, options: Any) -> None:
    plain, fused = (learner(kind, actions, **options) for kind in (PPOLearner, FusedPPOLearner))
    first = plain.flat.data.clone()
    torch.testing.assert_close(fused.flat.data, first, rtol=0, atol=0)
    for seed in range(50):
        rows = batch(plain, seed)
        expected, found = plain.update(rows), fused.update(rows)
        assert list(found) == list(expected)
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=1e-3, atol=1e-5)
    moved = (plain.flat.data - first).norm()
    assert moved > 0.1
    assert (fused.flat.data - plain.flat.data).norm() < 1e-4 * moved


def test_a_loss_that_is_assigned_later_is_what_computes() -> None:
    fused = learner(FusedPPOLearner)
    rows, before = batch(fused, 0), fused.flat.data.clone()
    fused.loss = lambda _: (_nothing(fused), {})
    fused.update(rows)
    assert torch.equal(fused.flat.data, before)


def _nothing(of: Any) -> Tensor:
    nothing: Tensor = 0.0 * sum(parameter.sum() for parameter in of.policy.parameters())
    return nothing


def test_a_policy_that_is_changed_later_is_what_computes() -> None:
    fused, calls = learner(FusedPPOLearner), []
    evaluate = fused.policy.evaluate

    def mine(*args: Any, **options: Any) -> Any:
        calls.append(len(args[0]))
        return evaluate(*args, **options)

    fused.policy.evaluate = mine
    fused.update(batch(fused, 0))
    assert calls == [40, 40, 16]


SMALL: dict[str, dict[str, Any]] = {
    "usual": {},
    "narrow": {"hidden": {"actor": (9,), "critic": (8, 8, 8)}, "activation": "elu"},
    "wide": {"hidden": (129,)},
    "smooth": {"activation": "gelu"},
    "normed": {"feature_norm": True},
    "deviations": {"noise_std_type": "scalar"},
}


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("actions", ACTIONS)
def test_actions_and_values_are_those_of_the_definition(
    name: str, actions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = counted(monkeypatch, small, "act", "value")
    plain, fused = (learner(k, actions, **SMALL[name]) for k in (PPOLearner, FusedPPOLearner))
    obs = torch.randn(70, OBS, generator=torch.Generator().manual_seed(1))
    for explore in (True, False, True):
        with plain.inference():
            expected = plain.act(obs, explore=explore)
            found = fused.act(obs, explore=explore)
        for one, other in zip(found[:3], expected[:3], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(fused.values(obs), plain.values(obs), rtol=1e-4, atol=1e-5)
    is_small = name in ("usual", "narrow") or (name == "deviations" and actions == "discrete")
    assert calls == (["act", "act", "value"] if is_small else [])


def counted(monkeypatch: pytest.MonkeyPatch, module: Any, *names: str) -> list[str]:
    """The names of the functions that are called instead of networks."""
    calls: list[str] = []

    def call(name: str, own: Any, *args: Any, **options: Any) -> Any:
        calls.append(name)
        return own(*args, **options)

    for name in names:
        monkeypatch.setattr(module, name, partial(call, name, getattr(module, name)))
    return calls


def test_networks_that_are_changed_later_are_what_acts(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, fused = counted(monkeypatch, small, "act"), learner(FusedPPOLearner)
    obs = torch.ones(3, OBS)
    fused.act(obs, explore=True)
    assert calls == ["act"]
    fused.policy.actor[1] = torch.nn.ReLU()
    fused.act(obs, explore=True)
    fused.policy.actor[1] = torch.nn.Tanh()
    fused.policy.values = lambda obs, state: obs[:, 0]  # noqa: ARG005
    assert fused.values(obs).tolist() == [1.0] * 3
    assert calls == ["act"]


def test_copies_act_by_their_own_weights() -> None:
    fused = learner(FusedPPOLearner)
    copied, obs = fused.acting_copy(), torch.ones(3, OBS)
    before = fused.values(obs)
    with torch.no_grad():
        fused.flat.data.mul_(2.0)
    assert torch.equal(copied.values(obs), before)
    copied.follow_weights(fused.weights())
    torch.testing.assert_close(copied.values(obs), fused.values(obs))


HELD: dict[str, tuple[dict[str, Any], bool]] = {
    "usual": ({}, True),
    "uneven": ({"hidden": {"actor": (9, 20), "critic": (64, 3)}, "activation": "relu"}, True),
    "deep": ({"hidden": (8, 8, 8)}, False),
    "wide": ({"hidden": (65, 16)}, False),
    "smooth": ({"activation": "silu"}, False),
}


@pytest.mark.parametrize("name", HELD)
@pytest.mark.parametrize("actions", ACTIONS)
def test_a_gradient_is_that_of_the_definition(
    name: str, actions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, is_held = HELD[name]
    calls = counted(monkeypatch, small_ppo, "gradient")
    plain, fused = (learner(kind, actions, **options) for kind in (PPOLearner, FusedPPOLearner))
    made, rows = batch(plain, 0), torch.randperm(ROWS)[:50]
    for one in (plain, fused):  # away from where ratios are all 1
        one.flat.data.mul_(1.1)
    expected, found = plain.differentiate(made, rows), fused.differentiate(made, rows)
    assert list(found) == list(expected)
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(fused.flat.grad, plain.flat.grad, rtol=1e-4, atol=1e-5)
    assert calls == ["gradient"] * is_held


def test_no_kernel_stands_for_a_loss_that_was_assigned(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, fused = counted(monkeypatch, small_ppo, "gradient"), learner(FusedPPOLearner)
    made, rows = batch(fused, 0), torch.arange(50)
    fused.differentiate(made, rows)
    assert calls == ["gradient"]
    fused.loss = lambda _: (_nothing(fused), {})
    fused.differentiate(made, rows)
    assert calls == ["gradient"]
    assert not fused.flat.grad.any()


def test_no_kernel_stands_for_a_policy_with_more_parameters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls, fused = counted(monkeypatch, small_ppo, "gradient"), learner(FusedPPOLearner)
    fused.policy.scale = torch.nn.Parameter(torch.ones(1))
    fused.differentiate(batch(fused, 0), torch.arange(50))
    assert calls == []


def test_masked_actions_are_those_of_the_definition() -> None:
    plain, fused = (learner(kind, "discrete") for kind in (PPOLearner, FusedPPOLearner))
    rows = batch(plain, 0)
    masks = torch.ones(ROWS, 3, dtype=torch.bool)
    masks[::2, 1] = False
    masks.scatter_(1, rows.actions[:, None], True)
    rows = OnPolicyBatch(**{**vars(rows), "masks": masks})
    plain.update(rows), fused.update(rows)
    torch.testing.assert_close(fused.flat.data, plain.flat.data, rtol=1e-4, atol=1e-5)


class TestChoice:
    def reason(self, config: Any = None, actions: str = "box", given: Any = None) -> Any:
        config = config or sw.PPOConfig()
        return choose._why_not_fused(config, ACTIONS[actions], given or {}, ALONE)

    def test_never_on_the_cpu(self) -> None:
        assert type(learner(None)) is PPOLearner
        assert choose._fused(sw.PPO, PPOLearner, "cpu") is None

    def test_in_place_of_ppos_own_learner_on_cuda(self) -> None:
        assert choose._fused(sw.PPO, PPOLearner, "cuda:0") is FusedPPOLearner
        assert choose._fused(sw.HybridPPO, PPOLearner, "cuda") is FusedPPOLearner
        assert choose._fused(sw.A2C, sw.A2CLearner, "cuda") is None
        assert choose._fused(sw.MAPPO, sw.MAPPOLearner, "cuda") is None
        assert self.reason() is None
        assert self.reason(actions="discrete") is None

    def test_not_in_place_of_one_that_is_changed(self) -> None:
        class Mine(PPOLearner):
            pass

        assert choose._fused(sw.PPO, Mine, "cuda") is None

    @pytest.mark.parametrize(
        ("options", "reason"),
        [
            ({"recurrent": "gru"}, "recurrent is 'gru'"),
            ({"use_gsde": True}, "use_gsde is on"),
            ({"squash_actions": True}, "squash_actions is on"),
            ({"compile": True}, "compile is on"),
        ],
        ids=str,
    )
    def test_options_that_kernels_do_not_know(self, options: Any, reason: str) -> None:
        assert self.reason(sw.PPOConfig(**options)) == reason

    def test_networks_and_actions_that_kernels_do_not_know(self) -> None:
        given = {"policy": torch.nn.Linear(2, 2)}
        assert self.reason(given=given) == "policy is a network of its own"
        many, wide = spaces.MultiBinary(3), spaces.Box(-1, 1, (5, 13))
        config = sw.PPOConfig()
        assert why_not_fused(config, many) == "actions are MultiBinary"
        assert why_not_fused(config, wide) == "actions have a width of 65"
