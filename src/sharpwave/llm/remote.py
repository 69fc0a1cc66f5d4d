"""Sampling from a model on a server: the face of `Sampler`, over HTTP."""

from __future__ import annotations

import copy
import math
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sharpwave.llm.client import Client, SamplerFailed, Unanswered
from sharpwave.llm.completions import Completions
from sharpwave.llm.draw import Options
from sharpwave.llm.model import CausalModel
from sharpwave.llm.sampler import check_prompts
from sharpwave.llm.weights import write_weights

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["RemoteSampler"]

_TRANSPORTS = {
    "ipc": "it hands over pickled memory handles, and what is unpickled runs code of its sender",
    "nccl": "only snapshots by path ('disk') are given",
}


class RemoteSampler:
    """Draws completions from a model on a server: `sharpwave serve-model`, or vLLM.

    Tokens go there and come back, with the log-probabilities of those that were drawn; an answer
    that lacks one of these is refused. From `sharpwave serve-model` the texts are those that a
    `Sampler` with the same options would draw.

    With `weights`, the server is given the weights of a local model before it samples whenever
    `version` has changed, as a snapshot in `folder`, and every answer must be of that version.

    Args:
        url: Address of the server, such as `http://127.0.0.1:8000`.
        model: The model's name there.
        token: Bearer token of requests.
        timeout: Seconds for one request, from the connection to the last byte of the answer.
        retries: Number of retries of a failed request, with exponential backoff.
        weights: The local model whose weights the server is to have; None leaves it its own.
        folder: Folder of snapshots of these weights, which the server must be able to read under
            the same path.
        transport: Transport of the weights: "disk".
        max_staleness: Versions by which an answer may be older than the weights that were given.
        stop: Tokens that end a completion, beside those of the server's model and of `weights`.
        seed: Seed of all draws.
        **options: Fields of `sharpwave.llm.draw.Options`, such as `temperature` and `top_p`.

    Attributes:
        drawn: Prompts so far; the next one has this number.

    Raises:
        TypeError: An option does not exist.
        ValueError: An option has an impossible value, or `weights` comes without `folder`.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        token: str | None = None,
        timeout: float = 600.0,
        retries: int = 4,
        weights: Any = None,
        folder: str | Path | None = None,
        transport: str = "disk",
        max_staleness: int = 0,
        stop: Iterable[int] = (),
        seed: int = 0,
        **options: Any,
    ) -> None:
        if transport != "disk":
            reason = _TRANSPORTS.get(transport, "there is no such way")
            raise ValueError(f"transport must be 'disk', got {transport!r}: {reason}")
        if (weights is None) != (folder is None):
            raise ValueError("weights and folder must be given together, got one of them")
        if max_staleness < 0:
            raise ValueError(f"max_staleness must be at least 0, got {max_staleness}")
        stop = tuple(stop)
        if any(isinstance(token, str) for token in stop):
            raise TypeError(f"stop must hold tokens, since no text goes to a server, got {stop}")
        self.client = Client(url, token, timeout, retries)
        self.name = model
        self.weights = None if weights is None else CausalModel.of(weights)
        self.folder = None if folder is None else Path(folder).absolute()
        self.max_staleness = max_staleness
        self.options = Options(**options)
        ends = () if self.weights is None else self.weights.eos
        self.stop = tuple(sorted({*ends, *(int(token) for token in stop)}))
        self.seed = seed
        self.drawn = 0
        self._version = 0
        self._taken: int | None = None
        self._given: int | None = None

    @property
    def version(self) -> int:
        """Of the weights to sample with, which whoever changes them counts."""
        return self._version

    @version.setter
    def version(self, version: int) -> None:
        if version != self._version and self.weights is None:
            raise ValueError(
                "weights must be given to a RemoteSampler whose model learns: the server would "
                "go on with those that it has"
            )
        self._version = version

    @property
    def follows(self) -> bool:
        """True if the server receives the weights of a model that learns."""
        return self.weights is not None

    def follower(self) -> Self:
        """The same for weights of another version, with a snapshot of its own."""
        made = copy.copy(self)
        made._taken = made._given = None
        return made

    def take(self, version: int) -> None:
        """Write a snapshot of the weights as they are now, which have this version."""
        assert self.weights is not None
        assert self.folder is not None
        self.version = version
        before, self._taken = self._taken, version
        write_weights(self._snapshot(version), self.weights.module)
        if before is not None and before != version:
            shutil.rmtree(self._snapshot(before), ignore_errors=True)

    def generate(
        self,
        prompts: Any,
        n: int = 1,
        max_new_tokens: int = 64,
        *,
        keys: Sequence[int] | None = None,
    ) -> Completions:
        """Draw completions of prompts.

        Args:
            prompts: Tokens [B, P], or one sequence of tokens for each prompt.
            n: Completions of each prompt.
            max_new_tokens: Maximum number of tokens of a completion.
            keys: Numbers of the prompts, which with the seed determine their samples; those that
                follow `drawn` when not given.

        Raises:
            SamplerFailed: The server does not answer in time, refuses, or answers with another
                model, old weights, text, no log-probabilities, or tokens that were not asked for.
            ValueError: A prompt is empty, has a token outside the vocabulary, or leaves no room.
        """
        tokens = self._prompts(prompts, max_new_tokens)
        for name, value in (("n", n), ("max_new_tokens", max_new_tokens)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if keys is None:
            keys = range(self.drawn, self.drawn + len(tokens))
            self.drawn += len(tokens)
        elif len(keys) != len(tokens):
            raise ValueError(f"keys must have {len(tokens)} numbers, got {len(keys)}")
        question = self._question([one.tolist() for one in tokens], n, max_new_tokens, list(keys))
        if self.weights is not None and self._taken != self.version:
            self.take(self.version)
        answer, version = self.client.insist(lambda: self._ask(question))
        return self._completions(answer, tokens, n, max_new_tokens, version)

    def state_dict(self) -> dict[str, Any]:
        """State of the draws, for a checkpoint."""
        return {"drawn": self.drawn, "version": self.version}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.drawn, self.version = int(state["drawn"]), int(state["version"])
        self._taken = self._given = None

    def _prompts(self, prompts: Any, max_new_tokens: int) -> list[Tensor]:
        """Prompts as tokens; where there is a model here, checked, and where it lives."""
        if self.weights is not None:
            return check_prompts(prompts, self.weights, max_new_tokens)
        tokens = [torch.as_tensor(prompt, dtype=torch.int64).reshape(-1) for prompt in prompts]
        if not tokens or any(len(one) == 0 or int(one.min()) < 0 for one in tokens):
            raise ValueError("prompts must hold at least one, each of tokens from 0 on")
        return tokens

    def _question(
        self, prompts: list[list[int]], n: int, max_new_tokens: int, keys: list[int]
    ) -> dict[str, Any]:
        options = self.options
        question: dict[str, Any] = {
            "model": self.name,
            "prompt": prompts,
            "n": n,
            "max_tokens": max_new_tokens,
            "temperature": options.temperature,
            "top_p": options.top_p,
            "top_k": options.top_k,
            "min_p": options.min_p,
            "repetition_penalty": options.repetition_penalty,
            "min_tokens": options.min_tokens,
            "stop_token_ids": list(self.stop),
            "logprobs": 0,
            "return_token_ids": True,
            # Of servers that do not know the numbers of prompts: another one for each call.
            "seed": (self.seed * 0x9E3779B97F4A7C15 + keys[0] * 0x2545F4914F6CDD1D) % 2**63,
            "vllm_xargs": {"sharpwave_seed": self.seed, "sharpwave_keys": keys},
        }
        if options.logit_bias:
            question["logit_bias"] = {str(token): x for token, x in options.logit_bias.items()}
        return question

    # One try

    def _ask(self, question: dict[str, Any]) -> tuple[dict[str, Any], int]:
        """An answer of the right model and weights."""
        if self.weights is not None and self._given != self.version:
            self._give()
        answer = self.client.post("/v1/completions", question)
        if not isinstance(answer, dict) or not isinstance(answer.get("choices"), list):
            raise self._refused(f"must answer with choices, got {answer!r:.100}")
        if answer.get("model") != self.name:
            got = answer.get("model")
            raise self._refused(f"must sample from model {self.name!r}, got {got!r:.100}")
        if any(one.get("finish_reason") == "abort" for one in answer["choices"]):
            raise Unanswered("completions were broken off")
        return answer, self._version_of(answer)

    def _version_of(self, answer: dict[str, Any]) -> int:
        """The version of the weights that wrote an answer."""
        said = answer.get("weight_version")
        if said is None and self.weights is not None:
            # vLLM does not say it in an answer; nobody but us changes its weights.
            said = (self.client.get("/weight_info") or {}).get("weight_version")
        known = said if isinstance(said, str) and said.isascii() and said.isdigit() else None
        if self.weights is None:
            return int(known or 0)
        if known is None:
            raise self._refused(f"must say the version of its weights, got {said!r:.40}")
        if not self.version - self.max_staleness <= int(known) <= self.version:
            self._given = None  # it was started anew, or someone else gave it weights
            raise Unanswered(
                f"its weights have version {known}, and should have {self.version}"
                + (f" or at most {self.max_staleness} less" if self.max_staleness else "")
            )
        return int(known)

    def _give(self) -> None:
        """Let the server take the snapshot, between two of its answers."""
        client = self.client
        path = str(self._snapshot(self.version))
        client.post("/pause?mode=wait")
        try:
            client.post("/init_weight_transfer_engine", {"init_info": {}})
            client.post("/start_weight_update")
            client.post("/update_weights", {"update_info": {"path": path}})
            client.post("/finish_weight_update", {"weight_version": str(self.version)})
        finally:
            client.post("/resume")
        self._given = self.version

    def _snapshot(self, version: int) -> Path:
        assert self.folder is not None
        return self.folder / f"version-{version}"

    # What came

    def _completions(
        self,
        answer: dict[str, Any],
        prompts: list[Tensor],
        n: int,
        max_new_tokens: int,
        version: int,
    ) -> Completions:
        choices, total = answer["choices"], len(prompts) * n
        if sorted(_indices(choices)) != list(range(total)):
            raise self._refused(f"must give completions 0 to {total - 1}, got {len(choices)}")
        choices = sorted(choices, key=lambda one: one["index"])
        for one in choices:
            self._check(one, max_new_tokens)
        device = prompts[0].device
        lengths = torch.tensor([0, *(len(one["token_ids"]) for one in choices)], device=device)
        log_probs, plain = (
            torch.tensor([x for one in choices for x in column(one)], device=device)
            for column in (_log_probs, self._plain)
        )
        return Completions(
            prompts=prompts,
            prompt=torch.arange(total, device=device) // n,
            tokens=torch.tensor(
                [x for one in choices for x in one["token_ids"]], dtype=torch.int64, device=device
            ),
            offsets=lengths.cumsum(0),
            log_probs=log_probs,
            plain_log_probs=plain,
            finished=torch.tensor([x["finish_reason"] == "stop" for x in choices], device=device),
            version=version,
        )

    def _check(self, choice: dict[str, Any], max_new_tokens: int) -> None:
        """Refuse a completion that cannot be learned from."""
        index, tokens = choice["index"], choice.get("token_ids")
        if not isinstance(tokens, list):
            raise self._refused(f"must give token_ids, got text alone for completion {index}")
        most = math.inf if self.weights is None else self.weights.vocab_size
        if any(type(token) is not int or not 0 <= token < most for token in tokens):
            raise self._refused(
                f"must give tokens from 0 to {most - 1:g}, got others for completion {index}"
            )
        if len(tokens) > max_new_tokens:
            raise self._refused(
                f"must give at most {max_new_tokens} tokens, got {len(tokens)} for completion "
                f"{index}"
            )
        if choice.get("finish_reason") not in ("stop", "length"):
            got = choice.get("finish_reason")
            raise self._refused(f"must end by 'stop' or 'length', got {got!r:.40}")
        for found in (_log_probs(choice), self._plain(choice)):
            if not isinstance(found, list) or len(found) != len(tokens):
                raise self._refused(
                    f"must give a log-probability for each token, got {found!r:.60}"
                )
            if not all(type(x) in (int, float) and math.isfinite(x) for x in found):
                raise self._refused(f"must give finite log-probabilities, got {found!r:.60}")

    def _plain(self, choice: dict[str, Any]) -> Any:
        """Log-probabilities under softmax(logits / temperature)."""
        logprobs = choice.get("logprobs") or {}
        found = logprobs.get("plain_token_logprobs")
        if found is None:
            whole = Options(temperature=self.options.temperature)
            if self.options != whole:
                raise self._refused(
                    "gives log-probabilities of one kind, which are those that learning computes "
                    f"only where tokens are drawn from all: options must be {whole}, "
                    f"got {self.options}"
                )
            found = logprobs.get("token_logprobs")
        return found

    def _refused(self, reason: str) -> SamplerFailed:
        return SamplerFailed(f"{self.client.url} {reason}")


def _log_probs(choice: dict[str, Any]) -> Any:
    return (choice.get("logprobs") or {}).get("token_logprobs")


def _indices(choices: list[Any]) -> list[int]:
    return [
        x["index"] if isinstance(x, dict) and type(x.get("index")) is int else -1 for x in choices
    ]
