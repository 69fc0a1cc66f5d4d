"""Base of the algorithms: SB3's constructor, `learn`, `predict`, environments and files."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sharpwave.compat.sb3 import files
from sharpwave.compat.sb3.environments import Training, training_env
from sharpwave.compat.sb3.learning import Learning
from sharpwave.compat.sb3.networks import Networks, PolicyForm, read_networks
from sharpwave.compat.sb3.parameters import Policy
from sharpwave.compat.sb3.refusals import absent, check_names
from sharpwave.envs import as_batch

if TYPE_CHECKING:
    from typing_extensions import Self

    from sharpwave.agents import OnlineAgent

__all__ = ["Algorithm"]

REQUIRED = ("policy", "env")
SETTABLE = ("verbose", "tensorboard_log")
"""Arguments whose attributes may be changed afterwards; others are read once."""


class Algorithm:
    """An algorithm with SB3's constructor and methods, around an agent of this library.

    `arguments` has SB3's arguments in order, with its defaults; they are attributes too.

    Attributes:
        agent: The agent, whose options, callbacks and files are there too.
    """

    Agent: ClassVar[Any]
    """The class of the agent."""
    arguments: ClassVar[dict[str, Any]] = {}
    """Arguments after `policy` and `env`, with their defaults."""
    form: ClassVar[PolicyForm]
    """The form of its policies."""
    log_interval: ClassVar[int] = 1
    """The default of `learn`."""
    has_masks: ClassVar[bool] = False
    """True if it looks for `action_masks`."""
    stores_raw: ClassVar[bool] = False
    """True if steps are stored, and normalized when they are drawn."""
    agent: OnlineAgent

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "arguments" in vars(cls):
            kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
            required = [inspect.Parameter(name, kind) for name in REQUIRED]
            others = [inspect.Parameter(name, kind, default=x) for name, x in cls.arguments.items()]
            cls.__signature__ = inspect.Signature([*required, *others])  # type: ignore[attr-defined]

    def __init__(self, *args: Any, **options: Any) -> None:
        signature: inspect.Signature = type(self).__signature__  # type: ignore[attr-defined]
        check_names(options, signature.parameters, type(self).__name__)
        bound = signature.bind(*args, **options)
        bound.apply_defaults()
        self._given = dict(bound.arguments)
        self._env = self._take_env(self._given.pop("env"))
        self._learning = Learning(self)
        if self._given["_init_setup_model"]:
            self._setup_model()

    def _take_env(self, env: Any) -> Training | None:
        """The environments that a program gives."""
        return training_env(
            env,
            takes_seed=self._given["seed"] is not None,
            has_masks=self.has_masks,
            stores_raw=self.stores_raw,
        )

    def _setup_model(self) -> None:
        """Make the agent; the constructor does, unless `_init_setup_model` is False."""
        if self._env is None:
            raise ValueError("env must be given: only load() does without one")
        self._use(self.Agent(self._env.for_agent, **self._agent_options(self._env)))

    def _use(self, agent: OnlineAgent) -> None:
        """Take an agent as one's own."""
        self.networks.check(agent.observation_space)
        self.agent = agent
        self.policy = Policy(self)
        if self._env is not None:
            self._env.attach(agent)
        for name in ("returns", "lengths", "successes"):
            episodes = agent.episodes
            setattr(episodes, name, type(getattr(episodes, name))(maxlen=self.stats_window_size))

    def _agent_options(self, env: Training) -> dict[str, Any]:
        """Arguments of the agent beside its environment."""
        networks = self.networks
        seed = self._given["seed"]
        options = {
            **self.options(self._given),
            **networks.options,
            "learning_rate": self._given["learning_rate"],
            "gamma": self._given["gamma"],
            "device": str(self._given["device"]),
            "seed": env.seed if seed is None else seed,
        }
        if env.n_envs is None:  # an id is one environment, as in SB3
            options["n_envs"] = 1
        space = env.observation_space
        if space is not None:
            networks.check(space)
        learner = networks.learner(self.Agent.Learner, space)
        return options if learner is None else {**options, "learner": learner}

    @property
    def networks(self) -> Networks:
        """Networks that `policy` and `policy_kwargs` ask for."""
        return read_networks(self._given["policy"], self._given["policy_kwargs"], self.form)

    @abstractmethod
    def options(self, given: dict[str, Any]) -> dict[str, Any]:
        """Options of the agent for the arguments of the algorithm itself."""

    # Attributes

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """An argument of the constructor."""
            given = vars(self).get("_given", {})
            if name in given:
                return given[name]
            raise absent(type(self).__name__, name, [*given, *dir(type(self))])

        def __setattr__(self, name: str, value: Any) -> None:
            """Sets an attribute; arguments of the constructor are read once, and refused here."""
            given = vars(self).get("_given", {})
            if name in SETTABLE:
                given[name] = value
            elif name in given and name != "policy":  # which is what it became
                raise AttributeError(
                    f"{name} was read by the constructor: give it there, or to load(path, "
                    f"{name}=...)"
                )
            else:
                object.__setattr__(self, name, value)

    else:

        def __getattr__(self, name: str) -> Any: ...

        def __setattr__(self, name: str, value: Any) -> None: ...

    @property
    def num_timesteps(self) -> int:
        """Environment steps of this run so far."""
        timesteps: int = self.agent.timesteps
        return timesteps

    @property
    def n_envs(self) -> int:
        """Number of environments."""
        n_envs: int = self.agent.config.n_envs
        return n_envs

    @property
    def observation_space(self) -> Any:
        """The space of one observation."""
        return self.agent.observation_space

    @property
    def action_space(self) -> Any:
        """The space of one action."""
        return self.agent.action_space

    @property
    def device(self) -> Any:
        """The `torch.device` of the networks."""
        return self.agent.device

    @property
    def logger(self) -> Any:
        """SB3's logger of the last or current `learn`."""
        return self._learning.logger

    @property
    def ep_info_buffer(self) -> Any:
        """Return `r` and length `l` of each of the last episodes."""
        episodes = self.agent.episodes
        return self._learning.episode_infos(episodes.returns, episodes.lengths)

    def set_logger(self, logger: Any) -> None:
        """Log by a logger of SB3's from now on."""
        self._learning.set_logger(logger)

    def dump_logs(self, iteration: int = 0) -> None:
        """Write what is to be logged now."""
        self._learning.dump(iteration)

    # Learning and acting

    def learn(
        self,
        total_timesteps: int,
        callback: Any = None,
        log_interval: int | None = None,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Learn for a number of environment steps.

        Args:
            total_timesteps: Steps to add, over all environments.
            callback: A callback of SB3's, a list of them, or a function of locals and globals; or
                callbacks of this library.
            log_interval: Updates (on-policy) or episodes (off-policy) between two logs.
            tb_log_name: Name of the run for TensorBoard.
            reset_num_timesteps: Count from 0 again, in new episodes; schedules begin anew.
            progress_bar: Show a progress bar.

        Returns:
            This model.
        """
        self._learning.learn(
            total_timesteps,
            callback,
            log_interval=self.log_interval if log_interval is None else log_interval,
            tb_log_name=type(self).__name__ if tb_log_name is None else tb_log_name,
            reset_num_timesteps=reset_num_timesteps,
            progress_bar=progress_bar,
        )
        return self

    def restart(self) -> None:
        """Count from 0 again: schedules begin anew."""
        self.agent.run.restart()

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
        *,
        action_masks: Any = None,
    ) -> tuple[Any, Any]:
        """Actions for an observation or a batch, and the memory to pass next.

        Args:
            observation: As the environment of the model gives it.
            state: Memory of a recurrent policy, from the last call.
            episode_start: True where an episode begins.
            deterministic: The most likely action, not a sample.
            action_masks: Actions that are allowed.

        Returns:
            An array, for one observation without the axis of the batch; memory, or None.
        """
        agent = self.agent
        batch, n, single = as_batch(agent.observation_space, observation)
        player = agent.player(n, deterministic)
        player.normalizer = None  # observations come as the environment normalized them
        starts = np.ones(n, np.bool_)
        if state is not None:
            player.remember(self._memory(state))
            starts = np.zeros(n, np.bool_)
        if episode_start is not None:
            starts = np.full(n, episode_start, np.bool_)
        masks = None if action_masks is None else np.asarray(action_masks, np.bool_).reshape(n, -1)
        actions = np.asarray(player.play(batch, starts, masks))
        after = None if player.state is None else self._as_states(player.state)
        return (np.asarray(actions[0]) if single else actions), after

    def _memory(self, states: Any) -> Any:
        """A memory that `predict` gave, as the policy has it."""
        return states

    def _as_states(self, memory: Any) -> Any:  # noqa: ARG002 - only recurrent policies have some
        """The memory of the policy, as `predict` gives it."""
        return None

    def set_random_seed(self, seed: int | None = None) -> None:
        """Seed the action space, and the environments at their next reset."""
        if seed is not None:
            self.action_space.seed(seed)
            if self._env is not None:
                self._env.vec_env.seed(seed)

    # Environments

    @property
    def env(self) -> Any:
        """The same as `get_env()`."""
        return self.get_env()

    def get_env(self) -> Any:
        """The environments as a `VecEnv`; None of a model that was loaded without any."""
        return None if self._env is None else self._env.vec_env

    def get_vec_normalize_env(self) -> Any:
        """SB3's VecNormalize around the environments; None where there is none."""
        return None if self._env is None else self._env.normalizer

    def set_env(self, env: Any, force_reset: bool = True) -> None:  # noqa: ARG002 - always resets
        """Go on in other environments, in new episodes.

        Raises:
            ValueError: Their spaces or their number are others.
        """
        made = self._take_env(env)
        assert made is not None
        has_env = self._env is not None
        if has_env and made.n_envs not in (None, self.n_envs):
            raise ValueError(f"env must be {self.n_envs} environments, got {made.n_envs}")
        files.move(self, made)

    # Files

    def save(self, path: Any, exclude: Any = None, include: Any = None) -> None:  # noqa: ARG002
        """Write a checkpoint of this library, under SB3's name: `.zip` is added where none is.

        Args:
            path: The file, or a binary file that is open.
            exclude: Without effect.
            include: Without effect.
        """
        files.save(self, path)

    @classmethod
    def load(
        cls,
        path: Any,
        env: Any = None,
        device: Any = "auto",
        custom_objects: dict[str, Any] | None = None,
        print_system_info: bool = False,  # noqa: ARG003 - nothing to print
        force_reset: bool = True,  # noqa: ARG003 - always resets
        **kwargs: Any,
    ) -> Self:
        """The model of a file that `save` wrote, or SB3 itself.

        Args:
            path: The file; `.zip` may be left out.
            env: Environments to go on in; without any, and where the file names none, the model
                only predicts.
            device: Device of the networks.
            custom_objects: Arguments of the constructor in place of saved ones.
            print_system_info: Without effect.
            force_reset: Without effect: new episodes begin.
            **kwargs: The same as `custom_objects`.
        """
        changed = {**(custom_objects or {}), **kwargs}
        return files.load(cls, path, env, device, changed)  # type: ignore[no-any-return]

    def get_parameters(self) -> dict[str, Any]:
        """The weights by SB3's names: `{"policy": state_dict}`."""
        return {"policy": self.policy.state_dict()}

    def set_parameters(
        self,
        load_path_or_dict: Any,
        exact_match: bool = True,
        device: Any = "auto",  # noqa: ARG002 - that of the model
    ) -> None:
        """Take over weights, of `get_parameters` or of a file.

        Args:
            load_path_or_dict: Weights by SB3's names, or a file.
            exact_match: All of them must be there.
            device: Without effect.

        Raises:
            ValueError: Names or shapes are others.
        """
        given = load_path_or_dict
        if not isinstance(given, dict):
            given = type(self).load(given).get_parameters()
        check_names(
            [name for name in given if not name.endswith("optimizer")], ("policy",), "model"
        )
        self.policy.load_state_dict(given["policy"], strict=exact_match)
