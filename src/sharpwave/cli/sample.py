"""`sharpwave sample`."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from sharpwave.cli.folders import find_checkpoint
from sharpwave.cli.parser import Parser, count
from sharpwave.cli.terminal import UserError, input_errors, say
from sharpwave.core.lazy import llm
from sharpwave.pages.samples import as_text
from sharpwave.storage.checkpoints import read_header

if TYPE_CHECKING:
    from sharpwave.llm import CausalModel

FROM_INPUT = "-"


def run(arguments: list[str]) -> int:
    """Complete prompts, and return the exit status."""
    parsed = _parser().parse(arguments)
    path = find_checkpoint(parsed.run)

    from sharpwave.agents import load_run

    with input_errors():
        model = load_run(path, parsed.device)
        options = _options(parsed, read_header(path)["config"])
        length = options.pop("max_new_tokens")
        prompts = llm.Prompts.of(_prompts(parsed, model), model.tokenizer)
        written = llm.Sampler(model, **options).generate(prompts.tokens, parsed.n, length)
    several = len(parsed.prompts) > 1
    for row, ids in enumerate(written):
        prompt = parsed.prompts[row // parsed.n]
        completion = ids.tolist()
        if model.tokenizer is not None:
            completion = model.tokenizer.decode(completion, skip_special_tokens=True)
        if parsed.json:
            finished = bool(written.finished[row])
            told = {"prompt": prompt, "completion": completion, "finished": finished}
            say(json.dumps(told, ensure_ascii=False))
        else:
            say(f"{prompt} → {as_text(completion)}" if several else as_text(completion))
    return 0


def _options(parsed: argparse.Namespace, config: dict[str, Any]) -> dict[str, Any]:
    """Options of sampling: those of the run, where no others are given."""
    names = ("temperature", "top_p", "top_k", "max_new_tokens")
    given = {name: getattr(parsed, name) for name in names}
    found = {name: config[name] if value is None else value for name, value in given.items()}
    return {**found, "seed": parsed.seed, **({"temperature": 0.0} if parsed.greedy else {})}


def _prompts(parsed: argparse.Namespace, model: CausalModel) -> list[Any]:
    """Prompts to complete: text, messages of a chat, or tokens where the model has no tokenizer."""
    if parsed.prompts == [FROM_INPUT]:
        parsed.prompts = sys.stdin.read().splitlines()
    if parsed.chat:
        return [[{"role": "user", "content": text}] for text in parsed.prompts]
    if model.tokenizer is not None:
        return list(parsed.prompts)
    try:
        return [[int(token) for token in text.split()] for text in parsed.prompts]
    except ValueError:
        raise UserError("PROMPT must be numbers of tokens: the model has no tokenizer") from None


def _parser() -> Parser:
    parser = Parser("sample", "Let the language model of a run complete prompts.")
    parser.add_argument("run", metavar="RUN", help="a checkpoint, or a run folder: its best one")
    parser.add_argument(
        "prompts",
        metavar="PROMPT",
        nargs="+",
        help="prompts to complete; - reads a prompt from each line of standard input",
    )
    parser.add_argument(
        "-n", type=count(1), default=1, metavar="N", help="completions of each prompt (default: 1)"
    )
    parser.add_argument("--greedy", action="store_true", help="take the most likely tokens")
    of_the_run = "(default: that of the run)"
    parser.add_argument(
        "--temperature", type=float, metavar="X", help=f"temperature of sampling {of_the_run}"
    )
    parser.add_argument(
        "--top-p",
        type=float,
        metavar="X",
        help=f"sample from the most likely tokens that have this probability {of_the_run}",
    )
    parser.add_argument(
        "--top-k",
        type=count(0),
        metavar="N",
        help=f"sample from so many of the most likely tokens; 0 takes all {of_the_run}",
    )
    parser.add_argument(
        "--max-new-tokens",
        type=count(1),
        metavar="N",
        help=f"maximum length of a completion {of_the_run}",
    )
    parser.add_argument(
        "--seed", type=count(0), default=0, metavar="N", help="seed of the draws (default: 0)"
    )
    parser.add_argument(
        "--chat",
        action="store_true",
        help="a prompt is the message of a user, in the chat template",
    )
    parser.add_argument("--json", action="store_true", help="a JSON object for each completion")
    parser.add_argument("--device", metavar="NAME", help="device of the model, such as cuda:1")
    return parser
