"""Parts that need no torch work where it is not installed, and the rest says what to install."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

BLOCK = "import sys; sys.modules['torch'] = None; import sharpwave as sw; import numpy as np\n"
SMALL = "n_envs=2, n_steps=16"
EXTRA = 'pip install "sharpwave\\[torch\\]"'


def without_torch(code: str, *, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BLOCK + code],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=os.environ,
        check=False,
    )


@pytest.mark.long
def test_what_native_code_computes_does_without(tmp_path: Path) -> None:
    """Agents train, save, resume, are evaluated and reported, on the command line too."""
    code = f"""
from sharpwave.cli import main

for agent in (
    sw.PPO("CartPole-v1", {SMALL}),
    sw.A2C("CartPole-v1", n_envs=2),
    sw.HybridPPO("CartPole-v1", {SMALL}),
    sw.IMPALA("CartPole-v1", n_actors=1, n_envs=2, n_steps=16),
    sw.DQN("CartPole-v1", learning_starts=8, batch_size=8, prioritized=True),
    sw.SAC("Pendulum-v1", learning_starts=8, batch_size=8),
    sw.TD3("Pendulum-v1", learning_starts=8, batch_size=8),
    sw.DDPG("Pendulum-v1", learning_starts=8, batch_size=8),
    sw.TD3BC(sw.datasets.make_dataset("Pendulum-v1", "mixed", n_steps=200), env="Pendulum-v1"),
):
    agent.train(64, run_dir="runs/" + agent.name)
    agent.evaluate(1)
    path = agent.save(agent.name + ".safetensors")
    again = type(agent).from_checkpoint(agent.name + ".safetensors")
    assert again.backend == "native", agent.name
    agent.close()
train = ["train", "ppo", "CartPole-v1", "--total-timesteps", "64", "--n-steps", "16", "--quiet"]
assert main([*train, "--run-dir", "runs/cli"]) == 0
assert main(["resume", "runs/cli", "--total-timesteps", "128", "--quiet"]) == 0
assert main(["eval", "runs/cli", "--episodes", "1"]) == 0
assert main(["report", "runs/cli"]) == 0
for what in ("algorithms", "envs", "presets", "losses"):
    assert main(["list", what]) == 0
print(sys.modules["torch"])
"""
    done = without_torch(code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "None"


@pytest.mark.long(but=["lstm", "nn.Transformer"])
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("sw.PPO('CartPole-v1', recurrent='lstm')", "ppo needs torch here.*recurrent is 'lstm'"),
        ("sw.PPO('CartPole-v1', device='cuda')", "ppo needs torch here.*device is 'cuda'"),
        ("sw.SAC('Pendulum-v1', backend='torch')", "sac needs torch here.*it was asked for"),
        ("sw.DreamerV3('CartPole-v1')", "dreamer_v3 needs torch here.*no native update"),
        ("sw.BC((np.zeros((9, 3)), np.zeros((9, 3)), np.zeros((9, 1)), *[np.zeros(9)] * 2))", "bc"),
        ("sw.PPO('CartPole-v1').policy", "this needs torch, which is not installed"),
        ("sw.nn.Transformer", "sharpwave.nn needs torch"),
        ("sw.llm.TASKS", "sharpwave.llm needs torch"),
        ("sw.TensorReplayBuffer", "sharpwave.TensorReplayBuffer needs torch"),
    ],
)
def test_what_needs_torch_says_how_to_get_it(code: str, said: str) -> None:
    done = without_torch(f"try:\n    {code}\nexcept ImportError as error:\n    print(error)\n")
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert re.search(f"^{said}.*{EXTRA}$", line)


@pytest.mark.long(but=["list"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "ppo", "CartPole-v1", "--recurrent", "lstm", "--run-dir", "run"],
        ["train", "grpo", "--task", "copy4", "--run-dir", "run"],
        ["list", "tasks"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_commands_say_so_in_a_line(arguments: list[str], tmp_path: Path) -> None:
    code = f"from sharpwave.cli import main; sys.exit(main({arguments!r}))"
    done = without_torch(code, cwd=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert re.search(f"^sharpwave: .*needs torch.*{EXTRA}$", line)
    assert not (tmp_path / "run").exists()
