"""Exploration noise, added to the actions of deterministic policies."""

from __future__ import annotations

from typing import Any


class OrnsteinUhlenbeck:
    r"""Ornstein-Uhlenbeck noise: a random walk that is pulled back to zero.

    x ← x − θ x dt + σ √dt ε with ε ~ N(0, 1), and x = 0 at the start of an episode. It pushes the
    same way for about 1 / (θ dt) steps, which moves masses that independent noise does not.

    Args:
        zeros: [n_envs, dim] what x begins with, a walk for each environment: an array or a tensor.
        sigma: σ.
        theta: θ.
        dt: Length of a step.

    Attributes:
        value: [n_envs, dim] x.
    """

    def __init__(self, zeros: Any, sigma: float, *, theta: float = 0.15, dt: float = 0.01) -> None:
        self.value = zeros
        self._keep = 1.0 - theta * dt
        self._std = sigma * dt**0.5

    def move(self, starts: Any, noise: Any) -> Any:
        """The next x.

        Args:
            starts: [n_envs] bool, true where an episode starts.
            noise: [n_envs, dim] ε.
        """
        self.value[starts] = 0.0
        self.value *= self._keep
        self.value += self._std * noise
        return self.value

    def arrays(self) -> dict[str, Any]:
        """The state that a checkpoint keeps."""
        return {"walk": self.value}

    def load_arrays(self, arrays: dict[str, Any]) -> None:
        """Go on from `arrays`, in the form of this walk."""
        self.value[:] = arrays["walk"]
