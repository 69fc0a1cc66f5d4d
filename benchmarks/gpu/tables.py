"""The table of the kernels for the documentation."""

from __future__ import annotations

from typing import Any

TITLE = "Kernels on a GPU"
COLUMNS = (
    "operation",
    "eager",
    "in a graph",
    "of the ceiling",
    "torch",
    "torch.compile",
)
NAMES = {
    "eager_ms": "eager <= {} ms",
    "graph_ms": "in a graph <= {} ms",
    "fraction": ">= {:.0%} of the ceiling",
    "memory": "memory <= {:.0%} of the logits",
}


def section(report: dict[str, Any]) -> str:
    """The section of docs/benchmarks.md."""
    facts = report["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    text = f"""\
## {TITLE}

Generated from `benchmarks/gpu/run.py` on {facts["date"]}: {facts["gpu"]}, Python {facts["python"]},
{versions}. Medians between CUDA events; every result was first compared with float64 on random
inputs. Eager starts on an idle device and holds the launch from Python. The ceiling is the time in
which the machine copies the bytes that must be moved ({facts["bytes_per_second"] / 1e12:.2f} TB/s,
measured), or multiplies bfloat16 matrices ({facts["operations_per_second"] / 1e12:.0f} TFLOP/s);
small inputs repeat from the cache.
"""
    return f"{text}\n{_table([COLUMNS, *map(_cells, report['results'])])}\n"


def targets_section(report: dict[str, Any]) -> str:
    """The section of benchmarks/targets.md."""
    rows = [(row["operation"], _targets(row)) for row in report["results"] if row["targets"]]
    return f"## {TITLE}\n\n{_table([('operation', 'targets and whether they are met'), *rows])}\n"


def _table(lines: list[tuple[str, ...]]) -> str:
    ruled = [lines[0], ("---",) * len(lines[0]), *lines[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in ruled)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    times = [_ms(row.get(name)) for name in ("eager_ms", "graph_ms")]
    fraction = f"{row['fraction']:.0%}" if "fraction" in row else "-"
    peers = [_ms(row.get(name)) for name in ("torch_ms", "compiled_ms")]
    return (row["operation"], *times, fraction, *peers)


def _targets(row: dict[str, Any]) -> str:
    return ", ".join(
        f"{NAMES[name].format(bound)}: {'yes' if row['met'][name] else 'no'}"
        for name, bound in row["targets"].items()
    )


def _ms(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3g} ms" if value >= 0.1 else f"{value * 1e3:.3g} us"


def language_section(report: dict[str, Any]) -> str:
    """The section of docs/benchmarks.md about language models."""
    facts = report["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    text = f"""\
## Language models on a GPU

Generated from `benchmarks/gpu/llm.py` on {facts["date"]}: {facts["gpu"]}, {versions}.
A model of the shape of Qwen2 0.5B in bfloat16. Ours beside transformers in one process: `generate`
for sampling, and for training a pass over padded sequences with all logits of completions in
memory, as TRL does it. Tokens are real ones, without padding.
"""
    lines = [
        ("work", "ours", "transformers", "ratio", "memory"),
        ("---",) * 5,
        *(_language_cells(name, row) for name, row in report["results"].items() if name in WORK),
    ]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    found = report["results"]
    precise, whole, refill = found["precision"], found["whole step"], found["refill"]
    return f"""{text}
{table}

- A step of sampling takes {found["sampling"]["step_ms"]:.2f} ms for 512 rows; the first call, which
  compiles kernels and captures a graph, {found["sampling"]["first_call_seconds"]:.1f} s.
- Refilled slots, lengths geometric with a mean of {refill["mean_length"]:.0f} of 512, 2,048
  completions through 512 slots: {refill["refilled_tokens_per_second"] / 1e3:.0f}k tokens/s, and
  {refill["waiting_tokens_per_second"] / 1e3:.0f}k where each 512 wait for their longest while slots
  are given up ({refill["ratio"]:.2f}x).
- Error of log-probabilities against float32: {precise["ours_error"]:.4f} in the mean, of the padded
  pass {precise["theirs_error"]:.4f}. Sampler and scorer differ by
  {precise["sampler_minus_scorer"]:.4f} in the mean.
- A whole update of GRPO, 64 prompts x 8 completions x 512 tokens with AdamW:
  {whole["seconds"]:.1f} s ({whole["sample_s"]:.1f} s of it sampling) and {whole["gib"]:.1f} GiB.
"""


WORK = {
    "sampling": "sampling, 512 rows, 128 + 512 tokens",
    "train": "training pass, 64 x 640 tokens, 10k tokens at a time",
    "train checkpointed": "the same with gradient checkpointing",
    "train ragged": "training pass, 64 sequences, 49 % padding, all at once",
    "train ragged, 5k tokens": "the same, 5k tokens at a time",
}


def _language_cells(name: str, row: dict[str, Any]) -> tuple[str, ...]:
    theirs = row.get("theirs_tokens_per_second", row.get("generate_tokens_per_second"))
    memory = "-"
    if "memory" in row:
        memory = f"{row['ours_gib']:.1f} of {row['theirs_gib']:.1f} GiB ({row['memory']:.2f}x)"
    rates = [f"{rate / 1e3:.1f}k tokens/s" for rate in (row["ours_tokens_per_second"], theirs)]
    return (WORK[name], *rates, f"{row['ratio']:.2f}x", memory)


TASKS = {
    "tracking": "48 observations, 12 actions, 24 steps, layers of 512-256-128",
    "cart-poles": "4 observations, 128 steps, layers of 2 x 64",
}
ROBOT_TARGETS: dict[tuple[str, str], float] = {
    ("tracking", "ours"): 3.7,
    ("tracking", "ours, environment captured"): 6.0,
    ("cart-poles", "ours"): 5.0,
    ("cart-poles", "ours, environment captured"): 14.0,
}
"""Ratios to rsl_rl that are to be reached."""


def robots_section(report: dict[str, Any]) -> str:
    """The section of docs/benchmarks.md about PPO with environments on a GPU."""
    facts = report["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    text = f"""\
## PPO with 4,096 environments on a GPU

Generated from `benchmarks/gpu/robotics.py` on {facts["date"]}: {facts["gpu"]}, {versions}. An
iteration is a rollout and an update: of robots that follow waves ({TASKS["tracking"]}, 5 epochs x
4 minibatches) and of cart-poles ({TASKS["cart-poles"]}, 4 x 4). All step the same environment in
plain torch, but for the last row, multiply in tf32 but for "bf16", and take turns in one process;
medians. rsl_rl runs without its logger. The rest is of one iteration, by the profiler.
"""
    lines = [
        ("task", "contender", "iteration", "beside rsl_rl", "kernels", "calls", "busy", "memory"),
        ("---",) * 8,
        *map(_robot_cells, report["results"]),
    ]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"""{text}
{table}

Calls are launches, copies and replays of graphs by the host. Environments that are not captured
launch their own kernels: of 128 steps of the cart-poles most calls are these.
"""


def robots_targets(report: dict[str, Any]) -> str:
    """The section of benchmarks/targets.md about them."""
    ratios = {
        (row["task"], row["contender"]): row["x rsl_rl"]
        for row in report["results"]
        if "x rsl_rl" in row
    }
    rows = [
        (f"{task}: {name}", f">= {bound}x rsl_rl: {_verdict(ratios.get((task, name)), bound)}")
        for (task, name), bound in ROBOT_TARGETS.items()
    ]
    lines = [("iteration", "target and whether it is met"), *rows]
    return f"## PPO with 4,096 environments on a GPU\n\n{_table(lines)}\n"


def _verdict(ratio: float | None, bound: float) -> str:
    if ratio is None:
        return "not measured"
    return f"{'yes' if ratio >= bound else 'no'}, {ratio:.2f}x"


def _robot_cells(row: dict[str, Any]) -> tuple[str, ...]:
    cells = [row["task"], row["contender"]]
    cells.append(f"{row['ms']:.1f} ms" if "ms" in row else "-")
    cells.append(f"{row['x rsl_rl']:.2f}x" if "x rsl_rl" in row else "-")
    if "kernels" in row:
        calls = row["launches"] + row["graphs"]
        cells += [f"{row['kernels']:,}", f"{calls:,}", f"{row['busy_ms']:.1f} ms"]
    else:
        cells += ["-"] * 3
    cells.append(f"{row['peak_mib']} MiB" if "peak_mib" in row else "-")
    return tuple(cells)
