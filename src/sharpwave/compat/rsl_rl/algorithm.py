"""The algorithm of a runner, by rsl_rl's names: networks, and what files hold of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sharpwave.compat.rsl_rl import files
from sharpwave.compat.rsl_rl.policies import InferencePolicy
from sharpwave.compat.rsl_rl.refusals import absent
from sharpwave.compat.rsl_rl.settings import Settings

if TYPE_CHECKING:
    from sharpwave.compat.rsl_rl.networks import RobotPolicy

__all__ = ["Algorithm"]


class Algorithm:
    """The learner of an agent as `runner.alg`.

    Args:
        agent: The agent.
        settings: The configuration.

    Attributes:
        policy: The policy, which is trained, as a module that acts deterministically.
        rnd: The learner where it is curious; None otherwise.
        teacher_loaded: True once the teacher of a distillation has weights.
    """

    def __init__(self, agent: Any, settings: Settings) -> None:
        self.agent = agent
        self.settings = settings
        self.roles = tuple(settings.models)
        self.policy = InferencePolicy(agent.learner.policy, self.roles[0])
        self.rnd = agent.learner if settings.algorithm["rnd_cfg"] is not None else None
        self.teacher_loaded = False

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and hasattr(vars(self).get("policy"), name):
            return getattr(self.policy, name)
        raise absent(type(self).__name__, name, dir(self))

    @property
    def learning_rate(self) -> float:
        """The learning rate of the last gradient step."""
        return float(self.agent.learner.optimizers["policy"].lr)

    @property
    def device(self) -> Any:
        """Device of the networks."""
        return self.agent.device

    def get_policy(self) -> InferencePolicy:
        """The policy."""
        return self.policy

    def train_mode(self) -> None:
        """Let modules know that they are trained."""
        self._set_training(True)

    def eval_mode(self) -> None:
        """Let modules know that they are played."""
        self._set_training(False)

    def _set_training(self, training: bool) -> None:
        for network in self.agent.learner.networks.values():
            network.train(training)
        self.policy.train(training)

    # Files

    def saved(self, iteration: int, infos: Any) -> files.Saved:
        """The contents of a checkpoint."""
        learner, form = self.agent.learner, self.settings.form
        policy: RobotPolicy = learner.policy
        first = files.network_of(policy.actor, policy.features, self._rnn("actor"))
        name, std = ("std", policy.std) if policy.log_std is None else ("log_std", policy.log_std)
        assert std is not None
        first[name] = std.detach().cpu().clone()
        arrays = learner.optimizers["policy"].arrays()
        if self.settings.is_distillation:
            teacher = learner.teacher
            second = files.network_of(teacher.actor, teacher.features, None)
            learned: tuple[str, ...] = ("actor",)
            others = len(list(teacher.parameters())) if form < 4 else 0
        else:
            critic = policy.critic, policy.critic_features, self._rnn("critic")
            second = files.network_of(*critic)
            learned, others = ("actor", "critic"), 0
        return files.Saved(
            form,
            dict(zip(self.roles, (first, second), strict=True)),
            files.optimizer_of(policy, arrays, form, learned, others),
            None if self.rnd is None else _curiosity_of(self.rnd),
            iteration,
            infos,
        )

    def _rnn(self, role: str) -> Any:
        policy = self.agent.learner.policy
        return getattr(policy, f"{role}_rnn") if policy.recurrent else None

    def load(self, saved: files.Saved, wanted: Mapping[str, bool] | None) -> bool:
        """Take over what a checkpoint holds.

        Args:
            saved: The checkpoint.
            wanted: What to load by name, as rsl_rl's `load_cfg`; None for all.

        Returns:
            Whether training goes on from there, and its iterations count.

        Raises:
            ValueError: Networks are others than those of the configuration.
        """
        networks = saved.networks
        is_teacher = self.settings.is_distillation and "actor" in networks
        if wanted is None:
            wanted = dict.fromkeys((*self.roles, "optimizer", "iteration", "rnd"), not is_teacher)
            if is_teacher:  # what was trained by reinforcement teaches now
                wanted["teacher"] = True
        learner = self.agent.learner
        policy: RobotPolicy = learner.policy
        for role in self.roles:
            if not wanted.get(role):
                continue
            source = "actor" if role == "teacher" and is_teacher else role
            if source not in networks:
                raise ValueError(f"the checkpoint must have {source!r}, got {sorted(networks)}")
            network = networks[source]
            if role == "teacher":
                teacher = learner.teacher
                files.load_network(network, role, teacher.actor, teacher.features, None)
                self.teacher_loaded = True
            elif role == "critic":
                parts = policy.critic, policy.critic_features, self._rnn("critic")
                files.load_network(network, role, *parts)
            else:
                parts = policy.actor, policy.features, self._rnn("actor")
                files.load_network(network, role, *parts)
                _load_std(policy, network[files.STD])
        if wanted.get("optimizer") and saved.optimizer is not None:
            learned = ("actor",) if self.settings.is_distillation else ("actor", "critic")
            arrays = learner.optimizers["policy"].arrays()
            files.load_optimizer(saved.optimizer, policy, arrays, saved.form, learned)
        if wanted.get("rnd") and self.rnd is not None and saved.rnd is not None:
            _load_curiosity(self.rnd, saved.rnd)
        return bool(wanted.get("iteration"))


def _load_std(policy: RobotPolicy, std: Tensor) -> None:
    if std.shape != policy.spread.shape:
        raise ValueError(
            f"std of the checkpoint must have shape {tuple(policy.spread.shape)}, "
            f"got {tuple(std.shape)}"
        )
    if policy.std is not None:
        policy.std.data.copy_(std)
    elif policy.log_std is not None:
        policy.log_std.data.copy_(std.log())


CURIOSITY = {"predictor.": ("predictor", ""), "target.": ("unknown", "network.")}
"""Parts of rsl_rl's random network distillation: the network here, and the part of it."""
STATISTICS = {"state_normalizer.": "unknown", "reward_normalizer.emp_norm.": "reward_scale"}
"""Statistics of it, and whose `norm` they are here."""


def _curiosity_of(learner: Any) -> dict[str, Tensor]:
    """The state of random network distillation by rsl_rl's names."""
    found = {
        theirs + name.removeprefix(part): x.detach().cpu().clone()
        for theirs, (network, part) in CURIOSITY.items()
        for name, x in learner.networks[network].state_dict().items()
        if name.startswith(part)
    }
    for theirs, owner in STATISTICS.items():
        norm = getattr(getattr(learner, owner), "norm", None)
        if norm is None:
            continue
        mean, var = norm.mean.float().cpu().clone(), norm.var.float().cpu()
        if owner == "unknown":
            mean, var = mean[None], var[None]
        count = norm.n.to(torch.int64).cpu()
        own = {"_mean": mean, "_var": var, "_std": var.sqrt(), "count": count}
        found |= {theirs + name: x for name, x in own.items()}
    return found


def _load_curiosity(learner: Any, saved: Mapping[str, Tensor]) -> None:
    for theirs, (network, part) in CURIOSITY.items():
        own = learner.networks[network].state_dict()
        for name, x in saved.items():
            if name.startswith(theirs):
                own[part + name.removeprefix(theirs)].copy_(x)
    for theirs, owner in STATISTICS.items():
        norm = getattr(getattr(learner, owner), "norm", None)
        if norm is not None:
            for name, ours in files.NORM.items():
                target = getattr(norm, ours)
                target.copy_(saved[theirs + name].reshape(target.shape))
