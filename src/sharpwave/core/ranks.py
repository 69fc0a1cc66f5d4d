"""Data-parallel processes (ranks), as `torchrun` or `sharpwave train --learners` starts them."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sharpwave.core.lazy import torch
from sharpwave.errors import RankLost

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["ALONE", "MEETING", "Ranks", "n_started"]

TIMEOUT = timedelta(minutes=10)
"""Time that a process waits for the others before it ends with an error. One that ends is noticed
at once, by its connections."""

MEETING = "SHARPWAVE_MEETING"
"""Variable that names where processes find each other, if not where `torchrun` says."""


def n_started() -> int:
    """Number of processes started together with this one, itself included (world size)."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def n_started_here() -> int:
    """Number of them on this machine (local world size)."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", n_started()))


class Ranks:
    """All processes of a run, of which this is one.

    They do the same, each with its share. What is done once, such as callbacks and files, the first
    one does while the others wait and help: see `leading`.

    Args:
        rank: Number of this process.
        size: Number of processes.

    Attributes:
        helpers: Functions that the others run when the first one asks, by name.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank = rank
        self.size = size
        self.helpers: dict[str, Callable[..., None]] = {}
        self._is_leading = False
        self._is_apart = False

    @classmethod
    def join(cls, sharding: str = "auto") -> Ranks:
        """The processes that were started together; this one alone where `sharding` is "none"."""
        is_told = n_started() > 1
        if sharding == "none" or not (is_told or sys.modules.get("torch") is not None):
            return ALONE
        distributed = torch.distributed
        is_here = distributed.is_available() and distributed.is_initialized()
        if not (is_here or is_told):
            return ALONE
        if not is_here:
            backend = "gloo"
            # nccl wants a GPU for each process; where there are fewer, they meet on the CPU.
            if n_started_here() <= torch.cuda.device_count():
                torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
                backend = "cpu:gloo,cuda:nccl"
            meeting = os.environ.get(MEETING)
            where: Any = {"rank": int(os.environ["RANK"]), "world_size": n_started()}
            distributed.init_process_group(
                backend,
                timeout=TIMEOUT,
                **({} if meeting is None else {"init_method": meeting, **where}),
            )
            # Its threads must not outlive the interpreter.
            atexit.register(_leave)
        size = distributed.get_world_size()
        return ALONE if size == 1 else cls(distributed.get_rank(), size)

    @property
    def leads(self) -> bool:
        """True if callbacks, loggers and files belong to this process: rank 0."""
        return self.rank == 0

    @property
    def is_alone(self) -> bool:
        """True if there is nobody to share work with: no other process, or the others wait."""
        return self.size == 1 or self._is_leading

    # What all of them do at the same place

    def share(self, n: int) -> range:
        """This process's of n rows: as many as the others', or one less."""
        if self.is_alone:
            return range(n)
        return range(n * self.rank // self.size, n * (self.rank + 1) // self.size)

    def gather(self, value: Any) -> list[Any]:
        """Values of all processes, in their order (all-gather)."""
        if self.is_alone:
            return [value]
        found = [None] * self.size
        with self._together() as distributed:
            distributed.all_gather_object(found, value)
        return found

    def first(self, value: Any) -> Any:
        """Value of the first process (broadcast)."""
        if self.is_alone:
            return value
        found = [value]
        with self._together() as distributed:
            distributed.broadcast_object_list(found, src=0)
        return found[0]

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all processes, in place (all-reduce)."""
        if not self.is_alone:
            with self._together() as distributed:
                distributed.all_reduce(tensor)
        return tensor

    def mean(self, tensor: Tensor) -> Tensor:
        """The mean over all processes, in place (all-reduce)."""
        return tensor if self.is_alone else self.sum(tensor).div_(self.size)

    def sums(self, *numbers: float) -> list[float]:
        """The sum of each number over all processes."""
        if self.is_alone:
            return list(numbers)
        found: list[float] = self.sum(torch.tensor(numbers, dtype=torch.float64)).tolist()
        return found

    def copy_first(self, tensors: Sequence[Tensor]) -> None:
        """Give tensors the numbers that they have in the first process."""
        if not self.is_alone:
            with self._together() as distributed:
                for tensor in tensors:
                    distributed.broadcast(tensor, src=0)

    def to_first(self, value: Any) -> list[Any]:
        """Values of all processes, in their order, in the first one (gather); elsewhere nothing.

        Unlike the rest, it is for helpers too, which the first one asked before.
        """
        if self.size == 1:
            return [value]
        found = [None] * self.size if self.leads else None
        with self._together() as distributed:
            distributed.gather_object(value, found)
        return found or []

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """Inside, this process does something that the others do not, so nothing is shared."""
        self._is_apart, before = True, self._is_apart
        try:
            yield
        finally:
            self._is_apart = before

    @contextlib.contextmanager
    def _together(self) -> Iterator[Any]:
        """The module `torch.distributed`; if another process is gone, RankLost is raised inside."""
        if self._is_apart:
            raise RuntimeError(
                "this is told in one of several processes, where the others do not wait: do what "
                "all of them take part in, as saving is, in on_train_batch"
            )
        try:
            yield torch.distributed
        except RuntimeError as error:
            said = re.sub(r"^\[\S+\] ", "", str(error)).partition(". ")[0]  # whose source, advice
            raise RankLost(
                f"process {self.rank} of {self.size} lost another one: {said}"
            ) from error

    # What the first one does

    @contextlib.contextmanager
    def leading(self) -> Iterator[None]:
        """Inside, the first process acts for all; the others wait before it and do what it asks.

        Raises:
            RuntimeError: In the others, if the first one fails.
        """
        if self.is_alone:
            yield
        elif self.leads:
            self._is_leading = True
            try:
                yield
            except BaseException as error:
                with contextlib.suppress(Exception):  # another process may be gone
                    self._tell("fail", f"{type(error).__name__}: {error}")
                raise
            finally:
                self._is_leading = False
            self._tell("go on")
        else:
            self._help()
            yield

    def ask(self, name: str, *arguments: Any) -> None:
        """Let the others do what `helpers` has by this name, if they wait; then do it as well."""
        if self._is_leading:
            self._tell(name, *arguments)

    def _tell(self, *request: Any) -> None:
        with self._together() as distributed:
            distributed.broadcast_object_list([request], src=0)

    def _help(self) -> None:
        while True:
            request: list[Any] = [None]
            with self._together() as distributed:
                distributed.broadcast_object_list(request, src=0)
            name, *arguments = request[0]
            if name == "go on":
                return
            if name == "fail":
                raise RuntimeError(f"the first process of the run failed: {arguments[0]}")
            self.helpers[name](*arguments)


def _leave() -> None:
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    _wait_for_threads_of_gloo()


def _wait_for_threads_of_gloo(seconds: float = 5.0) -> None:
    """Wait until no thread of gloo has work to put away.

    Groups that somebody still refers to, as sharded weights do, keep their threads. One that has
    yet to release the tensors of its last work asks for the interpreter, and where that has ended
    meanwhile the process aborts.
    """
    end, quiet = time.monotonic() + seconds, 0
    while quiet < 2 and time.monotonic() < end:
        time.sleep(0.005)  # the interpreter is theirs meanwhile
        quiet = 0 if any(map(_works, Path("/proc/self/task").glob("*"))) else quiet + 1


def _works(thread: Path) -> bool:
    """Return whether a thread is one of gloo's that runs, or wants to."""
    try:
        if (thread / "comm").read_text() != "pt_gloo_runloop\n":
            return False
        return (thread / "stat").read_text().rpartition(")")[2].split()[0] != "S"
    except OSError:  # it has ended
        return False


ALONE = Ranks()
"""One process."""
