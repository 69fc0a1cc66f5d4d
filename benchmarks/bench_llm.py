"""Language models on the CPU, beside transformers and TRL: one thread, models made on the spot.

The model is a Llama of 83,520 parameters (hidden 64, two layers); the task is to copy four digits.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from harness import OURS, Operation, Ratio, Row

os.environ.setdefault("HF_HUB_OFFLINE", "1")
UPDATES = 5
NEW_TOKENS = 32
PAIRS = 64
WEIGHTS = 250_000_000
"""Float32 weights of a gigabyte."""


def rows() -> Iterator[Row]:
    yield grpo_update("Llama")
    yield grpo_update("Transformer")
    yield dpo_update("Llama")
    yield dpo_update("Transformer")
    for n_rows, at_least in ((8, 1.8), (64, 1.4)):
        yield sampling(n_rows, at_least, "Llama")
        yield sampling(n_rows, at_least, "Transformer")
    yield Row(
        "saving 1 GB of weights",
        {OURS: our_save, "plain write": plain_write},
        [Ratio("plain write", 0.6)],
        note="a checkpoint with checksums beside one write of the same bytes; new files, synced",
    )


def dpo_update(model: str) -> Row:
    return Row(
        f"DPO update, {PAIRS} pairs of 9 tokens, {model}",
        {OURS: partial(our_dpo_updates, model), "TRL": trl_dpo_updates},
        [Ratio("TRL", 2.0)],
        ops_per_call=UPDATES,
        patience=3,
        note="with log-probabilities of the reference; TRL's includes the start of its trainer",
    )


def grpo_update(model: str) -> Row:
    return Row(
        f"GRPO update, copy4, 16 x 16 completions, {model}",
        {OURS: partial(our_updates, model), "TRL": trl_updates},
        [Ratio("TRL", 1.9)],
        ops_per_call=UPDATES,
        patience=3,
        note="sampling, rewards and one gradient step; TRL's includes the start of its trainer",
    )


def sampling(n_rows: int, at_least: float, model: str) -> Row:
    return Row(
        f"sampling {NEW_TOKENS} tokens, {n_rows} rows, {model}",
        {
            OURS: partial(our_samples, model, n_rows),
            "transformers": partial(their_samples, n_rows),
        },
        [Ratio("transformers", at_least)],
        ops_per_call=n_rows * NEW_TOKENS,
        note="beside generate of a Llama of the same size",
    )


def llama() -> Any:
    from transformers import AutoModelForCausalLM, LlamaConfig

    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        vocab_size=14,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=13,
        pad_token_id=12,
    )
    return AutoModelForCausalLM.from_config(config).eval()


def made(model: str) -> Any:
    from sharpwave.nn import Transformer

    return llama() if model == "Llama" else Transformer(14)


def our_updates(model: str) -> Operation:
    import sharpwave as sw

    task = sw.llm.TASKS["copy4"]
    agent = sw.GRPO(
        made(model),
        reward_fn=task.reward,
        prompts=task.prompts(4096),
        tokenizer=sw.llm.DigitTokenizer(),
        group_size=16,
        max_new_tokens=4,
        kl_coef=0.0,
        learning_rate=2e-3,
        seed=0,
    )
    return lambda: agent.train(n_updates=UPDATES)


def trl_updates() -> Operation:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    import sharpwave as sw

    task = sw.llm.TASKS["copy4"]
    trainer = GRPOTrainer(
        model=llama(),
        processing_class=words(),
        reward_funcs=task.reward,
        train_dataset=Dataset.from_list([{"prompt": text} for text in task.prompts(4096)]),
        args=GRPOConfig(
            output_dir=tempfile.mkdtemp(),
            per_device_train_batch_size=256,
            num_generations=16,
            max_completion_length=4,
            learning_rate=2e-3,
            beta=0.0,
            **TRAINER,
        ),
    )
    return trainer.train


def words() -> Any:
    """The symbols of the tasks as a tokenizer of transformers."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Split
    from transformers import PreTrainedTokenizerFast

    from sharpwave.llm.tasks import SYMBOLS

    warnings.simplefilter("ignore")
    found = Tokenizer(WordLevel({symbol: i for i, symbol in enumerate(SYMBOLS)}, unk_token="<pad>"))
    found.pre_tokenizer = Split("", "isolated")
    return PreTrainedTokenizerFast(
        tokenizer_object=found, pad_token="<pad>", eos_token="<eos>", unk_token="<pad>"
    )


TRAINER: dict[str, Any] = {
    "max_steps": UPDATES,
    "lr_scheduler_type": "constant",
    "use_cpu": True,
    "bf16": False,
    "report_to": [],
    "save_strategy": "no",
    "logging_strategy": "no",
    "disable_tqdm": True,
}
"""Options of TRL that leave learning alone."""


def pairs(n: int) -> list[dict[str, str]]:
    """Four digits, sorted and as they are; with the token of the end, nine tokens."""
    import sharpwave as sw

    found = ((x[:3], "".join(sorted(x[:3]))) for x in sw.llm.TASKS["copy4"].prompts(4 * n))
    return [
        {"prompt": f"{x}=", "chosen": f"{y}0", "rejected": f"{x}0"} for x, y in found if x != y
    ][:n]


def our_dpo_updates(model: str) -> Operation:
    import sharpwave as sw

    agent = sw.DPO(
        made(model),
        dataset=pairs(4096),
        tokenizer=sw.llm.DigitTokenizer(),
        n_pairs=PAIRS,
        learning_rate=1e-3,
        seed=0,
    )
    return lambda: agent.train(n_updates=UPDATES)


def trl_dpo_updates() -> Operation:
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    trainer = DPOTrainer(
        model=llama(),
        ref_model=llama(),
        processing_class=words(),
        train_dataset=Dataset.from_list(pairs(4096)),
        args=DPOConfig(
            output_dir=tempfile.mkdtemp(),
            per_device_train_batch_size=PAIRS,
            learning_rate=1e-3,
            **TRAINER,
        ),
    )
    return trainer.train


def our_save() -> Operation:
    import torch

    from sharpwave.storage.checkpoints import write_checkpoint

    path = Path(tempfile.mkdtemp()) / "weights"
    state = {str(i): torch.ones(WEIGHTS // 10) for i in range(10)}
    return lambda: write_checkpoint(path, {}, state)


def plain_write() -> Operation:
    import numpy as np

    path, content = Path(tempfile.mkdtemp()) / "weights", np.ones(WEIGHTS, np.float32)

    def write() -> None:
        new = path.with_suffix(".new")
        with new.open("wb") as file:
            file.write(content.data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)  # as every save that a crash leaves whole

    return write


def our_samples(model: str, n_rows: int) -> Operation:
    import torch

    from sharpwave.llm import Sampler

    # Every completion has all tokens, as those of transformers below.
    sampler = Sampler(made(model), seed=0, logit_bias={13: -float("inf")})
    prompts = torch.randint(10, (n_rows, 6))
    return lambda: sampler.generate(prompts, max_new_tokens=NEW_TOKENS)


def their_samples(n_rows: int) -> Operation:
    import torch

    model = llama()
    prompts = torch.randint(10, (n_rows, 6))
    mask = torch.ones_like(prompts)
    return lambda: model.generate(
        prompts,
        attention_mask=mask,
        max_new_tokens=NEW_TOKENS,
        min_new_tokens=NEW_TOKENS,
        do_sample=True,
    )
