"""A gradient step of DreamerV3 in double precision, in plain loops over steps, rows and blocks."""

from __future__ import annotations

import math
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

LEAST = 1e-4


class Step:
    """The losses of one batch as functions of weights by name.

    Args:
        weights: [name] double precision, those of the learner's networks.
        slow: The same of the slow critic.
        config: The learner's options.
        draw: Gives the noise of the learner's draws, shape by shape, in its order.
        entries: Observation spaces by name.
        n_actions: Numbers of an action.
        discrete: The actions are one-hot.
    """

    def __init__(
        self,
        weights: dict[str, Tensor],
        slow: dict[str, Tensor],
        config: Any,
        draw: Any,
        entries: dict[str, Any],
        n_actions: int,
        discrete: bool,
    ):
        self.w, self.slow, self.c, self.draw = weights, slow, config, draw
        self.entries, self.n_actions, self.discrete = entries, n_actions, discrete
        half = torch.linspace(-20, 0, config.bins // 2 + 1).double()
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

    # Observations

    def conv(self, name: str, x: Tensor) -> Tensor:
        """A convolution of 5 x 5 on images [N, C, H, W], tap by tap."""
        weight, bias = self.w[f"{name}.weight"], self.w[f"{name}.bias"]
        height, width = x.shape[2:]
        padded = torch.zeros(*x.shape[:2], height + 4, width + 4).double()
        padded[:, :, 2:-2, 2:-2] = x
        y = bias[None, :, None, None].expand(len(x), -1, height, width)
        for i in range(5):
            for j in range(5):
                seen = padded[:, :, i : i + height, j : j + width]
                y = y + torch.einsum("oc,nchw->nohw", weight[:, :, i, j], seen)
        return y

    def rms_of_channels(self, name: str, x: Tensor) -> Tensor:
        return self.rms(name, x.movedim(1, -1)).movedim(-1, 1)

    def encode(self, obs: dict[str, Tensor]) -> Tensor:
        vectors, images = [], []
        for name, space in self.entries.items():
            if isinstance(space, spaces.Discrete):
                vectors.append(torch.eye(int(space.n)).double()[obs[name] - int(space.start)])
            elif len(space.shape) == 3:
                images.append(obs[name].double() / 255 - 0.5)
            else:
                vectors.append(self.symlog(obs[name]))
        tokens = []
        if vectors:
            x = torch.cat(vectors, -1)
            for i in range(self.c.layers):
                x = self.layer(f"world.encoder.vectors.{i}", x)
            tokens.append(x)
        if images:
            whole = torch.cat(images, -1)
            x = whole.flatten(0, 1).movedim(-1, 1)
            for i in range(4):
                x = self.conv(f"world.encoder.convs.{i}", x)
                corners = [x[:, :, a::2, b::2] for a in (0, 1) for b in (0, 1)]
                x = torch.stack(corners).amax(0)
                x = self.silu(self.rms_of_channels(f"world.encoder.norms.{i}", x))
            tokens.append(x.reshape(*whole.shape[:2], -1))
        return torch.cat(tokens, -1)

    @staticmethod
    def symlog(x: Tensor) -> Tensor:
        x = x.double()
        return x.sign() * (1 + x.abs()).log()

    def images(self, deter: Tensor, stoch: Tensor) -> Tensor:
        """Images [N, H, W, C] of states [N, ...]."""
        size, parts = deter.shape[1] // self.c.blocks, []
        for b in range(self.c.blocks):
            weight, bias = (self.w[f"world.decoder.of_deter.{n}"][b] for n in ("weight", "bias"))
            parts.append(deter[:, b * size : (b + 1) * size] @ weight + bias)
        hidden = self.layer("world.decoder.of_stoch.0", stoch.flatten(1))
        x = torch.cat(parts, 1) + self.linear("world.decoder.of_stoch.1", hidden)
        x = x.reshape(len(x), 4 * self.c.depth, 4, 4)
        x = self.silu(self.rms_of_channels("world.decoder.first_norm", x))
        for i in range(4):
            x = x.repeat_interleave(2, 2).repeat_interleave(2, 3)
            x = self.conv(f"world.decoder.convs.{i}", x)
            if i < 3:
                x = self.silu(self.rms_of_channels(f"world.decoder.norms.{i}", x))
        return (1 / (1 + (-x).exp())).movedim(1, -1)

    def reconstruction(self, obs: dict[str, Tensor], deters: Tensor, stochs: Tensor) -> Tensor:
        """The errors of all entries, summed and averaged over states [T, B]."""
        features, total = torch.cat((deters, stochs.flatten(2)), 2), torch.zeros(()).double()
        if any(self.w_of("world.decoder.vectors")):
            numbers = self.head("world.decoder.vectors", self.c.layers, features)
        at, channel = 0, 0
        for name, space in self.entries.items():
            if isinstance(space, spaces.Discrete):
                log_probs = numbers[..., at : at + int(space.n)].log_softmax(-1)
                hot = torch.eye(int(space.n)).double()[obs[name] - int(space.start)]
                total = total - (log_probs * hot).sum(-1).mean()
                at += int(space.n)
            elif len(space.shape) == 3:
                decoded = self.images(deters.flatten(0, 1), stochs.flatten(0, 1))
                mine = decoded[..., channel : channel + space.shape[-1]]
                error = mine - obs[name].flatten(0, 1).double() / 255
                total = total + (error**2).sum((-3, -2, -1)).mean()
                channel += space.shape[-1]
            else:
                error = numbers[..., at : at + space.shape[0]] - self.symlog(obs[name])
                total = total + (error**2).sum(-1).mean()
                at += space.shape[0]
        return total

    def w_of(self, part: str) -> list[str]:
        return [name for name in self.w if name.startswith(f"{part}.")]

    # The policy

    def gaussian(self, features: Tensor) -> tuple[Tensor, Tensor]:
        outputs = self.head("actor.head", self.c.layers, features)
        mean, raw = outputs[..., : self.n_actions], outputs[..., self.n_actions :]
        low, high = self.c.min_std, self.c.max_std
        return mean.tanh(), low + (high - low) / (1 + (-raw - 2).exp())

    def acted(self, feature: Tensor, noise: Tensor) -> Tensor:
        if not self.discrete:
            mean, deviation = self.gaussian(feature)
            return (mean + deviation * noise).detach()
        log_probs = self.categorical(feature).detach().log()
        hot = torch.zeros_like(log_probs)
        return hot.scatter_(1, (log_probs + noise).argmax(1, keepdim=True), 1.0)

    def categorical(self, features: Tensor) -> Tensor:
        p = self.head("actor.head", self.c.layers, features).softmax(-1)
        mixed: Tensor = (1 - self.c.policy_unimix) * p + self.c.policy_unimix / self.n_actions
        return mixed

    def log_probs_and_entropy(self, features: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        if self.discrete:
            policy = self.categorical(features).log()
            return (policy * actions).sum(-1), -(policy.exp() * policy).sum(-1)
        mean, deviation = self.gaussian(features)
        density = (-(((actions - mean) / deviation) ** 2) / 2).exp()
        log_probs = (density / (deviation * math.sqrt(2 * math.pi))).log().sum(-1)
        return log_probs, (deviation * math.sqrt(2 * math.pi * math.e)).log().sum(-1)

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
        return self.probs(self.head("world.rssm.prior_head", self.c.prior_layers, deter))

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
        obs = batch.obs if isinstance(batch.obs, dict) else {"obs": batch.obs}
        actions = batch.prev_actions.double()
        if self.discrete:
            actions = torch.eye(self.n_actions).double()[batch.prev_actions]
        deter = batch.deter.double()
        stoch = torch.eye(c.classes).double()[batch.stoch.long()]
        tokens = self.encode(obs)
        noise = self.draw((steps, n, c.latents, c.classes))
        feats, kls = [], []
        for t in range(steps):
            goes_on = 1 - batch.is_first[t].double()[:, None]
            deter = self.cell(deter * goes_on, stoch * goes_on[..., None], actions[t] * goes_on)
            both = torch.cat((deter, tokens[t]), 1)
            post = self.probs(self.head("world.rssm.posterior_head", c.posterior_layers, both))
            prior = self.prior(deter)
            stoch = self.sampled(post, noise[t])

            def kl(p: Tensor, q: Tensor) -> Tensor:
                return (p * (p.log() - q.log())).sum((-2, -1)).clamp(min=c.free_nats)

            kls.append((kl(post.detach(), prior), kl(post, prior.detach())))
            feats.append((deter, stoch))
        deters, stochs = (torch.stack(x) for x in zip(*feats, strict=True))
        features = torch.cat((deters, stochs.flatten(2)), 2)
        paid = self.head("world.reward_head", c.head_layers, features)
        rewards = self.two_hot(paid, batch.rewards.double())
        ends = self.head("world.end_head", c.head_layers, features).squeeze(-1)
        target = (1 - batch.is_terminal.double()) * c.gamma
        going = -(target * ends.sigmoid().log() + (1 - target) * (1 - ends.sigmoid()).log())
        found = {
            "reconstruction_loss": self.reconstruction(obs, deters, stochs),
            "reward_loss": rewards.mean(),
            "continue_loss": going.mean(),
            "dynamics_loss": torch.stack([a for a, _ in kls]).mean(),
            "representation_loss": torch.stack([b for _, b in kls]).mean(),
        }
        return {**found, **self.behavior(batch, deters, stochs)}

    def behavior(self, batch: Any, deters: Tensor, stochs: Tensor) -> dict[str, Tensor]:
        c, k = self.c, min(self.c.imag_last or len(deters), len(deters))
        deter, stoch = deters[-k:].flatten(0, 1).detach(), stochs[-k:].flatten(0, 1).detach()
        noise = self.draw((c.imagination, len(deter), c.latents, c.classes))
        shape = (c.imagination + 1, len(deter), self.n_actions)
        of_actions = self.draw(shape, normal=not self.discrete)
        feats, chosen = [], []
        for t in range(c.imagination + 1):
            feature = torch.cat((deter, stoch.flatten(1)), 1).detach()
            action = self.acted(feature, of_actions[t])
            feats.append(feature)
            chosen.append(action)
            if t < c.imagination:
                deter = self.cell(deter, stoch, action).detach()
                stoch = self.sampled(self.prior(deter), noise[t]).detach()
        features, actions = torch.stack(feats), torch.stack(chosen)
        rewards = self.mean(self.head("world.reward_head", c.head_layers, features)).detach()
        going = self.head("world.end_head", c.head_layers, features).squeeze(-1).sigmoid().detach()
        logits = self.head("critic", c.layers, features)
        values = self.mean(logits).detach()
        slow = self.mean(self.head("", c.layers, features, self.slow)).detach()
        returns = values.clone()
        for t in reversed(range(c.imagination)):
            mixed = (1 - c.lam) * values[t + 1] + c.lam * returns[t + 1]
            returns[t] = rewards[t + 1] + going[t + 1] * mixed
        returns = returns[:-1]
        weights = torch.stack([going[: t + 1].prod(0) for t in range(c.imagination)])
        low, high = (c.return_rate * torch.quantile(returns, q) for q in (0.05, 0.95))
        advantages = (returns - values[:-1]) / max(1.0, float(high - low))
        log_probs, entropy = self.log_probs_and_entropy(features[:-1], actions[:-1])
        actor = -(weights * (log_probs * advantages + c.ent_coef * entropy)).mean()
        errors = self.two_hot(logits[:-1], returns) + c.slow_coef * self.two_hot(
            logits[:-1], slow[:-1]
        )
        found = {"actor_loss": actor, "critic_loss": (weights * errors).mean()}

        boot = returns[0].view(k, -1)
        features = torch.cat((deters, stochs.flatten(2)), 2)[-k:]
        logits = self.head("critic", c.layers, features)
        slow = self.mean(self.head("", c.layers, features, self.slow)).detach()
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
