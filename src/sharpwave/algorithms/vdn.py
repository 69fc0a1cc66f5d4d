"""Value-Decomposition Networks (Sunehag et al., 2018, arXiv:1706.05296)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sharpwave.agents.team import TeamAgent
from sharpwave.algorithms.dqn import DQNConfig, DQNLearner
from sharpwave.config.off_policy import DrawOptions
from sharpwave.config.schedules import ScheduleLike
from sharpwave.core.lazy import losses, nn, torch
from sharpwave.core.tree import map_leaves
from sharpwave.learners import Metrics
from sharpwave.learners.replay import ReplayBatch
from sharpwave.learners.team import Team, TeamMember
from sharpwave.learners.team_sequences import TeamSequences, TeamSequenceSampler
from sharpwave.loops.team_replay import TeamReplayLoop

if TYPE_CHECKING:
    from gymnasium import spaces
    from torch import Tensor


NOT_RECURRENT: dict[str, Any] = {
    "n_step": 1,
    "prioritized": False,
    "dueling": False,
    "noisy": False,
    "cuda_graph": False,
}
"""Options that networks with memory do not have, with what stands for none."""


@dataclass(frozen=True, kw_only=True)
class VDNConfig(DQNConfig):
    """Options of VDN."""

    n_envs: int = 8
    """Number of environments."""
    batch_size: int = 128
    """Batch size: transitions of a gradient step, each of all agents."""
    learning_rate: ScheduleLike = 5e-4
    """Learning rate; a schedule follows the progress of the run."""
    buffer_size: int = 100_000
    """Capacity of the replay buffer, in steps of all agents."""
    share_policy: bool = True
    """Agents of a group share a network; otherwise every agent has its own."""
    agent_id: bool = True
    """Tell a network that several agents share which of them it acts for, one-hot."""
    recurrent: Literal["lstm", "gru"] | None = None
    """Recurrent layer after the hidden layers of the networks: an agent remembers what it saw. It
    learns from sequences, of which `batch_size` are those of a gradient step."""
    recurrent_size: int = 64
    """Size of the recurrent state."""
    sequence_length: int = 20
    """Observations of a sequence, at whose beginning there is no memory."""

    @property
    def steps_per_batch(self) -> int:
        """Number of steps that a gradient step replays."""
        return self.batch_size * (1 if self.recurrent is None else self.sequence_length)

    @property
    def draws(self) -> DrawOptions:
        """Options of sampling batches from the buffer."""
        length = None if self.recurrent is None else self.sequence_length
        return super().draws._replace(length=length)

    def check(self) -> None:
        """Check the values."""
        super().check()
        for name in ("normalize_obs", "normalize_rewards"):
            if getattr(self, name):
                raise ValueError(f"{name} must be False: several agents are not normalized alike")
        for name, plain in {"her_goals": 0, "frame_stack": 1}.items():
            if getattr(self, name) != plain:
                raise ValueError(f"{name} must be {plain}: steps are those of several agents")
        self.require_positive("recurrent_size")
        if self.sequence_length < 2:
            raise ValueError(f"sequence_length must be at least 2, got {self.sequence_length}")
        for name, plain in NOT_RECURRENT.items() if self.recurrent is not None else ():
            if getattr(self, name) != plain:
                raise ValueError(
                    f"{name} must be {plain!r} where recurrent is {self.recurrent!r}, "
                    f"got {getattr(self, name)!r}"
                )


class VDNLearner(DQNLearner):
    r"""The loss of DQN for a team, whose value is the sum of its agents' values.

    With the values Q_i of what each agent i sees and does, the mean r of the agents' rewards, and
    target networks Q̄_i,

        Q_tot(s, a) = Σ_i Q_i(s_i, a_i)
        y = r + γ Q̄_tot(s', a')  with  a'_i = argmax Q_i(s'_i, ·)
        L = mean(w · huber(Q_tot(s, a) − y))

    where agents that are dead or wait for their turn are in no sum. Each agent explores by an ε of
    its own. All options of `DQN` are there but those of images and goals.

    Args:
        config: Options.
        observation_space: Of `JointVectorEnv`.
        action_space: The same.
        team: The groups.
        **options: Of `Learner`.

    Attributes:
        members: Each group as a learner that acts.
    """

    config: VDNConfig

    def __init__(
        self,
        config: VDNConfig,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *,
        team: Team,
        **options: Any,
    ) -> None:
        self.team = team
        if config.recurrent is not None:
            vars(self)["Sampler"] = TeamSequenceSampler
        super().__init__(config, observation_space, action_space, **options)

    def build(self) -> None:
        """Make the networks of all groups and their mixer, the targets, and Adam over all."""
        super().build()
        self.members = {name: TeamMember(self, name) for name in self.team.views}

    def make_network(self) -> Any:
        """The Q-networks of the groups with their mixer."""
        config, team = self.config, self.team
        kind: Any = nn.QNetwork
        options: dict[str, Any] = {"dueling": config.dueling, "noisy": config.noisy}
        if config.recurrent is not None:
            kind = nn.RecurrentQNetwork
            options = {"kind": config.recurrent, "size": config.recurrent_size}
        options |= self.network_options("actor")
        networks = {
            name: kind(view.observation_space, team.action_spaces[name], **options)
            for name, view in team.views.items()
        }
        with_ids = [name for name, view in team.views.items() if not view.is_plain]
        mixer, state = self.make_mixer()
        return nn.TeamQNetwork(networks, team.sizes, mixer, with_ids=with_ids, state=state)

    def make_mixer(self) -> tuple[Any, Any]:
        """The mixer, and what makes its states of observations; None where it needs none."""
        return nn.SumMixer(), None

    @property
    def n_explorers(self) -> int:
        """Number of agents, each of which explores by itself."""
        return len(self.policy.branches.sizes)

    def value_of(self, network: Any, obs: Any, output: Tensor, actions: Tensor) -> Tensor:
        """Values [B] of the team for its actions, from the output of a network."""
        values: Tensor = network.mix(self.branches.chosen(output, actions), obs)
        return values

    def initial_state(self, n_envs: int) -> Any:
        """Memory of all agents at the start of acting in so many environments; None without one."""
        return None if self.config.recurrent is None else self.policy.initial_state(n_envs)

    def output_of(self, obs: Any, state: Any) -> tuple[Tensor, Any]:
        """Values [N, n] of the actions of all agents, and their memory."""
        return (self.policy(obs), None) if state is None else self.policy.step(obs, state)

    def update(self, batch: ReplayBatch | TeamSequences) -> Metrics:
        """One gradient step of all networks, and an update of the targets where it is due."""
        metrics = super().update(batch)  # type: ignore[arg-type]
        if isinstance(batch, TeamSequences):  # whose steps are not those of rows
            del metrics["td_errors"]
        return metrics

    def loss(self, batch: ReplayBatch | TeamSequences) -> tuple[Tensor, Tensor, Tensor]:
        """The loss of a batch, the values [B] of its actions and their TD errors [B]."""
        if not isinstance(batch, TeamSequences):
            return super().loss(batch)
        output, flat = self.policy.unroll(batch.obs), _flat
        seen, following = (map_leaves(lambda x, at=at: flat(x[at]), batch.obs) for at in PARTS)
        with torch.no_grad():
            target = self.target.unroll(batch.obs)[1:]
            chooser = output[1:].detach() if self.config.double_dqn else target
            masks = None if batch.masks is None else flat(batch.masks[1:])
            best = self.greedy(flat(chooser), masks)
            next_values = self.value_of(self.target, following, flat(target), best)
            targets = torch.addcmul(flat(batch.rewards), flat(batch.discounts), next_values)
        values = self.value_of(self.policy, seen, flat(output[:-1]), flat(batch.actions))
        valid = flat(batch.valid)
        values, errors = values[valid], (values - targets)[valid]
        rows = losses.huber(errors) if self.config.loss == "huber" else errors.square()
        return rows.sum() / max(1, len(rows)), values, errors

    def __getitem__(self, group: str) -> TeamMember:
        """A group as a learner that acts."""
        return self.members[group]


PARTS = slice(None, -1), slice(1, None)
"""Observations of sequences before and after their steps."""


def _flat(x: Any) -> Any:
    return x.flatten(0, 1)


class VDN(TeamAgent):
    """VDN: DQN for a team, whose value is the sum of its agents'.

    The team maximizes the mean of its agents' rewards. `VDNLearner` has the loss.

    Example:
        >>> vdn = VDN("mpe2/simple_spread_v3", n_envs=4, learning_starts=100, hidden=(32, 32))
        >>> metrics = vdn.train(200)
        >>> vdn.predict([0.0] * 18, agent="agent_1") in range(5)
        True
        >>> vdn.close()
    """

    name = "vdn"
    Config = VDNConfig
    Learner = VDNLearner
    Loop = TeamReplayLoop
