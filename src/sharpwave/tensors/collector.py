"""Rollouts that stay on the device of the policy."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from sharpwave.collect.vector_step import OnStep, VectorStep, tensor_step
from sharpwave.core.lazy import torch
from sharpwave.core.tree import leaves, map_leaves, numbered
from sharpwave.storage.files import count_of
from sharpwave.tensors.episodes import TensorEpisodes
from sharpwave.tensors.steps import DeviceStep, DeviceSteps

if TYPE_CHECKING:
    from torch import Tensor

    from sharpwave.tensors.buffers import RolloutBuffer
    from sharpwave.tensors.graphed import GraphedRollouts

__all__ = ["TensorCollector"]


class TensorActor(Protocol):
    """Policy that chooses the actions of a rollout, and keeps its recurrent states itself."""

    def act_tensors(self, obs: Any, starts: Tensor, masks: Tensor | None) -> Any:
        """An object with `actions`, `log_probs`, `values` and `extra` for observations [N, ...]."""

    def value_tensors(self, obs: Any) -> Tensor:
        """Values [N] of what comes after the last `act_tensors`."""


class TensorCollector:
    """Collects rollouts of T steps from N environments into a `RolloutBuffer` on the device.

    It does what `OnPolicyCollector` does. Where the environments are on the device too, nothing is
    copied to the host and nothing waits for the device before the rollout is complete.

    Args:
        steps: The environments, as `DeviceSteps`.
        actor: The policy that chooses actions.
        n_envs: N.
        n_steps: T.
        seed: Of the first reset.
        device: Device of the rollouts.

    Attributes:
        episodes: Statistics of the episodes.
        timesteps: Environment steps so far.
        timings: Seconds by section.
        obs: [N, ...] observations to act on next; None before the first step.
        masks: [N, n] bool, the actions that are allowed next; None where all are.
        starts: [N] bool, where an episode begins.
        graphs: Replays rollouts as CUDA graphs; None does not.
    """

    def __init__(
        self,
        steps: DeviceSteps,
        actor: TensorActor,
        *,
        n_envs: int,
        n_steps: int,
        seed: int | None,
        device: Any,
    ) -> None:
        self.steps = steps
        self.actor = actor
        self.n_envs = n_envs
        self.n_steps = n_steps
        self.device = device
        self.episodes = TensorEpisodes(n_envs, device)
        self.timesteps = 0
        self.timings = {"collect": 0.0}
        self.buffer: RolloutBuffer | None = None
        self.obs: Any = None
        self.masks: Tensor | None = None
        self.starts = torch.ones(n_envs, dtype=torch.bool, device=device)
        self.graphs: GraphedRollouts | None = None
        self._is_checked = True
        self._seed = seed

    def collect(
        self,
        gamma: float,
        gae_lambda: float,
        on_step: OnStep | None = None,
    ) -> RolloutBuffer | None:
        """One rollout of `n_steps` steps, with advantages.

        Args:
            gamma: Discount.
            gae_lambda: λ of the advantages.
            on_step: Called after every step, which waits for the device; False gives up the
                rollout.

        Returns:
            The buffer, which the next rollout overwrites, or None if it was given up.

        Raises:
            NonFiniteError: An environment returned NaN or inf.
        """
        began = time.perf_counter()
        if self.obs is None:
            self._reset()
        if self.buffer is not None:
            self.buffer.reset()
            self.buffer.gamma, self.buffer.gae_lambda = gamma, gae_lambda
        taken = 0
        if self.graphs is not None and on_step is None and self.graphs.can_collect:
            self._check_last()
            taken = self.graphs.collect()
            self.timesteps += taken * self.n_envs
            self._is_checked = False
        for _ in range(taken, self.n_steps):
            obs = self.obs
            step = self.step()
            self.timesteps += self.n_envs
            if on_step is not None:
                mean = float(step.raw_rewards.mean())
                if on_step(mean, partial(_vector_step, obs, step)) is False:
                    return None
        assert self.buffer is not None
        if taken < self.n_steps:
            self.buffer.gamma, self.buffer.gae_lambda = gamma, gae_lambda
            self.compute_advantages()
            self._is_checked = False
            self._check_last()
        self.timings["collect"] += time.perf_counter() - began
        return self.buffer

    def _reset(self) -> None:
        self.obs, self.masks = self.steps.reset(self._seed, self.timesteps)
        self._seed = None  # the next reset goes on with the environments' own generators
        self.starts.fill_(True)
        self.episodes.restart()

    def step(self) -> DeviceStep:
        """One step of all environments, stored."""
        acted = self.act()
        step = self.steps.step(acted.actions, self.timesteps)
        if self.buffer is None:
            self.buffer = self._make_buffer(acted.actions, acted.extra)
        self.take(acted, step)
        return step

    def act(self) -> Any:
        """Actions for the observations that are there, and what belongs to them."""
        return self.actor.act_tensors(self.obs, self.starts, self.masks)

    def take(self, acted: Any, step: DeviceStep) -> None:
        """Store what was done and what it led to, and go on from there."""
        buffer: Any = self.buffer
        done = step.terminated | step.truncated
        final_values = None if step.final_obs is None else self.actor.value_tensors(step.final_obs)
        buffer.add(
            numbered(self.obs),
            acted.actions,
            step.rewards,
            done,
            acted.values,
            acted.log_probs,
            step.truncated & ~step.terminated,
            final_values,
            **self._mask_column(buffer),
            **({"extra": acted.extra} if acted.extra else {}),
        )
        self.episodes.update(done, step.raw_rewards, step.success)
        self.obs, self.masks, self.starts = step.obs, step.masks, done

    def compute_advantages(self) -> None:
        """Value what the last step led to, and with it the whole rollout."""
        buffer: Any = self.buffer
        buffer.compute_returns_and_advantages(self.actor.value_tensors(self.obs))

    def _check_last(self) -> None:
        """Check the last steps, once.

        Whoever checks waits for the device. Of a rollout without waits, the next one does it.
        """
        if not self._is_checked:
            self._is_checked = True
            self.steps.check(self.timesteps)

    def _mask_column(self, buffer: RolloutBuffer) -> dict[str, Any]:
        if "masks" not in buffer.fields.names:
            if self.masks is not None:
                raise ValueError("action masks must come from the first step on, they came later")
            return {}
        if self.masks is None:  # which allows everything
            return {"masks": torch.ones_like(buffer.stored("masks")[0])}
        return {"masks": self.masks}

    def _make_buffer(self, actions: Tensor, extra: dict[str, Tensor] | None) -> RolloutBuffer:
        from sharpwave.tensors.buffers import RolloutBuffer

        obs = numbered(self.obs)
        masks = self.masks
        fields: dict[str, Any] = {}
        if masks is not None:
            fields["masks"] = torch.bool, masks.shape[1:]
        if extra:  # nested, where no name is that of a field of the buffer
            fields["extra"] = {name: (x.dtype, x.shape[1:]) for name, x in extra.items()}
        buffer = RolloutBuffer(
            self.n_steps,
            self.n_envs,
            map_leaves(lambda leaf: leaf.shape[1:], obs),
            actions.shape[1:],
            obs_dtype=map_leaves(_stored_dtype, obs),
            action_dtype=_stored_dtype(actions),
            device=self.device,
            extra_fields=fields,
        )
        buffer.begin(self.starts)
        return buffer

    def columns(self, rollout: RolloutBuffer, *, sequences: bool) -> dict[str, Any]:
        """A rollout as rows [B, ...], or as sequences [T, N, ...]: the memory itself.

        Observations are nested as the environment's.
        """
        buffer = rollout
        paths = [path for path, _ in leaves(numbered(self.obs))]
        columns = iter([buffer.stored(f"obs.{path}" if path else "obs") for path in paths])
        found = {
            "obs": map_leaves(lambda _: next(columns), self.obs),
            "actions": buffer.stored("action"),
            "log_probs": buffer.stored("log_prob"),
            "values": buffer.stored("value"),
            "advantages": buffer.advantages,
            "returns": buffer.returns,
            "masks": buffer.stored("masks") if "masks" in buffer.fields.names else None,
            "extra": None,
        }
        if "extra" in buffer.fields.trees:
            names = buffer.fields.trees["extra"]
            found["extra"] = {name: buffer.stored(f"extra.{name}") for name in names}
        if sequences:
            return {**found, "starts": buffer.stored("start")}
        return {
            name: None if column is None else map_leaves(lambda leaf: leaf.flatten(0, 1), column)
            for name, column in found.items()
        }

    def close(self) -> None:
        """Nothing to close."""

    def state_dict(self) -> dict[str, Any]:
        """State of the collection, without the environments and the actor.

        Raises:
            NonFiniteError: An environment returned NaN or inf.
        """
        self._check_last()
        return {
            "timesteps": self.timesteps,
            "timings": dict(self.timings),
            "episodes": self.episodes.state_dict(),
            "last_obs": None if self.obs is None else map_leaves(_array, self.obs),
            "last_masks": None if self.masks is None else _array(self.masks),
            "starts": _array(self.starts),
        }

    def load_state_dict(self, state: dict[str, Any], *, in_flight: bool) -> None:
        """Continue from `state_dict`.

        Args:
            state: The result of `state_dict`.
            in_flight: True if the environments are in the state of then. Otherwise new episodes
                start.
        """
        self.timesteps = count_of(state, "timesteps")
        self.timings.update({name: float(x) for name, x in state["timings"].items()})
        self.episodes.load_state_dict(state["episodes"])
        if self.timesteps:
            self._seed = None
        self.obs = self.masks = self.buffer = None
        if in_flight and state["last_obs"] is not None:
            self.obs = map_leaves(self._tensor, state["last_obs"])
            masks = state["last_masks"]
            self.masks = None if masks is None else self._tensor(masks)
            self.starts = self._tensor(state["starts"])

    def _tensor(self, array: Any) -> Tensor:
        return torch.from_numpy(np.array(array)).to(self.device)


def _vector_step(obs: Any, step: DeviceStep) -> VectorStep:
    """The step as callbacks see it: arrays where the environments give arrays."""
    if step.taken is None:
        return tensor_step(obs, step.actions, step)
    arrays = map_leaves(
        lambda leaf, like: _array(leaf).astype(like.dtype), obs, step.taken.next_obs
    )
    return VectorStep.of(arrays, step.actions, step.taken)


def _stored_dtype(leaf: Tensor) -> torch.dtype:
    return torch.float32 if leaf.is_floating_point() else leaf.dtype


def _array(tensor: Any) -> Any:
    return tensor.detach().cpu().numpy()
