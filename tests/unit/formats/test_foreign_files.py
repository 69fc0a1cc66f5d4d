"""Files that other libraries write are read."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharpwave.episodes import EpisodeBuffer
from sharpwave.formats import NotCarriedWarning, read_episodes
from sharpwave.formats.text import decode_text, encode_text

N = 7
ENDS = np.array([0, 0, 1, 0, 0, 0, 0], np.bool_)
OBS = np.arange(N * 2, dtype=np.float32).reshape(N, 2)
NEXT = np.concatenate([OBS[1:], [[90, 91]]]).astype(np.float32)
NEXT[2] = [80, 81]


def d4rl() -> dict[str, Any]:
    """The arrays of a dataset as D4RL names them: an episode of 3 steps and one of 4."""
    return {
        "observations": OBS,
        "actions": np.arange(N, dtype=np.float32)[:, np.newaxis],
        "rewards": np.arange(N, dtype=np.float32),
        "terminals": ENDS,
        "timeouts": np.arange(N) == N - 1,
        "next_observations": NEXT,
    }


def write_hdf5(path: Path, arrays: dict[str, Any]) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            file[name] = values


def check_d4rl(path: Path) -> None:
    stream = read_episodes(path)
    assert stream.lengths.tolist() == [3, 4]
    first, second = stream
    assert list(first.steps) == ["obs", "action", "reward", "terminated", "truncated"]
    assert first.steps["obs"].tolist() == OBS[:3].tolist()
    assert second.steps["reward"].tolist() == [3, 4, 5, 6]
    assert first.steps["terminated"].tolist() == [False, False, True]
    assert second.steps["truncated"].tolist() == [False, False, False, True]
    assert first.meta["final_obs"].tolist() == [80, 81]
    assert second.meta["final_obs"].tolist() == [90, 91]


def test_hdf5_of_d4rl(tmp_path: Path) -> None:
    write_hdf5(tmp_path / "d.hdf5", d4rl())
    check_d4rl(tmp_path / "d.hdf5")


def test_npz_with_names_of_d4rl(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", **d4rl())
    check_d4rl(tmp_path / "d.npz")


def test_npz_in_the_order_of_fortran(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {name: np.asfortranarray(rows) for name, rows in d4rl().items()}
    np.savez_compressed(tmp_path / "d.npz", **arrays)
    check_d4rl(tmp_path / "d.npz")


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_tables_with_names_of_d4rl(kind: str, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    columns = {name: list(values) if values.ndim > 1 else values for name, values in d4rl().items()}
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    path = tmp_path / f"d.{kind}"
    if kind == "parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table)
    check_d4rl(path)


def test_tables_are_cut_by_the_number_of_the_episode(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    for part, numbers in enumerate([[4, 4, 7], [7, 7, 2]]):
        table = pa.table({"episode_index": numbers, "frame_index": range(3), "state": [1.0] * 3})
        pq.write_table(table, tmp_path / f"part-{part}.parquet")
    stream = read_episodes(tmp_path)
    assert stream.lengths.tolist() == [2, 3, 1]
    assert list(stream.schema.fields) == ["state"]


def test_rows_of_an_episode_must_be_together(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"episode": [1, 2, 1], "x": [1, 2, 3]}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="the rows of an episode must be together in 'episode'"):
        read_episodes(tmp_path / "a.parquet")


def test_next_obs_may_be_kept(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", **d4rl())
    stream = read_episodes(tmp_path / "d.npz", keep_next_obs=True)
    assert not stream.schema.meta_fields
    assert (
        np.concatenate([episode.steps["next_obs"] for episode in stream]).tolist() == NEXT.tolist()
    )


def test_next_obs_that_is_not_the_following_obs_is_refused(tmp_path: Path) -> None:
    arrays = d4rl()
    arrays["next_observations"] = NEXT + 1
    np.savez(tmp_path / "d.npz", **arrays)
    with pytest.raises(ValueError, match="episode 0: next_obs must be the obs of the following"):
        list(read_episodes(tmp_path / "d.npz"))


def test_columns_and_big_endian_numbers_become_ours(tmp_path: Path) -> None:
    arrays = d4rl() | {"terminals": ENDS.astype(np.float32)[:, np.newaxis]}
    arrays["rewards"] = np.arange(N, dtype=">f8")[:, np.newaxis]
    np.savez(tmp_path / "d.npz", **arrays)
    buffer = EpisodeBuffer.from_npz(tmp_path / "d.npz", tmp_path / "episodes")
    assert buffer.schema.fields["reward"].dtype == "float64"
    assert buffer.schema.fields["reward"].shape == ()
    assert buffer.schema.fields["terminated"].dtype == "bool"
    rows = buffer.gather(buffer.episodes().starts + 2)
    assert rows["reward"].tolist() == [2, 5]
    assert rows["terminated"].tolist() == [True, False]


def test_what_is_no_column_of_a_hdf5_file_is_named(tmp_path: Path) -> None:
    extra = {"metadata/policy/weight": np.ones((3, 3)), "metadata/algorithm": "sac"}
    write_hdf5(tmp_path / "d.hdf5", d4rl() | {"infos/qpos": OBS} | extra)
    with pytest.warns(NotCarriedWarning, match="metadata/algorithm, metadata/policy/weight"):
        stream = read_episodes(tmp_path / "d.hdf5")
    assert "info.qpos" in stream.schema.fields


def make_memmap_folder(folder: Path, *, open_steps: int = 0) -> None:
    """A ring of 3 episodes in which the fourth took the place of the first."""
    folder.mkdir()
    state = np.zeros((3, 5, 2), np.float32)
    state[:] = np.arange(3)[:, np.newaxis, np.newaxis]
    files: dict[str, Any] = {
        "state.data": state,
        "done.data": np.zeros((3, 5), np.bool_),
        "task_id.data.meta": np.array([13, 11, 12], np.int32),
        "episode_lens.data.meta": np.array([4, open_steps or 2, 3], np.int32),
        "_initted.data.meta": np.ones(3, np.bool_),
        "num_episodes.state": np.array(3, np.int32),
        "episode_index.state": np.array(1, np.int32),
        "timestep_index.state": np.array(open_steps, np.int32),
    }
    for name, array in files.items():
        np.save(folder / f"{name}.npy", array)


class Trap:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_memmap_folders_are_read_oldest_first_without_their_pickle(tmp_path: Path) -> None:
    make_memmap_folder(tmp_path / "old")
    with (tmp_path / "old" / "metadata.pkl").open("wb") as file:
        pickle.dump(Trap(tmp_path / "trapped"), file)
    buffer = EpisodeBuffer.from_memmap_folder(tmp_path / "old", tmp_path / "new")
    table = buffer.episodes()
    assert table.lengths.tolist() == [2, 3, 4]
    assert table.meta["task_id"].tolist() == [11, 12, 13]
    assert buffer.gather(table.starts)["state"].tolist() == [[1, 1], [2, 2], [0, 0]]
    assert list(buffer.schema.meta_fields) == ["task_id"]
    assert not (tmp_path / "trapped").exists()


def test_an_open_episode_of_a_memmap_folder_is_left_out(tmp_path: Path) -> None:
    make_memmap_folder(tmp_path / "old", open_steps=1)
    stream = read_episodes(tmp_path / "old")
    assert [int(episode.meta["task_id"]) for episode in stream] == [12, 13]


def test_memmap_folders_that_contradict_themselves_are_refused(tmp_path: Path) -> None:
    make_memmap_folder(tmp_path / "old")
    np.save(tmp_path / "old" / "episode_lens.data.meta.npy", np.array([4, 2, 6], np.int32))
    with pytest.raises(ValueError, match="must have 6 timesteps as episode_lens says"):
        read_episodes(tmp_path / "old")


def make_lerobot(folder: Path, **changes: Any) -> None:
    """Two episodes of 2 and 3 frames, with a vector, an image and a video."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    from sharpwave.formats.lerobot_writer import encode_png

    image = [{"bytes": encode_png(np.full((8, 9, 3), n, np.uint8)), "path": None} for n in range(5)]
    frames = {
        "observation.state": [[float(n), 0.5] for n in range(5)],
        "observation.state.gripper": [float(n) for n in range(5)],
        "observation.images.top": image,
        "action": [[[float(n)], [1.0]] for n in range(5)],
        "next.reward": [0.0, 1.0, 0.0, 0.0, 1.0],
        "next.done": [False, True, False, False, True],
        "note": ["a"] * 5,
        "timestamp": [0.0, 0.1, 0.0, 0.1, 0.2],
        "frame_index": [0, 1, 0, 1, 2],
        "episode_index": [0, 0, 1, 1, 1],
        "index": list(range(5)),
        "task_index": [0, 0, 1, 1, 1],
    }
    video = "videos/observation.images.side"
    episodes = {
        "episode_index": [0, 1],
        "tasks": [["pick it"], ["lay it down"]],
        "length": [2, 3],
        f"{video}/chunk_index": [0, 0],
        f"{video}/file_index": [0, 1],
        f"{video}/from_timestamp": [0.0, 0.0],
        f"{video}/to_timestamp": [0.2, 0.3],
    }
    kinds = {"observation.images.top": "image", "note": "string"}
    features = {name: {"dtype": kinds.get(name, "float32"), "shape": [1]} for name in frames}
    features["observation.images.side"] = {"dtype": "video", "shape": [3, 8, 9]}
    info = {
        "codebase_version": "v3.0",
        "robot_type": "so100",
        "features": features,
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
    }
    for part in ("data/chunk-000", "meta/episodes/chunk-000"):
        (folder / part).mkdir(parents=True)
    pq.write_table(pa.table(frames), folder / "data/chunk-000/file-000.parquet")
    pq.write_table(pa.table(episodes), folder / "meta/episodes/chunk-000/file-000.parquet")
    (folder / "meta" / "info.json").write_text(json.dumps(info | changes))


def test_lerobot_datasets(tmp_path: Path) -> None:
    make_lerobot(tmp_path / "l")
    with pytest.warns(NotCarriedWarning) as warned:
        stream = read_episodes(tmp_path / "l")
    assert [str(warning.message) for warning in warned] == [
        "not carried over: note (no numbers)",
        "not carried over: robot_type (said about the dataset)",
    ]
    assert {name: field.shape for name, field in stream.schema.fields.items()} == {
        "obs.state": (2,),
        "obs.state_gripper": (),
        "obs.images.top": (8, 9, 3),
        "action": (2, 1),
        "reward": (),
        "terminated": (),
        "timestamp": (),
        "task_index": (),
    }
    first, second = stream
    assert second.steps["obs.state"].tolist() == [[2, 0.5], [3, 0.5], [4, 0.5]]
    assert second.steps["obs.images.top"][:, 0, 0, 0].tolist() == [2, 3, 4]
    assert first.steps["terminated"].tolist() == [False, True]
    assert decode_text(second.meta["task"][np.newaxis]) == ["lay it down"]
    side = "videos.observation.images.side"
    expected = tmp_path / "l" / "videos" / "observation.images.side" / "chunk-000" / "file-001.mp4"
    assert decode_text(second.meta[f"{side}.path"][np.newaxis]) == [str(expected)]
    assert (float(second.meta[f"{side}.from"]), float(second.meta[f"{side}.to"])) == (0, 0.3)


def test_tasks_survive_the_way_there_and_back(tmp_path: Path) -> None:
    make_lerobot(tmp_path / "l", robot_type=None)
    with pytest.warns(NotCarriedWarning, match="note"):
        buffer = EpisodeBuffer.from_lerobot(tmp_path / "l", tmp_path / "episodes")
    buffer.to_lerobot(tmp_path / "again", fps=10)
    import pyarrow.parquet as pq

    tasks = pq.read_table(tmp_path / "again" / "meta" / "tasks.parquet").to_pydict()
    assert tasks == {"task_index": [0, 1], "task": ["pick it", "lay it down"]}
    info = json.loads((tmp_path / "again" / "meta" / "info.json").read_text())
    assert info["total_tasks"] == 2
    assert info["features"]["observation.images.top"]["dtype"] == "image"


def test_older_lerobot_datasets_are_refused(tmp_path: Path) -> None:
    make_lerobot(tmp_path / "l", codebase_version="v2.1")
    with pytest.raises(OSError, match=r"must be a LeRobot dataset of version 3, got v2\.1"):
        read_episodes(tmp_path / "l")


def test_the_statistics_for_lerobot_are_those_of_all_frames(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    generator = np.random.default_rng(0)
    obs = generator.normal(3, 2, (40, 2))
    image = generator.integers(0, 256, (40, 8, 9, 3)).astype(np.uint8)
    ends = np.isin(np.arange(40), [4, 29, 39])
    arrays: dict[str, Any] = {
        "obs.a": obs,
        "obs.image": image,
        "actions": np.zeros(40),
        "dones": ends,
    }
    np.savez(tmp_path / "d.npz", **arrays)
    EpisodeBuffer.from_npz(tmp_path / "d.npz", tmp_path / "e").to_lerobot(tmp_path / "l")
    stats = json.loads((tmp_path / "l" / "meta" / "stats.json").read_text())
    np.testing.assert_allclose(stats["observation.a"]["mean"], obs.mean(axis=0))
    np.testing.assert_allclose(stats["observation.a"]["std"], obs.std(axis=0))
    np.testing.assert_allclose(stats["observation.a"]["max"], obs.max(axis=0))
    channels = (image / 255).mean(axis=(0, 1, 2))
    np.testing.assert_allclose(stats["observation.image"]["mean"], channels.reshape(3, 1, 1))
    assert stats["observation.image"]["count"] == [40]


def test_texts_as_bytes() -> None:
    texts = ["", "grün", "go left"]
    assert decode_text(encode_text(texts)) == texts
    assert encode_text([]).shape == (0, 1)
    with pytest.raises(
        ValueError, match="texts must have at most 3 bytes and no zeros, got 'grün'"
    ):
        encode_text(["grün"], 3)
    with pytest.raises(ValueError, match="no zeros"):
        encode_text(["a\0b"])
