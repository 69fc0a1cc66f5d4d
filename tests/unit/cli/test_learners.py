"""`--learners`: what is refused, and how processes that learn together end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sharpwave.cli.main import main
from sharpwave.cli.run_plan import Plan
from sharpwave.storage.run_folder import RunFolder
from tests.processes import is_running
from tests.waiting import LONG, wait_for

OPTIONS = ["--n-envs", "4", "--n-steps", "16", "--batch-size", "32", "--hidden", "8", "--seed", "3"]
ENDLESS = ["--total-timesteps", "100_000_000", "--eval-freq", "0", "--quiet"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["crossq", "Pendulum-v1"], "crossq learns in one process: --learners must be 1, got 2"),
        (["cql", "--dataset", "none"], "cql learns in one process: --learners must be 1, got 2"),
        (["ppo", "CartPole-v1", "--n-envs", "7"], "n_envs must be a multiple of learners, 2,"),
        (["sac", "Pendulum-v1"], "got 1"),
        (["dqn", "CartPole-v1", "--n-envs", "2", "--batch-size", "33"], "batch_size must be a"),
    ],
)
def test_what_learners_cannot_divide_is_refused_before_they_start(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", *arguments, "--learners", "2"]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_another_number_than_was_started_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["train", "ppo", "CartPole-v1", "--learners", "4"]) == 2
    assert "--learners must be 2, as many processes as were started, got 4" in (
        capsys.readouterr().err
    )
    assert main(["train", "crossq", "Pendulum-v1"]) == 2
    assert "crossq learns in one process" in capsys.readouterr().err


@pytest.mark.long
def test_processes_of_torchrun_learn_as_those_of_the_command_do(tmp_path: Path) -> None:
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    train = ["-m", "sharpwave", "train", "ppo", "CartPole-v1", *OPTIONS, "--total-timesteps", "512"]
    launches = {"torchrun": [*torchrun, *train], "command": [*train, "--learners", "2"]}
    found = []
    for name, launch in launches.items():
        done = subprocess.run(
            [sys.executable, *launch, "--eval-freq", "0", "--run-dir", str(tmp_path / name)],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("run folder: ") == 1  # the first process alone writes
        folder = RunFolder(tmp_path / name)
        assert folder.metrics()["step"].tolist() == [64 * update for update in range(1, 9)]
        found.append(folder.metrics())
        assert folder.summary["status"] == "finished"
    assert found[0]["loss"].tolist() == found[1]["loss"].tolist()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_actors_join_each_of_the_learners_at_a_port_of_its_own(tmp_path: Path) -> None:
    """Both listened at the same one, and the second could not."""
    pytest.importorskip("grpc")
    first = two_free_ports()
    options = ["--n-actors", "2", "--n-envs", "2", "--n-steps", "8", "--hidden", "8", "--seed", "3"]
    options += ["--actors", "grpc", "--address", f"127.0.0.1:{first}", "--no-preset", "--quiet"]
    options += ["--learners", "2", "--total-timesteps", "640", "--eval-freq", "0", "--run-dir"]
    run = [sys.executable, "-m", "sharpwave"]
    learners = subprocess.Popen(
        [*run, "train", "impala", "CartPole-v1", *options, str(tmp_path / "run")],
        stderr=subprocess.PIPE,
        text=True,
    )
    actors = [
        subprocess.Popen(
            [*run, "actor", "--learner", f"127.0.0.1:{port}", "--patience", str(LONG)],
            stdout=subprocess.DEVNULL,
        )
        for port in (first, first + 1)
    ]
    try:
        _, said = learners.communicate(timeout=2 * LONG)
        assert learners.returncode == 0, said
        assert [actor.wait(LONG) for actor in actors] == [0, 0]
    finally:
        for pid in filter(is_running, [learners.pid, *(actor.pid for actor in actors)]):
            os.kill(pid, signal.SIGKILL)
        for actor in actors:
            actor.wait()
        learners.communicate()
    for port in (first, first + 1):
        assert f"sharpwave actor --learner 127.0.0.1:{port}" in said
    metrics = RunFolder(tmp_path / "run").metrics()
    assert metrics["step"][-1] >= 640
    assert metrics["actors_alive"][-1] == 2


def two_free_ports() -> int:
    """The first of two ports, one after the other, that nobody listens at."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as one:
            port = int(one.getsockname()[1])
            with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port + 1)):
                return port


class Started:
    """A command with two learners that has begun to learn."""

    def __init__(self, folder: Path) -> None:
        self.folder = RunFolder(folder / "run")
        command = ["train", "ppo", "CartPole-v1", "--learners", "2", "--run-dir"]
        self.launcher = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "sharpwave",
                *command,
                str(self.folder.path),
                *OPTIONS,
                *ENDLESS,
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        wait_for(self._learns)
        of_launcher = Path(f"/proc/{self.launcher.pid}/task/{self.launcher.pid}/children")
        self.learners = [int(pid) for pid in of_launcher.read_text().split()]
        assert len(self.learners) == 2

    def _learns(self) -> bool:
        assert self.launcher.poll() is None, self.launcher.communicate()[1]
        return self.folder.metrics_jsonl.is_file() and self.folder.metrics_jsonl.stat().st_size > 0

    def end(self) -> tuple[int, str]:
        """Exit status and complaints, once no process is left.

        A report is written; nobody waits for the timeout of gloo, which is ten minutes.
        """
        said = self.launcher.communicate(timeout=LONG)[1]
        wait_for(lambda: not any(map(is_running, self.learners)))
        return self.launcher.returncode, said


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    """Two learners that go on until somebody ends them."""
    one = Started(tmp_path)
    try:
        yield one
    finally:
        for pid in filter(is_running, [one.launcher.pid, *one.learners]):
            os.kill(pid, signal.SIGKILL)
        one.launcher.wait()
        assert one.launcher.stderr is not None
        one.launcher.stderr.close()


processes = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc of Linux")


@processes
@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_learner_that_is_killed_ends_the_others_by_name(started: Started) -> None:
    os.kill(started.learners[1], signal.SIGKILL)
    status, said = started.end()
    assert status == 1
    assert "learner 1 of 2 was ended by SIGKILL" in said
    assert "process 0 of 2 lost another one" in said
    assert started.folder.summary["status"] == "failed"
    assert started.folder.summary["reason"].startswith("RankLost")


@processes
@pytest.mark.long
@pytest.mark.timeout(300)
def test_ctrl_c_ends_all_and_the_run_goes_on(started: Started) -> None:
    started.launcher.send_signal(signal.SIGINT)
    status, said = started.end()
    assert (status, said.count("sharpwave resume")) == (130, 1)
    folder = started.folder
    steps = folder.summary["timesteps"]
    assert (folder.summary["status"], folder.summary["reason"]) == ("stopped", "SIGINT")
    assert Plan.from_file(folder.path / Plan.file).learners == 2
    more = steps + 128
    command = ["resume", str(folder.path), "--total-timesteps", str(more), "--quiet"]
    done = subprocess.run(
        [sys.executable, "-m", "sharpwave", *command], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "begin anew" not in done.stderr  # as many learners as before
    assert (folder.summary["status"], folder.summary["timesteps"]) == ("finished", more)
    lines = folder.metrics_jsonl.read_text().splitlines()
    assert json.loads(lines[-1])["step"] == more
    assert [json.loads(line)["step"] for line in lines] == list(range(64, more + 1, 64))


@processes
@pytest.mark.long
@pytest.mark.timeout(300)
def test_learners_end_with_what_started_them(started: Started) -> None:
    started.launcher.kill()
    assert started.launcher.wait() == -signal.SIGKILL
    wait_for(lambda: not any(map(is_running, started.learners)))
    assert started.folder.summary["reason"] == "SIGTERM"
