"""Minari reads what we write, and we read what Minari writes."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from sharpwave.episodes import EpisodeBuffer
from sharpwave.formats import (
    NotCarriedWarning,
    convert,
    read_episodes,
    write_episodes,
)
from sharpwave.formats.text import decode_text
from tests.unit.formats.streams import make_stream

minari = pytest.importorskip("minari")


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path / "minari"


def make_dataset(dataset_id: str, episodes: list[dict[str, Any]], **options: Any) -> Any:
    """A dataset as Minari makes it, which warns about everything that is not said of it."""
    from minari.data_collector import EpisodeBuffer as MinariEpisode

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return minari.create_dataset_from_buffers(
            dataset_id, [MinariEpisode(**episode) for episode in episodes], **options
        )


def episode(length: int, **changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "observations": np.arange(2 * (length + 1), dtype=np.float32).reshape(-1, 2),
        "actions": np.arange(length) % 2,
        "rewards": np.arange(length, dtype=np.float64),
        "terminations": np.arange(length) == length - 1,
        "truncations": np.zeros(length, np.bool_),
    }
    return made | changes


SPACES = {"observation_space": spaces.Box(-9, 9, (2,)), "action_space": spaces.Discrete(2)}


def test_a_dataset_of_minari_is_read_by_its_id(tmp_path: Path) -> None:
    episodes = [
        episode(3, seed=5, options={"level": 2}, infos={"x": np.arange(4.0), "name": ["a"] * 4}),
        episode(1, infos={"x": np.arange(2.0), "name": ["b"] * 2}),
    ]
    make_dataset("walk/easy-v0", episodes, author="somebody", **SPACES)
    with pytest.warns(NotCarriedWarning) as warned:
        buffer = EpisodeBuffer.from_minari("walk/easy-v0", tmp_path / "e")
    assert [str(warning.message) for warning in warned] == [
        "not carried over: infos of 'name' (no numbers)",
        "not carried over: author (said about the dataset)",
    ]
    fields = {name: (of.dtype, of.shape) for name, of in buffer.schema.fields.items()}
    assert fields == {
        "obs": ("float32", (2,)),
        "action": ("int64", ()),
        "reward": ("float64", ()),
        "terminated": ("bool", ()),
        "truncated": ("bool", ()),
        "info.x": ("float64", ()),
    }
    table = buffer.episodes()
    assert table.lengths.tolist() == [3, 1]
    assert table.meta["final_obs"].tolist() == [[6, 7], [2, 3]]
    assert table.meta["seed"].tolist() == [5, -1]
    assert table.meta["options.level"][0] == 2
    assert np.isnan(table.meta["options.level"][1])
    assert table.meta["reset_info.x"].tolist() == [0, 0]
    rows = buffer.gather(table.starts + table.lengths - 1)
    assert rows["obs"].tolist() == [[4, 5], [0, 1]]
    assert rows["info.x"].tolist() == [3, 1]
    assert rows["terminated"].tolist() == [True, True]


def test_seeds_of_64_bits_are_kept(tmp_path: Path) -> None:
    make_dataset("a-v0", [episode(1, seed=2**64 - 5), episode(1, seed=3)], **SPACES)
    stream = read_episodes(tmp_path / "minari" / "a-v0")
    assert [int(each.meta["seed"]) for each in stream] == [2**64 - 5, 3]


def test_nested_and_written_observations(tmp_path: Path) -> None:
    inner = spaces.Tuple([spaces.Discrete(5), spaces.MultiBinary(3)])
    mission = spaces.Text(6, charset="abcdeé ")
    space = spaces.Dict({"pair": inner, "mission": mission})
    values = {
        "pair": (np.arange(3), np.ones((3, 3), np.int8)),
        "mission": ["abc", "", "é de"],
    }
    made = episode(2, observations=values, actions=(np.zeros((2, 1), np.float32),))
    action_space = spaces.Tuple([spaces.Box(-1, 1, (1,))])
    make_dataset("n-v3", [made], observation_space=space, action_space=action_space)
    stream = read_episodes(tmp_path / "minari" / "n-v3")
    (first,) = stream
    assert first.steps["obs.pair.0"].tolist() == [0, 1]
    assert first.steps["action.0"].shape == (2, 1)
    assert decode_text(first.steps["obs.mission"]) == ["abc", ""]
    assert decode_text(first.meta["final_obs.mission"][np.newaxis]) == ["é de"]


def test_only_the_episodes_of_a_filtered_dataset_are_read(tmp_path: Path) -> None:
    dataset = make_dataset("f-v0", [episode(n) for n in (1, 2, 3)], **SPACES)
    some = dataset.filter_episodes(lambda each: len(each.rewards) != 2)
    buffer = EpisodeBuffer.from_minari(some, tmp_path / "e")
    assert buffer.episodes().lengths.tolist() == [1, 3]


def test_minari_reads_what_we_write(tmp_path: Path) -> None:
    fields = {"obs.a": ("float32", (2,)), "obs.b": ("int64", ()), "action": ("int64", ())}
    fields |= {"reward": ("float64", ()), "terminated": ("bool", ()), "truncated": ("bool", ())}
    finals = {"final_obs.a": ("float32", (2,)), "final_obs.b": ("int64", ())}
    stream = make_stream(fields | {"x": ("float32", (3,))}, finals | {"seed": ("uint64", ())})
    first = next(iter(stream))
    about = {"author": "somebody", "description": "made up"}
    write_episodes(stream, "made/up-v1", "minari", about=about)
    dataset = minari.load_dataset("made/up-v1")
    assert (dataset.total_episodes, dataset.total_steps) == (3, 7)
    assert dataset.storage.metadata["author"] == {"somebody"}
    got = dataset[0]
    assert got.observations["a"].tobytes() == (
        first.steps["obs.a"].tobytes() + first.meta["final_obs.a"].tobytes()
    )
    assert got.actions.tolist() == first.steps["action"].tolist()
    assert got.rewards.tolist() == first.steps["reward"].tolist()
    assert got.terminations.tolist() == first.steps["terminated"].tolist()
    assert got.infos["x"][1:].tobytes() == first.steps["x"].tobytes()
    assert minari.list_local_datasets().keys() == {"made/up-v1"}


def test_spaces_of_the_environment_are_taken(tmp_path: Path) -> None:
    fields = {"obs": ("float32", (4,)), "action": ("int64", ()), "reward": ("float64", ())}
    stream = make_stream(fields, {"final_obs": ("float32", (4,))})
    write_episodes(stream, tmp_path / "m", "minari", env="CartPole-v1")
    dataset = minari.MinariDataset(tmp_path / "m" / "data")
    assert dataset.action_space == spaces.Discrete(2)
    assert dataset.env_spec.id == "CartPole-v1"
    with pytest.warns(NotCarriedWarning, match="env_spec"):
        read_episodes(tmp_path / "m")


def test_without_final_obs_the_last_observation_is_repeated(tmp_path: Path) -> None:
    fields = {"obs": ("float32", (4,)), "action": ("int64", ())}
    with pytest.warns(UserWarning, match="there is no final_obs, so the last observation"):
        write_episodes(make_stream(fields), tmp_path / "m", "minari")
    got = minari.MinariDataset(tmp_path / "m" / "data")[1]
    assert got.observations[-1].tobytes() == got.observations[-2].tobytes()
    assert got.truncations.tolist() == [False, False, False, True]
    assert got.rewards.tolist() == [0, 0, 0, 0]


def test_fields_of_another_space_are_refused(tmp_path: Path) -> None:
    fields = {"obs": ("float32", (4,)), "action": ("int64", ())}
    stream = make_stream(fields, {"final_obs": ("float32", (4,))})
    space = spaces.Dict({"a": spaces.Box(-1, 1, (4,))})
    with pytest.raises(ValueError, match="fields must be those of the space Dict"):
        write_episodes(stream, tmp_path / "m", "minari", observation_space=space)
    assert not (tmp_path / "m").exists()


def test_minari_needs_observations_and_actions(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no field 'action' among"):
        write_episodes(make_stream({"obs": ("float32", ())}), tmp_path / "m", "minari")


@pytest.mark.parametrize(
    ("dataset", "reason"),
    [
        ("no/such-v0", "there is no local Minari dataset no/such-v0"),
        ("nowhere", "there is no nowhere"),
        (".", "is not the folder of a Minari dataset"),
    ],
)
def test_a_missing_dataset_is_named(dataset: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=reason):
        EpisodeBuffer.from_minari(dataset, tmp_path / "e")


def test_a_damaged_dataset_is_named(tmp_path: Path, root: Path) -> None:
    make_dataset("d-v0", [episode(400), episode(400)], **SPACES)
    file = root / "d-v0" / "data" / "main_data.hdf5"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(OSError, match=r"d-v0.data is damaged"):
        convert(root / "d-v0", tmp_path / "e")
    assert not (tmp_path / "e").exists()
