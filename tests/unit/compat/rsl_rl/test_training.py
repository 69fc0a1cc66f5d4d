"""Training scripts of Isaac Lab, MuJoCo Playground and ManiSkill with their import changed."""

from __future__ import annotations

import math
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import sharpwave as sw
from sharpwave.compat.rsl_rl import runners
from sharpwave.compat.rsl_rl.env import VecEnv
from sharpwave.compat.rsl_rl.learners import learner_for
from sharpwave.compat.rsl_rl.runners import OnPolicyRunner
from sharpwave.learners.fused import FusedPolicyLearner
from tests.unit.compat.rsl_rl.robots import (
    STEPS,
    LabEnv,
    LabWrapper,
    ManiSkillVectorEnv,
    PlaygroundWrapper,
    config,
    env_for,
    events_of,
)

UNTRAINED = -STEPS / 6
"""Mean return of a point that stays where it starts."""


def playground_config() -> dict[str, Any]:
    """A configuration as MuJoCo Playground's script writes it."""
    given = config(3)
    given["obs_groups"] = {"policy": ["state"], "critic": ["privileged_state"]}
    del given["class_name"], given["load_checkpoint"]
    return {**given, "runner_class_name": "OnPolicyRunner", "checkpoint": -1, "resume_path": None}


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    **{f"lab {form}": (partial(env_for, form), config(form)) for form in (2, 3, 4, 5)},
    "playground": (PlaygroundWrapper, playground_config()),
    "maniskill": (ManiSkillVectorEnv, config(5, obs_groups={})),
}
"""The wrapper of N environments, and a configuration that goes with it."""


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_points_are_pushed_to_the_best_return(case: str) -> None:
    make_env, given = CASES[case]
    runner = OnPolicyRunner(make_env(64), given)
    runner.learn(60)
    returns = runner.agent.episodes.returns
    assert len(returns) == 100
    # Half of what samples lose is their spread; the best return is 0.
    assert runner.agent.episodes.mean_return > -0.3 > 0.5 * UNTRAINED


def _learner_for(wanted: bool, *args: Any, **options: Any) -> Any:
    return learner_for(*args, **{**options, "by_kernels": wanted})


@pytest.mark.parametrize("form", [2, 3, 5])
def test_kernels_learn_what_autograd_learns(form: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here torch computes what the kernels of a GPU do."""
    weights = []
    for by_kernels in (False, True):
        with monkeypatch.context() as patch:
            patch.setattr(runners, "learner_for", partial(_learner_for, by_kernels))
            runner = OnPolicyRunner(env_for(form, 32), config(form))
        assert isinstance(runner.agent.learner, FusedPolicyLearner) is by_kernels
        first = runner.agent.flat.data.clone()
        runner.learn(3)
        weights.append(runner.agent.flat.data)
    moved = (weights[0] - first).norm()
    assert (weights[1] - weights[0]).norm() < 1e-3 * moved


@pytest.mark.long
def test_maniskill_without_a_runner() -> None:
    agent = sw.PPO(
        ManiSkillVectorEnv(64),
        n_steps=8,
        num_mini_batches=4,
        gamma=0.9,
        ent_coef=0.0,
        learning_rate="adaptive",
        init_noise_std=0.5,
        seed=1,
    )
    agent.train(64 * 8 * 60)
    assert agent.episodes.mean_return > -0.3


@pytest.mark.long
def test_the_scripts_of_isaac_lab(tmp_path: Path, capsys: Any) -> None:
    """train.py, and then play.py, call by call."""
    agent_cfg = config(3)
    log_dir = str(tmp_path / "logs" / "run")
    env = LabWrapper(LabEnv(16), clip_actions=agent_cfg["clip_actions"])
    runner = OnPolicyRunner(env, agent_cfg, log_dir=log_dir, device=agent_cfg["device"])
    runner.add_git_repo_to_log(__file__)
    runner.learn(num_learning_iterations=7, init_at_random_ep_len=True)
    env.close()
    written = sorted(path.name for path in Path(log_dir).glob("model_*.pt"))
    assert written == ["model_0.pt", "model_5.pt", "model_6.pt"]
    shown = capsys.readouterr().out
    for text in ("Learning iteration 6/7", "Mean reward:", "Steps per second:", "Mean action std:"):
        assert text in shown

    env = LabWrapper(LabEnv(16), clip_actions=agent_cfg["clip_actions"])
    played = OnPolicyRunner(env, agent_cfg, log_dir=None, device=agent_cfg["device"])
    played.load(f"{log_dir}/model_6.pt")
    policy = played.get_inference_policy(device=env.unwrapped.device)
    policy_nn: Any = played.alg.policy
    assert policy_nn.is_recurrent is False
    assert policy_nn.actor[0].in_features == 2
    normalizer = policy_nn.actor_obs_normalizer
    obs = env.get_observations()
    with torch.inference_mode():
        for _ in range(5):
            actions = policy(obs)
            assert torch.equal(actions, policy_nn.actor(normalizer(obs["policy"])))
            obs, _, _, _ = env.step(actions)
    assert played.current_learning_iteration == 6
    played.learn(1)  # also after steps that were not the runner's
    env.close()


def test_the_state_of_repositories_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    who = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
    (folder / "a.txt").write_text("one\n")
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "first"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    (folder / "a.txt").write_text("another\n")
    runner = OnPolicyRunner(env_for(5), config(5), str(tmp_path / "logs"))
    runner.add_git_repo_to_log(str(folder / "a.txt"))
    runner.learn(1)
    text = (tmp_path / "logs" / "git" / "project.diff").read_text()
    assert "+another" in text
    assert "--- git commit ---" in text


@pytest.mark.parametrize("form", [2, 5])
def test_numbers_have_the_names_of_rsl_rl(tmp_path: Path, form: int) -> None:
    runner = OnPolicyRunner(env_for(form), config(form), str(tmp_path))
    runner.learn(6)
    events = events_of(tmp_path)
    names = {
        "Loss/value_function",
        "Loss/surrogate",
        "Loss/entropy",
        "Loss/learning_rate",
        "Policy/mean_noise_std",
        "Perf/total_fps",
        "Perf/collection time",
        "Perf/learning_time",
        "Train/mean_reward",
        "Train/mean_episode_length",
        "Train/mean_reward/time",
        "Train/mean_episode_length/time",
        "Episode_Reward/track",
        "Episode/terrain",
    }
    if form == 5:
        newest = {
            "value_function": "value",
            "noise_std": "std",
            "collection time": "collection_time",
        }
        for old, new in newest.items():
            names = {name.replace(old, new) for name in names}
    assert set(events.Tags()["scalars"]) == names
    assert [one.value for one in events.Scalars("Episode/terrain")] == [0.5] * 6
    last = events.Scalars("Train/mean_episode_length")[-1]
    assert last.step == 5
    assert last.value == pytest.approx(runner.agent.episodes.mean_length)
    kept = events.Scalars("Train/mean_reward")[-1].value
    assert kept == pytest.approx(runner.agent.episodes.mean_return)


def test_an_own_writer_is_taken(tmp_path: Path) -> None:
    logger = {"class_name": f"{__name__}:Writer", "word": "here"}
    runner = OnPolicyRunner(env_for(5), config(5, logger=logger), str(tmp_path))
    runner.learn(2)
    assert runner.writer.word == "here"
    assert runner.writer.scalars["Loss/value"] == [0, 1]
    assert runner.writer.models == ["model_0.pt", "model_1.pt"]
    assert runner.writer.stopped


class Writer:
    """A writer of scalars with rsl_rl's methods."""

    def __init__(self, log_dir: str, word: str) -> None:
        self.log_dir, self.word = log_dir, word
        self.scalars: dict[str, list[int]] = {}
        self.models: list[str] = []
        self.stopped = False

    def add_scalar(self, name: str, value: float, step: int) -> None:
        assert math.isfinite(value)
        self.scalars.setdefault(name, []).append(step)

    def save_model(self, path: str, iteration: int) -> None:
        self.models.append(Path(path).name)

    def stop(self) -> None:
        self.stopped = True


def test_nothing_is_written_without_a_folder(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    runner = OnPolicyRunner(env_for(5), config(5))
    runner.learn(2)
    assert list(tmp_path.iterdir()) == []
    assert runner.writer is None


def test_episodes_begin_at_any_length() -> None:
    env = env_for(3, 500)
    runner = OnPolicyRunner(env, config(3))
    seen: list[Any] = []
    move = env.unwrapped.move

    def watched(actions: Any) -> Any:
        seen.append(env.episode_length_buf.clone())
        return move(actions)

    env.unwrapped.move = watched  # type: ignore[method-assign]
    runner.learn(1, init_at_random_ep_len=True)
    assert seen[0].min() == 0
    assert seen[0].max() == STEPS - 1
    assert abs(float(seen[0].float().mean()) - (STEPS - 1) / 2) < 1


class Endless(LabEnv):
    """Points that get 1 in each step, whatever they do."""

    def move(self, actions: Any) -> Any:
        _, terminated, truncated = super().move(actions)
        return torch.ones(self.num_envs), terminated, truncated


@pytest.mark.long
@pytest.mark.parametrize(("is_finite", "value"), [(False, 10.0), (True, 6.9)])
def test_an_episode_that_ran_out_of_time_goes_on_in_value(is_finite: bool, value: float) -> None:
    env = LabWrapper(Endless(64, is_finite_horizon=is_finite))
    options = {"schedule": "fixed", "learning_rate": 1e-2, "num_learning_epochs": 10}
    runner = OnPolicyRunner(env, config(5, algorithm=options))
    runner.learn(40, init_at_random_ep_len=True)
    values = runner.agent.policy.values(dict(env.get_observations().items()))
    # 1 / (1 - 0.9) where they never end, and 1 / (1 - 0.9 * 19 / 20) where each step may be last.
    assert float(values.mean()) == pytest.approx(value, abs=1.2)


def test_iterations_are_counted_as_there() -> None:
    runner = OnPolicyRunner(env_for(5), config(5))
    assert runner.current_learning_iteration == 0
    runner.learn(3)
    assert runner.current_learning_iteration == 2
    assert runner.agent.updates == 3
    runner.learn(2)
    assert runner.current_learning_iteration == 3


def test_the_seed_decides() -> None:
    def weights(seed: int) -> Any:
        runner = OnPolicyRunner(env_for(5), config(5, seed=seed))
        runner.learn(2)
        return runner.agent.policy.actor[0].weight.detach().clone()

    assert torch.equal(weights(3), weights(3))
    assert not torch.equal(weights(3), weights(4))


def test_an_environment_that_lacks_something_is_named() -> None:
    class Half:
        num_envs, device = 2, "cpu"

        def get_observations(self) -> Any: ...

        def step(self, actions: Any) -> Any: ...

    with pytest.raises(TypeError, match="env must have num_actions, Half has not"):
        OnPolicyRunner(Half(), config(5))

    class Images(LabWrapper):
        def get_observations(self) -> Any:
            return {"policy": torch.zeros(self.num_envs, 3, 3)}

    with pytest.raises(ValueError, match=r"observations 'policy' must have shape \(4, d\), got"):
        OnPolicyRunner(Images(LabEnv(4)), config(5))


def test_numbers_that_are_not_finite_are_named() -> None:
    env = env_for(5)
    runner = OnPolicyRunner(env, config(5))
    env.unwrapped.place[3] = torch.nan
    with pytest.raises(sw.errors.NonFiniteError, match="the environment must give finite numbers"):
        runner.learn(1)


def test_names_that_are_not_there_say_where_to_read() -> None:
    runner = OnPolicyRunner(env_for(5), config(5))
    with pytest.raises(AttributeError, match=r"no attribute 'lear' here.*'learn'.*coming_from_rsl"):
        runner.lear(3)
    with pytest.raises(AttributeError, match="Algorithm has no attribute 'storage' here"):
        runner.alg.storage  # noqa: B018


def test_the_interface_is_abstract() -> None:
    with pytest.raises(TypeError, match="abstract"):
        VecEnv()  # type: ignore[abstract]
