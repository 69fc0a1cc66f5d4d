"""A sampler over HTTP: the same texts, weights that follow, and answers that are refused."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from sharpwave.llm import ModelServer, RemoteSampler, Sampler, SamplerFailed, client
from tests.unit.llm.models import make
from tests.unit.llm.stub_server import StubServer, late, stub

PROMPTS = [[1, 2, 3], [4], [5, 6]]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_PAUSE", 0.001)


@pytest.fixture
def stubbed() -> Iterator[StubServer]:
    with stub() as server:
        yield server


def remote(server: Any, **options: Any) -> RemoteSampler:
    return RemoteSampler(server.url, "tiny", **{"timeout": 20.0, "retries": 0, **options})


OPTIONS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.7, "top_p": 0.9, "top_k": 5, "min_p": 0.01},
    {"temperature": 0.0},
    {"stop": [3, 7], "min_tokens": 2, "repetition_penalty": 1.3, "logit_bias": {4: 2.0, 5: -9.0}},
]


@pytest.mark.long(but=["plain"])
@pytest.mark.parametrize("options", OPTIONS, ids=["plain", "cut", "greedy", "stops"])
def test_texts_are_those_of_a_local_sampler(options: dict[str, Any]) -> None:
    model = make("transformer")
    server = ModelServer(model, "tiny")
    with server, server.running():
        there, here = remote(server, seed=3, **options), Sampler(model, seed=3, **options)
        for _ in range(2):  # the numbers of prompts go on
            found, wanted = there.generate(PROMPTS, 2, 6), here.generate(PROMPTS, 2, 6)
            for name in ("tokens", "offsets", "prompt", "finished", "log_probs", "plain_log_probs"):
                assert torch.equal(getattr(found, name), getattr(wanted, name)), name
        assert there.state_dict() == here.state_dict() == {"drawn": 6, "version": 0}
        by_key = there.generate(PROMPTS[::-1], 2, 6, keys=[2, 1, 0])
        first = Sampler(model, seed=3, **options).generate(PROMPTS, 2, 6)
        assert [x.tolist() for x in by_key][4:] == [x.tolist() for x in first][:2]


@pytest.mark.long
def test_weights_follow_a_model_that_learns(tmp_path: Path) -> None:
    model = make("transformer")
    server = ModelServer(make("transformer"), "tiny", weights=tmp_path)
    with server, server.running():
        there, here = remote(server, weights=model, folder=tmp_path), Sampler(model)
        for version in range(3):
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.mul_(1.1)
            there.version = here.version = version
            found, wanted = there.generate(PROMPTS, 2, 6), here.generate(PROMPTS, 2, 6)
            assert torch.equal(found.tokens, wanted.tokens)
            assert found.version == version == server.engine.version
        assert [one.name for one in tmp_path.iterdir()] == ["version-2"]  # the others are gone
        there.load_state_dict({"drawn": 0, "version": 2})
        there.generate(PROMPTS)
        # Another program gave the server other weights, or it was started anew.
        server.engine.version = 0
        with torch.no_grad():
            next(server.engine.model.module.parameters()).zero_()
        with pytest.raises(SamplerFailed, match="version 0, and should have 2"):
            there.generate(PROMPTS)
        there.client.retries = 1
        again = there.generate(PROMPTS, 2, 6, keys=range(3))
        assert torch.equal(again.tokens, Sampler(model).generate(PROMPTS, 2, 6).tokens)
        assert not server.engine.is_paused


@pytest.mark.long
def test_processes_that_learn_together_may_share_a_server(tmp_path: Path) -> None:
    models = [make("transformer") for _ in range(3)]
    server = ModelServer(make("transformer"), "tiny", weights=tmp_path)
    with server, server.running():
        samplers = [remote(server, weights=model, folder=tmp_path) for model in models]
        wanted = Sampler(models[0])
        for version in range(1, 4):
            for model in models:
                with torch.no_grad():
                    next(model.parameters()).mul_(1.1)
            found: list[Any] = [None] * len(samplers)

            def run(number: int, version: int = version, found: list[Any] = found) -> None:
                samplers[number].version = version
                found[number] = samplers[number].generate(PROMPTS, 2, 6)

            threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            tokens = wanted.generate(PROMPTS, 2, 6).tokens
            assert all(torch.equal(one.tokens, tokens) for one in found)
        assert not server.engine.is_paused


def test_a_refused_snapshot_is_named(tmp_path: Path) -> None:
    model = make("transformer")
    server = ModelServer(make("transformer"), "tiny", weights=tmp_path / "other")
    with server, server.running():
        there = remote(server, weights=model, folder=tmp_path / "mine")
        with pytest.raises(SamplerFailed, match="403: path must lie in"):
            there.generate(PROMPTS)
        assert not server.engine.is_paused


def test_every_field_of_a_request_is_right(stubbed: StubServer) -> None:
    sampler = remote(stubbed, seed=5, stop=[9], top_k=0, logit_bias={3: 1.5})
    stubbed.change = lambda answer: _plain(answer)
    found = sampler.generate(PROMPTS, 2, 3)
    assert [one.tolist() for one in found] == [[3, 4, 5]] * 6
    assert found.log_probs.tolist() == [-1.0, -2.0, -3.0] * 6
    assert found.prompt.tolist() == [0, 0, 1, 1, 2, 2]
    asked = stubbed.questions[0]
    assert asked["prompt"] == PROMPTS
    assert (asked["model"], asked["n"], asked["max_tokens"]) == ("tiny", 2, 3)
    assert (asked["stop_token_ids"], asked["logit_bias"]) == ([9], {"3": 1.5})
    assert asked["vllm_xargs"] == {"sharpwave_seed": 5, "sharpwave_keys": [0, 1, 2]}
    sampler.generate(PROMPTS, 2, 3)
    assert stubbed.questions[1]["seed"] != asked["seed"]


def _plain(answer: Any) -> Any:
    for one in answer["choices"]:
        one["logprobs"]["plain_token_logprobs"] = one["logprobs"]["token_logprobs"]
    return answer


def test_weights_are_given_in_the_order_of_vllm(stubbed: StubServer, tmp_path: Path) -> None:
    stubbed.is_vllm = True  # which does not say the version in an answer
    sampler = remote(stubbed, weights=make("transformer"), folder=tmp_path)
    steps = [
        "/pause?mode=wait",
        "/init_weight_transfer_engine",
        "/start_weight_update",
        "/update_weights",
        "/finish_weight_update",
        "/resume",
    ]
    assert sampler.generate(PROMPTS, 2, 3).version == 0
    assert stubbed.asked == [*steps, "/v1/completions", "/weight_info"]
    sampler.generate(PROMPTS, 2, 3)
    assert stubbed.asked[8:] == ["/v1/completions", "/weight_info"]
    sampler.version = 4
    assert sampler.generate(PROMPTS, 2, 3).version == 4
    assert stubbed.asked[10:] == [*steps, "/v1/completions", "/weight_info"]
    assert stubbed.given == tmp_path / "version-4"


def first(**changes: Any) -> Any:
    """A change of the first completion of an answer."""

    def change(answer: Any) -> Any:
        answer["choices"][0] |= changes
        return answer

    return change


REFUSED: dict[str, tuple[Any, str]] = {
    "another model": (lambda x: {**x, "model": "large"}, "model 'tiny', got 'large'"),
    "text only": (first(token_ids=None), "must give token_ids, got text alone for completion 0"),
    "no log-probs": (first(logprobs=None), "must give a log-probability for each token, got None"),
    "fewer log-probs": (first(logprobs={"token_logprobs": [-1.0]}), "for each token, got"),
    "no number": (first(logprobs={"token_logprobs": [None] * 3}), "finite log-probabilities"),
    "unknown token": (first(token_ids=[3, 4, 99]), "tokens from 0 to 15, got others"),
    "no token": (first(token_ids=[3, 4, "5"]), "tokens from 0 to 15, got others"),
    "too long": (first(token_ids=[3] * 4), "at most 3 tokens, got 4 for completion 0"),
    "ends otherwise": (first(finish_reason="tool_calls"), "'stop' or 'length', got 'tool_calls'"),
    "one missing": (lambda x: {**x, "choices": x["choices"][1:]}, "completions 0 to 5, got 5"),
    "one twice": (first(index=1), "completions 0 to 5, got 6"),
    "no choices": (lambda _: {"model": "tiny"}, "must answer with choices"),
    "not JSON": (lambda _: b"<html>", "must answer with choices, got '<html>'"),
    "no version": (lambda x: {**x, "weight_version": "new"}, "version of its weights, got 'new'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_learned_from_is_refused(
    case: str, stubbed: StubServer, tmp_path: Path
) -> None:
    stubbed.change, said = REFUSED[case]
    sampler = remote(stubbed, weights=make("transformer"), folder=tmp_path, retries=3)
    with pytest.raises(SamplerFailed, match=said):
        sampler.generate(PROMPTS, 2, 3)
    assert stubbed.asked.count("/v1/completions") == 1  # it would come again


def test_log_probs_of_one_kind_are_not_taken_for_others(stubbed: StubServer) -> None:
    with pytest.raises(SamplerFailed, match="log-probabilities of one kind"):
        remote(stubbed, top_p=0.9).generate(PROMPTS, 2, 3)
    found = remote(stubbed, temperature=0.5).generate(PROMPTS, 2, 3)
    assert torch.equal(found.log_probs, found.plain_log_probs)


def test_old_weights_are_refused_and_given_anew(stubbed: StubServer, tmp_path: Path) -> None:
    stubbed.change = lambda x: {**x, "weight_version": "2"}
    given: dict[str, Any] = {"weights": make("transformer"), "folder": tmp_path}
    sampler = remote(stubbed, **given, retries=2)
    sampler.version = 4
    with pytest.raises(SamplerFailed, match="failed 3 times, at last: its weights have version 2"):
        sampler.generate(PROMPTS, 2, 3)
    assert stubbed.asked.count("/update_weights") == 3
    sampler = remote(stubbed, **given, max_staleness=2)
    sampler.version = 4
    assert sampler.generate(PROMPTS, 2, 3).version == 2
    sampler.version = 1
    with pytest.raises(SamplerFailed, match="version 2, and should have 1 or at most 2 less"):
        sampler.generate(PROMPTS, 2, 3)


def test_slow_answers_end_at_the_deadline(stubbed: StubServer) -> None:
    stubbed.behave = late(1.0)
    with pytest.raises(SamplerFailed, match=r"no whole answer within 0\.05 seconds"):
        remote(stubbed, timeout=0.05).generate(PROMPTS)


def test_answers_that_drip_end_at_the_deadline() -> None:
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            taken = listener.accept()[0]
            taken.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
            with taken, contextlib.suppress(OSError):
                while not over.wait(0.01):
                    taken.sendall(b" ")

        thread = threading.Thread(target=drip)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(SamplerFailed, match=r"no whole answer within 0\.2 seconds"):
            RemoteSampler(url, "tiny", timeout=0.2, retries=0).generate(PROMPTS)
        over.set()
        thread.join()


@pytest.mark.parametrize("failure", ["dropped", "error", "busy", "aborted"])
def test_what_may_pass_is_tried_again(failure: str, stubbed: StubServer) -> None:
    tries = iter(range(10))
    said = {"error": {"message": "out of memory"}}

    def behave(path: str) -> None:
        if failure == "dropped" and next(tries) < 2:
            raise ConnectionError

    def change(answer: Any) -> Any:
        if failure == "dropped" or next(tries) >= 2:
            return answer
        if failure == "aborted":
            return first(finish_reason="abort")(answer)
        return {**said, "status": 500 if failure == "error" else 429}

    stubbed.behave, stubbed.change = behave, change
    found = remote(stubbed, retries=2).generate(PROMPTS, 2, 3)
    assert len(found) == 6
    assert stubbed.asked == ["/v1/completions"] * 3
    assert stubbed.questions[0] == stubbed.questions[-1]  # the same texts are asked for
    tries = iter(range(10))
    with pytest.raises(SamplerFailed, match="failed 2 times, at last"):
        remote(stubbed, retries=1).generate(PROMPTS, 2, 3)


def test_pauses_double(stubbed: StubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("sharpwave.llm.client.time.sleep", pauses.append)
    monkeypatch.setattr(client, "FIRST_PAUSE", 4.0)
    stubbed.change = lambda _: {"status": 503, "detail": "loading"}
    with pytest.raises(SamplerFailed, match="503: loading"):
        remote(stubbed, retries=5).generate(PROMPTS)
    assert pauses == [4.0, 8.0, 16.0, 30.0, 30.0]


def test_a_server_that_is_not_there_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    sampler = RemoteSampler(f"http://127.0.0.1:{port}", "tiny", retries=2)
    with pytest.raises(SamplerFailed, match=rf"127.0.0.1:{port} failed 3 times.*refused"):
        sampler.generate(PROMPTS)


def test_a_token_is_sent() -> None:
    server = ModelServer(make("transformer"), "tiny", token="secret")
    with server, server.running():
        assert len(remote(server, token="secret").generate(PROMPTS)) == 3
        with pytest.raises(SamplerFailed, match="401: a bearer token is needed"):
            remote(server).generate(PROMPTS)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"transport": "ipc"}, ValueError, "transport must be 'disk', got 'ipc': .*unpickled"),
        ({"transport": "nccl"}, ValueError, "only snapshots by path"),
        ({"weights": 1}, ValueError, "weights and folder must be given together"),
        ({"timeout": 0}, ValueError, "timeout must be positive"),
        ({"retries": -1}, ValueError, "retries must be at least 0"),
        ({"max_staleness": -1}, ValueError, "max_staleness must be at least 0"),
        ({"temprature": 1}, TypeError, "temprature"),
        ({"stop": ["."]}, TypeError, "stop must hold tokens, since no text goes"),
        ({"top_p": 2}, ValueError, "top_p must be in"),
    ],
)
def test_options_are_checked(options: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        RemoteSampler("http://127.0.0.1:1", "tiny", **options)
    with pytest.raises(ValueError, match="url must be like"):
        RemoteSampler("127.0.0.1:1", "tiny")


def test_a_model_that_learns_must_be_followed(stubbed: StubServer) -> None:
    sampler = remote(stubbed)
    with pytest.raises(ValueError, match="weights must be given to a RemoteSampler whose model"):
        sampler.version = 1
    bad: list[Any] = [[], [[]], [[-1]]]
    for prompts in bad:
        with pytest.raises(ValueError, match="prompts must hold at least one"):
            sampler.generate(prompts)
    with pytest.raises(ValueError, match="n must be at least 1"):
        sampler.generate(PROMPTS, n=0)
    with pytest.raises(ValueError, match="keys must have 3 numbers"):
        sampler.generate(PROMPTS, keys=[1])
    assert stubbed.asked == []


SERVE = """
import sys
from sharpwave.llm import ModelServer
from tests.unit.llm.models import make
with ModelServer(make("transformer"), "tiny", token="secret", weights=sys.argv[1]) as server:
    print(server.url, flush=True)
    server.serve_forever()
"""


@pytest.mark.long
def test_another_process_gives_the_same_texts(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SERVE, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            model = make("transformer")
            there = RemoteSampler(url, "tiny", token="secret", weights=model, folder=tmp_path)
            here = Sampler(model)
            for version in range(3):
                with torch.no_grad():
                    next(model.parameters()).mul_(1.1)
                there.version = version
                found, wanted = there.generate(PROMPTS, 4, 8), here.generate(PROMPTS, 4, 8)
                assert torch.equal(found.tokens, wanted.tokens)
                assert torch.equal(found.log_probs, wanted.log_probs)
        finally:
            process.kill()
    there.client.retries = 0
    with pytest.raises(SamplerFailed):
        there.generate(PROMPTS)
