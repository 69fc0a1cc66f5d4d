"""Members of a sharded replay: each shard with its last known state, and whether it answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from sharpwave.buffers.schema import Schema
from sharpwave.core.notice import notice
from sharpwave.distributed.replay.local import check_same
from sharpwave.distributed.replay.shard import Shard, State

__all__ = ["Member", "Watch"]


class Member:
    """A shard, where it stood when it last answered, and whether it still does.

    Args:
        number: Its place among the shards, which ids carry.
        shard: The shard.

    Attributes:
        state: Its last known state.
        epoch: Times that its rows began anew.
        is_alive: True if it answers.
        reason: Reason why it does not.
        lost_rows: Rows that were pushed while it did not answer.
        losses: Times that it stopped answering.
    """

    def __init__(self, number: int, shard: Shard) -> None:
        self.number, self.shard = number, shard
        self.state = shard.state()
        self.epoch = 0
        self.is_alive, self.reason = True, ""
        self.lost_rows = self.losses = 0
        self._lock = threading.Lock()

    def hear(self, state: State) -> int:
        """Take note of where it stands; the epoch of its rows."""
        with self._lock:
            known = self.state
            if state.life != known.life:
                self.epoch += known.life != 0
            elif state.pushed < known.pushed or state.sampled < known.sampled:
                return self.epoch  # an answer of before, which another thread waited for
            self.state = state
            return self.epoch

    def lose(self, error: BaseException) -> None:
        """Take note that it does not answer any more."""
        with self._lock:
            was_alive, self.is_alive, self.reason = self.is_alive, False, _said(error)
            self.losses += was_alive
        if was_alive:
            notice(f"replay goes on without a shard: {_said(error)}")

    def look(self, schema: Schema | None, n_envs: int | None) -> None:
        """Ask where it stands, and take it back where it answers again with the same steps.

        Args:
            schema: The fields of a step; None while nobody has said them.
            n_envs: Streams of the shard's own.
        """
        try:
            state = self.shard.state()
            if schema is not None and (state.life == 0 or not self.is_alive):
                held = self.shard.describe()
                if held.schema is None:
                    held = self.shard.create(schema, n_envs)
                check_same(self.shard.name, held, schema, n_envs)
                state = self.shard.state()
        except Exception as error:  # a server answers with errors of any kind
            self.lose(error)
            return
        self.hear(state)
        if not self.is_alive:
            self.is_alive, self.reason = True, ""
            notice(f"replay has {self.shard.name} again, with {state.size} steps")


class Watch:
    """A thread that asks distant shards where they stand, and looks for those that are gone.

    Args:
        look: Called every so often.
        every: Seconds between two calls.
    """

    def __init__(self, look: Callable[[], None], every: float) -> None:
        self._look, self._every = look, every
        self._over = threading.Event()
        self._looked = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="sharpwave shards", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(self._every):
            self._look()
            with self._looked:
                self._looked.notify_all()

    def wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait for a condition, checked after each look; False if it is not true in time."""
        end = time.monotonic() + timeout
        with self._looked:
            while not condition():
                left = end - time.monotonic()
                if left <= 0 or not self._looked.wait(left):
                    return condition()
        return True

    def stop(self) -> None:
        """End the thread."""
        self._over.set()
        self._thread.join()


def _said(error: BaseException) -> str:
    """An error in words; its name where it has none."""
    return str(error) or type(error).__name__
