"""Twins of the loops of `RSSM`, with fewer operations for the same numbers.

What does not depend on the state is computed for all steps at once before the loop, and the
gradients of weights after it, as products over all steps. Only what must happen step by step does:
a few products, and three functions of single rows, which `kernels.world` has in one pass each.
They know posteriors of one hidden layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from sharpwave.primitives.world.plain import blocks, rows
from sharpwave.primitives.world.tensors import (
    draw_classes,
    has_native_layers,
    imagined_step,
    norm_silu,
    norm_silu_backward,
    row_functions,
)

if TYPE_CHECKING:
    from sharpwave.nn.world_model import RSSM, Latent

__all__ = ["Imaginer", "observe"]


class _Cell(NamedTuple):
    """The weights of a step, in the form in which it multiplies by them."""

    deter: Tensor  # [h, D]
    deter_bias: Tensor
    deter_scale: Tensor
    stoch: Tensor  # [h, S]
    stoch_bias: Tensor
    stoch_scale: Tensor
    shared: Tensor  # [2 h, D]
    own: Tensor  # [K, D / K, D / K]
    scale: Tensor
    gates: Tensor  # [K, D / K, 3 D / K]
    gates_bias: Tensor
    posterior: Tensor  # [h, D]
    posterior_scale: Tensor
    logits: Tensor  # [S, h]
    logits_bias: Tensor


class _Saved(NamedTuple):
    """Tensors of a step that its backward pass needs."""

    before: Tensor  # [B, D] remembered before
    classes: Tensor  # [B, S] drawn before
    of_deter: Tensor
    of_stoch: Tensor
    mixed: Tensor  # [B, D]
    gates: Tensor  # [K, B, 3 D / K]
    deter: Tensor
    posterior: Tensor


def _remembered(
    of: Any, w: _Cell, before: Tensor, classes: Tensor, action: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Intermediate results of a step; the last one is its deterministic state."""
    n = len(w.own)
    of_deter = linear(before, w.deter, w.deter_bias)
    of_stoch = linear(classes, w.stoch, w.stoch_bias)
    hidden = of.norm_silu(of_deter, w.deter_scale), of.norm_silu(of_stoch, w.stoch_scale)
    mixed = torch.addmm(action, torch.cat(hidden, -1), w.shared)
    mixed += rows(torch.bmm(blocks(before, n), w.own))
    gates = torch.baddbmm(w.gates_bias, blocks(of.norm_silu(mixed, w.scale), n), w.gates)
    return of_deter, of_stoch, mixed, gates, of.remember(gates, before)


class _Scan(torch.autograd.Function):
    """The states of a sequence that is seen."""

    @staticmethod
    def forward(
        ctx: Any,
        share: float,
        shape: tuple[int, int],
        noise: Tensor,
        going: Tensor,
        actions: Tensor,
        tokens: Tensor,
        *weights: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        w, (deter, classes) = _Cell(*weights[:-2]), weights[-2:]
        steps, deters, stochs, logits = [], [], [], []
        of = row_functions(deter, tokens, noise)
        noise = noise.contiguous()
        for t in range(len(tokens)):
            before, seen = deter * going[t], classes * going[t]
            of_deter, of_stoch, mixed, gates, deter = _remembered(of, w, before, seen, actions[t])
            posterior = torch.addmm(tokens[t], deter, w.posterior.t())
            hidden = of.norm_silu(posterior, w.posterior_scale)
            logits.append(linear(hidden, w.logits, w.logits_bias))
            drawn = of.draw_classes(logits[-1].unflatten(-1, shape), noise[t], share)
            classes = drawn.flatten(-2)
            steps.append(_Saved(before, seen, of_deter, of_stoch, mixed, gates, deter, posterior))
            deters.append(deter)
            stochs.append(classes)
        ctx.share, ctx.shape = share, shape
        stacked = [torch.stack(part) for part in zip(*steps, strict=True)]
        found = torch.stack(deters), torch.stack(stochs), torch.stack(logits)
        ctx.save_for_backward(going, *stacked, found[2], *weights[:-2])
        return found

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        going, *rest = ctx.saved_tensors
        saved, logits, w = _Saved(*rest[:8]), rest[8], _Cell(*rest[9:])
        share, shape, n = ctx.share, ctx.shape, len(w.own)
        of_deters, of_stochs, of_logits = (grad.contiguous() for grad in grads)
        own, gates_weight, shared = w.own.mT, w.gates.mT, w.shared.t()
        to_deter = to_classes = torch.zeros((), device=logits.device, dtype=logits.dtype)
        steps: list[_Grads] = []
        of = row_functions(logits)
        to_hidden = [part.contiguous() for part in shared.chunk(2, -1)]
        for t in reversed(range(len(logits))):
            of_class = (of_stochs[t] + to_classes).unflatten(-1, shape)
            drawn = of.draw_classes_backward(logits[t].unflatten(-1, shape), of_class, share)
            of_logit = of_logits[t] + drawn.flatten(-2)
            hidden = of_logit @ w.logits
            posterior = of.norm_silu_rows(saved.posterior[t], w.posterior_scale, hidden)
            of_deter = torch.addmm(of_deters[t] + to_deter, posterior, w.posterior)
            gates, before = of.remember_backward(saved.gates[t], saved.before[t], of_deter)
            x = rows(torch.bmm(gates, gates_weight))
            mixed = of.norm_silu_rows(saved.mixed[t], w.scale, x)
            before += rows(torch.bmm(blocks(mixed, n), own))
            d_hidden, s_hidden = (mixed @ part for part in to_hidden)
            d_linear = of.norm_silu_rows(saved.of_deter[t], w.deter_scale, d_hidden)
            s_linear = of.norm_silu_rows(saved.of_stoch[t], w.stoch_scale, s_hidden)
            to_deter = torch.addmm(before, d_linear, w.deter) * going[t]
            to_classes = (s_linear @ w.stoch) * going[t]
            linears = of_logit, posterior, gates, mixed, d_linear, s_linear
            steps.append(_Grads(*linears, hidden, x, d_hidden, s_hidden))
        steps.reverse()
        found = _Grads(*(torch.stack(part) for part in zip(*steps, strict=True)))
        weights = _weight_grads(w, saved, found)
        return (*[None] * 4, found.mixed, found.posterior, *weights, to_deter, to_classes)


class _Grads(NamedTuple):
    """Gradients of what linear layers gave in each step, and of what norms gave."""

    logits: Tensor
    posterior: Tensor
    gates: Tensor
    mixed: Tensor
    of_deter: Tensor
    of_stoch: Tensor
    posterior_hidden: Tensor
    mixed_hidden: Tensor
    deter_hidden: Tensor
    stoch_hidden: Tensor


def _weight_grads(w: _Cell, saved: _Saved, grads: _Grads) -> tuple[Tensor, ...]:
    """Gradients of all weights, as products over [T * B] rows."""
    n = len(w.own)

    def normed(x: Tensor, scale: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        return norm_silu(x, scale).flatten(0, 1), norm_silu_backward(x, scale, grad)[1]

    def product(left: Tensor, right: Tensor) -> Tensor:
        return left.flatten(0, 1).t() @ right.flatten(0, 1)

    hidden, posterior_scale = normed(saved.posterior, w.posterior_scale, grads.posterior_hidden)
    x, scale = normed(saved.mixed, w.scale, grads.mixed_hidden)
    of_deter, deter_scale = normed(saved.of_deter, w.deter_scale, grads.deter_hidden)
    of_stoch, stoch_scale = normed(saved.of_stoch, w.stoch_scale, grads.stoch_hidden)
    mixed, before = grads.mixed.flatten(0, 1), saved.before.flatten(0, 1)
    gates = grads.gates.transpose(0, 1).flatten(1, 2)  # [K, T * B, 3 D / K]
    logits = grads.logits.flatten(0, 1)
    return (
        product(grads.of_deter, saved.before),
        grads.of_deter.flatten(0, 1).sum(0),
        deter_scale,
        product(grads.of_stoch, saved.classes),
        grads.of_stoch.flatten(0, 1).sum(0),
        stoch_scale,
        torch.cat((of_deter, of_stoch), -1).t() @ mixed,
        torch.bmm(blocks(before, n).mT, blocks(mixed, n)),
        scale,
        torch.bmm(blocks(x, n).mT, gates),
        gates.sum(1, keepdim=True),
        product(grads.posterior, saved.deter),
        posterior_scale,
        logits.t() @ hidden,
        logits.sum(0),
    )


def _cell(rssm: RSSM) -> tuple[_Cell, Tensor, Tensor]:
    """The weights of a step, and of its action [h, D] and of tokens [h, n]."""
    size, hidden = rssm.deter // rssm.blocks, rssm.of_deter.linear.out_features
    own, shared, action = rssm.block_layer.weight.split((size, 2 * hidden, hidden), 1)
    first: Any = rssm.posterior_head.hidden[0]
    of_deter, of_tokens = first.linear.weight.split(
        (rssm.deter, first.linear.in_features - rssm.deter), 1
    )
    cell = _Cell(
        rssm.of_deter.linear.weight,
        rssm.of_deter.linear.bias,
        rssm.of_deter.norm.scale,
        rssm.of_stoch.linear.weight,
        rssm.of_stoch.linear.bias,
        rssm.of_stoch.norm.scale,
        shared.transpose(0, 1).flatten(1),
        own,
        rssm.block_norm.scale,
        rssm.gates.weight,
        rssm.gates.bias,
        of_deter,
        first.norm.scale,
        rssm.posterior_head.output.weight,
        rssm.posterior_head.output.bias,
    )
    return cell, action.transpose(0, 1).flatten(1), of_tokens


def _actions(rssm: RSSM, actions: Tensor, weight: Tensor) -> Tensor:
    """Contribution [..., D] of actions [..., n] to the recurrent layer."""
    features = rssm.of_action(actions / actions.abs().clamp(min=1.0))
    return torch.matmul(features, weight) + rssm.block_layer.bias.flatten()


def observe(
    rssm: RSSM, tokens: Tensor, actions: Tensor, is_first: Tensor, latent: Latent, noise: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Deterministic states [T, B, D], drawn latents [T, B, L, C], and logits of the posterior.

    Args:
        rssm: The model.
        tokens: [T, B, n_tokens].
        actions: [T, B, n_actions].
        is_first: [T, B].
        latent: [B, ...] before the sequence.
        noise: [T, B, L, C] of the draws.
    """
    cell, of_action, of_tokens = _cell(rssm)
    going = (~is_first).to(tokens.dtype)[..., None]
    first: Any = rssm.posterior_head.hidden[0]
    deters, stochs, logits = _Scan.apply(  # type: ignore[no-untyped-call]
        rssm.share,
        rssm.shape,
        noise,
        going,
        _actions(rssm, actions * going, of_action),
        linear(tokens, of_tokens, first.linear.bias),
        *cell,
        latent.deter,
        latent.stoch.flatten(-2),
    )
    return deters, stochs.unflatten(-1, rssm.shape), logits.unflatten(-1, rssm.shape)


class Imaginer:
    """Steps of `RSSM.imagine` without gradients, with weights that are prepared once.

    Args:
        rssm: The model.
    """

    def __init__(self, rssm: RSSM) -> None:
        self._rssm = rssm
        self._cell, self._of_action, _ = _cell(rssm)
        like, action = self._cell.deter, rssm.of_action
        self._native: tuple[Any, ...] | None = None
        if has_native_layers(like, like):
            native = (
                *self._cell[:6],
                *(action.linear.weight, action.linear.bias, action.norm.scale),
                *(self._cell.shared, self._of_action, rssm.block_layer.bias),
                *self._cell[7:11],
                *(rssm.prior_head.weights() or ()),
            )
            self._native = tuple(weight.detach().numpy() for weight in native)

    def __call__(self, deter: Tensor, classes: Tensor, action: Tensor, noise: Tensor) -> Any:
        """Deterministic state [B, D] and drawn latents [B, L * C] after an action in a state."""
        rssm = self._rssm
        if self._native is not None:
            state, of = (deter, classes), {"blocks": rssm.blocks, "share": rssm.share}
            return imagined_step(self._native, state, action, noise, **of)
        action = _actions(rssm, action, self._of_action)
        of = row_functions(deter, action)
        deter = _remembered(of, self._cell, deter, classes, action)[-1]
        logits = rssm.prior_head(deter).unflatten(-1, rssm.shape)
        return deter, draw_classes(logits, noise, rssm.share).flatten(-2)
