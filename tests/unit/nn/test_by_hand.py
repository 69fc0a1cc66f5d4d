from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from sharpwave import losses
from sharpwave.nn.actor_critic import ActorCritic
from sharpwave.nn.by_hand import ByHand
from sharpwave.nn.flat import FlatParameters
from sharpwave.nn.optimizers import Adam
from tests.unit.nn.policy_case import ACTIONS, MASKED, Case, assert_metrics, assert_near


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("clip_vloss", [False, True])
@pytest.mark.parametrize("ent_coef", [0.0, 0.1])
@pytest.mark.parametrize("actions", ACTIONS)
def test_the_gradient_of_ppo_is_that_of_autograd(
    actions: str, ent_coef: float, clip_vloss: bool, normalize: bool
) -> None:
    case = Case(actions)
    options: dict[str, Any] = {
        "ent_coef": ent_coef,
        "clip_vloss": clip_vloss,
        "normalize": normalize,
    }
    metrics = case.by_hand().ppo_gradient(clip=0.2, vf_coef=0.7, **options)
    gradient, expected = case.differentiated(clip=0.2, vf_coef=0.7, **options)
    assert_near(case.flat.grad, gradient)
    assert_metrics(metrics, expected)
    assert 0 < metrics[4] < 1, "some ratios are clipped and some are not"


@pytest.mark.parametrize("ent_coef", [0.0, 0.1])
@pytest.mark.parametrize("actions", MASKED)
def test_the_gradient_of_ppo_is_that_of_autograd_under_masks(actions: str, ent_coef: float) -> None:
    case = Case(actions, masks=True)
    metrics = case.by_hand().ppo_gradient(clip=0.2, ent_coef=ent_coef)
    gradient, expected = case.differentiated(ent_coef=ent_coef)
    assert_near(case.flat.grad, gradient)
    assert_metrics(metrics, expected)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("actions", ACTIONS)
def test_the_gradient_of_a2c_is_that_of_autograd(actions: str, normalize: bool) -> None:
    case = Case(actions)
    metrics = case.by_hand().a2c_gradient(vf_coef=0.3, ent_coef=0.05, normalize=normalize)
    gradient, expected = case.differentiated(
        clip=None, vf_coef=0.3, ent_coef=0.05, normalize=normalize
    )
    assert_near(case.flat.grad, gradient)
    assert_metrics(metrics, expected)


@pytest.mark.parametrize("hidden", [(8,), (8, 9, 10)])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_any_depth_and_both_activations_are_known(activation: str, hidden: tuple[int, ...]) -> None:
    case = Case(activation=activation, hidden=hidden)
    case.by_hand().ppo_gradient(clip=0.2, ent_coef=0.1)
    assert_near(case.flat.grad, case.differentiated(ent_coef=0.1)[0])


@pytest.mark.parametrize("actions", ACTIONS)
def test_one_row_alone_is_a_batch(actions: str) -> None:
    case = Case(actions, rows=1)
    metrics = case.by_hand(max_batch=1).ppo_gradient(clip=0.2, ent_coef=0.1)
    gradient, expected = case.differentiated(ent_coef=0.1)
    assert_near(case.flat.grad, gradient)
    assert_metrics(metrics, expected)


def test_minibatches_of_changing_size_are_the_rows_asked_for() -> None:
    case = Case(masks=True)
    by_hand = case.by_hand(max_batch=20)
    for size in (20, 7, 20, 1):
        indices = torch.randperm(32)[:size]
        metrics = by_hand.ppo_gradient(indices, clip=0.2, ent_coef=0.01)
        gradient, expected = case.differentiated(indices, ent_coef=0.01)
        assert_near(case.flat.grad, gradient)
        assert_metrics(metrics, expected)


def test_a_ratio_exactly_at_the_clip_range_still_has_a_gradient() -> None:
    case = Case("two actions", rows=4)
    # its own rounding decides, so that the ratio is 1 to the last bit
    by_hand = case.by_hand()
    case.log_probs = by_hand._forward(by_hand._rollout.rows(None), by_hand._metrics.terms(4))[1][0]
    case.log_probs = case.log_probs.clone()
    case.advantages = torch.tensor([1.0, -1.0, 2.0, -2.0])
    # with ratio 1 and clip 0 every sample lies on both ends of the range
    case.by_hand().ppo_gradient(clip=0.0, normalize=False)
    on_the_edge = case.flat.grad.clone()
    case.by_hand().ppo_gradient(clip=0.5, normalize=False)
    torch.testing.assert_close(on_the_edge, case.flat.grad, rtol=1e-4, atol=1e-6)


def test_samples_beyond_the_range_have_no_gradient_where_they_gained() -> None:
    case = Case("two actions", rows=4)
    now = case.policy.evaluate(case.obs, case.actions).log_probs.detach()
    case.log_probs = now - torch.tensor([0.5, -0.5, 0.5, -0.5])
    case.advantages = torch.tensor([1.0, -1.0, -1.0, 1.0])
    case.by_hand().ppo_gradient(clip=0.2, normalize=False)
    assert_near(case.flat.grad, case.differentiated(normalize=False)[0])
    case.advantages = torch.tensor([1.0, -1.0, 1.0, -1.0])
    case.log_probs = now - torch.tensor([0.5, -0.5, 0.5, -0.5])
    case.by_hand().ppo_gradient(clip=0.2, normalize=False, vf_coef=0.0)
    assert not case.flat.grad.any()


def test_values_that_tie_with_clipped_ones_share_the_gradient() -> None:
    case = Case(rows=8)
    with torch.no_grad():
        case.policy.get_parameter("critic.4.weight").zero_()
        case.policy.get_parameter("critic.4.bias").fill_(1.0)
    case.old_values = torch.zeros(8)
    case.returns = torch.full((8,), 0.75)
    case.by_hand().ppo_gradient(clip=0.5, vf_coef=1.0, clip_vloss=True)
    assert case.flat.grad[-1] == 0.125
    assert_near(case.flat.grad, case.differentiated(clip=0.5, vf_coef=1.0, clip_vloss=True)[0])


def test_the_clip_range_may_be_a_tensor() -> None:
    case = Case()
    by_hand = case.by_hand()
    metrics = by_hand.ppo_gradient(clip=0.2, clip_vloss=True)
    gradient = case.flat.grad.clone()
    other = by_hand.ppo_gradient(clip=torch.tensor(0.2), clip_vloss=True)
    torch.testing.assert_close(other, metrics)
    torch.testing.assert_close(case.flat.grad, gradient)


def test_calls_do_not_change_the_rollout_nor_each_other() -> None:
    case = Case(masks=True)
    by_hand = case.by_hand()
    first = by_hand.ppo_gradient(clip=0.2, ent_coef=0.1)
    kept = first.clone()
    gradient = case.flat.grad.clone()
    by_hand.a2c_gradient(torch.arange(3))
    assert torch.equal(first, kept)
    assert torch.equal(by_hand.ppo_gradient(clip=0.2, ent_coef=0.1), first)
    assert torch.equal(case.flat.grad, gradient)


def test_a_rollout_without_masks_may_follow_one_with_masks() -> None:
    case = Case(masks=True)
    by_hand = case.by_hand()
    case.masks = None
    columns = (case.obs, case.actions, case.advantages, case.returns)
    by_hand.load(*columns, log_probs=case.log_probs)
    by_hand.ppo_gradient(torch.arange(9), clip=0.2)
    assert_near(case.flat.grad, case.differentiated(torch.arange(9))[0])


def test_observations_of_other_spaces_become_features_first() -> None:
    space = spaces.Dict({"where": spaces.Discrete(3), "speed": spaces.Box(-1.0, 1.0, (2,))})
    policy = ActorCritic(space, spaces.Discrete(2), generator=np.random.default_rng(0))
    flat = FlatParameters(policy)
    by_hand = ByHand(flat, 8)
    obs = {"where": torch.tensor([0, 2, 1, 1]), "speed": torch.randn(4, 2)}
    acted = policy.act(obs)
    advantages, returns = torch.randn(4), torch.randn(4)
    by_hand.load(obs, acted.actions, advantages, returns)
    by_hand.a2c_gradient()
    by_hand_gradient = flat.grad.clone()
    evaluated = policy.evaluate(obs, acted.actions)
    loss = losses.policy_gradient(evaluated.log_probs, advantages)
    loss = loss + 0.5 * losses.value_loss(evaluated.values, returns)
    flat.zero_grad()
    loss.backward()
    torch.testing.assert_close(by_hand_gradient, flat.grad, rtol=1e-4, atol=1e-6)


def test_a_policy_learns_what_it_is_rewarded_for() -> None:
    case = Case("two actions", rows=64)
    by_hand = case.by_hand()
    optimizer = Adam(case.flat, 1e-2)
    before = case.policy.evaluate(case.obs, torch.ones(64)).log_probs.mean()
    advantages = 2.0 * case.actions - 1.0
    by_hand.load(case.obs, case.actions, advantages, case.returns, log_probs=case.log_probs)
    for _ in range(50):
        by_hand.ppo_gradient(clip=0.5, normalize=False)
        case.flat.clip_grad_norm(0.5)
        optimizer.step()
    after = case.policy.evaluate(case.obs, torch.ones(64)).log_probs.mean()
    assert after > before + 0.2


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"recurrent": "lstm"}, "recurrent"),
        ({"squash": True}, "SquashedGaussian"),
        ({"gsde": True}, "noise depends on the state"),
        ({"activation": "elu"}, "actor has activations other than"),
        ({"hidden": ()}, "actor has no hidden layers"),
    ],
)
def test_other_policies_are_refused_with_the_reason(options: dict[str, Any], reason: str) -> None:
    box = spaces.Box(-1.0, 1.0, (3,))
    policy = ActorCritic(box, box, generator=np.random.default_rng(0), **options)
    assert reason in str(ByHand.why_not(policy))
    with pytest.raises(TypeError, match=reason):
        ByHand(FlatParameters(policy), 8)


def test_images_are_refused_with_the_reason() -> None:
    image = spaces.Box(0, 255, (36, 36, 3), np.uint8)
    policy = ActorCritic(image, spaces.Discrete(2), generator=np.random.default_rng(0))
    assert ByHand.why_not(policy) == "the policy learns its features"


def test_subclasses_and_changed_networks_are_refused() -> None:
    class Changed(ActorCritic):
        pass

    def mlp(*kinds: type[nn.Module]) -> nn.Sequential:
        first, second = (kind() for kind in kinds)
        return nn.Sequential(nn.Linear(3, 64), first, nn.Linear(64, 64), second, nn.Linear(64, 1))

    box = spaces.Box(-1.0, 1.0, (3,))
    changed = Changed(box, box, generator=np.random.default_rng(0))
    assert ByHand.why_not(changed) == "the policy is a Changed, not an ActorCritic"
    for name, module, reason in (
        ("actor", nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 3)), "with activations between"),
        ("actor", nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3, bias=False)), "bias"),
        ("critic", nn.Linear(3, 1), "critic is a Linear, not a Sequential"),
        ("critic", nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1)), "differ in their"),
        ("critic", mlp(nn.Tanh, nn.ReLU), "activations other than one of"),
        ("critic", mlp(nn.ReLU, nn.ReLU), "differ in their hidden layers"),
    ):
        policy = ActorCritic(box, box, generator=np.random.default_rng(0))
        setattr(policy, name, module)
        assert reason in str(ByHand.why_not(policy))


@pytest.mark.parametrize("name", ["actor.0.weight", "critic.2.bias", "log_std"])
def test_frozen_parameters_are_refused(name: str) -> None:
    box = spaces.Box(-1.0, 1.0, (3,))
    policy = ActorCritic(box, box, generator=np.random.default_rng(0))
    policy.get_parameter(name).requires_grad_(False)
    assert "frozen" in str(ByHand.why_not(policy))


def test_shapes_that_do_not_fit_are_refused_by_name() -> None:
    case = Case(masks=True)
    by_hand = case.by_hand()
    columns = {
        "actions": case.actions,
        "advantages": case.advantages,
        "returns": case.returns,
        "log_probs": case.log_probs,
        "old_values": case.old_values,
        "masks": case.masks,
    }
    for name, column in columns.items():
        assert column is not None
        with pytest.raises(ValueError, match=rf"{name} must have shape \(32,.*got \(31,"):
            by_hand.load(case.obs, **{**columns, name: column[1:]})  # type: ignore[arg-type]


def test_missing_columns_and_too_many_rows_are_refused() -> None:
    case = Case()
    by_hand = ByHand(case.flat, 16)
    with pytest.raises(ValueError, match="load a rollout"):
        by_hand.a2c_gradient()
    by_hand.load(case.obs, case.actions, case.advantages, case.returns)
    with pytest.raises(ValueError, match="log_probs must be loaded"):
        by_hand.ppo_gradient(clip=0.2)
    with pytest.raises(ValueError, match="at most 16 rows, got 32"):
        by_hand.a2c_gradient()
    with pytest.raises(ValueError, match="max_batch must be positive, got 0"):
        ByHand(case.flat, 0)


def test_masks_of_unbounded_actions_are_refused() -> None:
    case = Case("gaussian")
    with pytest.raises(ValueError, match="masks need discrete actions"):
        case.by_hand().load(
            case.obs,
            case.actions,
            case.advantages,
            case.returns,
            masks=torch.ones(32, 3, dtype=torch.bool),
        )


@pytest.mark.gpu
@pytest.mark.parametrize("actions", ACTIONS)
def test_the_gradient_is_the_same_on_the_device(actions: str) -> None:
    masks = actions in MASKED
    case, other = Case(actions, masks=masks), Case(actions, masks=masks, device="cuda")
    metrics = case.by_hand().ppo_gradient(clip=0.2, ent_coef=0.1)
    on_device = other.by_hand().ppo_gradient(clip=0.2, ent_coef=0.1)
    torch.testing.assert_close(on_device.cpu(), metrics, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(other.flat.grad.cpu(), case.flat.grad, rtol=1e-3, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("actions", ["multi categorical", "bernoulli", "gaussian"])
def test_a_step_can_be_captured_in_a_graph(actions: str) -> None:
    case = Case(actions, device="cuda")
    by_hand, optimizer = case.by_hand(), Adam(case.flat, 1e-2)
    indices = torch.arange(16, device="cuda")
    skip = torch.zeros((), device="cuda")

    def step() -> Tensor:
        metrics = by_hand.ppo_gradient(indices, clip=0.2, ent_coef=0.1, clip_vloss=True)
        case.flat.clip_grad_norm(0.5)
        optimizer.step(skip)
        return metrics

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    start = [tensor.clone() for tensor in (case.flat.data, *optimizer.arrays().values())]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    indices.copy_(torch.arange(16, 32))
    graph.replay()
    replayed, moved = captured.clone(), case.flat.data.clone()
    for tensor, value in zip((case.flat.data, *optimizer.arrays().values()), start, strict=True):
        tensor.copy_(value)
    torch.testing.assert_close(step(), replayed)
    torch.testing.assert_close(case.flat.data, moved)
