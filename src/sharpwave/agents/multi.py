"""Agents that learn for several agents of one environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from gymnasium import spaces

from sharpwave import envs
from sharpwave.agents.online import OnlineAgent
from sharpwave.agents.opponents import (
    FunctionActor,
    opponent_of_file,
    opposing_learner,
    to_copy,
    to_json,
)
from sharpwave.agents.play import one_action
from sharpwave.collect.joint import GroupView, JointView, flat_rows
from sharpwave.envs.masks import choices
from sharpwave.envs.multi import MultiAgentVectorEnv, make_multi_env
from sharpwave.envs.multi.form import MASK, split_mask
from sharpwave.envs.multi.groups import checked_groups
from sharpwave.learners import Seeds
from sharpwave.learners.actor import RolloutActor
from sharpwave.learners.choose import choose
from sharpwave.learners.columns import declared_columns
from sharpwave.learners.groups import GroupLearners, GroupRolloutActor
from sharpwave.loops.multi_source import MultiEnvSource
from sharpwave.runs.evaluation import evaluate_team
from sharpwave.runs.interval import positive
from sharpwave.storage.files import reading

if TYPE_CHECKING:
    from typing_extensions import Self

    from sharpwave.config.options import RunConfig
    from sharpwave.envs.multi import MultiStep
    from sharpwave.loops.source import EnvSource
    from sharpwave.runs.evaluation import EvaluationResult

__all__ = ["MultiAgent"]


class MultiAgent(OnlineAgent):
    """An agent that learns in multi-agent environments, with a policy for each group of agents.

    Args:
        env_id: An id such as "mpe2/simple_spread_v3", a PettingZoo or Gymnasium environment, a
            function that makes one, or a `MultiAgentVectorEnv`.
        n_agents: Number of agents that the environment must have; None for any number.
        n_envs: Number of environments; what `config` says when not given, like every option below.
        seed: Seed of weights, actions and environments; drawn when there is none.
        policy: A network in place of the algorithm's own, for the only group of agents.
        logger: A logger of the metrics, or several.
        callbacks: Called during every `train`.
        env_fn: A function that makes the environment, in place of `env_id`.
        groups: The agents of each group by its name; None for agents of equal spaces whose names
            differ in the trailing number.
        opponents: Groups that do not learn, by name: a checkpoint, an agent, a learner of a group
            or a function from observations [B, ...] to actions plays them, or None lets them be as
            they begin.
        **options: As those of other agents.

    Raises:
        TypeError: An option does not exist (the nearest name is in the message).
        ValueError: An option has an impossible value.
    """

    Source = MultiEnvSource
    own_arguments: ClassVar[dict[str, Any]] = {"env_fn": None, "groups": None, "opponents": None}
    leading_arguments: ClassVar[dict[str, Any]] = {
        "env_id": OnlineAgent.leading_arguments["env_id"],
        "n_agents": None,
        **{k: v for k, v in OnlineAgent.leading_arguments.items() if k != "env_id"},
    }
    learner: GroupLearners

    def __init__(
        self,
        env_id: Any = None,
        n_agents: int | None = None,
        n_envs: int | None = None,
        seed: int | None = None,
        policy: Any = None,
        logger: Any = None,
        callbacks: Any = None,
        *,
        env_fn: Any = None,
        groups: Any = None,
        opponents: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        if opponents is not None and not isinstance(opponents, Mapping):
            raise TypeError(f"opponents must be a mapping of groups to players, got {opponents!r}")
        self._n_agents = None if n_agents is None else positive(n_agents, name="n_agents")
        self._groups, self._opponents = groups, dict(opponents or {})
        self._has_other_opponents = False
        env = env_id if env_fn is None else env_fn
        super().__init__(env, n_envs, seed, policy, logger, callbacks, **options)

    def _make_env(self, source: EnvSource) -> Any:
        """The environments of a run."""
        assert isinstance(source, MultiEnvSource)
        source.groups = self._groups if self.config.share_policy else "each"
        env = source.make(self.own_config.n_envs, self.own_config.env_mode)
        if self._n_agents not in (None, len(env.agents)):
            env.close()
            raise ValueError(
                f"n_agents must be {len(env.agents)}, as many as the environment has "
                f"({', '.join(env.agents)}), got {self._n_agents}"
            )
        for name in self._opponents.keys() - env.groups.keys():
            raise ValueError(f"opponents must name groups, {sorted(env.groups)}, got {name!r}")
        if self._opponents.keys() == env.groups.keys():
            raise ValueError(f"opponents must leave a group that learns, got {sorted(env.groups)}")
        return env

    def build(self) -> None:
        """Choose the learner of each group, and make the loop that feeds them."""
        vars(self).pop("play_generator", None)
        env = self.env
        joint = JointView(env, self.config.critic_input)
        self.config = self.config.replace(critic_input=joint.kind)  # as runs and files have it
        config, alike = self.own_config, self._groups_alike()
        members, reasons = {}, {}
        for i, name in enumerate(env.groups):
            view = GroupView(env, name, joint, agent_id=config.agent_id)
            choice = choose(
                type(self),
                config.of_group(name, env.groups, alike),
                view.observation_space,
                env.action_spaces[name],
                learner=self._given_learner,
                seeds=self._seeds_of(i),
                given=self._networks_of(view),
                against=view.why_not_native(),
                view=view,
            )
            members[name], reasons[name] = choice.learner, choice.reason
        self.learner = GroupLearners(config, members, frozenset(self._opponents))
        kind = self.learner.kind  # torch, where one of them needs it
        self.backend_reason = next(reasons[name] for name in members if members[name].kind == kind)
        # Built again, it plays against the same, whatever became of the files.
        given = {**self._opponents, **vars(self).get("_opposing", {})}
        self._opposing = {name: opposing_learner(self, name, given[name]) for name in given}
        self.loop = self.Loop.of(self, self.learner, joint, self._actors(config.n_envs, True))

    @property
    def teams(self) -> dict[str, tuple[str, ...]]:
        """The groups that are paid together with each group, where `team_reward` is set.

        Where every agent has a policy of its own, those that would share one.
        """
        if self.config.share_policy:
            return {name: (name,) for name in self.env.groups}
        return {agent: agents for agents in self._groups_alike().values() for agent in agents}

    def _groups_alike(self) -> dict[str, tuple[str, ...]]:
        """The groups as they are, or would be, where policies are shared."""
        env = self.env
        if self.config.share_policy:
            return dict(env.groups)
        spaces = {x: (env.observation_spaces[x], env.action_spaces[x]) for x in env.groups}
        return checked_groups(self._groups, {agent: spaces[agent] for agent in env.agents})

    def _seeds_of(self, number: int) -> Seeds:
        """The seeds of a group: those of the run for the first one."""
        if number == 0:
            return Seeds.of(self.seed)
        derived = np.random.SeedSequence((self.seed, number)).generate_state(1, np.uint64)[0]
        return Seeds.of(int(derived >> np.uint64(1)))

    def _networks_of(self, view: GroupView) -> dict[str, Any]:
        given = {name: one for name, one in self.given_networks.items() if one is not None}
        if given and (len(self.env.groups) > 1 or not view.is_plain):
            raise ValueError(
                "policy must be for one group whose networks look at the observation alone: "
                f'set critic_input="obs" and agent_id=False, got the groups {list(self.env.groups)}'
            )
        return given

    def _actors(self, n_envs: int, explore: bool, generators: Any = None) -> dict[str, Any]:
        """The actor of each group, in `n_envs` environments."""
        actors: dict[str, Any] = {}
        for name, member in self.learner.members.items():
            learner = self._opposing.get(name) or member
            if callable(learner):
                actors[name] = self._function_actor(name, learner)
                continue
            actors[name] = GroupRolloutActor(
                learner,
                n_envs,
                learns=name not in self._opponents,
                explore=explore,
                columns=declared_columns(member) if generators is None else None,
                generator=None if generators is None else generators[name],
            )
        return actors

    def _function_actor(self, group: str, function: Any) -> FunctionActor:
        space = self.env.action_spaces[group]
        n_choices = None if isinstance(space, spaces.Box) else sum(choices(space))
        return FunctionActor(function, n_choices)

    # Play

    def predict(
        self,
        obs: Any,
        deterministic: bool = True,
        agent_idx: int = 0,
        agent: str | None = None,
        action_masks: Any = None,
        *,
        state: Any = None,
        episode_start: Any = None,
    ) -> Any:
        """The action of one agent for its observation, or those of all agents for all of theirs.

        Args:
            obs: The observation of an agent, or a batch of them; or a dict of such by agent, empty
                where nobody is there. Where it is as the environment gives it, with an entry
                "action_mask", that holds.
            deterministic: The mode of the policy; otherwise a sample.
            agent_idx: Index of the agent whose observation it is, among all agents.
            agent: The same by its name.
            action_masks: Actions that are allowed, [n] or [B, n]; of several agents a dict.
            state: Memory of recurrent policies, which the last call returned; of several agents a
                dict, too.
            episode_start: True where the life of an agent begins with the observation, for one or
                for each of a batch; all do when None.

        Returns:
            For one observation an `int` (Discrete actions) or an array; for a batch an array; for a
            dict a dict of these. With `state` or `episode_start` a pair of that and the memory to
            pass next.

        Raises:
            TypeError: Masks or memories of several agents are no dicts, or `agent_idx` no integer.
            ValueError: The agent is unknown, or the shape is not that of its observation.
        """
        if isinstance(obs, Mapping) and (obs or agent is None) and self._is_by_agent(obs, agent):
            masks = _by_agent("action_masks", action_masks)
            states = _by_agent("state", state)
            each = {
                name: self._predict(
                    name, one, deterministic, masks.get(name), states.get(name), episode_start
                )
                for name, one in obs.items()
            }
            chosen = {name: action for name, (action, _) in each.items()}
            memory = {name: kept for name, (_, kept) in each.items()}
        else:
            name = self._agent_at(agent_idx) if agent is None else agent
            chosen, memory = self._predict(
                name, obs, deterministic, action_masks, state, episode_start
            )
        return chosen if state is None and episode_start is None else (chosen, memory)

    def _agent_at(self, number: int) -> str:
        names = self.env.agents
        if not hasattr(number, "__index__"):
            raise TypeError(f"agent_idx must be an integer, got {number!r}")
        if not 0 <= number < len(names):
            raise ValueError(f"agent_idx must be below {len(names)}, got {number}")
        return str(names[number])

    def _is_by_agent(self, obs: Mapping[str, Any], agent: str | None) -> bool:
        """Return whether observations are those of agents by name, not the entries of one.

        Raises:
            ValueError: They must be, and name an agent that there is not.
        """
        unknown = sorted(map(str, obs.keys() - set(self.env.agents)))
        if MASK in unknown:
            return False
        named = self.env.groups if agent is None else [self._seat(agent)[0]]
        has_entries = any(isinstance(self.env.observation_spaces[x], spaces.Dict) for x in named)
        if agent is not None and not unknown and not has_entries:
            raise ValueError(f"agent must be None where obs are of agents by name, got {agent!r}")
        if unknown and not has_entries:
            raise ValueError(
                f"obs must be of agents among {', '.join(self.env.agents)}, got {unknown[0]!r}"
            )
        return agent is None and not unknown

    def _predict(
        self, agent: str, obs: Any, deterministic: bool, masks: Any, state: Any, starts: Any
    ) -> tuple[Any, Any]:
        """The action of one agent, and its memory."""
        group, number = self._seat(agent)
        obs, mask = split_mask(self.env.observation_spaces[group], obs)
        masks = mask if masks is None else masks
        batch, n, single = envs.as_batch(self.env.observation_spaces[group], obs)
        learner = self._opposing.get(group) or self.learner[group]
        masks = None if masks is None else np.asarray(masks, np.bool_).reshape(n, -1)
        if callable(learner):
            actions: Any = self._function_actor(group, learner).play(batch, None, masks)
            return (one_action(actions) if single else actions), None
        actor = RolloutActor(
            learner, n, explore=not deterministic, generator=self.play_generator[group]
        )
        if not deterministic:
            actor.begin_rollout()
        if state is not None:
            actor.state = state
        begins = np.empty(n, np.bool_)
        begins[:] = state is None if starts is None else starts
        seen = learner.view.inputs(batch, np.full(n, number), None)
        actions = actor.play(seen, begins, masks)
        return (one_action(actions) if single else actions), actor.state

    def _seat(self, agent: str) -> tuple[str, int]:
        for group, members in self.env.groups.items():
            if agent in members:
                return group, members.index(agent)
        raise ValueError(f"agent must be one of {', '.join(self.env.agents)}, got {agent!r}")

    def player(self, n_envs: int, deterministic: bool) -> Any:
        """The policies, ready to play `n_envs` environments from their start."""
        return _Team(self._actors(n_envs, not deterministic, self.play_generator), n_envs)

    def evaluate(
        self,
        n_episodes: int = 20,
        *,
        env: Any = None,
        deterministic: bool = True,
        seed: int | None = None,
    ) -> EvaluationResult:
        """Play whole episodes in a separate environment.

        Args:
            n_episodes: Number of episodes.
            env: Environment to play in; one like that of training when not given.
            deterministic: Play the modes of the policies, not samples of them.
            seed: Seed of the environment; one that follows from the run's when not given.

        Returns:
            The return of a team is the mean of its agents' returns, of those that learn; the
            returns of all agents are in `agents`.

        Raises:
            ValueError: `env` is not given and the training environment cannot be made again, its
                agents are not those of training, or `n_episodes` is less than 1.
        """
        n_episodes = positive(n_episodes, name="n_episodes")
        is_own = not isinstance(env, MultiAgentVectorEnv)
        if env is None:
            played = self.make_env(min(n_episodes, 8))
        else:
            played = make_multi_env(env, groups=dict(self.env.groups)) if is_own else env
        if seed is None:
            seed = int(np.random.SeedSequence((self.seed, 1)).generate_state(1)[0] >> 1)
        try:
            if dict(played.groups) != dict(self.env.groups):
                raise ValueError(
                    f"env must have the groups of training, {dict(self.env.groups)}, "
                    f"got {dict(played.groups)}"
                )
            learning = self.env.groups.keys() - self._opponents.keys()
            return evaluate_team(
                self.player(played.num_envs, deterministic), played, n_episodes, seed, learning
            )
        finally:
            if is_own and (isinstance(env, type) or not hasattr(env, "step")):
                played.close()

    # Checkpoints

    def _header(self) -> dict[str, Any]:
        groups = {name: list(agents) for name, agents in self._groups_alike().items()}
        opponents = {name: to_json(opponent) for name, opponent in self._opposing.items()}
        return {**super()._header(), "groups": groups, "opponents": opponents}

    @classmethod
    def _from_header(
        cls,
        path: str | os.PathLike[str],
        header: dict[str, Any],
        config: RunConfig,
        arguments: dict[str, Any],
    ) -> Self:
        if arguments.get("env_fn") is not None:
            arguments["env_id"] = arguments.pop("env_fn")
        with reading(path):
            groups = {str(name): tuple(agents) for name, agents in header["groups"].items()}
            opponents = dict(header["opponents"])
        arguments.setdefault("groups", groups)
        is_given = arguments.get("opponents") is not None
        if not is_given:
            arguments["opponents"] = {
                name: opponent_of_file(path, cls.Config, name, saved)
                for name, saved in opponents.items()
            }
        agent = super()._from_header(path, header, config, arguments)
        agent._has_other_opponents = is_given
        return agent

    def _check_same(self, header: dict[str, Any]) -> None:
        saved = {name: tuple(agents) for name, agents in header["groups"].items()}
        if saved != self._groups_alike():
            raise ValueError(f"its groups are {saved}, not {self._groups_alike()}")
        opponents = sorted(header["opponents"])
        if opponents != sorted(self._opponents):
            raise ValueError(f"its opponents are {opponents}, not {sorted(self._opponents)}")
        super()._check_same(header)

    def _state(self) -> dict[str, Any]:
        learners = {k: x for k, x in self._opposing.items() if hasattr(x, "state_dict")}
        return {**super()._state(), "opponents": {k: x.state_dict() for k, x in learners.items()}}

    def _load_state(self, state: dict[str, Any], *, in_flight: bool = False) -> None:
        super()._load_state(state, in_flight=in_flight)
        if not self._has_other_opponents:
            for name, saved in state["opponents"].items():
                self._opposing[name].load_state_dict(saved)

    def _arguments(self) -> dict[str, Any]:
        opponents = {name: to_copy(opponent) for name, opponent in self._opposing.items()}
        own = {"groups": self._groups, "opponents": opponents, "n_agents": self._n_agents}
        return {**super()._arguments(), **own}


def _by_agent(name: str, given: Any) -> Mapping[str, Any]:
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(
            f"{name} must be a dict by agent where obs are those of several, "
            f"got {type(given).__name__}"
        )
    return given or {}


class _Team:
    """The policies of all groups, at play."""

    def __init__(self, actors: dict[str, Any], n_envs: int) -> None:
        self._actors, self._n_envs = actors, n_envs
        for actor in actors.values():
            actor.begin_rollout()

    def play(self, step: MultiStep, starts: Mapping[str, Any]) -> dict[str, Any]:
        """Actions [N, G, ...] by group for what a step left to act on."""
        actions = {}
        for name, actor in self._actors.items():
            group = step.groups[name]
            masks = None if group.masks is None else flat_rows(group.masks)
            begins, acts = starts[name].reshape(-1), group.alive.reshape(-1)
            chosen = actor.play(flat_rows(group.obs), begins, masks, acts)
            actions[name] = chosen.reshape(self._n_envs, -1, *chosen.shape[1:])
        return actions
