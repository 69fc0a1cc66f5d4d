"""Files of Stable-Baselines3 are read without running anything in them."""

from __future__ import annotations

import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import sb3_contrib
import stable_baselines3 as theirs
import torch
from stable_baselines3.common.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise

import sharpwave.compat.sb3 as ours
from sharpwave.compat.sb3 import from_sb3, moments
from sharpwave.compat.sb3.weights import weights_of

NOISE = NormalActionNoise(np.zeros(1), 0.1 * np.ones(1))
OU = OrnsteinUhlenbeckActionNoise(np.zeros(1), 0.2 * np.ones(1))
SMALL: dict[str, Any] = {"learning_starts": 10, "batch_size": 8}
NETS: dict[str, Any] = {"net_arch": {"pi": [16, 8], "qf": [12]}}
FILES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ppo": ("PPO", "CartPole-v1", {"n_steps": 16, "batch_size": 16, "clip_range": 0.3}),
    "ppo of continuous actions": (
        "PPO",
        "Pendulum-v1",
        {
            "n_steps": 16,
            "batch_size": 16,
            "policy_kwargs": {"net_arch": [8], "activation_fn": torch.nn.ReLU},
        },
    ),
    "a2c": ("A2C", "CartPole-v1", {"rms_prop_eps": 1e-4}),
    "dqn": ("DQN", "CartPole-v1", {"learning_starts": 10, "train_freq": 2}),
    "sac": ("SAC", "Pendulum-v1", {**SMALL, "policy_kwargs": NETS, "ent_coef": "auto_0.3"}),
    "td3": (
        "TD3",
        "Pendulum-v1",
        {**SMALL, "policy_kwargs": NETS, "action_noise": NOISE, "train_freq": (2, "episode")},
    ),
    "ddpg": (
        "DDPG",
        "Pendulum-v1",
        {**SMALL, "policy_kwargs": {"net_arch": [8]}, "action_noise": OU},
    ),
    "crossq": ("CrossQ", "Pendulum-v1", {**SMALL, "policy_kwargs": NETS}),
    "tqc": ("TQC", "Pendulum-v1", {**SMALL, "policy_kwargs": NETS}),
    "qrdqn": ("QRDQN", "CartPole-v1", {"learning_starts": 10, "train_freq": 2}),
}
STEPS = 32


def saved(name: str, path: Path) -> Any:
    algorithm, env_id, options = FILES[name]
    library = theirs if hasattr(theirs, algorithm) else sb3_contrib
    model = getattr(library, algorithm)(
        "MlpPolicy", env_id, seed=0, **pickle.loads(pickle.dumps(options))
    )
    model.learn(450 if "episode" in str(options) else STEPS)  # of 200 steps in Pendulum
    model.save(path)
    return model


def observations(space: Any) -> Any:
    space.seed(0)
    return np.stack([np.clip(space.sample(), -3, 3) for _ in range(64)])


@pytest.mark.parametrize("name", FILES)
def test_it_acts_as_sb3_does(name: str, tmp_path: Path) -> None:
    model = saved(name, tmp_path / "model.zip")
    read = from_sb3(tmp_path / "model.zip")
    assert type(read).__name__ == FILES[name][0]
    obs = observations(model.observation_space)
    expected, _ = model.predict(obs, deterministic=True)
    actions, _ = read.predict(obs, deterministic=True)
    assert np.abs(actions.astype(float) - expected).max() < 1e-5
    assert read.num_timesteps == model.num_timesteps
    for key, weight in read.policy.state_dict().items():
        assert torch.equal(weight, model.policy.state_dict()[key]), key


@pytest.mark.parametrize("name", FILES)
def test_it_goes_on(name: str, tmp_path: Path) -> None:
    model = saved(name, tmp_path / "model.zip")
    algorithm, env_id, options = FILES[name]
    read = from_sb3(tmp_path / "model", env_id)
    read.learn(64, reset_num_timesteps=False)
    assert read.num_timesteps >= model.num_timesteps + 64
    for argument in ("gamma", "learning_rate", "n_steps", "buffer_size", "tau", "train_freq"):
        if argument in getattr(ours, algorithm).arguments:
            expected = getattr(model, argument)
            if argument == "train_freq":
                expected = (expected.frequency, expected.unit.value)
            assert getattr(read, argument) == expected
    assert getattr(read, "clip_range", 0.3) in (0.2, 0.3)
    assert read.__class__.__name__ != "A2C" or read.rms_prop_eps == 1e-4
    if "action_noise" in options:
        assert read.agent.config.exploration_noise == options["action_noise"]._sigma[0]


def optimizers_of(model: Any) -> dict[str, Any]:
    """SB3's optimizers by the prefix of what they move."""
    if hasattr(model, "actor"):
        return {"actor.": model.actor.optimizer, "critic.": model.critic.optimizer}
    prefix = {"DQN": "q_net.", "QRDQN": "quantile_net."}.get(type(model).__name__, "")
    return {prefix: model.policy.optimizer}


@pytest.mark.parametrize("name", FILES)
def test_optimizers_go_on_from_where_they_stood(name: str, tmp_path: Path) -> None:
    """The next step with the same gradients leads to the same weights."""
    model = saved(name, tmp_path / "model.zip")
    read = from_sb3(tmp_path / "model.zip")
    learner = read.agent.learner
    parts = weights_of(read)
    gradients = torch.Generator().manual_seed(0)
    for prefix, optimizer in optimizers_of(model).items():
        for key, parameter in model.policy.named_parameters():
            if key.startswith(prefix):
                parameter.grad = torch.randn(parameter.shape, generator=gradients)
                place = moments._place(learner, parts[key].view)
                assert place is not None
                arrays = learner.optimizers[place.block].arrays()
                state = optimizer.state[parameter]
                for moment in state.keys() - {"step"}:
                    own = torch.as_tensor(arrays[moment])
                    seen = moments._seen_as(own, parts[key].view, place.offset)
                    assert torch.equal(seen.reshape(state[moment].shape), state[moment]), key
                if learner.kind == "torch":
                    grad = learner.flats[place.block].grad
                    seen = moments._seen_as(grad, parts[key].view, place.offset)
                    seen.copy_(parameter.grad.reshape(seen.shape))
        optimizer.step()
    if learner.kind == "torch":
        for block in {"policy", "q_network", "actor", "critics"} & learner.optimizers.keys():
            learner.optimizers[block].set_lr(model.learning_rate)
            learner.optimizers[block].step()
        for key, weight in model.policy.named_parameters():
            found = read.policy.state_dict()[key]
            torch.testing.assert_close(found, weight.detach(), rtol=1e-5, atol=1e-6)


def test_the_optimizer_of_the_entropy_coefficient_goes_on(tmp_path: Path) -> None:
    model = saved("sac", tmp_path / "model.zip")
    arrays = from_sb3(tmp_path / "model.zip").agent.learner.optimizers["temperature"].arrays()
    (state,) = model.ent_coef_optimizer.state.values()
    assert float(arrays["steps"]) == float(state["step"]) > 0
    assert np.asarray(arrays["exp_avg"]).item() == state["exp_avg"].item()


def test_an_optimizer_that_does_not_fit_begins_anew_with_a_notice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved("ppo", tmp_path / "model.zip")
    kwargs = {"optimizer_class": torch.optim.RMSprop}
    read = from_sb3(tmp_path / "model.zip", policy_kwargs=kwargs)
    assert not torch.as_tensor(read.agent.learner.optimizers["policy"].arrays()["square_avg"]).any()
    assert "policy.optimizer.pth is of another optimizer" in capsys.readouterr().err


def test_the_entropy_coefficient_is_that_of_the_file(tmp_path: Path) -> None:
    model = saved("sac", tmp_path / "model.zip")
    read = from_sb3(tmp_path / "model.zip")
    assert read.ent_coef == "auto_0.3"
    alpha = float(read.agent.learner.temperature.value.detach())
    assert alpha == pytest.approx(float(model.log_ent_coef.detach()), abs=1e-6)


def test_load_of_a_class_reads_them_too(tmp_path: Path) -> None:
    saved("ppo", tmp_path / "model.zip")
    assert ours.PPO.load(tmp_path / "model", env="CartPole-v1").learn(16).num_timesteps == 16
    with pytest.raises(ValueError, match="it holds a PPO, not a SAC"):
        ours.SAC.load(tmp_path / "model")
    assert from_sb3(tmp_path / "model", n_steps=8).n_steps == 8
    with pytest.raises(TypeError, match="no 'n_step'"):
        from_sb3(tmp_path / "model", n_step=8)


# Files that nobody should trust


class Runs:
    """Pickled, it makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


def changed(path: Path, name: str, content: bytes | None) -> Path:
    """The zip with other content of an entry, or without it."""
    other = path.with_name("changed.zip")
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(other, "w") as target:
        for entry in source.namelist():
            if entry != name:
                target.writestr(entry, source.read(entry))
        if content is not None:
            target.writestr(name, content)
    return other


def data_of(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        data: dict[str, Any] = json.loads(archive.read("data"))
    return data


def test_pickles_of_settings_are_never_run(tmp_path: Path) -> None:
    import base64

    model = saved("td3", tmp_path / "model.zip")
    data, trap = data_of(tmp_path / "model.zip"), tmp_path / "was run"
    evil = base64.b64encode(pickle.dumps(Runs(trap))).decode()
    found = 0
    for entry in data.values():
        if isinstance(entry, dict) and ":serialized:" in entry:
            entry[":serialized:"] = evil
            found += 1
    assert found > 5
    path = changed(tmp_path / "model.zip", "data", json.dumps(data).encode())
    with pytest.raises(ValueError, match="train_freq must be given"):
        from_sb3(path)
    read = from_sb3(path, train_freq=(2, "episode"))
    obs = observations(model.observation_space)
    assert np.abs(read.predict(obs)[0] - model.predict(obs)[0]).max() < 1e-5
    assert not trap.exists()
    pickle.loads(base64.b64decode(evil))
    assert trap.exists()  # it would have


@pytest.mark.parametrize(
    "name",
    ["policy.pth", "pytorch_variables.pth", "critic.optimizer.pth", "ent_coef_optimizer.pth"],
)
def test_pickles_of_weights_are_never_run(name: str, tmp_path: Path) -> None:
    saved("sac", tmp_path / "model.zip")
    trap = tmp_path / "was run"
    torch.save({"weight": Runs(trap)}, tmp_path / "evil.pth")
    path = changed(tmp_path / "model.zip", name, (tmp_path / "evil.pth").read_bytes())
    with pytest.raises(ValueError, match=f"{name} must hold tensors alone"):
        from_sb3(path)
    assert not trap.exists()


def test_damaged_files_are_named(tmp_path: Path) -> None:
    saved("ppo", tmp_path / "model.zip")
    whole = (tmp_path / "model.zip").read_bytes()
    (tmp_path / "cut.zip").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"cut\.zip (is not a whole file|must hold)"):
        from_sb3(tmp_path / "cut.zip")
    for entry in ("data", "policy.pth"):
        with pytest.raises(ValueError, match=f"must hold '{entry}'"):
            from_sb3(changed(tmp_path / "model.zip", entry, None))
    with pytest.raises(ValueError, match="named settings"):
        from_sb3(changed(tmp_path / "model.zip", "data", b"[]"))
    torch.save(torch.zeros(3), tmp_path / "one.pth")
    one = (tmp_path / "one.pth").read_bytes()
    with pytest.raises(ValueError, match="named tensors"):
        from_sb3(changed(tmp_path / "model.zip", "policy.pth", one))
    with pytest.raises(
        ValueError, match=r"policy\.optimizer\.pth must hold the state of an optimizer"
    ):
        from_sb3(changed(tmp_path / "model.zip", "policy.optimizer.pth", one))
    without = from_sb3(changed(tmp_path / "model.zip", "policy.optimizer.pth", None))
    assert not np.asarray(without.agent.learner.optimizers["policy"].arrays()["exp_avg"]).any()


def test_weights_of_other_shapes_are_named(tmp_path: Path) -> None:
    model = saved("ppo", tmp_path / "model.zip")
    weights = model.policy.state_dict()
    weights["action_net.weight"] = torch.zeros(3, 64)
    torch.save(weights, tmp_path / "weights.pth")
    path = changed(tmp_path / "model.zip", "policy.pth", (tmp_path / "weights.pth").read_bytes())
    with pytest.raises(ValueError, match=r"action_net\.weight must have shape \(2, 64\)"):
        from_sb3(path)


def edited(tmp_path: Path, name: str, **entries: Any) -> Path:
    saved(name, tmp_path / "model.zip")
    data = data_of(tmp_path / "model.zip")
    for key, value in entries.items():
        data[key] = {**data[key], **value} if isinstance(value, dict) else value
    return changed(tmp_path / "model.zip", "data", json.dumps(data).encode())


def test_what_is_in_a_pickle_alone_is_named(tmp_path: Path) -> None:
    def schedule(progress: float) -> float:
        return 1e-3 * progress

    model = theirs.PPO(
        "MlpPolicy", "CartPole-v1", n_steps=16, batch_size=16, learning_rate=schedule
    )
    model.save(tmp_path / "scheduled")
    with pytest.raises(ValueError, match="learning_rate must be given, as learning_rate="):
        from_sb3(tmp_path / "scheduled")
    assert from_sb3(tmp_path / "scheduled", learning_rate=schedule).learning_rate is schedule


def test_policies_of_a_program_are_refused(tmp_path: Path) -> None:
    path = edited(tmp_path, "ppo", policy_class={"__module__": "my_program"})
    with pytest.raises(ValueError, match=r"policy_class must be SB3's own.*my_program"):
        from_sb3(path)
    kwargs = {"features_extractor_class": "<class 'my_program.MyExtractor'>"}
    path = edited(tmp_path, "ppo of continuous actions", policy_kwargs=kwargs)
    with pytest.raises(ValueError, match=r"policy_kwargs must be given.*MyExtractor"):
        from_sb3(path)


def test_spaces_that_the_file_does_not_tell(tmp_path: Path) -> None:
    path = edited(tmp_path, "td3", action_space={"low": "[-1. ... -1.]"})
    with pytest.raises(ValueError, match=r"env must be given.*action_space"):
        from_sb3(path)
    assert from_sb3(path, gym.make("Pendulum-v1")).action_space.high == 2.0


def test_images_with_channels_first(tmp_path: Path) -> None:
    from stable_baselines3.common.envs import FakeImageEnv

    env = FakeImageEnv(screen_height=40, screen_width=44, n_channels=3, discrete=True)
    model = theirs.A2C("CnnPolicy", env, seed=0)
    model.save(tmp_path / "model")
    read = from_sb3(tmp_path / "model")
    images = np.stack([env.observation_space.sample() for _ in range(8)])
    first = images.transpose(0, 3, 1, 2)
    values = model.policy.predict_values(model.policy.obs_to_tensor(first)[0])
    ours_values = read.policy.predict_values(read.policy.obs_to_tensor(first)[0])
    assert torch.allclose(values, ours_values, atol=1e-5)
    last = from_sb3(tmp_path / "model", env)
    assert np.array_equal(
        last.predict(images, deterministic=True)[0], read.predict(first, deterministic=True)[0]
    )


@pytest.mark.parametrize(
    ("name", "env_id", "options"),
    [
        ("TQC", "Pendulum-v1", {**SMALL, "policy_kwargs": {"net_arch": [8], "n_quantiles": 5}}),
        ("QRDQN", "CartPole-v1", {"learning_starts": 10, "policy_kwargs": {"n_quantiles": 7}}),
    ],
)
def test_files_of_contrib(name: str, env_id: str, options: Any, tmp_path: Path) -> None:
    contrib = pytest.importorskip("sb3_contrib")
    model = getattr(contrib, name)("MlpPolicy", env_id, seed=0, **options).learn(STEPS)
    model.save(tmp_path / "model")
    read = from_sb3(tmp_path / "model")
    assert type(read) is getattr(ours, name)
    obs = observations(model.observation_space)
    difference = (
        read.predict(obs, deterministic=True)[0] - model.predict(obs, deterministic=True)[0]
    )
    assert np.abs(difference).max() < 1e-5


def test_recurrent_files_of_contrib(tmp_path: Path) -> None:
    contrib = pytest.importorskip("sb3_contrib")
    options = {"n_steps": 16, "batch_size": 16, "policy_kwargs": {"lstm_hidden_size": 8}}
    model = contrib.RecurrentPPO("MlpLstmPolicy", "Pendulum-v1", seed=0, **options).learn(16)
    model.save(tmp_path / "model")
    read = from_sb3(tmp_path / "model")
    states: list[Any] = [None, None]
    for step in range(4):
        obs, starts = observations(model.observation_space)[:3] + step, np.full(3, step in (0, 2))
        acted = []
        for i, one in enumerate((model, read)):
            action, states[i] = one.predict(obs, states[i], starts, deterministic=True)
            acted.append(action)
        assert np.abs(acted[0] - acted[1]).max() < 1e-5
