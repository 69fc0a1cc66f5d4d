"""The page of options names all of them."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

import sharpwave as sw
from sharpwave.losses import GRPO_KINDS, PREFERENCE_KINDS

PAGE = (Path(__file__).parents[2] / "docs" / "language_options.md").read_text()
NAMES = set(re.findall(r"[a-z_0-9]+", " ".join(re.findall(r"`([^`]+)`", PAGE))))


@pytest.mark.parametrize(
    "config",
    [sw.GRPOConfig, sw.DPOConfig, sw.KTOConfig, sw.OnlineDPOConfig, sw.SFTConfig],
    ids=lambda x: x.__name__,
)
def test_every_option_is_listed(config: type) -> None:
    missing = [field.name for field in fields(config) if field.name not in NAMES]
    assert missing == []


def test_every_kind_of_loss_is_listed() -> None:
    assert [kind for kind in (*GRPO_KINDS, *PREFERENCE_KINDS) if kind not in PAGE] == []
