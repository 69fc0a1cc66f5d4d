"""`sharpwave serve-model`: a process that samples for others."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import sharpwave as sw
from sharpwave.cli import main
from sharpwave.llm import RemoteSampler, Sampler, SamplerFailed
from tests.unit.llm.models import hugging_face


def saved(tmp_path: Path) -> tuple[Path, Any]:
    """A checkpoint, and the model in it."""
    model = sw.nn.Transformer(vocab_size=14, hidden=32, seed=3)
    agent = sw.SFT(model, tokenizer=sw.llm.DigitTokenizer(), seed=0)
    path = tmp_path / "run" / "sft.safetensors"
    path.parent.mkdir()
    agent.save(path)
    return path, model


@contextlib.contextmanager
def serving(*arguments: str, **variables: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "sharpwave", "serve-model", "--port", "0", *arguments]
    environment = {**os.environ, **variables}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            assert " samples from " in said
            yield said.split()[0], process
        finally:
            process.kill()


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_is_served_until_it_is_told_to_stop(tmp_path: Path, number: signal.Signals) -> None:
    path, model = saved(tmp_path)
    weights = tmp_path / "weights"
    options = ("--name", "tiny", "--weights", str(weights), "--device", "cpu")
    with serving(str(path), *options, SHARPWAVE_TOKEN="secret") as (url, process):
        there = RemoteSampler(url, "tiny", token="secret", weights=model, folder=weights, seed=1)
        # The tokenizer's end of a text ends a completion there as here.
        tokenizer = sw.llm.DigitTokenizer()
        here = Sampler(model, seed=1, tokenizer=tokenizer)
        for version in range(2):
            there.version = version
            found, wanted = there.generate([[1, 2], [3]], 8, 9), here.generate([[1, 2], [3]], 8, 9)
            assert torch.equal(found.tokens, wanted.tokens)
            assert torch.equal(found.finished, wanted.finished)
            with torch.no_grad():
                next(model.parameters()).mul_(1.5)
        with pytest.raises(SamplerFailed, match="401"):
            RemoteSampler(url, "tiny").generate([[1]])
        process.send_signal(number)
        assert process.stdout is not None
        assert process.stdout.read() == "stopped\n"
        assert process.wait(30) == 0


@pytest.mark.long
def test_a_folder_of_hugging_face_is_served(tmp_path: Path) -> None:
    model = hugging_face()
    model.save_pretrained(tmp_path / "llama")
    with serving(str(tmp_path / "llama"), "--device", "cpu") as (url, _):
        found = RemoteSampler(url, "llama", seed=1).generate([[1, 2], [3]], 2, 9)
    assert torch.equal(found.tokens, Sampler(model, seed=1).generate([[1, 2], [3]], 2, 9).tokens)


def test_what_cannot_be_served_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, _ = saved(tmp_path)
    cases = {
        "does not exist": [str(tmp_path / "nothing")],
        "no checkpoint": [str(tmp_path)],
        "token must be given for host": [str(path), "--host", "0.0.0.0"],
        "port must be from 0 to 65535": [str(path), "--port", "70000"],
        "--device": [str(path), "--device", "moon"],
        "did you mean": [str(path), "--tokn", "x"],
    }
    for said, arguments in cases.items():
        assert main(["serve-model", *arguments]) == 2
        assert said in capsys.readouterr().err
