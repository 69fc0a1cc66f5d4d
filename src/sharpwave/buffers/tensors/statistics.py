"""Statistics of the episodes that N environments finish, kept on the device they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sharpwave.buffers.replay import check_count
from sharpwave.buffers.tensors.copies import to_device
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
        max_ep_info_buffer: How many of the last episodes count.
        extra_metrics_keys: More metrics to add up over an episode, found in `infos`.
        done_reason_keys: Reasons for an end whose rates are told; others are ignored.
        device: Where the sums are kept; None takes that of the first rewards.

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
        self._device: torch.device | None = None
        if device is not None:
            self._allocate(torch.device(device))

    def _allocate(self, device: torch.device) -> None:
        self._device = device
        n_rows = len(self._metrics) + len(self.done_reason_keys)
        floats: dict[str, Any] = {"dtype": torch.float64, "device": device}
        self._running = torch.zeros(len(self._metrics), self.num_envs, **floats)
        # As many episodes may end at once as there are environments. The last column takes what
        # environments write whose episode goes on.
        self._places = max(self.max_ep_info_buffer, self.num_envs)
        self._ring = torch.zeros(n_rows, self._places + 1, **floats)
        self._count = torch.zeros((), dtype=torch.int64, device=device)
        self._rows = self._running.unbind(0)
        self._no_reasons = torch.zeros(len(self.done_reason_keys), self.num_envs, **floats)

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
        if self._device is None:
            self._allocate(reward.device)
        reward = self._here(reward)
        if reward.ndim == 2:
            reward = reward.sum(1)
        infos = infos or {}
        metrics = {
            name: self._metric(infos[name]) for name in self.extra_metrics_keys if name in infos
        }
        ended = self._here(dones).reshape(-1)
        if ended.dtype != torch.bool:
            ended = ended != 0
        for name, value in {"rewards": reward, "dones": ended, **metrics}.items():
            if value.shape != (self.num_envs,):
                raise ValueError(
                    f"{name} must have shape ({self.num_envs},), got {tuple(value.shape)}"
                )
        reasons = self._reason_rows(done_reasons)
        self._rows[0].add_(reward)
        self._rows[1].add_(1)
        for i, name in enumerate(self.extra_metrics_keys):
            if name in metrics:
                self._rows[2 + i].add_(metrics[name])
        if self._running.device.type == "cpu" and not ended.any():
            return
        self._close(ended, reasons)

    def _close(self, ended: Tensor, reasons: Tensor | None) -> None:
        """Write the sums of the environments whose episode ended to the ring."""
        order = ended.cumsum(0)
        slots = torch.where(ended, (order + self._count) % self._places, self._places)
        sums = self._running
        if self.done_reason_keys:
            sums = torch.cat([sums, self._no_reasons if reasons is None else reasons])
        self._ring.index_copy_(1, slots, sums)
        self._running.masked_fill_(ended, 0)
        self._count += order[-1]

    def _metric(self, value: Any) -> Tensor:
        tensor = self._here(value)
        return tensor.expand(self.num_envs) if tensor.ndim == 0 else tensor.reshape(-1)

    def _here(self, value: Any) -> Tensor:
        tensor = torch.as_tensor(value).detach()
        assert self._device is not None
        return to_device(tensor, self._device)

    def _reason_rows(self, given: Any) -> Tensor | None:
        """[reasons, N], 1 where that was the reason."""
        keys = self.done_reason_keys
        if given is None or not keys or len(given) == 0:
            return None
        if isinstance(given, Mapping):
            none = self._rows[0].new_zeros(self.num_envs)
            rows = [self._here(given[key]).reshape(-1) if key in given else none for key in keys]
            return torch.stack([row.to(none) for row in rows])
        if len(given) != self.num_envs:
            raise ValueError(f"done_reasons must have length {self.num_envs}, got {len(given)}")
        table = [[float(reason == key) for reason in given] for key in keys]
        return self._here(torch.tensor(table, dtype=torch.float64))

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
        n_rows = len(self._metrics) + len(self.done_reason_keys)
        if self._device is None:
            return np.zeros((n_rows, 0))
        count = self.episode_count
        last = np.arange(max(count - self.max_ep_info_buffer, 0), count)
        ring: Array = self._ring.cpu().numpy()
        return ring[:, (last + 1) % self._places]  # the first one of all is at place 1

    @property
    def episode_count(self) -> int:
        """All episodes finished so far."""
        return 0 if self._device is None else int(self._count)

    @property
    def trajectory_num(self) -> int:
        """The episodes that the statistics are over."""
        return min(self.episode_count, self.max_ep_info_buffer)

    def reset(self) -> None:
        """Forget all episodes, those in flight too."""
        if self._device is not None:
            self._allocate(self._device)

    def restart(self) -> None:
        """Forget the episodes in flight: the environments were reset."""
        if self._device is not None:
            self._running.zero_()

    def state_dict(self) -> dict[str, Any]:
        """Everything, as tensors: sums over episodes in flight, the last episodes, and a count."""
        if self._device is None:
            return {}
        return {
            "running": self._running.clone(),
            "episodes": torch.from_numpy(self._episodes()),
            "count": self._count.clone(),
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
        if self._device is None:
            self._allocate(tensors["running"].device)
        episodes = tensors["episodes"][:, -self.max_ep_info_buffer :]
        count, kept = int(tensors["count"]), episodes.shape[1]
        expected = {"running": self._running.shape, "episodes": (len(self._ring), kept)}
        for name, found in {"running": tensors["running"], "episodes": episodes}.items():
            if tuple(found.shape) != tuple(expected[name]):
                raise ValueError(
                    f"{name} must have shape {tuple(expected[name])}, got {tuple(found.shape)}"
                )
        self._running.copy_(tensors["running"])
        places = torch.arange(count - kept + 1, count + 1) % self._places
        self._ring[:, places.to(self._ring.device)] = episodes.to(self._ring)
        self._count.fill_(count)


def _names(argument: str, given: Sequence[str] | None) -> tuple[str, ...]:
    if isinstance(given, str):
        raise TypeError(f"{argument} must be a list of names, got {given!r}")
    return tuple(given or ())
