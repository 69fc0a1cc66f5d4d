"""QMIX: monotonic value function factorization (Rashid et al., 2018, arXiv:1803.11485)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from sharpwave.algorithms.vdn import VDN, VDNConfig, VDNLearner
from sharpwave.core.lazy import nn
from sharpwave.envs.multi.joint import STATE


@dataclass(frozen=True, kw_only=True)
class QMIXConfig(VDNConfig):
    """Options of QMIX."""

    mixer_input: Literal["auto", "state", "concat"] = "auto"
    """Input of the mixer: the "state" of the environment, or the concatenated observations of all
    agents ("concat"). "auto" is "concat" where observations are vectors, otherwise "state"."""
    mixer_size: int = 32
    """Width of the hidden layer of the mixer."""
    mixer_hidden: int = 64
    """Width of the hidden layer of the networks that give its weights."""

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("mixer_size", "mixer_hidden")


class QMIXLearner(VDNLearner):
    r"""The loss of VDN for a team, whose value is a monotonic function of its agents' values.

    With values q of what the agents choose, 0 for those that do not act, and networks of the state
    s as weights,

        Q_tot(s, a) = |W_2(s)|ᵀ elu(|W_1(s)| q + b_1(s)) + b_2(s)

    is never less where an agent's value is more, so each agent alone finds its part of the best
    actions of the team. What the sum of VDN cannot tell apart, as that the action of one agent is
    worth more after that of another, it can within these bounds.
    """

    config: QMIXConfig

    def make_mixer(self) -> tuple[Any, Any]:
        """The mixer, and what makes its states of observations."""
        config, team, generator = self.config, self.team, self.weights_generator
        if STATE in self.observation_space.spaces:  # type: ignore[attr-defined]
            state: Any = nn.JointState()
            space = self.observation_space[STATE]  # type: ignore[index]
        else:
            state = nn.JointFeatures(team.observation_spaces, team.sizes, generator)
            space = state.space
        sizes = {"size": config.mixer_size, "hidden": config.mixer_hidden}
        n_agents = sum(team.sizes.values())
        return nn.MonotonicMixer(space, n_agents, **sizes, generator=generator), state


class QMIX(VDN):
    """QMIX: DQN for a team, whose value is a monotonic function of its agents'.

    The team maximizes the mean of its agents' rewards. `QMIXLearner` has the mixer.

    Example:
        >>> qmix = QMIX("mpe2/simple_spread_v3", n_envs=4, learning_starts=100, hidden=(32, 32))
        >>> metrics = qmix.train(200)
        >>> qmix.predict([0.0] * 18, agent="agent_1") in range(5)
        True
        >>> qmix.close()
    """

    name = "qmix"
    Config = QMIXConfig
    Learner = QMIXLearner
