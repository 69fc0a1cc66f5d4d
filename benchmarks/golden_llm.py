"""Writes the losses of TRL and their gradients on fixed batches, which tests compare with.

    python benchmarks/golden_llm.py        # needs trl of requirements/bench.txt

TRL's own methods compute: the trainer around them is a stand-in that holds options, and the model
is one that gives the log-probabilities of the batch. So a change of TRL shows up here as a changed
number.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

os.environ.update(HF_HUB_OFFLINE="1", TRL_EXPERIMENTAL_SILENCE="1")

PLACE = Path(__file__).parent.parent / "tests/unit/losses/golden_trl.json"
LENGTHS = [3, 1, 6, 2]
PAIR_LENGTHS = [2, 1, 3, 1, 3, 2]  # of three chosen and three rejected completions
DIGITS = 8

Case = dict[str, Any]


class Accelerator:
    """One process alone."""

    num_processes = 1
    sync_gradients = True
    parallelism_config = None
    device = torch.device("cpu")

    def gather(self, x: Tensor) -> Tensor:
        """The same of all processes."""
        return x

    gather_for_metrics = gather

    def reduce(self, x: Tensor, reduction: str) -> Tensor:  # noqa: ARG002
        """The sum over processes."""
        return x

    def pad_across_processes(self, x: Tensor, **_: Any) -> Tensor:
        """As long as the longest of all processes."""
        return x


def trainer(kind: type, **options: Any) -> Any:
    """Something that a trainer's methods can be called on: its options, and its other methods."""

    class StandIn:
        def __getattr__(self, name: str) -> Any:
            found = getattr(kind, name)
            return found.__get__(self) if name in METHODS else found

    stand_in = StandIn()
    stand_in.__dict__.update(
        accelerator=Accelerator(),
        model=SimpleNamespace(training=True),
        aux_loss_enabled=False,
        _metrics={"train": defaultdict(list)},
        _total_train_tokens=0,
        _tp_size=1,
        **options,
    )
    return stand_in


METHODS = {"get_high_entropy_mask", "cpo_loss", "odds_ratio_loss"}


def rounded(x: Tensor | float) -> Any:
    """Numbers for the file: few digits, enough for the comparison."""
    values = x.tolist() if isinstance(x, Tensor) else x
    if isinstance(values, list):
        return [float(f"{value:.{DIGITS}g}") for value in values]
    return float(f"{values:.{DIGITS}g}")


class Padding:
    """Packed tokens as rows with padding."""

    def __init__(self, lengths: list[int]) -> None:
        self.mask = torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]

    def pad(self, tokens: Tensor, value: float = 0.0) -> Tensor:
        """[T] -> [B, L]."""
        rows = torch.full(self.mask.shape, value, dtype=tokens.dtype)
        return rows.masked_scatter(self.mask, tokens)


def drawn(generator: torch.Generator, low: float, high: float, count: int) -> Tensor:
    """Numbers of few decimals, the same in the file and here."""
    values = torch.rand(count, generator=generator, dtype=torch.float64) * (high - low) + low
    return (values * 1e4).round() / 1e4


def grpo_batch() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(1)
    count = sum(LENGTHS)
    log_probs = drawn(generator, -3, -0.1, count)
    return {
        "lengths": LENGTHS,
        "log_probs": log_probs,
        "old_log_probs": log_probs - drawn(generator, -0.6, 0.6, count),
        "ref_log_probs": log_probs - drawn(generator, -0.8, 0.8, count),
        "advantages": torch.tensor([1.2, -0.7, 0.4, -1.5], dtype=torch.float64),
        "entropies": drawn(generator, 0, 2, count),
        "weights": drawn(generator, 0.2, 2, count),
        "mask": torch.tensor([1, 0, 1, 1, 1, 1, 0, 0, 1, 1, 0, 1]).bool(),
        "max_length": 8,
    }


def grpo_options() -> Iterator[Case]:
    """Options of `grpo_loss` whose results TRL can tell."""
    kinds = ["grpo", "bnpo", "dr_grpo", "dapo", "luspo", "cispo", "sapo", "vespo"]
    extras: list[Case] = [
        {"old_log_probs": False},
        {"delta": 1.5},
        {"clip_high": 0.28},
        {"top_entropy": 0.3},
        {"entropy_coef": 0.05},
        {"entropy_coef": 0.05, "top_entropy": 0.5},
        {"weights": True},
        {"mask": True, "kl_coef": 0.1},
    ]
    for kind in kinds:
        for level in ("token", "sequence"):
            here = {"kind": kind, "ratio_level": level}
            yield here
            for coef in (0.04, 0.5):
                for correction in (True, False):
                    yield {**here, "kl_coef": coef, "kl_correction": correction}
            yield from ({**here, **extra} for extra in extras)
    for extra in ({}, {"kl_coef": 0.1, "kl_correction": False}, {"top_entropy": 0.3}):
        yield {"kind": "gmpo", **extra}


def grpo_case(batch: dict[str, Any], options: Case) -> Case:
    from trl import GRPOTrainer
    from trl.experimental.gmpo import GMPOTrainer

    padding = Padding(batch["lengths"])
    log_probs = batch["log_probs"].clone().requires_grad_()
    rows = padding.pad(log_probs)
    kind = options["kind"]
    clip_high = options.get("clip_high", 0.2)
    correct = options.get("weights", False)
    mask = padding.mask.double()
    inputs: dict[str, Any] = {
        "prompt_ids": torch.zeros(len(mask), 1, dtype=torch.int64),
        "prompt_mask": torch.ones(len(mask), 1, dtype=torch.int64),
        "completion_ids": torch.zeros(mask.shape, dtype=torch.int64),
        "completion_mask": mask,
        "advantages": batch["advantages"],
        "ref_per_token_logps": padding.pad(batch["ref_log_probs"]),
    }
    if options.get("old_log_probs", True):
        inputs["old_per_token_logps"] = padding.pad(batch["old_log_probs"])
    if correct:
        inputs["importance_sampling_ratio"] = padding.pad(batch["weights"], 1.0)
    if options.get("mask", False):
        inputs["tool_mask"] = padding.pad(batch["mask"].double())
    inputs["num_items_in_batch"] = (mask * inputs.get("tool_mask", 1.0)).sum()
    entropies = padding.pad(batch["entropies"])
    method = GMPOTrainer if kind == "gmpo" else GRPOTrainer
    stand_in = trainer(
        method,
        args=SimpleNamespace(
            use_bias_correction_kl=options.get("kl_correction", True),
            delta=options.get("delta"),
            steps_per_generation=1,
            sapo_temperature_pos=1.0,
            sapo_temperature_neg=1.05,
            vespo_k_pos=2.0,
            vespo_lambda_pos=3.0,
            vespo_k_neg=3.0,
            vespo_lambda_neg=2.0,
        ),
        loss_type=kind,
        importance_sampling_level=options.get("ratio_level", "token"),
        beta=options.get("kl_coef", 0.0),
        epsilon_low=0.2,
        # TRL bounds the ratio of cispo by epsilon_high itself, not by what is above 1.
        epsilon_high=1 + clip_high if kind == "cispo" else clip_high,
        top_entropy_quantile=options.get("top_entropy", 1.0),
        off_policy_mask_threshold=None,
        use_vllm=correct,
        vllm_importance_sampling_correction=correct,
        current_gradient_accumulation_steps=1,
        max_completion_length=batch["max_length"],
        _entropy_bonus_enabled="entropy_coef" in options,
        use_adaptive_entropy=False,
        entropy_coef=options.get("entropy_coef", 0.0),
        _get_per_token_logps_and_entropies=lambda *_, **__: (rows, entropies, None),
    )
    loss = method._compute_loss(stand_in, None, inputs)
    loss.backward()
    names = {
        "kl": "kl",
        "entropy": "entropy",
        "clip_ratio/low_mean": "clip_fraction_low",
        "clip_ratio/high_mean": "clip_fraction_high",
        "clip_ratio/region_mean": "clip_fraction",
        "cispo_clip_ratio": "clip_fraction_high",
    }
    found = stand_in._metrics["train"]
    return {
        "options": options,
        "loss": rounded(loss.detach()),
        "gradient": rounded(log_probs.grad),
        "metrics": {ours: rounded(found[name][0]) for name, ours in names.items() if name in found},
    }


def preference_batch() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(2)
    count = sum(PAIR_LENGTHS)
    log_probs = drawn(generator, -3, -0.1, count)
    return {
        "lengths": PAIR_LENGTHS,
        "log_probs": log_probs,
        "ref_log_probs": log_probs - drawn(generator, -0.8, 0.8, count),
        "log_collisions": drawn(generator, -2, -0.1, count),
        "desirable": torch.tensor([1, 0, 1, 1, 0, 0]).bool(),
    }


DIVERGENCES = {"js": "js_divergence", "alpha": "alpha_divergence"}


def preference_options() -> Iterator[Case]:
    """Options of `preference_loss` whose results DPOTrainer can tell."""
    smoothed = {"robust", "exo_pair", "aot", "aot_unpaired"}
    kinds = ["sigmoid", "hinge", "ipo", "robust", "exo_pair", "nca_pair", "bco_pair", "sppo_hard"]
    kinds += ["aot", "aot_unpaired", "apo_zero", "apo_down", "discopop", "sft", "sigmoid_norm"]
    for kind in kinds:
        for beta in (0.1, 0.5):
            smoothing = {"label_smoothing": 0.2} if kind in smoothed else {}
            yield {"kind": kind, "beta": beta, **smoothing}
        if kind not in {"hinge", "sft"}:  # which TRL weighs in place, and autograd refuses
            yield {"kind": kind, **smoothing, "wpo": True}
        if kind != "sft":
            yield {"kind": kind, **smoothing, "ld_alpha": 0.4}
    for kind in ("sigmoid", "hinge", "ipo", "robust", "exo_pair", "discopop", "sigmoid_norm"):
        smoothing = {"label_smoothing": 0.2} if kind in smoothed else {}
        for divergence in ("forward_kl", "js"):
            yield {"kind": kind, **smoothing, "divergence": divergence}
        for alpha in (0.5, 1.0, 2.0):
            yield {"kind": kind, **smoothing, "divergence": "alpha", "alpha": alpha}
    yield {"kind": {"sigmoid": 0.8, "bco_pair": 0.2, "sft": 1.0}}
    yield {"kind": {"ipo": 0.5, "sigmoid": 2.0}, "wpo": True}


class Model(torch.nn.Module):
    """A language model that says the same whatever it reads."""

    is_gradient_checkpointing = False

    def __init__(self, log_probs: Tensor, log_collisions: Tensor, mask: Tensor) -> None:
        super().__init__()
        zeros = torch.zeros_like(log_probs)
        self.said = SimpleNamespace(
            log_probs=log_probs,
            log_sum_sq_probs=log_collisions,
            label_mask=mask,
            entropy=zeros,
            mean_logits=zeros,
            is_top1=zeros.bool(),
        )

    def forward(self, **_: Any) -> Any:
        """The value that it gives."""
        return self.said


class Preferences:
    """The arguments of trainers of preferences, in a dtype, and the gradient that they leave."""

    def __init__(self, batch: dict[str, Any], dtype: torch.dtype = torch.float64) -> None:
        padding = Padding(batch["lengths"])
        self.lengths = torch.tensor(batch["lengths"])
        self.log_probs = batch["log_probs"].clone().to(dtype).requires_grad_()
        self.rows = padding.pad(self.log_probs)
        self.model, self.reference = (
            Model(rows, padding.pad(batch["log_collisions"].to(dtype)), padding.mask)
            for rows in (self.rows, padding.pad(batch["ref_log_probs"].to(dtype)))
        )
        prompt = torch.zeros(len(self.rows), 1, dtype=torch.int64)
        mask = torch.cat((prompt, padding.mask.long()), 1)
        self.inputs = {"input_ids": torch.zeros_like(mask), "attention_mask": torch.ones_like(mask)}
        self.inputs["completion_mask"] = mask

    def case(self, part: str, options: Case, loss: Tensor, found: dict[str, Any]) -> Case:
        """The file's entry of a loss."""
        loss.backward()
        names = {
            "rewards/chosen": "reward_chosen",
            "rewards/rejected": "reward_rejected",
            "rewards/margins": "reward_margin",
            "rewards/accuracies": "accuracy",
            "logps/chosen": "log_prob_chosen",
            "logps/rejected": "log_prob_rejected",
            "kl": "kl",
        }
        metrics = {
            ours: rounded(found[name][0] if isinstance(found[name], list) else found[name])
            for name, ours in names.items()
            if name in found
        }
        return {
            "part": part,
            "options": options,
            "loss": rounded(loss.detach()),
            "gradient": rounded(self.log_probs.grad),
            "metrics": metrics,
        }


def dpo_case(batch: dict[str, Any], options: Case) -> Case:
    from trl import DPOTrainer

    divergence = options.get("divergence", "reverse_kl")
    # TRL bounds the exponents of alpha by a table that knows no float64.
    given = Preferences(batch, torch.float32 if divergence == "alpha" else torch.float64)
    kinds = options["kind"] if isinstance(options["kind"], dict) else {options["kind"]: 1.0}
    stand_in = trainer(
        DPOTrainer,
        args=SimpleNamespace(gradient_checkpointing_kwargs=None, discopop_tau=0.05),
        loss_types=list(kinds),
        loss_weights=list(kinds.values()),
        beta=options.get("beta", 0.1),
        label_smoothing=options.get("label_smoothing", 0.0),
        f_divergence_type=DIVERGENCES.get(divergence, divergence),
        f_alpha_divergence_coef=options.get("alpha", 0.5),
        use_weighting=options.get("wpo", False),
        ld_alpha=options.get("ld_alpha"),
        precompute_ref_logps=False,
        ref_model=given.reference,
    )
    stand_in.model = given.model
    loss = DPOTrainer._compute_loss(stand_in, given.model, given.inputs, False)
    return given.case("pairs", options, loss, stand_in._metrics["train"])


def kto_case(batch: dict[str, Any], options: Case) -> Case:
    from trl import KTOTrainer

    given = Preferences(batch)
    # The divergence is a mean over completions of other prompts: here one with this difference.
    other = {given.model: torch.tensor([options["kl"]]), given.reference: torch.zeros(1)}
    stand_in = trainer(
        KTOTrainer,
        args=SimpleNamespace(gradient_checkpointing_kwargs=None),
        loss_type="kto",
        beta=options.get("beta", 0.1),
        desirable_weight=options.get("desirable_weight", 1.0),
        undesirable_weight=options.get("undesirable_weight", 1.0),
        calculate_KL=True,
        precompute_ref_logps=False,
        ref_model=given.reference,
        _compute_kl_logps=lambda model, _: other[model],
    )
    stand_in.model = given.model
    inputs = {**given.inputs, "label": batch["desirable"]}
    loss = KTOTrainer._compute_loss(stand_in, given.model, inputs, False)
    return given.case("kto", options, loss, stand_in._metrics["train"])


def reference_free_case(batch: dict[str, Any], options: Case) -> Case:
    """Simpo or orpo."""
    from trl.experimental.cpo import CPOTrainer
    from trl.experimental.orpo import ORPOTrainer

    given = Preferences(batch)
    n_pairs = len(given.lengths) // 2
    chosen, rejected = (given.rows.sum(1) / given.lengths).chunk(2)
    nll = -given.rows[:n_pairs].sum() / given.lengths[:n_pairs].sum()
    logits = torch.zeros(1)
    method = CPOTrainer if options["kind"] == "simpo" else ORPOTrainer
    stand_in = trainer(
        method,
        alpha=0.0,
        cpo_alpha=0.0,
        loss_type=options["kind"],
        beta=options.get("beta", 0.1),
        label_smoothing=options.get("label_smoothing", 0.0),
        simpo_gamma=options.get("margin", 0.5),
        concatenated_forward=lambda *_: (chosen, rejected, logits, logits, nll),
    )
    loss, metrics = method.get_batch_loss_metrics(stand_in, None, {})
    # Theirs are of mean log-probabilities of tokens, ours of sums.
    found = {name: value for name, value in metrics.items() if not name.startswith("logps")}
    return given.case("pairs", options, loss, found)


def sft_case(batch: dict[str, Any], options: Case) -> Case:
    from trl import SFTTrainer

    given = Preferences(batch)
    stand_in = trainer(
        SFTTrainer,
        args=SimpleNamespace(loss_type=options["kind"], average_tokens_across_devices=False),
        compute_loss_func=None,
        label_smoother=None,
    )
    loss = SFTTrainer.compute_loss(stand_in, given.model, dict(given.inputs))
    return given.case("sft", options, loss, {})


def preference_cases(batch: dict[str, Any]) -> Iterator[Case]:
    yield from (dpo_case(batch, options) for options in preference_options())
    simpo: list[Case] = [{}, {"beta": 2.0, "margin": 1.0}, {"label_smoothing": 0.1}]
    for extra in simpo:
        yield reference_free_case(batch, {"kind": "simpo", **extra})
    for beta in (0.1, 1.0):
        yield reference_free_case(batch, {"kind": "orpo", "beta": beta})
    kto: list[Case] = [{"kl": 0.3}, {"kl": -0.2}, {"kl": 0.0, "beta": 0.5}]
    kto.append({"kl": 0.1, "desirable_weight": 1.5, "undesirable_weight": 0.5})
    yield from (kto_case(batch, options) for options in kto)
    yield from (sft_case(batch, {"kind": kind}) for kind in ("nll", "dft"))


def stored(batch: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.tolist()
        if isinstance(value, Tensor) and value.dtype == torch.bool
        else rounded(value)
        if isinstance(value, Tensor)
        else value
        for name, value in batch.items()
    }


def golden() -> dict[str, Any]:
    """Everything that the file holds."""
    import trl

    batch, preferences = grpo_batch(), preference_batch()
    return {
        "trl": trl.__version__,
        "grpo": {
            "batch": stored(batch),
            "cases": [grpo_case(batch, options) for options in grpo_options()],
        },
        "preference": {
            "batch": stored(preferences),
            "cases": list(preference_cases(preferences)),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=PLACE)
    place = parser.parse_args().out
    found = golden()
    # A case is a line, so that a difference shows which case changed.
    place.write_text(as_lines(found))
    print(place, sum(len(part["cases"]) for part in found.values() if isinstance(part, dict)))


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def as_lines(found: dict[str, Any]) -> str:
    parts = []
    for name, part in found.items():
        if isinstance(part, dict):
            cases = ",\n".join(compact(case) for case in part["cases"])
            text = f'{{"batch": {compact(part["batch"])}, "cases": [\n{cases}\n]}}'
        else:
            text = json.dumps(part)
        parts.append(f"{json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    main()
