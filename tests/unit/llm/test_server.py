"""A model over HTTP: what it answers, what it refuses, and how its weights change."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sharpwave.llm import ModelServer, Sampler
from sharpwave.llm.engine import Engine, EngineClosed, Question
from sharpwave.llm.requests import KNOWN, parse_question, pop_log_probs
from sharpwave.llm.weights import assign_weights, read_weights, write_weights
from tests.examples import examples
from tests.unit.llm.models import VOCABULARY, Plain, make

PROMPTS = [[1, 2, 3], [4], [5, 6]]
QUESTION = {"prompt": PROMPTS, "return_token_ids": True, "logprobs": 0, "max_tokens": 5, "seed": 7}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ModelServer]:
    made = ModelServer(make("transformer"), "tiny", weights=tmp_path)
    with made, made.running():
        yield made


def ask(
    server: ModelServer, path: str, body: Any = None, method: str | None = None, **headers: str
) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    content = None if body is None else body if isinstance(body, bytes) else json.dumps(body)
    connection.request(method or ("GET" if body is None else "POST"), path, content, headers)
    answer = connection.getresponse()
    found = json.loads(answer.read())
    connection.close()
    return answer.status, found


def complete(server: ModelServer, **fields: Any) -> Any:
    status, found = ask(server, "/v1/completions", {**QUESTION, **fields})
    assert status == 200, found
    return found


def message(found: Any) -> str:
    return str(found["error"]["message"])


def test_answers_are_what_a_sampler_draws(server: ModelServer) -> None:
    found = complete(server, n=2, temperature=0.7, top_k=9, min_tokens=2, stop_token_ids=[3])
    sampler = Sampler(server.engine.model, seed=7, temperature=0.7, top_k=9, min_tokens=2, stop=[3])
    wanted = sampler.generate(PROMPTS, 2, 5)
    assert found["model"] == "tiny"
    assert found["weight_version"] == "0"
    assert [one["index"] for one in found["choices"]] == list(range(6))
    assert [one["token_ids"] for one in found["choices"]] == [one.tolist() for one in wanted]
    assert [one["finish_reason"] == "stop" for one in found["choices"]] == wanted.finished.tolist()
    assert {one["text"] for one in found["choices"]} == {""}
    given = [x for one in found["choices"] for x in one["logprobs"]["token_logprobs"]]
    assert given == wanted.log_probs.tolist()
    plain = [x for one in found["choices"] for x in one["logprobs"]["plain_token_logprobs"]]
    assert plain == wanted.plain_log_probs.tolist() != given
    assert found["usage"] == {
        "prompt_tokens": 12,
        "completion_tokens": len(wanted.tokens),
        "total_tokens": 12 + len(wanted.tokens),
    }


def test_numbers_of_prompts_decide_on_the_text(server: ModelServer) -> None:
    def texts(**fields: Any) -> list[Any]:
        return [one["token_ids"] for one in complete(server, **fields)["choices"]]

    by_key = {"sharpwave_seed": 7, "sharpwave_keys": [0, 1, 2]}
    assert texts() == texts(seed=99, vllm_xargs=by_key) != texts(seed=8)
    turned = {**by_key, "sharpwave_keys": [2, 1, 0]}
    assert texts(prompt=PROMPTS[::-1], vllm_xargs=turned)[::-1] == texts()
    assert texts(prompt=[1, 2, 3]) == texts()[:1]  # a single prompt needs no list around it
    unseeded = {"seed": None}
    assert texts(**unseeded) != texts(**unseeded)  # each gets numbers of its own


def test_what_is_there_is_said(server: ModelServer) -> None:
    assert ask(server, "/health") == (200, {})
    status, found = ask(server, "/v1/models")
    assert (status, found["data"][0]["id"]) == (200, "tiny")
    assert found["data"][0]["max_model_len"] == server.engine.model.max_positions
    assert ask(server, "/weight_info") == (200, {"weight_version": "0"})
    assert ask(server, "/is_paused") == (200, {"is_paused": False})


@pytest.mark.parametrize(
    ("fields", "status", "said"),
    [
        ({"prompt": "hello"}, 400, "prompt must be lists of tokens"),
        ({"prompt": []}, 400, "prompt must be lists of tokens"),
        ({"prompt": [[1], [1.5]]}, 400, "prompt must be a list of integers"),
        ({"prompt": [[1], []]}, 400, "got none of a token in row 1"),
        ({"prompt": [[VOCABULARY]]}, 400, "tokens from 0 to 15"),
        ({"prompt": [[True]]}, 400, "prompt must be a list of integers"),
        ({"max_tokens": 10**6}, 400, "must fit into"),
        ({"max_tokens": 0}, 400, "max_tokens must be an integer of at least 1"),
        ({"n": 10**6}, 400, "prompts times n must be at most"),
        ({"return_token_ids": False}, 400, "never text"),
        ({"logprobs": 5}, 400, "logprobs must be 0 or 1"),
        ({"model": "other"}, 404, "there is no model 'other'"),
        ({"stream": True}, 400, "stream must be False"),
        ({"stop": ["x"]}, 400, "stop must be"),
        ({"temprature": 1}, 400, "did you mean 'temperature'"),
        ({"temperature": -1}, 400, "temperature must be finite and at least 0"),
        ({"temperature": "hot"}, 400, "temperature must be a number"),
        ({"top_p": 0}, 400, "top_p must be in"),
        ({"seed": 2**64}, 400, "seed must be an integer of 64 bits"),
        ({"stop_token_ids": 3}, 400, "stop_token_ids must be a list"),
        ({"logit_bias": {"x": 1}}, 400, "logit_bias must name tokens"),
        ({"logit_bias": [1]}, 400, "logit_bias must be an object"),
        ({"logit_bias": {"16": 1}}, 400, "logit_bias must have tokens from 0 to 15, got 16"),
        ({"stop_token_ids": [-1]}, 400, "stop_token_ids must have tokens from 0 to 15, got -1"),
        ({"vllm_xargs": {"sharpwave_keys": [1]}}, 400, "sharpwave_keys must have 3 numbers"),
        ({"vllm_xargs": {"mine": 1}}, 400, "vllm_xargs may have"),
    ],
)
def test_what_cannot_be_answered_is_named(
    server: ModelServer, fields: dict[str, Any], status: int, said: str
) -> None:
    got, found = ask(server, "/v1/completions", {**QUESTION, **fields})
    assert got == status
    assert said in message(found)


def test_bodies_are_bounded_and_json(server: ModelServer) -> None:
    assert ask(server, "/v1/completions", b"{")[0] == 400
    assert ask(server, "/v1/completions", b"[1]")[0] == 400
    assert ask(server, "/nothing")[0] == 404
    assert ask(server, "/v1/completions")[0] == 404
    assert ask(server, "/health", b"{}", **{"Content-Length": "-1"})[0] == 411
    large = {"Content-Length": str(server.max_body + 1)}
    status, found = ask(server, "/v1/completions", b"", **large)
    assert status == 413
    assert "at most" in message(found)
    nested = b"[" * 100_000
    assert ask(server, "/v1/completions", nested)[0] == 400


def test_pages_of_a_browser_are_not_answered(server: ModelServer) -> None:
    assert ask(server, "/health", Host="evil.example")[0] == 403
    assert ask(server, "/pause", {}, Origin="http://evil.example")[0] == 403
    assert not server.engine.is_paused


def test_a_token_is_always_asked_for() -> None:
    made = ModelServer(make("transformer"), "tiny", token="secret")
    with made, made.running():
        for path in ("/health", "/v1/models"):
            assert ask(made, path)[0] == 401
            assert ask(made, path, Authorization="Bearer other")[0] == 401
            assert ask(made, path, Authorization="Bearer secret")[0] == 200
        assert ask(made, "/v1/completions", QUESTION)[0] == 401
        assert ask(made, "/v1/completions", QUESTION, Authorization="Bearer secret")[0] == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_others_can_reach_it_only_with_a_token(host: str) -> None:
    before = threading.active_count()
    with pytest.raises(ValueError, match="token must be given for host"):
        ModelServer(make("transformer"), "tiny", host=host)
    with pytest.raises(ValueError, match="token must not be empty"):
        ModelServer(make("transformer"), "tiny", host=host, token="")
    assert threading.active_count() == before


def test_weights_change_all_at_once(server: ModelServer, tmp_path: Path) -> None:
    module = server.engine.model.module
    other = make("transformer")
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(-1)
    write_weights(tmp_path / "new", other)
    before = complete(server)

    def post(path: str, **body: Any) -> None:
        status, found = ask(server, path, body)
        assert status == 200, found

    post("/pause?mode=wait")
    assert ask(server, "/is_paused") == (200, {"is_paused": True})
    post("/init_weight_transfer_engine", init_info={})
    post("/start_weight_update")
    post("/update_weights", update_info={"path": str(tmp_path / "new")})
    assert not torch.equal(next(module.parameters()), next(other.parameters()))
    post("/finish_weight_update", weight_version="12")
    post("/resume")
    for name, weights in module.state_dict().items():
        assert torch.equal(weights, other.state_dict()[name])
    after = complete(server)
    assert (before["weight_version"], after["weight_version"]) == ("0", "12")
    assert before["choices"] != after["choices"]
    post("/start_weight_update")
    post("/update_weights", update_info={"path": str(tmp_path / "new")})
    post("/finish_weight_update")
    assert complete(server)["weight_version"] == "13"


def test_only_whole_weights_of_the_model_are_taken(
    server: ModelServer, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    module = server.engine.model.module
    before = {name: one.clone() for name, one in module.state_dict().items()}
    good, elsewhere = tmp_path / "good", tmp_path_factory.mktemp("elsewhere")
    write_weights(good, module)
    write_weights(elsewhere, module)
    write_weights(tmp_path / "other", nn.Linear(2, 2))
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    content = bytearray((good / "model.safetensors").read_bytes())
    content[-5] ^= 1
    (damaged / "model.safetensors").write_bytes(content)
    (tmp_path / "link").symlink_to(elsewhere)
    (tmp_path / "empty").mkdir()

    def refused(status: int, said: str, **info: Any) -> None:
        assert ask(server, "/start_weight_update", {})[0] == 200
        got, found = ask(server, "/update_weights", {"update_info": info})
        assert got == status
        assert said in message(found)
        got, found = ask(server, "/finish_weight_update", {})
        assert got == 400
        assert "no weights were given" in message(found)

    refused(400, "checksum", path=str(damaged))
    refused(400, "weights of another model", path=str(tmp_path / "other"))
    refused(400, "there are no weights here", path=str(tmp_path / "empty"))
    refused(403, "path must lie in", path=str(elsewhere))
    refused(403, "path must lie in", path=str(tmp_path / "link"))
    refused(403, "path must lie in", path=str(tmp_path / "good/../../x"))
    refused(403, "path must lie in", path="good")
    refused(400, "unpickled", ipc_handles_pickled="gASV")
    refused(400, "a path and nothing else", path=str(good), names=["x"])
    refused(400, "a path and nothing else")
    assert ask(server, "/update_weights", {})[0] == 400
    assert ask(server, "/finish_weight_update", {"weight_version": "new"})[0] == 400
    assert ask(server, "/init_weight_transfer_engine", {"init_info": {"master": 1}})[0] == 400
    assert ask(server, "/pause?mode=abort", {})[0] == 400
    for name, weights in module.state_dict().items():
        assert torch.equal(weights, before[name])
    assert server.engine.version == 0


def test_weights_stay_where_no_folder_is_given(tmp_path: Path) -> None:
    made = ModelServer(make("transformer"), "tiny")
    write_weights(tmp_path, made.engine.model.module)
    with made, made.running():
        status, found = ask(made, "/update_weights", {"update_info": {"path": str(tmp_path)}})
    assert status == 403
    assert "no folder for weights" in message(found)


@pytest.mark.parametrize("kind", ["transformer", pytest.param("Llama", marks=pytest.mark.long)])
def test_weights_go_through_a_file(kind: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"tie_word_embeddings": True} if kind == "Llama" else {}
    from tests.unit.llm.models import hugging_face

    source = hugging_face(kind, **options) if options else make(kind)
    target = hugging_face(kind, **options) if options else make(kind)
    with torch.no_grad():
        for parameter in source.parameters():
            parameter.add_(0.25)
    write_weights(tmp_path, source)
    assign_weights(target, read_weights(tmp_path, target))
    for name, weights in target.state_dict().items():
        assert torch.equal(weights, source.state_dict()[name])
    if options:
        # What other programs read has each tied tensor once, under the first of its names.
        safetensors = pytest.importorskip("safetensors.torch")
        names = set(safetensors.load_file(tmp_path / "model.safetensors"))
        assert "model.embed_tokens.weight" in names
        assert "lm_head.weight" not in names


class Slow(Plain):
    """A model that counts its passes, and waits in the first until it is let go."""

    def __init__(self) -> None:
        super().__init__(make("transformer"))
        self.begun, self.go, self.widths = threading.Event(), threading.Event(), []  # type: ignore

    def forward(self, ids: torch.Tensor) -> Any:
        """Logits, when it may."""
        self.widths.append(len(ids))
        if self.begun.is_set() or len(ids) > 1 or ids.shape[1] > 1:
            self.begun.set()
            assert self.go.wait(30)
        return super().forward(ids)


def test_requests_that_wait_are_answered_together() -> None:
    model = Slow()
    engine = Engine(model)
    answers: dict[int, Any] = {}

    def run(number: int, n: int = 2) -> threading.Thread:
        question = Question(prompts=[[1, 2 + number]], keys=[number], n=n, max_new_tokens=2)
        thread = threading.Thread(
            target=lambda: answers.__setitem__(number, engine.complete(question))
        )
        thread.start()
        return thread

    threads = [run(0)]
    assert model.begun.wait(30)
    threads += [run(number) for number in (1, 2, 3)] + [run(4, n=1)]
    deadline = time.monotonic() + 30
    while len(engine._waiting) < 4 and time.monotonic() < deadline:
        time.sleep(0.005)
    model.widths.clear()
    model.go.set()
    for thread in threads:
        thread.join(30)
    # One step more of the first, then three requests in one, then the one of another kind.
    assert model.widths == [2, 3, 6, 1, 1]
    sampler = Sampler(make("transformer"))
    for number in range(5):
        n = 1 if number == 4 else 2
        alone = sampler.generate([[1, 2 + number]], n, 2, keys=[number])
        assert [one.tokens for one in answers[number][0]] == [one.tolist() for one in alone]
    engine.close()


def test_what_waits_when_it_closes_is_turned_away() -> None:
    engine = Engine(make("transformer"))
    engine.pause()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            engine.complete(Question(prompts=[[1]], keys=[0]))
        except EngineClosed as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while not engine._waiting:
        time.sleep(0.005)
    engine.close()
    thread.join(30)
    assert len(errors) == 1
    with pytest.raises(EngineClosed):
        engine.complete(Question(prompts=[[1]], keys=[0]))


def test_nothing_is_left_when_it_ends(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    made = ModelServer(make("transformer"), "tiny", weights=tmp_path)
    with made, made.running():
        silent = socket.create_connection(("127.0.0.1", made.server_port))
        complete(made)
        complete(made)
    silent.close()
    for thread in set(threading.enumerate()) - before:
        thread.join(30)
    assert set(threading.enumerate()) <= before
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", made.server_port))


def test_a_model_that_fails_fails_its_request_alone(server: ModelServer) -> None:
    module = server.engine.model.module
    weights = next(module.parameters())
    kept = weights.detach().clone()
    with torch.no_grad():
        weights.fill_(torch.nan)
    status, found = ask(server, "/v1/completions", {**QUESTION, "temperature": 0})
    assert status == 500
    assert "gave NaN or inf" in message(found)
    with torch.no_grad():
        weights.copy_(kept)
    complete(server)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=4)
    | st.integers(-1, 16),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    made = Engine(make("transformer"))
    yield made
    made.close()


@pytest.mark.long
@settings(max_examples=examples(120), deadline=None)
@given(fields=st.dictionaries(st.sampled_from(sorted(KNOWN)), VALUES, max_size=4))
def test_no_request_breaks_the_server(engine: Engine, fields: dict[str, Any]) -> None:
    """Whatever a request says is answered or refused, never an error of the server's own."""
    body = {**QUESTION, "max_tokens": 2, **{x: y for x, y in fields.items() if y is not None}}
    try:
        body.pop("model", None)
        pop_log_probs(body)
        question = parse_question(body, 0, lambda count: list(range(count)))
        written, _ = engine.complete(replace(question, n=min(question.n, 2)))
    except (TypeError, ValueError):
        return
    assert len(written) == len(question.prompts) * min(question.n, 2)
