"""A fleet whose actors Ray places on machines, starts, and starts again.

Ray has nothing to do with unrolls and weights: its processes are nodes that join the learner over
gRPC, as those of `sharpwave actor` do.
"""

from __future__ import annotations

import os
import secrets
from typing import Any

from sharpwave.distributed.fleet import Unroll, Weights
from sharpwave.distributed.grpc_fleet import GrpcFleet
from sharpwave.distributed.recipe import ActorRecipe
from sharpwave.distributed.security import Access
from sharpwave.extras import require
from sharpwave.notice import notice

__all__ = ["RayFleet"]


class RayFleet(GrpcFleet):
    """Actors as processes of Ray, on the machines of a cluster.

    Args:
        recipe: What makes the actors.
        *spaces: As `GrpcFleet` takes them.
        cluster: The address of a Ray cluster, or "auto"; None starts a Ray on this machine, which
            ends with the fleet.
        cpus: Of Ray's, for each actor.
        **options: Of `GrpcFleet`, but where to listen and who may join.
    """

    def __init__(
        self,
        recipe: ActorRecipe,
        *spaces: Any,
        cluster: str | None = None,
        cpus: float = 1.0,
        **options: Any,
    ) -> None:
        super().__init__(recipe, *spaces, **options)
        assert recipe.env is not None
        self._env_id = recipe.env.env
        self._cluster, self._cpus = cluster, cpus
        self._ray: Any = None
        self._owns_ray = False
        self._group: Any = None
        self._nodes: list[Any] = []
        self._acting: list[Any] = []

    def start(self, weights: Weights, version: int) -> None:
        """Let the actors begin, or go on after `pause`, with these weights.

        Raises:
            ConnectionError: There is no such cluster.
            PermissionError: The cluster takes everybody.
            RuntimeError: The fleet was stopped.
        """
        if self._ray is None and not self._stops:
            self._join_cluster()
        super().start(weights, version)
        if not self._nodes:
            self._place()

    def receive(self, timeout: float) -> Unroll | None:
        """The oldest unroll; None if there was none in so many seconds.

        Raises:
            Exception: What ended an actor that is not started again.
        """
        unroll = super().receive(timeout)
        if unroll is None and self._acting:
            ended, self._acting = self._ray.wait(
                self._acting, num_returns=len(self._acting), timeout=0
            )
            self._ray.get(ended)
        return unroll

    def stop(self, timeout: float = 5.0) -> None:
        """End the actors, and the Ray of this fleet."""
        super().stop(timeout)
        ray, self._ray = self._ray, None
        if ray is None:
            return
        self._acting = []
        if self._owns_ray:
            ray.shutdown()
        elif ray.is_initialized():
            for node in self._nodes:
                ray.kill(node)
            if self._group is not None:
                ray.util.remove_placement_group(self._group)
        self._nodes = []

    def _join_cluster(self) -> None:
        """Use the Ray that is there, that of the address, or a new one."""
        ray = require("ray", extra="ray")
        is_local = self._cluster is None and not ray.is_initialized()
        if not ray.is_initialized():
            of_its_own: dict[str, Any] = {}
            if is_local:
                n_cpus = max(os.cpu_count() or 1, round(self._n_actors * self._cpus))
                of_its_own = {"num_cpus": n_cpus, "include_dashboard": False}
            ray.init(self._cluster, logging_level="ERROR", log_to_driver=False, **of_its_own)
            self._owns_ray = True
        if is_local:
            notice(
                "started Ray on this machine. It listens on all interfaces, and whoever holds its "
                "token may run code here"
            )
        else:
            self._check_cluster(ray)
            # Actors of other machines have to find the learner; a token of this run lets them in.
            self._host = ray.util.get_node_ip_address()
            self._access = Access(token=secrets.token_urlsafe(32))
        self._ray = ray

    def _check_cluster(self, ray: Any) -> None:
        if os.environ.get("RAY_AUTH_MODE", "").lower() == "token":
            return
        if self._owns_ray:
            ray.shutdown()
        raise PermissionError(
            "a Ray cluster must ask for tokens, since it runs the code of whoever reaches it: "
            "start it with RAY_AUTH_MODE=token, and set that and RAY_AUTH_TOKEN here"
        )

    def _place(self) -> None:
        """Reserve places on the machines, and start a node in each."""
        ray, cpus = self._ray, self._cpus
        self._group = ray.util.placement_group([{"CPU": cpus}] * self._n_actors, strategy="SPREAD")
        strategies = ray.util.scheduling_strategies
        node_of_ray = ray.remote(_RayNode)
        for number in range(self._n_actors):
            where = strategies.PlacementGroupSchedulingStrategy(
                self._group, placement_group_bundle_index=number
            )
            # Ray starts an actor again for ever; one that fails by itself ends as nodes do.
            node = node_of_ray.options(
                num_cpus=cpus, max_restarts=-1, max_task_retries=-1, scheduling_strategy=where
            ).remote()
            self._nodes.append(node)
            self._acting.append(node.act.remote(self.address, self._access.token, self._env_id))


class _RayNode:
    """A node of one actor in a process of Ray."""

    def act(self, learner: str, token: str | None, env: str) -> None:
        """Act until the learner has finished."""
        from sharpwave.distributed.node import Node

        Node(learner, Access(token=token), env=env).run()
