"""Training programs written for rlox run with their import lines changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

PROGRAM = """
from rlox.algorithms.ppo import PPO
from rlox.algorithms import A2C
from rlox.callbacks import Callback, CheckpointCallback, EarlyStoppingCallback, EvalCallback
from rlox.logging import LoggerCallback


class Spy(Callback):
    def __init__(self):
        self.calls = []

    def on_training_start(self, **kwargs):
        self.calls.append(("on_training_start", kwargs))

    def on_step(self, **kwargs):
        self.calls.append(("on_step", kwargs))
        return True

    def on_rollout_end(self, **kwargs):
        self.calls.append(("on_rollout_end", kwargs))

    def on_train_batch(self, **kwargs):
        self.calls.append(("on_train_batch", kwargs))

    def on_eval(self, **kwargs):
        self.calls.append(("on_eval", kwargs))

    def on_training_end(self, **kwargs):
        self.calls.append(("on_training_end", kwargs))


class Rows(LoggerCallback):
    def __init__(self):
        self.rows = []

    def on_train_step(self, step, metrics):
        self.rows.append((step, metrics))


spy, rows = Spy(), Rows()
ppo = PPO(
    env_id="CartPole-v1", n_envs=4, seed=1, logger=rows,
    callbacks=[
        spy,
        EvalCallback(eval_freq=128, n_eval_episodes=1, verbose=False),
        CheckpointCallback(save_freq=128, save_path="checkpoints", verbose=False),
        EarlyStoppingCallback(patience=1000),
    ],
    n_steps=32, n_epochs=2, batch_size=64, learning_rate=1e-3,
)
metrics = ppo.train(total_timesteps=512)
ppo.save("ppo.pt")
loaded = PPO.from_checkpoint("ppo.pt", env_id="CartPole-v1")
action = loaded.predict(obs)
actions = loaded.predict(np.stack([obs, obs]), deterministic=True)

a2c_rows = Rows()
a2c = A2C("CartPole-v1", n_envs=4, seed=1, n_steps=5, learning_rate=7e-4, logger=a2c_rows)
a2c_metrics = a2c.train(total_timesteps=400)
a2c.save("a2c.pt")
a2c_action = A2C.from_checkpoint("a2c.pt").predict(obs, deterministic=False)
"""

STOPPING = """
from rlox.algorithms.ppo import PPO
from rlox.callbacks import Callback


class StopAt(Callback):
    def on_step(self, **kwargs):
        return kwargs["step"] < 64


ppo = PPO("CartPole-v1", n_envs=4, n_steps=8, batch_size=32, callbacks=[StopAt()])
ppo.train(total_timesteps=4096)
"""

CUSTOM_POLICY = """
import torch
import torch.nn as nn
from rlox.algorithms.ppo import PPO
from rlox.algorithms.a2c import A2C


class Policy(nn.Module):
    def __init__(self, obs_dim, n_actions):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim, 32), nn.ReLU())
        self.head = nn.Linear(32, n_actions)
        self.value_head = nn.Linear(32, 1)

    def actor(self, obs):
        return self.head(self.body(obs))

    def get_action_and_logprob(self, obs):
        choice = torch.distributions.Categorical(logits=self.actor(obs))
        action = choice.sample()
        return action, choice.log_prob(action)

    def get_value(self, obs):
        return self.value_head(self.body(obs)).squeeze(-1)

    def get_logprob_and_entropy(self, obs, actions):
        choice = torch.distributions.Categorical(logits=self.actor(obs))
        return choice.log_prob(actions), choice.entropy()


policy = Policy(4, 2)
before = [p.detach().clone() for p in policy.parameters()]
ppo = PPO("CartPole-v1", n_envs=4, n_steps=32, policy=policy)
metrics = ppo.train(total_timesteps=256)
action = ppo.predict(obs)
moved = any(not torch.equal(old, new) for old, new in zip(before, policy.parameters()))

a2c = A2C("CartPole-v1", n_envs=4, policy=Policy(4, 2))
a2c_metrics = a2c.train(total_timesteps=100)
"""

LOOP = """
import torch
from rlox import GymVecEnv, VecNormalize, DiscretePolicy, PPOConfig

config = PPOConfig(n_steps=20)
env = VecNormalize(GymVecEnv("CartPole-v1", n_envs=3, seed=0))
policy = DiscretePolicy(obs_dim=4, n_actions=2)
observed = env.reset_all()
rewards = []
for _ in range(config.n_steps):
    with torch.no_grad():
        chosen, log_prob = policy.get_action_and_logprob(torch.as_tensor(observed))
    result = env.step_all(chosen.numpy())
    observed = result["obs"]
    rewards.append(result["rewards"])
mean, var = env.get_obs_rms()["mean"], env.get_obs_rms()["var"]
n = env.num_envs()
env.close()
"""

TRAINER = """
from rlox import Trainer

trainer = Trainer("ppo", env="CartPole-v1", seed=42, config={"n_envs": 2, "n_steps": 32})
metrics = trainer.train(total_timesteps=128)
evaluation = trainer.evaluate(n_episodes=2)
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(program: str, package: str = "sharpwave.compat.rlox") -> dict[str, Any]:
    namespace: dict[str, Any] = {"np": np, "obs": np.zeros(4, np.float32), "__name__": "program"}
    exec(compile(program.replace("from rlox", f"from {package}"), "program", "exec"), namespace)
    return namespace


def test_train_returns_the_documented_metrics() -> None:
    found = run(PROGRAM)
    documented = {"policy_loss", "value_loss", "entropy", "mean_reward"}
    assert documented | {"approx_kl", "clip_fraction"} <= found["metrics"].keys()
    assert documented <= found["a2c_metrics"].keys()
    assert all(isinstance(value, float) for value in found["metrics"].values())
    assert type(found["action"]) is int
    assert found["actions"].shape == (2,)
    assert type(found["a2c_action"]) is int
    assert found["loaded"].timesteps == 512


def test_mean_reward_is_the_mean_return_of_the_last_hundred_episodes() -> None:
    found = run(PROGRAM)
    for name in ("ppo", "a2c"):
        algo = found[name]
        metrics = found["metrics"] if name == "ppo" else found["a2c_metrics"]
        assert 0 < len(algo.episodes.returns) <= 100
        assert metrics["mean_reward"] == np.mean(algo.episodes.returns)


def test_total_timesteps_counts_the_steps_of_all_environments() -> None:
    found = run(PROGRAM)
    assert (found["ppo"].timesteps, found["ppo"].updates) == (512, 4)
    assert (found["a2c"].timesteps, found["a2c"].updates) == (400, 20)


def test_every_hook_is_called_with_environment_steps() -> None:
    calls = run(PROGRAM)["spy"].calls
    steps: dict[str, list[int]] = {}
    for name, kwargs in calls:
        assert "algo" in kwargs
        steps.setdefault(name, []).append(kwargs["step"])
    updates = [128, 256, 384, 512]
    assert steps == {
        "on_training_start": [0],
        "on_step": list(range(4, 513, 4)),
        "on_rollout_end": updates,
        "on_train_batch": [step for step in updates for _ in range(4)],  # an epoch each
        "on_eval": updates,
        "on_training_end": [512],
    }


def test_hooks_get_what_they_promise() -> None:
    calls = dict(run(PROGRAM)["spy"].calls)  # the last call of each
    assert calls["on_step"]["reward"] == 1.0
    assert calls["on_rollout_end"].keys() >= {"mean_reward", "update"}
    assert calls["on_train_batch"].keys() >= {"loss", "policy_loss", "value_loss", "entropy"}
    assert calls["on_eval"]["result"].mean > 0
    assert calls["on_training_end"]["metrics"].keys() >= {"mean_reward"}


def test_loggers_get_every_update_at_its_environment_step() -> None:
    found = run(PROGRAM)
    assert [step for step, _ in found["rows"].rows] == [128, 256, 384, 512]
    assert all("mean_reward" in metrics for _, metrics in found["rows"].rows)
    assert [step for step, _ in found["a2c_rows"].rows] == list(range(20, 401, 20))


def test_checkpoints_are_written_on_the_way() -> None:
    run(PROGRAM)
    assert len(list(Path("checkpoints").iterdir())) == 4


def test_a_callback_that_returns_false_stops() -> None:
    assert run(STOPPING)["ppo"].timesteps == 64


def test_a_policy_of_ones_own_trains_and_predicts() -> None:
    found = run(CUSTOM_POLICY)
    assert found["moved"]
    assert found["action"] in (0, 1)
    assert np.isfinite([found["metrics"]["loss"], found["a2c_metrics"]["loss"]]).all()


def test_a_loop_of_ones_own_steps_normalized_environments() -> None:
    found = run(LOOP)
    assert found["observed"].shape == (3, 4)
    assert found["n"] == 3
    assert found["mean"].shape == found["var"].shape == (4,)
    assert len(found["rewards"]) == 20


def test_the_trainer_trains_by_name() -> None:
    found = run(TRAINER)
    assert found["metrics"]["timesteps"] == 128
    assert found["evaluation"]["mean_reward"] > 0


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", [PROGRAM, STOPPING, CUSTOM_POLICY, LOOP])
def test_the_programs_run_with_rlox_too(program: str) -> None:
    pytest.importorskip("rlox")
    run(program, "rlox")
