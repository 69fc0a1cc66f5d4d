"""Small environments whose every observation says where it comes from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv, PendulumEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv

Env = gym.Env[Any, Any]
Info = dict[str, Any]


class CountingEnv(gym.Env[Any, Any]):
    """Counts episodes and steps, and ends episodes by a schedule.

    Its observation is [number, episode, step], its reward 1 + number + step / 10 + action / 100.

    Args:
        lengths: Lengths of the episodes, again from the front after the last.
        number: Which of several environments this is.
        ends: "terminated", "truncated", "both", or "alternating" of the first two; or one of the
            first three for each length.
    """

    def __init__(
        self,
        lengths: Sequence[int] = (3,),
        number: int = 0,
        ends: str | Sequence[str] = "terminated",
    ) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.lengths = lengths
        self.number = number
        self.ends = ends
        self.episode = -1
        self.step_number = 0
        self.is_closed = False

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self.episode += 1
        self.step_number = 0
        return self.observation(), {"first": self.episode}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        length = self.lengths[self.episode % len(self.lengths)]
        assert self.step_number < length, "stepped after the end of the episode"
        self.step_number += 1
        ended = self.step_number == length
        ends = self.ends
        if ends == "alternating":
            ends = ("terminated", "truncated")
        if not isinstance(ends, str):
            ends = ends[self.episode % len(ends)]
        reward = 1 + self.number + self.step_number / 10 + float(np.sum(action)) / 100
        info = {"step": self.step_number, "last": True} if ended else {"step": self.step_number}
        return (
            self.observation(),
            reward,
            ended and ends != "truncated",
            (ended and ends != "terminated"),
            info,
        )

    def observation(self) -> Any:
        return np.array([self.number, self.episode, self.step_number], np.float32)

    def get_state(self) -> dict[str, Any]:
        return {"episode": self.episode, "step": np.int64(self.step_number)}

    def set_state(self, state: dict[str, Any]) -> None:
        self.episode, self.step_number = state["episode"], state["step"]

    def render(self) -> Any:
        return f"{self.number}:{self.step_number}"

    def close(self) -> None:
        self.is_closed = True


class RandomWalkEnv(CountingEnv):
    """Adds noise of its own generator to the observation, and draws the length of an episode."""

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        gym.Env.reset(self, seed=seed)
        self.lengths = [int(self.np_random.integers(1, 6))]
        return super().reset(options=options)

    def observation(self) -> Any:
        return super().observation() + self.np_random.normal(size=3).astype(np.float32)

    def get_state(self) -> dict[str, Any]:
        return {**super().get_state(), "lengths": list(self.lengths)}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self.lengths = state["lengths"]


class NestedEnv(CountingEnv):
    """CountingEnv with its observation in a dict with a tuple."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.observation_space = gym.spaces.Dict(
            {
                "where": gym.spaces.Box(-np.inf, np.inf, (2,), np.float32),
                "parts": gym.spaces.Tuple(
                    (
                        gym.spaces.Box(0, 255, (2, 2), np.uint8),
                        gym.spaces.Discrete(1000),
                        gym.spaces.Box(-np.inf, np.inf, (), np.float64),
                    )
                ),
            }
        )

    def observation(self) -> Any:
        number, episode, step = super().observation()
        image = np.full((2, 2), step, np.uint8)
        return {"where": np.array([number, episode], np.float32), "parts": (image, int(step), step)}


class ReusingEnv(CountingEnv):
    """Returns the same array from every step and reset."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.memory = np.zeros(3, np.float32)

    def observation(self) -> Any:
        self.memory[:] = super().observation()
        return self.memory


class FailingEnv(CountingEnv):
    """Raises in a step or reset of some episode."""

    def __init__(
        self, *args: Any, fail_step: int = -1, fail_reset: int = -1, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.fail_step = fail_step
        self.fail_reset = fail_reset

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        if self.episode + 1 == self.fail_reset:
            raise LookupError("the level is missing")
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        if self.step_number + 1 == self.fail_step:
            raise ZeroDivisionError("the wheel is flat")
        return super().step(action)


class WrongEnv(CountingEnv):
    """Number 1 replaces some of what its second step returns."""

    def __init__(self, number: int, wrong: dict[str, Any]) -> None:
        super().__init__((9,), number)
        self.wrong = wrong

    def step(self, action: Any) -> Any:
        names = ("obs", "reward", "terminated", "truncated", "info")
        outcome = dict(zip(names, super().step(action), strict=True))
        if self.number == 1 and self.step_number == 2:
            outcome |= self.wrong
        return tuple(outcome.values())


class MaskedEnv(CountingEnv):
    """Three actions; the one of the step's number is forbidden. Some steps say nothing of it.

    Args:
        silent: Steps of an episode whose info has no mask; 0 is the reset.
    """

    def __init__(self, *args: Any, silent: tuple[int, ...] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.action_space = gym.spaces.Discrete(3)
        self.silent = silent

    def reset(self, **kwargs: Any) -> tuple[Any, Info]:
        obs, _ = super().reset(**kwargs)
        return obs, self.info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        assert self.step_number in self.silent or action != self.step_number % 3
        obs, reward, terminated, truncated, _ = super().step(action)
        return obs, reward, terminated, truncated, self.info()

    def info(self) -> Info:
        if self.step_number in self.silent:
            return {}
        return {"action_mask": np.arange(3) != self.step_number % 3}


class FramesEnv(CountingEnv):
    """CountingEnv whose observation is a stack of its last frames, which say what it says."""

    def __init__(self, *args: Any, stack: int = 3, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.observation_space = gym.spaces.Box(0, 255, (stack, 2, 3), np.float32)
        self.frames = np.zeros((stack, 2, 3), np.float32)

    def observation(self) -> Any:
        frame = np.repeat(super().observation()[None], 2, 0)
        if self.step_number == 0:
            self.frames = np.zeros_like(self.frames)
        self.frames = np.concatenate((self.frames[1:], frame[None]))
        return self.frames


class DiscreteObsEnv(CountingEnv):
    """CountingEnv whose observation is one number."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.observation_space = gym.spaces.Discrete(1000)

    def observation(self) -> Any:
        number, episode, step = super().observation()
        return np.int64(100 * number + 10 * (episode % 10) + step)


class BoxActionEnv(CountingEnv):
    """CountingEnv with continuous actions of bounds that are not symmetric."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.action_space = gym.spaces.Box(np.array([-1, 2], "f"), np.array([3, 8], "f"))

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        assert self.action_space.contains(action), action
        return super().step(action)


class ResumableCartPole(CartPoleEnv):
    """CartPole that offers its state."""

    def get_state(self) -> dict[str, Any]:
        return {"state": np.array(self.state), "beyond": self.steps_beyond_terminated}

    def set_state(self, state: dict[str, Any]) -> None:
        self.state = tuple(map(float, state["state"]))  # type: ignore[assignment]
        self.steps_beyond_terminated = state["beyond"]


def resumable() -> Env:
    """CartPole in episodes of at most 50 steps, which a run can go on with exactly."""
    return gym.wrappers.TimeLimit(ResumableCartPole(), 50)


class ResumablePendulum(PendulumEnv):
    """Pendulum that offers its state."""

    def get_state(self) -> dict[str, Any]:
        return {"state": np.array(self.state)}

    def set_state(self, state: dict[str, Any]) -> None:
        self.state = state["state"]
        self.last_u = None


def resumable_pendulum() -> Env:
    """Pendulum in episodes of 30 steps, which a run can go on with exactly."""
    return gym.wrappers.TimeLimit(ResumablePendulum(), 30)


def numbered(
    n: int, kind: Callable[..., Env] = CountingEnv, **kwargs: Any
) -> list[Callable[[], Env]]:
    """Makers of n environments that know their number."""
    return [partial(kind, number=number, **kwargs) for number in range(n)]


def one_failing(n: int, bad: int, **kwargs: Any) -> list[Callable[[], Env]]:
    """Makers of n environments with episodes of 2 and 9 steps, of which one fails."""
    return [
        partial(FailingEnv, (2, 9), number, **(kwargs if number == bad else {}))
        for number in range(n)
    ]


def play(env: Any, steps: int) -> None:
    """Reset with seed 5 and step with actions 0, 1, 0, ..."""
    env.reset(seed=5)
    for _ in range(steps):
        env.step(np.arange(env.num_envs) % 2)


def vectorized(makers: Sequence[Callable[[], Env]], mode: str) -> SyncVectorEnv[Any, Any]:
    """Gymnasium's vector environment in an autoreset mode given by its name here."""
    return SyncVectorEnv(makers, autoreset_mode=AutoresetMode[mode.upper()])


class BitFlipEnv(gym.Env[Any, Any]):
    """Flip bits until they are those desired; the reward is 0 there and -1 everywhere else.

    Args:
        n: Number of bits, and of steps.
    """

    def __init__(self, n: int = 5) -> None:
        bits = gym.spaces.MultiBinary(n)
        self.observation_space = gym.spaces.Dict(
            {"observation": bits, "achieved_goal": bits, "desired_goal": bits}
        )
        self.action_space = gym.spaces.Discrete(n)
        self.n = n

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self.t = 0
        self.bits, self.goal = self.np_random.integers(0, 2, (2, self.n), np.int8)
        return self.observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        self.t += 1
        self.bits = self.bits.copy()
        self.bits[action] ^= 1
        reward = float(self.compute_reward(self.bits, self.goal, {}))
        return self.observation(), reward, reward == 0.0, self.t == self.n, {}

    def observation(self) -> Any:
        return {"observation": self.bits, "achieved_goal": self.bits, "desired_goal": self.goal}

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return np.where((achieved_goal == desired_goal).all(-1), 0.0, -1.0)


class ReachEnv(gym.Env[Any, Any]):
    """Move a point to a place on a square; the reward is 0 near it and -1 everywhere else."""

    def __init__(self) -> None:
        place = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.observation_space = gym.spaces.Dict(
            {"observation": place, "achieved_goal": place, "desired_goal": place}
        )
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self.t = 0
        self.place = np.zeros(2, np.float32)
        self.goal = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self.observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        self.t += 1
        self.place = np.clip(self.place + 0.2 * action, -1, 1).astype(np.float32)
        reward = float(self.compute_reward(self.place, self.goal, {}))
        return self.observation(), reward, False, self.t == 12, {}

    def observation(self) -> Any:
        return {"observation": self.place, "achieved_goal": self.place, "desired_goal": self.goal}

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        distance = np.linalg.norm(achieved_goal - desired_goal, axis=-1)
        return np.where(distance < 0.05, 0.0, -1.0)


class ResumablePush(gym.Env[Any, Any]):
    """A mass to be pushed to zero by two forces with bounds of their own; offers its state.

    Args:
        length: Steps of an episode, which is cut then.
    """

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gym.spaces.Box(
        np.array([0.0, -5.0], np.float32), np.array([1.0, 5.0], np.float32)
    )

    def __init__(self, length: int = 25) -> None:
        self.length = length
        self.place, self.speed, self.t = 0.0, 0.0, 0

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self.place, self.speed, self.t = float(self.np_random.uniform(-1, 1)), 0.0, 0
        return self.observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        assert self.action_space.contains(action), action
        self.t += 1
        self.speed += 0.1 * (float(action[0]) - 0.5) + 0.02 * float(action[1])
        self.place += 0.1 * self.speed + 0.001 * float(self.np_random.normal())
        over = abs(self.place) > 2
        return self.observation(), -abs(self.place), over, self.t >= self.length and not over, {}

    def observation(self) -> Any:
        return np.array([self.place, self.speed, self.t / self.length], np.float32)

    def get_state(self) -> dict[str, Any]:
        return {"place": self.place, "speed": self.speed, "t": self.t}

    def set_state(self, state: dict[str, Any]) -> None:
        self.place, self.speed, self.t = state["place"], state["speed"], int(state["t"])


class Catch(gym.Env[Any, Any]):
    """Catch a ball that falls down 10 rows and 5 columns, seen as an image; it pays 1 or -1."""

    observation_space = gym.spaces.Box(0, 255, (64, 64, 3), np.uint8)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self.row, self.column, self.paddle = 0, int(self.np_random.integers(5)), 2
        return self.image(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        self.row += 1
        self.paddle = min(max(self.paddle + int(action) - 1, 0), 4)
        over = self.row == 9
        paid = (1.0 if self.paddle == self.column else -1.0) if over else 0.0
        return self.image(), paid, over, False, {}

    def image(self) -> Any:
        """The ball in the first channel, the paddle in the second."""
        image = np.zeros((64, 64, 3), np.uint8)
        for channel, row, column in ((0, self.row, self.column), (1, 9, self.paddle)):
            image[6 * row : 6 * row + 6, 12 * column : 12 * column + 12, channel] = 255
        return image
