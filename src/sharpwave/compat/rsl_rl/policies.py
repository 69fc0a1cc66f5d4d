"""Policies as rsl_rl gives them to play scripts: modules that take observations of environments."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sharpwave.compat.rsl_rl.networks import RobotPolicy
from sharpwave.compat.rsl_rl.scripted import (
    Memory,
    Plain,
    Remembering,
    RememberingLSTM,
    normalizer_of,
)

__all__ = ["InferencePolicy", "export_jit", "export_onnx"]


class InferencePolicy(nn.Module):
    """The deterministic policy: actions [N, n] for observations of environments.

    It is the policy that learns, not a copy. Recurrent policies remember what they saw until
    `reset`. Its parts have rsl_rl's names: `actor`, `critic`, `actor_obs_normalizer`,
    `critic_obs_normalizer`, `memory_a`, and in a distillation `student`, `student_obs_normalizer`
    and `memory_s`.

    Args:
        policy: The networks.
        role: "actor", or "student" of a distillation.

    Attributes:
        is_recurrent: True if it remembers.
    """

    def __init__(self, policy: RobotPolicy, role: str = "actor") -> None:
        super().__init__()
        self.networks = policy
        self.is_recurrent = bool(policy.recurrent)
        self._state: Tensor | None = None
        self.add_module(role, policy.actor)
        self.add_module(f"{role}_obs_normalizer", normalizer_of(policy.features))
        if self.is_recurrent:
            self.add_module(f"memory_{role[0]}", Memory(policy.actor_rnn))
        if role == "actor":
            self.critic = policy.critic
            self.critic_obs_normalizer = normalizer_of(policy.critic_features)

    def forward(self, obs: Any) -> Tensor:
        """Actions for groups of observations (a TensorDict or a dict) or for one tensor [N, d]."""
        policy = self.networks
        with torch.no_grad():
            if not self.is_recurrent:
                return policy.actor.lean(policy.features(obs))
            inputs = policy.features(obs)
            if self._state is None or self._state.shape[1] != len(inputs):
                self._state = policy.initial_state(len(inputs))
            assert self._state is not None
            acted = policy.act(obs, state=self._state, deterministic=True, with_values=False)
            self._state = acted.state
            return acted.actions

    def act_inference(self, obs: Any) -> Tensor:
        """The same as calling it."""
        return self(obs)  # type: ignore[no-any-return]

    def act(self, obs: Any) -> Tensor:
        """A sample of actions."""
        with torch.no_grad():
            mean = self(obs)
            return torch.normal(mean, self.networks.spread.expand_as(mean))

    def evaluate(self, obs: Any) -> Tensor:
        """Values [N, 1] of observations with the groups of the critic."""
        policy = self.networks
        with torch.no_grad():
            values: Tensor = policy.critic(policy.critic_features(obs))
        return values

    def reset(self, dones: Tensor | None = None) -> None:
        """Forget what was seen: everywhere, or where an episode ended."""
        if dones is None or self._state is None:
            self._state = None
        else:
            self._state[:, dones.bool()] = 0.0

    @property
    def action_std(self) -> Tensor:
        """[n] the standard deviation of samples."""
        return self.networks.spread

    output_std = action_std

    def as_jit(self) -> nn.Module:
        """A module of one tensor [N, d] of observations that TorchScript can compile."""
        if not self.is_recurrent:
            return Plain(self.networks)
        is_lstm = isinstance(self.networks.actor_rnn, nn.LSTM)
        return RememberingLSTM(self.networks) if is_lstm else Remembering(self.networks)

    def as_onnx(self, verbose: bool = False) -> nn.Module:  # noqa: ARG002 - rsl_rl's form
        """A module of one tensor [N, d] of observations for ONNX."""
        if self.is_recurrent:
            raise ValueError("policies must have no memory for ONNX, got a recurrent one")
        return Plain(self.networks)


def export_jit(policy: InferencePolicy, path: str, filename: str) -> None:
    """Write a policy as a file of TorchScript."""
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    with _old_forms():
        torch.jit.script(policy.as_jit().to("cpu")).save(folder / filename)


def export_onnx(policy: InferencePolicy, path: str, filename: str, *, verbose: bool) -> None:
    """Write a policy as a file of ONNX."""
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    module: Any = policy.as_onnx(verbose).to("cpu").eval()
    with _old_forms():
        torch.onnx.export(
            module,
            module.get_dummy_inputs(),
            folder / filename,
            input_names=list(module.input_names),
            output_names=list(module.output_names),
            dynamic_axes={"obs": {0: "batch"}, "actions": {0: "batch"}},
            opset_version=18,
            verbose=verbose,
            dynamo=False,
        )


@contextlib.contextmanager
def _old_forms() -> Iterator[None]:
    """Without torch's warnings of the forms of files that robots read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield
