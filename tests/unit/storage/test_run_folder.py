import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharpwave.storage.files import read_json, to_json, write_json
from sharpwave.storage.run_folder import RunFolder, new_run_dir
from tests.unit.runs.runs import rows, write_lines, write_run


def test_metrics_are_columns_over_ascending_steps(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", n_updates=20)
    metrics = RunFolder(path).metrics()
    assert metrics["step"].tolist() == [256.0 * (i + 1) for i in range(20)]
    assert metrics["entropy"].tolist() == [row["entropy"] for row in rows(20)]


def test_rows_of_one_step_are_one_and_the_later_wins(tmp_path: Path) -> None:
    logged = [
        {"step": 2, "loss": 1.0},
        {"step": 1, "loss": 5.0, "entropy": 0.5},
        {"step": 2, "loss": 2.0, "kl": 0.1},
    ]
    write_lines(tmp_path / "metrics.jsonl", logged)
    metrics = RunFolder(tmp_path).metrics()
    np.testing.assert_array_equal(metrics["step"], [1.0, 2.0])
    np.testing.assert_array_equal(metrics["loss"], [5.0, 2.0])
    np.testing.assert_array_equal(metrics["entropy"], [0.5, np.nan])
    np.testing.assert_array_equal(metrics["kl"], [np.nan, 0.1])


@pytest.mark.parametrize(
    ("headline", "name"),
    [
        ({"metric": "mean_reward", "counted_by": "episodes"}, "mean_return"),
        (None, "mean_return"),
        ({"metric": "mean_return", "counted_by": "episodes"}, "mean_return"),
        ({"metric": "mean_reward", "title": "Reward", "each": "completion"}, "mean_reward"),
        ({"metric": "loss", "lower_is_better": True}, "mean_reward"),
    ],
)
def test_mean_returns_of_earlier_runs_have_their_name_of_today(
    tmp_path: Path, headline: dict[str, Any] | None, name: str
) -> None:
    write_json(tmp_path / "config.json", {"headline": headline})
    logged = [{"step": 1, "mean_reward": 3.0, "mean_reward/agent_0": 2.0, "mean_reward_margin": 1}]
    write_lines(tmp_path / "metrics.jsonl", logged)
    metrics = RunFolder(tmp_path).metrics()
    assert set(metrics) == {"step", name, f"{name}/agent_0", "mean_reward_margin"}
    assert metrics[name].tolist() == [3.0]


def test_torn_and_foreign_lines_are_left_out(tmp_path: Path) -> None:
    text = '{"step": 1, "loss": 2.0}\n[1]\nnonsense\n\xff\n{"loss": 1}\n{"step": 2, "lo'
    (tmp_path / "metrics.jsonl").write_text(text, encoding="latin-1")
    (tmp_path / "evaluations.jsonl").write_text('{"step": 1}\n{"step": 2, "mean": 3}\n{"st')
    folder = RunFolder(tmp_path)
    assert folder.metrics()["step"].tolist() == [1.0]
    (evaluation,) = folder.evaluations()
    assert (evaluation.step, evaluation.mean, evaluation.returns) == (2, 3.0, ())
    assert np.isnan(evaluation.std)


def test_what_is_no_number_is_missing(tmp_path: Path) -> None:
    write_lines(tmp_path / "metrics.jsonl", [{"step": 1, "name": "x", "flag": True, "kl": 1}])
    assert set(RunFolder(tmp_path).metrics()) == {"step", "kl"}


def test_what_was_not_finite_is_told_from_what_was_not_logged(tmp_path: Path) -> None:
    logged: list[dict[str, Any]] = [
        {"step": 1, "loss": None, "nan": float("nan")},
        {"step": 2, "kl": 1},
    ]
    write_lines(tmp_path / "metrics.jsonl", logged)
    metrics = RunFolder(tmp_path).metrics()
    np.testing.assert_array_equal(metrics["loss"], [np.inf, np.nan])
    np.testing.assert_array_equal(metrics["nan"], [np.inf, np.nan])
    np.testing.assert_array_equal(metrics["kl"], [np.nan, 1.0])


def test_csv_is_read_where_there_are_no_json_lines(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("step,loss,kl\n1,0.5,\n2,nan,0.25\n3")
    metrics = RunFolder(tmp_path).metrics()
    np.testing.assert_array_equal(metrics["step"], [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(metrics["loss"], [0.5, np.inf, np.nan])
    np.testing.assert_array_equal(metrics["kl"], [np.nan, 0.25, np.nan])


def test_missing_and_broken_files_are_empty(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "none")
    assert not folder.exists
    assert (folder.config, folder.summary, folder.metrics(), folder.evaluations()) == (
        {},
        {},
        {},
        [],
    )
    (tmp_path / "config.json").write_text("[1, 2")
    assert RunFolder(tmp_path).exists
    assert RunFolder(tmp_path).config == {}


def test_new_folders_are_named_by_time_algorithm_environment_and_seed(tmp_path: Path) -> None:
    path = new_run_dir("ppo", "ALE/Pong-v5", 7, root=tmp_path)
    assert path.is_dir()
    assert path.parent == tmp_path
    pattern = r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_ppo_ALE-Pong-v5_seed7"
    assert re.fullmatch(pattern, path.name)


def test_new_folders_are_never_the_same(tmp_path: Path) -> None:
    paths = [new_run_dir("ppo", "CartPole-v1", 0, root=tmp_path / "runs") for _ in range(5)]
    assert len(set(paths)) == 5


@pytest.mark.parametrize("name", ["../../etc", "a b/c:d\n", "<script>", "..", "ünï"])
def test_new_folders_stay_under_their_root(tmp_path: Path, name: str) -> None:
    path = new_run_dir("ppo", name, root=tmp_path)
    assert path.parent == tmp_path
    assert re.fullmatch(r"[\w.-]+", path.name, re.ASCII)


def test_json_holds_only_what_json_can(tmp_path: Path) -> None:
    value = {"a": np.float32(0.5), "b": np.arange(3), "c": float("inf"), "d": Path("x"), 1: (True,)}
    assert to_json(value) == {"a": 0.5, "b": [0, 1, 2], "c": None, "d": "x", "1": [True]}
    write_json(tmp_path / "x.json", value)
    assert read_json(tmp_path / "x.json") == to_json(value)


def test_file_that_cannot_be_written_whole_leaves_the_old_one(tmp_path: Path) -> None:
    class Unwritable:
        def __str__(self) -> str:
            raise ValueError("no text")

    path = tmp_path / "x.json"
    write_json(path, {"old": 1})
    with pytest.raises(ValueError, match="no text"):
        write_json(path, {"new": Unwritable()})
    assert read_json(path) == {"old": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["x.json"]
