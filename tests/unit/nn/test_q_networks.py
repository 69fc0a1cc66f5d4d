"""Values of actions: their shapes, their choices, and the noise on their weights."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from sharpwave.nn import Branches, FlatParameters, NoisyLinear, QNetwork

BOX = spaces.Box(-1.0, 1.0, (3,))
ACTIONS: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(4),
    "multi discrete": spaces.MultiDiscrete([2, 4, 3]),
    "multi binary": spaces.MultiBinary(3),
}
every_action_space = pytest.mark.parametrize("actions", ACTIONS)


def make(
    actions: str = "discrete", observation_space: spaces.Space[Any] = BOX, **options: Any
) -> QNetwork:
    options = {"hidden": (8, 8), **options}
    generator = np.random.default_rng(0)
    return QNetwork(observation_space, ACTIONS[actions], generator=generator, **options)


def rows(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


class TestShapes:
    @every_action_space
    @pytest.mark.parametrize("dueling", [False, True])
    @pytest.mark.parametrize("noisy", [False, True])
    @pytest.mark.parametrize("hidden", [(), (5,), (8, 8), (7, 6, 5)])
    def test_of_every_kind(
        self, actions: str, dueling: bool, noisy: bool, hidden: tuple[int, ...]
    ) -> None:
        n = {"discrete": 4, "multi discrete": 9, "multi binary": 6}[actions]
        options: dict[str, Any] = {"dueling": dueling, "noisy": noisy, "hidden": hidden}
        assert make(actions, **options)(rows(5, 3)).shape == (5, n)
        assert make(actions, **options, n_atoms=7)(rows(5, 3)).shape == (5, n, 7)

    @pytest.mark.parametrize("dueling", [False, True])
    def test_images(self, dueling: bool) -> None:
        net = make(
            observation_space=spaces.Box(0, 255, (4, 36, 36), np.uint8), dueling=dueling, hidden=()
        )
        images = torch.zeros(2, 4, 36, 36, dtype=torch.uint8)
        assert net(images).shape == (2, 4)

    def test_other_actions_are_refused(self) -> None:
        with pytest.raises(TypeError, match="Discrete, MultiDiscrete or MultiBinary, got Box"):
            QNetwork(BOX, BOX, generator=np.random.default_rng(0))

    @pytest.mark.parametrize(
        ("option", "value"), [("n_atoms", 0), ("hidden", (0,)), ("activation", "step")]
    )
    def test_an_impossible_option_is_named(self, option: str, value: Any) -> None:
        with pytest.raises(ValueError, match=option):
            make(**{option: value})


class TestWeights:
    @pytest.mark.parametrize("options", [{}, {"dueling": True}, {"noisy": True}], ids=str)
    def test_follow_the_generator(self, options: dict[str, Any]) -> None:
        torch.manual_seed(0)
        first = make(**options)
        torch.manual_seed(1)
        second = make(**options)
        for one, other in zip(first.parameters(), second.parameters(), strict=True):
            assert torch.equal(one, other)

    def test_begin_as_layers_of_torch_do(self) -> None:
        net = make(hidden=(100, 100)).net
        for linear, size in ((net[0], 3), (net[2], 100), (net[4], 100)):
            assert isinstance(linear, torch.nn.Linear)
            for parameter in (linear.weight, linear.bias):
                largest = parameter.abs().max().item() * size**0.5
                assert largest <= 1.0
            assert linear.weight.std().item() * size**0.5 == pytest.approx(3**-0.5, rel=0.15)


class TestDueling:
    @every_action_space
    @pytest.mark.parametrize("n_atoms", [1, 3])
    def test_advantages_have_mean_zero_in_every_choice(self, actions: str, n_atoms: int) -> None:
        net = make(actions, dueling=True, n_atoms=n_atoms)
        obs = rows(5, 3)
        value = net.value(net.trunk(obs))[:, None] if n_atoms > 1 else net.value(net.trunk(obs))
        for part in net(obs).split(net.branches.sizes, 1):
            torch.testing.assert_close(part.mean(1), value.expand(part.shape).mean(1))

    def test_the_order_of_actions_is_that_of_the_advantages(self) -> None:
        net = make("multi discrete", dueling=True)
        obs = rows(5, 3)
        advantages = net.advantage(net.trunk(obs))
        for one, other in zip(
            net(obs).split(net.branches.sizes, 1),
            advantages.split(net.branches.sizes, 1),
            strict=True,
        ):
            torch.testing.assert_close(one.diff(dim=1), other.diff(dim=1))


class TestBranches:
    @every_action_space
    def test_the_greedy_action_is_the_best_of_all(self, actions: str) -> None:
        branches = Branches(ACTIONS[actions])
        values = rows(6, branches.n)
        best = branches.greedy(values)
        assert best.shape == (6, *branches.action_shape)
        everything = itertools.product(*map(range, branches.sizes))
        worth = []
        for action in everything:
            chosen = torch.tensor(action).expand(6, -1).reshape(6, *branches.action_shape)
            worth.append(branches.mean_of(values, chosen))
        torch.testing.assert_close(branches.mean_of(values, best), torch.stack(worth).max(0).values)

    @every_action_space
    def test_forbidden_actions_are_never_greedy(self, actions: str) -> None:
        branches = Branches(ACTIONS[actions])
        generator = torch.Generator().manual_seed(0)
        values = torch.rand(200, branches.n, generator=generator) - 1e9
        masks = torch.rand(200, branches.n_masks, generator=generator) < 0.3
        masks[:, torch.tensor([0, *np.cumsum(branches.sizes[:-1])]) % branches.n_masks] = True
        best = branches.greedy(values, masks)
        options = branches.options(masks).float()
        assert branches.chosen(options, best).all()

    def test_bits_may_always_be_zero(self) -> None:
        branches = Branches(ACTIONS["multi binary"])
        values = torch.tensor([[0.0, 1.0, 0.0, 1.0, 0.0, 1.0]])
        best = branches.greedy(values, torch.tensor([[False, True, False]]))
        assert best.tolist() == [[0, 1, 0]]

    def test_a_row_that_allows_nothing_still_gives_an_action(self) -> None:
        branches = Branches(ACTIONS["multi discrete"])
        best = branches.greedy(rows(2, 9), torch.zeros(2, 9, dtype=torch.bool))
        assert all(ACTIONS["multi discrete"].contains(action) for action in best.numpy())

    def test_values_of_distributions_are_those_of_the_chosen_options(self) -> None:
        branches = Branches(ACTIONS["multi discrete"])
        output = rows(2, 9, 5)
        chosen = branches.chosen(output, torch.tensor([[1, 3, 0], [0, 0, 2]]))
        assert torch.equal(chosen[0], output[0, [1, 5, 6]])
        assert torch.equal(chosen[1], output[1, [0, 2, 8]])

    def test_actions_in_the_shape_of_their_space(self) -> None:
        branches = Branches(spaces.MultiDiscrete(np.array([[2, 3], [4, 5]])))
        output = rows(1, 14)
        grid = torch.tensor([[[1, 2], [3, 4]]])
        torch.testing.assert_close(branches.mean_of(output, grid), output[:, [1, 4, 8, 13]].mean(1))


class TestNoise:
    def test_there_is_none_before_it_is_drawn(self) -> None:
        layer = NoisyLinear(3, 2, np.random.default_rng(0))
        x = rows(4, 3)
        torch.testing.assert_close(layer(x), x @ layer.weight.T + layer.bias)

    def test_is_that_of_the_formula(self) -> None:
        layer = NoisyLinear(3, 2, np.random.default_rng(0), sigma=0.7)
        torch.testing.assert_close(layer.weight_sigma, torch.full((2, 3), 0.7 / 3**0.5))
        layer.reset_noise(torch.Generator().manual_seed(5))
        normal = torch.randn(5, generator=torch.Generator().manual_seed(5))
        noise = normal.sign() * normal.abs().sqrt()
        of_inputs, of_outputs = noise[:3], noise[3:]
        x = rows(1, 3)
        expected = torch.zeros(1, 2)
        for j in range(2):
            expected[0, j] = layer.bias[j] + layer.bias_sigma[j] * of_outputs[j]
            for i in range(3):
                strength = layer.weight_sigma[j, i] * of_outputs[j] * of_inputs[i]
                expected[0, j] += (layer.weight[j, i] + strength) * x[0, i]
        torch.testing.assert_close(layer(x), expected)

    @pytest.mark.parametrize("dueling", [False, True])
    def test_comes_and_goes(self, dueling: bool) -> None:
        net = make(noisy=True, dueling=dueling)
        obs = rows(4, 3)
        quiet = net(obs)
        net.reset_noise(torch.Generator().manual_seed(0))
        first = net(obs)
        net.reset_noise(torch.Generator().manual_seed(1))
        second = net(obs)
        assert not torch.equal(first, second)
        assert not torch.equal(first, quiet)
        net.remove_noise()
        assert torch.equal(net(obs), quiet)

    def test_new_noise_does_not_disturb_a_backward_pass(self) -> None:
        net, generator = make(noisy=True), torch.Generator().manual_seed(0)
        net.reset_noise(generator)
        twin = copy.deepcopy(net)
        loss = net(rows(4, 3)).square().mean()
        net.reset_noise(generator)
        loss.backward()
        twin(rows(4, 3)).square().mean().backward()
        for one, other in zip(net.parameters(), twin.parameters(), strict=True):
            assert one.grad is not None
            assert other.grad is not None
            assert torch.equal(one.grad, other.grad)

    def test_of_a_copy_is_its_own(self) -> None:
        net = make(noisy=True)
        twin = copy.deepcopy(net)
        net.reset_noise(torch.Generator().manual_seed(0))
        quiet, loud = twin(rows(4, 3)), net(rows(4, 3))
        twin.reset_noise(torch.Generator().manual_seed(0))
        assert not torch.equal(quiet, loud)
        assert torch.equal(twin(rows(4, 3)), loud)

    def test_its_strength_is_learned(self) -> None:
        net = make(noisy=True)
        FlatParameters(net)
        net.reset_noise(torch.Generator().manual_seed(0))
        net(rows(4, 3)).square().mean().backward()
        for name, parameter in net.named_parameters():
            assert parameter.grad is not None
            assert parameter.grad.any(), name

    def test_is_no_part_of_the_state(self) -> None:
        assert not any("noise" in name for name in make(noisy=True).state_dict())
