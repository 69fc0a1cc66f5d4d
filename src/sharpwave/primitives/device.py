"""The primitives for CUDA tensors: arguments are brought into shape and go to `sharpwave.kernels`.

Nothing here waits for the device. What only the data could tell is therefore not checked: `gae` and
`vtrace` refuse `truncated` beside `bootstrap` without looking whether it is set anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from sharpwave.core.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "batch_group_advantages",
    "batch_token_kl",
    "discounted_returns",
    "gae",
    "gae_batched",
    "gae_trajectory",
    "n_step_returns",
    "pack_sequences",
    "polyak",
    "token_kl",
    "vtrace",
    "vtrace_trajectory",
]


def gae_trajectory(
    rewards: Tensor, values: Any, dones: Any, last_value: Any, gamma: float, lam: float, out: Any
) -> tuple[Any, Any]:
    """`compute_gae`."""
    from sharpwave.kernels import returns

    _check_axes("rewards", rewards, 1)
    last = _filled(last_value, rewards, ())
    return returns.weighted_gae(rewards, values, last, dones, gamma=gamma, lam=lam, out=out)


def gae_batched(
    rewards: Tensor,
    values: Any,
    dones: Any,
    last_values: Any,
    n_steps: int,
    gamma: float,
    lam: float,
    out: Any,
    dtype: Any,
) -> tuple[Any, Any]:
    """`compute_gae_batched`: env-major tensors are read as they lie."""
    from sharpwave.kernels import returns
    from sharpwave.kernels.backend import check_like

    n_envs = last_values.numel()
    if n_steps < 0 or rewards.numel() != n_envs * n_steps:
        raise ValueError(
            f"rewards must hold {n_envs} * {n_steps} steps, one n_steps for each of last_values,"
            f" got {rewards.numel()}"
        )
    given = {"values": values, "dones": dones}
    for name, tensor in given.items():
        check_like(name, tensor, rewards.shape, "rewards", rewards.device)
    if out is None:
        out = tuple(torch.empty(rewards.shape, dtype=dtype, device=rewards.device) for _ in "ar")
    views = [x.reshape(n_envs, n_steps).T for x in (rewards, values, dones)]
    targets = tuple(x.view(n_envs, n_steps).T for x in out)
    if not rewards.is_contiguous():
        views[0] = views[0].T.contiguous().T
    returns.weighted_gae(
        views[0],
        views[1],
        last_values.reshape(n_envs),
        views[2],
        gamma=gamma,
        lam=lam,
        dtype=dtype,
        out=(targets[0], targets[1]),
    )
    return out[0], out[1]


def gae(
    rewards: Tensor,
    values: Any,
    next_values: Any,
    bootstrap: Any,
    terminated: Any,
    truncated: Any,
    gamma: float,
    lam: float,
    out: Any,
) -> tuple[Any, Any]:
    """`gae`."""
    from sharpwave.kernels import returns

    last = _bootstrap(rewards, next_values, bootstrap)
    options: Any = {"next_values": next_values, "gamma": gamma, "lam": lam, "out": out}
    return returns.gae(rewards, values, last, terminated, truncated, **options)


def vtrace_trajectory(
    log_rhos: Any,
    rewards: Tensor,
    values: Any,
    dones: Any,
    bootstrap_value: Any,
    gamma: float,
    rho_bar: float,
    c_bar: float,
) -> tuple[Any, Any]:
    """`compute_vtrace`, in float32."""
    from sharpwave.kernels import returns

    _check_axes("rewards", rewards, 1)
    log_rhos, rewards, values = (x.float() for x in (log_rhos, rewards, values))
    last = _filled(bootstrap_value, rewards, ())
    bars: Any = {"rho_bar": rho_bar, "c_bar": c_bar}
    return returns.vtrace(log_rhos, rewards, values, last, dones, gamma=gamma, **bars)


def vtrace(
    log_rhos: Any,
    rewards: Tensor,
    values: Any,
    next_values: Any,
    bootstrap: Any,
    terminated: Any,
    truncated: Any,
    **options: Any,
) -> tuple[Any, Any]:
    """`vtrace`."""
    from sharpwave.kernels import returns

    last = _bootstrap(rewards, next_values, bootstrap)
    ends = (terminated, truncated)
    options["next_values"] = next_values
    return returns.vtrace(log_rhos, rewards, values, last, *ends, **options)


def n_step_returns(
    rewards: Tensor, next_values: Any, terminated: Any, truncated: Any, n: int, gamma: float
) -> Any:
    """`n_step_returns`."""
    from sharpwave.kernels import returns

    return returns.n_step_returns(rewards, next_values, terminated, truncated, n, gamma)


def discounted_returns(rewards: Tensor, dones: Any, gamma: float, bootstrap: Any) -> Any:
    """`discounted_returns`."""
    from sharpwave.kernels import returns

    return returns.discounted_returns(rewards, dones, gamma, bootstrap)


def batch_group_advantages(rewards: Tensor, group_size: int, **options: Any) -> Any:
    """`compute_batch_group_advantages`, and with one group `compute_group_advantages`."""
    from sharpwave.kernels import llm

    return llm.group_advantages(rewards, group_size, **options)


def token_kl(log_p: Tensor, log_q: Any, estimator: str, mask: Any) -> Any:
    """`compute_token_kl`: a tensor without axes, because a float would wait for the device."""
    _check_axes("log_probs_policy", log_p, 1)
    return batch_token_kl(log_p, log_q, max(len(log_p), 1), estimator, mask, None).sum()


def batch_token_kl(
    log_p: Tensor, log_q: Any, seq_len: int, estimator: str, mask: Any, out: Any
) -> Any:
    """`compute_batch_token_kl`."""
    from sharpwave.kernels import llm
    from sharpwave.kernels.backend import check_like

    if seq_len < 1 or log_p.numel() % seq_len:
        raise ValueError(
            f"seq_len must divide the number of tokens, got {seq_len} for {log_p.numel()} tokens"
        )
    check_like("log_q", log_q, log_p.shape, "log_p", log_p.device)
    if mask is not None:
        check_like("mask", mask, log_p.shape, "log_p", log_p.device)
        mask = mask.reshape(-1, seq_len)
    p, q = log_p.reshape(-1, seq_len), log_q.reshape(-1, seq_len)
    return llm.token_kl(p, q, estimator=estimator, mask=mask, out=out)


def pack_sequences(sequences: Sequence[Tensor], max_len: int, pad_id: int) -> tuple[Any, ...]:
    """The fields of `PackedSequences` on the sequences' device."""
    from sharpwave.kernels import packing
    from sharpwave.primitives.packing import plan_packing

    kinds = {sequence.dtype for sequence in sequences}
    if any(kind.is_floating_point or kind.is_complex for kind in kinds):
        raise TypeError(f"tokens must be integers, got {', '.join(map(str, kinds))}")
    for i, sequence in enumerate(sequences):
        if sequence.dim() != 1 or sequence.device != sequences[0].device:
            raise ValueError(
                f"sequences[{i}] must have one axis on {sequences[0].device},"
                f" got {tuple(sequence.shape)} on {sequence.device}"
            )
    device, lengths = sequences[0].device, [len(sequence) for sequence in sequences]
    tokens = torch.cat([x if len(kinds) == 1 else x.to(torch.int64) for x in sequences])
    layout = packing.plan_layout(lengths, max_len, device)
    plan = plan_packing(lengths, max_len)
    packed = packing.pack_tokens(tokens, layout, pad_id=pad_id)
    ends = torch.tensor([0, *lengths])[[0, *(plan.sequence_index + 1)]].cumsum(0)
    tail = (torch.from_numpy(x) for x in (plan.sequence_index, plan.bins, plan.offsets))
    sent = (x.to(device, non_blocking=True) for x in (*tail, ends.to(torch.int32)))
    return (*packed, *sent)


def polyak(target: Any, source: Any, tau: float) -> None:
    """`polyak`, in one launch for all tensors."""
    targets, sources = _tensors(target), _tensors(source)
    if not 0 <= tau <= 1:
        raise ValueError(f"tau must be between 0 and 1, got {tau}")
    if len(targets) != len(sources):
        raise ValueError(f"source must hold {len(targets)} arrays like target, got {len(sources)}")
    for i, (ours, theirs) in enumerate(zip(targets, sources, strict=True)):
        if ours.shape != theirs.shape:
            raise ValueError(
                f"source {i} must have shape {tuple(ours.shape)} like target,"
                f" got {tuple(theirs.shape)}"
            )
    with torch.no_grad():
        torch._foreach_lerp_(targets, sources, tau)


def _tensors(given: Any) -> list[Tensor]:
    if isinstance(given, torch.Tensor):
        return [given]
    assert isinstance(given, Iterable)
    return list(given)


def _check_axes(name: str, tensor: Tensor, axes: int) -> None:
    if tensor.dim() != axes:
        raise ValueError(f"{name} must have {axes} axis, got shape {tuple(tensor.shape)}")


def _filled(number: Any, like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A number or tensor as a tensor beside `like`."""
    if isinstance(number, torch.Tensor):
        return number.to(like.device).reshape(shape)
    dtype = like.dtype if like.is_floating_point() else torch.float64
    return torch.full(shape, float(number), dtype=dtype, device=like.device)


def _bootstrap(rewards: Tensor, next_values: Any, bootstrap: Any) -> Any:
    if (next_values is None) == (bootstrap is None):
        raise ValueError("exactly one of next_values and bootstrap must be given")
    if bootstrap is None or isinstance(bootstrap, torch.Tensor):
        return bootstrap
    if rewards.dim() != 1:
        raise TypeError(f"bootstrap must be a tensor on {rewards.device}, got {bootstrap!r}")
    return _filled(bootstrap, rewards, ())
