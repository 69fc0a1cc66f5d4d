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
        config = self.config
        if "policy" in self.given:
            if config.normalize_obs == "policy":
                raise ValueError(
                    "normalize_obs must be False with a policy of your own, which normalizes for "
                    "itself, got 'policy'"
                )
            return nn.CustomPolicy(self.given["policy"])
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
            running_norm=config.normalize_obs == "policy",
        )

    def network_spaces(self) -> tuple[spaces.Space[Any], spaces.Dict | None]:
        """Input spaces of the actor and of the critic; None for the critic where it is the same.

        Raises:
            ValueError: `critic_obs` or `obs_groups` name what is no entry of the observations.
        """
        config, space = self.config, self.observation_space
        entries = dict(space.spaces) if isinstance(space, spaces.Dict) else {}
        groups = config.groups_of(entries)
        if groups is None:
            return space, None
        if config.critic_obs is not None and (config.critic_obs not in entries or len(entries) < 2):
            raise ValueError(
                "critic_obs must be one of several keys of a Dict observation, got "
                f"{config.critic_obs!r} for {space}"
            )
        for key in (*groups["policy"], *groups["critic"]):
            if key not in entries:
                raise ValueError(
                    f"obs_groups must name keys of a Dict observation, got {key!r} for {space}"
                )
        # A list of entries keeps its order, in which a network has its inputs.
        inputs = spaces.Dict([(key, entries[key]) for key in groups["policy"]])
        if groups["policy"] == groups["critic"]:
            return inputs, None
        return inputs, spaces.Dict([(key, entries[key]) for key in groups["critic"]])

    def is_valued(self, obs: Any) -> bool:
        """True if observations have the input of the critic."""
        groups = self.config.groups_of(())
        return groups is None or all(key in obs for key in groups["critic"])

    def count(self, batch: Any) -> None:
        """Count the observations of a batch that was learned from, where the policy does."""
        if self.config.normalize_obs == "policy":
            self.policy.count(batch.obs, batch.weights, self.total)

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
