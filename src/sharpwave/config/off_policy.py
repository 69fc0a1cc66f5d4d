"""Options of algorithms that learn from replay."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from sharpwave.config.network import ActivationName, Hidden, NetworkOptions
from sharpwave.config.online import OnlineConfig
from sharpwave.config.schedules import ScheduleLike

__all__ = ["DEVICE", "MEMORY", "Draws", "OffPolicyConfig", "ReplayConfig"]

MEMORY = "memory"
"""The option `buffer` of a buffer in memory."""
DEVICE = "device"
"""The option `buffer` of one on the device that learns."""


class Draws(NamedTuple):
    """How the steps of a buffer become batches.

    Attributes:
        n_step: Steps of a transition.
        prioritized: Whether steps are drawn by priority.
        alpha: How much priorities count.
        beta_start: How much weights correct for that at the start.
        weight_norm: Where the weight 1 is.
        frame_stack: Frames of an observation.
        her_goals: Relabelled steps per original one.
        her_strategy: Where their goals come from.
        length: Observations of a sequence, in place of single steps; None for these.
        context: Rows before the sequence, whose columns it starts from.
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
    """Options of every algorithm that learns from a buffer which it fills."""

    n_envs: int = 1
    """Number of environments."""
    buffer_size: int = 1_000_000
    """Steps that the buffer keeps."""
    batch_size: int = 256
    """Steps of a gradient step."""
    learning_rate: ScheduleLike = 3e-4
    """Step size of the optimisers; a schedule follows the progress of the run."""
    learning_starts: int = 1000
    """Environment steps with random actions, after which learning starts."""
    train_freq: int = 1
    """Steps of every environment between two updates."""
    gradient_steps: int = 1
    """Gradient steps of an update, each on a batch of its own; -1 for as many as environment steps
    were collected. Not with `train_ratio`."""
    train_ratio: float | None = None
    """Steps that are replayed per environment step, in place of `gradient_steps`: 64 with batches
    of 256 steps is a gradient step every 4 environment steps. What is left over is carried on."""
    buffer: str = MEMORY
    """Where the buffer lies: in "memory", on the "device" that learns, or in the folder of this
    path. The constructor also takes a buffer itself."""
    overlap: bool = False
    """Collect the steps of the next update in a thread while learning."""
    save_buffer: bool = False
    """Put the buffer into checkpoints."""
    keep_replay: bool = True
    """In a run folder, keep the buffer, so that a run that is resumed goes on where it was."""
    log_interval: int = 1000
    """Environment steps between two reports of metrics."""
    compile: bool = False
    """Compile the losses with torch.compile."""
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
        """Steps that a gradient step replays."""
        return self.batch_size

    @property
    def draws(self) -> Draws:
        """How steps become batches."""
        return Draws()

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("buffer_size", "batch_size", "train_freq", "log_interval")
        self.require_positive("train_ratio")
        self.require_range("learning_rate", 0)
        self.require_range("learning_starts", 0)
        if self.gradient_steps < 0 and self.gradient_steps != -1:
            raise ValueError(f"gradient_steps must be at least 0 or -1, got {self.gradient_steps}")
        self.require_range("train_ratio", 0, 1e6)
        if self.train_ratio is not None and self.gradient_steps != 1:
            raise ValueError(
                "train_ratio and gradient_steps exclude each other: with "
                f"train_ratio={self.train_ratio} gradient_steps must stay 1, "
                f"got {self.gradient_steps}"
            )


@dataclass(frozen=True, kw_only=True)
class OffPolicyConfig(NetworkOptions, ReplayConfig):
    """Options of algorithms that learn values of replayed steps."""

    n_step: int = 1
    """Steps until the target bootstraps."""
    prioritized: bool = False
    """Draw steps by the size of their last error."""
    alpha: float = 0.6
    """How much priorities count."""
    beta_start: float = 0.4
    """How much weights correct for that at the start; they end at 1."""
    weight_norm: Literal["buffer", "batch"] = "buffer"
    """Where the weight 1 is: at the least likely step of the buffer, as in the paper, or at that of
    the batch."""
    frame_stack: int = 1
    """Image observations are stacks of this many frames along the first axis, which the buffer
    stores once each."""
    her_goals: int = 0
    """Steps relabelled with goals that were reached later, per original one (HER)."""
    her_strategy: Literal["future", "final", "episode"] = "future"
    """Where those goals come from."""
    max_grad_norm: float | None = None
    """Longest gradient; longer ones are scaled down to it."""
    hidden: Hidden = (256, 256)
    """Widths of the hidden layers; one number stands for two layers. `{"actor": ..., "critic":
    ...}` gives each its own."""
    activation: ActivationName = "relu"
    """Activation of the hidden layers."""

    @property
    def draws(self) -> Draws:
        """How steps become batches."""
        names = (name for name in Draws._fields if hasattr(self, name))
        return Draws(**{name: getattr(self, name) for name in names})

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
