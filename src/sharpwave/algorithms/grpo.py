"""Group-relative policy optimization (Shao et al., 2024, https://arxiv.org/abs/2402.03300)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from sharpwave.agents.language import OnlineLanguageAgent
from sharpwave.config.language import LanguageConfig
from sharpwave.lazy import llm, losses, torch
from sharpwave.learners.base import Metrics
from sharpwave.learners.language import OnlineLanguageLearner, n_tokens

if TYPE_CHECKING:
    from sharpwave.llm import Completions, Scored, TokenBatch

__all__ = ["GRPO", "GRPOConfig", "GRPOLearner"]


@dataclass(frozen=True, kw_only=True)
class GRPOConfig(LanguageConfig):
    """Options of GRPO."""

    group_size: int = 4
    """Completions of each prompt, which are compared with each other."""
    kl_coef: float = 0.1
    """Weight of the divergence from the reference; 0 needs no reference."""
    n_prompts: int = 16
    """Prompts of an update."""
    n_iterations: int = 1
    """Gradient steps on the same completions."""
    loss: Literal["grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo", "gmpo"] = (
        "dapo"
    )
    """How tokens are clipped and averaged; `losses.grpo_loss` has the formulas."""
    ratio_level: Literal["token", "sequence"] = "token"
    """Whether a ratio belongs to a token or to its completion (with loss grpo that is GSPO)."""
    clip_low: float = 0.2
    """How far a ratio may fall below 1."""
    clip_high: float = 0.2
    """How far a ratio may rise above 1."""
    delta: float | None = None
    """Bound of the ratio of tokens with negative advantages."""
    kl: Literal["k1", "k2", "k3"] = "k3"
    """Estimate of the divergence."""
    scale_rewards: Literal["group", "batch", "none"] = "group"
    """The deviation that advantages are divided by: that of the group, of all, or none."""
    leave_one_out: bool = False
    """Compare with the others of the group alone, as RLOO does."""
    entropy_coef: float = 0.0
    """Weight of the entropy of the policy."""
    top_entropy: float = 1.0
    """Share of the tokens that are learned from, those of highest entropy."""
    mask_cut: bool = False
    """Do not learn from completions that were cut at `max_new_tokens`."""
    temperature: float = 1.0
    """Of sampling and scoring."""

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("n_prompts", "n_iterations", "delta")
        self.require_range("group_size", 1)
        self.require_range("top_entropy", 0, 1)
        for name in ("kl_coef", "clip_low", "clip_high", "entropy_coef"):
            self.require_range(name, 0)
        if self.group_size == 1 and (self.scale_rewards == "group" or self.leave_one_out):
            raise ValueError(
                "group_size must be at least 2 to compare completions of a prompt, got 1: a group "
                "of one needs scale_rewards='batch' or 'none'"
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
        """Whether the loss looks at a reference."""
        return bool(self.config.kl_coef)

    def batch(self, completions: Completions, scored: Scored) -> tuple[TokenBatch, Metrics]:
        """What there is to learn from completions and their rewards, and measures of it."""
        config, device = self.config, completions.tokens.device
        rewards = scored.rewards.to(device)
        batch = llm.TokenBatch.of(completions, advantages=self.advantages(rewards))
        # What decides is who sampled: with one gradient step that is the policy of now.
        if config.n_iterations > 1:
            batch = batch.replace(old_log_probs=self._score(self.model, batch))
        batch = self.referenced(batch)
        if config.mask_cut:
            batch = batch.replace(loss_mask=completions.finished[batch.sequence])
        grouped = rewards.view(-1, config.group_size)
        spread = (grouped - grouped.nanmean(1, keepdim=True)).abs().nan_to_num().amax(1)
        return batch, {
            "reward_std": rewards[~rewards.isnan()].std(correction=0),
            "groups_without_spread": (spread == 0).float().mean(),
            "unscored_fraction": rewards.isnan().float().mean(),
        }

    def advantages(self, rewards: torch.Tensor) -> torch.Tensor:
        """Advantages [N] of completions with these rewards [N]; 0 for unscored ones."""
        config = self.config
        scored = ~rewards.isnan()
        found: torch.Tensor = llm.group_advantages(
            rewards.nan_to_num(),
            config.group_size,
            ddof=1,
            eps=1e-4,
            mask=scored,
            leave_one_out=config.leave_one_out,
            scale=config.scale_rewards,
        )
        return found

    def update(self, batch: TokenBatch) -> Metrics:
        """Gradient steps on a batch, each over all of its micro-batches."""
        totals = losses.grpo_totals(_sequences(batch), batch.loss_mask)
        steps = [
            self.descend(batch, lambda part: self.loss(part, totals), size=n_tokens)
            for _ in range(self.config.n_iterations)
        ]
        self.updates += 1
        return {name: sum(step[name] for step in steps) / len(steps) for name in steps[0]}

    def loss(self, part: TokenBatch, totals: torch.Tensor) -> tuple[torch.Tensor, Metrics]:
        """The loss of a part of a batch, whose parts add up, and measures of it."""
        config, advantages = self.config, part.advantages
        assert advantages is not None
        wants_entropy = bool(config.entropy_coef) or config.top_entropy < 1
        scores = llm.score(self.model, part, temperature=config.temperature, entropy=wants_entropy)
        found: tuple[torch.Tensor, Metrics] = losses.grpo_loss(
            scores.log_probs,
            part.old_log_probs,
            advantages,
            _sequences(part),
            kind=config.loss,
            ratio_level=config.ratio_level,
            clip_low=config.clip_low,
            clip_high=config.clip_high,
            delta=config.delta,
            ref_log_probs=part.ref_log_probs,
            kl_coef=config.kl_coef,
            kl=config.kl,
            entropies=scores.entropies,
            entropy_coef=config.entropy_coef,
            top_entropy=config.top_entropy,
            mask=part.loss_mask,
            totals=totals,
            max_length=config.max_new_tokens,
        )
        return found

    @property
    def temperature(self) -> float:
        """That log-probabilities are computed at: that of sampling."""
        return float(self.config.temperature)


def _sequences(batch: TokenBatch) -> Any:
    return losses.Sequences.of(batch.completion_lengths)


class GRPO(OnlineLanguageAgent):
    """Trains a language model on rewards of what it writes.

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
