"""Models whose weights, gradients and moments lie in shards, one on each process (FSDP2 of torch).

A tensor in shards is a DTensor of torch, cut along its first axis. Where one process learns alone
there are none, and the functions below leave tensors as they are.
"""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from sharpwave.core.lazy import nn, torch

if TYPE_CHECKING:
    from torch import Tensor

    from sharpwave.core.ranks import Ranks
    from sharpwave.llm import CausalModel

__all__ = [
    "ShardedModel",
    "Shards",
    "assign",
    "local_part",
    "sharded_like",
    "shards_of",
    "summed_like",
]

T = TypeVar("T")


def local_part(tensor: Tensor) -> Tensor:
    """The part of a tensor that lies here, in the same memory."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def sharded_like(local: Tensor, tensor: Tensor) -> Tensor:
    """A sharded tensor, sharded as another one is, of which this is the local part."""
    if not hasattr(tensor, "to_local"):
        return local
    from torch.distributed.tensor import DTensor

    assert isinstance(tensor, DTensor)
    shape, stride = tensor.shape, tensor.stride()
    return DTensor.from_local(
        local, tensor.device_mesh, tensor.placements, shape=shape, stride=stride
    )


def summed_like(value: Tensor, tensor: Tensor) -> Tensor:
    """The sum of a number over the processes that have parts of a tensor."""
    if hasattr(tensor, "device_mesh"):
        torch.distributed.all_reduce(value, group=tensor.device_mesh.get_group())
    return value


def assign(target: Tensor, whole: Tensor) -> None:
    """Copy a whole tensor, or this process's part of it, into one that may be in shards."""
    part = local_part(target)
    if part is not target:
        mesh = target.device_mesh  # type: ignore[attr-defined]
        rows = -(-len(whole) // mesh.size()) * mesh.get_local_rank()
        whole = whole[rows : rows + len(part)]
    part.copy_(whole)


class Shards:
    """The weights of a module in shards, and the module itself, which has weights when asked to.

    Args:
        module: Without weights from here on, outside of `whole`.
        tensors: Its parameters in shards, by name.
    """

    def __init__(self, module: Any, tensors: Mapping[str, Any]) -> None:
        self.module = module
        self.tensors = tensors
        self._depth = 0
        self._empty()

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """Inside, the module has all of its weights on every process."""
        if self._depth == 0:
            with torch.no_grad():
                for name, parameter in self.module.named_parameters():
                    parameter.data = self.tensors[name].detach().full_tensor()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._empty()

    def _empty(self) -> None:
        for parameter in self.module.parameters():
            parameter.data = parameter.data.new_empty(0)

    def restore(self) -> None:
        """Give the module its weights for good."""
        self.whole().__enter__()

    def parameters(self) -> Iterator[Tensor]:
        """The parts that lie here."""
        return map(local_part, self.tensors.values())

    def state_dict(self) -> dict[str, Tensor]:
        """Shards by the names that the module has for them, tied ones under all of their names."""
        named = dict(self.module.named_parameters())
        shards = {id(parameter): self.tensors[name] for name, parameter in named.items()}
        own = self.module.state_dict(keep_vars=True)
        return {name: shards.get(id(value), value.detach()) for name, value in own.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take over whole tensors, each process its part of them.

        Raises:
            ValueError: Names or shapes are others.
        """
        own = self.state_dict()
        if own.keys() != state.keys():
            raise ValueError(f"names differ: {sorted(own.keys() ^ state.keys())[:4]}")
        for name, tensor in own.items():
            if tensor.shape != state[name].shape:
                got, wanted = tuple(state[name].shape), tuple(tensor.shape)
                raise ValueError(f"{name} must have shape {wanted}, got {got}")
        with torch.no_grad():
            for name, tensor in own.items():
                assign(tensor, state[name])


class ShardedModel(Shards):
    """A model that learns in shards: layers are put together when they compute, one by one.

    Args:
        face: The model; its module is used for what needs all weights at once, such as sampling.
        ranks: All processes; the weights are those of the first one.

    Attributes:
        model: A copy in shards, for passes with gradients inside of `run`.
    """

    def __init__(self, face: CausalModel, ranks: Ranks) -> None:
        module = agreed(face.module, ranks)
        self.model = copy.deepcopy(face, {id(face.tokenizer): face.tokenizer})
        self._root = _sharded(self.model.module, module_device(module), ranks)
        super().__init__(module, dict(self.model.module.named_parameters()))

    def run(self, function: Callable[[], T]) -> T:
        """The result of a function that calls `model`, and is to be followed by `backward`.

        All processes run as many.
        """
        result: T = self._root(function)
        return result


def shards_of(face: CausalModel, ranks: Ranks) -> Shards:
    """The weights of a model that does not learn, in shards."""
    from torch.distributed.tensor import Shard, distribute_tensor

    module = agreed(face.module, ranks)
    mesh = _mesh(module_device(module), ranks)
    tensors = {
        name: distribute_tensor(parameter.detach(), mesh, [Shard(0)], src_data_rank=None)
        for name, parameter in module.named_parameters()
    }
    return Shards(module, tensors)


def agreed(module: Any, ranks: Ranks) -> Any:
    """The module on this process's device, with the weights that the first process has."""
    device = module_device(module)
    if device.type == "cuda":
        module.to(f"cuda:{os.environ.get('LOCAL_RANK', device.index or 0)}")
    if not ranks.is_alone:
        for tensor in {id(x): x for x in module.state_dict().values()}.values():
            torch.distributed.broadcast(tensor.detach(), src=0)
    return module


def module_device(module: Any) -> torch.device:
    """Device of the parameters of a module."""
    device: torch.device = next(iter(module.parameters())).device
    return device


def _mesh(device: torch.device, ranks: Ranks) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh(device.type, (ranks.size,))


def _sharded(module: Any, device: torch.device, ranks: Ranks) -> Any:
    """A module that runs functions in which the given one, now in shards, computes."""
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

    class Pass(torch.nn.Module):
        """Its hooks surround a whole pass, so that what is outside of layers is there for it."""

        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, function: Callable[[], Any]) -> Any:
            return function()

    root = Pass()
    options: Any = {
        "mesh": _mesh(device, ranks),
        "mp_policy": MixedPrecisionPolicy(reduce_dtype=torch.float32, cast_forward_inputs=False),
    }
    for layer in nn.layers_of(module):
        fully_shard(layer, **options)
    fully_shard(root, **options)
    for part in root.modules():
        if isinstance(part, FSDPModule):
            # Losses are divided by what is in all processes, so their gradients add up.
            part.set_gradient_divide_factor(1.0)
            part.set_force_sum_reduction_for_comms(True)
    return root
