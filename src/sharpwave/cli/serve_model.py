"""`sharpwave serve-model`."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sharpwave.cli.folders import existing
from sharpwave.cli.listening import ending
from sharpwave.cli.parser import Parser, count
from sharpwave.cli.terminal import UserError, input_errors, say
from sharpwave.core.lazy import llm, torch
from sharpwave.storage.run_folder import RunFolder

if TYPE_CHECKING:
    from sharpwave.llm import CausalModel

TOKEN = "SHARPWAVE_TOKEN"
"""The variable that has the token where no option does, so that no list of processes shows it."""


def run(arguments: list[str]) -> int:
    """Answer requests until Ctrl-C or SIGTERM, and return the exit status."""
    parsed = _parser().parse(arguments)
    path = existing(parsed.model)
    with input_errors():
        model = _load(path, _device(parsed.device), parsed.dtype)
        server = llm.ModelServer(
            model,
            parsed.name or path.resolve().name,
            host=parsed.host,
            port=parsed.port,
            token=parsed.token or os.environ.get(TOKEN),
            weights=parsed.weights,
            seed=parsed.seed,
            max_rows=parsed.max_rows,
            cache_tokens=parsed.cache_tokens,
        )
    with server, ending():
        weights = f", with weights from {server.weights}" if server.weights else ""
        say(f"{server.url} samples from {server.name} on {model.device}{weights}, until Ctrl-C")
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
        say("stopped")
    return 0


def _load(path: Path, device: str | None, dtype: str) -> CausalModel:
    """The model of a run, of a checkpoint, or of a folder that Hugging Face wrote."""
    if not (path / "config.json").is_file() or RunFolder(path).is_ours:
        from sharpwave.agents import load_run

        return load_run(path, device)
    from sharpwave.core.optional import require

    transformers: Any = require("transformers", extra="llm")
    options = {"local_files_only": True, "trust_remote_code": False}
    module = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=dtype, **options)
    tokenizer = None
    if (path / "tokenizer_config.json").is_file():  # it says which token ends a text
        tokenizer = transformers.AutoTokenizer.from_pretrained(path, **options)
    module = llm.placed(module) if device is None else module.to(device)
    return llm.CausalModel.of(module.eval(), tokenizer)


def _device(name: str) -> str | None:
    """A device that is there; None leaves the choice to whoever loads the model."""
    if name == "auto":
        return None
    try:
        torch.empty(0, device=name)
    except (AssertionError, RuntimeError) as error:
        raise UserError(f"--device {name}: {error}") from None
    return name


def _parser() -> Parser:
    parser = Parser(
        "serve-model", "Let other processes sample from a model: tokens over HTTP, as vLLM does."
    )
    parser.add_argument(
        "model", metavar="RUN", help="run folder, checkpoint, or folder of a Hugging Face model"
    )
    parser.add_argument("--name", help="name of the model in requests (default: the folder's name)")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen at (default: 127.0.0.1)"
    )
    parser.add_argument(
        "--port", type=count(0), default=8000, metavar="N", help="port to listen at (default: 8000)"
    )
    parser.add_argument(
        "--token", help=f"secret that requests must carry; also as {TOKEN} in the environment"
    )
    parser.add_argument(
        "--weights", metavar="DIR", help="folder that new weights may be taken from"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 (default: auto)")
    parser.add_argument(
        "--dtype",
        default="auto",
        help="data type of a Hugging Face model, such as bfloat16 (default: auto)",
    )
    parser.add_argument(
        "--seed", type=count(0), default=0, metavar="N", help="seed of requests without one"
    )
    parser.add_argument(
        "--max-rows",
        type=count(1),
        default=256,
        metavar="N",
        help="completions at a time (default: 256)",
    )
    parser.add_argument(
        "--cache-tokens", type=count(1), metavar="N", help="capacity of the KV cache, in tokens"
    )
    return parser
