"""The examples in docstrings run and give what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import sharpwave

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(sharpwave.__path__, "sharpwave.")
    if not module.name.endswith(("__main__", "_native"))
)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str, tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(str(tmp_path))
    module = importlib.import_module(name)
    failed, _ = doctest.testmod(module, extraglobs={"sw": sharpwave}, optionflags=doctest.ELLIPSIS)
    assert failed == 0
