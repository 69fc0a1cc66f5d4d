"""Recurrent layers over steps in which episodes begin.

A state is [k, B, size], with k = 2 for an LSTM (output, cell) and 1 for a GRU. It is set to zero
wherever an episode begins, before that step, and stays as it is over steps that are not valid.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from sharpwave.nn.mlp import initialize, initialize_uniform

__all__ = ["EpisodePieces", "make_rnn", "n_states", "step", "unroll"]

_KINDS: dict[str, type[nn.LSTM] | type[nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}


def make_rnn(
    kind: str,
    in_features: int,
    size: int,
    generator: np.random.Generator,
    *,
    ortho_init: bool = True,
) -> nn.LSTM | nn.GRU:
    """One recurrent layer.

    Args:
        kind: "lstm" or "gru".
        in_features: Size of its input.
        size: Size of its state and output.
        generator: Source of the weights.
        ortho_init: First weights are orthogonal and biases zero; otherwise both are torch's.

    Raises:
        ValueError: The kind is unknown or the size not positive.
    """
    if kind not in _KINDS:
        raise ValueError(f"recurrent must be None, 'lstm' or 'gru', got {kind!r}")
    if size <= 0:
        raise ValueError(f"recurrent_size must be positive, got {size}")
    rnn = _KINDS[kind](in_features, size)
    (initialize if ortho_init else initialize_uniform)(rnn, generator)
    return rnn


def n_states(rnn: nn.RNNBase) -> int:
    """Number of tensors in the state of a layer."""
    return 2 if isinstance(rnn, nn.LSTM) else 1


def step(
    rnn: nn.RNNBase,
    x: Tensor,
    state: Tensor,
    starts: Tensor | None,
    valid: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """One step.

    Args:
        rnn: The layer.
        x: [B, in_features].
        state: [k, B, size].
        starts: [B] bool, True where an episode begins; None where none does.
        valid: [B] bool, False where the state stays as it is; None where it does nowhere.

    Returns:
        The output [B, size] and the next state.
    """
    if starts is not None:
        state = state.masked_fill(starts.unsqueeze(-1), 0.0)
    weights = rnn._parameters
    arguments = [weights[f"{name}_l0"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    if isinstance(rnn, nn.LSTM):
        output, cell = torch.lstm_cell(x, (state[0], state[1]), *arguments)  # type: ignore[arg-type]
        after = torch.stack((output, cell))
    else:
        output = torch.gru_cell(x, state[0], *arguments)  # type: ignore[arg-type]
        after = output.unsqueeze(0)
    return output, after if valid is None else torch.where(valid.unsqueeze(-1), after, state)


class EpisodePieces:
    """Episode boundaries in [T, B] steps, computed once for all layers that run over them.

    Each column is cut where an episode begins, and the pieces, longest first, are packed so that
    one call of a recurrent layer runs them all side by side: no state passes a beginning, and
    there are as many sequential steps as the longest piece has. Steps that are not valid are in no
    piece.

    With `starts` on a GPU, looking at them would wait for it, so the steps run one after the
    other instead; on the CPU (the observations may be on a GPU all the same) they are packed.

    Args:
        starts: [T, B] bool, True where an episode begins.
        valid: [T, B] bool on the same device, False where the state stays as it is; None where it
            does nowhere.
    """

    def __init__(self, starts: Tensor, valid: Tensor | None = None) -> None:
        self.starts, self.valid = starts, valid
        self.pieces: _Pieces | None = None
        if starts.device.type == "cpu":
            cuts = starts.numpy()
            # Where no step is valid there is nothing to learn, whatever comes out.
            if valid is not None and (valid.all() or not valid.any()):
                valid = None
            if valid is not None or cuts[1:].any():
                self.pieces = _Pieces(cuts, np.ones_like(cuts) if valid is None else valid.numpy())

    @property
    def one_by_one(self) -> bool:
        """True if the steps have to run one after the other."""
        return self.starts.device.type != "cpu"


class _Pieces:
    """The packing order of `EpisodePieces`.

    Attributes:
        order: [V] step of each packed row, counted along the rows of [T, B].
        sizes: Number of packed rows at each sequential step.
        envs: [n] column of each piece.
        fresh: [n] whether a piece begins with an episode rather than with the given state.
    """

    def __init__(self, starts: NDArray[np.bool_], valid: NDArray[np.bool_]) -> None:
        n_steps, n_envs = starts.shape
        rows = np.flatnonzero(valid.T)
        envs, times = np.divmod(rows, n_steps)
        begun = starts.T.cumsum(1).reshape(-1)[rows]  # episodes so far
        cuts = (np.diff(envs, prepend=-1) != 0) | (np.diff(begun, prepend=0) != 0)
        begins = np.flatnonzero(cuts)
        lengths = np.diff(begins, append=len(rows))
        longest_first = np.argsort(-lengths, kind="stable")
        begins, lengths = begins[longest_first], lengths[longest_first]
        ages = np.arange(lengths[0])[:, None]
        alive = ages < lengths
        packed = (begins + ages)[alive]
        self.order = torch.from_numpy(times[packed] * n_envs + envs[packed])
        self.sizes = torch.from_numpy(alive.sum(1))
        self.envs = torch.from_numpy(envs[begins])
        self.fresh = torch.from_numpy(begun[begins] > 0)

    def to(self, device: torch.device) -> None:
        """Moves what indexes tensors; the sizes stay on the CPU."""
        if self.order.device != device:
            for name in ("order", "envs", "fresh"):
                setattr(self, name, getattr(self, name).to(device, non_blocking=True))


def unroll(rnn: nn.RNNBase, x: Tensor, state: Tensor, episodes: EpisodePieces) -> Tensor:
    """The outputs of many steps, the same as of `step` after `step`.

    Args:
        rnn: The layer.
        x: [T, B, in_features].
        state: [k, B, size] before the first step.
        episodes: Episode boundaries of these steps.

    Returns:
        [T, B, size]; of steps that are not valid they are finite and stand for nothing.
    """
    if episodes.one_by_one:
        outputs = []
        valid = [None] * len(x) if episodes.valid is None else episodes.valid
        for x_now, starts, valid_now in zip(x, episodes.starts, valid, strict=True):
            output, state = step(rnn, x_now, state, starts, valid_now)
            outputs.append(output)
        return torch.stack(outputs)
    pieces = episodes.pieces
    if pieces is None:
        first = episodes.starts[0].to(x.device, non_blocking=True)
        state = state.masked_fill(first.unsqueeze(-1), 0.0)
        whole: Tensor = rnn(x, _split(rnn, state))[0]
        return whole
    pieces.to(x.device)
    state = state[:, pieces.envs].masked_fill(pieces.fresh.unsqueeze(-1), 0.0)
    packed = PackedSequence(x.flatten(0, 1)[pieces.order], pieces.sizes)
    data: Tensor = rnn(packed, _split(rnn, state))[0].data
    steps = data.new_zeros(x.shape[0] * x.shape[1], data.shape[1])
    return steps.index_copy(0, pieces.order, data).reshape(*x.shape[:2], -1)


def _split(rnn: nn.RNNBase, state: Tensor) -> Tensor | tuple[Tensor, Tensor]:
    """A state as torch's layers take it."""
    if isinstance(rnn, nn.LSTM):
        return state[:1].contiguous(), state[1:].contiguous()
    return state.contiguous()
