"""Carries out a plan, from its beginning or from where it was interrupted."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sharpwave.cli.plan import Plan, RunOptions
from sharpwave.cli.terminal import UserError, complain, input_errors, say
from sharpwave.collect import NonFiniteError
from sharpwave.envs import EnvironmentFailed
from sharpwave.nearest import did_you_mean
from sharpwave.train import callbacks, loggers
from sharpwave.train.callbacks import EvalCallback
from sharpwave.train.run_folder import RunFolder
from sharpwave.train.trainer import Trainer

FAILED = 1
BY_SIGNAL = {"SIGINT": 130, "SIGTERM": 143}


def carry_out(
    plan: Plan, run_dir: Path, *, quiet: bool = False, total_timesteps: int | None = None
) -> int:
    """Train every seed of a plan that is not complete, and report on them.

    Args:
        plan: What to do.
        run_dir: The folder of the run.
        quiet: Say only what goes wrong.
        total_timesteps: Where every seed ends, if not where the plan says.

    Returns:
        The exit status: 0, 1 after a failure, 130 or 143 after a signal.
    """
    folders = plan.folders(run_dir)
    for folder, config in zip(folders, plan.configs(), strict=True):
        with input_errors():
            trainer = _trainer(plan, folder, config, quiet)
        status = _train(trainer, plan, run_dir, quiet, total_timesteps)
        if status != 0:
            return status
    if len(folders) > 1:
        from sharpwave.train.report import write_comparison

        comparison = run_dir / "comparison.html"
        write_comparison(folders, comparison)
        _tell(quiet, f"comparison of {len(folders)} seeds: {comparison}")
    return 0


def _trainer(plan: Plan, folder: Path, config: dict[str, Any], quiet: bool) -> Trainer:
    total = int(config.get("total_timesteps", 0))
    called = callbacks_of(plan, folder, total, quiet)
    logger = loggers_of(plan, folder, total, quiet)
    latest = RunFolder(folder).latest_checkpoint
    if latest.is_file():
        return Trainer.from_checkpoint(latest, run_dir=folder, callbacks=called, logger=logger)
    return Trainer(
        plan.algorithm,
        plan.env_id,
        dataset=plan.dataset,
        config=config,
        run_dir=folder,
        callbacks=called,
        logger=logger,
    )


def _train(
    trainer: Trainer, plan: Plan, run_dir: Path, quiet: bool, total_timesteps: int | None
) -> int:
    algo, folder = trainer.algo, Path(trainer.run_dir or run_dir)
    target = total_timesteps or algo.target_timesteps or algo.config.total_timesteps
    if target <= algo.timesteps:
        _tell(quiet, f"{folder}: complete at {algo.timesteps:,} steps")
        return 0
    _tell(quiet, _headline(trainer, target))
    first, began = algo.timesteps, time.perf_counter()
    try:
        trainer.train(target - first)
    except (EnvironmentFailed, NonFiniteError, OSError) as error:
        complain(error)
        if RunFolder(folder).latest_checkpoint.is_file():
            complain(f"what was learnt is in {RunFolder(folder).checkpoints}")
        return FAILED
    finally:
        trainer.close()
    seconds = time.perf_counter() - began
    _tell(quiet, f"{algo.timesteps - first:,} steps in {seconds:.1f} s")
    if algo.stop_reason in BY_SIGNAL:
        complain(f"stopped by {algo.stop_reason} at {algo.timesteps:,} steps")
        _how_to_resume(run_dir)
        return BY_SIGNAL[algo.stop_reason]
    if algo.stop_reason is not None:
        _tell(quiet, f"stopped early: {algo.stop_reason}")
    for evaluations in algo.callbacks:
        if isinstance(evaluations, EvalCallback) and evaluations.history:
            last = evaluations.history[-1]
            _tell(
                quiet,
                f"evaluation: {last['mean']:.1f} ± {last['std']:.1f} "
                f"over {plan.eval_episodes} episodes",
            )
    _tell(quiet, f"report: {RunFolder(folder).report_file}")
    return 0


def callbacks_of(plan: Plan, folder: Path, total: int, quiet: bool) -> list[Any]:
    """The callbacks that a plan asks for."""
    run = RunFolder(folder)
    eval_freq = max(total // 5, 1) if plan.eval_freq is None else plan.eval_freq
    found: list[Any] = []
    if eval_freq and plan.env_id is not None:
        found.append(EvalCallback(eval_freq=eval_freq, n_eval_episodes=plan.eval_episodes))
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


def require_env(env_id: str) -> None:
    """Check that an environment exists.

    Raises:
        UserError: It does not; the nearest is named.
    """
    import gymnasium

    try:
        gymnasium.spec(env_id)
    except (gymnasium.error.Error, ImportError) as error:
        if env_id in gymnasium.registry:
            raise UserError(str(error)) from error
        close = did_you_mean(env_id, gymnasium.registry)
        reason = close or f": {error}"
        raise UserError(
            f"unknown environment {env_id!r}{reason} (`sharpwave list envs` lists them)"
        ) from error


def _headline(trainer: Trainer, target: int) -> str:
    algo = trainer.algo
    start = f" from {algo.timesteps:,}" if algo.timesteps else ""
    what = f"{algo.name} on {algo.subject}, seed {algo.seed}, {backend_of(algo)}"
    return f"{what},{start} to {target:,} steps: {trainer.run_dir}"


def backend_of(algo: Any) -> str:
    """What computes, and why where that may be a surprise."""
    if algo.backend == "native" or algo.config.backend == "torch":
        return f"{algo.backend} backend"
    return f"{algo.backend} backend ({algo.backend_reason})"


def _how_to_resume(run_dir: Path) -> None:
    complain(f"go on with: sharpwave resume {run_dir}")


def _tell(quiet: bool, line: str) -> None:
    if not quiet:
        say(line)
