"""The losses of GRPO are those that TRL computes, and so are their gradients."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sharpwave import losses

GOLDEN = json.loads((Path(__file__).parent / "golden_trl.json").read_text())["grpo"]
BATCH, CASES = GOLDEN["batch"], GOLDEN["cases"]


def column(name: str, dtype: torch.dtype) -> Tensor:
    return torch.tensor(BATCH[name], dtype=dtype)


@pytest.mark.long(but=["grpo-float64"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("kind", losses.GRPO_KINDS)
def test_loss_gradient_and_metrics_are_those_of_trl(kind: str, dtype: torch.dtype) -> None:
    cases = [case for case in CASES if case["options"]["kind"] == kind]
    assert cases
    for case in cases:
        check(case, dtype)


def check(case: dict[str, Any], dtype: torch.dtype) -> None:
    options = dict(case["options"])
    log_probs = column("log_probs", dtype).requires_grad_()
    old = column("old_log_probs", dtype) if options.pop("old_log_probs", True) else None
    for name in ("weights", "mask"):
        if options.pop(name, False):
            options[name] = column(name, dtype)
    loss, metrics = losses.grpo_loss(
        log_probs,
        old,
        column("advantages", dtype),
        losses.Sequences.of(BATCH["lengths"]),
        ref_log_probs=column("ref_log_probs", dtype),
        entropies=column("entropies", dtype),
        max_length=BATCH["max_length"],
        **options,
    )
    loss.backward()
    close: dict[str, Any] = {"rtol": 1e-6, "atol": 1e-6}
    expected = torch.tensor(case["loss"], dtype=dtype)
    torch.testing.assert_close(loss.detach(), expected, **close, msg=lambda m: f"{options}\n{m}")
    gradient = torch.tensor(case["gradient"], dtype=dtype)
    torch.testing.assert_close(log_probs.grad, gradient, **close, msg=lambda m: f"{options}\n{m}")
    for name, value in case["metrics"].items():
        assert metrics[name].item() == pytest.approx(value, abs=1e-6), (options, name)
