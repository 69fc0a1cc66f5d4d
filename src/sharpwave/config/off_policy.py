"""Options of off-policy algorithms, which learn from replay."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from sharpwave.config.network import ActivationName, Hidden, NetworkOptions
from sharpwave.config.online import OnlineConfig
from sharpwave.config.schedules import ScheduleLike

__all__ = ["DEVICE", "MEMORY", "DrawOptions", "OffPolicyConfig", "ReplayConfig"]

MEMORY = "memory"
"""The option `buffer` of a buffer in memory."""
DEVICE = "device"
"""The option `buffer` of one on the device that learns."""


class DrawOptions(NamedTuple):
    """Options of sampling batches from a replay buffer.

    Attributes:
        n_step: Number of steps of an n-step transition.
        prioritized: Prioritized replay: steps are drawn by priority.
        alpha: Priority exponent.
        beta_start: Importance-sampling exponent at the start.
        weight_norm: Normalization of importance-sampling weights.
        frame_stack: Number of stacked frames of an observation.
        her_goals: Number of relabeled steps per original one.
        her_strategy: Strategy that picks their goals.
        length: Number of observations of a sequence; None for single steps.
        context: Number of rows before the sequence, whose columns it starts from.
        fresh: Draw every new sequence once, before others are drawn at random.
    """

    n_step: int = 1
    prioritized: bool = False
    alpha: float = 0.6
    beta_start: float = 0.4
    weight_norm: str = "buffer"
    frame_stack: int = 1
    her_goals: int = 0
    her_strategy: Any = "future"
    length: int | None = None
    context: int = 0
    fresh: bool = False

    @property
    def rows(self) -> int:
        """Rows of a sequence with its context; 1 for steps."""
        return 1 if self.length is None else self.length + self.context


@dataclass(frozen=True, kw_only=True)
class ReplayConfig(OnlineConfig):
    """Options of every off-policy algorithm with a replay buffer."""

    n_envs: int = 1
    """Number of environments."""
    buffer_size: int = 1_000_000
    """Capacity of the replay buffer, in steps."""
    batch_size: int = 256
    """Batch size: number of replayed steps of a gradient step."""
    learning_rate: ScheduleLike = 3e-4
    """Learning rate of the optimizers; may be a schedule over the run."""
    learning_starts: int = 1000
    """Number of environment steps with random actions before learning starts."""
    train_freq: int = 1
    """Number of steps of every environment between two updates."""
    train_episodes: int | None = None
    """Number of finished episodes between two updates, in place of `train_freq`."""
    gradient_steps: int = 1
    """Number of gradient steps of an update, each on a batch of its own; -1 for as many as
    environment steps were collected. Not with `train_ratio`."""
    train_ratio: float | None = None
    """Replay ratio, in place of `gradient_steps`: number of steps replayed per environment step. 64
    with batches of 256 steps is a gradient step every 4 environment steps; fractions carry over."""
    buffer: str = MEMORY
    """Storage of the replay buffer: "memory", the "device" that learns, or the path of a folder on
    disk. The constructor also takes a buffer itself."""
    overlap: bool = False
    """Collect the steps of the next update in a thread while learning (asynchronous collection)."""
    save_buffer: bool = False
    """Save the replay buffer in checkpoints."""
    keep_replay: bool = True
    """Keep the replay buffer in the run folder, so that a resumed run goes on where it was."""
    log_interval: int = 1000
    """Number of environment steps between two reports of metrics."""
    compile: bool = False
    """Compile the losses with `torch.compile`."""
    cuda_graph: bool = False
    """Replay gradient steps as CUDA graphs, on a CUDA device."""

    divided: ClassVar[tuple[str, ...]] = ("n_envs", "batch_size")
    divided_up: ClassVar[tuple[str, ...]] = ("buffer_size",)

    def __post_init__(self) -> None:
        if isinstance(self.buffer, str) and self.buffer not in (MEMORY, DEVICE):
            # A run that is resumed elsewhere must find it.
            object.__setattr__(self, "buffer", str(Path(self.buffer).absolute()))
        super().__post_init__()

    @property
    def steps_per_batch(self) -> int:
        """Number of steps that a gradient step replays."""
        return self.batch_size

    @property
    def draws(self) -> DrawOptions:
        """Options of sampling batches from the buffer."""
        return DrawOptions()

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("buffer_size", "batch_size", "train_freq", "log_interval")
        self.require_positive("train_ratio", "train_episodes")
        self.require_range("learning_rate", 0)
        self.require_range("learning_starts", 0)
        if self.gradient_steps < 0 and self.gradient_steps != -1:
            raise ValueError(f"gradient_steps must be at least 0 or -1, got {self.gradient_steps}")
        self.require_range("train_ratio", 0, 1e6)
        if self.train_episodes is not None and self.train_freq != 1:
            raise ValueError(
                "train_episodes and train_freq exclude each other: with "
                f"train_episodes={self.train_episodes} train_freq must stay 1, "
                f"got {self.train_freq}"
            )
        if self.train_ratio is not None and self.gradient_steps != 1:
            raise ValueError(
                "train_ratio and gradient_steps exclude each other: with "
                f"train_ratio={self.train_ratio} gradient_steps must stay 1, "
                f"got {self.gradient_steps}; with train_ratio=None it counts"
            )


@dataclass(frozen=True, kw_only=True)
class OffPolicyConfig(NetworkOptions, ReplayConfig):
    """Options of off-policy algorithms that learn value functions of replayed steps."""

    n_step: int = 1
    """Number of steps of n-step returns, after which the target bootstraps."""
    prioritized: bool = False
    """Prioritized experience replay: draw steps by the size of their last TD error."""
    alpha: float = 0.6
    """Priority exponent α of prioritized replay; 0 draws uniformly."""
    beta_start: float = 0.4
    """Importance-sampling exponent β of prioritized replay at the start; it is annealed to 1."""
    weight_norm: Literal["buffer", "batch"] = "buffer"
    """Normalization of importance-sampling weights by their maximum over the "buffer", as in the
    paper, or over the "batch"."""
    frame_stack: int = 1
    """Number of frames that are stacked along the first axis of image observations; the buffer
    stores each frame once."""
    her_goals: int = 0
    """Hindsight experience replay (HER): number of steps relabeled with achieved goals per original
    one; 0 for none."""
    her_strategy: Literal["future", "final", "episode"] = "future"
    """Strategy that picks the goals of HER: achieved after a step at or after the drawn one
    ("future"), at the end of the episode ("final"), or after any of its steps ("episode")."""
    max_grad_norm: float | None = None
    """Maximum norm of the gradient; larger gradients are scaled down. None does not clip."""
    hidden: Hidden = (256, 256)
    """Widths of the hidden layers; one number stands for two layers. `{"actor": ..., "critic":
    ...}` gives each its own."""
    activation: ActivationName = "relu"
    """Activation of the hidden layers."""

    aliases: ClassVar[dict[str, str]] = {**ReplayConfig.aliases, "n_steps": "n_step"}

    @property
    def draws(self) -> DrawOptions:
        """Options of sampling batches from the buffer."""
        names = (name for name in DrawOptions._fields if hasattr(self, name))
        return DrawOptions(**{name: getattr(self, name) for name in names})

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("n_step", "frame_stack", "max_grad_norm")
        self.require_range("her_goals", 0)
        self.require_range("alpha", 0)
        self.require_range("beta_start", 0, 1)
        if self.buffer == DEVICE:
            for option, plain in {"frame_stack": 1, "her_goals": 0}.items():
                if getattr(self, option) != plain:
                    raise ValueError(f'buffer="device" needs {option}={plain}')
        if self.her_goals and self.n_step > 1:
            raise ValueError("her_goals needs n_step=1: a new goal changes the rewards on the way")
