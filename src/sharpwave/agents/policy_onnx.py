"""Policies as graphs of ONNX."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sharpwave.agents.plain_policy import PlainPolicy
from sharpwave.core.optional import require

__all__ = ["onnx_model"]

OPERATORS = {
    "tanh": "Tanh",
    "relu": "Relu",
    "leaky_relu": "LeakyRelu",
    "elu": "Elu",
    "selu": "Selu",
    "silu": "Sigmoid",
}
"""Operators of activations; that of SiLU is the factor of its input."""
OPSET, IR_VERSION = 17, 8
"""Versions that runtimes have known since 2022."""


class _Graph:
    """Nodes and constants of a graph that is written from its input to its output."""

    def __init__(self) -> None:
        self.onnx = require("onnx", extra="onnx")
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.asarray(value), name))
        return name

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Name of the output of a new node."""
        name = f"{operator.lower()}_{len(self.nodes)}"
        node = self.onnx.helper.make_node(operator, inputs, [name], **attributes)
        self.nodes.append(node)
        return name

    def cast(self, name: str, dtype: type) -> str:
        return self.add("Cast", name, to=self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def bounded(self, name: str, low: Any, high: Any) -> str:
        return self.add("Min", self.add("Max", name, self.constant(low)), self.constant(high))


def onnx_model(policy: PlainPolicy, about: str) -> bytes:
    """A model of ONNX, from `obs` [B, inputs] in float32 to `actions` [B, k].

    Args:
        policy: The policy.
        about: Description of the policy, which the model keeps.

    Raises:
        ImportError: onnx is not installed.
    """
    graph = _Graph()
    onnx = graph.onnx
    x = graph.add("Sub", graph.cast("obs", np.float64), graph.constant(policy.mean))
    x = graph.add("Mul", x, graph.constant(policy.scale))
    if np.isfinite(policy.clip):
        x = graph.bounded(x, np.float64(-policy.clip), np.float64(policy.clip))
    x = graph.cast(x, np.float32)
    for i, (weight, bias) in enumerate(policy.layers):
        x = graph.add("Gemm", x, graph.constant(weight), graph.constant(bias), transB=1)
        if i < len(policy.layers) - 1:
            x = _activated(graph, policy.activation, x)
    graph.nodes.append(onnx.helper.make_node("Identity", [_chosen(graph, policy, x)], ["actions"]))
    dtype = onnx.TensorProto.FLOAT if policy.actions == "box" else onnx.TensorProto.INT64
    n_actions = len(policy.options) if policy.actions == "choices" else policy.options[0]
    info = onnx.helper.make_tensor_value_info
    made = onnx.helper.make_graph(
        graph.nodes,
        "policy",
        [info("obs", onnx.TensorProto.FLOAT, ["batch", len(policy.mean)])],
        [info("actions", dtype, ["batch", n_actions])],
        graph.constants,
        doc_string=about,
    )
    opsets = [onnx.helper.make_opsetid("", OPSET)]
    model = onnx.helper.make_model(
        made, opset_imports=opsets, ir_version=IR_VERSION, producer_name="sharpwave"
    )
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString())


def _activated(graph: _Graph, activation: str, x: str) -> str:
    if activation == "gelu":  # for which newer versions have an operator
        scaled = graph.add("Mul", x, graph.constant(np.float32(math.sqrt(0.5))))
        twice = graph.add("Add", graph.add("Erf", scaled), graph.constant(np.float32(1)))
        return graph.add("Mul", graph.add("Mul", x, twice), graph.constant(np.float32(0.5)))
    found = graph.add(OPERATORS[activation], x)
    return graph.add("Mul", x, found) if activation == "silu" else found


def _chosen(graph: _Graph, policy: PlainPolicy, x: str) -> str:
    """The actions by the outputs of the last layer."""
    if policy.actions == "bits":
        positive = graph.add("Greater", x, graph.constant(np.float32(0)))
        return graph.cast(positive, np.int64)
    if policy.actions == "choices":
        ends = np.cumsum(policy.options)
        bounds = [
            (graph.constant([end - n]), graph.constant([end]))
            for end, n in zip(ends, policy.options, strict=True)
        ]
        axis = graph.constant([1])
        parts = [graph.add("Slice", x, *bound, axis) for bound in bounds]
        best = [graph.add("ArgMax", part, axis=1, keepdims=1) for part in parts]
        joined = graph.add("Concat", *best, axis=1)
        return graph.add("Add", joined, graph.constant(policy.start.astype(np.int64)))
    x = graph.cast(x, np.float64)
    if policy.squash:
        x = graph.add("Mul", graph.add("Tanh", x), graph.constant(policy.factor))
        x = graph.add("Add", x, graph.constant(policy.bias))
    return graph.cast(graph.bounded(x, policy.low, policy.high), np.float32)
