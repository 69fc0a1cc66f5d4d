"""Options of algorithms that learn in an environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from sharpwave.config.options import AlgorithmConfig

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["OnlineConfig"]


@dataclass(frozen=True, kw_only=True)
class OnlineConfig(AlgorithmConfig):
    """Options of every algorithm that acts in an environment."""

    n_envs: int = 8
    """Number of parallel environments."""
    total_timesteps: int = 100_000
    """Number of environment steps of `train()` when it is given none."""
    normalize_obs: bool = False
    """Normalize observations by their running mean and standard deviation."""
    normalize_rewards: bool = False
    """Scale rewards by the running standard deviation of the discounted return."""
    env_mode: Literal["auto", "native", "sync", "async", "device"] = "auto"
    """Execution of environments: native code, one after another in this process ("sync"), in
    processes of their own ("async"), or, of native ones, as tensors on the device of the networks
    ("device"). "auto" takes one of the first two."""

    aliases: ClassVar[dict[str, str]] = {"normalize_reward": "normalize_rewards"}
    divided: ClassVar[tuple[str, ...]] = ("n_envs",)
    """Options that processes which learn together divide among them."""
    divided_up: ClassVar[tuple[str, ...]] = ()
    """Such options of which all may have a little more than their part."""

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("n_envs")

    def share(self, learners: int) -> Self:
        """The options of each of some processes that learn together.

        Raises:
            ValueError: An option cannot be divided by so many.
        """
        if learners == 1:
            return self
        given = {name: getattr(self, name) for name in (*self.divided, *self.divided_up)}
        given = {name: value for name, value in given.items() if value is not None}
        for name, value in given.items():
            if name in self.divided and value % learners:
                raise ValueError(
                    f"{name} must be a multiple of learners, {learners}, which divide it among "
                    f"them, got {value}"
                )
        return self.replace(**{name: -(-value // learners) for name, value in given.items()})
