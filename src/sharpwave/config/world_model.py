"""Options of algorithms that learn a model of the world from replayed sequences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sharpwave.config.off_policy import DEVICE, DrawOptions, ReplayConfig

__all__ = ["WorldModelConfig"]

OF_THE_MODEL = (
    *("deter", "hidden", "latents", "classes", "depth", "units", "blocks", "bins"),
    *("layers", "head_layers", "prior_layers", "posterior_layers", "update_bias"),
    *("unimix", "free_nats", "symlog", "reward_grad"),
)


@dataclass(frozen=True, kw_only=True)
class WorldModelConfig(ReplayConfig):
    """Options of the model, its sizes and losses, and of the sequences that it learns from."""

    n_envs: int = 1
    """Number of environments."""
    buffer_size: int = 1_000_000
    """Steps that the buffer keeps."""
    batch_size: int = 16
    """Sequences of a gradient step."""
    sequence_length: int = 16
    """Observations of a sequence, beside the one whose stored latent state it starts from."""
    train_ratio: float | None = 64.0
    """Steps that are replayed per environment step: with sequences of 16 x 16, 64 is a gradient
    step every 4 environment steps. What is left over is carried on."""
    learning_starts: int = 0
    """Environment steps with random actions, after which learning starts; a batch must be there."""
    fresh: bool | None = None
    """Draw every new sequence once, before others are drawn at random; None does so where the
    buffer can, which one on the device cannot."""
    gamma: float = 1 - 1 / 333
    """Discount of future rewards, which the model learns with the ends of episodes: a horizon of
    333 steps."""
    deter: int = 128
    """Size of the deterministic (recurrent) state of the model."""
    hidden: int = 64
    """Width of the layers of the recurrent model."""
    latents: int = 8
    """Number of categorical latents of a state."""
    classes: int = 8
    """Number of classes of each latent."""
    depth: int = 4
    """Base number of channels of the convolutions on images."""
    units: int = 64
    """Width of the layers of encoder, decoder and heads."""
    blocks: int = 8
    """Number of blocks of the block-diagonal recurrent unit."""
    layers: int = 3
    """Number of hidden layers of encoder and decoder of vectors, of the policy and of the
    critic."""
    head_layers: int = 1
    """Number of hidden layers of the heads of reward and end."""
    prior_layers: int = 2
    """Number of hidden layers of the prior."""
    posterior_layers: int = 1
    """Number of hidden layers of the posterior; with more than one the model takes its steps by
    their definition, which is slower."""
    update_bias: float = -1.0
    """First logit of the share of the recurrent state that a step rewrites: -1 keeps 73 % of it, -3
    keeps 95 %, for what must be remembered over many steps."""
    bins: int = 255
    """Number of bins of the distributions of rewards and values, odd."""
    unimix: float = 0.01
    """Fraction of the uniform distribution that is mixed into every latent (unimix)."""
    free_nats: float = 1.0
    """Free nats: KL divergence between prior and posterior below which there is no loss."""
    reconstruction_coef: float = 1.0
    """Weight of the reconstruction loss, of all entries of an observation."""
    reward_coef: float = 1.0
    """Weight of the loss of the rewards that arrive."""
    continue_coef: float = 1.0
    """Weight of the loss of the head that tells whether an episode goes on."""
    dynamics_coef: float = 1.0
    """Weight of the dynamics loss, the KL divergence that trains the prior."""
    representation_coef: float = 0.1
    """Weight of the representation loss, the KL divergence that trains the posterior."""
    symlog: bool = True
    """Encode and predict vectors by their symlog; otherwise as they are."""
    reward_grad: bool = True
    """Let the loss of rewards shape the states of the model; otherwise its head alone learns."""
    store_latents: bool = True
    """Begin sequences with the latent state that was stored, and store what learning made of it."""
    bf16: bool = False
    """Compute encoder, decoder and heads of an update in bfloat16. Weights, the recurrent model and
    losses stay in float32."""

    @property
    def steps_per_batch(self) -> int:
        """Steps that a gradient step replays."""
        return self.batch_size * self.sequence_length

    @property
    def draws(self) -> DrawOptions:
        """Sequences, each with a row before it for its latent state."""
        fresh = self.buffer != DEVICE if self.fresh is None else self.fresh
        return DrawOptions(
            length=self.sequence_length, context=int(self.store_latents), fresh=fresh
        )

    @property
    def model_options(self) -> dict[str, Any]:
        """Arguments of `nn.WorldModel`."""
        options: dict[str, Any] = {name: getattr(self, name) for name in OF_THE_MODEL}
        return {**options, "horizon": 1.0 / max(1e-12, 1.0 - self.gamma)}

    @property
    def model_coefs(self) -> dict[str, float]:
        """Weights of the losses of the model, by the name of the loss."""
        return {
            "reconstruction": self.reconstruction_coef,
            "reward": self.reward_coef,
            "continue": self.continue_coef,
            "dynamics": self.dynamics_coef,
            "representation": self.representation_coef,
        }

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("deter", "latents", "classes", "units", "blocks", "sequence_length")
        self.require_positive("hidden", "depth")
        self.require_positive("layers", "head_layers", "prior_layers", "posterior_layers")
        self.require_range("unimix", 0, 1)
        self.require_range("free_nats", 0)
        for name in self.model_coefs:
            self.require_range(f"{name}_coef", 0)
        if self.deter % self.blocks:
            raise ValueError(f"deter must be a multiple of blocks, {self.blocks}, got {self.deter}")
        if self.classes > 256:
            raise ValueError(f"classes must be at most 256, got {self.classes}")
        if self.bins < 3 or self.bins % 2 == 0:
            raise ValueError(f"bins must be odd and at least 3, got {self.bins}")
        if self.sequence_length < 2:
            raise ValueError(f"sequence_length must be at least 2, got {self.sequence_length}")
        if self.fresh and self.buffer == DEVICE:
            raise ValueError('fresh must be None or False with buffer="device", got True')
