"""Tune the options of an algorithm in an environment."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, get_args

from sharpwave.algorithms.registry import (
    algorithm_class,
    is_of_language,
    is_of_many_agents,
    source_names,
)
from sharpwave.config.config import Config
from sharpwave.config.files import write_yaml
from sharpwave.core.suggest import did_you_mean
from sharpwave.learners.devices import n_cores
from sharpwave.storage.files import replace_file
from sharpwave.tuning import page, spaces
from sharpwave.tuning.spaces import Space
from sharpwave.tuning.study import Pruner, Sampler, Study, held
from sharpwave.tuning.trials import Job, Outcome, Trial, TrialProcess

Options: TypeAlias = Mapping[str, Any] | str | os.PathLike[str]
"""Named options, or the file that has them."""

PATIENCE = 5
"""Trials that may fail, or be lost, before one has ended well."""


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """A study and the files that tell of it."""

    best: Trial
    """The complete trial of the greatest value."""
    trials: list[Trial]
    """All trials in order."""
    importances: dict[str, float]
    """Share of the differences in value that each option explains."""
    config: Path
    """YAML file of the best configuration, which `--config` and `Trainer(config=...)` take."""
    page: Path
    """Page with the history, importances and all trials."""
    storage: Path
    """The study itself."""


def tune(
    algorithm: str,
    env: str,
    *,
    trials: int = 50,
    storage: str | os.PathLike[str] | None = None,
    space: Options | None = None,
    config: Options | None = None,
    sampler: Sampler = "tpe",
    pruner: Pruner = "median",
    jobs: int = 0,
    seconds: float | None = None,
    evaluations: int = 5,
    eval_episodes: int = 10,
    seed: int = 0,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[str] = (),
    imports: Sequence[str] = (),
    on_trial: Callable[[Trial], object] | None = None,
    **options: Any,
) -> Tuned:
    """Search for options whose training ends with the greatest return.

    Trials are processes, several at a time. Called again with the same storage it goes on, also
    after it was killed; the best configuration and a page stand beside the storage.

    Args:
        algorithm: Name of an algorithm that learns in an environment, such as `ppo`.
        env: Id of the environment.
        trials: Trials of the study, those of earlier calls included.
        storage: File of the study; `tuning/ALGORITHM_ENV.journal` when not given.
        space: The options to vary, as a dict or a file: each has `{"low": 1e-5, "high": 1e-2,
            "log": True}`, or a list of choices. The algorithm's own when not given.
        config: Options that trials begin with, as a dict or a file; the space varies some of them.
        sampler: tpe, random or cmaes, which proposes what to try.
        pruner: median, halving or none, which cuts trials at their evaluations.
        jobs: Trials at the same time; 0 for as many as there are cores.
        seconds: Begin no trial after so long; None for no limit.
        evaluations: Evaluations of a trial, the last of which is its value.
        eval_episodes: Episodes of each.
        seed: Seed of the proposals; that of a trial's training follows from it.
        env_kwargs: Arguments of the environment.
        wrappers: Wrappers of the environment, the innermost first, each as module:Class.
        imports: Modules that a trial imports first, such as one that registers the environment.
        on_trial: Called with every trial that ends.
        **options: Options of the algorithm that stay as they are, such as `total_timesteps`.

    Raises:
        FolderLockedError: Another process tunes with this storage.
        ImportError: optuna is not installed.
        RuntimeError: No trial of the study ended well.
        TypeError: An option is unknown.
        ValueError: An argument, or an option or its range, is impossible.

    Example:
        >>> def search():
        ...     tuned = sw.tune("ppo", "CartPole-v1", trials=20, total_timesteps=50_000)
        ...     return sw.Trainer("ppo", "CartPole-v1", config=tuned.config)
    """
    cls = _class(algorithm)
    _check_choice("sampler", sampler, get_args(Sampler))
    _check_choice("pruner", pruner, get_args(Pruner))
    for name, value, least in (
        ("trials", trials, 1),
        ("jobs", jobs, 0),
        ("evaluations", evaluations, 1),
        ("eval_episodes", eval_episodes, 1),
    ):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    fixed = cls.Config._known(options)
    begun = _options(cls.Config, config)
    whole = cls.Config.from_dict({**begun, **fixed}).to_dict()
    varied = _space(cls.name, cls.Config, space, fixed)
    path = Path(storage or Path("tuning") / f"{cls.name}_{env.replace('/', '-')}.journal")
    jobs = jobs or n_cores()
    given = {*begun, *fixed, "total_timesteps"} - varied.keys()
    base = {name: value for name, value in whole.items() if name in given}
    one_core = {"threads": 1} if jobs > 1 and "threads" in whole.keys() - given else {}
    job = Job(
        algorithm=cls.name,
        env=env,
        env_kwargs=dict(env_kwargs or {}),
        wrappers=list(wrappers),
        imports=list(imports),
        evaluations=evaluations,
        eval_episodes=eval_episodes,
        config={**base, **one_core},
    )
    description = {
        "algorithm": job.algorithm,
        "env": job.env,
        "env_kwargs": job.env_kwargs,
        "wrappers": job.wrappers,
        "evaluations": evaluations,
        "space": spaces.described(varied),
        "options": base,
    }
    with held(path):
        study = Study(
            path, description, varied, cls.Config, sampler=sampler, pruner=pruner, seed=seed
        )
        until = float("inf") if seconds is None else time.monotonic() + seconds
        _Search(study, job, trials, until, seed, on_trial, one_core=jobs > 1).run(jobs)
        return _written(study, path, job, base)


class _Search:
    """Threads that ask the study for trials, each of which it follows in a process."""

    def __init__(
        self,
        study: Study,
        job: Job,
        trials: int,
        until: float,
        seed: int,
        on_trial: Callable[[Trial], object] | None,
        *,
        one_core: bool,
    ) -> None:
        self._study = study
        self._job = job
        self._until = until
        self._seed = seed
        self._on_trial = on_trial
        self._one_core = one_core
        self._lock = threading.Lock()
        self._running: set[TrialProcess] = set()
        self._stopped = False
        known = study.trials()
        self._left = trials - sum(trial.state != "lost" for trial in known)
        self._ended_well = any(trial.state in ("complete", "pruned") for trial in known)
        self._in_vain = 0

    def run(self, jobs: int) -> None:
        """Make trials until there are as many as were asked for."""
        with ThreadPoolExecutor(min(jobs, max(self._left, 1)), "trial") as pool:
            try:
                futures = [pool.submit(self._work) for _ in range(pool._max_workers)]
                done, _ = wait(futures, return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()
            finally:
                with self._lock:
                    self._stopped = True
                    for process in self._running:
                        process.kill()

    def _work(self) -> None:
        while True:
            with self._lock:
                if self._stopped or self._left <= 0 or time.monotonic() > self._until:
                    return
                self._left -= 1
                asked = self._study.ask()
                config = {**self._job.config, **self._study.options(asked)}
                config.setdefault("seed", self._seed + asked.number)
                job = Job(**{**vars(self._job), "config": config})
                process = TrialProcess(job, one_core=self._one_core)
                self._running.add(process)
            try:
                outcome = process.follow(self._decides(asked))
            finally:
                with self._lock:
                    self._running.discard(process)
                    process.kill()
            with self._lock:
                self._end(asked, outcome)

    def _decides(self, asked: Any) -> Callable[[int, float], bool]:
        def goes_on(step: int, value: float) -> bool:
            with self._lock:
                return self._study.goes_on(asked, step, value)

        return goes_on

    def _end(self, asked: Any, outcome: Outcome) -> None:
        if self._stopped and outcome.state == "lost":
            outcome.reason = "the search was stopped"
        trial = self._study.tell(asked, outcome)
        if self._stopped:
            return
        if self._on_trial is not None:
            self._on_trial(trial)
        if trial.state == "lost":
            self._left += 1
        if trial.state in ("complete", "pruned"):
            self._ended_well, self._in_vain = True, 0
            return
        self._in_vain += 1
        if self._in_vain >= PATIENCE and (trial.state == "lost" or not self._ended_well):
            self._stopped = True
            raise RuntimeError(f"{self._in_vain} trials came to nothing: {trial.reason}")


def _written(study: Study, path: Path, job: Job, base: Mapping[str, Any]) -> Tuned:
    """The study as it is now, with its page and its best configuration in files."""
    tried = study.trials()
    complete = [trial for trial in tried if trial.state == "complete"]
    if not complete:
        reason = next((f": {trial.reason}" for trial in tried if trial.reason), "")
        raise RuntimeError(f"no trial of {path} ended well{reason}")
    best = max(complete, key=lambda trial: trial.value or 0.0)
    importances = study.importances()
    config, shown = path.with_suffix(".yaml"), path.with_suffix(".html")
    whole = algorithm_class(job.algorithm).Config.from_dict({**base, **best.options}).to_dict()
    write_yaml(config, {name: whole[name] for name in {**base, **best.options}})
    replace_file(shown, page.page_of(job.algorithm, job.env, tried, best, importances))
    return Tuned(
        best=best, trials=tried, importances=importances, config=config, page=shown, storage=path
    )


def _class(algorithm: str) -> Any:
    cls = algorithm_class(algorithm)
    if is_of_language(cls) or is_of_many_agents(cls) or "env_id" not in source_names(cls):
        raise ValueError(
            f"algorithm must be one of those that learn in an environment of one agent, such as "
            f"{', '.join(spaces.SPACES)}; got {algorithm}"
        )
    return cls


def _options(config: type[Config], given: Options | None) -> dict[str, Any]:
    if given is None or isinstance(given, Mapping):
        return config._known(given or {})
    return config.read_options(os.fspath(given))


def _space(
    algorithm: str, config: type[Config], given: Options | None, fixed: Mapping[str, Any]
) -> Space:
    """The options to vary; of the algorithm's own space those that are not given."""
    if given is None:
        own = spaces.space_of(algorithm)
        return {name: domain for name, domain in own.items() if name not in fixed}
    asked = (
        spaces.space_for(given)
        if isinstance(given, Mapping)
        else spaces.read_space(os.fspath(given))
    )
    checked = spaces.checked(asked, config)
    both = sorted(checked.keys() & fixed.keys())
    if both:
        raise ValueError(f"{both[0]} is in the space and is given as {fixed[both[0]]!r}")
    return checked


def _check_choice(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        close = did_you_mean(value, known)
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}{close}")
