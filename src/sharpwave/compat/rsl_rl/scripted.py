"""Modules of policies that TorchScript can compile, for exporters and robots."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from sharpwave.compat.rsl_rl.networks import EPS, Groups, RobotNorm, RobotPolicy

__all__ = ["Memory", "Normalizer", "Plain", "Remembering", "RememberingLSTM", "normalizer_of"]


class Normalizer(nn.Module):
    """Running statistics of observations as a module that TorchScript can compile.

    Args:
        norm: The statistics, which go on to change.
    """

    def __init__(self, norm: RobotNorm) -> None:
        super().__init__()
        self.mean = nn.Buffer(norm.mean)
        self.var = nn.Buffer(norm.var)
        self.eps = EPS

    def forward(self, x: Tensor) -> Tensor:
        """Observations [..., size], normalized."""
        return (x - self.mean.float()) / (self.var.sqrt() + self.eps).float()


def normalizer_of(features: Groups) -> nn.Module:
    """The normalization of observations; a module that does nothing where there is none."""
    return nn.Identity() if features.norm is None else Normalizer(features.norm)


class Memory(nn.Module):
    """A recurrent layer where rsl_rl's exporters look for it."""

    def __init__(self, rnn: nn.Module) -> None:
        super().__init__()
        self.rnn = rnn


class Plain(nn.Module):
    """Observations to actions."""

    is_recurrent = False
    input_names = ("obs",)
    output_names = ("actions",)

    def __init__(self, networks: RobotPolicy) -> None:
        super().__init__()
        self.input_size = networks.features.size
        self.normalizer = copy.deepcopy(normalizer_of(networks.features))
        self.actor = nn.Sequential(*copy.deepcopy(list(networks.actor)))

    def forward(self, x: Tensor) -> Tensor:
        """Actions [N, n] for observations [N, d]."""
        return self.actor(self.normalizer(x))  # type: ignore[no-any-return]

    @torch.jit.export
    def reset(self) -> None:
        """Nothing to forget."""

    @torch.jit.ignore  # type: ignore[untyped-decorator]
    def get_dummy_inputs(self) -> tuple[Tensor]:
        """Observations of the right shape."""
        return (torch.zeros(1, self.input_size),)


class Remembering(nn.Module):
    """Observations [1, d] to actions, with a memory that `reset` empties; a GRU."""

    def __init__(self, networks: RobotPolicy) -> None:
        super().__init__()
        self.normalizer = copy.deepcopy(normalizer_of(networks.features))
        self.rnn = copy.deepcopy(networks.actor_rnn)
        self.actor = nn.Sequential(*copy.deepcopy(list(networks.actor)))
        self.hidden_state = nn.Buffer(torch.zeros(1, 1, self.rnn.hidden_size))

    def forward(self, x: Tensor) -> Tensor:
        """Actions [1, n] for observations [1, d]."""
        out, self.hidden_state = self.rnn(self.normalizer(x)[None], self.hidden_state)
        return self.actor(out[0])  # type: ignore[no-any-return]

    @torch.jit.export
    def reset(self) -> None:
        """Forget what was seen."""
        self.hidden_state.zero_()


class RememberingLSTM(Remembering):
    """The same of an LSTM, which has two memories."""

    def __init__(self, networks: RobotPolicy) -> None:
        super().__init__(networks)
        self.cell_state = nn.Buffer(torch.zeros_like(self.hidden_state))

    def forward(self, x: Tensor) -> Tensor:
        """Actions [1, n] for observations [1, d]."""
        out, (self.hidden_state, self.cell_state) = self.rnn(
            self.normalizer(x)[None], (self.hidden_state, self.cell_state)
        )
        return self.actor(out[0])  # type: ignore[no-any-return]

    @torch.jit.export
    def reset(self) -> None:
        """Forget what was seen."""
        self.hidden_state.zero_()
        self.cell_state.zero_()
