"""A Ray cluster, or a Ray of this machine: joining it, and the processes that it places.

The processes of Ray listen on all interfaces, and run what they are sent: a cluster is used only
if it asks for tokens. Bulk data do not pass through it.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
from typing import Any, ClassVar

from sharpwave.core.notice import notice
from sharpwave.core.optional import require
from sharpwave.distributed.security import Access
from sharpwave.distributed.wire import split_address

__all__ = ["RayCluster"]

_PATIENCE, _TELL_AFTER = 300.0, 10.0
"""Seconds that a cluster has to find room, since it may have to grow; and until it is told of."""
_REACH = 10.0
"""Seconds that the machine of a cluster has to answer; Ray itself would try for minutes."""
_MODE = "RAY_AUTH_MODE"
_TOKENS_SINCE = (2, 52)
"""Version of Ray since which it can ask for tokens; an older one takes no notice of the mode."""


class RayCluster:
    """Ray, once it is joined or started, and what was placed there.

    Args:
        address: Address of a cluster, or "auto"; None takes the Ray of this process, or starts one
            here, which ends with the last that uses it.

    Attributes:
        ray: The module.
        is_here: All of its processes are on this machine, and of this one's.
        host: Host at which this process listens for those of Ray.
        access: Credentials to connect there: for other machines, the token of this object.

    Raises:
        ConnectionError: There is no such cluster.
        ImportError: Ray is not installed.
        PermissionError: The cluster takes everybody, or Ray is too old to ask for tokens.
        ValueError: The address is neither host:port nor "auto".
    """

    _users_here: ClassVar[int] = 0
    """Objects that use the Ray that one of them has started on this machine."""
    _sets_mode: ClassVar[bool] = False
    """True while that Ray asks for tokens because it was started here."""

    def __init__(self, address: str | None = None) -> None:
        if address is None:
            self._ask_for_tokens()
        self.ray: Any = require("ray", extra="ray")
        self._placed: list[Any] = []
        self._groups: list[Any] = []
        self._reserved: tuple[int, float] | None = None
        self._is_left = False
        is_new = not self.ray.is_initialized()
        self.is_here = address is None and (is_new or RayCluster._users_here > 0)
        self._ends_with_this = is_new and not self.is_here
        self.host, self.access = "127.0.0.1", Access()
        if not self.is_here:
            self._check_tokens()
        if is_new:
            _check_reach(address)
            own: dict[str, Any] = {"include_dashboard": False} if self.is_here else {}
            # Without an address Ray would join whatever cluster runs on this machine.
            where = "local" if address is None else address
            self.ray.init(where, logging_level="ERROR", log_to_driver=False, **own)
        if self.is_here:
            RayCluster._users_here = 1 if is_new else RayCluster._users_here + 1
        if self.is_here and is_new:
            who = "reaches it" if self._why_open() else "holds its token"
            notice(
                "started Ray on this machine. It listens on all interfaces, and whoever "
                f"{who} may run code here"
            )
        elif not self.is_here:
            # Processes of other machines have to find this one; a token of its own lets them in.
            self.host = self.ray.util.get_node_ip_address()
            self.access = Access(token=secrets.token_urlsafe(32))

    def reserve(self, n: int, cpus: float = 1.0) -> None:
        """Wait until there is room for some actors, which `place` then takes.

        Args:
            n: Number of actors.
            cpus: CPUs of Ray for each; on this machine alone there is nothing to reserve.

        Raises:
            ConnectionError: The cluster has not had as many CPUs free in time.
        """
        if self.is_here:
            return
        ray = self.ray
        group = ray.util.placement_group([{"CPU": cpus}] * n, strategy="SPREAD")
        if not group.wait(_TELL_AFTER):
            notice(f"waiting for {n} x {cpus:g} CPUs of Ray: {self._cpus()}")
            if not group.wait(max(0.0, _PATIENCE - _TELL_AFTER)):
                ray.util.remove_placement_group(group)
                raise ConnectionError(
                    f"Ray has not had {n} x {cpus:g} CPUs free within {_PATIENCE:g} s: "
                    f"{self._cpus()}"
                )
        self._groups.append(group)
        self._reserved = n, cpus

    def _cpus(self) -> str:
        """Counts of the CPUs of the cluster."""
        there, free = self.ray.cluster_resources(), self.ray.available_resources()
        return f"the cluster has {there.get('CPU', 0):g}, of which {free.get('CPU', 0):g} are free"

    def place(self, kind: type, n: int, cpus: float = 1.0) -> list[Any]:
        """Start actors of Ray, spread over the machines, which it starts again for ever.

        Args:
            kind: Their class, without arguments.
            n: Number of actors.
            cpus: CPUs of Ray for each; on this machine alone there is nothing to reserve.

        Raises:
            ConnectionError: The cluster has not had as many CPUs free in time.
        """
        ray = self.ray
        options: list[dict[str, Any]] = [{"num_cpus": 0} for _ in range(n)]
        if not self.is_here:
            if self._reserved != (n, cpus):
                self.reserve(n, cpus)
            self._reserved = None
            group = self._groups[-1]
            strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
            for number in range(n):
                where = strategy(group, placement_group_bundle_index=number)
                options[number] = {"num_cpus": cpus, "scheduling_strategy": where}
        always = {"max_restarts": -1, "max_task_retries": -1}
        placed = [ray.remote(kind).options(**always, **own).remote() for own in options]
        self._placed += placed
        return placed

    def leave(self) -> None:
        """End what was placed, and the Ray that was started for it."""
        if self._is_left:
            return
        self._is_left = True
        if self.is_here:
            RayCluster._users_here -= 1
        if not self.ray.is_initialized():
            return
        if self._ends_with_this or (self.is_here and RayCluster._users_here == 0):
            self.ray.shutdown()
            if self.is_here and RayCluster._sets_mode:  # a cluster that is joined later is asked
                os.environ.pop(_MODE, None)
                RayCluster._sets_mode = False
            return
        for one in self._placed:
            self.ray.kill(one)
        for group in self._groups:
            self.ray.util.remove_placement_group(group)

    @staticmethod
    def _ask_for_tokens() -> None:
        """Let a Ray that is started here ask for tokens, unless it is told otherwise."""
        ray = sys.modules.get("ray")
        is_new = ray is None or not ray.is_initialized()
        if is_new and _MODE not in os.environ:
            os.environ[_MODE] = "token"  # which Ray reads once, as it is imported
            RayCluster._sets_mode = True

    def _why_open(self) -> str:
        """Why Ray runs the code of whoever reaches it; empty where it asks for tokens."""
        version = self.ray.__version__
        if tuple(map(int, version.split(".")[:2])) < _TOKENS_SINCE:
            return f"Ray must be 2.52 or newer, which can ask for them, got {version}"
        if os.environ.get(_MODE, "").lower() != "token":
            return "start it with RAY_AUTH_MODE=token, and set that and RAY_AUTH_TOKEN here"
        return ""

    def _check_tokens(self) -> None:
        why = self._why_open()
        if why:
            raise PermissionError(
                "a Ray cluster must ask for tokens, since it runs the code of whoever reaches it: "
                f"{why}"
            )


def _check_reach(address: str | None) -> None:
    """Raise where nothing answers at the address of a cluster."""
    if address is None or address == "auto" or "://" in address:  # which Ray looks up itself
        return
    try:
        socket.create_connection(split_address(address), _REACH).close()
    except OSError as error:
        raise ConnectionError(
            f"no Ray cluster answers at {address}: {error.strerror or error}"
        ) from None
