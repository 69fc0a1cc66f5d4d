"""The buffer of a run: which one, what goes in, and what a checkpoint keeps of it."""

from __future__ import annotations

import contextlib
import errno
import math
import shutil
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sharpwave.buffers import MmapReplayBuffer, PrioritizedReplayBuffer, ReplayBuffer, snapshot
from sharpwave.buffers.fresh_queues import dump_queues, load_queues
from sharpwave.buffers.offline_mixture import OfflineMixture
from sharpwave.buffers.schema import BATCH_NAMES, Field, Schema
from sharpwave.buffers.selectors import Fresh, Selector, Uniform
from sharpwave.buffers.views import Hindsight, NStep, Sequence, Transition, View
from sharpwave.collect.off_policy import MASK, OBSERVATION, Transitions
from sharpwave.config.off_policy import DEVICE, MEMORY, ReplayConfig
from sharpwave.core.notice import notice
from sharpwave.distributed.replay import ShardedReplay
from sharpwave.envs import autoreset_mode
from sharpwave.errors import SharpwaveIOError
from sharpwave.loops.foreign_buffer import ForeignBuffer
from sharpwave.loops.replay_fit import check_fields, check_given, differences
from sharpwave.storage.files import reading
from sharpwave.storage.folder import is_store, read_header
from sharpwave.tensors.device_buffer import DeviceBuffer

HOT_SHARE = 0.1
"""Of a buffer on disk, the share of the newest steps that stays in memory."""
KEPT_IN_CHECKPOINTS = 64 << 20
"""Bytes of a buffer that the newest checkpoint of a run folder holds; a larger one has a folder."""
FIELDS = ("obs", "next_obs", "actions", "rewards")
"""Fields of a step that a batch needs, beside discounts."""
MOVED_AT_ONCE = 16384
"""Steps that move together from one buffer to another."""


class ReplayStore:
    """Makes the buffer that a configuration asks for, or takes the one that was given.

    It is made by `open`, when there is something to store: playing a checkpoint needs none.

    Args:
        env: The vector environment.
        config: Of the algorithm.
        given: A buffer in place of the configuration's.
        seed: Of the draws.
        device: Device of a buffer on the device.
        columns: Of the learner's own, stored with a step.

    Attributes:
        buffer: The buffer, as the user knows it; None before `open`.
        rows: The buffer that steps are pushed to.
        source: The buffer that batches are drawn from.

    Raises:
        TypeError, ValueError: The given buffer lacks what is asked of it.
    """

    def __init__(
        self,
        env: Any,
        config: ReplayConfig,
        *,
        given: Any,
        seed: int,
        device: Any = "cpu",
        columns: Mapping[str, Field] | None = None,
    ) -> None:
        self.config = config
        self.columns = columns or {}
        self._device = device
        self.buffer: Any = None
        self.source: Any = None
        self.rows: Any = None
        self._env = env
        self._seed = seed
        self._given = given
        self._saved: dict[str, Any] | None = None
        self._origin = "buffer"
        self._own_folder: Path | None = None
        self._step_bytes = 0
        self._keeps_all = False
        if given is not None:
            ours = isinstance(given, ReplayBuffer | OfflineMixture | ShardedReplay)
            self._given_source = given if ours else ForeignBuffer(given, seed, self.columns)
            check_given(self._given_source, config, self.columns)
        elif config.steps_per_batch > config.buffer_size:
            raise ValueError(
                f"buffer_size must be at least the {config.steps_per_batch} steps of a batch, "
                f"got {config.buffer_size}"
            )
        least = config.draws.rows + 2
        if config.draws.length is not None and self._capacity // env.num_envs < least:
            raise ValueError(
                f"buffer_size must be at least {least * env.num_envs}, a sequence of "
                f"{least} steps for each environment, got {self._capacity}"
            )

    @property
    def _capacity(self) -> int:
        if self._given is None:
            return self.config.buffer_size
        capacity: int = self._given.capacity
        return capacity

    @property
    def is_open(self) -> bool:
        """True once there is a buffer."""
        return self.rows is not None

    @property
    def takes_views(self) -> bool:
        """True if the buffer draws by a view: n-step returns, sequences, relabeled goals."""
        return isinstance(self.rows, ReplayBuffer | ShardedReplay)

    @property
    def keeps_order(self) -> bool:
        """True if n-step returns and relabeled steps can be drawn."""
        return self.takes_views and self.rows.n_envs is not None

    @property
    def has_priorities(self) -> bool:
        """True if steps are drawn by priority."""
        if isinstance(self.rows, DeviceBuffer):
            return self.rows.is_prioritized
        ours = self.takes_views and self.source is self.rows
        return ours and self.rows.is_prioritized

    def open(self, n_choices: int | None, timesteps: int = 0) -> None:
        """Make the buffer, with what a checkpoint kept of it.

        Args:
            n_choices: The length of an action mask, where actions are masked.
            timesteps: Steps that the run has taken already.

        Raises:
            ValueError: The given buffer, or the one in the folder, does not fit the environment.
            SharpwaveIOError: The folder holds something else, or is not there any more.
        """
        schema = steps_of(self._env, self.config, n_choices, self.columns)
        self._step_bytes = bytes_of_a_step(schema)
        with reading(self._origin):
            self._open(schema, timesteps, self._saved)
        self._saved = None

    def _open(self, schema: Schema, timesteps: int, saved: dict[str, Any] | None) -> None:
        if self._given is not None:
            source = self._given_source
            rows = self._take_given(source, schema, saved)
        elif self.config.buffer == DEVICE:
            source = rows = self._on_device(schema, timesteps, saved)
        elif self.config.buffer != MEMORY:
            source = rows = self._open_folder(Path(self.config.buffer), schema, saved)
        elif self._own_folder is not None and self._needs_folder(schema):
            source = rows = self._open_folder(self._own_folder, schema, saved)
        else:
            source = rows = self._in_memory(schema, timesteps, saved)
        self.source, self.rows = source, rows
        self.buffer = rows if self._given is None else self._given
        if isinstance(rows, DeviceBuffer):
            self.buffer = rows.tensors

    def keep_in(self, folder: Path) -> None:
        """Let a large buffer lie in a folder of the run, from where a checkpoint goes on with it.

        Args:
            folder: The folder, used once the buffer is made.
        """
        self._own_folder = folder.absolute()

    def _needs_folder(self, schema: Schema) -> bool:
        assert self._own_folder is not None
        size = self.config.buffer_size * bytes_of_a_step(schema)
        if size <= KEPT_IN_CHECKPOINTS or is_store(self._own_folder):
            return size > KEPT_IN_CHECKPOINTS
        if shutil.disk_usage(self._own_folder.parent).free < 2 * size:
            notice(
                f"the replay buffer stays in memory, and a resumed run begins with an empty one: "
                f"{self._own_folder.parent} has no room for its {size / 2**30:.1f} GiB"
            )
            return False
        return True

    def view(self, goal_rewards: Any = None) -> View | None:
        """The view that turns drawn steps into a batch; None where the buffer has its own.

        Args:
            goal_rewards: The reward function of goals, where steps are relabeled.
        """
        config, draws, fields = self.config, self.config.draws, (*FIELDS, *self.columns)
        if draws.length is not None:
            return Sequence(draws.length, context=draws.context, arrivals=True, cross=True)
        if goal_rewards is not None:
            return Hindsight(goal_rewards, draws.her_goals, draws.her_strategy)
        if self.keeps_order:
            return NStep(draws.n_step, config.gamma, fields=fields)
        return Transition((*fields, "terminated")) if self.takes_views else None

    def selector(self) -> Selector | None:
        """The selector of the steps to draw; None for that of the buffer."""
        draws = self.config.draws
        is_there = draws.fresh and isinstance(self.rows, ReplayBuffer)
        return Fresh(draws.rows, then=Uniform()) if is_there else None

    def write(self, rows: Transitions) -> None:
        """Put one step of the environments into the buffer."""
        obs, actions, rewards, terminated, truncated, next_obs, streams, restarted, extra = rows
        named: dict[str, Any] = {}
        if self.columns:
            named.update(extra or self._blank(len(rewards)))
        if streams is not None and getattr(self.rows, "n_envs", None) is not None:
            named["streams"] = streams
        if isinstance(self.rows, DeviceBuffer):  # others see it by the observations
            named["restarted"] = restarted
        self.rows.push_batch(
            obs=obs,
            next_obs=next_obs,
            actions=actions,
            rewards=rewards,
            terminated=terminated,
            truncated=truncated,
            **named,
        )

    def _blank(self, n: int) -> dict[str, Any]:
        """The columns of steps at random, which the learner knows nothing of."""
        return {name: np.zeros((n, *x.shape), x.dtype) for name, x in self.columns.items()}

    def has_a_batch(self) -> bool:
        """Return whether the buffer holds the steps of a batch, or is full."""
        # Of every environment there must be a whole sequence, and a step that says how it goes on.
        rows = self.config.draws.rows
        sequence = 0 if rows == 1 else self._env.num_envs * (rows + 2)
        enough = len(self.source) >= max(self.config.steps_per_batch, sequence)
        return enough or bool(getattr(self.rows, "is_full", False))

    def follow(self, progress_remaining: float) -> None:
        """Let the importance weights of prioritized draws approach full correction."""
        if self.has_priorities:
            start = self.config.draws.beta_start
            self.rows.set_beta(1.0 - (1.0 - start) * progress_remaining)

    def close(self) -> None:
        """Leave the folder of a buffer on disk, which stays."""
        if self._given is None and isinstance(self.rows, MmapReplayBuffer):
            self.rows.close(delete=False)

    # In copies and checkpoints

    def check_copy(self) -> None:
        """Raise where an agent with a buffer of its own cannot be made.

        Raises:
            TypeError: The buffer is a folder, which has one writer, or lies in shards.
        """
        kind = self.rows if self._given is None else self._given
        if isinstance(kind, ShardedReplay):
            raise TypeError("buffer of the agent lies in shards, which a copy would share")
        if isinstance(kind, MmapReplayBuffer) or self.config.buffer not in (MEMORY, DEVICE):
            raise TypeError(
                "buffer of the agent is a folder, which has one writer: save the agent, and give "
                "the copy another one by from_checkpoint(..., buffer=...)"
            )

    @contextlib.contextmanager
    def keeping_all(self) -> Iterator[None]:
        """Inside, `state_dict` holds the steps, whatever `save_buffer` says."""
        self._keeps_all, before = True, self._keeps_all
        try:
            yield
        finally:
            self._keeps_all = before

    def state_dict(self, *, keep: bool = False) -> dict[str, Any] | None:
        """State for a checkpoint: the folder of the steps, or the steps with `save_buffer`.

        Args:
            keep: The steps too, if they are not too many to write them again and again.
        """
        if not self.is_open:
            return self._saved
        if isinstance(self.rows, ForeignBuffer):
            return {"kind": "foreign", "draws": self.rows.draws}
        if isinstance(self.rows, ShardedReplay):
            return {"kind": "shards", **self.rows.state_dict()}
        if isinstance(self.rows, MmapReplayBuffer):
            self.rows.flush()
            known = {"pushed": self.rows.stats()["pushed"], "fresh": dump_queues(self.rows._engine)}
            if self._own_folder is not None and Path(self.rows.path) == self._own_folder:
                return {"kind": "run", **known}  # wherever the folder of the run is then
            return {"kind": "folder", "path": str(self.rows.path), **known}
        is_small = len(self.rows) * self._step_bytes <= KEPT_IN_CHECKPOINTS
        if not (self.config.save_buffer or self._keeps_all or (keep and is_small)):
            return None
        return self.rows.state_dict() if isinstance(self.rows, DeviceBuffer) else _dumped(self.rows)

    def load_state_dict(self, state: dict[str, Any] | None, origin: str = "the state") -> None:
        """Continue from `state_dict` once the buffer is needed.

        Args:
            state: The result of `state_dict`.
            origin: Origin of the state, as errors name it.
        """
        self._saved, self._origin = state, origin

    # Making one

    def _options(self, schema: Schema, timesteps: int = 0) -> dict[str, Any]:
        # One that begins anew in the middle of a run does not repeat the draws of its beginning.
        sequence = np.random.SeedSequence((self._seed, timesteps))
        seed = int(sequence.generate_state(1, np.uint64)[0]) if timesteps else self._seed
        return {"fields": schema, "n_envs": self._env.num_envs, "seed": seed}

    def _priorities(self) -> dict[str, Any]:
        draws = self.config.draws
        norm = draws.weight_norm
        return {"alpha": draws.alpha, "beta": draws.beta_start, "weight_norm": norm}

    def _take_given(self, source: Any, schema: Schema, saved: dict[str, Any] | None) -> Any:
        if isinstance(source, ForeignBuffer):
            if saved is not None and saved["kind"] == "foreign":
                source.draws = saved["draws"]
            return source
        rows = source.growing if isinstance(source, OfflineMixture) else source
        if isinstance(rows, ShardedReplay):
            if not rows.is_created:
                rows.create(schema, self._env.num_envs)
            if saved is not None and saved["kind"] == "shards":
                rows.load_state_dict(saved)
        check_fields(rows, schema, self._env.num_envs)
        if saved is not None and saved["kind"] == "memory" and not len(rows):
            move(_restored(saved), rows)
        return rows

    def _in_memory(
        self, schema: Schema, timesteps: int, saved: dict[str, Any] | None
    ) -> ReplayBuffer:
        options = self._options(schema, timesteps)
        size = self.config.buffer_size
        buffer: ReplayBuffer
        try:
            if self.config.draws.prioritized:
                buffer = PrioritizedReplayBuffer(size, **self._priorities(), **options)
            else:
                buffer = ReplayBuffer(size, **options)
        except MemoryError:
            told = f"{size} steps of {size * self._step_bytes / 2**30:.1f} GiB in all"
            raise ValueError(
                f"buffer_size must fit into memory, got {told}: give fewer, or a folder as buffer"
            ) from None
        if saved is None or saved["kind"] != "memory":
            return buffer
        old = _restored(saved)
        any_seed = {"seed": 0}
        if old.schema == buffer.schema and old._options | any_seed == buffer._options | any_seed:
            return old
        move(old, buffer)
        return buffer

    def _on_device(
        self, schema: Schema, timesteps: int, saved: dict[str, Any] | None
    ) -> DeviceBuffer:
        if autoreset_mode(self._env) == "next_step":
            raise ValueError(
                'buffer="device" takes a step of every environment at a time: env must not spend '
                "steps on resets (autoreset mode next_step)"
            )
        options = self._options(schema, timesteps)
        buffer = DeviceBuffer(
            schema, self.config, self._env.num_envs, self._device, options["seed"]
        )
        if saved is not None and saved["kind"] == "device":
            buffer.load_state_dict(saved)
        return buffer

    def _open_folder(
        self, folder: Path, schema: Schema, saved: dict[str, Any] | None
    ) -> MmapReplayBuffer:
        known: dict[str, Any] | None = None
        if saved is not None and saved["kind"] == "folder" and saved["path"] == str(folder):
            known = saved
        if not is_store(folder):
            if known is not None:  # of a run's own folder, what is gone is said by its algorithm
                if folder.exists():
                    read_header(folder)  # raises, and says what is wrong with it
                raise SharpwaveIOError(
                    errno.ENOENT,
                    f"the buffer of the checkpoint was in {folder}, which is not there any more: "
                    'pass buffer="memory" or another folder to go on with an empty one',
                )
            size = self.config.buffer_size
            return MmapReplayBuffer(
                max(1, int(size * HOT_SHARE)),
                size,
                cold_path=folder,
                prioritized=self._priorities() if self.config.draws.prioritized else False,
                **self._options(schema),
            )
        # Steps whose observation is not the one that follows begin an episode anyway.
        buffer = MmapReplayBuffer.open(folder, continue_episodes=True)
        other = differences(buffer, schema, self.config, self._env.num_envs)
        if other:
            buffer.close(delete=False)
            raise ValueError(f"{folder} holds another buffer than asked for: {'; '.join(other)}")
        if saved is not None and saved["kind"] == "run":
            known = saved
        if known is not None:
            _tell_of_others(folder, buffer.stats()["pushed"] - known["pushed"])
            if known.get("fresh"):  # where the folder, which is written now and then, may be ahead
                load_queues(buffer._engine, known["fresh"])
        return buffer


def steps_of(
    env: Any, config: ReplayConfig, n_choices: int | None, columns: Mapping[str, Field]
) -> Schema:
    """The fields of a step, with its action mask beside the observation where there is one.

    Raises:
        ValueError: `frame_stack` is asked for and no observation is an image.
    """
    schema = Schema.from_env(env, stack=config.draws.frame_stack)
    if config.draws.frame_stack > 1 and all(leaf.field.stack == 1 for leaf in schema.leaves):
        raise ValueError(
            "frame_stack needs observations of at least three dimensions, "
            f"got {env.single_observation_space}"
        )
    fields = {**schema.fields, **columns}
    if n_choices is not None:
        obs = {OBSERVATION: schema.fields["obs"], MASK: Field("bool", (n_choices,))}
        fields |= {"obs": obs, "next_obs": obs}
    return Schema(fields)


def bytes_of_a_step(schema: Schema) -> int:
    """About how much memory a step takes; a following observation is stored once, a frame too."""
    return sum(
        np.dtype(leaf.field.dtype).itemsize * math.prod(leaf.field.shape) // leaf.field.stack
        for leaf in schema.leaves
        if leaf.argument != "next_obs"
    )


def _tell_of_others(folder: Path, more: int) -> None:
    if more > 0:
        warnings.warn(
            f"{folder} holds {more} steps that came after the checkpoint; they stay and are "
            "learned from",
            stacklevel=2,
        )
    elif more < 0:
        warnings.warn(f"{folder} lacks {-more} steps that the checkpoint knew", stacklevel=2)


def _dumped(buffer: ReplayBuffer) -> dict[str, Any]:
    state = snapshot.to_memory(buffer)
    pieces = state.pop("pieces")
    arrays = {name: np.frombuffer(b"".join(parts), np.uint8) for name, parts in pieces.items()}
    sizes = {name: [len(part) for part in parts] for name, parts in pieces.items()}
    return {"kind": "memory", "description": state, "arrays": arrays, "sizes": sizes}


def _restored(saved: dict[str, Any]) -> ReplayBuffer:
    description = saved["description"]
    pieces = {name: _split(saved["arrays"][name], sizes) for name, sizes in saved["sizes"].items()}
    prioritized = description["options"]["priorities"] is not None
    cls: type[ReplayBuffer] = PrioritizedReplayBuffer if prioritized else ReplayBuffer
    return snapshot.rebuild(cls, {**description, "pieces": pieces})


def move(old: ReplayBuffer, new: ReplayBuffer) -> None:
    """Push all steps of a buffer to another one, an equal share to each of its environments.

    Steps that follow one another stay together but at the ends of shares. Priorities begin anew.
    Columns that the new buffer does not have stay behind.

    Raises:
        ValueError: The old buffer lacks a column of the new one.
    """
    missing = sorted(new.schema.fields.keys() - old.schema.fields.keys())
    if missing:
        raise ValueError(f"the buffer lacks {', '.join(missing)}, which steps have here")
    names = tuple(BATCH_NAMES.get(name, name) for name in new.schema.fields)
    for stream, ids in enumerate(np.array_split(old.indices(), new.n_envs or 1)):
        for begin in range(0, len(ids), MOVED_AT_ONCE):
            part = ids[begin : begin + MOVED_AT_ONCE]
            named = {} if new.n_envs is None else {"streams": np.full(len(part), stream)}
            new.push_batch(**old.gather(part, view=Transition(names)), **named)


def _split(array: Any, sizes: list[int]) -> list[bytes]:
    ends = np.cumsum(sizes)
    return [array[end - size : end].tobytes() for size, end in zip(sizes, ends, strict=True)]
