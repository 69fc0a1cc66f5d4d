"""From the same rollouts and batches, weights become what they become in Stable-Baselines3."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import stable_baselines3 as theirs
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback

import sharpwave.compat.sb3 as ours
from sharpwave.learners.batch import OnPolicyBatch
from sharpwave.learners.replay import ReplayBatch

RUNS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "a2c": ("A2C", "CartPole-v1", {}),
    "a2c by adam": ("A2C", "CartPole-v1", {"use_rms_prop": False, "vf_coef": 0.3, "ent_coef": 0.1}),
    "ppo": ("PPO", "CartPole-v1", {"n_steps": 32, "batch_size": 32, "n_epochs": 1}),
    "ppo of continuous actions": (
        "PPO",
        "Pendulum-v1",
        {"n_steps": 32, "batch_size": 32, "n_epochs": 3, "max_grad_norm": 0.1, "ent_coef": 0.01},
    ),
}


class Follower(BaseCallback):  # type: ignore[misc]
    """Lets a model of ours learn from the rollouts of theirs, and compares the weights."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.ours = model
        self.differences: list[float] = []

    def _on_training_start(self) -> None:
        self.ours.policy.load_state_dict(self.model.policy.state_dict())

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        own, their = self.ours.policy.state_dict(), self.model.policy.state_dict()
        self.differences.append(max(float((own[k] - their[k]).abs().max()) for k in own))

    def _on_rollout_end(self) -> None:
        learner, buffer = self.ours.agent.learner, self.model.rollout_buffer
        names = ("log_probs", "values", "advantages", "returns")
        columns = {name: buffer_rows(getattr(buffer, name)) for name in names}
        actions = buffer_rows(buffer.actions)
        if hasattr(self.model.action_space, "n"):
            actions = actions[:, 0].astype(np.int64)
        columns |= {"obs": buffer_rows(buffer.observations), "actions": actions}
        learner.update(OnPolicyBatch.of(columns, learner.own))


def buffer_rows(column: Any) -> Any:
    return np.array(column).reshape(-1, *column.shape[2:])  # of one environment


@pytest.mark.parametrize("run", RUNS)
def test_weights_follow_those_of_sb3(run: str) -> None:
    algorithm, env_id, options = RUNS[run]
    model = getattr(ours, algorithm)("MlpPolicy", env_id, **options)
    follower = Follower(model)
    their = getattr(theirs, algorithm)("MlpPolicy", env_id, seed=0, device="cpu", **options)
    their.learn(20 * their.n_steps, callback=follower)
    assert len(follower.differences) == 20
    assert max(follower.differences) < 1e-5


class Told(ReplayBuffer):  # type: ignore[misc]
    """A buffer that tells of the batches that are drawn from it."""

    tell: Any = None

    def sample(self, *args: Any, **kwargs: Any) -> Any:
        batch = super().sample(*args, **kwargs)
        type(self).tell(batch)
        return batch


SMALL: dict[str, Any] = {"learning_starts": 40, "batch_size": 16}
NETS = {"net_arch": [16, 8]}
REPLAY_RUNS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "dqn": ("DQN", "CartPole-v1", {**SMALL, "train_freq": 1}),
    "td3": ("TD3", "Pendulum-v1", {**SMALL, "policy_kwargs": NETS, "target_policy_noise": 0.0}),
    "ddpg": ("DDPG", "Pendulum-v1", {**SMALL, "policy_kwargs": NETS}),
}


@pytest.mark.parametrize("run", REPLAY_RUNS)
def test_gradient_steps_are_those_of_sb3(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm, env_id, options = REPLAY_RUNS[run]
    options = copy.deepcopy(options)
    model = getattr(ours, algorithm)("MlpPolicy", env_id, **copy.deepcopy(options))
    options["replay_buffer_class"] = Told
    their = getattr(theirs, algorithm)("MlpPolicy", env_id, seed=0, device="cpu", **options)
    model.policy.load_state_dict(their.policy.state_dict())
    learner, differences = model.agent.learner, []

    def learn(batch: Any) -> None:
        own, other = model.policy.state_dict(), their.policy.state_dict()
        differences.append(max(float((own[k] - other[k]).abs().max()) for k in own))
        actions = batch.actions[:, 0] if run == "dqn" else batch.actions
        learner.update(
            ReplayBatch(
                obs=learner.inputs(batch.observations.numpy()),
                actions=actions.numpy(),
                rewards=batch.rewards[:, 0].numpy(),
                next_obs=learner.inputs(batch.next_observations.numpy()),
                discounts=np.float32(0.99) * (1 - batch.dones[:, 0].numpy()),
            )
        )

    monkeypatch.setattr(Told, "tell", staticmethod(learn))
    their.learn(80)
    assert len(differences) == 40
    assert max(differences) < 1e-5
