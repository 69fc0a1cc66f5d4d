"""Language models on a GPU beside transformers: python benchmarks/gpu/llm.py --out FILE.

A model of the shape of Qwen2 0.5B with its first weights, in bfloat16. The peer samples by
`generate`, and trains on padded sequences whose logits are all made, as TRL does.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import gc
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
import triton
from transformers import Qwen2Config, Qwen2ForCausalLM

import sharpwave as sw
from sharpwave.llm import CausalModel, Sampler, TokenBatch, score, score_all

V, PROMPT, NEW, ROWS = 151_936, 128, 512, 512
Row = dict[str, Any]


def model_of(layers: int = 24, dtype: torch.dtype = torch.bfloat16) -> Any:
    config = Qwen2Config(
        vocab_size=V,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=layers,
        num_attention_heads=14,
        num_key_value_heads=2,
        max_position_embeddings=32_768,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = Qwen2ForCausalLM(config).to(dtype)
    return model.eval()


def seconds(call: Callable[[], Any], rounds: int = 3) -> float:
    """Median time of a call on a device that is idle before and after it."""
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def gib_of(call: Callable[[], Any]) -> float:
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return float(torch.cuda.max_memory_allocated() / 2**30)


def prompts_of(n: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, V, (n, PROMPT), generator=generator).cuda()


def sampling() -> Row:
    """512 completions of 512 tokens beside `generate`."""
    model, prompts = model_of(), prompts_of(ROWS)
    sampler = Sampler(model, max_rows=ROWS)
    began = time.perf_counter()
    sampler.generate(prompts, 1, 16)
    first = time.perf_counter() - began
    ours = seconds(lambda: sampler.generate(prompts, 1, NEW))
    step = seconds(lambda: sampler.generate(prompts, 1, NEW // 4))
    sampler.release()
    few = NEW

    def theirs() -> None:
        model.generate(prompts, max_new_tokens=few, min_new_tokens=few, do_sample=True, top_k=0)

    model.generate(prompts, max_new_tokens=2, do_sample=True, top_k=0)
    peer = seconds(theirs, 1)
    return {
        "ours_tokens_per_second": ROWS * NEW / ours,
        "generate_tokens_per_second": ROWS * few / peer,
        "ratio": ours and (ROWS * NEW / ours) / (ROWS * few / peer),
        "step_ms": (ours - step) / (NEW - NEW // 4) * 1e3,
        "first_call_seconds": first,
    }


def refilling() -> Row:
    """Completions of geometric lengths, with slots refilled and without."""
    model, prompts = model_of(), prompts_of(4 * ROWS)
    stop = range(V // 221)
    sampler = Sampler(model, max_rows=ROWS, stop=stop)
    sampler.generate(prompts[:ROWS], 1, NEW)
    found: dict[str, float] = {}

    def with_refill() -> None:
        found["with"] = float(sampler.generate(prompts, 1, NEW).lengths.sum())

    def without() -> None:
        parts = [sampler.generate(part, 1, NEW).lengths.sum() for part in prompts.split(ROWS)]
        found["without"] = float(sum(parts))

    times = {"with": seconds(with_refill, 1), "without": seconds(without, 1)}
    rates = {name: found[name] / times[name] for name in times}
    return {
        "refilled_tokens_per_second": rates["with"],
        "waiting_tokens_per_second": rates["without"],
        "ratio": rates["with"] / rates["without"],
        "mean_length": found["with"] / len(prompts),
    }


def sequences_of(lengths: list[int]) -> TokenBatch:
    generator = torch.Generator().manual_seed(2)
    rows = [torch.randint(0, V, (n,), generator=generator).cuda() for n in lengths]
    return TokenBatch.of_sequences(rows, torch.full((len(rows),), PROMPT // 2, device="cuda"))


def pass_of_ours(model: Any, batch: TokenBatch, max_tokens: int) -> Callable[[], None]:
    face = CausalModel.of(model)

    def run() -> None:
        for rows in batch.cut(max_tokens, padded=not face.packs):
            score(face, batch.select(rows)).log_probs.mean().backward()
        model.zero_grad()

    return run


def pass_of_theirs(model: Any, batch: TokenBatch, rows: int) -> Callable[[], None]:
    """Padded sequences, logits of completions in memory, a log-softmax row by row."""
    ids, lengths = batch.padded(), batch.lengths
    mask = (torch.arange(ids.shape[1], device="cuda") < lengths[:, None]).long()
    ragged = bool((mask == 0).any())
    start = PROMPT // 2

    def run() -> None:
        for part, keep in zip(ids.split(rows), mask.split(rows), strict=True):
            given = {"attention_mask": keep} if ragged else {}
            logits = model(
                input_ids=part,
                use_cache=False,
                logits_to_keep=part.shape[1] - start + 1,
                **given,
            ).logits[:, :-1]
            targets = part[:, start:]
            log_probs = torch.stack(
                [
                    one.log_softmax(-1).gather(1, token[:, None])[:, 0]
                    for one, token in zip(logits, targets, strict=True)
                ]
            )
            (log_probs * keep[:, start:]).sum().backward()
        model.zero_grad()

    return run


def training(lengths: list[int], *, checkpointing: bool, rows: int, max_tokens: int) -> Row:
    """One pass, forward and backward, over sequences."""
    model, batch = model_of(), sequences_of(lengths)
    if checkpointing:
        model.train()
        enable = getattr(model, "activation_checkpointing_enable", None)
        (enable or model.gradient_checkpointing_enable)()
    runs = {
        "ours": pass_of_ours(model, batch, max_tokens),
        "theirs": pass_of_theirs(model, batch, rows),
    }
    row: Row = {"padding": 1 - sum(lengths) / (len(lengths) * max(lengths))}
    for name, run in runs.items():
        with contextlib.suppress(torch.cuda.OutOfMemoryError):
            run()
            row[f"{name}_tokens_per_second"] = sum(lengths) / seconds(run)
            row[f"{name}_gib"] = gib_of(run)
    if "theirs_gib" in row:
        row["ratio"] = row["ours_tokens_per_second"] / row["theirs_tokens_per_second"]
        row["memory"] = row["ours_gib"] / row["theirs_gib"]
    return row


def ragged_lengths(n: int = 64, longest: int = 640) -> list[int]:
    """Lengths of which 45 % of a padded batch is padding."""
    generator = torch.Generator().manual_seed(3)
    drawn = torch.rand(n, generator=generator) ** 1.1
    lengths = (96 + drawn * (longest - 96)).round().long()
    lengths[0] = longest
    return [int(length) for length in lengths]


def precision() -> Row:
    """Log-probabilities in bfloat16 against float32, and the sampler's against the scorer's."""
    model = model_of()
    wide = model_of(dtype=torch.float32)
    wide.load_state_dict(model.state_dict())
    sampler = Sampler(model, max_rows=64)
    written = sampler.generate(prompts_of(64), 1, 128)
    batch = TokenBatch.of(written)
    exact = score_all(CausalModel.of(wide), batch, max_tokens=8192)
    ours = score_all(CausalModel.of(model), batch, max_tokens=8192)
    with torch.no_grad():
        ids = batch.padded()
        logits = torch.cat([model(input_ids=part).logits for part in ids.split(8)])
        logits = logits[batch.sequence, batch.position - 1]
        targets = batch.completion_tokens[:, None]
        theirs = torch.cat(
            [
                part.log_softmax(-1).gather(1, token)[:, 0]
                for part, token in zip(logits.split(1024), targets.split(1024), strict=True)
            ]
        )
    return {
        "ours_error": float((ours - exact).abs().mean()),
        "theirs_error": float((theirs.float() - exact).abs().mean()),
        "sampler_minus_scorer": float((written.plain_log_probs - ours).abs().mean()),
    }


def whole_step() -> Row:
    """One update of GRPO: 64 prompts, 8 completions of 512 tokens each, AdamW."""
    model = model_of().train()

    def reward(completions: list[torch.Tensor], prompts: Any) -> list[float]:  # noqa: ARG001
        return [float(one[-1] % 7) for one in completions]

    agent = sw.GRPO(
        model,
        reward_fn=reward,
        prompts=prompts_of(64),
        group_size=8,
        n_prompts=64,
        max_new_tokens=NEW,
        kl_coef=0.0,
        max_tokens=8_192,
        learning_rate=1e-6,
        sampler=Sampler(model, max_rows=ROWS),
    )
    agent.train(n_updates=1)
    gib = gib_of(lambda: agent.train(n_updates=1))
    before = dict(agent.loop.timings)
    took = seconds(lambda: agent.train(n_updates=1), 2)
    spent = {name: (now - before.get(name, 0.0)) / 2 for name, now in agent.loop.timings.items()}
    return {"seconds": took, "gib": gib, **{f"{name}_s": value for name, value in spent.items()}}


def profiles() -> None:
    """The kernels that sampling and training spend their time in."""
    from torch.profiler import ProfilerActivity, profile

    model = model_of()
    sampler, prompts = Sampler(model, max_rows=ROWS), prompts_of(ROWS)
    batch = sequences_of([640] * 16)
    calls = {
        "sampling": lambda: sampler.generate(prompts, 1, 257),
        "training": pass_of_ours(model, batch, 10_240),
    }
    for name, call in calls.items():
        call()
        with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as found:
            call()
            torch.cuda.synchronize()
        table = found.key_averages().table(
            sort_by="self_cuda_time_total", row_limit=22, max_name_column_width=48
        )
        print(name, "\n".join(line[:200] for line in table.splitlines()), sep="\n")


CASES: dict[str, Callable[[], Row]] = {
    "sampling": sampling,
    "refill": refilling,
    "train": lambda: training([640] * 64, checkpointing=False, rows=16, max_tokens=10_240),
    "train checkpointed": lambda: training(
        [640] * 64, checkpointing=True, rows=16, max_tokens=40_960
    ),
    "train ragged": lambda: training(
        ragged_lengths(), checkpointing=False, rows=64, max_tokens=40_960
    ),
    "train ragged, 5k tokens": lambda: training(
        ragged_lengths(), checkpointing=False, rows=8, max_tokens=5_120
    ),
    "precision": precision,
    "whole step": whole_step,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Language models on a GPU.")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--only", default="", help="part of the names of cases")
    parser.add_argument("--profile", action="store_true", help="show where a step's time goes")
    arguments = parser.parse_args()
    results: dict[str, Row] = {}
    machine = {
        "gpu": torch.cuda.get_device_name(),
        "date": datetime.date.today().isoformat(),
        "versions": {x.__name__: x.__version__ for x in (torch, transformers, triton)},
    }
    for name, case in CASES.items():
        if arguments.only not in name:
            continue
        try:
            results[name] = case()
        except Exception as error:
            results[name] = {"failure": repr(error)[:400]}
        print(name, {k: v if isinstance(v, str) else round(v, 4) for k, v in results[name].items()})
        if arguments.out is not None:
            arguments.out.write_text(
                json.dumps({"machine": machine, "results": results}, indent=1) + "\n"
            )
        gc.collect()
        torch.cuda.empty_cache()
    if arguments.profile:
        profiles()


if __name__ == "__main__":
    main()
