"""Language models by the command line: train, sample, evaluate, resume, and what is refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import sharpwave as sw
from sharpwave.cli import main
from sharpwave.llm import TASKS
from sharpwave.storage.checkpoints import read_checkpoint
from sharpwave.storage.run_folder import RunFolder
from tests.unit.agents.test_saved_model import tokenizer
from tests.unit.llm.models import hugging_face
from tests.unit.pages.report_pages import ReportPage

QUICK = ["--total-timesteps", "2", "--seed", "3", "--eval-size", "4"]
FEW = {
    "grpo": ["--n-prompts", "2", "--group-size", "2"],
    "online_dpo": ["--n-pairs", "4"],
    "dpo": ["--n-pairs", "4"],
    "kto": ["--n-examples", "4"],
    "sft": ["--n-examples", "4"],
}
REWARDS = """
def short(completions, **columns):
    return [1.0 / (1 + len(text)) for text in completions]

def digits(prompts, completions):
    return [float(text.isdigit()) for text in completions]

def longer(pairs):
    return [int(len(other) > len(one)) for one, other in pairs]

def broken(completions, **columns):
    raise ValueError("no such completion")

number = 3
"""


def train(name: str, run_dir: Path, *options: str) -> int:
    command = ["train", name, "--run-dir", str(run_dir), *QUICK, *FEW[name]]
    return main([*command, *(options or ("--task", "copy4"))])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("runs") / "copy"
    assert train("grpo", run_dir, "--task", "copy4", "--quiet") == 0
    return run_dir


@pytest.fixture
def rewards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a module of the user's."""
    (tmp_path / "my_rewards.py").write_text(REWARDS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "my_rewards", raising=False)
    return tmp_path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of Hugging Face in a folder, with its tokenizer."""
    folder = tmp_path_factory.mktemp("model")
    hugging_face(vocab_size=15).save_pretrained(folder)
    tokenizer("{% for m in messages %}{{ m.content }}={% endfor %}").save_pretrained(folder)
    return folder


def written(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def weights(run_dir: Path) -> dict[str, Any]:
    _, state = read_checkpoint(run_dir / "checkpoints" / "latest.safetensors")
    found: dict[str, Any] = state["learner"]["networks"]["model"]
    return found


@pytest.mark.long
def test_a_task_leaves_a_folder_with_what_was_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train("grpo", tmp_path / "run") == 0
    said = capsys.readouterr()
    assert (
        "grpo on 20,000 prompts, seed 3, Transformer, 83,136 parameters on cpu, to 2 updates"
        in said.out
    )
    assert "over 4 completions" in said.out
    assert said.err == ""
    folder = RunFolder(tmp_path / "run")
    assert list(folder.samples()) == [1, 2]
    assert folder.config["config"]["learning_rate"] == 2e-3
    kept = [json.loads(line) for line in folder.evaluations_file.read_text().splitlines()]
    assert [row["step"] for row in kept] == [1, 2]
    for row in kept:
        prompts = [one["prompt"] for one in row["samples"]]
        assert prompts == TASKS["copy4"].prompts(4, seed=1)
    assert "What it wrote" in ReportPage(folder.report_file).text
    assert folder.metrics()["step"].tolist() == [1, 2]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("dpo", "accuracy .* over 3 pairs"),
        ("kto", "accuracy .* over 3 completions"),
        ("sft", "log-probability of a token -.* over 3 examples"),
        ("online-dpo", "reward .* over 3 completions"),
    ],
)
def test_every_algorithm_has_tasks(
    name: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = name.replace("-", "_")
    command = ["train", name, "--task", "sort3", "--run-dir", str(tmp_path / "run"), "--quiet"]
    assert main([*command, *QUICK, *FEW[known]]) == 0
    folder = RunFolder(tmp_path / "run")
    assert folder.config["algorithm"] == known
    assert [one.step for one in folder.evaluations()] == [1, 2]
    assert len(folder.evaluations()[0].returns) == 4
    assert main(["eval", str(tmp_path / "run"), "--episodes", "3"]) == 0
    assert re.search(said, capsys.readouterr().out)


@pytest.mark.long
def test_a_run_of_a_python_program_goes_on_with_what_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = TASKS["copy4"]
    agent = sw.SFT(
        sw.nn.Transformer(14, hidden=16),
        dataset=task.examples(20),
        tokenizer=sw.llm.DigitTokenizer(),
        n_examples=2,
        seed=1,
    )
    agent.train(n_updates=1, run_dir=tmp_path / "run")
    assert main(["resume", str(tmp_path / "run"), "--total-timesteps", "2"]) == 2
    assert "--dataset must be given" in capsys.readouterr().err
    again = ["resume", str(tmp_path / "run"), "--total-timesteps", "2", "--task", "copy4"]
    assert main([*again, "--quiet"]) == 0
    assert RunFolder(tmp_path / "run").metrics()["step"].tolist() == [1, 2]


@pytest.mark.long
def test_the_preset_of_the_task_is_the_start(finished: Path) -> None:
    plan = json.loads((finished / "plan.json").read_text())
    assert plan["language"]["task"] == "copy4"
    assert (plan["config"]["learning_rate"], plan["config"]["kl_coef"]) == (2e-3, 0.0)


@pytest.mark.long
def test_the_model_writes(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sample", str(finished), "1234=", "-n", "3", "--max-new-tokens", "6"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    sampler = sw.llm.Sampler(sw.load_run(finished), seed=0)
    same = sampler.generate([torch.tensor([1, 2, 3, 4, 11])], 3, 6)
    digits = sw.llm.DigitTokenizer()
    assert lines == [digits.decode(one.tolist()) for one in same]
    assert main(["sample", str(finished), "1234=", "9=", "--greedy"]) == 0
    assert [line.partition(" → ")[0] for line in capsys.readouterr().out.splitlines()] == [
        "1234=",
        "9=",
    ]
    assert main(["sample", str(finished), "1=", "--json", "--top-k", "1"]) == 0
    assert json.loads(capsys.readouterr().out).keys() == {"prompt", "completion", "finished"}
    assert main(["sample", str(finished), "abc"]) == 2
    assert "text must hold '0123456789+='" in capsys.readouterr().err


@pytest.mark.long
def test_a_run_is_evaluated(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(finished), "--episodes", "3"]) == 0
    said = capsys.readouterr().out
    assert "best.safetensors: grpo on 20,000 prompts" in said
    assert "over 3 completions" in said
    assert said.count(" → ") == 3
    other = written(finished.parent / "other.jsonl", [{"prompt": "7777="}])
    assert main(["eval", str(finished), "--prompts", other, "--stochastic"]) == 0
    assert "7777= → " in capsys.readouterr().out


@pytest.mark.long
def test_a_run_goes_on_as_one_that_was_not_interrupted(tmp_path: Path, finished: Path) -> None:
    assert train("grpo", tmp_path / "whole", "--task", "copy4", "--total-timesteps", "4") == 0
    again = ["resume", str(tmp_path / "copy"), "--quiet"]
    (tmp_path / "copy").mkdir()
    for file in finished.rglob("*"):
        if file.is_file():
            (tmp_path / "copy" / file.relative_to(finished)).parent.mkdir(exist_ok=True)
            (tmp_path / "copy" / file.relative_to(finished)).write_bytes(file.read_bytes())
    assert main([*again, "--total-timesteps", "4"]) == 0
    one, other = weights(tmp_path / "whole"), weights(tmp_path / "copy")
    assert all((one[name] == other[name]).all() for name in one)
    assert list(RunFolder(tmp_path / "copy").samples()) == [1, 2, 3, 4]


@pytest.mark.long
def test_seeds_are_compared(tmp_path: Path) -> None:
    command = ["train", "grpo", "--task", "even", "--seeds", "0,1", "--total-timesteps", "2"]
    options = [*FEW["grpo"], "--run-dir", str(tmp_path / "run"), "--quiet", "--eval-size", "2"]
    assert main([*command, *options]) == 0
    first, second = (weights(tmp_path / "run" / f"seed_{seed}") for seed in (0, 1))
    assert any((first[name] != second[name]).any() for name in first)
    page = ReportPage(tmp_path / "run" / "comparison.html")
    assert "Reward" in page.text
    assert any("20,000 prompts" in row for table in page.tables for row in table)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
@pytest.mark.parametrize("options", [[], ["--lora", "2"], ["--dtype", "bfloat16"]], ids=str)
def test_a_model_of_hugging_face_learns_by_a_function_and_goes_on(
    options: list[str], model: Path, rewards: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = written(rewards / "prompts.jsonl", [{"prompt": x} for x in ("12=", "345=")])
    source = ["--model", str(model), "--prompts", prompts, "--reward", "my_rewards:short"]
    assert train("grpo", rewards / "run", *source, *options) == 0
    assert "LlamaForCausalLM" in capsys.readouterr().out
    found = sw.load_run(rewards / "run")
    assert found.tokenizer.encode("12=") == [1, 2, 11]
    assert hasattr(found.module, "peft_config") == ("--lora" in options)
    dtypes = {str(one.dtype) for one in found.module.parameters()}
    assert ("torch.bfloat16" in dtypes) == ("bfloat16" in options)
    assert main(["resume", str(rewards / "run"), "--total-timesteps", "3"]) == 2
    said = capsys.readouterr().err
    assert "a file may not run code" in said
    command = f"sharpwave resume {rewards / 'run'} --reward my_rewards:short"
    assert command in said
    assert main([*command.split()[1:], "--total-timesteps", "3", "--quiet"]) == 0
    assert list(RunFolder(rewards / "run").samples()) == [1, 2, 3]
    assert main(["sample", str(rewards / "run"), "12=", "--chat", "--max-new-tokens", "2"]) == 0


@pytest.mark.long
def test_processes_that_learn_together_leave_one_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    options = ["--task", "copy4", "--total-timesteps", "2", "--eval-size", "2", *FEW["grpo"]]
    done = subprocess.run(
        [*launch, "-m", "sharpwave", "train", "grpo", *options],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("run folder: ") == 1
    (run_dir,) = (tmp_path / "runs").iterdir()
    assert RunFolder(run_dir).metrics()["step"].tolist() == [1, 2]
    assert main(["sample", str(run_dir), "1234=", "--greedy"]) == 0
    assert main(["resume", str(run_dir), "--total-timesteps", "3"]) == 0
    assert "from 2 to 3 updates" in capsys.readouterr().out


@pytest.mark.long
def test_what_one_run_made_another_goes_on_with(finished: Path, tmp_path: Path) -> None:
    dataset = written(tmp_path / "rows.jsonl", TASKS["copy4"].examples(8))
    source = ["--model", str(finished), "--dataset", dataset, "--learning-rate", "1e-9"]
    assert train("sft", tmp_path / "run", *source, "--quiet") == 0
    before = dict(sw.load_run(finished).module.named_parameters())
    for name, one in sw.load_run(tmp_path / "run").module.named_parameters():
        assert torch.allclose(one, before[name], atol=1e-6)


@pytest.mark.long
def test_several_rewards_and_preferences(rewards: Path) -> None:
    both = ["--task", "copy4", "--reward", "my_rewards:short,my_rewards:digits", "--quiet"]
    assert train("grpo", rewards / "both", *both) == 0
    assert {"reward_short", "reward_digits"} <= RunFolder(rewards / "both").metrics().keys()
    preference = ["--task", "copy4", "--preference", "my_rewards:longer", "--quiet"]
    assert train("online_dpo", rewards / "pairs", *preference) == 0
    assert "accuracy" in RunFolder(rewards / "pairs").metrics()


@pytest.mark.long
def test_a_reward_that_raises_ends_the_run_in_one_line(
    rewards: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train("grpo", rewards / "run", "--task", "copy4", "--reward", "my_rewards:broken") == 1
    said = capsys.readouterr().err.splitlines()
    reason = "sharpwave: reward function 'broken' raised ValueError('no such completion')"
    assert said[0].startswith(reason)
    assert RunFolder(rewards / "run").summary["status"] == "failed"


@pytest.mark.long(only=["grpo --task copy4 --lora 4", "grpo --task copy4 --device moon"])
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["grpo", "--task", "copy5"], "unknown task 'copy5'; did you mean 'copy4'?"),
        (["grpo", "--task", "copy4", "--loss", "grop"], "got 'grop'; did you mean 'grpo'?"),
        (["dpo", "--task", "copy4", "--loss", "sigmod"], "did you mean 'sigmoid'?"),
        (["grpo", "--tsk", "copy4"], "unknown option --tsk; did you mean '--task'?"),
        (["grpo", "--task", "copy4", "--dataset", "x"], "unknown option --dataset"),
        (["grop", "--task", "copy4"], "unknown algorithm 'grop'; did you mean 'grpo'?"),
        (["grpo"], "grpo needs --task TASK, or --model FOLDER and what to learn from"),
        (["sft", "--task", "even"], "copy4, sort3, mod10; got even"),
        (["grpo", "--task", "copy4", "--reward", "my_rewards:shor"], "did you mean 'short'?"),
        (["grpo", "--task", "copy4", "--reward", "my_rewards"], "must be MODULE:NAME"),
        (["grpo", "--task", "copy4", "--reward", "my_rewards:number"], "must name a function"),
        (["grpo", "--task", "copy4", "--lora", "4"], "lora needs a causal model of Hugging Face"),
        (["grpo", "--model", "m"], "--prompts must be given: a .jsonl or .parquet file"),
        (["grpo", "--model", "m", "--prompts", "p.jsonl"], "--reward must be given"),
        (["dpo", "--model", "m"], "--dataset must be given"),
        (["grpo", "--task", "copy4", "--device", "moon"], "device must be one that torch has"),
        (["grpo", "--task", "copy4", "--preset", "--group-size", "1"], "group_size must be"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_wrong_is_one_line_and_leaves_no_folder(
    arguments: list[str], reason: str, rewards: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *arguments]) == 2
    said = capsys.readouterr().err
    assert reason in said
    assert said.count("\n") == 1
    assert not (rewards / "runs").exists()


@pytest.mark.parametrize("name", FEW)
def test_the_help_names_no_environment(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["train", name, "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert "environment" not in said
    assert "episode" not in said
    assert "--task" in said


@pytest.mark.long
def test_completions_are_kept_and_learned_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kept = ["--task", "copy4", "--store", "kept", "--quiet"]
    assert train("grpo", tmp_path / "one", *kept) == 0
    store = sw.llm.CompletionStore("kept")
    assert len(store) == 2 * 4
    store.close()
    assert main(["resume", str(tmp_path / "one"), "--total-timesteps", "3", "--quiet"]) == 0
    assert len(sw.llm.CompletionStore("kept", read_only=True)) == 3 * 4
    again = ["--task", "copy4", "--dataset", "kept", "--cache-reference", "cache", "--quiet"]
    assert train("kto", tmp_path / "two", *again) == 0
    assert (tmp_path / "cache").exists()


def test_losses_and_tasks_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "losses"]) == 0
    said = capsys.readouterr().out
    assert "dr_grpo" in said
    assert "sigmoid_norm" in said
    assert main(["list", "tasks"]) == 0
    assert "sort3" in capsys.readouterr().out
    assert main(["list"]) == 0
    assert "GRPO: group-relative policy optimization of a language model" in capsys.readouterr().out


@pytest.mark.long
def test_a_run_folder_is_not_taken_for_one_of_hugging_face(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both have a config.json."""
    assert main(["serve-model", str(finished), "--port", "70000"]) == 2
    assert "port must be from 0 to 65535" in capsys.readouterr().err


def test_a_language_model_plays_nothing(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["enjoy", str(finished)]) == 2
    assert "holds grpo, which plays no episodes: `sharpwave sample`" in capsys.readouterr().err
    assert main(["eval", str(finished), "--env", "CartPole-v1"]) == 2
    assert "holds a language model" in capsys.readouterr().err
