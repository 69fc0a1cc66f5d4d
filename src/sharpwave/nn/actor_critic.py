"""The policy and value network of the on-policy algorithms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from sharpwave.nn.distributions import Discrete, Distribution, make_distribution
from sharpwave.nn.features import Features, make_features
from sharpwave.nn.gsde import StateDependentNoise
from sharpwave.nn.mlp import MLP, make_mlp
from sharpwave.nn.recurrent import EpisodePieces, make_rnn, n_states, step, unroll
from sharpwave.nn.running_norm import NormalizedFeatures

__all__ = ["Acted", "ActorCritic", "Evaluated"]


class Acted(NamedTuple):
    """Result of `act`.

    Attributes:
        actions: [B, *action shape] raw actions.
        log_probs: [B] of the actions.
        values: [B] of the observations.
        state: Recurrent state to act from next, None without recurrence.
    """

    actions: Tensor
    log_probs: Tensor
    values: Tensor
    state: Tensor | None


class Evaluated(NamedTuple):
    """Result of `evaluate`, differentiable.

    Attributes:
        log_probs: [B] of the actions.
        entropy: [B] of the policy.
        values: [B] of the observations.
    """

    log_probs: Tensor
    entropy: Tensor
    values: Tensor


LEAST_STD = 1e-6
"""Least standard deviation of actions where it is a parameter itself."""


class ActorCritic(nn.Module):
    """Actor-critic network: policy and value function, on the same observations or on their own.

    The two share the convolutions of image observations and nothing else. Without images and
    recurrence `actor` and `critic` are `nn.Sequential` networks on the flattened observation, and
    the `state_dict` is `log_std` (Box actions only), `actor.0.weight`, `actor.0.bias`,
    `actor.2.weight`, ..., `critic.0.weight`, ..., in that order, which is the order of
    `parameters()` too. With images `features.*` comes before the actor, with recurrence
    `actor_rnn.*` and `critic_rnn.*` come between them.

    With a `critic_space` the critic looks at something else than the actor, such as the state of a
    simulator, or the observations of all agents. Observations are dicts then, with the keys of both
    spaces. Those of the critic may have another number of rows, for as many values.

    Args:
        observation_space: Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of these.
        action_space: Discrete, MultiDiscrete, MultiBinary or Box.
        critic_space: Entries of a Dict that the critic looks at, where `observation_space` has
            those of the actor; None where both look at the same.
        hidden: Sizes of the hidden layers, of both networks where `critic_hidden` is None.
        critic_hidden: Those of the critic.
        activation: Their activation, by name.
        log_std_init: Initial logarithm of the standard deviation of Box actions.
        noise_std_type: Parameter of that deviation: "log" has `log_std`, and "scalar" in its place
            the deviation `std`, which is kept above 1e-6.
        squash: Box actions are the tanh of normal variables.
        gsde: Box actions explore by state-dependent noise.
        recurrent: "lstm" or "gru" puts such a layer before each network; None does not.
        recurrent_size: Size of these layers.
        ortho_init: First weights are orthogonal and biases zero; otherwise both are uniform, as
            torch's layers begin.
        feature_norm: Inputs of both networks pass through layer normalization.
        running_norm: Numbers of observations are normalized by running statistics, which `count`
            changes; each network has those of its inputs.
        features: Extractor in place of the one that `make_features` makes for the space.
        generator: Source of the weights.

    Attributes:
        distribution: Action distribution, whose parameters the actor gives.
        recurrent: As given; truthy if `act` carries a recurrent state.

    Raises:
        TypeError: A space is not supported.
        ValueError: An option is unknown or does not fit the action space.

    Example:
        >>> box = spaces.Box(-1.0, 1.0, (3,))
        >>> net = ActorCritic(box, spaces.Discrete(2), generator=np.random.default_rng(0))
        >>> acted = net.act(torch.zeros(5, 3))
        >>> acted.actions.shape, acted.values.shape
        (torch.Size([5]), torch.Size([5]))
    """

    actor: MLP
    critic: MLP
    log_std: nn.Parameter | None
    std: nn.Parameter | None

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *,
        critic_space: spaces.Dict | None = None,
        hidden: Sequence[int] = (64, 64),
        critic_hidden: Sequence[int] | None = None,
        activation: str = "tanh",
        log_std_init: float = 0.0,
        noise_std_type: str = "log",
        squash: bool = False,
        gsde: bool = False,
        recurrent: str | None = None,
        recurrent_size: int = 64,
        ortho_init: bool = True,
        feature_norm: bool = False,
        running_norm: bool = False,
        features: Features | None = None,
        generator: np.random.Generator,
    ) -> None:
        super().__init__()
        self.distribution: Distribution[Any] = make_distribution(action_space, squash=squash)
        continuous = isinstance(action_space, spaces.Box)
        if gsde and not continuous:
            raise ValueError(f"gsde needs a Box action space, got {action_space}")
        self.features: Any = features or make_features(
            observation_space, generator, ortho_init=ortho_init
        )
        self.critic_features: Any = None
        size = critic_size = self.features.size
        if critic_space is not None:
            self.critic_features = make_features(critic_space, generator, ortho_init=ortho_init)
            critic_size = self.critic_features.size
        if running_norm:
            self.features = NormalizedFeatures(self.features, observation_space)
            if critic_space is not None:
                self.critic_features = NormalizedFeatures(self.critic_features, critic_space)
        self.actor_norm = nn.LayerNorm(size) if feature_norm else None
        self.critic_norm = nn.LayerNorm(critic_size) if feature_norm else None
        self.recurrent = recurrent
        if recurrent is not None:
            self.actor_rnn, self.critic_rnn = (
                make_rnn(recurrent, inputs, recurrent_size, generator, ortho_init=ortho_init)
                for inputs in (size, critic_size)
            )
            size = critic_size = recurrent_size
        width = self.distribution.n_params
        gains = (0.01, 1.0) if ortho_init else (None, None)
        self.actor = make_mlp(size, hidden, width, activation, generator, gains[0])
        critic_hidden = hidden if critic_hidden is None else critic_hidden
        self.critic = make_mlp(critic_size, critic_hidden, 1, activation, generator, gains[1])
        self._noise = StateDependentNoise() if gsde else None
        shape = (hidden[-1] if hidden else size, width) if gsde else (width,)
        log_std = torch.full(shape, float(log_std_init)) if continuous else None
        self.log_std = self.std = None
        if log_std is not None and noise_std_type == "scalar":
            self.std = nn.Parameter(log_std.exp())
        elif log_std is not None:
            self.log_std = nn.Parameter(log_std)

    def act(
        self,
        obs: Any,
        *,
        state: Tensor | None = None,
        starts: Tensor | None = None,
        masks: Tensor | None = None,
        deterministic: bool = False,
        generator: torch.Generator | None = None,
        with_values: bool = True,
    ) -> Acted:
        """Chooses actions. Nothing is recorded for differentiation.

        Args:
            obs: [B, ...] observations, nested where the space is.
            state: Recurrent state, as the last `act` gave it; None is the one of a beginning.
            starts: [B] bool, True where an episode begins.
            masks: [B, n] bool, False where an action is forbidden (discrete actions only).
            deterministic: The most likely action instead of a drawn one.
            generator: Source of the draws; None is torch's global one.
            with_values: Value the observations too; otherwise `values` are NaN, and what only the
                critic looks at may be missing.

        Raises:
            ValueError: The masks do not fit, or (on the CPU) a row of them allows nothing.
        """
        distribution = self.distribution
        with torch.no_grad():
            actor_in, critic_in = self._inputs(
                obs, self.features.forward(obs), with_values=with_values
            )
            if self.recurrent:
                state = self._beginning(len(actor_in)) if state is None else state
                actor_state, critic_state = state.chunk(2)
                actor_in, actor_state = step(self.actor_rnn, actor_in, actor_state, starts)
                if critic_in is not None:
                    critic_in, critic_state = step(self.critic_rnn, critic_in, critic_state, starts)
                state = torch.cat((actor_state, critic_state))
            if critic_in is None:
                values = actor_in.new_full((len(actor_in),), torch.nan)
            else:
                values = self.critic.lean(critic_in).squeeze(-1).float()
            output, latent = self.actor.lean_with_latent(actor_in)
            params = self._params(output, latent, masks)
            if deterministic:
                actions = distribution.mode(params)
                log_probs = distribution.log_prob(params, actions)
            elif self._noise is not None:
                actions = params[0] + self._noise.noise(params, latent, generator)
                log_probs = distribution.log_prob(params, actions)
            else:
                actions, log_probs = distribution.sample_and_log_prob(params, generator)
        return Acted(actions, log_probs, values, state)

    def evaluate(
        self,
        obs: Any,
        actions: Tensor,
        *,
        state: Tensor | None = None,
        starts: Tensor | None = None,
        masks: Tensor | None = None,
        valid: Tensor | None = None,
    ) -> Evaluated:
        """Evaluate actions taken earlier under the current networks.

        Args:
            obs: [B, ...] observations; with recurrence [T, B, ...], and so for all the others.
            actions: [B, *action shape] raw actions.
            state: Recurrent state before the first step; None is the one of a beginning.
            starts: [T, B] bool, True where an episode begins. On the CPU (whatever the device of
                the rest) the recurrent layers run over whole episodes at once.
            masks: [B, n] bool, those the actions were chosen with.
            valid: [T, B] bool beside `starts`, False where the recurrent state stays as it is and
                what comes out stands for nothing; None where it does nowhere.
        """
        params, values = self.heads(obs, state=state, starts=starts, masks=masks, valid=valid)
        log_probs, entropy = self.distribution.log_prob_and_entropy(params, actions)
        return Evaluated(log_probs, entropy, values)

    def heads(
        self,
        obs: Any,
        *,
        state: Tensor | None = None,
        starts: Tensor | None = None,
        masks: Tensor | None = None,
        valid: Tensor | None = None,
    ) -> tuple[Any, Tensor]:
        """Parameters of the distribution, and values [B], differentiable; see `evaluate`."""
        actor_in, critic_in = self._inputs(obs, self.features(obs))
        if self.recurrent:
            if state is None:
                state = self._beginning(actor_in.shape[1])
            if starts is None:
                starts = torch.zeros(actor_in.shape[:2], dtype=torch.bool)
            episodes = EpisodePieces(starts, valid)
            actor_state, critic_state = state.chunk(2)
            actor_in = unroll(self.actor_rnn, actor_in, actor_state, episodes)
            critic_in = unroll(self.critic_rnn, critic_in, critic_state, episodes)
        params = self._params(*self.actor.with_latent(actor_in), masks)
        values, _ = self.critic.with_latent(critic_in)
        return params, values.squeeze(-1).float()

    def modes(
        self, obs: Any, *, state: Tensor | None = None, starts: Tensor | None = None
    ) -> Tensor:
        """The most likely actions, differentiable where they are continuous; see `evaluate`."""
        x, _ = self._inputs(obs, self.features(obs), with_values=False)
        if self.recurrent:
            state = self._beginning(x.shape[1]) if state is None else state
            if starts is None:
                starts = torch.zeros(x.shape[:2], dtype=torch.bool)
            x = unroll(self.actor_rnn, x, state.chunk(2)[0], EpisodePieces(starts, None))
        return self.distribution.mode(self._params(*self.actor.with_latent(x), None))

    def values(
        self, obs: Any, *, state: Tensor | None = None, starts: Tensor | None = None
    ) -> Tensor:
        """Values [B] of observations [B, ...], without differentiation; see `act`."""
        with torch.no_grad():
            x = self._critic_inputs(obs)
            if self.recurrent:
                state = self._beginning(len(x)) if state is None else state
                x, _ = step(self.critic_rnn, x, state.chunk(2)[1], starts)
            return self.critic.lean(x).squeeze(-1).float()

    def states(self, obs: Any, *, state: Tensor, starts: Tensor) -> Tensor:
        """Recurrent states [T, 2k, B, recurrent_size] after each of some steps.

        Nothing is recorded for differentiation.

        Args:
            obs: [T, B, ...] observations.
            state: Before the first step.
            starts: [T, B] bool, True where an episode begins.
        """
        with torch.no_grad():
            inputs, after = self._inputs(obs, self.features(obs)), []
            for *both, starts_now in zip(*inputs, starts, strict=True):
                rnns = self.actor_rnn, self.critic_rnn
                parts = zip(rnns, both, state.chunk(2), strict=True)
                state = torch.cat([step(rnn, x, part, starts_now)[1] for rnn, x, part in parts])
                after.append(state)
            return torch.stack(after)

    def initial_state(self, n: int) -> Tensor | None:
        """The state [2k, n, recurrent_size] at the beginning of episodes of `n` environments.

        The actor's tensors come first, then the critic's; k is 2 for an LSTM and 1 for a GRU.
        None without recurrence.
        """
        return self._beginning(n) if self.recurrent else None

    def _inputs(
        self, obs: Any, features: Tensor, *, with_values: bool = True
    ) -> tuple[Tensor, Any]:
        """Inputs of the actor and of the critic, the latter None where values are not wanted."""
        actor_in = features if self.actor_norm is None else self.actor_norm(features)
        if not with_values:
            return actor_in, None
        return actor_in, self._critic_inputs(obs, features)

    def _critic_inputs(self, obs: Any, features: Tensor | None = None) -> Tensor:
        if self.critic_features is not None:
            features = self.critic_features.forward(obs)
        elif features is None:
            features = self.features.forward(obs)
        return features if self.critic_norm is None else self.critic_norm(features)

    def _beginning(self, n: int) -> Tensor:
        rnn = self.actor_rnn
        rows = 2 * n_states(rnn)
        return torch.zeros(rows, n, rnn.hidden_size, device=next(rnn.parameters()).device)

    def count(self, obs: Any, weights: Tensor | None = None, total: Any = None) -> None:
        """Counts observations in the running statistics of both networks; see `RunningNorm`.

        Args:
            obs: [..., *observation shape].
            weights: [...] 1 where a row counts and 0 where not; None counts all.
            total: Sums numbers over the processes that learn together; None where this is alone.
        """
        for features in (self.features, self.critic_features):
            if isinstance(features, NormalizedFeatures):
                features.count(obs, weights, total)

    def reset_noise(self, n: int, generator: torch.Generator | None = None) -> None:
        """Draws new exploration matrices for `n` environments; without `gsde` does nothing."""
        if self._noise is not None and self.log_std is not None:
            self._noise.reset(self.log_std, n, generator)

    def _params(self, output: Tensor, latent: Tensor, masks: Tensor | None) -> Any:
        """Parameters of the distribution from the actor's output and what its head was given."""
        output = output.float()  # which networks in bfloat16 do not give
        if masks is not None:
            if not isinstance(self.distribution, Discrete):
                kind = type(self.distribution).__name__
                raise ValueError(f"masks need discrete actions, got a {kind} policy")
            return self.distribution.mask(output, masks)
        if self.std is not None:
            return output, self.std.clamp(min=LEAST_STD).log()
        if self.log_std is None:
            return output
        if self._noise is not None:
            return self._noise.params(output, latent, self.log_std)
        return output, self.log_std
