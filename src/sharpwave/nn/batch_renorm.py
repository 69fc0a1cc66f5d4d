"""Batch renormalization: batch normalization whose training agrees with evaluation in the end."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["BatchRenorm"]

MAX_SCALE, MAX_SHIFT = 3.0, 5.0


class BatchRenorm(nn.Module):
    r"""Batch renormalization (Ioffe, 2017, arXiv:1702.03275).

    In training, with mean and deviation of the batch and running ones $\mu, \sigma$,

    $$\hat x = \frac{x - \mu_B}{\sigma_B} r + d, \qquad
    r = \frac{\sigma_B}\sigma, \quad d = \frac{\mu_B - \mu}\sigma,$$

    where r and d are bounded and not differentiated: plain batch normalization with r = 1 and d = 0
    for the first `warmup` batches, and from then on nearly what evaluation does,
    $(x - \mu) / \sigma$. A learned scale and shift follow.

    Args:
        size: Number of features.
        n: Number of layers run as one, on [n, B, size]; None for a plain layer on [B, size].
        momentum: Share of a batch in the running statistics.
        warmup: Batches until the running statistics are used in training.
        eps: Added to variances.

    Example:
        >>> layer = BatchRenorm(3)
        >>> layer(torch.randn(100, 3) * 5 + 2).std(0).round().tolist()
        [1.0, 1.0, 1.0]
    """

    running_mean: Tensor
    running_var: Tensor
    batches: Tensor

    def __init__(
        self,
        size: int,
        n: int | None = None,
        *,
        momentum: float = 0.01,
        warmup: int = 100_000,
        eps: float = 1e-3,
    ) -> None:
        super().__init__()
        shape = (1, size) if n is None else (n, 1, size)
        self.weight = nn.Parameter(torch.ones(shape))
        self.bias = nn.Parameter(torch.zeros(shape))
        self.register_buffer("running_mean", torch.zeros(shape))
        self.register_buffer("running_var", torch.ones(shape))
        self.register_buffer("batches", torch.zeros(()))
        self._momentum, self._warmup, self._eps = momentum, float(warmup), eps

    def forward(self, x: Tensor) -> Tensor:
        """[B, size] or [n, B, size] to the same."""
        if not self.training:
            scale = self.weight * (self.running_var + self._eps).rsqrt()
            return torch.addcmul(self.bias - self.running_mean * scale, x, scale)
        var, mean = torch.var_mean(x, -2, correction=0, keepdim=True)
        inverse = (var + self._eps).rsqrt()
        scale, shift = self._correction(mean.detach(), inverse.detach())
        with torch.no_grad():
            self.running_mean.lerp_(mean, self._momentum)
            self.running_var.lerp_(var, self._momentum)
            self.batches.add_(1.0)
        return torch.addcmul(self.bias, (x - mean) * (inverse * scale) + shift, self.weight)

    def _correction(self, mean: Tensor, inverse: Tensor) -> tuple[Tensor, Tensor]:
        """R and d; nobody waits for the device to know whether the warm-up is over."""
        over = (self.batches >= self._warmup).float()
        running = (self.running_var + self._eps).rsqrt()
        scale = (running / inverse).clamp(1 / MAX_SCALE, MAX_SCALE)
        shift = ((mean - self.running_mean) * running).clamp(-MAX_SHIFT, MAX_SHIFT)
        return 1.0 + over * (scale - 1.0), over * shift
