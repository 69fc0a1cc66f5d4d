"""A user's module as a policy, and the ready-made ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from sharpwave.nn import ActorCritic, ContinuousPolicy, CustomPolicy, DiscretePolicy
from sharpwave.nn.custom import global_randomness_from


class Minimal(nn.Module):
    """Only what is required, sampling as a user would."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Linear(4, 3)
        self.value = nn.Linear(4, 1)

    def get_action_and_logprob(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        distribution = torch.distributions.Categorical(logits=self.logits(obs))
        actions = distribution.sample()
        return actions, distribution.log_prob(actions)

    def get_value(self, obs: Tensor) -> Tensor:
        value: Tensor = self.value(obs)
        return value.squeeze(-1)

    def get_logprob_and_entropy(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        distribution = torch.distributions.Categorical(logits=self.logits(obs))
        return distribution.log_prob(actions), distribution.entropy()


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


OBS = torch.randn(32, 4, generator=seeded())


def modules() -> list[nn.Module]:
    return [Minimal(), DiscretePolicy(4, 3, seed=0), ContinuousPolicy(4, 2, seed=0)]


@pytest.mark.parametrize("module", modules(), ids=lambda m: type(m).__name__)
def test_acting_evaluating_and_values_agree(module: nn.Module) -> None:
    policy = CustomPolicy(module)
    acted = policy.act(OBS, generator=seeded())
    evaluated = policy.evaluate(OBS, acted.actions)
    torch.testing.assert_close(evaluated.log_probs, acted.log_probs)
    torch.testing.assert_close(evaluated.values, acted.values)
    torch.testing.assert_close(policy.values(OBS), acted.values)
    assert not acted.log_probs.requires_grad
    assert evaluated.log_probs.requires_grad
    assert evaluated.entropy.shape == (32,)
    assert acted.state is None
    assert policy.initial_state(32) is None
    assert not policy.recurrent
    policy.reset_noise(32)


@pytest.mark.parametrize("module", modules(), ids=lambda m: type(m).__name__)
def test_sampling_uses_the_given_generator_and_leaves_the_global_one(module: nn.Module) -> None:
    policy = CustomPolicy(module)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    generator = seeded(1)
    first = policy.act(OBS, generator=generator).actions
    second = policy.act(OBS, generator=generator).actions
    assert torch.equal(torch.rand(3), expected)
    again = seeded(1)
    assert torch.equal(policy.act(OBS, generator=again).actions, first)
    assert torch.equal(policy.act(OBS, generator=again).actions, second)
    assert not torch.equal(first, second)


def test_the_global_generator_comes_back_after_an_error() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with pytest.raises(RuntimeError), global_randomness_from(seeded()):
        torch.zeros(2) @ torch.rand(3)
    assert torch.equal(torch.rand(3), expected)


def test_without_a_generator_the_global_one_is_used() -> None:
    policy = CustomPolicy(Minimal())
    torch.manual_seed(5)
    first = policy.act(OBS).actions
    torch.manual_seed(5)
    assert torch.equal(policy.act(OBS).actions, first)


def test_actions_and_values_may_come_from_one_call() -> None:
    class Joint(Minimal):
        def get_action_value(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return torch.ones(len(obs)).long(), torch.zeros(len(obs)), torch.full((len(obs),), 7.0)

    acted = CustomPolicy(Joint()).act(OBS)
    assert (acted.values == 7.0).all()
    assert (acted.actions == 1).all()


@pytest.mark.parametrize("name", ["get_action_and_logprob", "get_value", "get_logprob_and_entropy"])
def test_a_missing_method_is_named(name: str) -> None:
    methods = {
        other: getattr(Minimal, other)
        for other in ("get_action_and_logprob", "get_value", "get_logprob_and_entropy")
        if other != name
    }
    module = type("Partial", (nn.Module,), methods)()
    with pytest.raises(TypeError, match=rf"policy Partial must offer {name}\(obs"):
        CustomPolicy(module)


def test_something_that_is_no_module_is_refused() -> None:
    nothing: Any = object()
    with pytest.raises(TypeError, match=r"policy must be a torch\.nn\.Module, got object"):
        CustomPolicy(nothing)


def test_deterministic_actions_need_an_actor() -> None:
    with pytest.raises(TypeError, match=r"policy Minimal must offer actor\(obs\)"):
        CustomPolicy(Minimal()).act(OBS, deterministic=True)


@pytest.mark.long
def test_deterministic_actions_are_the_best_or_the_mean() -> None:
    discrete, continuous = DiscretePolicy(4, 3, seed=0), ContinuousPolicy(4, 2, seed=0)
    assert not CustomPolicy(discrete).continuous
    assert CustomPolicy(continuous).continuous
    best = CustomPolicy(discrete).act(OBS, deterministic=True)
    assert torch.equal(best.actions, discrete.actor(OBS).argmax(-1))
    mean = CustomPolicy(continuous).act(OBS, deterministic=True)
    assert torch.equal(mean.actions, continuous.actor(OBS))


@pytest.mark.parametrize("result", ["values", "log_probs"])
def test_columns_where_vectors_are_meant_are_refused(result: str) -> None:
    class Columns(Minimal):
        def get_value(self, obs: Tensor) -> Tensor:
            value = super().get_value(obs)
            return value.unsqueeze(-1) if result == "values" else value

        def get_logprob_and_entropy(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
            log_probs, entropy = super().get_logprob_and_entropy(obs, actions)
            return (log_probs.unsqueeze(-1) if result == "log_probs" else log_probs), entropy

    policy = CustomPolicy(Columns())
    message = rf"{result} of policy.* must have shape \(32,\), got \(32, 1\)"
    with pytest.raises(ValueError, match=message):
        policy.evaluate(OBS, torch.zeros(32, dtype=torch.int64))
    if result == "values":
        with pytest.raises(ValueError, match=message):
            policy.act(OBS)
        with pytest.raises(ValueError, match=r"values of policy must have shape \(B,\), got"):
            policy.values(OBS)


def test_masks_are_refused() -> None:
    policy = CustomPolicy(Minimal())
    masks = torch.ones(32, 3, dtype=torch.bool)
    with pytest.raises(ValueError, match="masks do not reach a custom policy"):
        policy.act(OBS, masks=masks)


def test_float64_observations_reach_the_module_as_float32() -> None:
    policy = CustomPolicy(Minimal())
    torch.testing.assert_close(policy.values(OBS.double()), policy.values(OBS))


def test_parameters_are_those_of_the_module() -> None:
    module = Minimal()
    assert list(CustomPolicy(module).parameters()) == list(module.parameters())


def test_ready_made_policies_share_weights_and_names_with_the_actor_critic() -> None:
    for module, actions in (
        (DiscretePolicy(4, 3, seed=9), spaces.Discrete(3)),
        (ContinuousPolicy(4, 2, seed=9), spaces.Box(-1, 1, (2,))),
    ):
        net = ActorCritic(spaces.Box(-1, 1, (4,)), actions, generator=np.random.default_rng(9))
        ours, theirs = module.state_dict(), net.state_dict()
        assert list(ours) == list(theirs)
        for name, weight in ours.items():
            assert torch.equal(weight, theirs[name])


def test_ready_made_policies_follow_the_global_seed_when_given_none() -> None:
    weights = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        weights.append(next(DiscretePolicy(4, 2, hidden=8).actor.parameters()))
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert weights[0].shape == (8, 4)


def test_ready_made_policies_sample_without_differentiating_the_action() -> None:
    policy = ContinuousPolicy(4, 2, seed=0)
    actions, log_probs = policy.get_action_and_logprob(OBS)
    assert not actions.requires_grad
    assert log_probs.requires_grad
    assert policy.log_std.tolist() == [0.0, 0.0]
    assert not hasattr(DiscretePolicy(4, 2, seed=0), "log_std")
