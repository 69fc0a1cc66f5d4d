"""Base class of all agents: a learner, the loop that feeds it, and the run around them."""

from __future__ import annotations

import inspect
import os
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from sharpwave.agents import hub
from sharpwave.config.options import (
    DocumentedOptions,
    RunConfig,
    constructor_signature,
    draw_seed,
)
from sharpwave.core.notice import notice
from sharpwave.errors import SharpwaveIOError
from sharpwave.runs.callbacks import Callback
from sharpwave.runs.loggers import LoggerCallback
from sharpwave.runs.run import Run as AnyRun
from sharpwave.storage.checkpoints import read_checkpoint, write_checkpoint
from sharpwave.storage.files import reading, to_json

if TYPE_CHECKING:
    from typing_extensions import Self

    from sharpwave.learners import Metrics
    from sharpwave.learners.base import BaseLearner

__all__ = ["Agent"]

LIBRARY = __name__.partition(".")[0]
PARTS = ("run", "loop", "learner")
"""Parts of an agent in which attributes are looked up that it lacks itself, in order."""


class Agent(metaclass=DocumentedOptions):
    """An agent: a learner, the loop that feeds it, and the run around both.

    A subclass gives `build`, which makes `learner` and `loop`. What is not an attribute here is
    one of the run (`timesteps`, `updates`, `loggers`), of the loop (`episodes`, `buffer`,
    `timings`) or of the learner (`policy`, `critics`, `optimizers`).

    Args:
        config: All options.
        callbacks: Called during every `train`.
        logger: A logger of the metrics, or several.

    Attributes:
        config: All options.
        learner: Networks, optimizers and the rule by which they learn.
        loop: The loop that feeds the learner.
        run: Counts, callbacks, loggers.
        backend: The backend that computes, "native" or "torch".
        backend_reason: Why that one.
    """

    name: ClassVar[str]
    Config: ClassVar[type[RunConfig]]
    Learner: ClassVar[type[BaseLearner]]
    Native: ClassVar[Any] = None
    """The compiled twin of the learner, where there is one."""
    Fused: ClassVar[Any] = None
    """The learner with kernels in its place on a GPU, where there is one."""
    Run: ClassVar[type[AnyRun]] = AnyRun
    """The class of the run around the loop."""
    leading_arguments: ClassVar[dict[str, Any]] = {}
    """Arguments of the constructor by position, with defaults."""
    named_arguments: ClassVar[dict[str, Any]] = {"callbacks": None, "logger": None}
    """Other arguments by name beside the options of `Config`."""
    __signature__: ClassVar[inspect.Signature]
    config: Any
    learner: Any
    loop: Any
    _given_learner: Any = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if hasattr(cls, "Config"):
            cls.__signature__ = constructor_signature(
                cls.leading_arguments, cls.named_arguments, cls.Config
            )
        _refuse_moved(cls)

    def __init__(
        self,
        config: RunConfig,
        callbacks: Callback | Iterable[Callback] | None,
        logger: LoggerCallback | Iterable[LoggerCallback] | None,
    ) -> None:
        _refuse_moved(type(self))  # again, since somebody may have assigned to the class
        self.config = config.replace(seed=draw_seed()) if config.seed is None else config
        self.run = self.Run(self, callbacks, logger)
        self._loaded_from = "the checkpoint"

    @abstractmethod
    def build(self) -> None:
        """Make `learner` and `loop` from the configuration."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """An attribute of the run, of the loop or of the learner."""
            if not name.startswith("_"):
                for part in PARTS:
                    found = getattr(vars(self).get(part), name, _MISSING)
                    if found is not _MISSING:
                        return found
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

        def __setattr__(self, name: str, value: Any) -> None:
            """Sets an attribute where it is read: of the agent, or of the part that has it."""
            if "learner" in vars(self) and _moved(type(self), name):
                raise AttributeError(f"{name} is a method of the learner: set agent.learner.{name}")
            own = name in vars(self) or hasattr(type(self), name) or name.startswith("_")
            parts = () if own or name in PARTS else map(vars(self).get, PARTS)
            holder = next((part for part in parts if hasattr(part, name)), None)
            if holder is None:
                object.__setattr__(self, name, value)
            else:
                setattr(holder, name, value)

    else:

        def __getattr__(self, name: str) -> Any: ...

        def __setattr__(self, name: str, value: Any) -> None: ...

    # What users do

    def train(
        self,
        total_timesteps: int | None = None,
        *,
        callbacks: Callback | Iterable[Callback] | None = None,
        run_dir: str | os.PathLike[str] | None = None,
        resume: bool = False,
    ) -> dict[str, float]:
        """Learn for a number of steps, counted in `unit`: environment steps over all environments.

        A second call goes on where the first ended, with schedules that span both. After
        `from_checkpoint`, a call without a number finishes the interrupted run.

        Args:
            total_timesteps: Steps to add; what was left of an interrupted run, or
                `config.total_timesteps`, when not given.
            callbacks: Called during this run, after the agent's own.
            run_dir: Folder that receives config, metrics, checkpoints and a report. With it,
                SIGTERM and Ctrl-C save a checkpoint and end the run. Where it holds a run already,
                a new one gets `run_dir-2`, and so on.
            resume: Go on with the run that `run_dir` holds, if it holds one: the same program,
                started again, finishes what was interrupted. `total_timesteps` is then where the
                whole run ends; nothing is done where it has got there.

        Returns:
            Metrics of the last update; of environments with `mean_return`, the mean return of the
            last 100 finished episodes.

        Raises:
            EnvironmentFailed: An environment raised.
            FileExistsError: The run goes on, and `run_dir` holds another one.
            NonFiniteError: An environment returned NaN or inf, or learning diverged.
            SharpwaveIOError: A checkpoint cannot be written.
            ValueError: `total_timesteps` is not a positive integer, or `resume` is given without
                `run_dir`, or for a run of another algorithm or other spaces.
        """
        return self.run.train(total_timesteps, callbacks, run_dir, resume)

    def update(self, batch: Any) -> Metrics:
        """Learn from a batch; see `Learner.update`."""
        metrics: Metrics = self.learner.update(batch)
        return metrics

    def close(self) -> None:
        """Let go of what training used."""
        self.loop.close()

    @property
    def seed(self) -> int:
        """Seed of the run, which was drawn where none was given."""
        seed: int = self.config.seed
        return seed

    @property
    def backend(self) -> str:
        """The backend that computes, "native" or "torch"."""
        return self.learner.kind  # type: ignore[no-any-return]

    @property
    def device(self) -> Any:
        """The `torch.device` of the networks."""
        from sharpwave.learners.devices import find_device

        return find_device(self.learner.device_name)

    def facts(self) -> dict[str, Any]:
        """Facts that tell its run from others of the same algorithm and seed."""
        return {}

    # Checkpoints and copies

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint: everything that continuing needs.

        The file is replaced at once or not at all. Saved between two updates, a run continues bit
        for bit where its environments offer their state; otherwise all but the episodes in flight
        continues.

        Raises:
            SharpwaveIOError: It cannot be written; what was at `path` is still there.
        """
        write_checkpoint(path, self._header(), self._state())

    @classmethod
    def from_checkpoint(cls, path: str | os.PathLike[str], **options: Any) -> Self:
        """The agent that `save` wrote, ready to predict or to go on with `train()`."""
        return cls._restore(path, options)

    push_to_hub = hub.push_to_hub

    @classmethod
    def from_hub(
        cls, repo_id: str, *, revision: str | None = None, token: str | None = None, **options: Any
    ) -> Self:
        """The agent that `push_to_hub` published; reading it runs no code.

        Args:
            repo_id: `USER/NAME` of the repository.
            revision: Branch, tag or commit; the main branch when None.
            token: Access token, for what is private.
            **options: As of `from_checkpoint`.

        Raises:
            ImportError: huggingface_hub is not installed.
            ValueError: It holds another algorithm, or no agent.
        """
        return cls.from_checkpoint(hub.fetched(repo_id, revision, token), **options)

    def load_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Go on from a checkpoint of a run like this one; its seed is taken over.

        Raises:
            SharpwaveIOError: There is no checkpoint of a known version.
            ValueError: It belongs to another algorithm, or to other spaces.
        """
        header, state = read_checkpoint(path)
        with reading(path):
            if header["algorithm"] != self.name:
                raise ValueError(f"it holds {header['algorithm']!r}, not {self.name!r}")
            self._check_same(header)
            if header["config"]["seed"] != self.seed:
                self.config = self.config.replace(seed=header["config"]["seed"])
                self.build()
            self._loaded_from = str(path)
            self._load_state(state)
        _tell_of_learner(self, path, header)

    @classmethod
    def _restore(cls, path: str | os.PathLike[str], options: dict[str, Any]) -> Self:
        """The agent of a checkpoint, for `from_checkpoint`; `options` replace saved ones."""
        header, state = read_checkpoint(path)
        if header.get("algorithm") != cls.name:
            found = header.get("algorithm", "something else")
            raise ValueError(f"{path} holds {found!r}, not {cls.name!r}: load it with that class")
        changed = {k: v for k, v in options.items() if _is_option(cls, k, v)}
        arguments = {k: v for k, v in options.items() if k not in changed}
        unknown = [name for name in arguments if name not in cls.__signature__.parameters]
        cls.Config._known(dict.fromkeys(unknown))  # raises, and names the nearest
        with reading(path):
            saved = {k: v for k, v in header["config"].items() if k not in changed}
            config = cls.Config.from_dict(saved)
        try:
            agent = cls._from_header(path, header, config.merge(changed), arguments)
        except ValueError as error:
            if str(path) in str(error):
                raise
            raise ValueError(f"{path}: {error}") from error
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and "allocate" not in str(error):
                raise
            raise SharpwaveIOError(f"{path} asks for more than this machine's memory") from error
        agent._loaded_from = str(path)
        try:
            with reading(path):
                agent._load_state(state)
        except ValueError as error:
            if not (others := _other_options(header["config"], agent.config)):
                raise
            raise ValueError(
                f"{error}; options are not those it was saved with: {others}"
            ) from error
        _tell_of_learner(agent, path, header)
        return agent

    def _check_same(self, header: dict[str, Any]) -> None:
        """Raise where a checkpoint is of other spaces than the agent has, if it has some."""
        for name in {"observation_space", "action_space"} & vars(self).keys():
            from sharpwave.envs import space_from_json  # who has none does without Gymnasium

            saved = space_from_json(header[name])
            if saved != getattr(self, name):
                raise ValueError(f"its {name} is {saved}, not {getattr(self, name)}")

    @classmethod
    def _from_header(
        cls,
        path: str | os.PathLike[str],  # noqa: ARG003
        header: dict[str, Any],  # noqa: ARG003
        config: RunConfig,
        arguments: dict[str, Any],
    ) -> Self:
        """An agent like the one that wrote a checkpoint, before it learned anything."""
        return cls(config=config, **arguments)

    def _header(self) -> dict[str, Any]:
        """Header of a checkpoint: algorithm, configuration and learner."""
        learner = _learner_of_user(self)
        own = {} if learner is None else {"learner": learner}
        return {"algorithm": self.name, "config": self.config.to_dict(), **own}

    def state_dict(self) -> dict[str, Any]:
        """All that learning has changed: the learner, and where its loop stands."""
        return {**self.learner.state_dict(), **self.loop.state_dict()}

    def load_state_dict(self, state: dict[str, Any], *, in_flight: bool = False) -> None:
        """Continue from `state_dict`; in new episodes, unless those in flight are still there."""
        state = self.loop.adapted(state)
        self.learner.load_state_dict(state)
        self.loop.load_state_dict(state, in_flight=in_flight, source=self._loaded_from)

    def _state(self) -> dict[str, Any]:
        """All that a run has changed."""
        return {**self.run.state_dict(), "learner": self.state_dict()}

    def _load_state(self, state: dict[str, Any], *, in_flight: bool = False) -> None:
        """Continue from `_state`."""
        self.run.load_state_dict(state)
        self.load_state_dict(state["learner"], in_flight=in_flight)

    def __reduce__(self) -> tuple[Any, ...]:
        """An agent is pickled as what made it and what a checkpoint holds, with its buffer."""
        from sharpwave.agents.copies import pickled

        return pickled(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy that goes on as the agent would, and shares nothing with it."""
        from sharpwave.agents.copies import deep_copy

        made: Self = deep_copy(self, memo)
        return made

    def __setstate__(self, company: dict[str, Any]) -> None:
        """Takes over callbacks, loggers and what else an agent was given."""
        from sharpwave.agents.copies import restore_company

        restore_company(self, company)

    @classmethod
    def _remade(cls, config: RunConfig, arguments: dict[str, Any]) -> Self:
        """A new agent from `_arguments`."""
        ours = next(kind for kind in cls.__mro__ if kind.__module__.startswith(f"{LIBRARY}."))
        agent = cls.__new__(cls)  # an __init__ of the user's may ask for anything
        ours.__init__(agent, config=config, **arguments)  # type: ignore[misc]
        return agent

    def _arguments(self) -> dict[str, Any]:
        """Arguments of the constructor beside the configuration, callbacks and loggers."""
        return {}


_MISSING = object()


def _is_option(cls: type[Agent], name: str, value: Any) -> bool:
    """Return whether an argument of the constructor is a field of the configuration."""
    is_object = name == "buffer" and not isinstance(value, str)
    return not is_object and any(field.name == name for field in fields(cls.Config))


def _other_options(saved: dict[str, Any], config: RunConfig) -> str:
    """The options that are not those of a checkpoint, in words."""
    now = to_json(config.to_dict())
    return ", ".join(
        f"{name}={now[name]} in place of {old}"
        for name, old in to_json(saved).items()
        if name in now and now[name] != old
    )


def _learner_of_user(agent: Agent) -> str | None:
    """The name of a learner that is not of this library."""
    kind = agent._given_learner or getattr(agent, "Learner", None)
    if kind is None or kind.__module__.startswith(f"{LIBRARY}."):
        return None
    return str(kind.__qualname__)


def _tell_of_learner(agent: Agent, path: str | os.PathLike[str], header: dict[str, Any]) -> None:
    """Say so where another learner goes on with the weights of one of the user's."""
    wrote = header.get("learner")
    if wrote is not None and wrote != _learner_of_user(agent):
        notice(
            f"{path} was trained by the learner {wrote!s:.80}, and goes on with that of "
            f"{type(agent).__name__}: give learner= to go on with it"
        )


def _refuse_moved(cls: type[Agent]) -> None:
    """Raise where an agent, by itself or by a mixin, has a method that only its learner calls."""
    for kind in cls.__mro__:
        for name in vars(kind) if kind is not Agent else ():
            if _moved(cls, name):
                raise TypeError(
                    f"{kind.__name__}.{name} would not be called: {name} is a method of the "
                    f"learner. Change it in a class Mine({cls.Learner.__name__}) and set "
                    "Learner = Mine"
                )


def _moved(cls: type[Agent], name: str) -> bool:
    """Return whether a name is a method of the library's learner, which agents never call."""
    given = getattr(cls, "Learner", None)
    if name.startswith("_") or name == "build" or given is None:  # agents build too
        return False
    learner = next(kind for kind in given.__mro__ if kind.__module__.startswith(f"{LIBRARY}."))
    found = inspect.getattr_static(learner, name, None)
    return callable(found) or isinstance(found, property | cached_property)
