"""`sharpwave.VecNormalize` behind the step and reset of rlox's vector environments."""

from __future__ import annotations

import numpy as np

from sharpwave import envs
from sharpwave.compat.rlox.gym_vec_env import SteppedTogether
from sharpwave.types import Array, Nested

__all__ = ["VecNormalize"]


class VecNormalize(SteppedTogether):
    """Normalizes the steps of a `GymVecEnv`; `sharpwave.VecNormalize` keeps the statistics.

    Args:
        env: A `GymVecEnv`.
        norm_obs: Normalize observations.
        norm_reward: Scale rewards by the spread of the return.
        gamma: Discount of that return.
        clip_obs: Bound of the observations.
        clip_reward: Bound of the rewards.
        epsilon: Added to the variances.
        obs_dim: Size of an observation, if it is to be checked.

    Attributes:
        env: The given environment.

    Raises:
        TypeError: `env` is something else; `sharpwave.VecNormalize` takes Gymnasium's.
        ValueError: `obs_dim` is not the size of the observations.

    Example:
        >>> from sharpwave.compat.rlox.gym_vec_env import GymVecEnv
        >>> env = VecNormalize(GymVecEnv("CartPole-v1", n_envs=2))
        >>> obs = env.reset_all(seed=0)
        >>> sorted(env.get_obs_rms())
        ['mean', 'var']
    """

    def __init__(
        self,
        env: SteppedTogether,
        norm_obs: bool = True,
        norm_reward: bool = True,
        gamma: float = 0.99,
        clip_obs: float = 10.0,
        clip_reward: float = 10.0,
        epsilon: float = 1e-8,
        obs_dim: int | None = None,
    ) -> None:
        if not isinstance(env, SteppedTogether):
            raise TypeError(f"env must be a GymVecEnv, got {type(env).__name__}")
        size = int(np.prod(env.observation_space.shape or ()))
        if obs_dim is not None and obs_dim != size:
            raise ValueError(f"obs_dim must be {size} like the env's observations, got {obs_dim}")
        self.env = env
        self._normalizer = envs.VecNormalize(
            env.vector, norm_obs, norm_reward, gamma, clip_obs, clip_reward, epsilon
        )
        super().__init__(self._normalizer, env.episodes, env.seed)

    @property
    def training(self) -> bool:
        """True if the statistics are updated; False freezes them, as for evaluation."""
        return self._normalizer.training

    @training.setter
    def training(self, value: bool) -> None:
        self._normalizer.training = value

    def normalize_obs(self, obs: Nested) -> Nested:
        """Normalize one observation or a batch; the statistics stay as they are."""
        return self._normalizer.normalize_obs(obs)

    def get_obs_rms(self) -> dict[str, Array]:
        """Mean and variance of the observations, [*shape of one] each.

        Raises:
            ValueError: Observations are not normalized, or are nested.
        """
        stats = self._normalizer.get_obs_rms()
        if not hasattr(stats, "var"):
            raise ValueError("get_obs_rms needs norm_obs=True and observations of one Box")
        return {"mean": stats.mean, "var": stats.var}
