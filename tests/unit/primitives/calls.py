"""Every kernel on inputs of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from sharpwave.primitives.adam import tensors as adam
from sharpwave.primitives.ahead.tensors import look_ahead
from sharpwave.primitives.episodes.tensors import EpisodeSums
from sharpwave.primitives.finite.tensors import look
from sharpwave.primitives.llm import tensors as llm
from sharpwave.primitives.log_probs import tensors as log_probs
from sharpwave.primitives.mlp import tensors as perceptrons
from sharpwave.primitives.packing import tensors as packing
from sharpwave.primitives.ppo_loss.tensors import ppo_loss
from sharpwave.primitives.priorities.tensors import PrioritySums
from sharpwave.primitives.returns import tensors as typed_returns
from sharpwave.primitives.rows.tensors import RowTable
from sharpwave.primitives.small_policy import tensors as small
from sharpwave.primitives.small_ppo.tensors import gradient
from sharpwave.primitives.transformer import tensors as transformer

Call = Callable[[], Any]
returns: Any = typed_returns  # arguments come in lists here

NAMES = [
    "gae", "vtrace", "n_step", "discounted", "gather", "scatter", "push", "ahead", "update",
    "errors", "fill", "sample", "weights", "episodes", "groups", "kl", "selected", "linear",
    "scored groups", "groups of a batch", "selected entropy", "linear entropy",
    "gated", "normed", "normed backward", "rotated",
    "store", "attend", "attend in parts", "sample tokens", "finite",
    "loss of logits", "loss of means", "act", "act exactly", "value",
    "gradient of logits", "gradient of means",
    "mlp", "mlp that keeps inputs", "clip", "adam", "clipped adam",
]  # fmt: skip


def calls(device: str) -> dict[str, Call]:
    """Every kernel on inputs of its own."""
    steps: Any = [torch.randn(50, 300, device=device) for _ in range(4)]
    ends: Any = [torch.rand(50, 300, device=device) < 0.1 for _ in range(2)]
    cut: Any = {"terminated": ends[0], "truncated": ends[1]}
    last = torch.randn(300, device=device)
    columns = [torch.randn(1000, 6, device=device), torch.rand(1000, device=device) < 0.5]
    table = RowTable(columns)
    step = [column[:10].clone() for column in columns]
    index = torch.randperm(1000, device=device)[:10]
    position = torch.tensor(3, device=device)
    row_ends, cuts = (ends[0][0], ends[1][0]), torch.tensor([2, 7], device=device)
    sums = PrioritySums(5000, device)
    priority = torch.rand(10, device=device)
    uniforms = torch.rand(64, device=device)
    episodes = EpisodeSums(300, 2, 1, 9, device)
    logits = torch.randn(10, 5000, device=device)
    weight = torch.randn(5000, 16, device=device)
    hidden = torch.randn(10, 16, device=device)
    query, key = (torch.randn(600, heads, 16, device=device) for heads in (4, 1))
    cos, sin = torch.randn(600, 16, device=device), torch.randn(600, 16, device=device)
    keys, values = (torch.randn(600, 1, 70, 16, device=device) for _ in range(2))
    lengths, numbers = torch.arange(600, device=device) % 70, torch.rand(10, device=device).double()
    names = "values", "old_log_probs", "old_values", "advantages", "returns"
    rows: Any = dict(zip(names, steps[0], strict=False))
    rows["clip"] = rows["value_clip"] = torch.tensor(0.2, device=device)
    kept = {name: column for name, column in rows.items() if name != "values"}
    layers = [torch.randn(*shape, device=device) for shape in ((64, 50), (64,), (7, 64), (7,))]
    sizes = (64, 50), (64,), (64, 64), (64,), (7, 64), (7,)
    three = [torch.randn(*size, device=device) for size in sizes]
    place = torch.empty(2 * sum(layer.numel() for layer in three) + 7, device=device)
    seen, few = steps[0].t().contiguous(), uniforms[:7]
    return {
        "gae": lambda: returns.gae(*steps[:2], bootstrap=last, final_values=steps[2], **cut),
        "vtrace": lambda: returns.vtrace(*steps[:3], next_values=steps[3], **cut),
        "n_step": lambda: returns.n_step_returns(*steps[:2], *ends, 4, 0.9),
        "discounted": lambda: returns.discounted_returns(steps[0], ends[0], 0.9, last),
        "finite": lambda: look(torch.zeros((), dtype=torch.float64, device=device), steps[:2]),
        "gather": lambda: table.gather(index),
        "scatter": lambda: table.scatter(step, index),
        "push": lambda: table.push(step, position),
        "ahead": lambda: look_ahead(
            last, *row_ends, index % 300, n=3, gamma=0.9, num_envs=30, position=4, cuts=cuts
        ),
        "update": lambda: sums.set(index, priority),
        "errors": lambda: sums.set_errors(index, priority, 0.6, 1e-6),
        "fill": lambda: sums.fill(10, 2000),
        "sample": lambda: sums.sample(64, uniforms=uniforms),
        "weights": lambda: sums.weights(uniforms, 0.4, of_batch=True),
        "episodes": lambda: episodes.add([steps[0][0], steps[1][0]], ends[0][0], ends[1][:1]),
        "groups": lambda: llm.group_advantages(steps[0], 300),
        "scored groups": lambda: llm.group_advantages(
            steps[0], 300, mask=ends[0], ddof=1, eps=1e-4, leave_one_out=True, scale="group"
        ),
        "groups of a batch": lambda: llm.group_advantages(
            steps[0], 300, mask=ends[0], scale="batch"
        ),
        "kl": lambda: llm.token_kl(steps[0], steps[1], estimator="k3", mask=ends[0]),
        "gated": lambda: transformer.gated(steps[0], steps[1]),
        "normed": lambda: transformer.normed(steps[0], last, 1e-6),
        "normed backward": lambda: transformer.normed_backward(
            steps[0], steps[1], last, last[:50], steps[2]
        ),
        "rotated": lambda: transformer.rotated(query, cos, sin),
        "store": lambda: transformer.store(query, key, key, cos, sin, lengths, keys, values),
        "attend": lambda: transformer.attend(query, keys, values, lengths, 0.25),
        "attend in parts": lambda: transformer.attend(
            query[:3], keys[:3], values[:3], lengths[:3], 0.25
        ),
        "sample tokens": lambda: transformer.sample(logits, numbers),
        "loss of logits": lambda: ppo_loss(steps[1][:7].t(), actions=last.long() % 7, **rows),
        "loss of means": lambda: ppo_loss(
            steps[1][:7].t(), actions=steps[2][:7].t(), log_std=last[:7], **rows
        ),
        "mlp": lambda: mlp_gradients(steps[0], "elu"),
        "mlp that keeps inputs": lambda: mlp_gradients(steps[0], "gelu"),
        "clip": lambda: adam.clip(steps[1].flatten().clone(), 0.5),
        "adam": lambda: adam_steps(steps[0].flatten(), None),
        "clipped adam": lambda: adam_steps(steps[0].flatten(), 0.5),
        "act": lambda: small.act(
            seen, layers, layers, steps[1][:7].t().contiguous(), log_std=few, exact=False
        ),
        "act exactly": lambda: small.act(
            seen, layers, layers, steps[1][:7].sigmoid().t().contiguous(), activation="elu"
        ),
        "value": lambda: small.value(seen, layers, exact=False, activation="relu"),
        "gradient of means": lambda: gradient(
            index % 300,
            seen,
            steps[1][:7].t(),
            log_std=few,
            actor=three,
            critic=three,
            out=place,
            **kept,
        ),
        "gradient of logits": lambda: gradient(
            index % 300, seen, last.long() % 7, actor=three, critic=three, out=place[:-7], **kept
        ),
        "selected": lambda: log_probs.selected_log_probs(logits, index),
        "linear": lambda: log_probs.linear_log_probs(hidden, weight, index, slice_size=1),
        "selected entropy": lambda: log_probs.selected_log_probs(logits, index, entropy=True),
        "linear entropy": lambda: log_probs.linear_log_probs(
            hidden, weight, index, slice_size=1, entropy=True
        ),
    }


def mlp_gradients(x: torch.Tensor, name: str, width: int = 200) -> list[torch.Tensor]:
    """Output of a perceptron, and gradients of its weights and biases."""
    sizes = [x.shape[1], width, 1]
    shapes = [(sizes[1], sizes[0]), (sizes[2], sizes[1]), sizes[1:2], sizes[2:]]
    leaves = [torch.full(shape, 0.01, device=x.device).requires_grad_() for shape in shapes]
    activation = perceptrons.Activation(name, 1.0)
    output, _ = perceptrons.mlp(x, leaves[:2], leaves[2:], activation)
    return [output.detach(), *torch.autograd.grad(output.sum(), leaves)]


def adam_steps(x: torch.Tensor, max_norm: float | None) -> list[torch.Tensor]:
    """Some numbers that Adam has moved in two steps, of which the second is skipped."""
    data, moments = x.clone(), torch.zeros(2, *x.shape, device=x.device)
    numbers = [torch.full((), value, device=x.device) for value in (1.0, 0.1, 1.0)]
    block = adam.Block(data, x.clone(), *moments.unbind(), *numbers[:2])
    options: Any = {"betas": (0.9, 0.999), "eps": 1e-5}
    for skip in (None, numbers[2]):
        if max_norm is None:
            adam.step(block, **options, skip=skip)
        else:
            adam.clip_and_step(block, max_norm, **options, skip=skip)
    return list(block)


def of_ones(device: str) -> list[torch.Tensor]:
    """The result of every kernel where all sizes are 1."""
    one, end = torch.full((1, 1), 0.5), torch.ones(1, 1, dtype=torch.bool)
    index, last = torch.zeros(1, dtype=torch.int64), torch.ones(1)
    x, ended, at, after = (tensor.to(device) for tensor in (one, end, index, last))
    sums = PrioritySums(1, device)
    sums.fill(0, 1)
    sums.set_errors(at, after * 3, 1, 1)
    sampled = sums.sample(1, uniforms=after * 0.5)
    table = RowTable([x.clone(), after.clone()])
    table.push([x + 1, after + 1], 0)
    table.scatter([x + 2, after + 2], at)
    episodes = EpisodeSums(1, 1, 1, 1, device)
    episodes.add([after], ended[0], ended)
    layout = packing.plan_layout([1], 1, device)
    packed = packing.pack_tokens(at + 1, layout, pad_id=1)
    return [
        *returns.gae(x, x, bootstrap=after, final_values=x, terminated=ended, truncated=ended),
        *returns.vtrace(x, x, x, bootstrap=after, terminated=ended),
        returns.n_step_returns(x, x, ended, ended, 1, 1.0),
        returns.discounted_returns(x, ended, 1, after),
        *sampled,
        sums.weights(sampled[1], 1),
        sums.weights(sampled[1], 1, of_batch=True),
        sums.highest,
        *table.gather(at),
        *look_ahead(after, ended[0], ended[0], at, n=1, gamma=1, num_envs=1, position=0),
        episodes.running,
        episodes.last(1),
        llm.group_advantages(x, 1),
        llm.group_advantages(x, 1, mask=ended, ddof=1, leave_one_out=True, scale="group"),
        llm.token_kl(x, x * 2, estimator="k3", mask=ended),
        log_probs.selected_log_probs(x, at),
        log_probs.linear_log_probs(x, x, at, slice_size=1),
        *log_probs.selected_log_probs(x, at, entropy=True),
        *log_probs.linear_log_probs(x, x, at, slice_size=1, entropy=True),
        *packed,
        *mlp_gradients(x, "tanh", 1),
        *mlp_gradients(x, "silu", 1),
        adam.clip(after.clone(), 0.5),
        *adam_steps(after, None),
        *adam_steps(after, 0.5),
    ]
