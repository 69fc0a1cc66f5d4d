"""A fixed dataset for offline reinforcement learning."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sharpwave.buffers.replay import ReplayBuffer, check_count
from sharpwave.buffers.schema import Field
from sharpwave.buffers.selectors import draw_seed
from sharpwave.buffers.views import Sequence, Transition
from sharpwave.core.flags import flag
from sharpwave.types import Array, BatchDict, Ids

_STEP = Transition(("obs", "next_obs", "actions", "rewards", "terminated", "truncated"))
_TRAJECTORY = ("obs", "actions", "rewards", "returns_to_go", "timesteps")
MADE = ("next_actions", "returns_to_go", "timesteps")
"""Columns that follow from the others."""
_CHUNK = 65536


class _Rows(ReplayBuffer):
    """Transition rows in order, from which more may be drawn than there are."""

    __slots__ = ()

    def __init__(self, capacity: int, fields: dict[str, Field], seed: int) -> None:
        self._make(
            capacity,
            None,
            None,
            fields=fields,
            n_envs=1,
            seed=seed,
            stream_rows=False,
            oversample=True,
        )


STD_FLOOR = 1e-3


def obs_divisor(deviation: Array) -> Array:
    """The divisor that normalizes the observations of a dataset.

    A column that is constant in the dataset need not be at play: with much less than 1e-3 added,
    a small change of it would drown all others.

    Args:
        deviation: The standard deviation of each dimension.
    """
    return (deviation + STD_FLOOR).astype(np.float32)


class OfflineDatasetBuffer:
    """Offline dataset: a read-only buffer of transitions in episodes.

    Steps are in order of time; an episode ends where `terminated` or `truncated` is set, and at the
    end of the data.

    Args:
        obs: Observations, [N, ...] or flat [N * obs_dim].
        next_obs: The observations after the steps, like `obs`.
        actions: [N, ...] or flat.
        rewards: [N].
        terminated: [N], any dtype.
        truncated: [N], any dtype.
        normalize: Subtract the mean of the observations and divide by their standard deviation plus
            1e-3, per dimension, in everything that is sampled. `obs_mean` and `obs_std` hold the
            numbers.
        extra: More columns by name, [N, ...] each, which keep their dtype; `rows` has them.
        seed: Random seed of draws that are not given one.

    Attributes:
        obs_mean: Mean that is subtracted from observations; 0 without `normalize`.
        obs_std: Standard deviation that they are divided by; 1 without `normalize`.
        has_whole_actions: True if the actions were integers, as those of discrete spaces are.

    Raises:
        TypeError, ValueError: For missing, empty or mismatched arrays, by name.

    Example:
        >>> import numpy as np
        >>> done = np.arange(20) % 10 == 9
        >>> data = OfflineDatasetBuffer(np.zeros((20, 3)), np.zeros((20, 3)), np.zeros((20, 1)),
        ...                             np.ones(20), done, np.zeros(20))
        >>> data.sample_trajectories(2, seq_len=4, seed=0)["returns_to_go"].shape
        (2, 4)
    """

    def __init__(
        self,
        obs: npt.ArrayLike,
        next_obs: npt.ArrayLike,
        actions: npt.ArrayLike,
        rewards: npt.ArrayLike,
        terminated: npt.ArrayLike,
        truncated: npt.ArrayLike,
        normalize: bool = False,
        *,
        extra: Mapping[str, npt.ArrayLike] | None = None,
        seed: int = 0,
    ) -> None:
        reward_array = _column("rewards", rewards, np.float64)
        n = len(reward_array)
        if n == 0:
            raise ValueError("rewards must hold at least one step, got 0")
        terminated_array = _column("terminated", terminated, np.bool_, n)
        truncated_array = _column("truncated", truncated, np.bool_, n)
        observations = _rows("obs", obs, n)
        successors = _rows("next_obs", next_obs, n)
        if successors.shape != observations.shape:
            raise ValueError(
                f"next_obs must have shape {observations.shape} like obs, got {successors.shape}"
            )
        action_rows = _rows("actions", actions, n)
        self.has_whole_actions = action_rows.dtype.kind in "biu"
        more = {name: _rows(name, values, n, flat=False) for name, values in (extra or {}).items()}
        self._extra = tuple(more)

        ends = terminated_array | truncated_array
        ends[-1] = True
        self._last = np.flatnonzero(ends)
        self._first = np.concatenate([[0], self._last[:-1] + 1])
        lengths = self._last - self._first + 1
        episode = np.repeat(np.arange(len(lengths)), lengths)
        timesteps = np.arange(n) - self._first[episode]
        returns_to_go = np.empty(n)
        for first, last in zip(self._first, self._last, strict=True):
            returns_to_go[first : last + 1] = np.cumsum(reward_array[first : last + 1][::-1])[::-1]
        self._returns = np.add.reduceat(reward_array, self._first)
        following = np.arange(1, n + 1)
        following[self._last] = self._last

        self.obs_mean: Array = np.zeros(observations.shape[1:], np.float32)
        self.obs_std: Array = np.ones(observations.shape[1:], np.float32)
        self.normalize = flag("normalize", normalize)
        if self.normalize:
            self.obs_mean = observations.mean(axis=0, dtype=np.float64).astype(np.float32)
            self.obs_std = obs_divisor(observations.std(axis=0, dtype=np.float64))

        obs_field = Field("float32", observations.shape[1:])
        fields = {
            "obs": obs_field,
            "next_obs": obs_field,
            "action": Field("float32", action_rows.shape[1:]),
            "reward": Field("float32"),
            "terminated": Field("float32"),
            "truncated": Field("float32"),
            "next_actions": Field("float32", action_rows.shape[1:]),
            "returns_to_go": Field("float32"),
            "timesteps": Field("uint32"),
        }
        for name in more.keys() & fields.keys():
            raise ValueError(f"extra must not use the name {name!r}, which the dataset has")
        fields |= {name: Field(values.dtype, values.shape[1:]) for name, values in more.items()}
        self._rows = _Rows(n, fields, seed)
        for begin in range(0, n, _CHUNK):
            part = slice(begin, begin + _CHUNK)
            self._rows.push_batch(
                obs=self._normalized(observations[part]),
                next_obs=self._normalized(successors[part]),
                actions=action_rows[part],
                rewards=reward_array[part],
                terminated=terminated_array[part],
                truncated=truncated_array[part],
                next_actions=action_rows[following[part]],
                returns_to_go=returns_to_go[part],
                timesteps=timesteps[part],
                **{name: values[part] for name, values in more.items()},
            )

    @classmethod
    def from_episodes(
        cls,
        episodes: Any,
        normalize: bool = False,
        *,
        obs: str | None = None,
        action: str | None = None,
        aborted: bool = False,
        extra: Collection[str] = (),
        seed: int = 0,
    ) -> OfflineDatasetBuffer:
        """The steps of episodes on disk.

        `next_obs` is the observation of the following step, and after the last step of an episode
        the meta field `final_obs`. Where there is none, a last step that terminated keeps its own
        observation in its place, which nothing bootstraps from; any other last step is left out,
        and the one before it is the truncated end. An episode that ends without a flag is
        truncated.

        Args:
            episodes: An `EpisodeBuffer`, or its folder.
            normalize: As for the constructor.
            obs: The field of the observations, where there are several: "obs.state".
            action: The field of the actions likewise.
            aborted: Take episodes, too, that were cut before their end.
            extra: Names of further fields of steps to take.
            seed: Random seed of draws that are not given one.

        Raises:
            ValueError: There are no steps, or no field or several fields of a role.
        """
        from sharpwave.episodes.transitions import transitions_of

        arrays = transitions_of(episodes, obs=obs, action=action, aborted=aborted, extra=extra)
        more = {name: arrays.pop(name) for name in extra}
        return cls(**arrays, normalize=normalize, extra=more, seed=seed)

    def _normalized(self, observations: Array) -> Array:
        if not self.normalize:
            return observations
        return ((observations - self.obs_mean) / self.obs_std).astype(np.float32)

    def sample(self, batch_size: int, seed: int | None = None) -> BatchDict:
        """Steps drawn uniformly with replacement; the batch may be larger than the dataset.

        Returns:
            obs, next_obs, actions ([B] when they have one dimension), rewards, terminated and
            truncated, float32.
        """
        batch = self._rows.sample(batch_size, seed, view=_STEP)
        if batch["actions"].shape[1:] == (1,):
            batch["actions"] = batch["actions"][:, 0]
        return batch

    def sample_trajectories(
        self,
        batch_size: int,
        seq_len: int,
        seed: int | None = None,
        *,
        by: Literal["step", "episode"] = "step",
    ) -> BatchDict:
        """Windows of `seq_len` steps of one episode each, shorter episodes padded with zeros.

        Args:
            batch_size: Windows to draw.
            seq_len: Steps of a window.
            seed: Random seed of the draw.
            by: "step" draws uniformly over all windows, "episode" an episode first and then a
                window of it.

        Returns:
            obs [B, T, ...], actions [B, T, ...], rewards [B, T], returns_to_go [B, T]
            (undiscounted, to the end of the episode), timesteps [B, T] uint32 (within the episode),
            mask [B, T] uint8.
        """
        check_count("batch_size", batch_size, 0)
        check_count("seq_len", seq_len, 1)
        view = Sequence(seq_len, pad="whole", fields=_TRAJECTORY)
        if by == "step":
            batch = self._rows.sample(batch_size, seed, view=view)
        elif by == "episode":
            batch = self._rows.gather(self._draw_by_episode(batch_size, seq_len, seed), view=view)
        else:
            raise ValueError(f'by must be "step" or "episode", got {by!r}')
        del batch["is_first"]
        batch["mask"] = batch["mask"].view(np.uint8)
        return batch

    def _draw_by_episode(self, batch_size: int, seq_len: int, seed: int | None) -> Ids:
        generator = np.random.Generator(np.random.Philox(draw_seed(self._rows, seed)))
        episode = generator.integers(0, len(self._first), batch_size)
        starts = np.maximum(self._last[episode] - self._first[episode] + 2 - seq_len, 1)
        ids: Ids = (self._first[episode] + generator.integers(0, starts)).astype(np.uint64)
        return ids

    def best_episodes(self, share: float, gamma: float = 1.0) -> OfflineDatasetBuffer:
        """The dataset of the episodes with the highest returns.

        Args:
            share: Share of the episodes, above 0 and at most 1; at least one is taken.
            gamma: Discount of the returns.

        Raises:
            ValueError: `share` is out of its range.

        Example:
            >>> import numpy as np
            >>> done, rewards = np.arange(20) % 10 == 9, np.repeat([0, 1], 10)
            >>> data = OfflineDatasetBuffer(np.zeros((20, 3)), np.zeros((20, 3)), np.zeros(20),
            ...                             rewards, done, np.zeros(20))
            >>> data.best_episodes(0.5).stats()["mean_return"]
            10.0
        """
        if not 0.0 < share <= 1.0:
            raise ValueError(f"share must be above 0 and at most 1, got {share}")
        ids = self._rows.indices()
        rewards = self._rows.gather(ids, view=Transition(("rewards",)))["rewards"]
        pairs = list(zip(self._first, self._last + 1, strict=True))
        returns = [rewards[a:b] @ np.power(gamma, np.arange(b - a)) for a, b in pairs]
        count = max(1, round(share * len(pairs)))
        chosen = np.sort(np.argsort(returns, kind="stable")[::-1][:count])
        kept = np.concatenate([np.arange(*pairs[i]) for i in chosen])
        best = OfflineDatasetBuffer(
            **self._rows.gather(ids[kept], view=_STEP),
            extra=self._rows.gather(ids[kept], view=Transition(self._extra)),
            seed=self._rows.seed,
        )
        best.normalize = self.normalize  # the rows are normalized already, by these
        best.obs_mean, best.obs_std = self.obs_mean, self.obs_std
        best.has_whole_actions = self.has_whole_actions
        return best

    @property
    def rows(self) -> ReplayBuffer:
        """The steps as a replay buffer, for views and selectors. Do not push to it.

        Beside the columns of the dataset, `extra` ones among them, it has `next_actions`, those of
        the following step (of the same one at the end of an episode), `returns_to_go` and
        `timesteps`.
        """
        return self._rows

    def n_episodes(self) -> int:
        """The number of episodes, an unfinished last one included."""
        return len(self._first)

    def stats(self) -> dict[str, Any]:
        """Sizes (n_transitions, n_episodes, obs_dim, act_dim), returns and episode lengths."""
        leaves = {leaf.name: leaf.field for leaf in self._rows.schema.leaves}
        return {
            "n_transitions": len(self),
            "n_episodes": self.n_episodes(),
            "obs_dim": int(np.prod(leaves["obs"].shape)),
            "act_dim": int(np.prod(leaves["action"].shape)),
            "mean_return": float(self._returns.mean()),
            "std_return": float(self._returns.std(ddof=1)) if len(self._returns) > 1 else 0.0,
            "min_return": float(self._returns.min()),
            "max_return": float(self._returns.max()),
            "mean_episode_length": len(self) / self.n_episodes(),
        }

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"OfflineDatasetBuffer({len(self)} steps in {self.n_episodes()} episodes)"


def _column(name: str, value: npt.ArrayLike, dtype: npt.DTypeLike, n: int | None = None) -> Array:
    array = _array(name, value)
    if array.ndim != 1 or (n is not None and len(array) != n):
        expected = "one dimension" if n is None else f"shape ({n},) like rewards"
        raise ValueError(f"{name} must have {expected}, got {array.shape}")
    if dtype is np.bool_ and np.isnan(array).any():
        raise ValueError(f"{name} must be 0 or 1, got NaN")
    return array.astype(dtype)


def _rows(name: str, value: npt.ArrayLike, n: int, *, flat: bool = True) -> Array:
    array = _array(name, value)
    if flat and array.ndim == 1 and array.size % n == 0 and array.size >= n:
        return array.reshape(n, -1)
    if array.ndim > flat and len(array) == n:
        return array
    form = ", or be flat" if flat else ""
    raise ValueError(f"{name} must have {n} rows like rewards{form}, got shape {array.shape}")


def _array(name: str, value: npt.ArrayLike | None) -> Array:
    if value is None:
        raise TypeError(f"{name} must be an array, got None")
    if hasattr(value, "detach"):  # a tensor that requires gradients
        value = value.detach()
    try:
        array: Array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} must be an array of numbers: {error}") from None
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must be an array of numbers, got dtype {array.dtype}")
    return array
