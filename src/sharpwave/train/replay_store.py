"""The buffer of a run: which one, what goes in, and how steps come out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sharpwave.buffers import MmapReplayBuffer, PrioritizedReplayBuffer, ReplayBuffer, snapshot
from sharpwave.buffers.schema import Schema
from sharpwave.buffers.views import Hindsight, NStep, View
from sharpwave.collect.off_policy import MASK, OBSERVATION, Transitions

if TYPE_CHECKING:
    from sharpwave.train.off_policy import OffPolicyConfig

FIELDS = ("obs", "next_obs", "actions", "rewards")
HOT_SHARE = 0.1
"""Of a buffer on disk, the share of the newest steps that stays in memory."""


class ReplayStore:
    """Makes the buffer that a configuration asks for, or takes the one that was given.

    Args:
        env: The vector environment.
        config: Of the algorithm.
        masks: The length of an action mask, where actions are masked.
        given: A buffer in place of the configuration's.
        seed: Of the draws.
    """

    def __init__(
        self, env: Any, config: OffPolicyConfig, *, masks: int | None, given: Any, seed: int
    ) -> None:
        self.config = config
        self.is_given = given is not None
        self.buffer: Any = given if self.is_given else _make(env, config, masks, seed)
        self.is_ours = isinstance(self.buffer, ReplayBuffer)
        self.has_priorities = hasattr(self.buffer, "set_beta") and self._priorities_on()
        self.capacity = int(getattr(self.buffer, "capacity", config.buffer_size))

    def _priorities_on(self) -> bool:
        options = getattr(self.buffer, "_options", None)
        return options is None or options["priorities"] is not None

    def view(self, env: Any) -> View | None:
        """What a drawn step becomes; None where the buffer is not ours to ask."""
        config = self.config
        if config.her_goals:
            (reward_fn, *_) = env.get_attr("unwrapped")
            return Hindsight(reward_fn.compute_reward, config.her_goals, config.her_strategy)
        return NStep(config.n_step, config.gamma, fields=FIELDS) if self.is_ours else None

    def write(self, rows: Transitions) -> None:
        """Put one step of the environments into the buffer."""
        obs, actions, rewards, terminated, truncated, next_obs, streams = rows
        if not self.is_ours:
            for i in range(len(rewards)):
                self.buffer.push(
                    obs[i],
                    actions[i],
                    float(rewards[i]),
                    bool(terminated[i]),
                    bool(truncated[i]),
                    next_obs[i],
                )
            return
        named = {} if streams is None or self.buffer.n_envs is None else {"streams": streams}
        self.buffer.push_batch(
            obs=obs,
            next_obs=next_obs,
            actions=actions,
            rewards=rewards,
            terminated=terminated,
            truncated=truncated,
            **named,
        )

    def follow(self, progress_remaining: float) -> None:
        """Let the weights of prioritised draws correct more and more."""
        if self.has_priorities:
            start = self.config.beta_start
            self.buffer.set_beta(1.0 - (1.0 - start) * progress_remaining)

    def state_dict(self) -> dict[str, Any] | None:
        """The buffer, where the configuration asks for it and it does not lie on disk itself."""
        if not self.config.save_buffer or not self.is_ours:
            return None
        if isinstance(self.buffer, MmapReplayBuffer):
            self.buffer.flush()
            return {"pushed": self.buffer.stats()["pushed"]}
        state = snapshot.to_memory(self.buffer)
        pieces = state.pop("pieces")
        arrays = {name: np.frombuffer(b"".join(parts), np.uint8) for name, parts in pieces.items()}
        sizes = {name: [len(part) for part in parts] for name, parts in pieces.items()}
        return {"description": state, "arrays": arrays, "sizes": sizes}

    def load_state_dict(self, state: dict[str, Any] | None) -> None:
        """Continue from `state_dict`."""
        if state is None or "arrays" not in state or self.is_given:
            return
        pieces = {
            name: _split(state["arrays"][name], sizes) for name, sizes in state["sizes"].items()
        }
        self.buffer = snapshot.rebuild(
            type(self.buffer), {**state["description"], "pieces": pieces}
        )


def _split(array: Any, sizes: list[int]) -> list[bytes]:
    ends = np.cumsum(sizes)
    return [array[end - size : end].tobytes() for size, end in zip(sizes, ends, strict=True)]


def _make(env: Any, config: OffPolicyConfig, masks: int | None, seed: int) -> ReplayBuffer:
    schema = Schema.from_env(env, stack=config.frame_stack)
    if masks is not None:
        obs = {OBSERVATION: schema.fields["obs"], MASK: ("bool", (masks,))}
        schema = Schema({**schema.fields, "obs": obs, "next_obs": obs})
    options: dict[str, Any] = {"fields": schema, "n_envs": env.num_envs, "seed": seed}
    size = config.buffer_size
    priorities: dict[str, Any] = {"alpha": config.alpha, "beta": config.beta_start}
    if config.buffer != "memory":
        folder = Path(config.buffer)
        if (folder / "header.json").exists():
            return MmapReplayBuffer.open(folder)
        hot = max(1, int(size * HOT_SHARE))
        wanted = priorities if config.prioritized else False
        return MmapReplayBuffer(hot, size, cold_path=folder, prioritized=wanted, **options)
    if config.prioritized:
        return PrioritizedReplayBuffer(size, **priorities, **options)
    return ReplayBuffer(size, **options)
