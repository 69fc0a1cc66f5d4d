"""Starting Triton kernels.

Triton's own way from Python to the driver takes longer than most of our kernels run. A kernel that
was started before with arguments of the same kind is started again without it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
from torch import Tensor

from sharpwave.primitives.backend import INTERPRETED

__all__ = ["launch"]

try:
    from triton import knobs
except ImportError:  # before 3.4; every launch takes Triton's way there
    knobs = None

Start = Callable[[tuple[int, ...], list[Any]], None]

_ALIGNMENT = 16
_starts: dict[tuple[Any, ...], Start] = {}


def launch(
    kernel: Any, grid: tuple[int, ...], where: Tensor, *arguments: Any, **options: Any
) -> None:
    """Start a Triton kernel on the device of `where`, which need not be the current one.

    Args:
        kernel: Made by `triton.jit`.
        grid: One to three numbers of programs.
        where: A tensor on the device.
        *arguments: The parameters of the kernel that are not constants, in order: tensors, numbers
            and tuples of tensors.
        **options: Its constants, and what Triton takes beside them.
    """
    if INTERPRETED or knobs is None:
        kernel[grid](*arguments, **options)
        return
    device = where.get_device()
    if device == torch.cuda.current_device():
        _launch(kernel, grid, device, arguments, options)
    else:
        with torch.cuda.device(device):
            _launch(kernel, grid, device, arguments, options)


def _launch(
    kernel: Any,
    grid: tuple[int, ...],
    device: int,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
) -> None:
    # A kernel's own hash is slow, that of its function is not.
    kind: list[Any] = [kernel.fn, device, *options, *options.values()]
    plain = None if _watched() else _plain(arguments, kind)
    if plain is None:
        kernel[grid](*arguments, **options)
        return
    start = _starts.get(key := tuple(kind))
    if start is None:
        compiled = kernel[grid](*arguments, **options)
        constants = tuple(options[name] for name in kernel.arg_names if name in options)
        _starts[key] = _starter(compiled, device, constants)
    else:
        start(grid, plain)


def _watched() -> bool:
    """Return whether Triton tells somebody of launches, such as a profiler."""
    hook = knobs.runtime.launch_enter_hook or knobs.runtime.launch_exit_hook
    return bool(getattr(hook, "calls", hook))


def _plain(arguments: tuple[Any, ...], kind: list[Any]) -> list[Any] | None:
    """The arguments with addresses instead of tensors; None if we know too little of one.

    What Triton compiles a kernel for is added to `kind`. The driver would ask every tensor for its
    address again, and the device whether it is one.
    """
    plain: list[Any] = []
    add, give = kind.append, plain.append
    addresses = 0
    for argument in arguments:
        its_type = type(argument)
        if its_type is Tensor:
            if not argument.is_cuda:
                return None  # Triton says so
            add(argument.dtype)
            address = argument.data_ptr()
            addresses |= address
            give(address)
        elif its_type is tuple:
            add(len(argument))
            inner = []
            for tensor in argument:
                if type(tensor) is not Tensor or not tensor.is_cuda:
                    return None
                add(tensor.dtype)
                address = tensor.data_ptr()
                addresses |= address
                inner.append(address)
            give(tuple(inner))
        elif its_type is int:
            if argument == 1:
                add(1)
            else:
                add(32 if -(2**31) <= argument < 2**31 else 64)
                add(argument & (_ALIGNMENT - 1) == 0)
            give(argument)
        elif its_type is float:
            add(float)
            give(argument)
        else:
            return None
    return None if addresses & (_ALIGNMENT - 1) else plain


def _starter(compiled: Any, device: int, constants: tuple[Any, ...]) -> Start:
    """A function that starts a compiled kernel with other arguments of the same kind."""
    run, function, metadata = compiled.run, compiled.function, compiled.packed_metadata
    current_stream = triton.runtime.driver.active.get_current_stream

    def start(grid: tuple[int, ...], arguments: list[Any]) -> None:
        x, y, z = (*grid, 1, 1)[:3]
        stream = current_stream(device)
        run(x, y, z, stream, function, metadata, None, None, None, *arguments, *constants)

    return start
