"""Statistics of the episodes that N environments finish, kept on the device they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sharpwave.buffers.replay import check_count
from sharpwave.primitives.episodes.tensors import EpisodeSums
from sharpwave.tensors.buffers.transfers import to_device
from sharpwave.types import Array

__all__ = ["Statistics", "StatsTracker"]


class Statistics(dict[str, float]):
    """Means by name.

    Attributes:
        detailed: `<name>_mean`, `_std`, `_min` and `_max` of every mean; the standard deviation is
            that of the population, 0 for one episode.
    """

    def __init__(self, means: Mapping[str, float], detailed: Mapping[str, float]) -> None:
        super().__init__(means)
        self.detailed = dict(detailed)


class StatsTracker:
    """Returns, lengths, metrics and ends of the last episodes of N environments.

    `update` adds a step of every environment. It works on tensors of any device and never waits for
    it: where an episode ended, the sums over it go into a ring of the last `max_ep_info_buffer`
    episodes. `get_statistics` reads the ring, and is the only call that waits.

    Args:
        num_envs: Number of environments.
        category: The first part of every name.
        max_ep_info_buffer: Number of the last episodes that count.
        extra_metrics_keys: More metrics to add up over an episode, found in `infos`.
        done_reason_keys: Reasons for an end whose rates are told; others are ignored.
        device: Device of the sums; None takes that of the first rewards.

    Example:
        >>> tracker = StatsTracker(num_envs=2, done_reason_keys=["fell"])
        >>> tracker.update(torch.tensor([False, True]), torch.tensor([1.0, 2.0]))
        >>> tracker.update(torch.tensor([True, False]), torch.tensor([3.0, 2.0]),
        ...                done_reasons=["fell", None])
        >>> tracker.get_statistics()
        {'Rollout/rewards': 3.0, 'Rollout/lengths': 1.5, 'Rollout/Step/rewards': 2.0, \
'Rollout/Done/fell_rate': 0.5}
        >>> tracker.get_statistics().detailed["Rollout/rewards_max"]
        4.0
    """

    def __init__(
        self,
        num_envs: int,
        category: str = "Rollout",
        max_ep_info_buffer: int = 100,
        extra_metrics_keys: Sequence[str] | None = None,
        done_reason_keys: Sequence[str] | None = None,
        *,
        device: torch.device | str | None = None,
    ) -> None:
        self.num_envs = check_count("num_envs", num_envs, 1)
        self.category = category
        self.max_ep_info_buffer = check_count("max_ep_info_buffer", max_ep_info_buffer, 1)
        self.extra_metrics_keys = _names("extra_metrics_keys", extra_metrics_keys)
        self.done_reason_keys = _names("done_reason_keys", done_reason_keys)
        self._metrics = ("rewards", "lengths", *self.extra_metrics_keys)
        if len(set(self._metrics)) != len(self._metrics):
            raise ValueError(f"extra_metrics_keys must be new names, got {extra_metrics_keys}")
        self._sums: EpisodeSums | None = None
        if device is not None:
            self._sums = self._make_sums(torch.device(device))

    def _make_sums(self, device: torch.device) -> EpisodeSums:
        self._one = torch.ones(self.num_envs, device=device)
        sizes = (self.num_envs, len(self._metrics), len(self.done_reason_keys))
        return EpisodeSums(*sizes, self.max_ep_info_buffer, device)

    def update(
        self,
        dones: Any,
        rewards: Any,
        infos: Mapping[str, Any] | None = None,
        done_reasons: Sequence[str | None] | Mapping[str, Any] | None = None,
    ) -> None:
        """Add one step of every environment.

        Args:
            dones: [N], nonzero where the step was an episode's last.
            rewards: [N], or [N, d] to be added up.
            infos: The extra metrics by name, [N] or one number for all; other names are ignored.
            done_reasons: For each environment the reason or None, or a flag tensor [N] by reason.
        """
        reward = torch.as_tensor(rewards).detach()
        if self._sums is None:
            self._sums = self._make_sums(reward.device)
        here = self._sums.device
        reward = to_device(reward, here)
        if reward.ndim == 2:
            reward = reward.sum(1)
        infos = infos or {}
        metrics = {
            name: self._metric(infos[name], here)
            for name in self.extra_metrics_keys
            if name in infos
        }
        ended = _tensor(dones, here).reshape(-1)
        if ended.dtype != torch.bool:
            ended = ended != 0
        for name, value in {"rewards": reward, "dones": ended, **metrics}.items():
            if value.shape != (self.num_envs,):
                raise ValueError(
                    f"{name} must have shape ({self.num_envs},), got {tuple(value.shape)}"
                )
        gains = (reward, self._one, *(metrics.get(name) for name in self.extra_metrics_keys))
        self._sums.add(gains, ended, self._reason_rows(done_reasons, here))

    def _metric(self, value: Any, here: torch.device) -> Tensor:
        tensor = _tensor(value, here)
        return tensor.expand(self.num_envs) if tensor.ndim == 0 else tensor.reshape(-1)

    def _reason_rows(self, given: Any, here: torch.device) -> Tensor | None:
        """[reasons, N], 1 where that was the reason."""
        keys = self.done_reason_keys
        if given is None or not keys or len(given) == 0:
            return None
        if isinstance(given, Mapping):
            none = torch.zeros_like(self._one)
            rows = [_tensor(given[key], here).reshape(-1) if key in given else none for key in keys]
            return torch.stack([row.to(none) for row in rows])
        if len(given) != self.num_envs:
            raise ValueError(f"done_reasons must have length {self.num_envs}, got {len(given)}")
        table = [[float(reason == key) for reason in given] for key in keys]
        return _tensor(torch.tensor(table), here)

    def get_statistics(self) -> Statistics:
        """Means over the last episodes, with more in `.detailed`; empty before the first end.

        Returns:
            `<category>/rewards` and `/lengths` of whole episodes, `/<metric>` for each extra one,
            `/Step/<metric>` per step, and `/Done/<reason>_rate`, the share of the episodes that
            ended so.
        """
        values = self.get_raw_values()
        means: dict[str, float] = {}
        detailed: dict[str, float] = {}
        for name, column in values.items():
            means[name] = float(column.mean())
            for what in ("mean", "std", "min", "max"):
                detailed[f"{name}_{what}"] = float(getattr(column, what)())
        for key, rate in self._rates().items():
            means[key] = detailed[key] = rate
        return Statistics(means, detailed)

    def get_raw_values(self) -> dict[str, Array]:
        """The values of the last episodes by name, oldest first; empty before the first end."""
        episodes = self._episodes()
        if episodes.shape[1] == 0:
            return {}
        found = {f"{self.category}/{name}": episodes[i] for i, name in enumerate(self._metrics)}
        for i, name in enumerate(self._metrics):
            if name != "lengths":
                found[f"{self.category}/Step/{name}"] = episodes[i] / episodes[1]
        return found

    def reason(self, key: str) -> Array:
        """Of the last episodes, oldest first, 1 where one ended for this reason."""
        row: Array = self._episodes()[len(self._metrics) + self.done_reason_keys.index(key)]
        return row

    def _rates(self) -> dict[str, float]:
        flags = self._episodes()[len(self._metrics) :]
        if flags.shape[1] == 0:
            return {}
        return {
            f"{self.category}/Done/{key}_rate": float(row.mean())
            for key, row in zip(self.done_reason_keys, flags, strict=True)
        }

    def _episodes(self) -> Array:
        """[metrics and reasons, episodes], oldest first."""
        if self._sums is None:
            return np.zeros((len(self._metrics) + len(self.done_reason_keys), 0))
        found: Array = self._sums.last(self.max_ep_info_buffer).numpy()
        return found

    @property
    def episode_count(self) -> int:
        """All episodes finished so far."""
        return 0 if self._sums is None else int(self._sums.count)

    @property
    def trajectory_num(self) -> int:
        """The episodes that the statistics are over."""
        return min(self.episode_count, self.max_ep_info_buffer)

    def reset(self) -> None:
        """Forget all episodes, those in flight too."""
        if self._sums is not None:
            self._sums = self._make_sums(self._sums.device)

    def restart(self) -> None:
        """Forget the episodes in flight: the environments were reset."""
        if self._sums is not None:
            self._sums.running.zero_()

    def state_dict(self) -> dict[str, Any]:
        """Everything, as tensors: sums over episodes in flight, the last episodes, and a count."""
        if self._sums is None:
            return {}
        return {
            "running": self._sums.running.clone(),
            "episodes": torch.from_numpy(self._episodes()),
            "count": self._sums.count.clone(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`.

        Raises:
            ValueError: It is that of a tracker with other environments, metrics or reasons.
        """
        if not state:
            self.reset()
            return
        tensors = {name: torch.as_tensor(value) for name, value in state.items()}
        if self._sums is None:
            self._sums = self._make_sums(tensors["running"].device)
        episodes = tensors["episodes"][:, -self.max_ep_info_buffer :]
        n_rows = len(self._metrics) + len(self.done_reason_keys)
        expected = {"running": self._sums.running.shape, "episodes": (n_rows, episodes.shape[1])}
        for name, found in {"running": tensors["running"], "episodes": episodes}.items():
            if tuple(found.shape) != tuple(expected[name]):
                raise ValueError(
                    f"{name} must have shape {tuple(expected[name])}, got {tuple(found.shape)}"
                )
        self._sums.restore(tensors["running"], episodes, int(tensors["count"]))


def _tensor(value: Any, device: torch.device) -> Tensor:
    return to_device(torch.as_tensor(value).detach(), device)


def _names(argument: str, given: Sequence[str] | None) -> tuple[str, ...]:
    if isinstance(given, str):
        raise TypeError(f"{argument} must be a list of names, got {given!r}")
    return tuple(given or ())
