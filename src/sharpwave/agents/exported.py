"""Writing trained policies to files that run without this library.

Classes of agents take `export` as their own method.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sharpwave.agents.plain_policy import PlainPolicy, entries_of
from sharpwave.agents.policy_onnx import onnx_model
from sharpwave.core.lazy import torch
from sharpwave.storage.files import replace_file
from sharpwave.types import Array

__all__ = ["export"]

CHECKED, CLOSE = 512, 1e-5
"""Observations by which a file is compared with `predict`, and how close actions must be."""


def export(self: Any, path: str | os.PathLike[str]) -> Path:  # noqa: D417 - a method
    """Write the deterministic policy to a file that needs nothing of this library.

    Observations go in as the environment gives them, normalization included; actions come out as
    the environment takes them. Where `obs_groups` or `critic_obs` say what the actor looks at,
    these entries go in side by side. What is written is compared with `predict` first.

    Args:
        path: The file. Its suffix says what it becomes: `.npz` arrays for NumPy, `.h` a header in
            C99, `.onnx` a graph of ONNX and `.pt2` a program of `torch.export`, both for batches of
            any size.

    Returns:
        The path.

    Raises:
        ValueError: The suffix is another one, or the policy is no multi-layer perceptron on a
            vector of floats, which alone can be written.
        ImportError: The suffix is `.onnx`, and onnx is not installed.

    Example:
        >>> import sharpwave as sw, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = sw.PPO("CartPole-v1", seed=0).export(f"{folder}/policy.npz")
        ...     with np.load(file) as arrays:
        ...         sorted(arrays)[:3]
        ['about', 'bias', 'bias_0']
    """
    path = Path(path)
    write = WRITERS.get(path.suffix)
    if write is None:
        expected = ", ".join(WRITERS)
        raise ValueError(f"path must end in one of {expected}, got {path.name!r}")
    try:
        policy = PlainPolicy.of(self)
    except ValueError as error:
        raise ValueError(
            f"only multi-layer perceptrons on vectors of floats can be exported: {error}"
        ) from error
    _check(self, policy)
    replace_file(
        path, write(policy, path, f"{self.name} on {self.subject}, {self.timesteps} steps")
    )
    return path


def _check(agent: Any, policy: PlainPolicy) -> None:
    """Refuse a policy that does not do what `predict` does."""
    rng = np.random.default_rng(0)
    parts = {
        key: rng.normal(0.0, 2.0, (CHECKED, *space.shape)).astype(space.dtype)
        for key, space in entries_of(agent).items()
    }
    outputs = policy.outputs(np.concatenate([x.reshape(CHECKED, -1) for x in parts.values()], 1))
    obs: Any = parts.get(None, parts)
    expected = np.asarray(agent.predict(obs)).reshape(CHECKED, -1)
    # An action that a rounding error would change says nothing.
    wrong = np.abs(policy.chosen(outputs) - expected) > CLOSE * (1 + np.abs(expected))
    wrong &= (policy.margin(outputs) > 1e-4)[:, None]
    if wrong.any():
        raise ValueError(
            f"only what `predict` does can be exported, but {int(wrong.any(1).sum())} of {CHECKED} "
            "actions of its networks are others"
        )


def _arrays(policy: PlainPolicy, path: Path, about: str) -> bytes:  # noqa: ARG001
    """Arrays by name; `about` says how they are put together."""
    kind = {"choices": "argmax of each choice, plus start", "bits": "outputs > 0"}
    squashed = "clip(bias + factor * tanh(outputs), low, high)"
    of_box = squashed if policy.squash else "clip(outputs, low, high)"
    told = {
        "policy": about,
        "input": "x = clip((obs - mean) * scale, -clip, clip)",
        "layer": "x = activation(x @ weight_i.T + bias_i), the last without activation",
        "activation": policy.activation,
        "action": kind.get(policy.actions, of_box),
    }
    arrays: dict[str, Array] = {"about": np.array(json.dumps(told)), "clip": np.array(policy.clip)}
    for i, (weight, bias) in enumerate(policy.layers):
        arrays |= {f"weight_{i}": weight, f"bias_{i}": bias}
    for name in ("mean", "scale", "start", "bias", "factor", "low", "high"):
        arrays[name] = getattr(policy, name)
    file = io.BytesIO()
    np.savez(file, options=np.array(policy.options), **arrays)  # type: ignore[arg-type]
    return file.getvalue()


C_ACTIVATIONS = {
    "tanh": "tanhf(x)",
    "relu": "x > 0 ? x : 0",
    "leaky_relu": "x > 0 ? x : 0.01f * x",
    "elu": "x > 0 ? x : expm1f(x)",
    "selu": "1.05070099f * (x > 0 ? x : 1.67326324f * expm1f(x))",
    "gelu": "0.5f * x * erfcf(-0.707106781f * x)",
    "silu": "x / (1 + expf(-x))",
}
C_SOURCE = """\
/* {about}. C99; link with -lm. */
#ifndef {guard}_H
#define {guard}_H

#include <math.h>

#define {guard}_INPUTS {inputs}
#define {guard}_ACTIONS {actions}

{arrays}

static float {name}_activation(float x) {{ return {activation}; }}

static void {name}_layer(const float *weight, const float *bias, int n_in, int n_out, int is_last,
                         const float *x, float *y) {{
  for (int o = 0; o < n_out; ++o) {{
    float sum = bias[o];
    for (int i = 0; i < n_in; ++i) sum += weight[o * n_in + i] * x[i];
    y[o] = is_last ? sum : {name}_activation(sum);
  }}
}}

/* The action for an observation of {guard}_INPUTS numbers: {guard}_ACTIONS of them. */
static void {name}_act(const float *obs, {type} *action) {{
  float x[{widest}], y[{widest}];
  for (int i = 0; i < {guard}_INPUTS; ++i) {{
    double z = ((double)obs[i] - {name}_mean[i]) * {name}_scale[i];
    x[i] = (float){clipped};
  }}
{layers}
{choice}
}}

#endif
"""
C_CHOICES = """\
  const float *logits = {out};
  for (int k = 0; k < {guard}_ACTIONS; ++k) {{
    int best = 0;
    for (int i = 1; i < {name}_options[k]; ++i) best = logits[i] > logits[best] ? i : best;
    action[k] = best + {name}_start[k];
    logits += {name}_options[k];
  }}"""
C_BITS = "  for (int k = 0; k < {guard}_ACTIONS; ++k) action[k] = {out}[k] > 0;"
C_NUMBERS = """\
  for (int k = 0; k < {guard}_ACTIONS; ++k) {{
    double a = {value};
    a = a < {name}_low[k] ? {name}_low[k] : a;
    action[k] = (float)(a > {name}_high[k] ? {name}_high[k] : a);
  }}"""


def _header(policy: PlainPolicy, path: Path, about: str) -> str:
    """One function that computes an action, and the weights as constants."""
    name = re.sub(r"\W|^(?=\d)", "_", path.stem)
    words: dict[str, Any] = {"name": name, "guard": name.upper()}
    words["about"] = about.replace("*/", "* /")  # names of environments are anybody's
    arrays = [
        _constant("double", f"{name}_{part}", getattr(policy, part)) for part in ("mean", "scale")
    ]
    steps, source, target = [], "x", "y"
    for i, (weight, bias) in enumerate(policy.layers):
        arrays += [
            _constant("float", f"{name}_w{i}", weight),
            _constant("float", f"{name}_b{i}", bias),
        ]
        is_last = int(i == len(policy.layers) - 1)
        sizes = f"{weight.shape[1]}, {len(weight)}, {is_last}"
        steps.append(f"  {name}_layer({name}_w{i}, {name}_b{i}, {sizes}, {source}, {target});")
        source, target = target, source
    words["out"] = source
    if policy.actions == "choices":
        for part in ("options", "start"):
            arrays.append(_constant("int", f"{name}_{part}", np.asarray(getattr(policy, part))))
        choice = C_CHOICES
    elif policy.actions == "bits":
        choice = C_BITS
    else:
        parts = ("bias", "factor", "low", "high") if policy.squash else ("low", "high")
        arrays += [_constant("double", f"{name}_{part}", getattr(policy, part)) for part in parts]
        squashed = f"{name}_bias[k] + {name}_factor[k] * tanh((double){source}[k])"
        words["value"] = squashed if policy.squash else f"{source}[k]"
        choice = C_NUMBERS
    bound = repr(float(policy.clip))
    bounded = f"fmin(fmax(z, -{bound}), {bound})" if np.isfinite(policy.clip) else "z"
    n_inputs = len(policy.mean)
    return C_SOURCE.format(
        **words,
        inputs=n_inputs,
        actions=len(policy.options) if policy.actions == "choices" else policy.options[0],
        arrays="\n".join(arrays),
        activation=C_ACTIVATIONS[policy.activation],
        type="float" if policy.actions == "box" else "int",
        widest=max(n_inputs, *(len(weight) for weight, _ in policy.layers)),
        clipped=bounded,
        layers="\n".join(steps),
        choice=choice.format(**words),
    )


def _constant(kind: str, name: str, values: Array) -> str:
    """An array in C; infinite numbers by their macro."""
    if kind == "int":
        told = [str(int(x)) for x in values.reshape(-1)]
    else:
        told = [_number(float(x), kind) for x in values.reshape(-1)]
    lines = [", ".join(told[i : i + 8]) for i in range(0, len(told), 8)]
    body = ",\n  ".join(lines)
    return f"static const {kind} {name}[{len(told)}] = {{\n  {body}}};"


def _number(x: float, kind: str) -> str:
    if np.isinf(x):
        return "INFINITY" if x > 0 else "-INFINITY"
    text = f"{x:.9g}" if kind == "float" else repr(x)
    whole = text if re.search(r"[.en]", text) else f"{text}.0"
    return f"{whole}f" if kind == "float" else whole


def _program(policy: PlainPolicy, path: Path, about: str) -> bytes:  # noqa: ARG001
    """A program of torch, from observations [B, ...] in float32 to actions [B, k]."""

    class Program(torch.nn.Module):
        mean: Any
        scale: Any
        start: Any
        bias: Any
        factor: Any
        low: Any
        high: Any

        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList()
            for weight, bias in policy.layers:
                layer = torch.nn.Linear(weight.shape[1], len(weight))
                with torch.no_grad():
                    layer.weight.copy_(torch.from_numpy(weight))
                    layer.bias.copy_(torch.from_numpy(bias))
                self.layers.append(layer)
            for name in ("mean", "scale", "start", "bias", "factor", "low", "high"):
                if len(value := getattr(policy, name)):
                    self.register_buffer(name, torch.from_numpy(np.array(value)))

        def forward(self, obs: Any) -> Any:
            x = (obs.flatten(1).double() - self.mean) * self.scale
            x = x.clamp(-policy.clip, policy.clip).float()
            for layer in self.layers[:-1]:
                x = getattr(torch.nn.functional, policy.activation)(layer(x))
            x = self.layers[-1](x)
            if policy.actions == "bits":
                return (x > 0).long()
            if policy.actions == "choices":
                best = [part.argmax(1) for part in x.split(policy.options, 1)]
                return torch.stack(best, 1) + self.start
            if policy.squash:
                x = self.bias + self.factor * torch.tanh(x.double())
            return torch.minimum(torch.maximum(x.double(), self.low), self.high).float()

    example = (torch.zeros(2, len(policy.mean)),)
    sizes = ({0: torch.export.Dim("batch")},)
    program = torch.export.export(Program().requires_grad_(False), example, dynamic_shapes=sizes)
    file = io.BytesIO()
    torch.export.save(program, file)
    return file.getvalue()


WRITERS: dict[str, Callable[[PlainPolicy, Path, str], str | bytes]] = {
    ".npz": _arrays,
    ".h": _header,
    ".onnx": lambda policy, path, about: onnx_model(policy, about),  # noqa: ARG005
    ".pt2": _program,
}
"""Contents of a file by its suffix."""
