"""Batches of a replay buffer as tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sharpwave.collect.off_policy import MASK, OBSERVATION
from sharpwave.core.lazy import torch
from sharpwave.core.tree import leaves, map_leaves
from sharpwave.envs import ActionScale
from sharpwave.tensors.staging import Staging, TensorNormalizer

if TYPE_CHECKING:
    from sharpwave.buffers.selectors import Selector
    from sharpwave.buffers.views import View
    from sharpwave.envs import VecNormalize
    from sharpwave.learners import Learner

INDICES = "indices"


@dataclass
class ReplayBatch:
    """Steps to learn from; the target of a value function is rewards + discounts · V(next_obs).

    What it holds are tensors, or arrays for native code.

    Attributes:
        obs: [B, ...], nested where the space is.
        actions: [B, d] in [-1, 1], or [B, ...] integers from 0 on.
        rewards: [B], summed over the steps of an n-step transition.
        next_obs: [B, ...] what the last of these steps led to.
        discounts: [B] γ^m after m steps, 0 where the episode terminated.
        masks: [B, n] true where an action is allowed at `obs`; None where all are.
        next_masks: [B, n] the same at `next_obs`.
        next_actions: [B, d] what was done at `next_obs`, for those who ask for it.
        weights: [B] importance weights of prioritized replay; None elsewhere.
        indices: Ids of the steps in a prioritized buffer.
        extra: Columns of the learner's own by name, those of the step that began at `obs`; None
            without.
    """

    obs: Any
    actions: Any
    rewards: Any
    next_obs: Any
    discounts: Any
    masks: Any = None
    next_masks: Any = None
    next_actions: Any = None
    weights: Any = None
    indices: Any = None
    extra: dict[str, Any] | None = None


class ReplaySampler:
    """Draws batches of a buffer for a learner, as tensors.

    Args:
        buffer: One of ours, or anything with `sample(batch_size)` that gives the same entries.
        batch_size: Steps in a batch.
        view: What a step becomes; None for a buffer that is not ours.
        gamma: Discount, for views that do not apply it.
        learner: The learner of the batches, which determines their device and form of actions.
        has_masks: True if observations are stored with the masks of their actions.
        normalizer: A `VecNormalize` whose statistics raw steps are normalized by; None for none.
        n_step: Rewards that are summed, each of which may be as large as its bound.
        obs_moments: Mean and deviation to normalize observations by; None does not.
        reward_form: Scale and offset of rewards; None leaves them as they are.
        next_seed: The seed of a draw that is given none; None for the buffer's own generator.
        columns: Names of the learner's own columns.
        selector: Sampling scheme of the steps; None for that of the buffer.
    """

    Normalizer: ClassVar[Any] = TensorNormalizer
    written: ClassVar[tuple[str, ...]] = ("td_errors",)
    """Names of the metrics of an update that `report` writes to the buffer."""

    def __init__(
        self,
        buffer: Any,
        batch_size: int,
        *,
        view: View | None,
        gamma: float,
        learner: Learner,
        has_masks: bool = False,
        normalizer: VecNormalize | None = None,
        n_step: int = 1,
        obs_moments: tuple[Any, Any] | None = None,
        reward_form: tuple[float, float] | None = None,
        next_seed: Callable[[], int] | None = None,
        columns: Iterable[str] = (),
        selector: Selector | None = None,
    ) -> None:
        self.buffer = buffer
        self.batch_size = batch_size
        self.view = view
        self.gamma = gamma
        self.device: Any = getattr(learner, "device", None)
        self._set_action_form(learner)
        self.obs_moments = obs_moments and tuple(map(learner.own, obs_moments))
        self.has_masks = has_masks
        self.normalizer: Any = None
        if normalizer is not None:
            self.normalizer = self.Normalizer(normalizer, self.device, n_step)
        self.reward_form = reward_form
        self.next_seed = next_seed
        self.columns = tuple(columns)
        self._how: dict[str, Any] = {"indices": True} if self.needs_ids else {}
        if selector is not None:
            self._how["selector"] = selector
        self._staging: Staging | None = None
        self._ids: Any = None
        # A native view fills the same memory every time, which saves allocating it.
        self._out: Any = None
        if getattr(view, "_spec", None) is not None and hasattr(buffer, "batch"):
            self._reserve()

    @property
    def needs_ids(self) -> bool:
        """True if batches must hold the ids of steps; those of prioritized replay always do."""
        return False

    def _set_action_form(self, learner: Learner) -> None:
        """Set the transform from actions of the environment to those of the learner.

        Continuous actions are scaled by `action_scale` and `action_bias`. From integers
        `action_bias` is subtracted, and they get back their shape, since buffers may hold them in
        another one.
        """
        space, action_map = learner.action_space, learner.action_map
        bias: Any = None
        self.action_scale: Any = None
        self.action_shape: tuple[int, ...] | None = None
        if isinstance(action_map, ActionScale):
            bias, self.action_scale = action_map.bias, learner.own(action_map.scale)
        else:
            self.action_shape = tuple(space.shape or ())
            start = np.asarray(getattr(space, "start", 0))
            bias = start if start.any() else None
        self.action_bias = bias if bias is None else learner.own(bias)
        self._is_unit = (
            self.action_scale is not None
            and self.action_bias is not None
            and bool((self.action_scale == 1).all())
            and not bool(self.action_bias.any())
        )

    def sample(self, seed: int | None = None) -> ReplayBatch:
        """One batch. Its tensors may be overwritten by the next one.

        Args:
            seed: Of the draw; the one that is next when not given.
        """
        self.refresh()
        return self.as_batch(self.draw(seed))

    def refresh(self) -> None:
        """Normalize by the present statistics."""
        if self.normalizer is not None:
            self.normalizer.refresh()

    def draw(self, seed: int | None = None) -> dict[str, Any]:
        """A batch as the buffer has it, as tensors on the device; `as_batch` makes the rest of it.

        On a CUDA device all batches lie at one address.
        """
        if seed is None and self.next_seed is not None:
            seed = self.next_seed()
        given = () if seed is None else (seed,)
        if self._out is not None:
            self.buffer.sample(self.batch_size, *given, view=self.view, out=self._out, **self._how)
            return self._out  # type: ignore[no-any-return]
        if self._ids is not None:
            assert self._staging is not None
            out = {**self._staging.memory(), **self._ids}
            self.buffer.sample(self.batch_size, *given, view=self.view, out=out, **self._how)
            return {**self._staging.send(), **self._ids}
        options = {} if self.view is None else {"view": self.view}
        drawn = self.buffer.sample(self.batch_size, *given, **options)
        return self._brought(dict(drawn))

    def _reserve(self) -> None:
        """Make the memory that batches are drawn into."""
        options = {"view": self.view, **self._how}
        if self.device.type == "cpu":
            self._out = self.buffer.batch(self.batch_size, **options, torch=True)
        else:
            self._stage(self.buffer.batch(self.batch_size, **options))

    def _brought(self, drawn: dict[str, Any]) -> dict[str, Any]:
        ids = {name: drawn.pop(name) for name in (INDICES,) if name in drawn}
        if self.device.type == "cpu" or _is_there(drawn, self.device):
            return {**map_leaves(self._tensor, drawn), **ids}
        arrays = map_leaves(np.asarray, drawn)
        if self._staging is None:
            self._staging = Staging(arrays, self.device)
        return {**self._staging.bring(arrays), **ids}

    def _stage(self, example: dict[str, Any]) -> None:
        """Have batches like this one drawn straight into page-locked memory."""
        columns = dict(example)
        self._ids = {name: columns.pop(name) for name in (INDICES,) if name in columns}
        self._staging = Staging(columns, self.device)

    def as_batch(self, drawn: dict[str, Any]) -> ReplayBatch:
        """The result of `draw` in the form that learners take."""
        obs, masks = self._observation(drawn["obs"])
        next_obs, next_masks = self._observation(drawn["next_obs"])
        rewards = drawn["rewards"]
        if self.normalizer is not None:
            rewards = self.normalizer.rewards(rewards)
        if self.reward_form is not None:
            scale, shift = self.reward_form
            rewards = rewards * scale + shift
        return ReplayBatch(
            obs=obs,
            actions=self._actions(drawn["actions"]),
            rewards=rewards,
            next_obs=next_obs,
            discounts=self._discounts(drawn),
            masks=masks,
            next_masks=next_masks,
            next_actions=self._actions(drawn["next_actions"]) if "next_actions" in drawn else None,
            weights=drawn.get("weights"),
            indices=drawn.get(INDICES),
            extra={name: drawn[name] for name in self.columns} if self.columns else None,
        )

    def _observation(self, obs: Any) -> tuple[Any, torch.Tensor | None]:
        masks = None
        if self.has_masks:
            obs, masks = obs[OBSERVATION], obs[MASK]
        if self.normalizer is not None:
            obs = self.normalizer.obs(obs)
        elif self.obs_moments is not None:
            mean, std = self.obs_moments
            obs = (obs - mean) / std
        return obs, masks

    def _discounts(self, drawn: Any) -> torch.Tensor:
        if "discounts" in drawn:
            discounts: torch.Tensor = drawn["discounts"]
        else:
            discounts = self.gamma * (1.0 - drawn["terminated"].float())
        return discounts

    def _actions(self, actions: Any) -> Any:
        if self.action_scale is not None and self.action_bias is not None:
            rows = actions.reshape(len(actions), -1).float()
            return rows if self._is_unit else (rows - self.action_bias) / self.action_scale
        whole = self._whole(actions)
        if self.action_shape is not None:
            whole = whole.reshape(len(whole), *self.action_shape)
        return whole if self.action_bias is None else whole - self.action_bias

    def _whole(self, actions: Any) -> Any:
        """Actions of a buffer that may hold them as floats, as integers."""
        whole = actions.long()
        # Asking a GPU would wait for it.
        if actions.is_floating_point() and actions.device.type == "cpu":
            check_whole(bool((whole == actions).all()), actions)
        return whole

    def _tensor(self, value: Any) -> torch.Tensor:
        return torch.as_tensor(value, device=self.device)

    def report(self, batch: ReplayBatch, metrics: Mapping[str, Any]) -> None:
        """Write the new priorities of a batch that was learned from, by its `td_errors` [B]."""
        td_errors = metrics.get("td_errors")
        if batch.indices is None or td_errors is None:
            return
        if isinstance(batch.indices, torch.Tensor):  # a buffer on the device
            self.buffer.update_priorities(batch.indices, td_errors.detach())
            return
        priorities = td_errors.detach().abs().add(1e-6).cpu().numpy()
        self.buffer.update_priorities(np.asarray(batch.indices), priorities)


def check_whole(is_whole: bool, actions: Any) -> None:
    """Raise ValueError for actions of a buffer that cannot be those of a discrete space."""
    if not is_whole:
        raise ValueError(f"actions of a buffer must be integers here, got {actions.tolist()}")


def _is_there(drawn: dict[str, Any], device: torch.device) -> bool:
    """Return whether a buffer keeps its steps on the device already."""
    _, leaf = next(leaves(drawn))
    return getattr(leaf, "device", None) == device
