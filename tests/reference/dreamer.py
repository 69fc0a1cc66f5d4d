"""A gradient step of DreamerV3 in double precision, in plain loops over steps, rows and blocks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

LEAST = 1e-4


class Step:
    """The losses of one batch as functions of weights by name.

    Args:
        weights: [name] double precision, those of the learner's networks.
        slow: The same of the slow critic.
        config: The learner's options.
        draw: Gives the noise of the learner's draws, shape by shape, in its order.
    """

    def __init__(self, weights: dict[str, Tensor], slow: dict[str, Tensor], config: Any, draw: Any):
        self.w, self.slow, self.c, self.draw = weights, slow, config, draw
        half = torch.linspace(-20, 0, 128).double()
        half = -(half.abs().exp() - 1)
        self.bins = torch.cat((half, -half[:-1].flip(0)))

    # Layers

    def linear(self, name: str, x: Tensor, w: dict[str, Tensor] | None = None) -> Tensor:
        w = self.w if w is None else w
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def layer(self, name: str, x: Tensor, w: dict[str, Tensor] | None = None) -> Tensor:
        y = self.linear(f"{name}.linear", x, w)
        return self.silu(self.rms(f"{name}.norm", y, w))

    def rms(self, name: str, y: Tensor, w: dict[str, Tensor] | None = None) -> Tensor:
        w = self.w if w is None else w
        return y / ((y * y).mean(-1, keepdim=True) + LEAST).sqrt() * w[f"{name}.scale"]

    @staticmethod
    def silu(x: Tensor) -> Tensor:
        return x / (1 + (-x).exp())

    def head(self, name: str, layers: int, x: Tensor, w: dict[str, Tensor] | None = None) -> Tensor:
        dot = f"{name}." if name else ""
        for i in range(layers):
            x = self.layer(f"{dot}hidden.{i}", x, w)
        return self.linear(f"{dot}output", x, w)

    # The recurrent model

    def cell(self, deter: Tensor, stoch: Tensor, action: Tensor) -> Tensor:
        size, blocks = deter.shape[1] // self.c.blocks, self.c.blocks
        shared = torch.cat(
            (
                self.layer("world.rssm.of_deter", deter),
                self.layer("world.rssm.of_stoch", stoch.flatten(1)),
                self.layer("world.rssm.of_action", action / action.abs().clamp(min=1)),
            ),
            1,
        )
        parts = []
        for b in range(blocks):
            own = torch.cat((deter[:, b * size : (b + 1) * size], shared), 1)
            weight, bias = (self.w[f"world.rssm.block_layer.{n}"][b] for n in ("weight", "bias"))
            parts.append(own @ weight + bias)
        hidden = self.silu(self.rms("world.rssm.block_norm", torch.cat(parts, 1)))
        after = []
        for b in range(blocks):
            weight, bias = (self.w[f"world.rssm.gates.{n}"][b] for n in ("weight", "bias"))
            gates = hidden[:, b * size : (b + 1) * size] @ weight + bias
            reset, candidate, update = gates.split(size, 1)
            candidate = (reset.sigmoid() * candidate).tanh()
            update = (update - 1).sigmoid()
            after.append(update * candidate + (1 - update) * deter[:, b * size : (b + 1) * size])
        return torch.cat(after, 1)

    def probs(self, logits: Tensor) -> Tensor:
        p = logits.reshape(*logits.shape[:-1], self.c.latents, self.c.classes).softmax(-1)
        mixed: Tensor = (1 - self.c.unimix) * p + self.c.unimix / self.c.classes
        return mixed

    def prior(self, deter: Tensor) -> Tensor:
        return self.probs(self.head("world.rssm.prior_head", 2, deter))

    @staticmethod
    def sampled(p: Tensor, noise: Tensor) -> Tensor:
        hot = torch.zeros_like(p)
        hot.scatter_(-1, (p.log() + noise).argmax(-1, keepdim=True), 1.0)
        return hot + p - p.detach()

    # Losses

    def two_hot(self, logits: Tensor, targets: Tensor) -> Tensor:
        log_probs, flat = logits.log_softmax(-1).flatten(0, -2), targets.flatten()
        found = []
        for row, target in zip(log_probs, flat.tolist(), strict=True):
            above = int((self.bins <= target).sum().clamp(1, len(self.bins) - 1))
            low, high = self.bins[above - 1], self.bins[above]
            share = (target - low) / (high - low)
            found.append(-(1 - share) * row[above - 1] - share * row[above])
        return torch.stack(found).view(targets.shape)

    def mean(self, logits: Tensor) -> Tensor:
        return (logits.softmax(-1) * self.bins).sum(-1)

    def losses(self, batch: Any) -> dict[str, Tensor]:
        c, steps, n = self.c, len(batch.rewards), batch.rewards.shape[1]
        obs, actions = batch.obs.double(), torch.eye(self.n_actions).double()[batch.prev_actions]
        deter = batch.deter.double()
        stoch = torch.eye(c.classes).double()[batch.stoch.long()]
        seen = obs.sign() * (1 + obs.abs()).log()
        tokens = seen
        for i in range(3):
            tokens = self.layer(f"world.encoder.vectors.{i}", tokens)
        noise = self.draw((steps, n, c.latents, c.classes))
        feats, kls = [], []
        for t in range(steps):
            goes_on = 1 - batch.is_first[t].double()[:, None]
            deter = self.cell(deter * goes_on, stoch * goes_on[..., None], actions[t] * goes_on)
            post = self.probs(
                self.head("world.rssm.posterior_head", 1, torch.cat((deter, tokens[t]), 1))
            )
            prior = self.prior(deter)
            stoch = self.sampled(post, noise[t])

            def kl(p: Tensor, q: Tensor) -> Tensor:
                return (p * (p.log() - q.log())).sum((-2, -1)).clamp(min=c.free_nats)

            kls.append((kl(post.detach(), prior), kl(post, prior.detach())))
            feats.append((deter, stoch))
        deters, stochs = (torch.stack(x) for x in zip(*feats, strict=True))
        features = torch.cat((deters, stochs.flatten(2)), 2)
        decoded = self.head("world.decoder.vectors", 3, features)
        rewards = self.two_hot(self.head("world.reward_head", 1, features), batch.rewards.double())
        ends = self.head("world.end_head", 1, features).squeeze(-1)
        target = (1 - batch.is_terminal.double()) * c.gamma
        going = -(target * ends.sigmoid().log() + (1 - target) * (1 - ends.sigmoid()).log())
        found = {
            "reconstruction_loss": ((decoded - seen) ** 2).sum(-1).mean(),
            "reward_loss": rewards.mean(),
            "continue_loss": going.mean(),
            "dynamics_loss": torch.stack([a for a, _ in kls]).mean(),
            "representation_loss": torch.stack([b for _, b in kls]).mean(),
        }
        return {**found, **self.behavior(batch, deters, stochs)}

    def behavior(self, batch: Any, deters: Tensor, stochs: Tensor) -> dict[str, Tensor]:
        c, k = self.c, self.c.imag_last or len(deters)
        deter, stoch = deters[-k:].flatten(0, 1).detach(), stochs[-k:].flatten(0, 1).detach()
        noise = self.draw((c.imagination, len(deter), c.latents, c.classes))
        of_actions = self.draw((c.imagination + 1, len(deter), self.n_actions))
        feats, chosen = [], []
        for t in range(c.imagination + 1):
            feature = torch.cat((deter, stoch.flatten(1)), 1).detach()
            logits = self.head("actor.head", 3, feature).detach()
            action = torch.zeros_like(logits)
            drawn = logits + of_actions[t]
            action.scatter_(1, drawn.argmax(1, keepdim=True), 1.0)
            feats.append(feature)
            chosen.append(action)
            if t < c.imagination:
                deter = self.cell(deter, stoch, action).detach()
                stoch = self.sampled(self.prior(deter), noise[t]).detach()
        features, actions = torch.stack(feats), torch.stack(chosen)
        rewards = self.mean(self.head("world.reward_head", 1, features)).detach()
        going = self.head("world.end_head", 1, features).squeeze(-1).sigmoid().detach()
        logits = self.head("critic", 3, features)
        values = self.mean(logits).detach()
        slow = self.mean(self.head("", 3, features, self.slow)).detach()
        returns = values.clone()
        for t in reversed(range(c.imagination)):
            mixed = (1 - c.lam) * values[t + 1] + c.lam * returns[t + 1]
            returns[t] = rewards[t + 1] + going[t + 1] * mixed
        returns = returns[:-1]
        weights = torch.stack([going[: t + 1].prod(0) for t in range(c.imagination)])
        low, high = (c.return_rate * torch.quantile(returns, q) for q in (0.05, 0.95))
        advantages = (returns - values[:-1]) / max(1.0, float(high - low))
        policy = self.head("actor.head", 3, features[:-1]).log_softmax(-1)
        log_probs = (policy * actions[:-1]).sum(-1)
        entropy = -(policy.exp() * policy).sum(-1)
        actor = -(weights * (log_probs * advantages + c.ent_coef * entropy)).mean()
        errors = self.two_hot(logits[:-1], returns) + c.slow_coef * self.two_hot(
            logits[:-1], slow[:-1]
        )
        found = {"actor_loss": actor, "critic_loss": (weights * errors).mean()}

        boot = returns[0].view(k, -1)
        features = torch.cat((deters, stochs.flatten(2)), 2)[-k:]
        logits = self.head("critic", 3, features)
        slow = self.mean(self.head("", 3, features, self.slow)).detach()
        paid, last = batch.rewards[-k:].double(), batch.is_last[-k:].double()
        going = (1 - batch.is_terminal[-k:].double()) * c.gamma
        replayed = boot.clone()
        for t in reversed(range(k - 1)):
            share = c.lam * (1 - last[t + 1])
            mixed = (1 - share) * boot[t + 1] + share * replayed[t + 1]
            replayed[t] = paid[t + 1] + going[t + 1] * mixed
        errors = self.two_hot(logits[:-1], replayed[:-1]) + c.slow_coef * self.two_hot(
            logits[:-1], slow[:-1]
        )
        found["replay_value_loss"] = ((1 - last[:-1]) * errors).mean()
        return found

    n_actions = 0
