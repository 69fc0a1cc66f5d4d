"""DreamerV3: an agent that learns inside its world model (Hafner et al., 2023, 2301.04104)."""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sharpwave.agents import OnlineAgent, dreams, replayed
from sharpwave.config.schedules import Linear, ScheduleLike
from sharpwave.config.world_model import WorldModelConfig
from sharpwave.core.lazy import losses, nn, torch
from sharpwave.learners import Metrics
from sharpwave.learners.learner import Acted
from sharpwave.learners.sequences import SequenceBatch, SequenceSampler
from sharpwave.learners.torch_learner import TorchLearner
from sharpwave.loops.off_policy import OffPolicyLoop

if TYPE_CHECKING:
    from torch import Tensor

    from sharpwave.nn import Latent, Observed

__all__ = ["DreamerV3", "DreamerV3Config", "DreamerV3Learner"]


@dataclass(frozen=True, kw_only=True)
class DreamerV3Config(WorldModelConfig):
    """Options of DreamerV3, by default for small tasks on a CPU; presets have larger sizes.

    Constants of the architecture are no options: convolutions of 5 x 5 with pooling, the update
    bias -1 of the recurrent unit, the outermost bins ±symexp(20), the scale 0.01 of the policy's
    first outputs (0 of reward and values), the epsilon 1e-4 of norms, the betas (0.9, 0.999) and
    the epsilon 1e-20 of LaProp, and the percentiles 5 and 95 of returns.
    """

    learning_rate: ScheduleLike = Linear(1e-3, 1e-4)  # noqa: RUF009 - immutable
    """Learning rate; a schedule follows the progress of the run."""
    warmup: int = 100
    """Warmup: gradient steps over which the learning rate rises from 0."""
    agc: float | None = 0.3
    """Adaptive gradient clipping: maximum norm of the gradient of a tensor, relative to the norm of
    the tensor; None does not clip."""
    imagination: int = 15
    """Imagination horizon: steps that are imagined from every state."""
    imag_last: int | None = 8
    """Imagine only from the last so many states of each sequence; None for all. The default stands
    for all of a sequence that is shorter."""
    lam: float = 0.95
    """λ of the λ-returns."""
    policy_coef: float = 1.0
    """Weight of the loss of the policy."""
    value_coef: float = 1.0
    """Weight of the value loss on imagined steps."""
    replay_value_coef: float = 0.3
    """Weight of the value loss on replayed steps; 0 leaves it out."""
    ent_coef: float = 3e-4
    """Entropy coefficient: weight of the bonus for entropy in the loss of the actor."""
    policy_unimix: float = 0.01
    """Fraction of the uniform distribution in a policy of discrete actions, which goes on trying
    them all."""
    min_std: float = 0.1
    """Least standard deviation of continuous actions, which lie between -1 and 1."""
    max_std: float = 1.0
    """Largest standard deviation of continuous actions."""
    slow_rate: float = 0.02
    """Polyak coefficient of the target network of the critic."""
    slow_coef: float = 1.0
    """Weight of the loss that regularizes the critic towards its target network."""
    return_rate: float = 0.01
    """Rate of the moving average of the range of returns."""
    normalize_returns: bool = True
    """Divide advantages by the range of returns, where that is above 1."""

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("imagination", "imag_last", "agc", "min_std")
        self.require_range("max_std", self.min_std)
        for share in ("lam", "slow_rate", "return_rate", "policy_unimix"):
            self.require_range(share, 0, 1)
        for name in ("warmup", "ent_coef", "policy_coef", "value_coef", "replay_value_coef"):
            self.require_range(name, 0)
        is_default = self.imag_last == type(self).imag_last
        if not is_default and not 2 <= (self.imag_last or 2) <= self.sequence_length:
            raise ValueError(
                f"imag_last must be from 2 to sequence_length, {self.sequence_length}, "
                f"got {self.imag_last}"
            )


class DreamerV3Learner(TorchLearner):
    r"""The losses of DreamerV3.

    The model learns on sequences of replay: what it decodes, the reward and the end that arrive
    with each observation, and a prior that expects the posterior. From every state it imagines H
    steps with the actor. With rewards r, discounts c and values V of imagined states, the returns

        R_t = r_{t+1} + c_{t+1} ((1 − λ) V_{t+1} + λ R_{t+1}),  R_H = V_H

    and their range S between the 5th and 95th percentile,

        L_actor  = −mean(w_t ((R_t − V_t) / max(1, S) log π(a_t) + η H(π)))
        L_critic = mean(w_t (CE(V_t, R_t) + CE(V_t, V_slow)))

    with w_t the product of the discounts so far. The critic learns on replayed steps too, whose
    returns bootstrap from imagined ones. One optimizer moves everything.
    """

    config: DreamerV3Config
    Sampler = SequenceSampler
    losses = ("model_loss", "behavior_loss")
    uncompiled = ("_observed", "_imagined")  # loops over steps, which have kernels of their own
    _knows_of_masks = False

    def build(self) -> None:
        """Make the model, the actor, the critic and its target network."""
        config, generator = self.config, self.weights_generator
        world = nn.WorldModel(
            self.observation_space,
            nn.WorldActor(1, self.action_space, units=1, generator=generator).size,
            **config.model_options,
            generator=generator,
        )
        size, layers, units = world.n_features, config.layers, config.units
        actor = nn.WorldActor(
            size,
            self.action_space,
            units=units,
            layers=layers,
            share=config.policy_unimix,
            deviations=(config.min_std, config.max_std),
            generator=generator,
        )
        critic = nn.Head(size, layers, units, len(world.bins), generator, scale=0.0)
        parts = torch.nn.ModuleDict({"world": world, "actor": actor, "critic": critic})
        self.policy = self.add("policy", parts, self.make_optimizer)
        self.slow_critic = self.add_copy("slow_critic", critic)
        self.return_range = torch.zeros(2, device=self.device)
        self.return_shares = torch.tensor([0.05, 0.95], device=self.device)

    @property
    def world(self) -> nn.WorldModel:
        """The model of the world."""
        return self.policy["world"]  # type: ignore[no-any-return]

    @property
    def actor(self) -> nn.WorldActor:
        """The policy on states of the model."""
        return self.policy["actor"]  # type: ignore[no-any-return]

    @property
    def critic(self) -> nn.Head:
        """Values of these states."""
        return self.policy["critic"]  # type: ignore[no-any-return]

    def make_optimizer(self, flat: nn.FlatParameters) -> nn.FlatOptimizer:
        """LaProp with gradients clipped by tensor."""
        return nn.LaProp(flat, lr=0.0, agc=self.config.agc, warmup=self.config.warmup)

    # Acting

    def initial_state(self, n_envs: int) -> Tensor:
        """Latent state and last action [1, n, size], zeros."""
        size = self.world.n_features + self.actor.size
        return torch.zeros(1, n_envs, size, device=self.device)

    def act(
        self, obs: Any, *, explore: bool, state: Any = None, starts: Any = None, masks: Any = None
    ) -> Acted:
        """Actions of the policy at the state that an observation leads to."""
        if masks is not None and not self._knows_of_masks:
            self._knows_of_masks = True
            warnings.warn(
                "actions are masked where the agent acts, but in imagination all are allowed",
                stacklevel=2,
            )
        n = len(next(iter(self.world.entries(obs).values())))
        if state is None:
            state = self.initial_state(n)
        if starts is None:
            starts = torch.zeros(n, dtype=torch.bool, device=self.device)
        latent, action = self._unpacked(state[0])
        tokens = self.world.encoder(self.world.entries(obs))
        rssm = self.world.rssm
        noise = rssm.noise((1, n), self.explore_generator) if explore else None
        if noise is None:  # the likeliest latents, so that play without exploring is repeatable
            noise = torch.zeros(1, *latent.stoch.shape, device=self.device)
        observed = rssm.observe(tokens[None], action[None], starts[None], latent, noise=noise)
        latent = nn.Latent(*(part[0] for part in observed.latents))
        action = self.actor.act(
            latent.features,
            deterministic=not explore,
            masks=masks,
            noise=self.actor.noise((n,), self.explore_generator) if explore else None,
        )
        state = torch.cat((latent.deter, latent.stoch.flatten(-2), action), -1)[None]
        chosen = action.argmax(-1) if self.actor.is_discrete else action.clamp(-1.0, 1.0)
        return Acted(chosen, state=state, extra=self._stored(latent) or None)

    def _unpacked(self, state: Tensor) -> tuple[Latent, Tensor]:
        rssm = self.world.rssm
        parts = state.split([rssm.deter, rssm.shape[0] * rssm.shape[1], self.actor.size], -1)
        return nn.Latent(parts[0], parts[1].unflatten(-1, rssm.shape)), parts[2]

    def extra_columns(self) -> dict[str, Any]:
        """The latent state after each observation."""
        if not self.config.store_latents:
            return {}
        return {
            "deter": ("float16", (self.config.deter,)),
            "stoch": ("uint8", (self.config.latents,)),
        }

    def _stored(self, latent: Latent) -> dict[str, Tensor]:
        """A latent state as columns: class numbers, and half precision."""
        if not self.config.store_latents:
            return {}
        deter, stoch = (part.detach() for part in latent)
        return {"deter": deter.half(), "stoch": stoch.argmax(-1).to(torch.uint8)}

    # Learning

    def update_kind(self) -> Hashable:
        """All updates run the same operations."""
        return "step"

    def update(self, batch: SequenceBatch) -> Metrics:
        """Learn from some sequences: one gradient step on all parts."""
        # Casts are not kept: those of imagination have no gradient.
        kind, is_on = self.device.type, self.config.bf16
        with torch.autocast(kind, torch.bfloat16, enabled=is_on, cache_enabled=False):
            model_loss, observed, measured = self.model_loss(batch)
            behavior_loss, more = self.behavior_loss(batch, observed)
        flat = self.flats["policy"]
        flat.backward(model_loss + behavior_loss)
        norm = torch.linalg.vector_norm(flat.grad)
        self.optimizers["policy"].step()
        with torch.no_grad():
            slow, fast = (list(net.parameters()) for net in (self.slow_critic, self.critic))
            torch._foreach_lerp_(slow, fast, self.config.slow_rate)
        self.updates += 1
        return {**measured, **more, "grad_norm": norm, **self._stored(observed.latents)}

    def model_loss(self, batch: SequenceBatch) -> tuple[Tensor, Observed, Metrics]:
        """The loss of the model on sequences, and the states that it went through."""
        actions = self.world.actions(batch.prev_actions)
        tokens = self.world.encoder(self.world.entries(batch.obs))
        observed = self._observed(tokens, actions, batch.is_first, self._before(batch))
        found = self.world.loss(vars(batch), observed)
        means = {name: loss.mean() for name, loss in found.items()}
        coefs = self.config.model_coefs
        total = sum(w * means[name] for name in means if (w := coefs.get(name, 1.0)))
        measured = {f"{name}_loss": loss.detach() for name, loss in means.items()}
        return torch.as_tensor(total), observed, measured

    def _observed(
        self, tokens: Tensor, actions: Tensor, is_first: Tensor, before: Latent
    ) -> Observed:
        """The states [T, B] of sequences that are seen."""
        return self.world.rssm.observe(tokens, actions, is_first, before, self.generator)

    def _before(self, batch: SequenceBatch) -> Latent:
        """The state before the sequences: what was stored, or nothing."""
        rssm, n = self.world.rssm, batch.rewards.shape[1]
        if batch.deter is None or batch.stoch is None:
            return rssm.initial(n)
        stoch = torch.nn.functional.one_hot(batch.stoch.long(), rssm.shape[1]).float()
        latent: Latent = nn.Latent(batch.deter.float(), stoch)
        return latent

    def behavior_loss(self, batch: SequenceBatch, observed: Observed) -> tuple[Tensor, Metrics]:
        """The losses of actor and critic in imagination, and of the critic on replay."""
        config, last = self.config, self.config.imag_last or 0  # 0 takes all
        starts = nn.Latent(*(part[-last:] for part in observed.latents))
        n_starts = len(starts.deter)
        features, actions, rewards, continues = self._imagined(starts)

        # Values of what was imagined, and what the returns there make of them.
        value_logits = self.critic(features)
        with torch.no_grad():
            values = losses.two_hot_mean(value_logits.float(), self.world.bins)
            slow = losses.two_hot_mean(self.slow_critic(features).float(), self.world.bins)
            returns = losses.lambda_returns(rewards, values, continues, values[-1], lam=config.lam)
            weights = continues.cumprod(0)[:-1]
            advantages = (returns - values[:-1]) / self._scale(returns)

        # Actions that did better than expected become more likely; entropy keeps others in play.
        log_probs, entropy = self.actor.log_prob_and_entropy(features[:-1], actions[:-1])
        bonus = log_probs * advantages + config.ent_coef * entropy
        actor_loss = -(weights * bonus).mean()

        # The critic regresses on the returns, and stays near its target network.
        targets = torch.cat((returns, values[-1:]))  # the last one has no weight
        errors = self._value_errors(value_logits, targets, slow)[:-1]
        critic_loss = (weights * errors).mean()

        # On replay it learns with a gradient into the model, which bootstraps from imagination.
        replay_loss = torch.zeros((), device=features.device)
        if config.replay_value_coef:
            replay_loss = self._replay_loss(batch, starts, returns[0].unflatten(0, (n_starts, -1)))
        total = config.policy_coef * actor_loss + config.value_coef * critic_loss
        return total + config.replay_value_coef * replay_loss, {
            "actor_loss": actor_loss.detach(),
            "critic_loss": critic_loss.detach(),
            "replay_value_loss": replay_loss.detach(),
            "entropy": entropy.mean().detach(),
            "imagined_return": returns.mean(),
            "return_scale": (self.return_range[1] - self.return_range[0]).clamp(min=1.0),
        }

    def _imagined(self, starts: Latent) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Features, actions, rewards and discounts [H + 1, M, ...] from all starts on.

        Nothing of it needs a gradient: actor and critic are evaluated once more on all features.
        """
        world, horizon = self.world, self.config.imagination
        with torch.no_grad():
            latent = nn.Latent(*(part.flatten(0, 1) for part in starts))
            n, imagine = len(latent.deter), world.rssm.imaginer()
            noise = world.rssm.noise((horizon, n), self.generator)
            of_actions = self.actor.noise((horizon + 1, n), self.generator)
            states, actions = [], []
            for t in range(horizon + 1):
                states.append(latent.features)
                actions.append(self.actor.act(states[-1], noise=of_actions[t]))
                if t < horizon:
                    latent = imagine(latent, actions[-1], noise[t])
            features = torch.stack(states)
            rewards, continues = world.rewards_at(features), world.continues_at(features)
        return features, torch.stack(actions), rewards, continues

    def _scale(self, returns: Tensor) -> Tensor:
        """The range of returns, at least 1, after it has followed those of this batch."""
        if not self.config.normalize_returns:
            return torch.ones((), device=returns.device)
        ends = torch.quantile(returns.flatten(), self.return_shares)
        self.return_range.lerp_(ends, self.config.return_rate)
        return (self.return_range[1] - self.return_range[0]).clamp(min=1.0)

    def _value_errors(self, logits: Tensor, returns: Tensor, slow: Tensor) -> Tensor:
        """Cross-entropies of values with returns, and with those of the target critic."""
        targets, weights = (returns, slow), (1.0, self.config.slow_coef)
        return losses.two_hot_losses(logits.float(), targets, weights, self.world.bins)

    def _replay_loss(self, batch: SequenceBatch, starts: Latent, bootstrap: Tensor) -> Tensor:
        """The value loss on replayed steps, whose returns bootstrap from imagined ones [K, B]."""
        features, k = starts.features, len(bootstrap)
        logits = self.critic(features)
        rewards, is_last = batch.rewards[-k:], batch.is_last[-k:].float()
        discounts = (1.0 - batch.is_terminal[-k:].float()) * self.config.gamma
        with torch.no_grad():
            slow = losses.two_hot_mean(self.slow_critic(features).float(), self.world.bins)
            returns = losses.lambda_returns(
                rewards, bootstrap, discounts, bootstrap[-1], lam=self.config.lam, cuts=is_last
            )
        errors = self._value_errors(logits, torch.cat((returns, bootstrap[-1:])), slow)[:-1]
        loss: Tensor = ((1.0 - is_last[:-1]) * errors).mean()
        return loss

    # Checkpoints

    def extra_state(self) -> dict[str, Any]:
        """The range of returns."""
        return {"return_range": self.return_range}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        """Continue from `extra_state`."""
        self.return_range.copy_(torch.as_tensor(state["return_range"]))


class DreamerV3(OnlineAgent):
    """DreamerV3: a world model that learns from replay, and a policy that learns inside it.

    `DreamerV3Learner` has the losses, `sharpwave.nn.WorldModel` the model.

    Example:
        >>> agent = DreamerV3("CartPole-v1", batch_size=4, seed=0)
        >>> metrics = agent.train(80)
        >>> agent.predict([0.0, 0.1, 0.0, -0.1]) in (0, 1)
        True
    """

    name = "dreamer_v3"
    Config = DreamerV3Config
    Learner = DreamerV3Learner
    Loop = OffPolicyLoop
    of_atari = {"img_height": 64, "img_width": 64, "grayscale": False, "stack_num": 1}  # noqa: RUF012
    config: DreamerV3Config
    learner: DreamerV3Learner

    imagine = dreams.imagine
    open_loop = dreams.open_loop
    learn = replayed.learn  # type: ignore[assignment]  # from what is stored
    pretrain = replayed.pretrain

    @property
    def world_model(self) -> nn.WorldModel:
        """The model of the world, usable alone: observe, imagine, decode, loss."""
        return self.learner.world
