"""A language model on a server as the judge of completions: `transformers serve`, for real."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import sharpwave as sw
from tests.unit.llm.models import hugging_face

pytestmark = pytest.mark.long

DIGITS = "0123456789"
PROMPTS = ["12=", "345=", "6=", "78="]


def save_judge(folder: Path) -> Any:
    """A model and its tokenizer, as Hugging Face saves them."""
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {text: number for number, text in enumerate(f"{DIGITS}= ")}
    vocabulary |= {"<eos>": 13, "<unk>": 14}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<eos>", unk_token="<unk>"
    )
    torch.manual_seed(7)  # a judge that does not always say the same
    model = hugging_face(vocab_size=15, eos_token_id=13, pad_token_id=13)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of `transformers serve`, which has begun to answer."""
    for name in ("fastapi", "uvicorn", "openai"):
        pytest.importorskip(name)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    words = ["-m", "transformers.cli.transformers", "serve", "--device", "cpu"]
    address = ["--host", "127.0.0.1", "--port", str(port), str(folder)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    log = (folder / "log").open("w")
    process = subprocess.Popen(
        [sys.executable, *words, *address], env=environment, stdout=log, stderr=log
    )
    try:
        deadline = time.monotonic() + 180
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
        log.close()


class Judge:
    """A reward function that asks a server: how large is the digit it answers with?"""

    def __init__(self, url: str, model: str) -> None:
        self.url, self.model = url, model

    def verdict(self, text: str) -> str:
        """The judge's first token about a text."""
        body = {"model": self.model, "prompt": text, "max_tokens": 1, "temperature": 0}
        request = urllib.request.Request(
            f"{self.url}/v1/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(json.load(answer)["choices"][0]["text"])

    def __call__(self, prompts: list[str], completions: list[str]) -> list[float | None]:
        """Digits over ten; None where the judge does not give one."""
        said = [self.verdict(a + b) for a, b in zip(prompts, completions, strict=True)]
        return [int(one) / 10 if one and one in DIGITS else None for one in said]


def test_a_model_on_a_server_judges_completions(tmp_path: Path) -> None:
    model, tokenizer = save_judge(tmp_path)
    policy = sw.nn.Transformer(vocab_size=14, seed=0)
    with served(tmp_path) as url:
        judge = Judge(url, str(tmp_path))
        rewards = sw.llm.Rewards(
            {"judge": judge},
            tokenizer=sw.llm.DigitTokenizer(),
            workers=2,
            rows_per_call=2,
            timeout=120,
        )
        agent = sw.GRPO(
            policy,
            reward_fn=rewards,
            prompts=PROMPTS,
            tokenizer=sw.llm.DigitTokenizer(),
            group_size=2,
            n_prompts=4,
            max_new_tokens=3,
            kl_coef=0.0,
            max_staleness=1,
            seed=1,
        )
        found = agent.evaluate(PROMPTS, n=2)
        before = [one.detach().clone() for one in policy.parameters()]
        metrics = agent.train(n_updates=2)
    # What the judge says is what the model of the folder says here.
    wanted = []
    assert found.samples is not None
    for row in found.samples:
        ids = torch.tensor([tokenizer.encode(row["prompt"] + row["completion"])])
        with torch.no_grad():
            said = tokenizer.decode([int(model(ids).logits[0, -1].argmax())])
        wanted.append(int(said) / 10 if said and said in DIGITS else None)
    assert [row["reward"] for row in found.samples] == pytest.approx(wanted)
    assert len({x for x in wanted if x is not None}) > 1
    assert 0 <= metrics["reward"] < 1
    assert metrics["unscored_fraction"] < 1
    assert not all(map(torch.equal, before, policy.parameters()))
    with pytest.raises(sw.llm.RewardFailed, match="'judge' raised URLError") as caught:
        agent.evaluate(PROMPTS)
    assert isinstance(caught.value.__cause__, urllib.error.URLError)
