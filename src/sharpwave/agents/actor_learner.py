"""Agents whose actors go on while the learner learns."""

from __future__ import annotations

from typing import Any, ClassVar

from sharpwave.agents.online import OnlineAgent

__all__ = ["ActorLearnerAgent"]


class ActorLearnerAgent(OnlineAgent):
    """An agent that learns from actors, each in environments of its own.

    Args:
        env_id: A Gymnasium id, an environment, a function that makes one, or a vector environment.
        n_actors: Number of actors; what `config` says when not given, like every option below.
        n_envs: Number of environments of each actor.
        seed: Seed of weights, actions and environments; drawn when there is none.
        policy: A network in place of the algorithm's own.
        logger: A logger of the metrics, or several.
        callbacks: Called during every `train`.
        **options: As those of other agents.

    Raises:
        TypeError: An option does not exist (the nearest name is in the message).
        ValueError: An option has an impossible value.
    """

    leading_arguments: ClassVar[dict[str, Any]] = {
        "env_id": OnlineAgent.leading_arguments["env_id"],
        "n_actors": None,
        **{k: v for k, v in OnlineAgent.leading_arguments.items() if k != "env_id"},
    }

    def __init__(
        self,
        env_id: Any,
        n_actors: int | None = None,
        n_envs: int | None = None,
        seed: int | None = None,
        policy: Any = None,
        logger: Any = None,
        callbacks: Any = None,
        **options: Any,
    ) -> None:
        if n_actors is not None:
            options["n_actors"] = n_actors
        super().__init__(env_id, n_envs, seed, policy, logger, callbacks, **options)
