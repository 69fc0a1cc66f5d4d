"""Parsing of requests for completions: the fields of vLLM, validated."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from sharpwave.core.suggest import did_you_mean
from sharpwave.llm.draw import Options
from sharpwave.llm.engine import Question

__all__ = ["KNOWN", "parse_question", "pop_log_probs"]

MAX_COMPLETIONS = 1 << 16
"""Completions that one request may ask for."""
MAX_TOKENS = 1 << 20
"""Tokens of a completion, of models that do not say how long a sequence may be."""

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "add_special_tokens": (True, False),
    "best_of": (1,),
    "echo": (False,),
    "frequency_penalty": (0,),
    "ignore_eos": (False,),
    "presence_penalty": (0,),
    "skip_special_tokens": (True, False),
    "stop": ([],),
    "stream": (False,),
    "use_beam_search": (False,),
}
"""Fields of a request that others send too, with the values that ask for nothing."""
_DRAWS = "temperature", "top_p", "min_p", "repetition_penalty"


def pop_log_probs(body: dict[str, Any]) -> bool:
    """Return whether a request asks for log-probabilities; removes the fields on its answer.

    Raises:
        ValueError: It asks for text, or for other log-probabilities than those of drawn tokens.
    """
    if body.pop("return_token_ids", False) is not True:
        raise ValueError("return_token_ids must be true: completions are tokens, never text")
    found = body.pop("logprobs", None)
    if found not in (None, 0, 1) or isinstance(found, float):
        raise ValueError(
            f"logprobs must be 0 or 1, those of the drawn tokens alone, got {found!r:.40}"
        )
    return found is not None


def parse_question(
    body: dict[str, Any], seed: int, numbers: Callable[[int], list[int]]
) -> Question:
    """The question of a request.

    Args:
        body: Its fields; those that are known are taken off.
        seed: Seed of the draws, where it has none.
        numbers: Gives so many prompts their numbers, where it brings neither these nor a seed.

    Raises:
        ValueError: A field is malformed, or would change what is asked for and is not known.
    """
    prompts = _prompts(body.pop("prompt", None))
    n = _integer(body, "n", 1, least=1)
    if len(prompts) * n > MAX_COMPLETIONS:
        raise ValueError(
            f"prompts times n must be at most {MAX_COMPLETIONS}, got {len(prompts)} times {n}"
        )
    max_new_tokens = _integer(body, "max_tokens", 16, least=1)
    if max_new_tokens > MAX_TOKENS:
        raise ValueError(f"max_tokens must be at most {MAX_TOKENS}, got {max_new_tokens}")
    seed, keys = _draws(body, len(prompts), seed, numbers)
    stop = tuple(_integers(body.pop("stop_token_ids", []), "stop_token_ids"))
    options = _options(body)
    for name, value in body.items():
        if name not in _NEUTRAL:
            raise ValueError(f"unknown field {name!r:.60}{did_you_mean(name, KNOWN)}")
        if value not in _NEUTRAL[name]:
            raise ValueError(f"{name} must be {_NEUTRAL[name][0]!r}, got {value!r:.60}")
    return Question(
        prompts=prompts,
        keys=keys,
        n=n,
        max_new_tokens=max_new_tokens,
        seed=seed,
        stop=stop,
        options=options,
    )


KNOWN = {
    *("model", "prompt", "n", "max_tokens", "seed", "stop_token_ids", "vllm_xargs"),
    *("top_k", "min_tokens", "logit_bias", "logprobs", "return_token_ids", *_DRAWS),
    *_NEUTRAL,
}


def _prompts(found: Any) -> list[list[int]]:
    if not isinstance(found, list) or not found:
        raise ValueError("prompt must be lists of tokens, [[...], ...], and never text")
    rows = found if isinstance(found[0], list) else [found]
    return [_integers(row, "prompt") for row in rows]


def _draws(
    body: dict[str, Any], count: int, seed: int, numbers: Callable[[int], list[int]]
) -> tuple[int, list[int]]:
    """The seed of a request and the numbers of its prompts.

    vLLM keeps `vllm_xargs` for what a server may know and others need not: a `RemoteSampler` puts
    there what makes its texts those of a `Sampler`.
    """
    given = body.pop("vllm_xargs", {})
    if not isinstance(given, dict) or given.keys() - {"sharpwave_seed", "sharpwave_keys"}:
        raise ValueError(
            f"vllm_xargs may have sharpwave_seed and sharpwave_keys, got {given!r:.80}"
        )
    has_seed = "seed" in body
    seed = _integer(body, "seed", seed)
    keys = _integers(given.pop("sharpwave_keys", []), "sharpwave_keys")
    if keys and len(keys) != count:
        raise ValueError(f"sharpwave_keys must have {count} numbers, got {len(keys)}")
    seed = _integer(given, "sharpwave_seed", seed)
    if not keys:
        keys = list(range(count)) if has_seed else numbers(count)
    return seed, keys


def _options(body: dict[str, Any]) -> Options:
    found: dict[str, Any] = {}
    for name in _DRAWS:
        if name in body:
            found[name] = _number(body.pop(name), name)
    top_k = _integer(body, "top_k", 0)
    bias = body.pop("logit_bias", {})
    if not isinstance(bias, dict):
        raise TypeError(f"logit_bias must be an object, got {bias!r:.60}")
    return Options(
        **found,
        top_k=0 if top_k == -1 else top_k,  # -1 takes all, too
        min_tokens=_integer(body, "min_tokens", 0, least=0),
        logit_bias={_token(name): _number(value, "logit_bias") for name, value in bias.items()},
    )


def _integer(body: dict[str, Any], name: str, default: int, *, least: int = -(2**63)) -> int:
    value = body.pop(name, default)
    if type(value) is not int or not least <= value < 2**63:
        wanted = f"an integer of at least {least}" if least >= 0 else "an integer of 64 bits"
        raise ValueError(f"{name} must be {wanted}, got {value!r:.60}")
    return value


def _integers(found: Any, name: str) -> list[int]:
    if not isinstance(found, list) or any(type(x) is not int or abs(x) >= 2**63 for x in found):
        raise ValueError(f"{name} must be a list of integers, got {found!r:.60}")
    return found


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} must be a number, got {value!r:.60}")
    return float(value)


def _token(name: str) -> int:
    if not (name.isascii() and name.isdigit()) or len(name) > 18:
        raise ValueError(f"logit_bias must name tokens, got {name!r:.60}")
    return int(name)
