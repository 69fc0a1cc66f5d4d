"""A study in a file: what was tried, and what is to be tried next.

One process at a time writes the file. What it wrote before it was killed counts: trials that were
running then are lost, and others take their place.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from sharpwave.config.config import Config
from sharpwave.core.optional import require
from sharpwave.errors import FolderLockedError
from sharpwave.tuning.spaces import Choices, Range, Space, is_integer, options_of
from sharpwave.tuning.trials import Outcome, State, Trial

Sampler: TypeAlias = Literal["tpe", "random", "cmaes"]
Pruner: TypeAlias = Literal["median", "halving", "none"]

NAME = "sharpwave"
DESCRIPTION, STATE, REASON = "description", "state", "reason"
"""Names of what a study and its trials keep beside the numbers."""


class Study:
    """Proposes configurations and keeps how they went.

    Args:
        path: The file, whose lock is held: see `held`.
        description: What the study is of; a file of another one is refused.
        space: The options that it varies.
        config: The configuration that has them.
        sampler: How configurations are proposed.
        pruner: How trials that do badly are cut.
        seed: Seed of the proposals.

    Raises:
        ImportError: optuna is not installed.
        ValueError: The file holds something else, or another study.
    """

    def __init__(
        self,
        path: Path,
        description: Mapping[str, Any],
        space: Space,
        config: type[Config],
        *,
        sampler: Sampler,
        pruner: Pruner,
        seed: int,
    ) -> None:
        optuna = require("optuna", extra="tune")
        journal = require("optuna.storages.journal", extra="tune")
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        _check_is_journal(path)
        self._optuna = optuna
        self._config = config
        self._distributions = {
            name: self._distribution(name, domain) for name, domain in space.items()
        }
        backend = journal.JournalFileBackend(str(path), lock_obj=_Held())
        self._study = optuna.create_study(
            study_name=NAME,
            storage=optuna.storages.JournalStorage(backend),
            direction="maximize",
            load_if_exists=True,
            pruner=self._pruner(pruner),
        )
        self._check_description(path, description)
        self._lose_running()
        # A study that goes on proposes other configurations than those it began with.
        begun = seed + len(self._study.get_trials(deepcopy=False))
        self._study.sampler = self._sampler(sampler, begun)

    def ask(self) -> Any:
        """A trial with the options to try, which is running from now on."""
        return self._study.ask(self._distributions)

    def options(self, trial: Any) -> dict[str, Any]:
        """The options of a trial."""
        return options_of(trial.params, self._config)

    def goes_on(self, trial: Any, step: int, value: float) -> bool:
        """Keep the value of an evaluation; True if the trial is worth going on with."""
        trial.report(value, step)
        return not trial.should_prune()

    def tell(self, trial: Any, outcome: Outcome) -> Trial:
        """Keep how a trial ended."""
        states = self._optuna.trial.TrialState
        trial.set_user_attr(STATE, outcome.state)
        if outcome.reason is not None:
            trial.set_user_attr(REASON, outcome.reason)
        if outcome.state == "complete":
            self._study.tell(trial, outcome.value)
        else:
            pruned = outcome.state == "pruned"
            self._study.tell(trial, state=states.PRUNED if pruned else states.FAIL)
        return self.trials()[int(trial.number)]

    def trials(self) -> list[Trial]:
        """All trials in order."""
        return [self._trial(frozen) for frozen in self._study.get_trials(deepcopy=False)]

    def importances(self) -> dict[str, float]:
        """The share of the differences in value that each option explains, the greatest first.

        Nothing before there are enough trials that differ.
        """
        evaluator = self._optuna.importance.PedAnovaImportanceEvaluator()
        complete = [trial for trial in self.trials() if trial.state == "complete"]
        if len({trial.value for trial in complete}) < 4:
            return {}
        found = self._optuna.importance.get_param_importances(self._study, evaluator=evaluator)
        return {name: float(share) for name, share in found.items()}

    def _trial(self, frozen: Any) -> Trial:
        reported = frozen.intermediate_values
        value = frozen.value if frozen.value is not None else reported.get(max(reported, default=0))
        state: State = frozen.user_attrs.get(STATE, "lost")
        return Trial(
            number=frozen.number,
            options=options_of(frozen.params, self._config),
            state=state,
            value=value,
            seconds=None if frozen.duration is None else frozen.duration.total_seconds(),
            reason=frozen.user_attrs.get(REASON),
        )

    def _check_description(self, path: Path, description: Mapping[str, Any]) -> None:
        given = json.loads(json.dumps(description))
        kept = self._study.user_attrs.get(DESCRIPTION)
        if kept is None:
            self._study.set_user_attr(DESCRIPTION, given)
            return
        for name in [*given, *kept]:
            if kept.get(name) != given.get(name):
                raise ValueError(
                    f"storage {path} holds a study with {name} {kept.get(name)}, "
                    f"got {given.get(name)}: another storage takes another study"
                )

    def _lose_running(self) -> None:
        states = self._optuna.trial.TrialState
        for frozen in self._study.get_trials(deepcopy=False, states=[states.RUNNING]):
            self._study.tell(frozen.number, state=states.FAIL)

    def _distribution(self, name: str, domain: Range | Choices) -> Any:
        kinds = self._optuna.distributions
        if isinstance(domain, Choices):
            return kinds.CategoricalDistribution(domain.values)
        if is_integer(name, self._config):
            return kinds.IntDistribution(int(domain.low), int(domain.high), log=domain.log)
        return kinds.FloatDistribution(domain.low, domain.high, log=domain.log)

    def _sampler(self, name: Sampler, seed: int) -> Any:
        samplers = self._optuna.samplers
        if name == "random":
            return samplers.RandomSampler(seed=seed)
        if name == "cmaes":
            require("cmaes", extra="tune")
            independent = samplers.TPESampler(seed=seed, constant_liar=True)
            return samplers.CmaEsSampler(
                seed=seed, independent_sampler=independent, warn_independent_sampling=False
            )
        # Trials that run at the same time should not be near each other.
        return samplers.TPESampler(seed=seed, constant_liar=True)

    def _pruner(self, name: Pruner) -> Any:
        pruners = self._optuna.pruners
        if name == "halving":
            return pruners.SuccessiveHalvingPruner()
        return pruners.MedianPruner() if name == "median" else pruners.NopPruner()


class _Held:
    """A lock that is held for as long as the study is open, so that nobody has to wait for it."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Keep the file of a study from other processes; a line that was cut is taken off first.

    Raises:
        FolderLockedError: Another process tunes with it.
        OSError: It cannot be opened or made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderLockedError(
                f"storage {path} is in use: another process tunes with it"
            ) from None
        _cut_torn_line(descriptor)
        yield
    finally:
        os.close(descriptor)


def _cut_torn_line(descriptor: int) -> None:
    """Take off what a process that was killed wrote of its last line."""
    size = os.fstat(descriptor).st_size
    text = os.pread(descriptor, size, 0)
    if text.startswith(b"{"):
        os.ftruncate(descriptor, text.rfind(b"\n") + 1)


def _check_is_journal(path: Path) -> None:
    with path.open("rb") as file:
        first = file.readline(1000)
    if first:
        try:
            is_journal = "op_code" in json.loads(first)
        except ValueError:
            is_journal = False
        if not is_journal:
            raise ValueError(f"storage must be the file of a study, {path} holds something else")
