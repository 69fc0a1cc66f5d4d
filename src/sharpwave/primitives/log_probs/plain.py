"""Log-probabilities of selected tokens and entropies in plain torch, as the Triton kernels have it.

Rows are worked on in blocks that stay in a CPU's cache, so that nothing of the size of the logits
is allocated.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

LOWEST = -1e30  # finite, so that logits of -inf leave no NaN
IMPOSSIBLE = -1e4  # a log-probability whose exp is 0, also in float64
CPU_BLOCK = 1 << 18
BLOCK = 1 << 25


def forward(
    logits: Tensor,
    tokens: Tensor,
    log_sums: Tensor,
    picked: Tensor,
    entropies: Tensor | None,
    temperature: float,
    *,
    n_tokens: int,
    start: int = 0,
    merge: bool = False,
    final: bool = True,
) -> None:
    """[R, V] and [R] in, [R] out: log Σ exp(x / temperature), the selected logit and the entropy.

    The columns of logits begin at `start` of `n_tokens`. `merge` adds to what earlier ones left;
    `final` subtracts, and gives 0 to tokens outside the vocabulary.
    """
    for rows in _blocks(logits):
        x = logits[rows].to(log_sums.dtype, copy=True).mul_(1 / temperature)
        token = tokens[rows]
        column, here = _columns(token, start, x.shape[1])
        own = torch.where(here, x.gather(1, column)[:, 0], 0.0)
        log_sum, entropy = _reduce(x, entropies is not None)
        joint = log_sum
        if merge:
            earlier = log_sums[rows]
            joint = torch.logaddexp(earlier, log_sum)
            own = torch.where(here, own, picked[rows])
            if entropies is not None:
                entropy = _share(log_sum, entropy, joint)
                entropy += _share(earlier, entropies[rows], joint)
        known = (token >= 0) & (token < n_tokens)
        log_sums[rows] = joint
        picked[rows] = torch.where(known, own - joint, 0.0) if final else own
        if entropies is not None:
            entropies[rows] = torch.where(known, entropy, 0.0) if final else entropy


def backward(
    logits: Tensor,
    tokens: Tensor,
    log_sums: Tensor,
    entropies: Tensor | None,
    gradients: Tensor,
    entropy_gradients: Tensor | None,
    out: Tensor,
    temperature: float,
    *,
    n_tokens: int,
    start: int = 0,
) -> None:
    """Write the gradient of [R, V] logits to `out`, which may be `logits`.

    With p = softmax(x / temperature) that of log p_token is (1[j = token] - p_j) / temperature,
    and that of the entropy H is -p_j (log p_j + H) / temperature.
    """
    for rows in _blocks(logits):
        token = tokens[rows]
        known = (token >= 0) & (token < n_tokens)
        gradient = torch.where(known, gradients[rows] / temperature, 0.0)
        counts = gradient != 0
        x = logits[rows].to(log_sums.dtype, copy=True).mul_(1 / temperature)
        x -= log_sums[rows, None]
        result = x.exp()
        if entropies is None or entropy_gradients is None:
            result *= -gradient[:, None]
        else:
            slope = torch.where(known, entropy_gradients[rows] / temperature, 0.0)
            counts |= slope != 0
            excess = x.clamp_(min=IMPOSSIBLE).add_(entropies[rows, None])
            result *= excess.mul_(slope[:, None]).add_(gradient[:, None]).neg_()
        column, here = _columns(token, start, x.shape[1])
        result.scatter_add_(1, column, torch.where(here, gradient, 0.0)[:, None])
        out[rows] = result.masked_fill_(~counts[:, None], 0.0)


def _blocks(logits: Tensor) -> Iterator[slice]:
    """Rows, some at a time."""
    n_rows, n_vocab = logits.shape
    size = CPU_BLOCK if logits.device.type == "cpu" else BLOCK
    step = max(size // n_vocab, 1)
    for first in range(0, n_rows, step):
        yield slice(first, first + step)


def _columns(token: Tensor, start: int, n_vocab: int) -> tuple[Tensor, Tensor]:
    """Columns [B, 1] of the tokens, 0 where none of these, and [B] true where one is."""
    column = token - start
    here = (column >= 0) & (column < n_vocab)
    return torch.where(here, column, 0)[:, None], here


def _reduce(x: Tensor, entropy: bool) -> tuple[Tensor, Tensor]:
    """[B]: log Σ exp(x) and the entropy of softmax(x), which overwrite x."""
    top = x.amax(1).clamp_(min=LOWEST)
    x -= top[:, None]
    if not entropy:
        log_total = x.exp_().sum(1).log_()
        return log_total + top, log_total
    weights = x.exp()
    total = weights.sum(1)
    log_total = total.log()
    spread = log_total - x.clamp_(min=IMPOSSIBLE).mul_(weights).sum(1) / total
    return log_total + top, torch.where(total == 0, 0.0, spread)


def _share(log_sum: Tensor, entropy: Tensor, joint: Tensor) -> Tensor:
    """Part of the entropy from a part of the vocabulary: w (H - log w), w = its share."""
    distance = log_sum - joint
    return torch.where(log_sum == -torch.inf, 0.0, distance.exp() * (entropy - distance))
