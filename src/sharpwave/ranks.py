"""Processes that learn together, as `torchrun` starts them."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sharpwave.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["ALONE", "Ranks"]

TIMEOUT = timedelta(minutes=10)
"""How long a process waits for the others before it ends with an error."""


class Ranks:
    """All processes of a run, of which this is one.

    They do the same, each with its share. What is done once, such as callbacks and files, the first
    one does while the others wait and help: see `leading`.

    Args:
        rank: Number of this process.
        size: How many there are.

    Attributes:
        helpers: What the others do when the first one asks, by name.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank = rank
        self.size = size
        self.helpers: dict[str, Callable[..., None]] = {}
        self._is_leading = False

    @classmethod
    def join(cls, sharding: str) -> Ranks:
        """The processes that torchrun started; this one alone where `sharding` is "none"."""
        is_told = int(os.environ.get("WORLD_SIZE", "1")) > 1
        if sharding == "none" or not (is_told or "torch" in sys.modules):
            return ALONE
        distributed = torch.distributed
        is_here = distributed.is_available() and distributed.is_initialized()
        if not (is_here or is_told):
            return ALONE
        if not is_here:
            has_cuda = torch.cuda.is_available()
            if has_cuda:
                torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
            backend = "cpu:gloo,cuda:nccl" if has_cuda else "gloo"
            distributed.init_process_group(backend, timeout=TIMEOUT)
        size = distributed.get_world_size()
        return ALONE if size == 1 else cls(distributed.get_rank(), size)

    @property
    def leads(self) -> bool:
        """Whether callbacks, loggers and files belong to this process."""
        return self.rank == 0

    @property
    def is_alone(self) -> bool:
        """Whether there is nobody to share work with: no other process, or the others wait."""
        return self.size == 1 or self._is_leading

    # What all of them do at the same place

    def share(self, n: int) -> range:
        """This process's of n rows: as many as the others', or one less."""
        if self.is_alone:
            return range(n)
        return range(n * self.rank // self.size, n * (self.rank + 1) // self.size)

    def gather(self, value: Any) -> list[Any]:
        """What every process gives, in their order."""
        if self.is_alone:
            return [value]
        found = [None] * self.size
        torch.distributed.all_gather_object(found, value)
        return found

    def first(self, value: Any) -> Any:
        """What the first process gives."""
        if self.is_alone:
            return value
        found = [value]
        torch.distributed.broadcast_object_list(found, src=0)
        return found[0]

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all processes, in place."""
        if not self.is_alone:
            torch.distributed.all_reduce(tensor)
        return tensor

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
        torch.distributed.broadcast_object_list([request], src=0)

    def _help(self) -> None:
        while True:
            request: list[Any] = [None]
            torch.distributed.broadcast_object_list(request, src=0)
            name, *arguments = request[0]
            if name == "go on":
                return
            if name == "fail":
                raise RuntimeError(f"the first process of the run failed: {arguments[0]}")
            self.helpers[name](*arguments)


ALONE = Ranks()
"""One process."""
