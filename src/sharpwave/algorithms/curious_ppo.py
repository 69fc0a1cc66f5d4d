"""PPO with random network distillation (Burda et al., 2018, arXiv:1810.12894)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from gymnasium import spaces

from sharpwave.algorithms.ppo import PPOLearner
from sharpwave.config.schedules import ScheduleLike, value_at
from sharpwave.core.lazy import nn, torch
from sharpwave.learners import Metrics
from sharpwave.learners.batch import OnPolicyBatch

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Curiosity:
    """Options of random network distillation."""

    weight: ScheduleLike = 1.0
    """Factor of the intrinsic rewards; may be a schedule over the run."""
    obs: tuple[str, ...] = ()
    """Entries of a Dict observation that are to be new; all of the observation where none is
    named."""
    size: int = 1
    """Number of outputs of both networks."""
    predictor_hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers of the network that learns."""
    target_hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers of the random one."""
    activation: str = "elu"
    """Activation of both."""
    normalize_obs: bool = False
    """Normalize what both networks see by running statistics."""
    normalize_rewards: bool = False
    """Divide intrinsic rewards by the running standard deviation of their discounted sums."""
    learning_rate: float = 1e-3
    """Learning rate of the predictor."""


class CuriousPPOLearner(PPOLearner):
    r"""PPO that is rewarded for what is new to it, too.

    A network f learns to say what a fixed random network g says of an observation s. Where it
    cannot, s is new:

        r' = r + w ‖f(s_{t+1}) − g(s_{t+1})‖,    L_f = mean((f(s_t) − g(s_t))²),

    and PPO learns from r'. A subclass sets `curiosity`.

    Example:
        >>> class Explorer(CuriousPPOLearner):
        ...     curiosity = Curiosity(weight=0.1, normalize_rewards=True)
        >>> agent = sw.PPO("CartPole-v1", learner=Explorer, n_envs=4, n_steps=32)
        >>> agent.train(256)["mean_intrinsic_return"] > 0
        True
    """

    curiosity: ClassVar[Curiosity] = Curiosity()
    """Its options."""
    rewards_itself = True

    def build(self) -> None:
        """Make the policy, the two networks and their optimizers."""
        options = self.curiosity
        super().build()
        features = nn.make_features(self._space(), self.weights_generator)
        self.unknown = self.add(
            "unknown",
            nn.RandomNetwork(
                features,
                options.target_hidden,
                options.size,
                options.activation,
                self.weights_generator,
                normalize=options.normalize_obs,
            ),
        )
        self.predictor = self.add(
            "predictor",
            nn.make_mlp(
                features.size,
                options.predictor_hidden,
                options.size,
                options.activation,
                self.weights_generator,
                None,
            ),
            lambda flat: nn.Adam(flat, lr=0.0, eps=1e-8),
        )
        self.reward_scale = nn.ReturnScale().to(self.device) if options.normalize_rewards else None
        self.curiosity_weight = torch.tensor(0.0, device=self.device)

    def _space(self) -> spaces.Space[Any]:
        """The space of what is to be new."""
        space, keys = self.observation_space, self.curiosity.obs
        if not keys:
            return space
        if not isinstance(space, spaces.Dict) or not set(keys) <= set(space.spaces):
            raise ValueError(f"obs of Curiosity must be entries of {space}, got {keys}")
        return spaces.Dict({key: space[key] for key in keys})

    def rates(self) -> dict[str, Any]:
        """The learning rate of each optimizer."""
        return {**super().rates(), "predictor": self.curiosity.learning_rate}

    def follow(self, progress_remaining: float) -> None:
        """Set learning rates, clip ranges and the weight of the intrinsic rewards."""
        super().follow(progress_remaining)
        self.curiosity_weight.fill_(value_at(self.curiosity.weight, progress_remaining))

    def intrinsic_rewards(self, obs: Any) -> Tensor:
        """Rewards [N] for coming to see observations [N, ...] in training."""
        inputs, wanted = self.unknown(obs)
        rewards: Tensor = torch.linalg.vector_norm(self.predictor(inputs) - wanted, dim=-1)
        if self.reward_scale is not None:
            rewards = self.reward_scale(rewards)
        return self.curiosity_weight * rewards

    def count(self, batch: OnPolicyBatch) -> None:
        """Count the observations of a batch that was learned from."""
        super().count(batch)
        self.unknown.count(batch.obs, batch.weights, self.total)

    def step(self, batch: OnPolicyBatch, rows: Tensor | None) -> Tensor:
        """One gradient step of the policy and one of the predictor, on the same rows."""
        batch = batch.rows(rows)
        measured = super().step(batch, None)
        loss = self.curiosity_loss(batch)
        nn.descend(loss, self.flats["predictor"], self.optimizers["predictor"])
        self.measured = (*self.measured, "curiosity_loss")
        return torch.cat((measured, loss.detach()[None]))

    def curiosity_loss(self, batch: OnPolicyBatch) -> Tensor:
        """The loss of the predictor on one minibatch."""
        inputs, wanted = self.unknown(batch.obs)
        return torch.nn.functional.mse_loss(self.predictor(inputs), wanted)

    def metrics(self) -> Metrics:
        """Measurements beside those of updates."""
        return {**super().metrics(), "curiosity_weight": self.curiosity_weight}

    def extra_state(self) -> dict[str, Any]:
        """The scale of the intrinsic rewards."""
        scale = self.reward_scale
        own = {} if scale is None else {**scale.state_dict(), "sums": scale.sums}
        return {**super().extra_state(), "reward_scale": own}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        """Continue from `extra_state`."""
        super().load_extra_state(state)
        if self.reward_scale is not None:
            saved = dict(state["reward_scale"])
            sums = saved.pop("sums")
            self.reward_scale.sums = None if sums is None else self.own(sums)
            self.reward_scale.load_state_dict({k: self.restored(x) for k, x in saved.items()})
