"""The buffers for stable-baselines3 hold and return what its own do."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

from sharpwave.types import Array, Nested

pytest.importorskip("stable_baselines3")
torch = pytest.importorskip("torch")

from stable_baselines3 import DQN, SAC, TD3
from stable_baselines3.common import buffers as peer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize

from sharpwave.integrations.sb3 import DictReplayBuffer, ReplayBuffer

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small networks only lose by more, and several tests run at a time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


ACTIONS = Box(-1.0, 1.0, (2,), np.float32)
PLAIN_SPACES: list[Any] = [
    Box(-1.0, 1.0, (3,), np.float32),
    Box(-1.0, 1.0, (3,), np.float64),
    Box(0, 255, (2, 4, 4), np.uint8),
    Discrete(7),
    MultiDiscrete([3, 4]),
    MultiBinary(5),
]
DICT_SPACE: Any = Dict(
    {"image": Box(0, 255, (1, 4, 4), np.uint8), "speed": Box(-1, 1, (2,)), "gear": Discrete(5)}
)


def stacked(space: gym.Space[Any], n_envs: int) -> Nested:
    if isinstance(space, Dict):
        return {key: stacked(child, n_envs) for key, child in space.items()}
    return np.stack([space.sample() for _ in range(n_envs)])


def at(value: Nested, env: int) -> Nested:
    if isinstance(value, dict):
        return {key: at(inner, env) for key, inner in value.items()}
    return np.array(value[env])


class Life:
    """Steps as a vector environment gives them, each with a reward of its own."""

    def __init__(
        self, space: gym.Space[Any], actions: gym.Space[Any] = ACTIONS, n_envs: int = 1
    ) -> None:
        self.space, self.actions, self.n_envs = space, actions, n_envs
        self.rng = np.random.default_rng(0)
        space.seed(0)
        actions.seed(0)
        self.obs = stacked(space, n_envs)
        self.count = 0
        self.truth: dict[float, tuple[Nested, Array, Nested, bool, bool]] = {}

    def live(self, buffers: list[Any], n_steps: int) -> None:
        for _ in range(n_steps):
            next_obs = stacked(self.space, self.n_envs)
            action = stacked(self.actions, self.n_envs)
            reward = np.arange(self.count, self.count + self.n_envs, dtype=np.float32)
            self.count += self.n_envs
            done = self.rng.random(self.n_envs) < 0.2
            timeout = done & (self.rng.random(self.n_envs) < 0.5)
            infos = [{"TimeLimit.truncated": bool(cut)} for cut in timeout]
            for i in range(self.n_envs):
                self.truth[float(reward[i])] = (
                    *(at(self.obs, i), action[i], at(next_obs, i)),
                    *(bool(done[i]), bool(timeout[i])),
                )
            for buffer in buffers:
                buffer.add(
                    *(copy.deepcopy(self.obs), copy.deepcopy(next_obs), action.copy()),
                    *(reward.copy(), done.copy(), infos),
                )
            reset_obs = stacked(self.space, self.n_envs)
            self.obs = replaced(next_obs, reset_obs, done)


def replaced(value: Nested, by: Nested, where: Array) -> Nested:
    if isinstance(value, dict):
        return {key: replaced(inner, by[key], where) for key, inner in value.items()}
    return np.where(where.reshape(-1, *[1] * (value.ndim - 1)), by, value)


def row(value: Any, i: int) -> Nested:
    if isinstance(value, dict):
        return {key: row(inner, i) for key, inner in value.items()}
    return value[i].numpy()


def assert_equal(found: Nested, expected: Nested) -> None:
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            assert_equal(found[key], expected[key])
    else:
        np.testing.assert_array_equal(found, np.reshape(expected, found.shape))


def assert_true(samples: Any, life: Life) -> None:
    for i in range(len(samples.rewards)):
        obs, action, next_obs, done, timeout = life.truth[samples.rewards[i].item()]
        assert_equal(row(samples.observations, i), obs)
        assert_equal(row(samples.next_observations, i), next_obs)
        assert_equal(samples.actions[i].numpy(), action)
        assert samples.dones[i].item() == float(done and not timeout)


def shapes(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: shapes(inner) for key, inner in value.items()}
    return None if value is None else (tuple(value.shape), value.dtype)


def every_step(buffer: ReplayBuffer) -> Any:
    return buffer._get_samples(buffer._rows.indices())


@pytest.mark.long(but=["Box(-1.0, 1.0, (3,), float32)-1"])
@pytest.mark.parametrize("n_envs", [1, 4])
@pytest.mark.parametrize("space", [*PLAIN_SPACES, DICT_SPACE], ids=str)
def test_samples_are_those_of_the_peer(space: gym.Space[Any], n_envs: int) -> None:
    kind: Any = (
        (DictReplayBuffer, peer.DictReplayBuffer)
        if isinstance(space, Dict)
        else (ReplayBuffer, peer.ReplayBuffer)
    )
    ours, theirs = (cls(400, space, ACTIONS, device="cpu", n_envs=n_envs) for cls in kind)
    life = Life(space, n_envs=n_envs)
    life.live([ours, theirs], 30)
    own, other = ours.sample(64), theirs.sample(64)
    assert type(own) is type(other)
    assert [shapes(value) for value in own] == [shapes(value) for value in other]
    assert_true(other, life)
    assert_true(own, life)
    assert_true(every_step(ours), life)
    assert ours.size() == theirs.size() == 30
    assert (ours.pos, ours.full) == (theirs.pos, theirs.full)


@pytest.mark.parametrize(
    "actions", [Discrete(4), MultiBinary(3), Box(-1, 1, (2,), np.float64)], ids=str
)
def test_actions_have_the_dtype_and_shape_of_the_peer(actions: gym.Space[Any]) -> None:
    ours, theirs = (
        cls(50, PLAIN_SPACES[0], actions, device="cpu", n_envs=2)
        for cls in (ReplayBuffer, peer.ReplayBuffer)
    )
    Life(PLAIN_SPACES[0], actions, 2).live([ours, theirs], 10)
    assert shapes(ours.sample(8).actions) == shapes(theirs.sample(8).actions)


def test_a_full_buffer_holds_the_newest_steps() -> None:
    ours = ReplayBuffer(40, PLAIN_SPACES[0], ACTIONS, device="cpu", n_envs=2)
    life = Life(PLAIN_SPACES[0], n_envs=2)
    life.live([ours], 100)
    held = every_step(ours)
    assert_true(held, life)
    assert ours.full
    assert 20 <= len(held.rewards) <= 40
    assert held.rewards.max() == 199
    assert held.rewards.min() >= 160


def test_time_limits_count_as_ends_when_they_are_not_handled() -> None:
    ours = ReplayBuffer(
        100, PLAIN_SPACES[0], ACTIONS, device="cpu", handle_timeout_termination=False
    )
    life = Life(PLAIN_SPACES[0])
    life.live([ours], 60)
    samples = every_step(ours)
    for i in range(60):
        assert samples.dones[i].item() == float(life.truth[samples.rewards[i].item()][3])


def test_an_observation_is_stored_once() -> None:
    space = Box(0, 255, (3, 32, 32), np.uint8)
    buffer = ReplayBuffer(1000, space, ACTIONS, device="cpu")
    assert buffer._rows.stats()["bytes_per_step"] < 1.1 * 3 * 32 * 32


def test_frame_stacks_store_every_frame_once() -> None:
    def make() -> gym.Env[Any, Any]:
        return Counting()

    env = VecFrameStack(DummyVecEnv([make, make]), 4, channels_order="first")
    kinds: Any = ((ReplayBuffer, {"stack": 4}), (peer.ReplayBuffer, {}))
    ours, theirs = (
        cls(200, env.observation_space, env.action_space, device="cpu", n_envs=2, **options)
        for cls, options in kinds
    )
    obs = env.reset()
    for t in range(60):
        actions = np.array([[t], [t + 1]]) % 2
        next_obs, reward, done, infos = env.step(actions)
        last = next_obs.copy()
        for i in np.flatnonzero(done):
            last[i] = infos[i]["terminal_observation"]
        for buffer in (ours, theirs):
            buffer.add(obs, last, actions, reward, done, infos)
        obs = next_obs
    held = every_step(ours)
    assert ours._rows.stats()["bytes_per_step"] < 2 * 8 * 8
    for name in ("observations", "next_observations"):
        expected = getattr(theirs, name)[:60].swapaxes(0, 1).reshape(120, 4, 8, 8)
        np.testing.assert_array_equal(getattr(held, name).numpy(), expected)


class Counting(gym.Env[Array, Any]):
    """Images that count the steps; episodes of seven."""

    observation_space = Box(0, 255, (1, 8, 8), np.uint8)
    action_space = Discrete(2)

    def reset(self, **options: Any) -> tuple[Array, dict[str, Any]]:
        super().reset(**options)
        self.t = 0
        self.salt = int(self.np_random.integers(100))
        return self.image(), {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return self.image(), float(self.t), False, self.t == 7, {}

    def image(self) -> Array:
        return np.full((1, 8, 8), self.salt + self.t, np.uint8)


def test_n_step_returns_are_those_of_the_peer() -> None:
    options: dict[str, Any] = {"device": "cpu", "n_steps": 3, "gamma": 0.9}
    ours = ReplayBuffer(200, PLAIN_SPACES[0], ACTIONS, **options)
    theirs = peer.NStepReplayBuffer(200, PLAIN_SPACES[0], ACTIONS, **options)
    Life(PLAIN_SPACES[0]).live([ours, theirs], 100)
    own, other = every_step(ours), theirs._get_samples(np.arange(100))
    torch.testing.assert_close(own.rewards, other.rewards)
    torch.testing.assert_close(own.observations, other.observations)
    torch.testing.assert_close(own.next_observations, other.next_observations)
    torch.testing.assert_close(own.dones, other.dones)
    torch.testing.assert_close(own.discounts, (1 - other.dones) * other.discounts)
    assert shapes(own.discounts) == shapes(other.discounts)


@pytest.mark.parametrize("n_steps", [1, 3])
def test_normalized_samples_are_those_of_the_peer(n_steps: int) -> None:
    env = VecNormalize(make_vec_env("Pendulum-v1"), clip_reward=1.0)
    env.reset()
    for _ in range(50):
        env.step(np.array([env.action_space.sample()]))
    spaces = env.observation_space, env.action_space
    ours: Any
    theirs: Any
    if n_steps == 1:
        ours, theirs = (
            cls(200, *spaces, device="cpu") for cls in (ReplayBuffer, peer.ReplayBuffer)
        )
    else:
        ours = ReplayBuffer(200, *spaces, device="cpu", n_steps=3, gamma=0.9)
        theirs = peer.NStepReplayBuffer(200, *spaces, device="cpu", n_steps=3, gamma=0.9)
    Life(env.observation_space, env.action_space).live([ours, theirs], 100)
    own = ours._get_samples(ours._rows.indices(), env)
    other = theirs._get_samples(np.arange(100), env)
    for name in ("observations", "next_observations", "rewards", "actions", "dones"):
        torch.testing.assert_close(getattr(own, name), getattr(other, name))
    assert [shapes(value) for value in ours.sample(8, env)] == [
        shapes(value) for value in theirs.sample(8, env)
    ]


def test_samples_belong_to_the_caller() -> None:
    ours = ReplayBuffer(50, PLAIN_SPACES[0], ACTIONS, device="cpu", seed=1)
    Life(PLAIN_SPACES[0]).live([ours], 20)
    first = ours.sample(8)
    kept = first.observations.clone()
    ours.sample(8)
    assert torch.equal(first.observations, kept)


def test_draws_follow_the_global_seed() -> None:
    drawn = []
    for _ in range(2):
        np.random.seed(3)  # noqa: NPY002 - what stable-baselines3 seeds
        ours = ReplayBuffer(50, PLAIN_SPACES[0], ACTIONS, device="cpu")
        Life(PLAIN_SPACES[0]).live([ours], 20)
        drawn.append([ours.sample(8).rewards for _ in range(2)])
    assert torch.equal(drawn[0][0], drawn[1][0])
    assert torch.equal(drawn[0][1], drawn[1][1])
    assert not torch.equal(drawn[0][0], drawn[0][1])


def test_reset_forgets_everything() -> None:
    ours = ReplayBuffer(50, PLAIN_SPACES[0], ACTIONS, device="cpu")
    life = Life(PLAIN_SPACES[0])
    life.live([ours], 60)
    ours.reset()
    assert (ours.size(), ours.pos, ours.full) == (0, 0, False)
    with pytest.raises(ValueError, match="buffer is empty"):
        ours.sample(4)
    life.live([ours], 5)
    assert_true(ours.sample(16), life)


def test_extend_adds_step_by_step() -> None:
    ours = ReplayBuffer(50, PLAIN_SPACES[0], ACTIONS, device="cpu")
    obs = np.arange(12, dtype=np.float32).reshape(4, 1, 3)
    zeros = np.zeros((4, 1), np.float32)
    ours.extend(
        obs[:3], obs[1:], np.zeros((3, 1, 2), np.float32), zeros[:3], zeros[:3] > 0, [[{}]] * 3
    )
    assert ours.size() == 3
    assert torch.equal(every_step(ours).next_observations, torch.from_numpy(obs[1:, 0]))


def test_pickles_go_on_where_they_were() -> None:
    ours = DictReplayBuffer(50, DICT_SPACE, ACTIONS, device="cpu", n_envs=2)
    life = Life(DICT_SPACE, n_envs=2)
    life.live([ours], 40)
    other = pickle.loads(pickle.dumps(ours))
    life.live([ours, other], 10)
    a, b = ours.sample(32), other.sample(32)
    assert torch.equal(a.rewards, b.rewards)
    assert_true(b, life)
    assert (other.pos, other.full, other.size()) == (ours.pos, ours.full, ours.size())


def test_wrong_use_is_named() -> None:
    with pytest.raises(ValueError, match="optimize_memory_usage must be False"):
        ReplayBuffer(50, PLAIN_SPACES[0], ACTIONS, optimize_memory_usage=True)
    with pytest.raises(TypeError, match="observation_space must be a Dict"):
        DictReplayBuffer(50, PLAIN_SPACES[0], ACTIONS)
    with pytest.raises(ValueError, match="n must be"):
        ReplayBuffer(50, PLAIN_SPACES[0], ACTIONS, n_steps=0)


ALGORITHMS: list[tuple[Any, str, dict[str, Any]]] = [
    (DQN, "CartPole-v1", {}),
    (SAC, "Pendulum-v1", {}),
    (TD3, "Pendulum-v1", {}),
    (DQN, "CartPole-v1", {"n_steps": 3, "gamma": 0.99}),
]


@pytest.mark.long(but=["1-DQN-CartPole-v1-options0"])
@pytest.mark.parametrize(("algorithm", "env_id", "options"), ALGORITHMS)
@pytest.mark.parametrize("n_envs", [1, 3])
def test_algorithms_train_save_and_resume(
    algorithm: Any, env_id: str, options: dict[str, Any], n_envs: int, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {
        "env": make_vec_env(env_id, n_envs, seed=0),
        "replay_buffer_class": ReplayBuffer,
        "replay_buffer_kwargs": options,
        "buffer_size": 120,
        "learning_starts": 20,
        "policy_kwargs": {"net_arch": [16]},
        "train_freq": 4,
        "seed": 0,
        "device": "cpu",
    }
    model = algorithm("MlpPolicy", **settings)
    model.learn(150)
    assert model.replay_buffer.size() > 0
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    other = algorithm.load(tmp_path / "model", env=model.get_env())
    other.load_replay_buffer(tmp_path / "buffer")
    before, after = every_step(model.replay_buffer), every_step(other.replay_buffer)
    assert torch.equal(before.observations, after.observations)
    assert torch.equal(before.rewards, after.rewards)
    other.learn(30, reset_num_timesteps=False)
    assert other.replay_buffer._rows.stats()["pushed"] > model.replay_buffer._rows.stats()["pushed"]


@pytest.mark.long
def test_training_is_reproducible() -> None:
    weights = []
    for _ in range(2):
        model = SAC(
            *("MlpPolicy", make_vec_env("Pendulum-v1", seed=0)),
            replay_buffer_class=ReplayBuffer,
            learning_starts=20,
            policy_kwargs={"net_arch": [16]},
            seed=7,
            device="cpu",
        )
        model.learn(60)
        weights.append(torch.nn.utils.parameters_to_vector(model.policy.parameters()))
    assert torch.equal(*weights)
