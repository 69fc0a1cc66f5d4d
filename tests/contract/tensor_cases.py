"""The tensor buffers under contract, on every device: a new one is one more line of CASES."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from sharpwave import SharedReplayBuffer, TensorPrioritizedReplayBuffer, TensorReplayBuffer
from sharpwave.tensors.buffers.prioritized import PrioritizedColumns
from sharpwave.tensors.buffers.rows import TensorColumns
from tests.reference.tensors import Steps

FLAT: dict[str, Any] = {"obs_shape": (3,), "action_shape": (2,)}
IMAGES: dict[str, Any] = {
    "obs_shape": (2, 4, 4),
    "action_shape": (),
    "obs_dtype": torch.uint8,
    "action_dtype": torch.int64,
}
NESTED: dict[str, Any] = {
    "obs_shape": {"image": (2, 3), "body": {"speed": (), "joints": (5,)}},
    "obs_dtype": {"image": torch.uint8, "body": {"joints": torch.bfloat16}},
    "action_shape": {"move": (), "aim": (2,)},
    "action_dtype": {"move": torch.int32},
}
EXTRAS: dict[str, Any] = {
    **FLAT,
    "extra_fields": {
        "log_prob": torch.float64,
        "memory": {"h": (torch.float16, (2, 3)), "c": (torch.complex64, (2,))},
        "mask": (torch.bool, (4,)),
    },
}


class ColumnBuffer(TensorReplayBuffer):
    """Keeps steps on the CPU as it would on a GPU."""

    def _make_rows(self) -> TensorColumns:
        return TensorColumns(
            self.fields, self.buffer_size, self.num_envs, self.store_device, self.device
        )


class PrioritizedColumnBuffer(TensorPrioritizedReplayBuffer):
    """Keeps steps and priorities on the CPU as it would on a GPU."""

    def _make_rows(self) -> PrioritizedColumns:
        return PrioritizedColumns(
            self.fields,
            self.buffer_size,
            self.num_envs,
            self.store_device,
            self.device,
            stratified=self.stratified,
            beta=self.beta,
            weight_norm=self.weight_norm,
        )


@dataclass(frozen=True)
class TensorCase:
    """A way to make a tensor buffer.

    Attributes:
        name: Of the test.
        make: From buffer size and options to the buffer.
        device: Where batches are.
        inputs: Where what is added lies.
        prioritized: It draws by priority.
        shared: It is in shared memory, whose slots a copy need not have.
    """

    name: str
    make: Callable[..., Any]
    device: str = "cpu"
    inputs: str = "cpu"
    prioritized: bool = False
    shared: bool = False

    def steps(self) -> Steps:
        buffer = self.make(2)
        return Steps(buffer.fields, buffer.num_envs, self.inputs)


NUM_ENVS = 3


def case(
    cls: type[Any], fields: str, device: str = "cpu", inputs: str | None = None, **options: Any
) -> TensorCase:
    given = {"FLAT": FLAT, "IMAGES": IMAGES, "NESTED": NESTED, "EXTRAS": EXTRAS}[fields]

    def make(buffer_size: int, **more: Any) -> Any:
        return cls(
            **{
                "buffer_size": buffer_size,
                "num_envs": NUM_ENVS,
                "device": device,
                **given,
                **options,
                **more,
            }
        )

    places = device if options.get("store_device", device) == device else f"cpu to {device}"
    words = [cls.__name__, fields.lower(), f"on {places}"]
    words += [f"from {inputs}"] if inputs else []
    words += [f"{key}={options[key]}" for key in options if key != "store_device"]
    return TensorCase(
        " ".join(words),
        make,
        device,
        inputs or "cpu",
        issubclass(cls, TensorPrioritizedReplayBuffer),
        issubclass(cls, SharedReplayBuffer),
    )


ON_CPU = [
    case(TensorReplayBuffer, "FLAT"),
    case(TensorReplayBuffer, "IMAGES"),
    case(TensorReplayBuffer, "NESTED"),
    case(TensorReplayBuffer, "EXTRAS"),
    case(TensorPrioritizedReplayBuffer, "FLAT"),
    case(TensorPrioritizedReplayBuffer, "NESTED", stratified=False),
    case(TensorPrioritizedReplayBuffer, "FLAT", alpha=0.0),
    case(SharedReplayBuffer, "FLAT"),
    case(SharedReplayBuffer, "EXTRAS"),
    case(ColumnBuffer, "NESTED"),
    case(ColumnBuffer, "EXTRAS"),
    case(PrioritizedColumnBuffer, "EXTRAS"),
    case(PrioritizedColumnBuffer, "FLAT", stratified=False),
]
ON_CUDA = [
    case(TensorReplayBuffer, "FLAT", "cuda"),
    case(TensorReplayBuffer, "IMAGES", "cuda", "cuda"),
    case(TensorReplayBuffer, "NESTED", "cuda", "cuda"),
    case(TensorReplayBuffer, "EXTRAS", "cuda", "cuda"),
    case(TensorPrioritizedReplayBuffer, "FLAT", "cuda", "cuda"),
    case(TensorPrioritizedReplayBuffer, "NESTED", "cuda", stratified=False),
    case(TensorReplayBuffer, "NESTED", "cuda", store_device="cpu"),
    case(TensorReplayBuffer, "EXTRAS", "cuda", "cuda", store_device="cpu"),
    case(TensorPrioritizedReplayBuffer, "FLAT", "cuda", "cuda", store_device="cpu"),
    case(SharedReplayBuffer, "EXTRAS", "cuda", "cuda"),
]
needs_cuda = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
CASES = ON_CPU + ON_CUDA
each_tensor_case = pytest.mark.parametrize(
    "case",
    [
        pytest.param(one, id=one.name, marks=needs_cuda if one.device == "cuda" else [])
        for one in CASES
    ],
)
each_in_order = pytest.mark.parametrize(
    "case",
    [
        pytest.param(one, id=one.name, marks=needs_cuda if one.device == "cuda" else [])
        for one in CASES
        if not one.shared
    ],
)
each_prioritized = pytest.mark.parametrize(
    "case",
    [
        pytest.param(one, id=one.name, marks=needs_cuda if one.device == "cuda" else [])
        for one in CASES
        if one.prioritized
    ],
)
