"""Times on the device: medians between CUDA events, one call at a time or many in a graph."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

Call = Callable[[], object]


def eager_ms(call: Call, rounds: int = 30) -> float:
    """Median time of one call that starts on an idle device."""
    for _ in range(3):
        call()
    times = []
    for _ in range(rounds):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        call()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop))
    return statistics.median(times)


def graph_ms(
    call: Call, calls: int = 20, rounds: int = 20, generator: torch.Generator | None = None
) -> float:
    """Median time of one call, which may draw from a generator, inside a CUDA graph of many."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    if generator is not None:
        graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    return eager_ms(graph.replay, rounds) / calls


def peak_bytes(call: Call) -> int:
    """Memory that one call needs beyond what is there before it."""
    call()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def copy_bandwidth() -> float:
    """Bytes per second, read and written, of a large copy."""
    source = torch.randint(0, 256, (1 << 31,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.numel() / (eager_ms(lambda: target.copy_(source)) / 1e3)


def matrix_rate() -> float:
    """Operations per second of a large bfloat16 matrix product."""
    left, right = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(left)
    return 2 * 8192**3 / (eager_ms(lambda: torch.mm(left, right, out=out)) / 1e3)
