"""Writes the losses of TRL and their gradients on fixed batches, which tests compare with.

    python benchmarks/golden_llm.py        # needs trl of requirements/bench.txt

TRL's own methods compute: the trainer around them is a stand-in that holds options, and the model
is one that gives the log-probabilities of the batch. So a change of TRL shows up here as a changed
number.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

os.environ.update(HF_HUB_OFFLINE="1", TRL_EXPERIMENTAL_SILENCE="1")

PLACE = Path(__file__).parent.parent / "tests/unit/losses/golden_trl.json"
LENGTHS = [3, 1, 6, 2]
DIGITS = 8

Case = dict[str, Any]


class Accelerator:
    """One process alone."""

    num_processes = 1
    sync_gradients = True
    device = torch.device("cpu")

    def gather(self, x: Tensor) -> Tensor:
        """The same of all processes."""
        return x

    gather_for_metrics = gather

    def reduce(self, x: Tensor, reduction: str) -> Tensor:  # noqa: ARG002
        """The sum over processes."""
        return x

    def pad_across_processes(self, x: Tensor, **_: Any) -> Tensor:
        """As long as the longest of all processes."""
        return x


def trainer(kind: type, **options: Any) -> Any:
    """Something that a trainer's methods can be called on: its options, and its other methods."""

    class StandIn:
        def __getattr__(self, name: str) -> Any:
            found = getattr(kind, name)
            return found.__get__(self) if name in METHODS else found

    stand_in = StandIn()
    stand_in.__dict__.update(
        accelerator=Accelerator(),
        model=SimpleNamespace(training=True),
        aux_loss_enabled=False,
        _metrics={"train": defaultdict(list)},
        _total_train_tokens=0,
        _tp_size=1,
        **options,
    )
    return stand_in


METHODS = {"get_high_entropy_mask", "cpo_loss", "odds_ratio_loss"}


def rounded(x: Tensor | float) -> Any:
    """Numbers for the file: few digits, enough for the comparison."""
    values = x.tolist() if isinstance(x, Tensor) else x
    if isinstance(values, list):
        return [float(f"{value:.{DIGITS}g}") for value in values]
    return float(f"{values:.{DIGITS}g}")


class Padding:
    """Packed tokens as rows with padding."""

    def __init__(self, lengths: list[int]) -> None:
        self.mask = torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]

    def pad(self, tokens: Tensor, value: float = 0.0) -> Tensor:
        """[T] -> [B, L]."""
        rows = torch.full(self.mask.shape, value, dtype=tokens.dtype)
        return rows.masked_scatter(self.mask, tokens)


def drawn(generator: torch.Generator, low: float, high: float, count: int) -> Tensor:
    """Numbers of few decimals, the same in the file and here."""
    values = torch.rand(count, generator=generator, dtype=torch.float64) * (high - low) + low
    return (values * 1e4).round() / 1e4


def grpo_batch() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(1)
    count = sum(LENGTHS)
    log_probs = drawn(generator, -3, -0.1, count)
    return {
        "lengths": LENGTHS,
        "log_probs": log_probs,
        "old_log_probs": log_probs - drawn(generator, -0.6, 0.6, count),
        "ref_log_probs": log_probs - drawn(generator, -0.8, 0.8, count),
        "advantages": torch.tensor([1.2, -0.7, 0.4, -1.5], dtype=torch.float64),
        "entropies": drawn(generator, 0, 2, count),
        "weights": drawn(generator, 0.2, 2, count),
        "mask": torch.tensor([1, 0, 1, 1, 1, 1, 0, 0, 1, 1, 0, 1]).bool(),
        "max_length": 8,
    }


def grpo_options() -> Iterator[Case]:
    """Options of `grpo_loss` whose results TRL can tell."""
    kinds = ["grpo", "bnpo", "dr_grpo", "dapo", "luspo", "cispo", "sapo", "vespo"]
    extras: list[Case] = [
        {"old_log_probs": False},
        {"delta": 1.5},
        {"clip_high": 0.28},
        {"top_entropy": 0.3},
        {"entropy_coef": 0.05},
        {"entropy_coef": 0.05, "top_entropy": 0.5},
        {"weights": True},
        {"mask": True, "kl_coef": 0.1},
    ]
    for kind in kinds:
        for level in ("token", "sequence"):
            here = {"kind": kind, "ratio_level": level}
            yield here
            for coef in (0.04, 0.5):
                for correction in (True, False):
                    yield {**here, "kl_coef": coef, "kl_correction": correction}
            yield from ({**here, **extra} for extra in extras)
    for extra in ({}, {"kl_coef": 0.1, "kl_correction": False}, {"top_entropy": 0.3}):
        yield {"kind": "gmpo", **extra}


def grpo_case(batch: dict[str, Any], options: Case) -> Case:
    from trl import GRPOTrainer
    from trl.experimental.gmpo import GMPOTrainer

    padding = Padding(batch["lengths"])
    log_probs = batch["log_probs"].clone().requires_grad_()
    rows = padding.pad(log_probs)
    kind = options["kind"]
    clip_high = options.get("clip_high", 0.2)
    correct = options.get("weights", False)
    mask = padding.mask.double()
    inputs: dict[str, Any] = {
        "prompt_ids": torch.zeros(len(mask), 1, dtype=torch.int64),
        "prompt_mask": torch.ones(len(mask), 1, dtype=torch.int64),
        "completion_ids": torch.zeros(mask.shape, dtype=torch.int64),
        "completion_mask": mask,
        "advantages": batch["advantages"],
        "ref_per_token_logps": padding.pad(batch["ref_log_probs"]),
    }
    if options.get("old_log_probs", True):
        inputs["old_per_token_logps"] = padding.pad(batch["old_log_probs"])
    if correct:
        inputs["importance_sampling_ratio"] = padding.pad(batch["weights"], 1.0)
    if options.get("mask", False):
        inputs["tool_mask"] = padding.pad(batch["mask"].double())
    inputs["num_items_in_batch"] = (mask * inputs.get("tool_mask", 1.0)).sum()
    entropies = padding.pad(batch["entropies"])
    method = GMPOTrainer if kind == "gmpo" else GRPOTrainer
    stand_in = trainer(
        method,
        args=SimpleNamespace(
            use_bias_correction_kl=options.get("kl_correction", True),
            delta=options.get("delta"),
            steps_per_generation=1,
            sapo_temperature_pos=1.0,
            sapo_temperature_neg=1.05,
            vespo_k_pos=2.0,
            vespo_lambda_pos=3.0,
            vespo_k_neg=3.0,
            vespo_lambda_neg=2.0,
        ),
        loss_type=kind,
        importance_sampling_level=options.get("ratio_level", "token"),
        beta=options.get("kl_coef", 0.0),
        epsilon_low=0.2,
        # TRL bounds the ratio of cispo by epsilon_high itself, not by what is above 1.
        epsilon_high=1 + clip_high if kind == "cispo" else clip_high,
        top_entropy_quantile=options.get("top_entropy", 1.0),
        off_policy_mask_threshold=None,
        use_vllm=correct,
        vllm_importance_sampling_correction=correct,
        current_gradient_accumulation_steps=1,
        max_completion_length=batch["max_length"],
        _entropy_bonus_enabled="entropy_coef" in options,
        use_adaptive_entropy=False,
        entropy_coef=options.get("entropy_coef", 0.0),
        _get_per_token_logps_and_entropies=lambda *_, **__: (rows, entropies, None),
    )
    loss = method._compute_loss(stand_in, None, inputs)
    loss.backward()
    names = {
        "kl": "kl",
        "entropy": "entropy",
        "clip_ratio/low_mean": "clip_fraction_low",
        "clip_ratio/high_mean": "clip_fraction_high",
        "clip_ratio/region_mean": "clip_fraction",
        "cispo_clip_ratio": "clip_fraction_high",
    }
    found = stand_in._metrics["train"]
    return {
        "options": options,
        "loss": rounded(loss.detach()),
        "gradient": rounded(log_probs.grad),
        "metrics": {ours: rounded(found[name][0]) for name, ours in names.items() if name in found},
    }


def stored(batch: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.tolist()
        if isinstance(value, Tensor) and value.dtype == torch.bool
        else rounded(value)
        if isinstance(value, Tensor)
        else value
        for name, value in batch.items()
    }


def golden() -> dict[str, Any]:
    """Everything that the file holds."""
    import trl

    batch = grpo_batch()
    return {
        "trl": trl.__version__,
        "grpo": {
            "batch": stored(batch),
            "cases": [grpo_case(batch, options) for options in grpo_options()],
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=PLACE)
    place = parser.parse_args().out
    found = golden()
    # A case is a line, so that a difference shows which case changed.
    place.write_text(as_lines(found))
    print(place, sum(len(part["cases"]) for part in found.values() if isinstance(part, dict)))


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def as_lines(found: dict[str, Any]) -> str:
    parts = []
    for name, part in found.items():
        if isinstance(part, dict):
            cases = ",\n".join(compact(case) for case in part["cases"])
            text = f'{{"batch": {compact(part["batch"])}, "cases": [\n{cases}\n]}}'
        else:
            text = json.dumps(part)
        parts.append(f"{json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    main()
