"""Learners with an actor-critic network, for rollouts."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces

from sharpwave.core.lazy import nn, torch
from sharpwave.envs import ActionMap
from sharpwave.learners.learner import Acted
from sharpwave.learners.torch_learner import TorchLearner

__all__ = ["PolicyLearner"]


class PolicyLearner(TorchLearner):
    """A policy and its values in one network, and how they act; a subclass gives `update`."""

    def build(self) -> None:
        """Make the policy and its optimizer."""
        self.policy = self.add("policy", self.make_policy(), self.make_optimizer)
        self.flat = self.flats["policy"]
        self._n_envs, self._steps = self.config.n_envs, 0  # of gSDE

    def make_policy(self) -> Any:
        """The network."""
        if "policy" in self.given:
            return nn.CustomPolicy(self.given["policy"])
        config = self.config
        observation_space, critic_space = self.network_spaces()
        return nn.ActorCritic(
            observation_space,
            self.action_space,
            critic_space=critic_space,
            **self.network_options("actor"),
            critic_hidden=config.hidden_of("critic"),
            log_std_init=config.log_std_init,
            noise_std_type=config.noise_std_type,
            squash=config.squash_actions,
            gsde=config.use_gsde,
            recurrent=config.recurrent,
            recurrent_size=config.recurrent_size,
            ortho_init=config.ortho_init,
            feature_norm=config.feature_norm,
        )

    def network_spaces(self) -> tuple[spaces.Space[Any], spaces.Dict | None]:
        """Input spaces of the actor and of the critic; None for the critic where it is the same.

        Raises:
            ValueError: `critic_obs` is no entry of the observations, or the only one.
        """
        key, space = self.config.critic_obs, self.observation_space
        if key is None:
            return space, None
        if not isinstance(space, spaces.Dict) or key not in space.spaces or len(space.spaces) < 2:
            raise ValueError(
                f"critic_obs must be one of several keys of a Dict observation, got {key!r} for "
                f"{space}"
            )
        rest = {name: entry for name, entry in space.spaces.items() if name != key}
        return spaces.Dict(rest), spaces.Dict({key: space[key]})

    def is_valued(self, obs: Any) -> bool:
        """True if observations have the input of the critic."""
        return self.config.critic_obs is None or self.config.critic_obs in obs

    def make_action_map(self) -> ActionMap:
        """Between actions of the policy and of the environment."""
        config = self.config
        return ActionMap(self.action_space, config.squash_actions, config.clip_actions)

    def act(
        self, obs: Any, *, explore: bool, state: Any = None, starts: Any = None, masks: Any = None
    ) -> Acted:
        """Actions sampled from the policy, or its mode, with log-probabilities and values."""
        every = self.config.sde_sample_freq
        if explore and every > 0 and self._steps and self._steps % every == 0:
            self.policy.reset_noise(self._n_envs, self.explore_generator)
        self._steps += 1
        acted = self.policy.act(
            obs,
            state=state,
            starts=starts,
            masks=masks,
            deterministic=not explore,
            generator=self.explore_generator,
            **({} if self.is_valued(obs) else {"with_values": False}),
        )
        return Acted(acted.actions, acted.log_probs, acted.values, acted.state)

    def values(self, obs: Any, state: Any = None) -> torch.Tensor:
        """Values [N] of observations [N, ...]."""
        values: torch.Tensor = self.policy.values(obs, state=state)
        return values

    def begin_rollout(self, n_envs: int) -> None:
        """Draw new exploration noise."""
        self.policy.reset_noise(n_envs, self.explore_generator)
        self._n_envs, self._steps = n_envs, 0

    def initial_state(self, n_envs: int) -> torch.Tensor | None:
        """The recurrent state, where the policy has one."""
        state: torch.Tensor | None = self.policy.initial_state(n_envs)
        return state

    def weights(self) -> Any:
        """[n_parameters] a copy of all parameters, as an array."""
        return self.array(self.flat.data.detach()).copy()

    def follow_weights(self, weights: Any) -> None:
        """As an `acting_copy`, act with the parameters [n_parameters] of another learner."""
        with torch.no_grad():
            torch.nn.utils.vector_to_parameters(self.own(weights), self.policy.parameters())

    @property
    def block(self) -> Any:
        """The memory of all parameters, for native code that acts with them."""
        return self.flat.block
