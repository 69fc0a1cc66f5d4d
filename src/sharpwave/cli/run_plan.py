"""Plan of a run of the command line, kept in its folder so that `resume` can continue."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from sharpwave.algorithms.registry import algorithm_class
from sharpwave.config.config import Config
from sharpwave.core.ranks import ALONE, Ranks


@dataclass(frozen=True, kw_only=True)
class RunOptions(Config):
    """Options of evaluations, checkpoints, loggers and processes around the training."""

    eval_freq: int | None = None
    """Steps, or updates of language models, between two evaluations; 0 for none, a fifth of the run
    when not given."""
    eval_episodes: int = 20
    """Episodes of one evaluation."""
    checkpoint_freq: int = 0
    """Steps between two numbered checkpoints; 0 keeps the latest and the best only."""
    logger: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = ()
    """Loggers of the metrics beside the run folder; several are separated by commas."""
    video: bool = False
    """Film the policy at every evaluation."""
    learners: int = 1
    """Processes of this machine that learn together (data-parallel training): each takes its share
    of the work, and gradients are averaged."""
    jobs: int = 0
    """Seeds that are trained at the same time; 0 for as many as there are cores where they train in
    native code, otherwise one."""

    def check(self) -> None:
        """Check the values."""
        self.require_positive("eval_episodes", "learners")
        self.require_range("eval_freq", 0)
        self.require_range("checkpoint_freq", 0)
        self.require_range("jobs", 0)


@dataclass(frozen=True, kw_only=True)
class Plan(RunOptions):
    """A whole run: algorithm, environment or data, options and seeds."""

    file: ClassVar[str] = "plan.json"
    """Its name in the folder of the run."""

    algorithm: str
    """Name of the algorithm."""
    env_id: str | None = None
    """Id of the environment; for offline algorithms, the one to evaluate in."""
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    """Arguments of its constructor."""
    wrappers: tuple[str, ...] = ()
    """Wrappers around it, the innermost first, each as module:Class."""
    imports: tuple[str, ...] = ()
    """Modules that are imported first."""
    dataset: str | None = None
    """Path or name of the dataset of an offline algorithm."""
    language: dict[str, Any] = field(default_factory=dict)
    """`LanguageOptions` of an algorithm of language models."""
    agents: dict[str, Any] = field(default_factory=dict)
    """The `groups` and `opponents` of an algorithm that learns for several agents."""
    config: dict[str, Any] = field(default_factory=dict)
    """Options of the algorithm."""
    seeds: tuple[int, ...] = ()
    """Seeds, each with a folder of its own; empty for one run with the seed of `config`."""

    @property
    def place(self) -> str | None:
        """Environment or task, by which presets and folders are named."""
        return self.language.get("task") or self.env_id

    @property
    def ranks(self) -> Ranks:
        """The processes that carry it out together; the first one has the folder and speaks."""
        if self.language:
            return Ranks.join(self.configs()[0].get("sharding", "auto"))
        algorithm = algorithm_class(self.algorithm)
        return Ranks.join() if getattr(algorithm, "learns_together", False) else ALONE

    def folders(self, run_dir: Path) -> list[Path]:
        """The folder of each seed."""
        return [run_dir / f"seed_{seed}" for seed in self.seeds] or [run_dir]

    def configs(self) -> list[dict[str, Any]]:
        """The options of the algorithm for each seed."""
        return [{**self.config, "seed": seed} for seed in self.seeds] or [self.config]
