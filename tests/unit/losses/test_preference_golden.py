"""The losses of preferences and of fine-tuning are those that TRL computes, gradients included."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sharpwave import losses
from sharpwave.losses import Pair

GOLDEN = json.loads((Path(__file__).parent / "golden_trl.json").read_text())["preference"]
BATCH, CASES = GOLDEN["batch"], GOLDEN["cases"]
SEQUENCES = losses.Sequences.of(BATCH["lengths"])
LENGTHS = Pair.of(SEQUENCES.lengths)

Found = tuple[Tensor, dict[str, Tensor]]


def column(name: str, dtype: torch.dtype) -> Tensor:
    return torch.tensor(BATCH[name], dtype=dtype)


def pairs(tokens: Tensor, options: dict[str, Any]) -> Found:
    shared = torch.minimum(*LENGTHS).repeat(2)
    damped = {"shared_lengths": shared, "ld_alpha": options.pop("ld_alpha", 1.0)}
    policy, ref = (
        Pair.of(losses.completion_log_probs(x, SEQUENCES, **damped))
        for x in (tokens, column("ref_log_probs", tokens.dtype))
    )
    if options.pop("wpo", False):
        collisions = column("log_collisions", tokens.dtype)
        chosen, rejected = Pair.of(losses.wpo_weights(tokens, collisions, SEQUENCES))
        options["weights"] = chosen * rejected
    needs_reference = options["kind"] not in ("simpo", "orpo")
    return losses.preference_loss(policy, ref if needs_reference else None, LENGTHS, **options)


def kto(tokens: Tensor, options: dict[str, Any]) -> Found:
    policy, ref = (
        losses.completion_log_probs(x, SEQUENCES)
        for x in (tokens, column("ref_log_probs", tokens.dtype))
    )
    return losses.kto_loss(policy, ref, torch.tensor(BATCH["desirable"]), **options)


def sft(tokens: Tensor, options: dict[str, Any]) -> Found:
    return losses.sft_loss(tokens, **options), {}


PARTS: dict[str, Callable[[Tensor, dict[str, Any]], Found]] = {
    "pairs": pairs,
    "kto": kto,
    "sft": sft,
}


def group(case: dict[str, Any]) -> str:
    """The kind of a case, or its part where that has few."""
    kind = case["options"].get("kind")
    return (
        "several" if isinstance(kind, dict) else kind if case["part"] == "pairs" else case["part"]
    )


GROUPS = sorted({group(case) for case in CASES})


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("name", GROUPS)
def test_loss_gradient_and_metrics_are_those_of_trl(name: str, dtype: torch.dtype) -> None:
    for case in (case for case in CASES if group(case) == name):
        check(case, dtype)


def check(case: dict[str, Any], dtype: torch.dtype) -> None:
    options = case["options"]
    tokens = column("log_probs", dtype).requires_grad_()
    loss, metrics = PARTS[case["part"]](tokens, dict(options))
    loss.backward()
    close: dict[str, Any] = {"rtol": 1e-6, "atol": 1e-6, "msg": lambda text: f"{options}\n{text}"}
    torch.testing.assert_close(loss.detach(), torch.tensor(case["loss"], dtype=dtype), **close)
    gradient = torch.tensor(case["gradient"], dtype=dtype)
    torch.testing.assert_close(tokens.grad, gradient, **close)
    for name, value in case["metrics"].items():
        assert metrics[name].item() == pytest.approx(value, abs=1e-6), (options, name)


def test_every_kind_that_trl_knows_is_compared() -> None:
    assert set(GROUPS) == losses.PREFERENCE_KINDS.keys() - {"cdpo"} | {"several", "kto", "sft"}
