"""Whole runs of several agents by the command line."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from sharpwave.cli import main
from sharpwave.storage.checkpoints import read_checkpoint, read_header
from sharpwave.testing.bits import bits
from tests.unit.pages.report_pages import ReportPage

SPREAD, TAG = "mpe2/simple_spread_v3", "mpe2/simple_tag_v3"
QUICK = ["--n-envs", "2", "--n-steps", "25", "--n-epochs", "1", "--hidden", "8"]
QUICK += ["--eval-episodes", "2", "--seed", "1", "--quiet"]
MODULE = """
    from sharpwave.envs.multi.toys import Roles


    class Tenfold:
        def __init__(self, env):
            self.env = env

        def __getattr__(self, name):
            return getattr(self.env, name)

        def step(self, actions):
            obs, rewards, *rest = self.env.step(actions)
            return obs, {agent: 10 * reward for agent, reward in rewards.items()}, *rest


    def parallel_env(size=2):
        return Roles(size)
"""


def train(run_dir: Path, *options: str, env: str = SPREAD, algorithm: str = "mappo") -> int:
    return main(["train", algorithm, env, "--run-dir", str(run_dir), *QUICK, *options])


def steps_of(run_dir: Path) -> int:
    _, state = read_checkpoint(run_dir / "checkpoints" / "latest.safetensors")
    return int(state["timesteps"])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("runs") / "finished"
    assert train(run_dir, "--total-timesteps", "100", "--eval-freq", "50") == 0
    return run_dir


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a game that is not installed."""
    (tmp_path / "own_games").mkdir()
    (tmp_path / "own_games" / "__init__.py").touch()
    (tmp_path / "own_games" / "roles.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", ".")])
    yield tmp_path
    for name in ("own_games", "own_games.roles"):
        sys.modules.pop(name, None)


def test_a_run_has_the_settings_that_are_known_to_work(tmp_path: Path) -> None:
    assert train(tmp_path / "run", "--total-timesteps", "50", "--eval-freq", "0") == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["config"]["gamma"] == 0.95  # of the preset
    assert config["config"]["n_envs"] == 2  # as was asked for
    assert config["env"] == SPREAD


def test_evaluations_name_every_agent(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(finished), "--episodes", "2", "--seed", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("return -")
    means = {words[0]: float(words[1]) for words in (line.split() for line in lines[3:])}
    assert list(means) == ["agent_0", "agent_1", "agent_2"]
    team = float(lines[1].split()[1])
    assert sum(means.values()) / 3 == pytest.approx(team, abs=0.02)
    rows = [json.loads(row) for row in (finished / "evaluations.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [50, 100]
    assert all(len(returns) == 2 for row in rows for returns in row["agents"].values())


def test_the_report_has_a_curve_of_every_agent(finished: Path) -> None:
    assert main(["report", str(finished)]) == 0
    page = ReportPage(finished / "report.html")
    by_agent = next(label for title, label in page.labels.items() if "group and agent" in title)
    assert all(f"agent_{i} ends at" in by_agent for i in range(3))
    evaluated = page.labels["Evaluations by agent"]
    assert all(f"agent_{i} ends at" in evaluated for i in range(3))
    assert not any(
        "mean_return" in title or "mean return" in title.lower() for title in page.captions
    )


@pytest.mark.long
def test_a_run_is_made_longer(finished: Path) -> None:
    before = steps_of(finished)
    longer = str(before + 50)
    assert main(["resume", str(finished), "--quiet", "--total-timesteps", longer]) == 0
    assert steps_of(finished) == before + 50


@pytest.mark.long
def test_groups_are_reported_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = tmp_path / "tag"
    assert train(run_dir, "--total-timesteps", "50", env=TAG, algorithm="ippo") == 0
    page = ReportPage(run_dir / "report.html")
    by_agent = page.labels["Return by group and agent"]
    assert all(f"{name} ends at" in by_agent for name in ("adversary", "agent_0", "adversary_2"))
    assert "Policy loss, adversary" in page.captions
    assert main(["eval", str(run_dir), "--episodes", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()[3:]
    names = [line.split()[0] for line in lines]
    assert names == ["adversary", "adversary_0", "adversary_1", "adversary_2", "agent_0"]


@pytest.mark.long
def test_opponents_play_and_do_not_learn(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    options = ["--total-timesteps", "50", "--eval-freq", "0"]
    assert train(first, *options, env=TAG) == 0
    assert train(second, *options, "--opponents", f"adversary={first}", env=TAG) == 0
    plan = json.loads((second / "plan.json").read_text())
    checkpoint = first / "checkpoints" / "latest.safetensors"
    assert plan["agents"] == {"opponents": {"adversary": str(checkpoint)}}
    metrics = (second / "metrics.jsonl").read_text()
    assert "policy_loss/adversary" not in metrics
    assert main(["resume", str(second), "--quiet", "--total-timesteps", "100"]) == 0
    assert "policy_loss/adversary" not in (second / "metrics.jsonl").read_text()
    assert steps_of(second) == 100


def opponents_of(run_dir: Path) -> dict[str, tuple[str, bytes]]:
    _, state = read_checkpoint(run_dir / "checkpoints" / "latest.safetensors")
    return bits({name: saved["networks"] for name, saved in state["opponents"].items()})


@pytest.mark.long
def test_a_resumed_run_plays_against_the_opponents_of_its_checkpoint(tmp_path: Path) -> None:
    """Not against what their files hold by now."""
    first, second = tmp_path / "first", tmp_path / "second"
    options = ["--total-timesteps", "50", "--eval-freq", "0"]
    assert train(first, *options, env=TAG) == 0
    assert train(second, *options, "--opponents", f"adversary={first}", env=TAG) == 0
    before = opponents_of(second)
    assert main(["resume", str(first), "--quiet", "--total-timesteps", "100"]) == 0
    assert main(["resume", str(second), "--quiet", "--total-timesteps", "100"]) == 0
    assert opponents_of(second) == before
    (first / "checkpoints" / "latest.safetensors").unlink()
    assert main(["resume", str(second), "--quiet", "--total-timesteps", "150"]) == 0
    assert opponents_of(second) == before
    assert steps_of(second) == 150


@pytest.mark.long
def test_groups_are_as_they_were_asked_for(tmp_path: Path) -> None:
    groups = ["--groups", "first=agent_0", "others=agent_1,agent_2"]
    options = ["--total-timesteps", "50", "--eval-freq", "0", *groups]
    assert train(tmp_path / "run", *options) == 0
    header = read_header(tmp_path / "run" / "checkpoints" / "latest.safetensors")
    assert header["groups"] == {"first": ["agent_0"], "others": ["agent_1", "agent_2"]}


@pytest.mark.long
def test_groups_have_options_of_their_own(tmp_path: Path) -> None:
    given = '{"adversary": {"hidden": [4], "learning_rate": "linear(1e-3, 0)"}}'
    options = ["--total-timesteps", "50", "--eval-freq", "0", "--group-options", given]
    assert train(tmp_path / "run", *options, env=TAG) == 0
    assert main(["resume", str(tmp_path / "run"), "--quiet", "--total-timesteps", "100"]) == 0
    header, state = read_checkpoint(tmp_path / "run" / "checkpoints" / "latest.safetensors")
    assert header["config"]["group_options"]["adversary"]["hidden"] == [4]
    policies = {x: y["networks"]["policy"] for x, y in state["learner"]["groups"].items()}
    assert [len(policies[x]["actor.0.bias"]) for x in ("adversary", "agent_0")] == [4, 8]


@pytest.mark.long
def test_a_game_of_the_user_is_trained_and_trusted_only_when_named(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--total-timesteps", "50", "--env-kwargs", "size=3"]
    options += ["--wrapper", "own_games.roles:Tenfold", "--n-epochs", "4"]
    assert train(here / "run", *options, env="own_games.roles") == 0
    header = read_header(here / "run" / "checkpoints" / "latest.safetensors")
    assert header["groups"] == {"agent": ["agent_0", "agent_1", "agent_2"]}
    rows = (here / "run" / "metrics.jsonl").read_text().splitlines()
    last = json.loads(rows[-1])["mean_return"]
    assert last * 5 == pytest.approx(round(last * 5))  # of 50 episodes, each 0 or 10
    capsys.readouterr()
    assert main(["resume", str(here / "run"), "--total-timesteps", "100"]) == 2
    assert "a file may not run code" in capsys.readouterr().err
    trusted = ["--env", "own_games.roles", "--wrapper", "own_games.roles:Tenfold", "--quiet"]
    assert main(["resume", str(here / "run"), "--total-timesteps", "100", *trusted]) == 0


@pytest.mark.long
def test_all_agents_are_filmed(finished: Path, tmp_path: Path) -> None:
    film = tmp_path / "film.mp4"
    assert main(["enjoy", str(finished), "--episodes", "1", "--record", str(film)]) == 0
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    frames, _ = imageio_ffmpeg.count_frames_and_secs(str(film))
    assert frames == 25  # the first picture, and one after each step but the last
    assert train(tmp_path / "run", "--total-timesteps", "50", "--video") == 0
    assert list((tmp_path / "run" / "videos").glob("*.mp4"))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["mappo", "mpe2/simple_spred_v3"], "the nearest are mpe2/simple_spread_v3"),
        (["mappo", "simple_spread_v3"], "did you mean 'mpe2/simple_spread_v3'?"),
        (
            ["ppo", SPREAD],
            "'mpe2/simple_spread_v3' has several agents, which mappo, ippo, vdn and qmix learn",
        ),
        (["mappo", SPREAD, "--groups", "first"], "--groups must be NAME=AGENT,AGENT, got 'first'"),
        (["mappo", SPREAD, "--groups", "all=agent_0"], "agent_1"),
        (["mappo", SPREAD, "--opponents", "agent=no/run"], "no/run does not exist"),
        (["mappo", SPREAD, "--opponents", "foe=frozen"], "opponents must name groups, ['agent']"),
        (["ppo", "CartPole-v1", "--groups", "a=b"], "unknown option --groups"),
        (["mappo", SPREAD, "--critic-input", "all"], "critic_input must be one of"),
        (["mappo", SPREAD, "--env-kwargs", "M=3"], "M"),
        (["mappo", SPREAD, "--group-options", "{agnt: 3}"], "group_options must be a JSON object"),
        (["mappo", SPREAD, "--group-options", '{"agnt": {}}'], "did you mean 'agent'?"),
    ],
    ids=lambda value: "" if isinstance(value, str) else " ".join(value),
)
def test_bad_input_is_explained_without_a_traceback(
    arguments: list[str],
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", *arguments]) == 2
    said = capsys.readouterr().err
    assert reason in said
    assert "Traceback" not in said
    assert not list(tmp_path.iterdir())


def test_environments_and_presets_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "envs"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert {"CartPole-v1", SPREAD, TAG, "pettingzoo/classic/tictactoe_v3"} <= set(lines)
    assert main(["list", "presets"]) == 0
    presets = " ".join(capsys.readouterr().out.split())
    assert f" mappo settings of the paper, no result here: {SPREAD}, " in presets


def test_the_options_are_those_of_the_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["train", "mappo", "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    for option in ("--critic-input", "--share-policy", "--value-norm", "--opponents", "--groups"):
        assert option in said


@pytest.mark.long
def test_nothing_of_pettingzoo_is_imported_before_it_is_used() -> None:
    code = textwrap.dedent(
        """
        import sys
        from sharpwave.cli import main
        main(["list", "algorithms"])
        from sharpwave.cli.environment import require_env
        from sharpwave.algorithms.registry import algorithm_class
        require_env("mpe2/simple_spread_v3", algorithm_class("mappo"))
        found = {"torch", "pettingzoo", "mpe2", "pygame"} & set(sys.modules)
        sys.exit(repr(found) if found else 0)
        """
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
