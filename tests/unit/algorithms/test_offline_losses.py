"""Losses and gradients of the offline algorithms against NumPy, on a fixed batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import sharpwave as sw
from sharpwave.learners.replay import ReplayBatch
from sharpwave.types import Array
from tests.reference import offline as reference

ROWS, OBS, ACT = 16, 3, 2
GAMMA = 0.9


def columns(n: int = 200) -> dict[str, Array]:
    generator = np.random.default_rng(0)
    return {
        "obs": generator.normal(size=(n, OBS)).astype(np.float32),
        "next_obs": generator.normal(size=(n, OBS)).astype(np.float32),
        "actions": generator.uniform(-1, 1, (n, ACT)).astype(np.float32),
        "rewards": generator.normal(size=n).astype(np.float32),
        "terminated": np.arange(n) % 7 == 6,
        "truncated": np.arange(n) % 5 == 4,
    }


def made(cls: Any, **options: Any) -> tuple[Any, ReplayBatch]:
    """An algorithm after some steps, so that targets differ from what they follow, and a batch."""
    fixed = {"hidden": 8, "gamma": GAMMA, "seed": 3, "batch_size": ROWS, "tau": 0.3}
    algo = cls(columns(), **fixed, backend="torch", **options)
    algo.train(20)
    return algo, algo.sampler.sample(5)


def arrays(batch: ReplayBatch) -> dict[str, Array]:
    names = ("obs", "next_obs", "actions", "rewards", "discounts")
    return {name: getattr(batch, name).numpy().astype(np.float64) for name in names}


def of_linear(net: Any) -> reference.Layers:
    layers = [layer for layer in net if isinstance(layer, torch.nn.Linear)]
    return [
        (layer.weight.detach().numpy().T.astype(float), layer.bias.detach().numpy().astype(float))
        for layer in layers
    ]


def of_stacked(critics: Any) -> list[reference.Layers]:
    layers = [
        (layer.weight.detach().numpy().astype(float), layer.bias.detach().numpy().astype(float))
        for layer in critics.net.layers
    ]
    return [[(weight[i], bias[i, 0]) for weight, bias in layers] for i in range(2)]


def assert_gradient(flat: Any, loss: Callable[[], float]) -> None:
    """The flat gradient against differences of a loss that reads the parameters anew."""
    generator = np.random.default_rng(1)
    before, grad = flat.data.clone(), flat.grad.clone().double()
    for _ in range(5):
        direction = torch.from_numpy(generator.normal(size=len(before)).astype(np.float32))
        step = 2e-5  # few activations change sides within it
        sides = []
        for sign in (1, -1):
            flat.data.copy_(before + sign * step * direction)
            sides.append(loss())
        flat.data.copy_(before)
        expected = (sides[0] - sides[1]) / (2 * step)
        found = float(grad @ direction.double())
        assert found == pytest.approx(expected, rel=2e-2, abs=5e-3 * float(grad.norm()))


class TestTD3BC:
    def test_targets(self) -> None:
        algo, batch = made(sw.TD3BC)
        state = algo.generator.get_state()
        targets = algo.targets(batch)
        algo.generator.set_state(state)
        noise = torch.empty(ROWS, ACT).normal_(generator=algo.generator).numpy() * 0.2

        data = arrays(batch)
        actions = np.tanh(reference.relu_mlp(data["next_obs"], of_linear(algo.target_actor.net)))
        actions = np.clip(actions + np.clip(noise, -0.5, 0.5), -1, 1)
        values = reference.q_values(data["next_obs"], actions, of_stacked(algo.target_critics))
        expected = data["rewards"] + data["discounts"] * values.min(0)
        np.testing.assert_allclose(targets.numpy(), expected, rtol=1e-5, atol=1e-5)

    def test_critic_loss_and_gradient(self) -> None:
        algo, batch = made(sw.TD3BC)
        targets, data = algo.targets(batch), arrays(batch)

        def expected() -> float:
            values = reference.q_values(data["obs"], data["actions"], of_stacked(algo.critics))
            return reference.squared_errors(values, targets.numpy())

        algo.flats["critics"].zero_grad()
        loss, _ = algo.critic_loss(batch, targets)
        assert loss.item() == pytest.approx(expected(), rel=1e-5)
        loss.backward()
        assert_gradient(algo.flats["critics"], expected)

    def test_actor_loss(self) -> None:
        algo, batch = made(sw.TD3BC, alpha=1.7)
        data = arrays(batch)
        expected = reference.td3_bc_actor(
            data["obs"],
            data["actions"],
            of_linear(algo.policy.net),
            of_stacked(algo.critics)[0],
            1.7,
        )
        assert algo.actor_loss(batch).item() == pytest.approx(expected, rel=1e-5)

    def test_actor_gradient_takes_the_scale_as_a_constant(self) -> None:
        algo, batch = made(sw.TD3BC)
        data = arrays(batch)
        critic = of_stacked(algo.critics)[0]

        def value_and_distance() -> tuple[float, float, float]:
            actions = np.tanh(reference.relu_mlp(data["obs"], of_linear(algo.policy.net)))
            values = reference.q_values(data["obs"], actions, [critic])[0]
            distance = float(np.mean((actions - data["actions"]) ** 2))
            return float(values.mean()), float(np.abs(values).mean()), distance

        scale = 2.5 / value_and_distance()[1]

        def expected() -> float:
            value, _, distance = value_and_distance()
            return distance - scale * value

        algo.flats["actor"].zero_grad()
        algo.actor_loss(batch).backward()
        assert_gradient(algo.flats["actor"], expected)

    def test_actor_and_targets_move_on_delayed_steps_only(self) -> None:
        algo, batch = made(sw.TD3BC, policy_delay=3)
        algo.learner.updates = 0
        moved = []
        for _ in range(6):
            before = [
                flat.data.clone()
                for flat in (
                    algo.flats["critics"],
                    algo.flats["actor"],
                    algo.flats["target_actor"],
                    algo.flats["target_critics"],
                )
            ]
            algo.learner.update(batch)
            after = (
                algo.flats["critics"],
                algo.flats["actor"],
                algo.flats["target_actor"],
                algo.flats["target_critics"],
            )
            moved.append([not torch.equal(a.data, b) for a, b in zip(after, before, strict=True)])
        assert moved == [[True, delayed, delayed, delayed] for delayed in (False, False, True) * 2]

    def test_the_reported_actor_loss_is_the_last_one_and_not_zero(self) -> None:
        algo, batch = made(sw.TD3BC)
        algo.learner.updates = 1
        reported = [algo.learner.update(batch)["actor_loss"].item() for _ in range(2)]
        assert reported[0] == reported[1] != 0.0


class TestReBRAC:
    def test_next_actions_are_those_of_the_following_step(self) -> None:
        data = columns()
        algo = sw.ReBRAC(data, hidden=8, batch_size=ROWS, normalize_obs=False)
        batch = algo.sampler.sample(5)
        assert batch.next_actions is not None
        of_reward = {float(r): i for i, r in enumerate(data["rewards"])}
        ends = data["terminated"] | data["truncated"]
        ends[-1] = True
        for reward, following in zip(batch.rewards, batch.next_actions, strict=True):
            row = of_reward[float(reward)]
            expected = data["actions"][row if ends[row] else row + 1]
            np.testing.assert_allclose(following.numpy(), expected, rtol=1e-6)

    def test_targets_and_actor_loss(self) -> None:
        options = {"actor_bc_coef": 0.3, "critic_bc_coef": 0.2, "layer_norm": False}
        algo, batch = made(sw.ReBRAC, **options)
        data = arrays(batch)
        assert batch.next_actions is not None
        state = algo.generator.get_state()
        with torch.no_grad():
            actions = algo.next_actions(batch).numpy().astype(float)
        algo.generator.set_state(state)
        values = reference.q_values(data["next_obs"], actions, of_stacked(algo.target_critics))
        distances = ((actions - batch.next_actions.numpy()) ** 2).sum(-1)
        expected = data["rewards"] + data["discounts"] * (values.min(0) - 0.2 * distances)
        np.testing.assert_allclose(algo.targets(batch).numpy(), expected, rtol=1e-4, atol=1e-5)

        mine = np.tanh(reference.relu_mlp(data["obs"], of_linear(algo.policy.net)))
        values = reference.q_values(data["obs"], mine, of_stacked(algo.critics)).min(0)
        distance = ((mine - data["actions"]) ** 2).sum(-1).mean()
        loss = 0.3 * distance - values.mean() / np.abs(values).mean()
        assert algo.actor_loss(batch).item() == pytest.approx(loss, rel=1e-4)

    def test_critics_normalize_after_the_relu(self) -> None:
        """They normalized before it, which is another network than that of the authors."""
        algo, batch = made(sw.ReBRAC)
        generator = torch.Generator().manual_seed(0)
        for norm in algo.critics.net.norms:
            norm.weight.data.normal_(generator=generator)
            norm.bias.data.normal_(generator=generator)
        values = algo.critics(batch.obs, batch.actions)
        layers = [(layer.weight, layer.bias) for layer in algo.critics.net.layers]
        norms = [(norm.weight, norm.bias) for norm in algo.critics.net.norms]
        for i in range(2):
            x = torch.cat((batch.obs, batch.actions), -1).double()
            for (weight, bias), (scale, shift) in zip(layers, norms, strict=False):
                x = (x @ weight[i].double() + bias[i].double()).relu()
                centered = x - x.mean(-1, keepdim=True)
                x = centered / (centered.square().mean(-1, keepdim=True) + 1e-6).sqrt()
                x = x * scale[i].double() + shift[i].double()
            weight, bias = layers[-1]
            expected = (x @ weight[i].double() + bias[i].double())[:, 0]
            torch.testing.assert_close(values[i].double(), expected, rtol=1e-4, atol=1e-6)

    def test_first_weights_are_those_of_the_authors(self) -> None:
        algo: Any = sw.ReBRAC(columns(), hidden=(64, 64))
        of_actor = [(layer.weight.T, layer.bias) for layer in algo.policy.net[::2]]
        of_critics = [(layer.weight, layer.bias) for layer in algo.critics.net.layers]
        for layers, bound in ((of_actor, 1e-3), (of_critics, 3e-3)):
            *hidden, (head, head_bias) = layers
            for weight, bias in hidden:
                limit = weight.shape[-2] ** -0.5
                assert 0.9 * limit < weight.abs().max().item() <= limit
                assert torch.equal(bias, torch.full_like(bias, 0.1))
            assert 0.8 * bound < head.abs().max().item() <= bound
            assert 0 < head_bias.abs().max().item() <= bound
        assert torch.equal(algo.flats["critics"].data, algo.flats["target_critics"].data)

    def test_observations_are_scaled_on_request_alone(self) -> None:
        assert sw.ReBRAC(columns(), hidden=8).normalizer is None
        assert sw.ReBRAC(columns(), hidden=8, normalize_obs=True).normalizer is not None

    def test_needs_to_know_what_was_done_next(self) -> None:
        buffer = sw.ReplayBuffer(10, OBS, ACT)
        buffer.push(np.zeros(OBS), np.zeros(ACT), 0.0, False, False, np.zeros(OBS))
        with pytest.raises(TypeError, match="whole episodes"):
            sw.ReBRAC(buffer)


class TestIQL:
    @pytest.mark.parametrize("expectile", [0.5, 0.9])
    def test_value_loss_and_gradient(self, expectile: float) -> None:
        algo, batch = made(sw.IQL, expectile=expectile)
        data = arrays(batch)
        of_data = reference.q_values(data["obs"], data["actions"], of_stacked(algo.target_critics))

        def expected() -> float:
            values = reference.relu_mlp(data["obs"], of_linear(algo.value.net))[:, 0]
            return reference.expectile_loss(of_data.min(0) - values, expectile)

        algo.flats["value"].zero_grad()
        target = torch.from_numpy(of_data.min(0).astype(np.float32))
        loss, advantages = algo.value_loss(batch, target)
        assert loss.item() == pytest.approx(expected(), rel=1e-4)
        assert not advantages.requires_grad
        loss.backward()
        assert_gradient(algo.flats["value"], expected)

    def test_q_loss_and_gradient(self) -> None:
        algo, batch = made(sw.IQL)
        data = arrays(batch)
        values = reference.relu_mlp(data["next_obs"], of_linear(algo.value.net))[:, 0]
        targets = data["rewards"] + data["discounts"] * values

        def expected() -> float:
            found = reference.q_values(data["obs"], data["actions"], of_stacked(algo.critics))
            return 0.5 * reference.squared_errors(found, targets)

        algo.flats["critics"].zero_grad()
        loss = algo.q_loss(batch, torch.from_numpy(targets.astype(np.float32)))
        assert loss.item() == pytest.approx(expected(), rel=1e-5)
        loss.backward()
        assert_gradient(algo.flats["critics"], expected)

    @pytest.mark.parametrize("actor", ["gaussian", "deterministic"])
    def test_actor_loss_and_gradient(self, actor: str) -> None:
        algo, batch = made(sw.IQL, actor=actor, temperature=3.0, weight_clip=20.0)
        data = arrays(batch)
        advantages = np.linspace(-1, 2, ROWS)
        weights = np.minimum(np.exp(3.0 * advantages), 20.0)

        def expected() -> float:
            log_std = None
            if actor == "gaussian":
                log_std = algo.policy.log_std.detach().numpy().astype(float)
            layers = of_linear(algo.policy.net)
            return reference.weighted_cloning(
                data["obs"], data["actions"], layers, log_std, weights
            )

        algo.flats["actor"].zero_grad()
        loss = algo.actor_loss(batch, torch.from_numpy(advantages.astype(np.float32)))
        assert loss.item() == pytest.approx(expected(), rel=1e-4)
        loss.backward()
        assert_gradient(algo.flats["actor"], expected)

    def test_a_step_uses_values_and_advantages_from_before_it(self) -> None:
        algo, batch = made(sw.IQL)
        data = arrays(batch)
        of_data = reference.q_values(data["obs"], data["actions"], of_stacked(algo.target_critics))
        here = reference.relu_mlp(data["obs"], of_linear(algo.value.net))[:, 0]
        there = reference.relu_mlp(data["next_obs"], of_linear(algo.value.net))[:, 0]
        for optimizer in algo.optimizers.values():
            optimizer.set_lr(0.5)
        metrics = algo.learner.update(batch)
        expected = (of_data.min(0) - here).mean()
        assert metrics["advantage"] == pytest.approx(expected, rel=1e-4, abs=1e-5)
        targets = data["rewards"] + data["discounts"] * there
        assert metrics["q_value"] == pytest.approx(targets.mean(), rel=1e-4, abs=1e-5)

    def test_the_rate_of_the_actor_falls_along_half_a_cosine(self) -> None:
        algo, _ = made(sw.IQL, learning_rate=1.0)
        rates = []
        for remaining in (1.0, 0.75, 0.5, 0.0):
            algo.learner.follow(remaining)
            rates.append((algo.optimizers["actor"].lr.item(), algo.optimizers["critics"].lr.item()))
        expected = [0.5 * (1 + np.cos(np.pi * (1 - remaining))) for remaining in (1, 0.75, 0.5, 0)]
        np.testing.assert_allclose([rate for rate, _ in rates], expected, atol=1e-6)
        assert {rate for _, rate in rates} == {1.0}


class TestCQL:
    @pytest.mark.long(but=["True-True"])
    @pytest.mark.parametrize("importance_sampling", [True, False])
    @pytest.mark.parametrize("next_actions", [True, False])
    def test_losses_and_gradient(self, importance_sampling: bool, next_actions: bool) -> None:
        algo, batch = made(
            sw.CQL,
            importance_sampling=importance_sampling,
            next_actions=next_actions,
            n_random_actions=3,
        )
        data = arrays(batch)
        with torch.no_grad():
            here, there = algo.policy(batch.obs), algo.policy(batch.next_obs)
        others, densities = algo.other_actions(here, there)
        assert others.shape == (9 if next_actions else 6, ROWS, ACT)
        targets = torch.linspace(-1, 1, ROWS)

        def expected() -> tuple[float, float]:
            critics = of_stacked(algo.critics)
            of_data = reference.q_values(data["obs"], data["actions"], critics)
            of_others = np.stack(
                [reference.q_values(data["obs"], b.numpy().astype(float), critics) for b in others],
                axis=1,
            )
            corrections = densities.numpy().astype(float) if importance_sampling else None
            gap = reference.cql_gap(of_data, of_others, corrections)
            return reference.squared_errors(of_data, targets.numpy()), gap

        algo.flats["critics"].zero_grad()
        td_loss, gap = algo.critic_losses(batch, targets, others, densities)
        np.testing.assert_allclose([td_loss.item(), gap.item()], expected(), rtol=1e-4)
        (td_loss + 2.0 * gap).backward()
        assert_gradient(algo.flats["critics"], lambda: expected()[0] + 2.0 * expected()[1])

    def test_densities_of_other_actions(self) -> None:
        algo, batch = made(sw.CQL, n_random_actions=4)
        with torch.no_grad():
            here, there = algo.policy(batch.obs), algo.policy(batch.next_obs)
        others, densities = algo.other_actions(here, there)
        assert (others.abs() <= 1).all()
        np.testing.assert_allclose(densities[:4].numpy(), np.log(0.25))
        for k, (mean, log_std) in ((slice(4, 8), here), (slice(8, 12), there)):
            raw = np.arctanh(others[k].numpy().astype(float).clip(-1 + 1e-9, 1 - 1e-9))
            expected = reference.squashed_log_prob(raw, mean.numpy(), log_std.numpy())
            np.testing.assert_allclose(densities[k].numpy(), expected, rtol=1e-2, atol=1e-2)

    @pytest.mark.long(but=["1-True"])
    @pytest.mark.parametrize("backup_entropy", [True, False])
    @pytest.mark.parametrize("best_of", [1, 5])
    def test_targets(self, best_of: int, backup_entropy: bool) -> None:
        algo, batch = made(
            sw.CQL,
            max_target_backup=best_of > 1,
            n_random_actions=5,
            backup_entropy=backup_entropy,
        )
        data = arrays(batch)
        with torch.no_grad():
            there = algo.policy(batch.next_obs)
        state = algo.generator.get_state()
        targets = algo.targets(batch, there, torch.tensor(0.3))
        algo.generator.set_state(state)
        actions, log_probs = algo.policy.draw(there, algo.generator, best_of)
        critics = of_stacked(algo.target_critics)
        values = np.stack(
            [
                reference.q_values(data["next_obs"], a.numpy().astype(float), critics).min(0)
                for a in actions
            ]
        )
        best = values.max(0)
        if backup_entropy:
            chosen = log_probs.numpy()[values.argmax(0), np.arange(ROWS)]
            best = best - 0.3 * chosen
        expected = data["rewards"] + data["discounts"] * best
        np.testing.assert_allclose(targets.numpy(), expected, rtol=1e-4, atol=1e-5)

    def test_actor_loss(self) -> None:
        algo, batch = made(sw.CQL)
        actions, log_probs = algo.policy.sample(batch.obs, algo.generator)
        data = arrays(batch)
        values = reference.q_values(
            data["obs"], actions.detach().numpy().astype(float), of_stacked(algo.critics)
        )
        expected = (0.4 * log_probs.detach().numpy() - values.min(0)).mean()
        loss = algo.actor_loss(batch, actions, log_probs, torch.tensor(0.4))
        assert loss.item() == pytest.approx(expected, rel=1e-4)

    @pytest.mark.long
    def test_a_learned_strength_rises_while_the_gap_is_too_wide(self) -> None:
        for target, rises in ((-100.0, True), (100.0, False)):
            algo, batch = made(sw.CQL, auto_alpha=True, cql_target_value=target, learning_rate=0.1)
            before = algo.multiplier.value.item()
            metrics = algo.learner.update(batch)
            assert (algo.multiplier.value.item() > before) is rises
            assert metrics["cql_alpha"] == pytest.approx(5.0 * np.exp(before), rel=1e-5)

    def test_a_fixed_strength_stays(self) -> None:
        algo, batch = made(sw.CQL, cql_alpha=2.0)
        before = algo.multiplier.value.item()
        metrics = algo.learner.update(batch)
        assert (metrics["cql_alpha"], algo.multiplier.value.item()) == (2.0, before)

    def test_the_policy_has_a_rate_of_its_own(self) -> None:
        algo, _ = made(sw.CQL, learning_rate=1e-3, policy_learning_rate=1e-5)
        algo.learner.follow(1.0)
        assert algo.optimizers["actor"].lr.item() == pytest.approx(1e-5)
        assert algo.optimizers["critics"].lr.item() == pytest.approx(1e-3)

    def test_critics_may_be_deeper_and_start_orthogonal(self) -> None:
        algo: Any = sw.CQL(columns(), hidden=8, critic_hidden=(8, 8, 8), orthogonal_init=True)
        weights = [layer.weight.detach() for layer in algo.critics.net.layers]
        assert len(weights) == 4
        for weight in weights[1][:]:
            torch.testing.assert_close(weight @ weight.T, 2 * torch.eye(8), rtol=1e-4, atol=1e-4)


class TestBC:
    def test_squared_error_of_continuous_actions(self) -> None:
        algo = sw.BC(columns(), hidden=8, batch_size=ROWS)
        batch = algo.sampler.sample(5)
        data = arrays(batch)

        def expected() -> float:
            actions = np.tanh(reference.relu_mlp(data["obs"], of_linear(algo.policy.net)))
            return float(np.mean((actions - data["actions"]) ** 2))

        algo.flats["policy"].zero_grad()
        loss = algo.loss(batch)
        assert loss.item() == pytest.approx(expected(), rel=1e-5)
        loss.backward()
        assert_gradient(algo.flats["policy"], expected)

    def test_cross_entropy_of_discrete_actions(self) -> None:
        given = columns()
        given["actions"] = np.arange(200) % 4
        algo = sw.BC(given, hidden=8, batch_size=ROWS)
        batch = algo.sampler.sample(5)
        chosen = batch.actions.numpy().reshape(-1)

        def expected() -> float:
            logits = reference.relu_mlp(batch.obs.numpy().astype(float), of_linear(algo.policy.net))
            probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
            return float(-np.log(probabilities[np.arange(ROWS), chosen]).mean())

        algo.flats["policy"].zero_grad()
        loss = algo.loss(batch)
        assert loss.item() == pytest.approx(expected(), rel=1e-5)
        loss.backward()
        assert_gradient(algo.flats["policy"], expected)


def test_discounts_are_zero_after_termination_and_not_after_truncation() -> None:
    data = columns()
    algo = sw.TD3BC(data, hidden=8, gamma=GAMMA, normalize_obs=False)
    batch = algo.sampler.sample(1)
    of_reward = {float(r): i for i, r in enumerate(data["rewards"])}
    rows = [of_reward[float(r)] for r in batch.rewards]
    expected = np.where(data["terminated"][rows], 0.0, GAMMA)
    np.testing.assert_allclose(batch.discounts, expected, rtol=1e-6)
