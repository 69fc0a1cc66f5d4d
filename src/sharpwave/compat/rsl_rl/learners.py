"""Learners that rsl_rl's configurations ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from gymnasium import spaces
from torch import Tensor

from sharpwave import losses, nn
from sharpwave.algorithms.curious_ppo import Curiosity, CuriousPPOLearner
from sharpwave.algorithms.distillation import DistillationLearner
from sharpwave.algorithms.ppo import PPOLearner
from sharpwave.algorithms.symmetric_ppo import SymmetricPPOLearner
from sharpwave.compat.rsl_rl.networks import RobotNorm, RobotPolicy, Teacher
from sharpwave.compat.rsl_rl.refusals import check_entries, refuse
from sharpwave.compat.rsl_rl.settings import ACTIVATIONS, Settings, resolved
from sharpwave.learners import Metrics
from sharpwave.learners.batch import OnPolicyBatch
from sharpwave.learners.fused import FusedPolicyLearner

__all__ = ["learner_for"]

RND = (
    "num_outputs",
    "predictor_hidden_dims",
    "target_hidden_dims",
    "activation",
    "state_normalization",
    "reward_normalization",
    "weight",
    "weight_schedule",
    "learning_rate",
)
SYMMETRY = (
    "data_augmentation_func",
    "use_data_augmentation",
    "use_mirror_loss",
    "mirror_loss_coeff",
)
SCHEDULES = {
    "constant": ("mode",),
    "step": ("mode", "final_step", "final_value"),
    "linear": ("mode", "initial_step", "final_step", "final_value"),
}
"""Entries of schedules of the weight of intrinsic rewards, by their mode."""


class RobotLearner(PPOLearner):
    """PPO with the networks of a configuration and torch's Adam."""

    settings: ClassVar[Settings]
    sets: ClassVar[Mapping[str, Sequence[str]]]
    """Groups of observations of "actor" and "critic"."""
    policy: RobotPolicy

    def make_policy(self) -> Any:
        """The network."""
        models = list(self.settings.models.values())
        assert isinstance(self.observation_space, spaces.Dict)
        assert isinstance(self.action_space, spaces.Box)
        return RobotPolicy(
            self.observation_space,
            self.action_space,
            self.sets,
            *models,
            generator=self.weights_generator,
        )

    def make_optimizer(self, flat: nn.FlatParameters) -> nn.FlatOptimizer:
        """Adam with torch's constants."""
        return nn.Adam(flat, lr=0.0, eps=1e-8)

    def is_valued(self, obs: Any) -> bool:
        """True if observations have the input of the critic."""
        return all(name in obs for name in self.sets["critic"])

    def build(self) -> None:
        """Make networks and optimizers."""
        super().build()
        self._advantages: Tensor | None = None

    def update(self, batch: OnPolicyBatch) -> Metrics:
        """Learn from one rollout, whose advantages are normalized at once where they are to be."""
        if not self.config.normalize_advantages:
            normalized = losses.normalize(batch.advantages, batch.weights, total=self.total)
            if self._advantages is None or self._advantages.shape != normalized.shape:
                self._advantages = torch.empty_like(normalized)
            self._advantages.copy_(normalized)  # where a graph has read them before
            batch = replace(batch, advantages=self._advantages)
        return super().update(batch)

    def count(self, batch: OnPolicyBatch) -> None:
        """Count the observations of a batch that was learned from."""
        super().count(batch)
        self.policy.count(batch.obs, batch.weights, self.total)


class FusedRobotLearner(FusedPolicyLearner, RobotLearner):
    """One whose loss is computed by the kernels of a GPU."""

    @property
    def known_policy(self) -> type[Any]:
        """The network whose heads kernels know."""
        return RobotPolicy


class RobotStudent(RobotLearner, DistillationLearner):
    """A student with the networks of a configuration, and its teacher."""

    in_order = True

    def build(self) -> None:
        """Make the student, its optimizer and the teacher."""
        assert isinstance(self.observation_space, spaces.Dict)
        super().build()
        n_actions = self.policy.distribution.n_params
        self.teacher = self.add(
            "teacher",
            Teacher(
                self.observation_space,
                self.sets["teacher"],
                self.settings.models["teacher"],
                n_actions,
                self.weights_generator,
            ),
        )

    def make_policy(self) -> Any:
        """The student; its critic, which learns nothing, looks at the same."""
        student = self.settings.models["student"]
        critic = replace(student, hidden=(1,), std=None, normalizes=False)
        assert isinstance(self.observation_space, spaces.Dict)
        assert isinstance(self.action_space, spaces.Box)
        return RobotPolicy(
            self.observation_space,
            self.action_space,
            self.sets,
            student,
            critic,
            generator=self.weights_generator,
        )

    def teach(self, obs: Any) -> Tensor:
        """Actions of the teacher."""
        actions: Tensor = self.teacher(obs)
        return actions

    def update(self, batch: OnPolicyBatch) -> Metrics:
        """Learn from one rollout."""
        return DistillationLearner.update(self, batch)


class RobotExplorer(RobotLearner, CuriousPPOLearner):
    """One with intrinsic rewards, whose weight follows a schedule over steps."""

    schedule: ClassVar[Callable[[int], float]]
    """The weight after a number of steps of every environment."""

    def build(self) -> None:
        """Make networks and optimizers."""
        super().build()
        self.seen = 0
        if self.unknown.norm is not None:
            self.unknown.norm = RobotNorm(self.unknown.features.size).to(self.device)

    def follow(self, progress_remaining: float) -> None:
        """Set learning rates and clip ranges."""
        super().follow(progress_remaining)
        self.curiosity_weight.fill_(type(self).schedule(self.seen))

    def intrinsic_rewards(self, obs: Any) -> Tensor:
        """Rewards [N] for coming to see observations [N, ...] in training."""
        self.seen += 1
        self.curiosity_weight.fill_(type(self).schedule(self.seen))
        return super().intrinsic_rewards(obs)


class RobotMirror(RobotLearner, SymmetricPPOLearner):
    """One that learns from mirrored steps, by rsl_rl's functions."""

    augment: ClassVar[Callable[[Any, Tensor | None], tuple[Any, Tensor | None]]]

    def forms(self, obs: Any, actions: Tensor | None) -> tuple[Any, Tensor | None]:
        """All forms of some steps."""
        return type(self).augment(obs, actions)


def learner_for(
    settings: Settings,
    sets: Mapping[str, list[str]],
    env: Any,
    space: spaces.Dict,
    *,
    by_kernels: bool = False,
) -> type[RobotLearner]:
    """The class of the learner that a configuration asks for.

    Args:
        settings: The configuration.
        sets: Groups of observations by set.
        env: The environment as rsl_rl has it.
        space: Of its groups of observations.
        by_kernels: Kernels compute what they know.
    """
    if settings.is_distillation:
        own = {"actor": sets["student"], "critic": sets["student"], "teacher": sets["teacher"]}
        distance = settings.algorithm["loss_type"]
        return _made((RobotStudent,), settings, own, {"distance": distance})
    kinds: list[type] = []
    attributes: dict[str, Any] = {}
    rnd, symmetry = settings.algorithm["rnd_cfg"], settings.algorithm["symmetry_cfg"]
    if rnd is not None:
        kinds.append(RobotExplorer)
        attributes |= _curiosity(dict(rnd), sets["rnd_state"], env, space)
    if symmetry is not None:
        kinds.append(RobotMirror)
        attributes |= _symmetry(dict(symmetry), settings, env)
    plain = FusedRobotLearner if by_kernels else RobotLearner
    return _made(tuple(kinds) or (plain,), settings, sets, attributes)


def _made(
    kinds: tuple[type, ...], settings: Settings, sets: Mapping[str, Any], own: dict[str, Any]
) -> type[RobotLearner]:
    name = "And".join(kind.__name__ for kind in kinds)
    described = {"settings": settings, "sets": sets, "__module__": __name__}
    made: type[RobotLearner] = type(name, kinds, {**described, **own})
    return made


def _curiosity(
    given: dict[str, Any], groups: list[str], env: Any, space: spaces.Dict
) -> dict[str, Any]:
    for name in ("num_states", "obs_groups", "device"):  # which rsl_rl itself writes there
        given.pop(name, None)
    check_entries(given, RND, "rnd_cfg")
    given = {"predictor_hidden_dims": (-1,), "target_hidden_dims": (-1,), **given}
    size = spaces.flatdim(spaces.Dict([(group, space[group]) for group in groups]))
    step_dt = getattr(getattr(env, "unwrapped", env), "step_dt", None)
    if step_dt is None:
        raise ValueError("env.unwrapped must have step_dt, seconds of a step, for rnd_cfg.weight")
    start = float(given.get("weight", 0.0)) * float(step_dt)
    hidden = {
        name: tuple(size if width == -1 else width for width in given[f"{name}_hidden_dims"])
        for name in ("predictor", "target")
    }
    activation = given.get("activation", "elu")
    if activation not in ACTIVATIONS:
        raise refuse("rnd_cfg.activation", activation, f"one of {sorted(ACTIVATIONS)}")
    options = Curiosity(
        weight=start,
        obs=tuple(groups),
        size=int(given.get("num_outputs", 1)),
        predictor_hidden=hidden["predictor"],
        target_hidden=hidden["target"],
        activation=ACTIVATIONS[activation],
        normalize_obs=bool(given.get("state_normalization", False)),
        normalize_rewards=bool(given.get("reward_normalization", False)),
        learning_rate=float(given.get("learning_rate", 1e-3)),
    )
    return {"curiosity": options, "schedule": _weight(start, given.get("weight_schedule"))}


def _weight(start: float, given: Mapping[str, Any] | None) -> Callable[[int], float]:
    """The weight of intrinsic rewards after so many steps."""
    if given is None:
        return lambda steps: start  # noqa: ARG005 - it is constant
    mode = given.get("mode")
    if mode not in SCHEDULES:
        raise refuse("weight_schedule.mode", mode, f"one of {sorted(SCHEDULES)}")
    check_entries(given, SCHEDULES[mode], "weight_schedule")
    if mode == "constant":
        return lambda steps: start  # noqa: ARG005
    end, last = float(given["final_value"]), int(given["final_step"])
    if mode == "step":
        return lambda steps: start if steps < last else end
    first = int(given["initial_step"])

    def linear(steps: int) -> float:
        share = min(1.0, max(0.0, (steps - first) / max(1, last - first)))
        return start + (end - start) * share

    return linear


def _symmetry(given: dict[str, Any], settings: Settings, env: Any) -> dict[str, Any]:
    for name in ("env", "_env"):  # which rsl_rl itself writes there
        given.pop(name, None)
    check_entries(given, SYMMETRY, "symmetry_cfg")
    augments = bool(given.get("use_data_augmentation", False))
    coefficient = given.get("mirror_loss_coeff", 0.0) if given.get("use_mirror_loss") else 0.0
    if not augments and not coefficient:
        raise refuse(
            "symmetry_cfg", given, "one with use_data_augmentation or use_mirror_loss, or None,"
        )
    function = resolved(given["data_augmentation_func"], "data_augmentation_func")
    of_groups = settings.form >= 3

    def augment(obs: Any, actions: Tensor | None) -> tuple[Any, Tensor | None]:
        if of_groups:
            rows = None if obs is None else _as_tensordict(obs)
            mirrored, others = function(env=env, obs=rows, actions=actions)
            return (None if mirrored is None else dict(mirrored.items())), others
        if obs is None:
            return None, function(env=env, obs=None, actions=actions, obs_type="policy")[1]
        both = {
            name: function(
                env=env,
                obs=rows,
                actions=actions if name == "policy" else None,
                obs_type=name,
            )
            for name, rows in obs.items()
        }
        return {name: rows for name, (rows, _) in both.items()}, both["policy"][1]

    return {
        "augments": augments,
        "mirror_coef": float(coefficient),
        "augment": staticmethod(augment),
    }


def _as_tensordict(obs: Mapping[str, Tensor]) -> Any:
    """Groups as rsl_rl's functions take them; a dict where tensordict is not installed."""
    try:
        from tensordict import TensorDict
    except ImportError:
        return dict(obs)
    return TensorDict(dict(obs), batch_size=[len(next(iter(obs.values())))])
