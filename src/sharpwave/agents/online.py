"""Online agents, which learn from their own steps in environments."""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Iterable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

from sharpwave import envs
from sharpwave.agents import exported, play
from sharpwave.agents.agent import Agent
from sharpwave.agents.together import own_part, save_together
from sharpwave.config.convert import choices_of
from sharpwave.config.online import OnlineConfig
from sharpwave.config.options import AlgorithmConfig, RunConfig, resolve_config
from sharpwave.config.presets import preset, settings_of
from sharpwave.core.ranks import ALONE, Ranks
from sharpwave.envs.atari import is_atari
from sharpwave.learners import Learner as AnyLearner
from sharpwave.learners.choose import choose
from sharpwave.learners.devices import likely_gpu
from sharpwave.loops.source import (
    EnvSource,
    find_normalizer,
    is_another,
    saved_env,
)
from sharpwave.runs.callbacks import Callback
from sharpwave.runs.loggers import LoggerCallback
from sharpwave.storage.checkpoints import read_header
from sharpwave.storage.files import reading

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["OnlineAgent"]


class OnlineAgent(Agent):
    """An agent that learns in environments.

    Args:
        env_id: A Gymnasium id, an environment, a function that makes one, or a vector environment.
        n_envs: Number of environments; what `config` says when not given, like every option below.
        seed: Seed of weights, actions and environments; drawn when there is none.
        policy: A network in place of the algorithm's own.
        logger: A logger of the metrics, or several.
        callbacks: Called during every `train`.
        config: All options at once; single options given by name win over it.
        env_kwargs: Passed to the environment's constructor.
        learner: A class derived from the algorithm's learner, in place of it.
        preset: Settings by name, that of an environment or a size (`sharpwave list presets` shows
            them); single options win over them.
        buffer: Of algorithms that learn from replay: "memory", a folder, or a buffer, one of this
            library or anything with `push(obs, action, reward, terminated, truncated, next_obs)`,
            `sample(batch_size)` and a length.
        token: Of algorithms with actors: the secret that processes on other machines show, which is
            kept in no file.
        **overrides: Any field of `Config`.

    Raises:
        TypeError: An option does not exist (the nearest name is in the message).
        ValueError: An option has an impossible value.
    """

    Config: ClassVar[type[OnlineConfig]]
    Loop: ClassVar[Any]
    """The class of the loop that feeds the learner."""
    takes: ClassVar[tuple[str, ...]] = ()
    """Networks that the constructor takes in place of its own; `policy` is the first of them."""
    secrets: ClassVar[tuple[str, ...]] = ()
    """Arguments that are written nowhere: neither into files nor into copies."""
    collects_natively: ClassVar[bool] = False
    """True if native code may collect the rollouts that torch learns from."""
    of_atari: ClassVar[dict[str, Any]] = {}
    """Arguments of Atari games that are not given otherwise, so that it sees what it knows."""
    learns_together: ClassVar[bool] = False
    """True if several processes can learn together, each in environments of its own."""
    leading_arguments: ClassVar[dict[str, Any]] = {
        "env_id": inspect.Parameter.empty,
        "n_envs": None,
        "seed": None,
        "policy": None,
        "logger": None,
        "callbacks": None,
    }
    named_arguments: ClassVar[dict[str, Any]] = {
        "env_kwargs": None,
        "learner": None,
        "preset": None,
    }
    own_arguments: ClassVar[dict[str, Any]] = {}
    """Arguments by name that a kind of agents has beside these."""
    Source: ClassVar[type[EnvSource]] = EnvSource
    """The class of the source of its environments."""
    source: EnvSource

    def __init_subclass__(cls) -> None:
        networks = dict.fromkeys(name for name in cls.takes if name != "policy")
        secrets = dict.fromkeys(cls.secrets)
        own = {**cls.own_arguments, **networks, **secrets}
        cls.named_arguments = {**OnlineAgent.named_arguments, **own}
        super().__init_subclass__()

    def __init__(
        self,
        env_id: Any,
        n_envs: int | None = None,
        seed: int | None = None,
        policy: Any = None,
        logger: LoggerCallback | Iterable[LoggerCallback] | None = None,
        callbacks: Callback | Iterable[Callback] | None = None,
        *,
        config: AlgorithmConfig | dict[str, Any] | None = None,
        env_kwargs: dict[str, Any] | None = None,
        learner: type[AnyLearner] | None = None,
        preset: str | None = None,
        **overrides: Any,
    ) -> None:
        if preset is not None:
            overrides = {**settings_of(self.name, preset), **overrides}
        self.given_networks = {name: overrides.pop(name, None) for name in self.takes}
        self.given_secrets = {name: overrides.pop(name, None) for name in self.secrets}
        self.given_buffer = None
        self.ranks = Ranks.join() if self.learns_together else ALONE
        if isinstance(overrides.get("buffer"), os.PathLike):
            overrides["buffer"] = os.fspath(overrides["buffer"])
        elif not isinstance(overrides.get("buffer", ""), str):
            self.given_buffer = overrides.pop("buffer")
        given = {"n_envs": n_envs, "seed": seed}
        overrides.update({name: value for name, value in given.items() if value is not None})
        source = self.Source(env_id, env_kwargs)
        if source.n_envs is not None:  # a process has those that it was given
            n_learners = self.ranks.size if "n_envs" in self.Config.divided else 1
            overrides.setdefault("n_envs", source.n_envs * n_learners)
        super().__init__(resolve_config(self.Config, config, overrides), callbacks, logger)
        self.config = self.config.replace(seed=self.ranks.first(self.seed))
        if policy is not None:
            if not self.takes:
                raise TypeError(f"policy must not be given: {self.name} makes its own networks")
            self.given_networks[self.takes[0]] = policy
        if getattr(self.config, "worker_addresses", None) is not None:
            self._use_workers(source, n_envs)
        self.source = source
        self._given_learner = learner
        self._is_another_env = False
        self.env = self._make_env(source)
        self.observation_space = self.env.single_observation_space
        self.action_space = self.env.single_action_space
        self.normalizer = find_normalizer(self.env)
        self.build()

    def _use_workers(self, source: EnvSource, n_envs: int | None) -> None:
        """Take the environments of servers, and as many as they have."""
        access = self.config.access(self.given_secrets["token"])
        found = source.use_workers(self.config, access, self.ranks)
        if n_envs not in (None, found):
            raise ValueError(
                f"n_envs must be {found}, as many as an actor's servers have, got {n_envs}"
            )
        self.config = self.config.replace(n_envs=found)

    def _make_env(self, source: EnvSource) -> Any:
        """The environments of a run, normalized where that is asked for."""
        config = self.own_config
        if config.env_mode == "auto" and isinstance(source.env, str) and is_atari(source.env):
            source.env_kwargs = {**self.of_atari, **source.env_kwargs}
        if config.env_mode == "device":
            source.device = likely_gpu() if config.device == "auto" else config.device
        env = source.make(config.n_envs, config.env_mode)
        envs.check_spaces(env)
        if self._normalizes_on_device(env):
            self.config = self.config.replace(normalize_obs="policy")
            return env
        norm_obs = config.normalize_obs is True
        if norm_obs or config.normalize_rewards:
            env = envs.VecNormalize(
                env,
                norm_obs=norm_obs,
                norm_reward=config.normalize_rewards,
                gamma=config.gamma,
            )
        return env

    def _normalizes_on_device(self, env: Any) -> bool:
        """Return whether observations of tensors are left to statistics of the policy."""
        config = self.config
        has_both = config.normalize_obs is True and not config.normalize_rewards
        known = "policy" in choices_of(type(config).annotations()["normalize_obs"])
        is_own = self.given_networks.get("policy") is not None
        return has_both and known and not is_own and isinstance(env, envs.TensorVectorEnv)

    def learn(self, total_timesteps: int | None = None, **options: Any) -> dict[str, float]:
        """The same as `train`, under the name that Stable-Baselines3 has for it."""
        return self.train(total_timesteps, **options)

    predict = play.predict
    export = exported.export
    player = play.player
    make_env = play.make_env
    evaluate = play.evaluate
    play_generator = cached_property(play.play_generator)
    env_id = property(play.env_id)
    facts = play.facts
    close = play.close

    @property
    def own_config(self) -> Any:
        """The options of this process: its share of environments and batches."""
        return self.config.share(self.ranks.size)

    def build(self) -> None:
        """Choose the learner, and make the loop that feeds it."""
        vars(self).pop("play_generator", None)
        choice = choose(
            type(self),
            self.own_config,
            self.observation_space,
            self.action_space,
            learner=self._given_learner,
            seeds=self.Loop.seeds(self.seed).of_rank(self.ranks.rank),
            given=self.given_networks,
            against=self.Loop.why_not_native(self.config, self.given_buffer),
            ranks=self.ranks,
            env_device=self.env.device if isinstance(self.env, envs.TensorVectorEnv) else None,
        )
        self.learner, self.backend_reason = choice.learner, choice.reason
        self.loop = self.Loop.of(self, choice)
        if not self.ranks.is_alone:
            self.ranks.helpers["save"] = partial(save_together, self)

    @classmethod
    def preset(cls, env_id: str, **overrides: Any) -> Self:
        """This algorithm with its preset for an environment.

        Raises:
            ValueError: There is no preset for it.
        """
        return cls(env_id, **{**preset(cls.name, env_id), **overrides})

    @classmethod
    def from_checkpoint(
        cls, path: str | os.PathLike[str], env_id: Any = None, *, env: Any = None, **options: Any
    ) -> Self:
        """The agent that `save` wrote, ready to predict or to go on with `train()`.

        Args:
            path: The file.
            env_id: The environment; the one in the checkpoint when not given.
            env: The same, by the name that it has elsewhere.
            **options: Constructor arguments that replace what was saved: `device`, `callbacks`,
                `policy` for a network of your own. With another `n_envs` new episodes begin. What
                was trained at `worker_addresses` has environments here, unless some are given.

        Raises:
            SharpwaveIOError: There is no checkpoint of a known version.
            ValueError: It belongs to another algorithm, or needs `env` or `policy`: one that names
                a module of its own, as in `my_module:My-v0`, needs `env`.
        """
        given = {"env_id": env if env_id is None else env_id, **options}
        return cls._restore(path, {**_without_servers(path), **given})

    @classmethod
    def _from_header(
        cls,
        path: str | os.PathLike[str],
        header: dict[str, Any],
        config: RunConfig,
        arguments: dict[str, Any],
    ) -> Self:
        with reading(path):
            env, is_custom = header["env"], header["custom_policy"]
            names = ("observation_space", "action_space")
            spaces = {name: envs.space_from_json(header[name]) for name in names}
        if arguments["env_id"] is None and env is None:
            raise ValueError(
                f"env must be given: {path} was trained in an environment without an id"
            )
        arguments["env_id"], arguments["env_kwargs"] = saved_env(
            path, env, arguments["env_id"], arguments.get("env_kwargs")
        )
        if is_custom and arguments.get("policy") is None:
            raise ValueError(f"policy must be given: {path} was trained with a custom network")
        agent = cls(config=config, **arguments)  # type: ignore[arg-type]
        for name, saved in spaces.items():
            space = getattr(agent, name)
            if saved != space:
                wanted = f"{name.replace('_', ' ')} of the checkpoint, {saved}"
                raise ValueError(f"env_id must have the {wanted}, got {space}")
        agent._is_another_env = is_another(env, agent.env_id)
        return agent

    def _header(self) -> dict[str, Any]:
        return {
            **super()._header(),
            "env": self.source.to_json(),
            "observation_space": envs.space_to_json(self.observation_space),
            "action_space": envs.space_to_json(self.action_space),
            "custom_policy": self.given_networks.get("policy") is not None,
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint: everything that continuing needs; see `Agent.save`.

        Of several processes all take part, and the first one writes.
        """
        if self.ranks.size == 1:
            super().save(path)
        else:
            self.ranks.ask("save", path, self.loop.keeps_replay)
            save_together(self, path, self.loop.keeps_replay)

    def _arguments(self) -> dict[str, Any]:
        env, env_kwargs = self.source.to_copy()
        store = getattr(self.loop, "store", None)
        if store is not None:
            store.check_copy()
        buffer = {} if self.given_buffer is None else {"buffer": self.given_buffer}
        own = {"env_id": env, "env_kwargs": env_kwargs, "learner": self._given_learner}
        return {**own, **self.given_networks, **buffer}

    def _state(self) -> dict[str, Any]:
        # Environments have no state before the first step.
        saves = self.run.timesteps and not self.loop.keeps_envs
        return {
            **super()._state(),
            "n_envs": self.own_config.n_envs,
            "normalizer": None if self.normalizer is None else self.normalizer.state_dict(),
            "env": envs.environment_state(self.env) if saves else None,
            "env_random": envs.random_state(self.env) if saves else None,
        }

    def _load_state(self, state: dict[str, Any], *, in_flight: bool = False) -> None:
        """Continue from `_state`; with other environments, or more, in new episodes."""
        state, is_shared_alike = own_part(self, state)
        is_as_many = state["n_envs"] == self.own_config.n_envs
        same = is_as_many and is_shared_alike and not self._is_another_env
        env_state = state["env"] if same else None
        if self.normalizer is not None and state["normalizer"] is not None:
            self.normalizer.load_state_dict(state["normalizer"])
        if env_state is not None:
            envs.restore_environment_state(self.env, env_state)
        elif same and state["env_random"] is not None:
            # Environments of another kind under the same id draw as they are seeded.
            with contextlib.suppress(TypeError):
                envs.restore_random_state(self.env, state["env_random"])
        in_flight = same if self.loop.keeps_envs else env_state is not None
        super()._load_state(state, in_flight=in_flight)


def _without_servers(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Options of a checkpoint that name no servers of environments, which may be gone."""
    with reading(path):
        saved = read_header(path).get("config", {})
        if saved.get("worker_addresses") is None:
            return {}
        return {"worker_addresses": None, "tls": ()}
