"""A fleet of actors that Ray places on the machines of a cluster, starts and restarts.

Ray has nothing to do with unrolls and weights: its processes are nodes that join the learner over
gRPC, as those of `sharpwave actor` do.
"""

from __future__ import annotations

from typing import Any

from sharpwave.distributed.fleet import Unroll, Weights
from sharpwave.distributed.grpc_fleet import GrpcFleet
from sharpwave.distributed.ray_cluster import RayCluster
from sharpwave.distributed.recipe import ActorRecipe, Followers
from sharpwave.distributed.security import Access

__all__ = ["RayFleet"]


class RayFleet(GrpcFleet):
    """Actors as processes of Ray, on the machines of a cluster.

    Args:
        recipe: Recipe that makes the actors.
        *spaces: As `GrpcFleet` takes them.
        cluster: The address of a Ray cluster, or "auto"; None starts a Ray on this machine, which
            ends with the fleet.
        cpus: CPUs of Ray for each actor.
        followers: Makes policies of torch there; see `Node`.
        **options: Options of `GrpcFleet`, but for `address` and `access`.
    """

    def __init__(
        self,
        recipe: ActorRecipe,
        *spaces: Any,
        cluster: str | None = None,
        cpus: float = 1.0,
        followers: Followers | None = None,
        **options: Any,
    ) -> None:
        super().__init__(recipe, *spaces, **options)
        assert recipe.env is not None
        self._env_id = recipe.env.env
        self._cluster, self._cpus, self._followers = cluster, cpus, followers
        self._joined: RayCluster | None = None
        self._acting: list[Any] = []

    def start(self, weights: Weights, version: int) -> None:
        """Let the actors begin, or go on after `pause`, with these weights.

        Raises:
            ConnectionError: There is no such cluster, or it has no room for the actors.
            PermissionError: The cluster takes everybody.
            RuntimeError: The fleet was stopped.
        """
        if self._joined is not None or self._stops:
            super().start(weights, version)
            return
        joined = RayCluster(self._cluster)
        try:
            joined.reserve(self._n_actors, self._cpus)
        except BaseException:
            joined.leave()
            raise
        self._joined = joined
        self._host, self._access = self._joined.host, self._joined.access
        super().start(weights, version)
        self._place(self._joined)

    def receive(self, timeout: float) -> Unroll | None:
        """The oldest unroll; None if there was none in so many seconds.

        Raises:
            Exception: The error of an actor that is not started again.
        """
        unroll = super().receive(timeout)
        if unroll is None and self._acting:
            assert self._joined is not None
            ray = self._joined.ray
            ended, self._acting = ray.wait(self._acting, num_returns=len(self._acting), timeout=0)
            ray.get(ended)
        return unroll

    def stop(self, timeout: float = 5.0) -> None:
        """End the actors, and the Ray of this fleet."""
        super().stop(timeout)
        self._acting = []
        if self._joined is not None:
            self._joined.leave()

    def _how_to_join(self) -> str:
        return "Ray starts them, `ray status` says what it waits for"

    def _place(self, cluster: RayCluster) -> None:
        """Start a node in each of as many processes as there are actors."""
        told = self.address, self._access.token, self._env_id, self._followers
        for node in cluster.place(_RayNode, self._n_actors, self._cpus):
            # One that fails by itself ends as nodes do.
            self._acting.append(node.act.remote(*told))


class _RayNode:
    """A node of one actor in a process of Ray."""

    def act(self, learner: str, token: str | None, env: str, followers: Followers | None) -> None:
        """Act until the learner has finished."""
        from sharpwave.distributed.node import Node

        Node(learner, Access(token=token), env=env, followers=followers).run()
