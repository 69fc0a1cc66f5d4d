"""Carries out a plan, from its beginning or from where it was interrupted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sharpwave.algorithms.trainer import Trainer
from sharpwave.cli.environment import env_of
from sharpwave.cli.language import model_arguments, source_arguments
from sharpwave.cli.run_plan import Plan, RunOptions
from sharpwave.cli.terminal import complain, input_errors, say
from sharpwave.cli.together import SharedCores, Tell
from sharpwave.config.options import draw_seed
from sharpwave.errors import EnvironmentFailed, NonFiniteError, RankLost, RewardFailed
from sharpwave.learners.devices import n_cores
from sharpwave.pages.text import count, duration
from sharpwave.pages.units import counted
from sharpwave.runs import callbacks, loggers
from sharpwave.runs.callbacks import EvalCallback
from sharpwave.storage.run_folder import RunFolder

FAILED = 1
BY_SIGNAL = {"SIGINT": 130, "SIGTERM": 143}


def carry_out(
    plan: Plan,
    run_dir: Path,
    *,
    quiet: bool = False,
    total_timesteps: int | None = None,
    begin: Callable[[], object] = lambda: None,
) -> int:
    """Train every seed of a plan that is not complete, and report on them.

    Args:
        plan: The plan of the run.
        run_dir: The folder of the run.
        quiet: Say only what goes wrong.
        total_timesteps: Steps of every seed, if not those of the plan.
        begin: Called when all that can be checked was found right, before the first step.

    Returns:
        The exit status: 0, 1 after a failure, 130 or 143 after a signal.
    """
    folders, configs = plan.folders(run_dir), plan.configs()
    ranks = plan.ranks
    quiet = quiet or not ranks.leads
    jobs = (
        1
        if len(folders) == 1 or not ranks.is_alone
        else plan.jobs or _jobs(plan, folders[0], configs[0])
    )
    makers = [
        partial(_trainer, plan, folder, config, quiet or jobs > 1)
        for folder, config in zip(folders, configs, strict=True)
    ]
    train = partial(_train, total_timesteps=total_timesteps, leads=ranks.leads)
    if jobs > 1:
        begin()  # the first run was made already, to know how many there can be at a time
        status = SharedCores(makers, train, jobs, quiet).run()
    else:
        status = _one_after_another(makers, train, partial(_tell, quiet), begin)
    if status in BY_SIGNAL.values() and ranks.leads:
        complain(f"go on with: sharpwave resume {run_dir}")
    if status == 0 and len(folders) > 1:
        from sharpwave.pages.report import write_comparison

        comparison = run_dir / "comparison.html"
        write_comparison(folders, comparison)
        _tell(quiet, f"comparison of {count(len(folders), 'seed')}: {comparison}")
    return status


def _jobs(plan: Plan, folder: Path, config: dict[str, Any]) -> int:
    """All cores for runs in native code; others would wait for each other in Python."""
    if plan.language:
        return 1
    with input_errors():
        trainer = _trainer(plan.replace(logger=()), folder, config, quiet=True)
    trainer.close()
    is_native = getattr(trainer.algo, "backend", None) == "native"
    return n_cores() if is_native else 1


def _one_after_another(
    makers: Sequence[Callable[[], Trainer]],
    train: Callable[[Trainer, Tell], int],
    tell: Tell,
    begin: Callable[[], object],
) -> int:
    for number, make in enumerate(makers):
        with input_errors():
            trainer = make()
        if number == 0:
            begin()
        status = train(trainer, tell)
        if status != 0:
            return status
    return 0


def _trainer(plan: Plan, folder: Path, config: dict[str, Any], quiet: bool) -> Trainer:
    total = int(config.get("total_timesteps", 0))
    called = callbacks_of(plan, folder, total, quiet)
    logger = loggers_of(plan, folder, total, quiet)
    trainer = _made(plan, folder, config, called, logger)
    if plan.video and plan.env_id is not None:
        from sharpwave.runs.video import check_filming

        check_filming(trainer.algo)
    return trainer


def _made(
    plan: Plan, folder: Path, config: dict[str, Any], called: list[Any], logger: list[Any]
) -> Trainer:
    latest = RunFolder(folder).latest_checkpoint
    if config.get("seed") is None and not latest.is_file():
        begun = RunFolder(folder).config  # of a run that was killed before its first checkpoint
        config = {**config, "seed": begun.get("seed")}
    given: dict[str, Any] = {"run_dir": folder, "callbacks": called, "logger": logger}
    if plan.language:
        given |= source_arguments(plan)
        if latest.is_file():
            return Trainer.from_checkpoint(latest, **given)
        seed = draw_seed() if config.get("seed") is None else config["seed"]
        model = model_arguments(plan, seed)
        return Trainer(plan.algorithm, config={**config, "seed": seed}, **model, **given)
    given |= plan.agents
    if plan.env_kwargs:
        given["env_kwargs"] = plan.env_kwargs
    if latest.is_file():
        given.pop("opponents", None)  # the checkpoint holds them as they were
        if config.get("worker_addresses") is not None:  # where the run goes on
            given |= {name: config[name] for name in ("worker_addresses", "tls")}
        return Trainer.from_checkpoint(latest, env_of(plan), **given)
    return Trainer(plan.algorithm, env_of(plan), dataset=plan.dataset, config=config, **given)


def _train(trainer: Trainer, tell: Tell, *, total_timesteps: int | None, leads: bool) -> int:
    algo = trainer.algo
    assert trainer.run_dir is not None
    folder = RunFolder(trainer.run_dir)
    target = total_timesteps or algo.target_timesteps or algo.config.total_timesteps
    if target <= algo.timesteps:
        tell(f"{folder.path}: complete at {counted(algo.timesteps, algo.unit)}")
        return 0
    tell(_headline(trainer, target))
    tell(f"run folder: {folder.path}")
    try:
        trainer.train(target, resume=True)  # the folder is its own
    except (EnvironmentFailed, NonFiniteError, OSError, RankLost, RewardFailed) as error:
        complain(error)
        if folder.latest_checkpoint.is_file():
            complain(f"what was learned is in {folder.checkpoints}")
        if folder.report_file.is_file():
            complain(f"report: {folder.report_file}")
        return FAILED
    finally:
        trainer.close()
    seconds = folder.summary.get("wall_seconds")  # as the report has it
    tell(f"{counted(algo.timesteps, algo.unit)} in {duration(seconds)}")
    if algo.stop_reason in BY_SIGNAL:
        at = counted(algo.timesteps, algo.unit)
        if leads:  # of several processes one speaks for all
            complain(f"stopped by {algo.stop_reason} at {at}")
        return BY_SIGNAL[algo.stop_reason]
    if algo.stop_reason is not None:
        tell(f"stopped early: {algo.stop_reason}")
    for evaluations in algo.callbacks:
        if isinstance(evaluations, EvalCallback) and evaluations.history:
            last = evaluations.history[-1]
            n_values = len(folder.evaluations()[-1].returns)
            each = "episode" if algo.headline is None else algo.headline.each
            success = f", success rate {last['success_rate']:.0%}" if "success_rate" in last else ""
            over = f"{count(n_values, each)}{success}"
            tell(f"evaluation: {last['mean']:,.2f} ± {last['std']:,.2f} over {over}")
    tell(f"report: {folder.report_file}")
    return 0


def callbacks_of(plan: Plan, folder: Path, total: int, quiet: bool) -> list[Any]:
    """The callbacks that a plan asks for."""
    run = RunFolder(folder)
    eval_freq = max(total // 5, 1) if plan.eval_freq is None else plan.eval_freq
    found: list[Any] = []
    if eval_freq and (plan.env_id is not None or plan.language):
        size = plan.language.get("eval_size", plan.eval_episodes)
        found.append(EvalCallback(eval_freq=eval_freq, n_eval_episodes=size))
    if plan.checkpoint_freq:
        found.append(callbacks.CheckpointCallback(plan.checkpoint_freq, run.checkpoints))
    if plan.video and plan.env_id is not None:
        film_freq = eval_freq or max(total // 5, 1)
        found.append(callbacks.VideoCallback(run.videos, record_freq=film_freq))
    if not quiet and sys.stdout.isatty():
        found.append(callbacks.ProgressCallback())
    return found


def loggers_of(options: RunOptions, folder: Path, total: int, quiet: bool) -> list[Any]:
    """The loggers that the options ask for."""
    makers: dict[str, Callable[[], Any]] = {
        "tensorboard": lambda: loggers.TensorBoardLogger(folder / "tensorboard"),
        "wandb": lambda: loggers.WandbLogger("sharpwave", name=str(folder)),
        "mlflow": lambda: loggers.MLflowLogger(run_name=str(folder)),
    }
    found: list[Any] = [makers[name]() for name in options.logger]
    if not quiet and not sys.stdout.isatty():
        found.append(loggers.ConsoleLogger(log_interval=max(total // 20, 1)))
    return found


def _headline(trainer: Trainer, target: int) -> str:
    algo = trainer.algo
    start = f" from {algo.timesteps:,}" if algo.timesteps else ""
    what = [f"{algo.name} on {algo.subject}", f"seed {algo.config.seed}", computed_by(algo)]
    return f"{', '.join(filter(None, what))},{start} to {counted(target, algo.unit)}"


def computed_by(algo: Any) -> str:
    """The backend that computes, or a model and its device, in words."""
    model = algo.facts().get("model")
    return backend_of(algo) if model is None else f"{model} on {algo.device_name}"


def backend_of(algo: Any) -> str:
    """The backend, with the reason where it may surprise; "" where a run does not say."""
    if not hasattr(algo, "backend"):
        return ""
    if algo.backend == "native" or algo.config.backend == "torch":
        return f"{algo.backend} backend"
    return f"{algo.backend} backend ({algo.backend_reason})"


def _tell(quiet: bool, line: str) -> None:
    if not quiet:
        say(line)
