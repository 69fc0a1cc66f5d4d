"""Multi-Agent PPO (Yu et al., 2022, arXiv:2103.01955)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from sharpwave.agents.multi import MultiAgent
from sharpwave.algorithms.ppo import PPOConfig, PPOLearner
from sharpwave.collect.joint import CriticInput
from sharpwave.config.group_options import GroupOptions
from sharpwave.config.schedules import RateLike
from sharpwave.core.lazy import losses, nn, torch
from sharpwave.learners import Metrics
from sharpwave.learners.batch import GroupBatch
from sharpwave.learners.learner import Acted
from sharpwave.learners.native import NativeMAPPOLearner
from sharpwave.loops.multi_agent import MultiAgentLoop

if TYPE_CHECKING:
    from gymnasium import spaces
    from torch import Tensor

    from sharpwave.collect.joint import GroupView


@dataclass(frozen=True, kw_only=True)
class MAPPOConfig(GroupOptions, PPOConfig):
    """Options of MAPPO."""

    n_envs: int = 64
    """Number of environments."""
    n_steps: int = 32
    """Steps of each environment in a rollout."""
    n_epochs: int = 10
    """Passes over each rollout."""
    n_minibatches: int = 1
    """Minibatches of an epoch, where `batch_size` is not given."""
    batch_size: int | None = None  # type: ignore[assignment]
    """Agents' steps in a minibatch; None divides a rollout into `n_minibatches`."""
    learning_rate: RateLike = 7e-4
    """Learning rate; a schedule follows the progress of the run, and "adaptive" `desired_kl`."""
    anneal_lr: bool = False
    """Anneal a constant learning rate linearly to 0 over the run."""
    max_grad_norm: float = 10.0
    """Maximum norm of the gradient; larger gradients are scaled down."""
    vf_coef: float = 1.0
    """Coefficient of the value loss."""
    clip_vloss: bool = True
    """Clip the value loss: the change of values is clipped to `clip_eps` too."""
    share_policy: bool = True
    """Agents of a group share networks; otherwise every agent has its own."""
    agent_id: bool = True
    """Tell a policy that several agents share which of them it acts for, one-hot."""
    critic_input: CriticInput = "auto"
    """Input of the critics: the "state" of the environment, the concatenated observations of all
    agents ("concat"), the same with the agent's own first ("agent"), or only "obs", the input of
    the actor, which is IPPO. "auto" is "concat" where observations are vectors, otherwise "state",
    or "obs" where there is none."""
    value_norm: bool = True
    """Normalize the returns that critics learn by their running mean and standard deviation."""
    value_loss: Literal["huber", "mse"] = "huber"
    """Value loss: the Huber loss with threshold `huber_delta`, or the mean squared error."""
    huber_delta: float = 10.0
    """Threshold of the Huber loss, in the unit of what critics learn."""
    normalize_advantages: Literal["rollout", "minibatch", "none"] = "rollout"  # type: ignore[assignment]
    """Normalize the advantages of each rollout, or of each minibatch, to mean 0 and deviation 1."""
    team_reward: bool = False
    """Reward every agent with the mean reward of its group, or of the agents that would be one with
    it if policies were shared; otherwise with its own."""

    divided: ClassVar[tuple[str, ...]] = ()

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("huber_delta")
        for name in ("critic_obs", "obs_groups"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name} must be None: critic_input says what critics look at")
        if self.cuda_graph:
            raise ValueError("cuda_graph must be False: updates have as many rows as agents lived")

    def _check_minibatches(self) -> None:
        if self.n_minibatches != 1 and self.batch_size is not None:
            got = f"{self.n_minibatches} and batch_size={self.batch_size}"
            raise ValueError(f"n_minibatches must be 1 where batch_size is given, got {got}")

    @property
    def minibatch(self) -> int:
        """Rows of a gradient step, of one agent in each environment."""
        return self.minibatch_of(self.rows)

    def minibatch_of(self, rows: int) -> int:
        """Rows of a gradient step, of an update on so many."""
        return -(-rows // self.n_minibatches) if self.batch_size is None else self.batch_size


class MAPPOLearner(PPOLearner):
    r"""The loss of PPO for the agents of a group, with a critic that may see more than they do.

    With the ratio r of new to old probability, the advantages A of each agent, normalized over the
    rollout, and its returns, normalized by their running mean and deviation to R,

        L = mean(max(−A r, −A clip(r, 1 − ε, 1 + ε)))
            + c_v mean(max(h(V − R), h(V' − R))) − c_H mean(H(π))

    where h is Huber's loss and V' the value clipped to within ε of the old one. Steps of agents
    that are dead or wait for their turn are in no mean.

    Args:
        config: Options.
        observation_space: Of one agent, as `view` has it.
        action_space: Of one agent.
        view: What the actors and the critic of the group look at.
        **options: Of `Learner`.
    """

    config: MAPPOConfig
    changes_size = True

    def __init__(
        self,
        config: MAPPOConfig,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *,
        view: GroupView,
        **options: Any,
    ) -> None:
        self.view = view
        self.value_norm: Any = None
        super().__init__(config, observation_space, action_space, **options)

    def build(self) -> None:
        """Make the policy with its critic, their optimizer, and the normalization of values."""
        super().build()
        if self.config.value_norm:
            self.value_norm = self.networks["value_norm"] = nn.ValueNorm().to(self.device)
        order = self.view.own_first
        self.own_first = None if order is None else torch.as_tensor(order, device=self.device)

    def network_spaces(self) -> tuple[spaces.Space[Any], spaces.Dict | None]:
        """Input spaces of the actor and of the critic; None for the critic where it is the same."""
        return self.observation_space, self.view.critic_space

    def update(self, batch: GroupBatch) -> Metrics:  # type: ignore[override]
        """Learn from one rollout: `n_epochs` passes of gradient steps on its minibatches."""
        if self.config.normalize_advantages == "rollout":
            advantages = losses.normalize(batch.advantages, batch.weights, total=self.total)
            batch = replace(batch, advantages=advantages)
        return super().update(batch)

    def minibatches(self, batch: GroupBatch) -> Iterable[Tensor | None]:  # type: ignore[override]
        """The rows of each gradient step of an epoch; None stands for all."""
        rows = batch.log_probs.numel()
        size = self.config.minibatch_of(rows)
        # A joint critic values each environment once where a minibatch is the whole rollout.
        if size >= rows and batch.joint is not None:
            return [None]
        return batch.shuffled(size, self.generator)

    def step(self, batch: GroupBatch, rows: Tensor | None) -> Tensor:  # type: ignore[override]
        """One gradient step on some rows of the batch; its metrics, which `measured` names."""
        minibatch = batch.rows(rows)
        if self.value_norm is not None:
            self.value_norm.update(minibatch.returns, minibatch.weights)
        return super().step(minibatch, None)

    def loss(self, batch: GroupBatch) -> tuple[Tensor, Metrics]:  # type: ignore[override]
        """The loss of one minibatch, and what is logged of it: tensors of one number by name."""
        config, weights = self.config, batch.weights
        memory = {"state": batch.state, "starts": batch.starts, "valid": batch.valid}
        log_probs, entropy, values = self.policy.evaluate(
            self._seen(batch), batch.actions, masks=batch.masks, **memory
        )
        if len(values) != len(log_probs):  # one for all agents of an environment
            values = values.index_select(0, batch.joint_rows)

        # The policy gains from moving only while the ratio stays within the clip range.
        advantages = batch.advantages
        if config.normalize_advantages == "minibatch":
            advantages = losses.normalize(advantages, weights, total=self.total)
        log_ratio = log_probs - batch.log_probs
        policy_loss = losses.clipped_surrogate(log_ratio, advantages, self.clip, weights)

        # The values follow the returns of the rollout, both as the critic has them.
        returns, old_values = batch.returns, batch.values
        if self.value_norm is not None:
            mean, deviation = self.value_norm.moments()
            returns, old_values = ((x - mean) / deviation for x in (returns, old_values))
        delta = config.huber_delta if config.value_loss == "huber" else None
        if config.clips_values:
            value_loss = losses.clipped_value_loss(
                values, old_values, returns, self.value_clip, weights, huber_delta=delta
            )
        else:
            value_loss = losses.value_loss(values, returns, weights, huber_delta=delta)

        # Entropy keeps the policy from deciding too early.
        entropy_mean = losses.mean(entropy, weights)
        loss = policy_loss + config.vf_coef * value_loss - config.ent_coef * entropy_mean

        with torch.no_grad():
            return loss, {
                "policy_loss": policy_loss,
                "value_loss": value_loss,
                "entropy": entropy_mean,
                "approx_kl": losses.approx_kl(log_ratio, weights),
                "clip_fraction": losses.clip_fraction(log_ratio, self.clip, weights),
                "loss": loss,
            }

    def act(
        self, obs: Any, *, explore: bool, state: Any = None, starts: Any = None, masks: Any = None
    ) -> Acted:
        """Actions of the group's agents, with log-probabilities and values."""
        seen = self._arranged(obs)
        acted = super().act(seen, explore=explore, state=state, starts=starts, masks=masks)
        return acted._replace(values=self._valued(acted.values, len(acted.log_probs)))

    def values(self, obs: Any, state: Any = None) -> Tensor:
        """Values [N * G] of observations."""
        values = super().values(self._arranged(obs), state)
        return self._valued(values, len(values) if self.view.is_plain else len(obs["agent"]))

    def is_valued(self, obs: Any) -> bool:
        """True if observations have the input of the critic."""
        return self.view.critic_space is None or "joint" in obs

    def _valued(self, values: Tensor, rows: int) -> Tensor:
        """Values in the unit of rewards, of all agents of an environment alike."""
        if self.value_norm is not None:
            values = self.value_norm.denormalize(values)
        return values if len(values) == rows else values.repeat_interleave(rows // len(values))

    def _seen(self, batch: GroupBatch) -> Any:
        """Inputs of actors and critic in a batch."""
        view, joint = self.view, batch.joint
        if view.is_plain or joint is None:
            return view.inputs(batch.obs, batch.agents, None)
        if self.own_first is not None and batch.joint_rows is not None:
            joint = joint.index_select(0, batch.joint_rows)
        return self._arranged(view.inputs(batch.obs, batch.agents, joint))

    def _arranged(self, obs: Any) -> Any:
        """Observations with the input of the critic in the order that it has for each agent."""
        if self.view.is_plain or "joint" not in obs:
            return obs
        joint, agents = obs["joint"], obs["agent"]
        axis = agents.dim() - 1  # of sequences the rows come second
        every = agents.shape[axis] // joint.shape[axis]
        if every > 1 and (self.own_first is not None or self.config.recurrent):
            joint = joint.repeat_interleave(every, axis)
        if self.own_first is not None:
            joint = joint.gather(-1, self.own_first[agents])
        return {**obs, "joint": joint}


class MAPPO(MultiAgent):
    """MAPPO: PPO for several agents, with critics that see all of them, on-policy.

    Every agent maximizes its own reward, or with `team_reward` the mean of its group.
    `MAPPOLearner` has the loss.

    Example:
        >>> mappo = MAPPO("mpe2/simple_spread_v3", n_envs=4, n_steps=25)
        >>> metrics = mappo.train(200)
        >>> mappo.predict([0.0] * 18, agent="agent_1") in range(5)
        True
        >>> mappo.close()
    """

    name = "mappo"
    Config = MAPPOConfig
    Learner = MAPPOLearner
    Native = NativeMAPPOLearner
    Loop = MultiAgentLoop
    takes = ("policy",)


@dataclass(frozen=True, kw_only=True)
class IPPOConfig(MAPPOConfig):
    """Options of IPPO."""

    critic_input: CriticInput = "obs"
    """Input of the critics; see `MAPPOConfig`."""


class IPPO(MAPPO):
    """IPPO: PPO for several agents, each of which sees only its own observation, on-policy.

    It is MAPPO with `critic_input="obs"` (de Witt et al., 2020, arXiv:2011.09533).

    Example:
        >>> ippo = IPPO("mpe2/simple_spread_v3", n_envs=4, n_steps=25)
        >>> metrics = ippo.train(200)
        >>> ippo.close()
    """

    name = "ippo"
    Config = IPPOConfig
