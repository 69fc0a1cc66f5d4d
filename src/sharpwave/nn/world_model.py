"""World models: what is seen becomes a latent state, which can be imagined onwards.

The recurrent state-space model of DreamerV3 (Hafner et al., 2023, arXiv:2301.04104) in its newest
form: a block-wise recurrent unit, categorical latents, and heads for observation, reward and end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, one_hot, silu

from sharpwave.losses.world_model import (
    balanced_kl,
    draw,
    two_hot_bins,
    two_hot_loss,
    two_hot_mean,
    unimix,
)
from sharpwave.nn import world_scan
from sharpwave.nn.world_codecs import Decoder, Encoder, entries_of
from sharpwave.nn.world_layers import BlockLinear, Head, Layer, RMSNorm, TruncatedLinear

STEP = ("step", "prior", "posterior", "_log_probs")
"""Methods that make a step."""
KNOWN = (BlockLinear, Head, Layer, TruncatedLinear, RMSNorm, nn.Sequential)
"""Modules that the twin of a step knows."""

__all__ = ["RSSM", "Latent", "Observed", "WorldModel"]


class Latent(NamedTuple):
    """A state of the model.

    Attributes:
        deter: [..., deter] what is remembered.
        stoch: [..., latents, classes] one-hot, what chance has decided.
    """

    deter: Tensor
    stoch: Tensor

    @property
    def features(self) -> Tensor:
        """[..., deter + latents * classes] what heads look at."""
        return torch.cat((self.deter, self.stoch.flatten(-2)), -1)


class Observed(NamedTuple):
    """Latent states of a sequence [T, B] that was seen.

    Attributes:
        latents: After each observation.
        posterior: [T, B, latents, classes] log-probabilities that the observation gave.
        prior: [T, B, latents, classes] log-probabilities without it.
    """

    latents: Latent
    posterior: Tensor
    prior: Tensor


class RSSM(nn.Module):
    """A recurrent state-space model with categorical latents.

    Args:
        n_actions: Numbers of an action.
        n_tokens: Size of what the encoder gives.
        deter: Size of what is remembered, a multiple of `blocks`.
        hidden: Size of the layers.
        latents: Number of categorical latents.
        classes: Number of classes of each of them.
        blocks: Blocks of the recurrent unit.
        unimix: Share of the uniform distribution in every categorical.
        prior_layers: Number of hidden layers of the prior.
        posterior_layers: Number of hidden layers of the posterior.
        update_bias: First logit of the share of the state that a step rewrites.
        generator: Source of the weights.

    Raises:
        ValueError: `deter` is no multiple of `blocks`.
    """

    def __init__(
        self,
        n_actions: int,
        n_tokens: int,
        *,
        deter: int,
        hidden: int,
        latents: int = 32,
        classes: int,
        blocks: int = 8,
        unimix: float = 0.01,
        prior_layers: int = 2,
        posterior_layers: int = 1,
        update_bias: float = -1.0,
        generator: np.random.Generator,
    ) -> None:
        super().__init__()
        if deter % blocks:
            raise ValueError(f"deter must be a multiple of blocks, {blocks}, got {deter}")
        self.shape, self.deter, self.blocks, self.share = (latents, classes), deter, blocks, unimix
        stoch = latents * classes
        self.of_deter = Layer(deter, hidden, generator)
        self.of_stoch = Layer(stoch, hidden, generator)
        self.of_action = Layer(n_actions, hidden, generator)
        inputs = deter + 3 * hidden * blocks
        self.block_layer = BlockLinear(inputs, deter, blocks, generator)
        self.block_norm = RMSNorm(deter)
        self.gates = BlockLinear(deter, 3 * deter, blocks, generator)
        with torch.no_grad():  # beside the -1 that a step adds
            self.gates.bias[..., -(deter // blocks) :] = update_bias + 1.0
        self.prior_head = Head(deter, prior_layers, hidden, stoch, generator)
        seen = deter + n_tokens
        self.posterior_head = Head(seen, posterior_layers, hidden, stoch, generator)

    def initial(self, n: int) -> Latent:
        """The state [n, ...] before anything was seen: zeros."""
        weight = self.block_norm.scale
        return Latent(weight.new_zeros(n, self.deter), weight.new_zeros(n, *self.shape))

    def step(self, latent: Latent, action: Tensor) -> Tensor:
        """Deterministic state [B, deter] after an action [B, n_actions] in a state [B, ...]."""
        deter, stoch = latent
        action = action / action.abs().clamp(min=1.0)
        shared = torch.cat(
            (self.of_deter(deter), self.of_stoch(stoch.flatten(-2)), self.of_action(action)), -1
        )
        own = deter.unflatten(-1, (self.blocks, -1)).transpose(0, 1)
        x = torch.cat((own, shared.expand(self.blocks, *shared.shape)), -1)
        x = self.block_layer(x).transpose(0, 1).flatten(1)
        x = silu(self.block_norm(x)).unflatten(-1, (self.blocks, -1)).transpose(0, 1)
        gates = self.gates(x).transpose(0, 1).unflatten(-1, (3, -1))
        reset, candidate, update = (gate.flatten(1) for gate in gates.unbind(2))
        candidate = torch.tanh(reset.sigmoid() * candidate)
        update = (update - 1.0).sigmoid()
        remembered: Tensor = update * candidate + (1.0 - update) * deter
        return remembered

    def prior(self, deter: Tensor) -> Tensor:
        """Log-probabilities [..., latents, classes] of what comes, without seeing it."""
        return self._log_probs(self.prior_head(deter))

    def posterior(self, deter: Tensor, tokens: Tensor) -> Tensor:
        """Log-probabilities [..., latents, classes] of what came, from its tokens."""
        return self._log_probs(self.posterior_head(torch.cat((deter, tokens), -1)))

    def _log_probs(self, logits: Tensor) -> Tensor:
        return unimix(logits.float().unflatten(-1, self.shape), self.share)

    def observe(
        self,
        tokens: Tensor,
        actions: Tensor,
        is_first: Tensor,
        latent: Latent,
        generator: torch.Generator | None = None,
        *,
        noise: Tensor | None = None,
    ) -> Observed:
        """The states of a sequence that is seen.

        Args:
            tokens: [T, B, n_tokens].
            actions: [T, B, n_actions] those that led to each observation.
            is_first: [T, B] bool, where an episode begins: nothing is remembered there.
            latent: [B, ...] before the sequence.
            generator: Source of the draws.
            noise: [T, B, latents, classes] of the draws instead; zeros take the likeliest classes.
        """
        noise = self.noise(tokens.shape[:2], generator) if noise is None else noise
        tokens = tokens.to(latent.deter.dtype)
        # Errors add up from step to step, so that autocasts leave the recurrent model alone.
        with torch.autocast(tokens.device.type, enabled=False):
            return self._observe(tokens, actions, is_first, latent, noise)

    def _observe(
        self, tokens: Tensor, actions: Tensor, is_first: Tensor, latent: Latent, noise: Tensor
    ) -> Observed:
        if self.is_as_built:
            found = world_scan.observe(self, tokens, actions, is_first, latent, noise)
            deter, stoch, logits = found
            return Observed(
                Latent(deter, stoch), unimix(logits.float(), self.share), self.prior(deter)
            )
        return self.observe_stepwise(tokens, actions, is_first, latent, noise)

    def observe_stepwise(
        self, tokens: Tensor, actions: Tensor, is_first: Tensor, latent: Latent, noise: Tensor
    ) -> Observed:
        """Result of `observe` by its definition: one step after another."""
        deters, stochs, posteriors = [], [], []
        for t in range(len(tokens)):
            goes_on = (~is_first[t]).to(tokens.dtype)[:, None]
            latent = Latent(latent.deter * goes_on, latent.stoch * goes_on[..., None])
            deter = self.step(latent, actions[t] * goes_on)
            posterior = self.posterior(deter, tokens[t])
            latent = Latent(deter, draw(posterior, noise[t]))
            deters.append(deter)
            stochs.append(latent.stoch)
            posteriors.append(posterior)
        deter = torch.stack(deters)
        latents = Latent(deter, torch.stack(stochs))
        return Observed(latents, torch.stack(posteriors), self.prior(deter))

    @property
    def is_as_built(self) -> bool:
        """True if nothing of a step was replaced, so that its fused twin may stand for it."""
        own = any(name in vars(self) for name in STEP)
        own |= any(getattr(type(self), name) is not getattr(RSSM, name) for name in STEP)
        hidden = getattr(self.posterior_head, "hidden", ())
        own |= len(hidden) != 1
        return not own and all(type(part) in KNOWN for part in self.modules() if part is not self)

    def imagine(self, latent: Latent, action: Tensor, noise: Tensor) -> Latent:
        """The state [B, ...] that follows an action, as the model expects it."""
        deter = self.step(latent, action)
        return Latent(deter, draw(self.prior(deter), noise))

    def imaginer(self) -> Callable[[Latent, Tensor, Tensor], Latent]:
        """`imagine` for many steps between which no weight changes and nobody wants a gradient."""
        step = world_scan.Imaginer(self) if self.is_as_built else None

        def imagine(latent: Latent, action: Tensor, noise: Tensor) -> Latent:
            with torch.autocast(action.device.type, enabled=False):
                if step is None:
                    return self.imagine(latent, action, noise)
                deter, classes = step(latent.deter, latent.stoch.flatten(-2), action, noise)
            return Latent(deter, classes.unflatten(-1, self.shape))

        return imagine

    def noise(self, shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
        """Noise [*shape, latents, classes] for as many draws."""
        like = self.block_norm.scale
        uniform = torch.empty((*shape, *self.shape), device=like.device)
        uniform.uniform_(1e-6, 1.0 - 1e-6, generator=generator)
        return uniform.log_().neg_().log_().neg_()


class WorldModel(nn.Module):
    """Encoder, recurrent state-space model, decoder, and heads of reward and end.

    Usable alone: `observe` a sequence, `imagine` it onwards, `decode`, or compute its `loss`.

    Args:
        observation_space: Of images, vectors and integers; a Dict mixes them.
        n_actions: Numbers of an action; discrete ones are one-hot.
        deter: Size of what is remembered.
        hidden: Size of the layers of the recurrent model.
        latents: Number of categorical latents.
        classes: Number of classes of each of them.
        depth: Channels of images, before their multiples.
        units: Size of the layers of encoder, decoder and heads.
        blocks: Blocks of the recurrent unit.
        layers: Number of hidden layers of encoder and decoder of vectors.
        head_layers: Number of hidden layers of the heads of reward and end.
        prior_layers: Number of hidden layers of the prior.
        posterior_layers: Number of hidden layers of the posterior.
        update_bias: See `RSSM`.
        bins: Number of bins of the distribution of rewards.
        unimix: Share of the uniform distribution in every categorical.
        free_nats: Divergence below which nothing is gained.
        symlog: See and predict vectors as symlogs; otherwise as they are.
        reward_grad: Let the loss of rewards reach the states; otherwise its head alone.
        horizon: Steps after which what is expected to go on counts 1 / e; its discount is learned
            by the head of the end.
        generator: Source of the weights.

    Example:
        >>> box = spaces.Box(-1.0, 1.0, (3,))
        >>> generator = np.random.default_rng(0)
        >>> model = WorldModel(box, 2, deter=16, hidden=8, classes=4, units=8, generator=generator)
        >>> latent = model.rssm.initial(5)
        >>> model.imagine(latent, torch.zeros(7, 5, 2)).deter.shape
        torch.Size([7, 5, 16])
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        n_actions: int,
        *,
        deter: int,
        hidden: int,
        latents: int = 32,
        classes: int,
        depth: int = 4,
        units: int,
        blocks: int = 8,
        layers: int = 3,
        head_layers: int = 1,
        prior_layers: int = 2,
        posterior_layers: int = 1,
        update_bias: float = -1.0,
        bins: int = 255,
        unimix: float = 0.01,
        free_nats: float = 1.0,
        symlog: bool = True,
        reward_grad: bool = True,
        horizon: float = 333.0,
        generator: np.random.Generator,
    ) -> None:
        super().__init__()
        entries = entries_of(observation_space)
        self._is_dict = isinstance(observation_space, spaces.Dict)
        self._free_nats, self._reward_grad, self.horizon = free_nats, reward_grad, horizon
        shared: dict[str, Any] = {"depth": depth, "units": units, "generator": generator}
        vectors: dict[str, Any] = {"layers": layers, "symlog": symlog}
        self.encoder = Encoder(entries, **vectors, **shared)
        self.rssm = RSSM(
            n_actions,
            self.encoder.size,
            deter=deter,
            hidden=hidden,
            latents=latents,
            classes=classes,
            blocks=blocks,
            unimix=unimix,
            prior_layers=prior_layers,
            posterior_layers=posterior_layers,
            update_bias=update_bias,
            generator=generator,
        )
        stoch = latents * classes
        self.n_features, self.n_actions = deter + stoch, n_actions
        self.decoder = Decoder(
            entries, deter=deter, stoch=stoch, blocks=blocks, **vectors, **shared
        )
        self.reward_head = Head(self.n_features, head_layers, units, bins, generator, scale=0.0)
        self.end_head = Head(self.n_features, head_layers, units, 1, generator)
        self.register_buffer("bins", two_hot_bins(bins), persistent=False)

    bins: Tensor

    def entries(self, obs: Any) -> Mapping[str, Tensor]:
        """Observations by entry, whatever the space."""
        return obs if self._is_dict else {"obs": obs}

    def actions(self, given: Tensor) -> Tensor:
        """Actions [..., n_actions]: given as they are, or as integers [...], which are one-hot."""
        return given if given.is_floating_point() else one_hot(given.long(), self.n_actions).float()

    def observe(self, batch: Mapping[str, Any], latent: Latent, generator: Any = None) -> Observed:
        """The states of sequences [T, B] of `obs`, `prev_actions` and `is_first`."""
        tokens, actions = self.encoder(self.entries(batch["obs"])), batch["prev_actions"]
        return self.rssm.observe(
            tokens, self.actions(actions), batch["is_first"], latent, generator
        )

    def imagine(self, latent: Latent, actions: Tensor, generator: Any = None) -> Latent:
        """The states [H, B, ...] that actions [H, B, n_actions] lead to from a state [B, ...]."""
        actions = self.actions(actions)
        noise = self.rssm.noise(tuple(actions.shape[:2]), generator)
        states = []
        for action, drawn in zip(actions, noise, strict=True):
            latent = self.rssm.imagine(latent, action, drawn)
            states.append(latent)
        return Latent(*(torch.stack(parts) for parts in zip(*states, strict=True)))

    def decode(self, latents: Latent) -> Any:
        """Observations [..., *shape] that are expected in some states."""
        shown = self.decoder.shown(self.decoder(latents))
        return shown if self._is_dict else shown["obs"]

    def rewards(self, latents: Latent) -> Tensor:
        """Rewards [...] that are expected to arrive with some states."""
        return self.rewards_at(latents.features)

    def rewards_at(self, features: Tensor) -> Tensor:
        """Rewards [...] that are expected at features [..., n_features]."""
        return two_hot_mean(self.reward_head(features).float(), self.bins)

    def continues(self, latents: Latent) -> Tensor:
        """Discounts [...] of what follows some states: 0 where an episode terminates there."""
        return self.continues_at(latents.features)

    def continues_at(self, features: Tensor) -> Tensor:
        """Discounts [...] of what follows features [..., n_features]."""
        continues: Tensor = self.end_head(features).squeeze(-1).float().sigmoid()
        return continues

    def loss(self, batch: Mapping[str, Any], observed: Observed | None = None) -> dict[str, Tensor]:
        """Losses [T, B] of the parts of the model on sequences that it has observed.

        Args:
            batch: `obs`, `rewards` that arrived with them, and `is_terminal`.
            observed: What `observe` gave for it; None observes it, from a state of zeros.
        """
        if observed is None:
            observed = self.observe(batch, self.rssm.initial(batch["rewards"].shape[1]))
        features = observed.latents.features
        obs = self.entries(batch["obs"])
        goes_on = (1.0 - batch["is_terminal"].float()) * (1.0 - 1.0 / self.horizon)
        ends = self.end_head(features).squeeze(-1).float()
        rewards = self.reward_head(features if self._reward_grad else features.detach()).float()
        dynamics, representation = balanced_kl(
            observed.posterior, observed.prior, free_nats=self._free_nats
        )
        return {
            "reconstruction": self.decoder.loss(self.decoder(observed.latents), obs),
            "reward": two_hot_loss(rewards, batch["rewards"], self.bins),
            "continue": binary_cross_entropy_with_logits(ends, goes_on, reduction="none"),
            "dynamics": dynamics,
            "representation": representation,
        }
