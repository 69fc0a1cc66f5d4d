"""Learners that store columns of their own with every step, and look for them in every batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from sharpwave.loops.off_policy import OffPolicyLoop

__all__ = ["COLUMNS", "REPLAY", "ROLLOUT", "Listed", "remembering"]

ROLLOUT: dict[str, Any] = {"n_envs": 4, "n_steps": 16, "hidden": (8,), "seed": 3}
REPLAY: dict[str, Any] = {
    "n_envs": 3,
    "train_freq": 2,
    "learning_starts": 30,
    "batch_size": 16,
    "hidden": (8, 8),
    "buffer_size": 150,  # so that steps are overwritten
    "log_interval": 24,
    "seed": 3,
}
COLUMNS: dict[str, Any] = {
    "twice": ("float32", (1,)),
    "third": ("float64", (2,)),
    "row": "int64",
    "acted": "bool",
}


def seen(obs: Any) -> torch.Tensor:
    """The part of observations that nothing relabels."""
    part: torch.Tensor = obs["observation"] if isinstance(obs, dict) else obs
    return part.float()


class Remembers:
    """Gives columns that can be made again, and looks for them in every batch.

    Attributes:
        lived: The observations that it acted on, by the number of their row.
        checked: Rows that were looked at.
        blank: How many of them it had not acted in.
    """

    config: Any

    def build(self) -> None:
        super().build()  # type: ignore[misc]
        self.lived: list[torch.Tensor] = []
        self.numbers = torch.zeros(0, dtype=torch.int64)
        self.checked = self.blank = 0

    def extra_columns(self) -> dict[str, Any]:
        return COLUMNS

    def act(self, obs: Any, **options: Any) -> Any:
        acted, now = super().act(obs, **options), seen(obs)  # type: ignore[misc]
        n, count = len(now), sum(map(len, self.lived))
        self.lived.append(now.clone())
        if len(self.numbers) != n:
            self.numbers = torch.zeros(n, dtype=torch.int64)
        extra = {
            "twice": 2 * now[:, :1],
            "third": now[:, :2].double() / 3,
            "row": torch.arange(count, count + n, out=self.numbers),  # always the same memory
            "acted": torch.ones(n, dtype=torch.bool),
        }
        return acted._replace(extra=extra)

    def check(self, batch: Any) -> None:
        extra, obs = batch.extra, seen(batch.obs)
        assert extra.keys() == COLUMNS.keys()
        is_step = getattr(batch, "valid", None)
        if is_step is None:
            is_step = torch.ones_like(extra["acted"])
        acted = extra["acted"] & is_step
        rows = torch.cat([obs.flatten(0, -2)[:0], *self.lived])[extra["row"][acted]]
        assert torch.equal(extra["twice"][acted], 2 * rows[:, :1])
        assert torch.equal(extra["third"][acted], rows[:, :2].double() / 3)
        if not (self.config.normalize_obs and hasattr(batch, "next_obs")):  # by later statistics
            assert torch.equal(obs[acted], rows)
        for name, column in extra.items():
            assert not column[~extra["acted"]].any(), name
        self.checked += int(acted.sum())
        self.blank += int((~extra["acted"] & is_step).sum())

    def update(self, batch: Any) -> Any:
        self.check(batch)
        return super().update(batch)  # type: ignore[misc]

    def extra_state(self) -> dict[str, Any]:
        lived = {"lived": torch.cat(self.lived)} if self.lived else {}
        return {**super().extra_state(), **lived}  # type: ignore[misc]

    def load_extra_state(self, state: dict[str, Any]) -> None:
        super().load_extra_state(state)  # type: ignore[misc]
        if "lived" in state:
            self.lived = [torch.as_tensor(state["lived"])]


class RemembersRollouts(Remembers):
    """Looks at minibatches too."""

    def loss(self, batch: Any) -> Any:
        self.check(batch)
        return super().loss(batch)  # type: ignore[misc]


def remembering(cls: Any) -> Any:
    """The learner of an agent's class with these columns."""
    mixin = Remembers if cls.Loop is OffPolicyLoop else RemembersRollouts
    return type(f"Remembering{cls.__name__}", (mixin, cls.Learner), {})


class Listed:
    """Steps in a list, with whatever columns they have."""

    def __init__(self) -> None:
        self.steps: list[dict[str, Any]] = []

    def push(self, *step: Any, **columns: Any) -> None:
        names = ("obs", "actions", "rewards", "terminated", "truncated", "next_obs")
        self.steps.append({**dict(zip(names, step, strict=True)), **columns})

    def __len__(self) -> int:
        return len(self.steps)

    def sample(self, batch_size: int, seed: int) -> dict[str, Any]:
        rows = np.random.default_rng(seed).integers(0, len(self.steps), batch_size)
        names = self.steps[0]
        return {name: np.array([self.steps[i][name] for i in rows]) for name in names}
