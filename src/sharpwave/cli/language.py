"""The language model of a command, and what it learns from.

Functions that the user names on the command line are imported, from the current folder too. Those
that a file names are not: see `trusted_language`.
"""

from __future__ import annotations

import argparse
import inspect
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sharpwave.algorithms.registry import algorithm_class, is_of_language
from sharpwave.cli.environment import named_object
from sharpwave.cli.parser import Parser, add_config_options, config_options
from sharpwave.cli.run_plan import Plan
from sharpwave.cli.terminal import UserError
from sharpwave.config.config import Config
from sharpwave.config.language_presets import ANSWERS
from sharpwave.core.lazy import llm, nn, torch
from sharpwave.core.optional import require
from sharpwave.core.suggest import did_you_mean

if TYPE_CHECKING:
    from sharpwave.llm import Task

N_PROMPTS, N_EXAMPLES = 20_000, 4_000
"""Numbers of prompts and examples that are made of a task."""

ARGUMENTS = {
    "prompts": "prompts",
    "eval_prompts": "eval_prompts",
    "reward": "reward_fn",
    "preference": "preference_fn",
    "dataset": "dataset",
    "eval_dataset": "eval_dataset",
    "store": "store",
    "cache_reference": "cache_reference",
}
"""Options by which an algorithm is told what to learn from, and arguments of its constructor."""

CODE = ("reward", "preference")
"""Options that name functions."""


@dataclass(frozen=True, kw_only=True)
class LanguageOptions(Config):
    """A language model, and what it learns from."""

    task: str | None = None
    """A small task that needs no files: copy4, sort3, mod10 or even. A small transformer is made
    for it, unless there is a model."""
    model: str | None = None
    """Model to train: the folder of a causal model of Hugging Face, its name on the Hub, or the
    folder of a run."""
    lora: int = 0
    """Rank of the LoRA adapter (PEFT) that is trained in place of the model; 0 for none."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Data type of the weights; auto leaves them as they are."""
    prompts: str | None = None
    """Prompts to complete: a .jsonl or .parquet file with the column prompt."""
    eval_prompts: str | None = None
    """Prompts of evaluations, a file like that of prompts, which are taken when not given."""
    reward: str | None = None
    """Reward function of completions: MODULE:FUNCTION, or several with commas between them, which
    are summed; the score of the task, if there is one, when not given."""
    preference: str | None = None
    """Preference function, which tells the better of two completions, in place of rewards:
    MODULE:FUNCTION."""
    dataset: str | None = None
    """Dataset to learn from: a .jsonl or .parquet file with the column prompt, and completion or
    chosen and rejected; or a folder of completions (store)."""
    eval_dataset: str | None = None
    """Examples of evaluations, a file like the dataset, which is taken when not given."""
    store: str | None = None
    """A folder that keeps all completions with their rewards."""
    cache_reference: str | None = None
    """File that caches the log-probabilities of the reference model on the dataset."""
    eval_size: int = 100
    """Prompts, or examples, of one evaluation."""

    def check(self) -> None:
        """Check the values."""
        self.require_range("lora", 0)
        self.require_positive("eval_size")
        if self.task is not None and self.task not in ANSWERS:
            close = did_you_mean(self.task, ANSWERS) or f" (there are {', '.join(ANSWERS)})"
            raise ValueError(f"unknown task {self.task!r}{close}")


def add_language_options(parser: Parser, algorithm: Any = None) -> None:
    """Add the options of a language model.

    Args:
        parser: The parser to add to.
        algorithm: The algorithm to train; None where that is known from a run, which has a model.
    """
    if algorithm is None:
        add_config_options(parser, LanguageOptions, "language models", only={"task", *ARGUMENTS})
        return
    takes = inspect.signature(algorithm).parameters
    names = {"task", "model", "lora", "dtype", "eval_size"}
    names |= {name for name, argument in ARGUMENTS.items() if argument in takes}
    add_config_options(parser, LanguageOptions, "model and data", only=names)


def language_of(parsed: argparse.Namespace, before: dict[str, Any] | None = None) -> dict[str, Any]:
    """The options that were given, as a plan keeps them.

    Args:
        parsed: Arguments.
        before: Options that they replace.

    Raises:
        TypeError: A text cannot be such a value.
        ValueError: A text cannot be such a value, or there is no such task.
    """
    given = config_options(parsed, LanguageOptions)
    for name in ("model", "prompts", "eval_prompts", "dataset", "eval_dataset"):
        if given.get(name) is not None and Path(given[name]).exists():
            given[name] = str(Path(given[name]).absolute())
    for name in ("store", "cache_reference"):  # which a run makes
        if given.get(name) is not None:
            given[name] = str(Path(given[name]).absolute())
    return LanguageOptions.from_dict({**(before or {}), **given}).to_dict()


def trusted_language(plan: Plan, parsed: argparse.Namespace, run_dir: Path, command: str) -> Plan:
    """The plan of a folder with what was given on the command line.

    Raises:
        UserError: The folder names code that was not named on the command line.
    """
    if not is_of_language(algorithm_class(plan.algorithm)):
        return plan
    given = config_options(parsed, LanguageOptions)
    named = {x: plan.language[x] for x in CODE if plan.language.get(x) and x not in given}
    if named:
        options = [word for name, value in named.items() for word in (f"--{name}", value)]
        again = shlex.join(["sharpwave", command, str(run_dir), *options])
        raise UserError(
            f"{run_dir / Plan.file} names code that would be imported, and a file may not run "
            f"code: if you trust it, go on with `{again}`"
        )
    return plan.replace(language=language_of(parsed, plan.language))


def source_arguments(plan: Plan) -> dict[str, Any]:
    """The arguments of an algorithm's constructor that say what to learn from.

    Raises:
        UserError: One is missing, or is not what it should be.
        ValueError: The task has no such thing.
    """
    options = LanguageOptions.from_dict(plan.language)
    takes = inspect.signature(algorithm_class(plan.algorithm)).parameters
    found: dict[str, Any] = {
        name: getattr(options, option)
        for option, name in ARGUMENTS.items()
        if name in takes and option not in CODE
    }
    for name in CODE:
        if getattr(options, name) is not None:
            found[ARGUMENTS[name]] = _functions(name, getattr(options, name))
    if options.task is not None:
        made = _of_task(llm.TASKS[options.task], takes, options.eval_size)
        if "preference_fn" in found:
            made.pop("reward_fn", None)
        found |= {name: made[name] for name in made if found.get(name) is None}
    has_judge = "reward_fn" in found or "preference_fn" in found
    if "prompts" in takes and found["prompts"] is None:
        raise UserError("--prompts must be given: a .jsonl or .parquet file with the column prompt")
    if "reward_fn" in takes and not has_judge:
        raise UserError("--reward must be given: MODULE:FUNCTION, which scores completions")
    if "dataset" in takes and found["dataset"] is None:
        raise UserError("--dataset must be given: a .jsonl or .parquet file of examples")
    return found


def model_arguments(plan: Plan, seed: int) -> dict[str, Any]:
    """The model that a plan begins with, and its tokenizer.

    Args:
        plan: The plan of the run.
        seed: Of initial weights.

    Raises:
        TypeError: An adapter is asked for, which the model does not take.
    """
    options = LanguageOptions.from_dict(plan.language)
    if options.model is not None:
        module, tokenizer = _loaded(options.model, options.dtype)
    else:
        tokenizer = llm.DigitTokenizer()
        module = nn.Transformer(tokenizer.vocab_size, seed=seed)
    if options.dtype != "auto":
        module = module.to(getattr(torch, options.dtype))
    if options.lora:
        module = _with_adapter(module, options.lora, seed)
    if plan.config.get("device") is None:  # or else the algorithm puts it there
        module = llm.placed(module)
    return {"model": module, "tokenizer": tokenizer}


def _of_task(task: Task, takes: Any, eval_size: int) -> dict[str, Any]:
    """Prompts or examples of a task for an algorithm, with some held out for evaluations."""
    if "prompts" in takes:
        held_out = task.prompts(eval_size, seed=1)
        prompts = task.prompts(N_PROMPTS)
        return {"prompts": prompts, "eval_prompts": held_out, "reward_fn": task.reward}
    make = task.examples if "ref_model" not in takes else task.pairs
    return {"dataset": make(N_EXAMPLES), "eval_dataset": make(eval_size, seed=1)}


def _functions(option: str, names: str) -> Any:
    found = [named_object(f"--{option}", name.strip()) for name in names.split(",")]
    for name, function in zip(names.split(","), found, strict=True):
        if not callable(function):
            raise UserError(f"--{option} must name a function, {name} is {function!r:.60}")
    return found if len(found) > 1 else found[0]


def _loaded(name: str, dtype: str) -> tuple[Any, Any]:
    """A model and its tokenizer, of a run or of Hugging Face; no code of theirs is run."""
    from sharpwave.agents import load_run
    from sharpwave.storage.run_folder import RunFolder

    if RunFolder(name).is_ours or Path(name).suffix == ".safetensors":
        model = load_run(name, "cpu")
        return model.module, model.tokenizer
    transformers = require("transformers", extra="llm")
    module = transformers.AutoModelForCausalLM.from_pretrained(
        name, dtype=dtype, trust_remote_code=False
    )
    return module, transformers.AutoTokenizer.from_pretrained(name, trust_remote_code=False)


def _with_adapter(module: Any, rank: int, seed: int) -> Any:
    if not hasattr(module, "get_output_embeddings"):
        raise TypeError(f"lora needs a causal model of Hugging Face, got {type(module).__name__}")
    peft = require("peft", extra="llm")
    if hasattr(module, "merge_and_unload"):
        module = module.merge_and_unload()  # the adapter of an earlier run
    options = peft.LoraConfig(
        r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return peft.get_peft_model(module, options)
