"""The libraries of the integrations are needed only where they are used."""

import subprocess
import sys

import pytest


def output_of(program: str) -> str:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_the_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    monkeypatch.setitem(sys.modules, "stable_baselines3.common", None)
    monkeypatch.delitem(sys.modules, "sharpwave.integrations.sb3", raising=False)
    with pytest.raises(ImportError, match=r'pip install "sharpwave\[sb3\]"'):
        import sharpwave.integrations.sb3  # noqa: F401


@pytest.mark.long
@pytest.mark.parametrize("module", ["sharpwave", "sharpwave.compat.rlox", "sharpwave.integrations"])
def test_neither_torch_nor_stable_baselines3_is_imported(module: str) -> None:
    program = (
        f"import sys, {module}; print('torch' in sys.modules, 'stable_baselines3' in sys.modules)"
    )
    assert output_of(program) == "False False"
