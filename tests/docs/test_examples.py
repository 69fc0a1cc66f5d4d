"""The examples run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("custom_policy", r"after 512 steps: "),
        ("custom_loop", r"after 512 steps: "),
        ("recurrent", r"gru: "),
        ("multi_agent", r"after 512 steps: "),
        ("apex", r"steps: "),
        ("gpu_cart_pole", r"steps/s of training on "),
    ],
)
def test_a_short_run_ends_with_an_evaluation(name: str, said: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), "512"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
    assert "over 10 episodes" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_two_sides_learn_against_each_other(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "self_play.py"), "400", "2"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = [line.split()[:3] for line in done.stdout.splitlines()]
    sides = [("1:", "adversary"), ("1:", "agent_0"), ("2:", "adversary"), ("2:", "agent_0")]
    assert told == [["round", number, side] for number, side in sides]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_a_language_model_asks_the_calculator(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "calculator.py"), "20"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rewards = [float(line.split()[-1]) for line in done.stdout.splitlines() if "reward" in line]
    assert len(rewards) == 5
    assert rewards[-1] > rewards[0]
    assert "7+5 -> " in done.stdout


@pytest.mark.long
def test_environments_on_a_device_learn_without_waiting_for_it(tmp_path: Path) -> None:
    def mean_return(steps: int) -> float:
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / "device_envs.py"), str(steps)],
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "Rollout/Done/fell_rate on " in done.stdout
        said = dict(line.split(": ") for line in done.stdout.splitlines())
        return next(float(mean) for name, mean in said.items() if "Step/rewards" in name)

    assert mean_return(120_000) > mean_return(8_192) + 0.2


@pytest.mark.slow
def test_ray_tune_sweeps_options(tmp_path: Path) -> None:
    pytest.importorskip("ray.tune", exc_type=ImportError)
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "ray_tune.py"), "--samples", "2", "--steps", "4000"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "'learning_rate': " in done.stdout.splitlines()[-1]
