"""Group-relative policy optimization (Shao et al., 2024, https://arxiv.org/abs/2402.03300)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from sharpwave.agents.language import OnlineLanguageAgent
from sharpwave.config.language import CompletionConfig
from sharpwave.core.lazy import llm, losses, torch
from sharpwave.learners.base import Metrics
from sharpwave.learners.language import OnlineLanguageLearner, n_tokens

if TYPE_CHECKING:
    from sharpwave.llm import Completions, Scored, TokenBatch

__all__ = ["GRPO", "GRPOConfig", "GRPOLearner"]


@dataclass(frozen=True, kw_only=True)
class GRPOConfig(CompletionConfig):
    """Options of GRPO."""

    kl_coef: float = 0.1
    """Coefficient of the KL divergence from the reference; 0 needs no reference."""
    n_iterations: int = 1
    """Gradient steps on the same completions."""
    loss: Literal["grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo", "gmpo"] = (
        "dapo"
    )
    """Kind of loss: the clipping and averaging over tokens; `losses.grpo_loss` has the formulas."""
    ratio_level: Literal["token", "sequence"] = "token"
    """Level of importance ratios: tokens, or completions (with loss grpo that is GSPO)."""
    clip_low: float = 0.2
    """Lower clip range: ratios are clipped at 1 - clip_low."""
    clip_high: float = 0.2
    """Upper clip range: ratios are clipped at 1 + clip_high."""
    delta: float | None = None
    """Upper bound of the ratio of tokens with negative advantages; None for no bound."""
    kl: Literal["k1", "k2", "k3"] = "k3"
    """Estimator of the KL divergence."""
    kl_correction: bool = True
    """Multiply the KL estimate by the importance ratio, which makes its gradient unbiased."""
    ref_sync_every: int = 0
    """Updates between two synchronizations of the reference with the model; 0 for never."""
    ref_sync_weight: float = 1.0
    """Share of the weights of the model in a synchronization; 1 copies them."""
    advantage: Literal["group", "batch", "none", "rloo", "reinforce++"] = "group"
    """Baseline and scale of advantages: `losses.relative_advantages` has the formulas. reinforce++
    compares tokens of the whole batch, with the KL divergence as a part of the reward."""
    is_correction: Literal[
        "none", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask"
    ] = "none"
    """Importance sampling correction of the mismatch between sampler and trainer, by weights of
    tokens or of completions: those above `is_cap` are truncated to it, or masked to 0."""
    is_cap: float = 3.0
    """Maximum weight of the importance sampling correction."""
    entropy_coef: float = 0.0
    """Entropy coefficient: scale of the entropy bonus in the loss."""
    top_entropy: float = 1.0
    """Fraction of the tokens to learn from: those of highest entropy."""
    mask_cut: bool = False
    """Mask completions that were truncated at `max_new_tokens` out of the loss."""
    temperature: float = 1.0
    """Temperature of sampling, and of the log-probabilities in the loss."""

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("n_iterations", "delta", "is_cap")
        for name in ("top_entropy", "ref_sync_weight"):
            self.require_range(name, 0, 1)
        for name in ("kl_coef", "clip_low", "clip_high", "entropy_coef", "ref_sync_every"):
            self.require_range(name, 0)
        if self.kl == "k1" and not self.kl_correction:
            raise ValueError("kl_correction must be True for kl 'k1', got False")
        if self.group_size == 1 and self.advantage != "reinforce++":
            raise ValueError(
                "group_size must be at least 2 to compare completions of a prompt, got 1: "
                "advantage='reinforce++' compares those of all prompts"
            )


class GRPOLearner(OnlineLanguageLearner):
    r"""The learning rule of GRPO.

    A completion $i$ of a prompt has the advantage $A_i = (r_i - \bar r) / (\sigma_r + 10^{-4})$
    over the rewards $r$ of its group, and every token $t$ of it the ratio
    $\rho_t = \exp(\log \pi_\theta(t) - \log \pi_{old}(t))$:

    $$L = -\frac{1}{N} \sum_t \min(\rho_t A, \mathrm{clip}(\rho_t, 1 - c_{low}, 1 + c_{high}) A)
          + c_{KL}\, \frac{1}{N} \sum_t \mathrm{kl}_t$$
    """

    @property
    def needs_reference(self) -> bool:
        """True if the loss needs a reference model."""
        return bool(self.config.kl_coef)

    def teaches(self, scored: Scored) -> torch.Tensor | None:
        """Mask [G] of the groups of completions to learn from, by their rewards as given."""
        config = self.config
        if config.filter_metric is None:
            return None
        values = scored.measure(config.filter_metric, "filter_metric")
        bounds = config.filter_low, config.filter_high
        return losses.useful_groups(values, config.group_size, *bounds)

    def batch(self, completions: Completions, scored: Scored) -> tuple[TokenBatch, Metrics]:
        """The batch of completions and their rewards to learn from, and its metrics."""
        config, rewards = self.config, scored.rewards.to(completions.tokens.device)
        batch = llm.TokenBatch.of(completions)
        differ = losses.useful_groups(rewards, config.group_size)
        measured = {"groups_without_spread": 1 - differ.float().mean()}
        if config.mask_cut:
            batch = batch.masked(completions.finished[batch.sequence])
        if config.overlong_buffer:
            rewards = rewards + losses.overlong_penalty(
                completions.lengths,
                config.max_new_tokens,
                config.overlong_buffer,
                config.overlong_penalty,
            )
        groups = self.teaches(scored)
        if groups is not None:
            rows = groups.repeat_interleave(config.group_size).nonzero()[:, 0].to(rewards.device)
            batch, rewards = batch.select(rows), rewards[rows]
            measured["filtered_fraction"] = 1 - groups.float().mean()
        # What decides is who sampled: with one gradient step that is the policy of now, as it is
        # with weights that make up for the difference.
        if config.max_staleness and config.is_correction == "none":
            batch = batch.replace(old_log_probs=batch.sampler_log_probs)
        elif config.n_iterations > 1 or config.advantage == "reinforce++":
            batch = batch.replace(old_log_probs=self._score(self.model, batch))
        batch = self.referenced(batch)
        return self.compared(batch, rewards), measured

    def compared(self, batch: TokenBatch, rewards: torch.Tensor) -> TokenBatch:
        """The batch with the advantages of completions with these rewards [N], NaN for none."""
        config = self.config
        if config.advantage != "reinforce++":
            found = losses.relative_advantages(rewards, config.group_size, config.advantage)
            return batch.replace(advantages=found)
        sequences, old, ref = _sequences(batch), batch.old_log_probs, batch.ref_log_probs
        assert old is not None
        costs = config.kl_coef * (old - (old if ref is None else ref))
        found = losses.token_advantages(rewards, costs, sequences, mask=batch.loss_mask)
        mean = sequences.mean(found, torch.ones_like(found))
        return batch.replace(token_advantages=found, advantages=mean)

    def update(self, batch: TokenBatch) -> Metrics:
        """Gradient steps on a batch, each over all of its micro-batches."""
        config = self.config
        self.updates += 1
        # Without a difference between completions only the reference would move the weights.
        advantages = batch.advantages if batch.token_advantages is None else batch.token_advantages
        if advantages is not None and advantages.any():
            self.idle = 0
            metrics = self._steps(batch)
        else:
            metrics = self.skip()
        if config.ref_sync_every and self.updates % config.ref_sync_every == 0:
            self.sync_reference(config.ref_sync_weight)
        return {**metrics, "skipped_updates": self.skipped}

    def _steps(self, batch: TokenBatch) -> Metrics:
        totals = losses.grpo_totals(_sequences(batch), batch.loss_mask)
        steps = [
            self.descend(batch, lambda part: self.loss(part, totals), size=n_tokens)
            for _ in range(self.config.n_iterations)
        ]
        # The sampler is compared with the weights that it had, before they move.
        first = {name: x for name, x in steps[0].items() if name.startswith("sampler_")}
        means = {name: sum(step[name] for step in steps) / len(steps) for name in steps[0]}
        return {**means, **first}

    def loss(self, part: TokenBatch, totals: torch.Tensor) -> tuple[torch.Tensor, Metrics]:
        """The loss of a part of a batch, whose parts add up, and measures of it."""
        config, sequences, advantages = self.config, _sequences(part), part.advantages
        assert advantages is not None
        wants_entropy = bool(config.entropy_coef) or config.top_entropy < 1
        scores = llm.score(self.model, part, temperature=config.temperature, entropy=wants_entropy)
        old, sampler, mask = part.old_log_probs, part.sampler_log_probs, part.loss_mask
        measured, weights = {}, None
        if sampler is not None:
            measured = losses.sampler_mismatch(scores.log_probs, sampler, sequences, mask)
        if sampler is not None and config.is_correction != "none":
            level, mode = config.is_correction.split("_")
            before = scores.log_probs if old is None else old
            options = {"level": level, "mode": mode, "cap": config.is_cap}
            weights = losses.importance_weights(before, sampler, sequences, mask=mask, **options)
            measured["importance_weight"] = weights.mean()
        loss, of_loss = losses.grpo_loss(
            scores.log_probs,
            old,
            advantages,
            sequences,
            kind=config.loss,
            ratio_level=config.ratio_level,
            clip_low=config.clip_low,
            clip_high=config.clip_high,
            delta=config.delta,
            ref_log_probs=part.ref_log_probs,
            kl_coef=0.0 if config.advantage == "reinforce++" else config.kl_coef,
            kl=config.kl,
            kl_correction=config.kl_correction,
            entropies=scores.entropies,
            entropy_coef=config.entropy_coef,
            top_entropy=config.top_entropy,
            weights=weights,
            token_advantages=part.token_advantages,
            mask=mask,
            totals=totals,
            max_length=config.max_new_tokens,
        )
        return loss, {**measured, **of_loss}

    @property
    def temperature(self) -> float:
        """Temperature of log-probabilities: that of sampling."""
        return float(self.config.temperature)


def _sequences(batch: TokenBatch) -> Any:
    known, lengths = batch.sampler_log_probs, batch.completion_lengths
    return losses.Sequences.of(lengths, total=None if known is None else len(known))


class GRPO(OnlineLanguageAgent):
    """GRPO: group-relative policy optimization of a language model, on rewards of completions.

    Example:
        >>> task = sw.llm.TASKS["copy4"]
        >>> model = sw.nn.Transformer(vocab_size=14)
        >>> agent = sw.GRPO(
        ...     model,
        ...     reward_fn=task.reward,
        ...     prompts=task.prompts(64),
        ...     tokenizer=sw.llm.DigitTokenizer(),
        ...     max_new_tokens=4,
        ...     kl_coef=0.0,
        ... )
        >>> metrics = agent.train(n_updates=2)
        >>> 0 <= metrics["reward"] <= 1
        True
    """

    name = "grpo"
    Config: ClassVar[type[GRPOConfig]] = GRPOConfig
    Learner: ClassVar[type[GRPOLearner]] = GRPOLearner
