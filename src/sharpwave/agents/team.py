"""Agents that learn for several agents by one rule for all of them, from replay."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from sharpwave.agents.multi import MultiAgent
from sharpwave.collect.joint import GroupView, JointView
from sharpwave.envs.multi.joint import JointVectorEnv
from sharpwave.learners.choose import choose
from sharpwave.learners.team import Team

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sharpwave.loops.source import EnvSource

__all__ = ["TeamAgent"]


class TeamAgent(MultiAgent):
    """An agent whose learner values what all agents of a team do together.

    Args:
        env_id: As `MultiAgent` takes it; the actions of all agents must be Discrete.
        n_agents: Number of agents that the environment must have; None for any number.
        n_envs: Number of environments; what `config` says when not given, like every option below.
        seed: Seed of weights, actions and environments; drawn when there is none.
        policy: Not here: it makes its own networks.
        logger: A logger of the metrics, or several.
        callbacks: Called during every `train`.
        env_fn: A function that makes the environment, in place of `env_id`.
        groups: The agents of each group by its name; None for agents of equal spaces whose names
            differ in the trailing number.
        **options: As those of other agents.

    Attributes:
        joint_env: The environment as the learner sees it, a `JointVectorEnv`.

    Raises:
        TypeError: An option does not exist, or actions are not Discrete.
        ValueError: An option has an impossible value.
    """

    own_arguments: ClassVar[dict[str, Any]] = {"env_fn": None, "groups": None}
    joint_env: JointVectorEnv
    learner: Any

    def build(self) -> None:
        """Choose the learner of the team, and make the loop that feeds it."""
        vars(self).pop("play_generator", None)
        env = self.env
        mixer_input = getattr(self.config, "mixer_input", None)
        if mixer_input is not None:
            kind = self._kind_of(mixer_input)
            self.config = self.config.replace(mixer_input=kind)  # as runs and files have it
        config = self.own_config
        self.joint_env = JointVectorEnv(
            env,
            has_state=mixer_input is not None and kind == "state",
            has_begins=config.recurrent is not None,
        )
        alone = JointView(env, "obs")
        team = Team(
            {x: GroupView(env, x, alone, agent_id=config.agent_id) for x in env.groups},
            dict(env.observation_spaces),
            dict(env.action_spaces),
        )
        choice = choose(
            type(self),
            config,
            self.joint_env.single_observation_space,
            self.joint_env.single_action_space,
            learner=self._given_learner,
            seeds=self.Loop.seeds(self.seed),
            given={},
            team=team,
        )
        self.learner, self.backend_reason = choice.learner, choice.reason
        self._opposing: dict[str, Any] = {}
        self.loop = self.Loop.of(self, choice)

    def _make_env(self, source: EnvSource) -> Any:
        """The environments of a run."""
        if self._opponents:
            raise TypeError(f"opponents must not be given: {self.name} learns for all agents")
        return super()._make_env(source)

    def _kind_of(self, mixer_input: str) -> str:
        """The input of the mixer, where "auto" stands for one.

        Raises:
            ValueError: The environment does not have it.
        """
        if mixer_input == "state" and self.env.state_space is None:
            raise ValueError(
                "mixer_input must be 'concat' or 'auto' here, got 'state': the environment has none"
            )
        try:
            kind: str = JointView(self.env, mixer_input).kind  # type: ignore[arg-type]
        except ValueError as error:
            _, _, why = str(error).partition(": ")
            raise ValueError(f"mixer_input must be 'state' here, got 'concat': {why}") from error
        if kind == "obs":
            raise ValueError(
                "mixer_input needs a state where observations cannot lie side by side, and the "
                "environment has none"
            )
        return kind

    @cached_property
    def play_generator(self) -> Mapping[str, Any]:
        """Play outside of training draws from its own, so that it does not change the run."""
        seed = self.learner.seeds.playing
        return {name: self.learner.make_generator(seed) for name in self.env.groups}
