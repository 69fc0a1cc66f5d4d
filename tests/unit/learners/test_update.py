"""Updates: functions of the batch and the networks, and of nothing else."""

from __future__ import annotations

import copy
import traceback
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import sharpwave as sw
from sharpwave.core.tree import map_leaves
from sharpwave.learners.batch import OnPolicyBatch
from tests.envs import CountingEnv, numbered, vectorized
from tests.learning import probes

ENVS: dict[str, Any] = {
    "discrete": "CartPole-v1",
    "continuous": probes.ContinuousIdentity,
    "multi-discrete": probes.MultiIdentity,
    "masked": probes.OnlyAllowed,
}


def make(cls: Any, env: Any, **options: Any) -> Any:
    options = {"backend": "torch", **options}
    algo = cls(env, n_envs=4, n_steps=16, seed=5, max_grad_norm=1e9, **options)
    algo.learner.follow(1.0)
    return algo


def collected(algo: Any) -> OnPolicyBatch:
    """A batch in memory of its own."""
    batch: OnPolicyBatch = algo.loop.collect()
    return copy.deepcopy(batch)


def same_batches(first: OnPolicyBatch, second: OnPolicyBatch) -> None:
    for name, column in vars(first).items():
        if column is not None:
            map_leaves(
                partial(torch.testing.assert_close, rtol=0, atol=0), column, getattr(second, name)
            )


def weights(algo: Any) -> torch.Tensor:
    copied: torch.Tensor = algo.flat.data.clone()
    return copied


class TestEquivalence:
    @pytest.mark.long(but=["discrete-None-False"])
    @pytest.mark.parametrize("normalize", [False, True])
    @pytest.mark.parametrize(
        ("env", "recurrent"), [*((env, None) for env in ENVS), ("discrete", "lstm")]
    )
    def test_one_pass_of_ppo_without_clipping_is_a2c(
        self, normalize: bool, env: str, recurrent: Any
    ) -> None:
        options = {"recurrent": recurrent, "normalize_advantages": normalize}
        ppo = make(sw.PPO, ENVS[env], n_epochs=1, batch_size=64, clip_eps=1e9, **options)
        a2c = make(sw.A2C, ENVS[env], **options)
        a2c.policy.load_state_dict(ppo.policy.state_dict())
        batch = collected(ppo)
        ppo.update(batch)
        a2c.update(batch)
        assert a2c.flat.grad.norm() > 0
        torch.testing.assert_close(ppo.flat.grad, a2c.flat.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("cls", [sw.PPO, sw.A2C])
class TestPurity:
    @pytest.mark.long(but=["None-PPO"])
    @pytest.mark.parametrize("recurrent", [None, "gru"])
    def test_the_same_networks_batch_and_generator_give_the_same(
        self, cls: Any, recurrent: Any
    ) -> None:
        batch = collected(make(cls, "CartPole-v1", recurrent=recurrent))
        results = []
        for ambient_seed in (1, 2):
            algo = make(cls, "CartPole-v1", recurrent=recurrent)
            algo.close()
            algo.loop = None  # an update needs none
            torch.manual_seed(ambient_seed)
            before = copy.deepcopy(batch)
            metrics = algo.update(batch)
            same_batches(batch, before)
            results.append((weights(algo), metrics))
        (first, metrics), (second, same_metrics) = results
        assert torch.equal(first, second)
        assert all(torch.equal(metrics[name], same_metrics[name]) for name in metrics)

    @pytest.mark.long(but=["discrete-PPO"])
    @pytest.mark.parametrize("env", ENVS)
    def test_nothing_waits_for_a_number(self, cls: Any, env: str) -> None:
        algo = make(cls, ENVS[env])
        batch = collected(algo)
        algo.update(batch)  # what is prepared once may wait
        with NoNumbers():  # type: ignore[no-untyped-call]
            metrics = algo.update(batch)
        assert all(value.ndim == 0 for value in metrics.values())


@pytest.mark.parametrize(
    "options",
    [
        {"learning_rate": "adaptive"},
        {"normalize_obs": "policy"},
        {"noise_std_type": "scalar", "clip_actions": 0.5},
    ],
    ids=str,
)
def test_options_of_robots_wait_for_no_number(options: dict[str, Any]) -> None:
    algo = make(sw.PPO, ENVS["continuous"], n_minibatches=4, **options)
    batch = collected(algo)
    algo.update(batch)
    with NoNumbers():  # type: ignore[no-untyped-call]
        algo.update(batch)


class NoNumbers(TorchDispatchMode):
    """Forbids what makes a Python number of a tensor, which waits for a GPU."""

    forbidden = ("_local_scalar_dense", "is_nonzero", "nonzero", "equal")
    only_on_the_cpu = ("clip_grad_norm", "_check_rows")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ in self.forbidden:
            callers = {frame.name for frame in traceback.extract_stack()}
            assert callers & set(self.only_on_the_cpu), f"{func} waits"
        return func(*args, **(kwargs or {}))


class TestReplay:
    @pytest.mark.long(but=["lengths0-None-next_step"])
    @pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
    @pytest.mark.parametrize("recurrent", [None, "lstm", "gru"])
    @pytest.mark.parametrize("lengths", [(1,), (3, 5), (2, 1, 4)])
    def test_a_batch_holds_what_the_policy_thought_when_it_acted(
        self, mode: str, recurrent: Any, lengths: tuple[int, ...]
    ) -> None:
        env = vectorized(numbered(4, lengths=lengths, ends="alternating"), mode)
        algo = make(sw.PPO, env, recurrent=recurrent)
        for _ in range(3):
            batch = collected(algo)
            evaluated = algo.policy.evaluate(
                batch.obs, batch.actions, state=batch.state, starts=batch.starts
            )
            rows = ... if batch.valid is None else batch.valid
            for now, then in (
                (evaluated.log_probs, batch.log_probs),
                (evaluated.values, batch.values),
            ):
                torch.testing.assert_close(now[rows], then[rows], rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("recurrent", [None, "lstm"])
    def test_rows_that_are_only_resets_change_nothing(self, recurrent: Any) -> None:
        env = partial(vectorized, numbered(4, lengths=(2, 1), ends="alternating"), "next_step")
        results = []
        for junk in (0.0, 1e6):
            algo = make(sw.PPO, env(), recurrent=recurrent, batch_size=16, n_epochs=2)
            algo.actor.begin_rollout()
            state = algo.actor.state
            rollout = algo.collector.collect(0.9, 0.9)
            columns = algo.collector.columns(rollout, sequences=state is not None)
            assert not rollout.valid.all()
            for column in (rollout.advantages, rollout.returns, rollout.log_probs, rollout.values):
                column[~rollout.valid] = junk
            rollout.actions[~rollout.valid] = 0
            metrics = algo.update(OnPolicyBatch.of(columns, torch.from_numpy, state))
            results.append((weights(algo), metrics))
        (first, metrics), (second, same) = results
        torch.testing.assert_close(first, second, rtol=0, atol=0)
        assert all(torch.equal(metrics[name], same[name]) for name in metrics)


@pytest.mark.long(but=["1-1-None-PPO"])
@pytest.mark.parametrize("cls", [sw.PPO, sw.A2C])
@pytest.mark.parametrize("recurrent", [None, "gru"])
@pytest.mark.parametrize(("n_envs", "n_steps"), [(1, 1), (2, 1), (2, 2), (3, 3)])
def test_rollouts_of_almost_nothing_but_resets(
    cls: Any, recurrent: Any, n_envs: int, n_steps: int
) -> None:
    env = vectorized(numbered(n_envs, lengths=(1,), ends="alternating"), "next_step")
    options = {"batch_size": 1, "n_epochs": 2} if cls is sw.PPO else {}
    algo = cls(env, n_steps=n_steps, recurrent=recurrent, normalize_advantages=True, **options)
    algo.train(20)
    assert algo.timesteps >= 20
    assert np.isfinite(algo.block).all()


class TestTargetKL:
    def test_no_step_is_taken_after_the_policy_has_moved_too_far(self) -> None:
        options: dict[str, Any] = {"n_epochs": 10, "batch_size": 16, "learning_rate": 1e-2}
        careful = make(sw.PPO, "CartPole-v1", target_kl=1e-9, **options)
        batch = collected(careful)
        single = make(sw.PPO, "CartPole-v1", **options)
        single.generator.set_state(careful.generator.get_state())
        careful.update(batch)
        single.learner.step(batch, next(batch.shuffled(16, single.generator)))
        assert torch.equal(weights(careful), weights(single))

    def test_a_distant_limit_changes_nothing(self) -> None:
        options: dict[str, Any] = {"n_epochs": 3, "batch_size": 16}
        free = make(sw.PPO, "CartPole-v1", **options)
        limited = make(sw.PPO, "CartPole-v1", target_kl=1e9, **options)
        batch = collected(free)
        limited.generator.set_state(free.generator.get_state())
        free.update(batch)
        limited.update(batch)
        assert torch.equal(weights(free), weights(limited))


@pytest.mark.long
def test_clipped_values_stay_near_the_old_ones() -> None:
    moved = {}
    for clip_vloss in (False, True):
        algo = make(
            sw.PPO,
            partial(CountingEnv, (9,)),
            n_epochs=100,
            batch_size=64,
            learning_rate=3e-4,
            anneal_lr=False,
            clip_eps=0.05,
            clip_vloss=clip_vloss,
        )
        batch = collected(algo)
        algo.update(batch)
        moved[clip_vloss] = (algo.policy.values(batch.obs) - batch.values).abs().mean().item()
    assert moved[True] < 0.25 * moved[False]


class TestSchedules:
    @pytest.mark.parametrize("cls", [sw.PPO, sw.A2C])
    def test_a_function_gets_the_progress_that_remains(self, cls: Any) -> None:
        seen: list[float] = []

        def rate(progress: float) -> float:
            seen.append(progress)
            return 1e-3 * progress**2

        class Rates(sw.Callback):
            def on_train_batch(self, *, learning_rate: float, **_: Any) -> None:
                rates.append(learning_rate)

        rates: list[float] = []
        algo = cls("CartPole-v1", n_envs=2, n_steps=16, learning_rate=rate)
        algo.train(128, callbacks=Rates())
        expected = [1.0, 0.75, 0.5, 0.25]
        assert seen[-4:] == expected
        np.testing.assert_allclose(rates, [1e-3 * p**2 for p in expected], rtol=1e-6)

    def test_the_clip_range_follows_its_schedule(self) -> None:
        clips: list[float] = []

        class Clips(sw.Callback):
            def on_train_batch(self, *, algo: Any, **_: Any) -> None:
                clips.append(float(algo.clip))

        algo = sw.PPO("CartPole-v1", n_envs=2, n_steps=16, clip_eps=sw.Linear(0.4, 0.0))
        algo.train(128, callbacks=Clips())
        np.testing.assert_allclose(clips, [0.4, 0.3, 0.2, 0.1], rtol=1e-6)


class OwnPolicy(nn.Module):
    """A user's network that offers the least that is asked for."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.actor = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 2))
        self.critic = nn.Linear(1, 1)

    def get_action_and_logprob(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        distribution = torch.distributions.Categorical(logits=self.actor(obs))
        actions = distribution.sample()
        return actions, distribution.log_prob(actions)

    def get_value(self, obs: torch.Tensor) -> torch.Tensor:
        values: torch.Tensor = self.critic(obs)
        return values.squeeze(-1)

    def get_logprob_and_entropy(
        self, obs: torch.Tensor, actions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        distribution = torch.distributions.Categorical(logits=self.actor(obs))
        return distribution.log_prob(actions), distribution.entropy()


@pytest.mark.long
@pytest.mark.parametrize("cls", [sw.PPO, sw.A2C])
def test_a_network_of_ones_own_learns(cls: Any) -> None:
    algo = cls(probes.Identity, n_envs=8, n_steps=8, learning_rate=1e-2, policy=OwnPolicy(), seed=1)
    algo.train(4000)
    assert (algo.predict([1.0]), algo.predict([-1.0])) == (1, 0)
    assert algo.evaluate(10).mean == 1.0
