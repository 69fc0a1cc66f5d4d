"""Policies as rsl_rl gives them to play scripts: modules that take observations of environments."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sharpwave.compat.rsl_rl.networks import Groups, RobotPolicy
from sharpwave.nn.running_norm import EPS, RunningNorm

__all__ = ["InferencePolicy", "export_jit", "export_onnx"]


class Normalizer(nn.Module):
    """Running statistics of observations as a module that TorchScript can compile.

    Args:
        norm: The statistics, which go on to change.
    """

    mean: Tensor
    var: Tensor

    def __init__(self, norm: RunningNorm) -> None:
        super().__init__()
        self.register_buffer("mean", norm.mean)
        self.register_buffer("var", norm.var)
        self.eps = EPS

    def forward(self, x: Tensor) -> Tensor:
        """Observations [..., size], normalized."""
        return (x - self.mean) / (self.var.sqrt() + self.eps)


def _normalizer(features: Groups) -> nn.Module:
    return nn.Identity() if features.norm is None else Normalizer(features.norm)


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
        self.add_module(f"{role}_obs_normalizer", _normalizer(policy.features))
        if self.is_recurrent:
            self.add_module(f"memory_{role[0]}", _Memory(policy.actor_rnn))
        if role == "actor":
            self.critic = policy.critic
            self.critic_obs_normalizer = _normalizer(policy.critic_features)

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
            return _Plain(self)
        is_lstm = isinstance(self.networks.actor_rnn, nn.LSTM)
        return _RememberingLSTM(self) if is_lstm else _Remembering(self)

    def as_onnx(self, verbose: bool = False) -> nn.Module:  # noqa: ARG002 - rsl_rl's form
        """A module of one tensor [N, d] of observations for ONNX."""
        if self.is_recurrent:
            raise ValueError("policies must have no memory for ONNX, got a recurrent one")
        return _Plain(self)


class _Memory(nn.Module):
    """A recurrent layer where rsl_rl's exporters look for it."""

    def __init__(self, rnn: nn.Module) -> None:
        super().__init__()
        self.rnn = rnn


class _Plain(nn.Module):
    """Observations to actions."""

    is_recurrent = False
    input_names = ("obs",)
    output_names = ("actions",)

    def __init__(self, policy: InferencePolicy) -> None:
        super().__init__()
        networks = policy.networks
        self.input_size = networks.features.size
        self.normalizer = copy.deepcopy(_normalizer(networks.features))
        self.actor = nn.Sequential(*copy.deepcopy(list(networks.actor)))

    def forward(self, x: Tensor) -> Tensor:
        return self.actor(self.normalizer(x))  # type: ignore[no-any-return]

    @torch.jit.export
    def reset(self) -> None:
        """Nothing to forget."""

    @torch.jit.ignore
    def get_dummy_inputs(self) -> tuple[Tensor]:
        """Observations of the right shape."""
        return (torch.zeros(1, self.input_size),)


class _Remembering(nn.Module):
    """Observations [1, d] to actions, with a memory that `reset` empties; a GRU."""

    hidden_state: Tensor

    def __init__(self, policy: InferencePolicy) -> None:
        super().__init__()
        networks = policy.networks
        self.normalizer = copy.deepcopy(_normalizer(networks.features))
        self.rnn = copy.deepcopy(networks.actor_rnn)
        self.actor = nn.Sequential(*copy.deepcopy(list(networks.actor)))
        self.register_buffer("hidden_state", torch.zeros(1, 1, self.rnn.hidden_size))

    def forward(self, x: Tensor) -> Tensor:
        out, self.hidden_state = self.rnn(self.normalizer(x)[None], self.hidden_state)
        return self.actor(out[0])  # type: ignore[no-any-return]

    @torch.jit.export
    def reset(self) -> None:
        """Forget what was seen."""
        self.hidden_state.zero_()


class _RememberingLSTM(_Remembering):
    """The same of an LSTM, which has two memories."""

    cell_state: Tensor

    def __init__(self, policy: InferencePolicy) -> None:
        super().__init__(policy)
        self.register_buffer("cell_state", torch.zeros_like(self.hidden_state))

    def forward(self, x: Tensor) -> Tensor:
        out, (self.hidden_state, self.cell_state) = self.rnn(
            self.normalizer(x)[None], (self.hidden_state, self.cell_state)
        )
        return self.actor(out[0])  # type: ignore[no-any-return]

    @torch.jit.export
    def reset(self) -> None:
        """Forget what was seen."""
        self.hidden_state.zero_()
        self.cell_state.zero_()


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
