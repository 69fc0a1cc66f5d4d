"""The examples in docstrings run and give what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import sharpwave

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(sharpwave.__path__, "sharpwave.")
    if not module.name.endswith(("__main__", "_native"))
)
NEEDS = {f"sharpwave.runs.loggers.{name}": name for name in ("wandb", "mlflow")}


@pytest.mark.long(
    only=[
        "sharpwave.runs.video",
        "sharpwave.pages.report.statistics",
        "sharpwave.datasets.training",
    ]
)
@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    module = importlib.import_module(name)
    failed, _ = doctest.testmod(module, extraglobs={"sw": sharpwave}, optionflags=doctest.ELLIPSIS)
    assert failed == 0
