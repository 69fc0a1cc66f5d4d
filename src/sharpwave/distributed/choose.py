"""Choice of a fleet's actors: threads, processes, other machines over gRPC, or Ray."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from sharpwave.collect import NativeRollouts
from sharpwave.core.notice import notice
from sharpwave.distributed.actors import FleetActor
from sharpwave.distributed.fleet import Fleet
from sharpwave.distributed.launch import why_not_pickled
from sharpwave.distributed.processes import ProcessFleet
from sharpwave.distributed.recipe import ActorRecipe, Followers, make_actor
from sharpwave.distributed.security import Access
from sharpwave.distributed.supervise import MOST_FAILURES, Lives
from sharpwave.distributed.threads import ThreadFleet
from sharpwave.distributed.wire import split_address
from sharpwave.distributed.workers import WorkerRecipe

__all__ = ["Listening", "make_fleet"]


class Listening(NamedTuple):
    """Address at which actors of other machines join (for Ray, the cluster's), and who may."""

    address: str | None = None
    access: Access = Access()

    def of_rank(self, rank: int) -> Listening:
        """That of one of several learners, each of which listens at a port of its own.

        Args:
            rank: Number of the learner, which is added to the port; 0 takes a free one for each.

        Example:
            >>> Listening("10.0.0.1:50051").of_rank(2).address
            '10.0.0.1:50053'
        """
        if self.address is None:
            return self
        host, port = split_address(self.address)
        where = f"[{host}]" if ":" in host else host
        return self._replace(address=f"{where}:{port + rank if port else 0}")


def make_fleet(
    actors: str,
    recipe: ActorRecipe,
    env: Any,
    *,
    n_actors: int,
    n_weights: int,
    max_in_flight: int,
    in_step: bool,
    listening: Listening | None = None,
    followers: Followers | None = None,
) -> Fleet:
    """Make a fleet of the kind that was asked for, or of the one that fits.

    Args:
        actors: Kind of fleet, as the option `actors` names it. "auto" takes threads for native
            environments, which run beside each other there, and processes for several actors in
            environments of Python, where these can be made in other processes.
        recipe: Recipe that makes the actors.
        env: Environments that are there already, for the first actor of this process.
        n_actors: Number of actors.
        n_weights: Number of weights.
        max_in_flight: Most unrolls that are under way or wait.
        in_step: Keep actors in step with updates: weights of an unroll do not depend on timing.
        listening: Address at which actors of other machines join.
        followers: Makes policies of torch for the actors that Ray starts.

    Raises:
        TypeError: The environment or the policy cannot be pickled for processes, or has no name for
            actors elsewhere.
        ValueError: The environment cannot be made again for processes.
    """
    options: dict[str, Any] = {"max_in_flight": max_in_flight, "in_step": in_step}
    if actors in ("grpc", "ray"):
        if actors == "ray":
            options["followers"] = followers
        options["n_actors"] = n_actors
        return _fleet_elsewhere(actors, recipe, env, listening or Listening(), **options)
    # Environments that cannot be made again are lost with the first failure.
    lives = Lives(n_actors, most_failures=1 if recipe.env is None else MOST_FAILURES)
    is_native = NativeRollouts.why_not(env) is None
    at_servers = isinstance(recipe.env, WorkerRecipe)
    if actors == "auto":
        pays = not is_native and n_actors > 1 and why_not_pickled(recipe) is None
        actors = "processes" if pays else "threads"
    elif actors == "threads" and not is_native and n_actors > 1 and not at_servers:
        notice(
            f"{n_actors} actors in threads take turns in environments of Python, as one thread at "
            'a time interprets: they are no faster than one. actors="processes" runs them at once'
        )
    if actors == "threads":
        options["step_timeout"] = recipe.step_timeout
        return ThreadFleet(partial(_actor_here, recipe, env), lives, **options)
    if recipe.env is None:
        raise ValueError(
            f"actors must be 'threads' where env_id is an environment without an id, got "
            f"{actors!r}: pass an id, or a function that makes it"
        )
    if at_servers:  # where its place is the first actor's
        env.close()
    return ProcessFleet(recipe, lives, n_weights, **options)


def _fleet_elsewhere(
    actors: str, recipe: ActorRecipe, env: Any, listening: Listening, **options: Any
) -> Fleet:
    # Imported here: others start sooner without.
    from sharpwave.distributed.grpc_fleet import GrpcFleet
    from sharpwave.distributed.ray_fleet import RayFleet

    spaces = env.single_observation_space, env.single_action_space
    if actors == "ray":
        return RayFleet(recipe, *spaces, cluster=listening.address, **options)
    address = listening.address or "127.0.0.1:0"
    return GrpcFleet(recipe, *spaces, address=address, access=listening.access, **options)


def _actor_here(recipe: ActorRecipe, env: Any, number: int, life: int) -> FleetActor:
    """An actor of this process; the first one has the environments that are there already."""
    uses_first = (number == 0 and life == 0) or recipe.env is None
    return make_actor(recipe, number, life, env if uses_first else None)
