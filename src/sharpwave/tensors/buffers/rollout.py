"""On-policy rollouts as torch tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sharpwave.buffers.replay import check_count
from sharpwave.primitives import gae
from sharpwave.tensors.buffers.base import ResetStrategy, TensorBuffer
from sharpwave.tensors.buffers.fields import Fields, TensorField, extra_fields, field_tree
from sharpwave.tensors.buffers.rows import Table, TensorColumns
from sharpwave.tensors.buffers.statistics import StatsTracker
from sharpwave.tensors.buffers.transfers import HostBatches, to_device
from sharpwave.types import Nested

__all__ = ["RolloutBatch", "RolloutBuffer"]


_UNSEEN = ("reward", "done", "truncated", "final_value")
"""The fields that no batch has."""


@dataclass
class RolloutBatch:
    """Steps of a rollout: B of them, or sequences of n environments [T, n, ...].

    Attributes:
        observations: [B, *obs_shape], or a dict of such.
        actions: [B, *action_shape].
        returns: [B], advantages + values.
        advantages: [B].
        values: [B].
        log_probs: [B].
        extras: The extra fields by name.
        starts: [T, n] bool, where an observation is an episode's first; of sequences only.
    """

    observations: Nested
    actions: Nested
    returns: Tensor
    advantages: Tensor
    values: Tensor
    log_probs: Tensor
    extras: dict[str, Nested] = field(default_factory=dict, kw_only=True)
    starts: Tensor | None = field(default=None, kw_only=True)


class RolloutBuffer(TensorBuffer):
    """Rollout buffer: `buffer_size` steps of `num_envs` environments with advantages, as tensors.

    A step that ended its episode bootstraps from nothing, one that was truncated from the value of
    its last observation. Rows are time-major: step t of environment e is row t * num_envs + e.

    Args:
        buffer_size: Steps of a rollout.
        num_envs: Environments; every `add` brings one step of each.
        obs_shape: The shape of an observation, or a dict of shapes (nested, if need be).
        action_shape: The shape of an action, or a dict of shapes.
        stats_tracker: Is given rewards and dones of every `add`.
        obs_dtype: For dicts a dict, where float32 is the default, or one for all.
        action_dtype: Likewise.
        gamma: Discount factor γ.
        gae_lambda: λ of generalized advantage estimation.
        device: Device of batches.
        store_device: Storage device of steps, by default `device`. In host memory they are
            page-locked if `device` is CUDA, and the next batch is copied while one is learned from.
        reset_strategy: Strategy of adding to a full buffer.
        extra_fields: More fields by name: a dtype, a `(dtype, shape)` pair or a dict of these.
        seed: Random seed of the order of rows.
        generator: Draws instead, on the storage device.

    Example:
        >>> buffer = RolloutBuffer(4, num_envs=1, obs_shape=(), action_shape=())
        >>> for done in (False, True, False, False):
        ...     half = torch.tensor([0.5])
        ...     buffer.add(half, half, torch.ones(1), torch.tensor([done]), half, half)
        >>> buffer.compute_returns_and_advantages(torch.tensor([0.7]), torch.tensor([False]))
        >>> [round(a, 3) for a in next(buffer.get(4, shuffle=False)).advantages.tolist()]
        [1.465, 0.5, 2.117, 1.193]
    """

    STEP = (
        *("obs", "action", "reward", "done", "value", "log_prob", "truncated", "final_value"),
        "start",
    )

    def __init__(
        self,
        buffer_size: int,
        num_envs: int,
        obs_shape: Any,
        action_shape: Any,
        stats_tracker: StatsTracker | None = None,
        obs_dtype: Any = torch.float32,
        action_dtype: Any = torch.float32,
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
        device: torch.device | str = "cpu",
        store_device: torch.device | str | None = None,
        reset_strategy: ResetStrategy = ResetStrategy.ERROR,
        *,
        extra_fields: Mapping[str, Any] | None = None,
        seed: int = 0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(
            buffer_size,
            num_envs,
            stats_tracker,
            device=device,
            store_device=store_device,
            reset_strategy=reset_strategy,
            fields=_step_fields(obs_shape, obs_dtype, action_shape, action_dtype, extra_fields),
            seed=seed,
            generator=generator,
        )
        if self.reset_strategy is ResetStrategy.RECURRENT:
            raise ValueError("reset_strategy must be ERROR or AUTO: a rollout has a first step")
        self.gamma = _ratio("gamma", gamma)
        self.gae_lambda = _ratio("gae_lambda", gae_lambda)
        self._rows = TensorColumns(
            self.fields, self.buffer_size, self.num_envs, self.store_device, self.device
        )
        shape = (self.buffer_size, self.num_envs)
        self._advantages = torch.zeros(shape, device=self.store_device)
        self._returns = torch.zeros(shape, device=self.store_device)
        self._starts = torch.ones(num_envs, dtype=torch.bool, device=self.store_device)
        self._computed = 0
        self._seen = Fields({k: v for k, v in self.fields.trees.items() if k not in _UNSEEN})
        by_name = dict(zip(self.fields.names, self._rows.tensors, strict=True))
        numbers = [self._advantages.view(-1), self._returns.view(-1)]
        self._table = Table([*(by_name[name] for name in self._seen.names), *numbers])
        number = TensorField(torch.float32)
        self._batches = HostBatches([*self._seen.leaves, number, number], self.device)

    def add(
        self,
        obs: Nested,
        action: Nested,
        reward: Any,
        done: Any,
        value: Any,
        log_prob: Any,
        truncated: Any = None,
        final_value: Any = None,
        *,
        infos: Mapping[str, Any] | None = None,
        done_reasons: Sequence[str | None] | Mapping[str, Any] | None = None,
        **extras: Any,
    ) -> None:
        """Add one step of every environment.

        Args:
            obs: [N, *obs_shape], before the step. Tensors and arrays of any device.
            action: [N, *action_shape].
            reward: [N].
            done: [N], nonzero where the episode ended, for whatever reason.
            value: [N], of obs.
            log_prob: [N], of action.
            truncated: [N], nonzero where it ended by being cut; None is nowhere.
            final_value: [N], the value of the observation the step led to, read where it was
                truncated. Without it, `value` stands for it.
            infos: Metrics for the tracker, [N] each.
            done_reasons: For the tracker.
            **extras: The extra fields, and metrics of the tracker.

        Raises:
            ValueError, TypeError: For shapes and names that do not fit; nothing has changed then.
            RuntimeError: The buffer is full and its strategy is ERROR.
        """
        columns, metrics = self._split_names(extras)
        step = {
            "obs": obs,
            "action": action,
            "reward": reward,
            "done": done,
            "value": value,
            "log_prob": log_prob,
            "truncated": self._never if truncated is None else truncated,
            "final_value": value if final_value is None else final_value,
            "start": self._starts,
            **columns,
        }
        tensors = self.fields.flat(step, self.num_envs)
        slot = self._make_room()
        self._rows.write(slot, tensors)
        self._starts = tensors[self.fields.names.index("done")].clone()
        self._steps += 1
        self._computed = 0
        if self.stats_tracker is not None:
            self.stats_tracker.update(done, reward, {**metrics, **(infos or {})}, done_reasons)

    def begin(self, starts: Any) -> None:
        """Say where the next step is an episode's first; without this it is so everywhere.

        Args:
            starts: [N], nonzero where an episode starts. Flags are read when the step comes.
        """
        flags = torch.as_tensor(starts).reshape(-1)
        self._starts = flags if flags.dtype == torch.bool else flags != 0

    def was_filled(self, steps: int | None = None) -> None:
        """Say that steps were written without `add`, as a CUDA graph does that captured it.

        Args:
            steps: Number of them; None for a whole rollout with its advantages.
        """
        self._steps = self.buffer_size if steps is None else steps
        self._rows.was_filled(self._steps)
        self._computed = self._steps if steps is None else 0

    def stored(self, name: str) -> Tensor:
        """The steps [T, N, ...] of a field by its dotted name (`obs.image`); the memory itself."""
        self._rows.settle()
        row = self._rows.tensors[self.fields.names.index(name)]
        return row.view(self.buffer_size, self.num_envs, *row.shape[1:])[: len(self)]

    @property
    def advantages(self) -> Tensor:
        """[T, N], the memory itself."""
        return self._advantages[: len(self)]

    @property
    def returns(self) -> Tensor:
        """[T, N], the memory itself."""
        return self._returns[: len(self)]

    @torch.no_grad()
    def compute_returns_and_advantages(self, last_values: Any, last_dones: Any = None) -> None:
        """Fill in generalized advantage estimates and returns.

        With terminated = done and not truncated, and V' the value of what a step led to:

            δ_t = r_t + γ (1 - terminated_t) V'_t - V_t
            A_t = δ_t + γ λ (1 - done_t) A_{t+1},   returns = A + V

        Args:
            last_values: [N], the value of the observation after the last step.
            last_dones: [N], whether the last step ended its episode; what `add` was told counts as
                well, so None adds nothing.

        Raises:
            RuntimeError: There are no steps.
        """
        if len(self) == 0:
            raise RuntimeError("the buffer is empty: add() steps first")
        values, truncated = self.stored("value"), self.stored("truncated")
        last = to_device(torch.as_tensor(last_values).detach().reshape(-1), self.store_device)
        if last.shape != (self.num_envs,):
            raise ValueError(f"last_values must have shape ({self.num_envs},), got {last.shape}")
        dones = self.stored("done")
        if last_dones is not None:
            ended = torch.as_tensor(last_dones).reshape(-1) != 0
            if ended.shape != (self.num_envs,):
                raise ValueError(
                    f"last_dones must have shape ({self.num_envs},), got {tuple(ended.shape)}"
                )
            dones = dones.clone()
            dones[-1] |= to_device(ended, self.store_device)
        cut = dones & truncated
        out = (self.advantages, self.returns)
        options: dict[str, Any] = {"gamma": self.gamma, "lam": self.gae_lambda, "out": out}
        rewards, final, ends = self.stored("reward"), self.stored("final_value"), dones & ~truncated
        gae(
            *(rewards, values),
            bootstrap=last.to(values.dtype),
            final_values=final,
            terminated=ends,
            truncated=cut,
            **options,
        )
        self._computed = len(self)

    def get(
        self, batch_size: int | None = None, shuffle: bool = True, *, sequences: bool = False
    ) -> Iterator[RolloutBatch]:
        """Batches that visit every step of the rollout once.

        Args:
            batch_size: Steps of a batch, or environments of one with `sequences`; the last batch
                may be smaller. None takes all at once.
            shuffle: Visit in random order, a new one each time.
            sequences: Batches of whole sequences [T, n, ...] of some environments, for recurrent
                policies, with `starts`.

        Raises:
            RuntimeError: The advantages of the steps have not been computed.
        """
        total = self.num_envs if sequences else self.total_current_size
        size = total if batch_size is None else check_count("batch_size", batch_size, 1)
        if len(self) == 0 or self._computed != len(self):
            raise RuntimeError("call compute_returns_and_advantages() after the last add()")
        return self._prefetched(total, size, shuffle, sequences)

    @torch.no_grad()
    def _prefetched(
        self, total: int, size: int, shuffle: bool, sequences: bool
    ) -> Iterator[RolloutBatch]:
        """Batches, each of which is sent before the one before it is handed out."""
        where = self.store_device
        order = (
            torch.randperm(total, generator=self.generator, device=where)
            if shuffle
            else torch.arange(total, device=where)
        )
        ahead: RolloutBatch | None = None
        for begin in range(0, total, size):
            chosen = order[begin : begin + size]
            batch = self._sequences(chosen) if sequences else self._batch(chosen, (len(chosen),))
            if self.device == self.store_device:
                yield batch
                continue
            if ahead is not None:
                yield ahead
            ahead = batch
        if ahead is not None:
            yield ahead

    def _sequences(self, envs: Tensor) -> RolloutBatch:
        steps = torch.arange(len(self), device=envs.device)[:, None] * self.num_envs
        return self._batch((steps + envs).reshape(-1), (len(self), len(envs)))

    def _batch(self, rows: Tensor, lead: tuple[int, ...]) -> RolloutBatch:
        self._rows.settle()
        if self.store_device.type == "cpu" and self.device.type == "cuda":
            found = self._batches.bring((len(rows),), lambda out: self._table.gather(rows, out))
        else:
            found = [to_device(row, self.device) for row in self._table.gather(rows)]
        *found, advantages, returns = (one.view(*lead, *one.shape[1:]) for one in found)
        trees = self._seen.nested(found)
        starts = trees.pop("start")
        return RolloutBatch(
            observations=trees.pop("obs"),
            actions=trees.pop("action"),
            returns=returns,
            advantages=advantages,
            values=trees.pop("value"),
            log_probs=trees.pop("log_prob"),
            extras=trees,
            starts=starts if len(lead) == 2 else None,
        )

    def normalize_advantages(self) -> None:
        """Shift and scale advantages to mean 0 and standard deviation 1 (of the population)."""
        _normalize(self.advantages)

    def normalize_returns(self) -> None:
        """Shift and scale returns to mean 0 and standard deviation 1 (of the population)."""
        _normalize(self.returns)

    @property
    def explained_variance(self) -> float:
        """1 - Var[returns - values] / Var[returns], of all steps; nan for constant returns."""
        returns, values = self.returns, self.stored("value")
        variance = float(returns.var(unbiased=False))
        if variance == 0.0:
            return float("nan")
        return 1.0 - float((returns - values).var(unbiased=False)) / variance

    @property
    def advantages_mean(self) -> float:
        """Mean of the advantages."""
        return float(self.advantages.mean())

    @property
    def advantages_std(self) -> float:
        """Standard deviation of the advantages, 0 for one."""
        return _std(self.advantages)

    @property
    def returns_mean(self) -> float:
        """Mean of the returns."""
        return float(self.returns.mean())

    @property
    def returns_std(self) -> float:
        """Standard deviation of the returns, 0 for one."""
        return _std(self.returns)

    def reset(self, reset_stats: bool = False) -> None:
        """Forget all steps, and with `reset_stats` also the statistics.

        Episodes go on over a reset: the next step is an episode's first only where the last one
        added ended one.
        """
        super().reset(reset_stats)

    def _clear(self) -> None:
        self._rows.clear()
        self._computed = 0

    def state_dict(self) -> dict[str, Any]:
        """The steps, what was computed of them and the generator, as tensors."""
        self._rows.settle()
        rows = [column[: self.total_current_size].clone() for column in self._rows.tensors]
        return {
            **self._state(rows, self._steps),
            "advantages": self.advantages.clone(),
            "returns": self.returns.clone(),
            "starts": self._starts.clone(),
            "computed": self._computed,
        }

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`, also from that of a buffer on another device."""
        columns, steps = self._checked_state(state)
        self._rows.restore(columns, 0)
        self._steps = steps
        for name, mine in (("advantages", self.advantages), ("returns", self.returns)):
            mine.copy_(torch.as_tensor(state[name]))
        self._starts = torch.as_tensor(state["starts"]).to(self.store_device)
        self._computed = int(state["computed"])
        self._load_generator(state["generator"])

    def _options(self) -> dict[str, Any]:
        return {**super()._options(), "gamma": self.gamma, "gae_lambda": self.gae_lambda}


def _step_fields(
    obs_shape: Any, obs_dtype: Any, action_shape: Any, action_dtype: Any, extra: Any
) -> Fields:
    number, flag = TensorField(torch.float32), TensorField(torch.bool)
    return Fields(
        {
            "obs": field_tree("obs", obs_shape, obs_dtype),
            "action": field_tree("action", action_shape, action_dtype),
            "reward": number,
            "done": flag,
            "value": number,
            "log_prob": number,
            "truncated": flag,
            "final_value": number,
            "start": flag,
            **extra_fields(extra, (*RolloutBuffer.STEP, "infos", "done_reasons")),
        }
    )


def _ratio(name: str, value: float) -> float:
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} must be from 0 to 1, got {value}")
    return float(value)


def _normalize(values: Tensor) -> None:
    values.sub_(values.mean()).div_(values.std(unbiased=False) + 1e-6)


def _std(values: Tensor) -> float:
    return float(values.std()) if values.numel() > 1 else 0.0
