"""Files that are not as they should be are named, and nothing is left half written."""

from __future__ import annotations

import builtins
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharpwave.episodes import EpisodeBuffer
from sharpwave.errors import FolderLockedError, SharpwaveIOError
from sharpwave.formats import (
    FORMATS,
    Episode,
    EpisodeStream,
    convert,
    format_of,
    read_episodes,
    write_episodes,
)
from tests.unit.formats.streams import make_stream

FIELDS = {"obs": ("float32", (3,)), "action": ("int64", ()), "reward": ("float32", ())}
META = {"final_obs": ("float32", (3,)), "task": ("int32", ())}
WRITTEN = ["episodes", "npz", "hdf5", "parquet", "arrow", "lerobot", "minari"]
NEEDS = {"hdf5": "h5py", "minari": "minari", "lerobot": "pyarrow"} | dict.fromkeys(
    ("parquet", "arrow"), "pyarrow"
)


@pytest.fixture(params=WRITTEN)
def name(request: pytest.FixtureRequest) -> str:
    if request.param in NEEDS:
        pytest.importorskip(NEEDS[request.param])
    return str(request.param)


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_missing_or_something_else_is_named(name: str, tmp_path: Path) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    for path in (tmp_path / "nothing", tmp_path / "text.txt", tmp_path / "folder"):
        (tmp_path / "folder").mkdir(exist_ok=True)
        (tmp_path / "text.txt").write_text("episodes")
        with pytest.raises(SharpwaveIOError, match=path.name):
            read_episodes(path, name)


def test_an_unknown_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("episodes")
    with pytest.raises(SharpwaveIOError, match=r"text.txt is of no known format"):
        format_of(tmp_path / "text.txt")


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown format 'parket'; did you mean 'parquet'"):
        write_episodes(make_stream(FIELDS), tmp_path / "x", "parket")
    with pytest.raises(ValueError, match="memmap can be read and not written"):
        write_episodes(make_stream(FIELDS), tmp_path / "x", "memmap")


def test_what_is_there_is_replaced_only_when_asked_to(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_episodes(make_stream(FIELDS, META), path, name)
    with pytest.raises(SharpwaveIOError, match="x exists; overwrite replaces it"):
        write_episodes(make_stream(FIELDS, META), path, name)
    write_episodes(make_stream(FIELDS, META, lengths=(2,)), path, name, overwrite=True)
    assert len(read_episodes(path)) == 1


def test_something_else_is_never_replaced(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "precious").write_text("data")
    (tmp_path / "precious").write_text("data")
    for path in (tmp_path / "folder", tmp_path / "precious"):
        with pytest.raises(SharpwaveIOError, match="is something else, which is never overwritten"):
            write_episodes(make_stream(FIELDS, META), path, name, overwrite=True)
    assert (tmp_path / "folder" / "precious").read_text() == "data"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "precious"]


def test_a_failed_export_leaves_nothing(name: str, tmp_path: Path) -> None:
    stream = make_stream(FIELDS, META)
    episodes = list(stream.episodes())
    bad = Episode({**episodes[1].steps, "obs": np.zeros((4, 2), np.float32)}, episodes[1].meta)
    broken = EpisodeStream(
        "made up", stream.schema, stream.lengths, lambda: [episodes[0], bad, episodes[2]]
    )
    with pytest.raises(ValueError, match=r"made up: episode 1: field 'obs' must have shape"):
        write_episodes(broken, tmp_path / "x", name)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_somebody_writes_to_is_not_replaced(tmp_path: Path) -> None:
    write_episodes(make_stream(FIELDS, META), tmp_path / "x", max_episodes=10)
    with EpisodeBuffer.from_folder(tmp_path / "x") as writer:
        with writer.one_episode():
            writer.store(obs=[1, 2, 3])
        with pytest.raises(FolderLockedError):
            write_episodes(make_stream(FIELDS, META), tmp_path / "x", overwrite=True)
        assert len(writer) == 4
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_buffer_whose_folder_is_replaced_says_so(tmp_path: Path) -> None:
    """It would have gone on with the old episodes, or mixed them with compressed new ones."""
    write_episodes(make_stream(FIELDS, META), tmp_path / "x")
    reader = EpisodeBuffer.from_folder(tmp_path / "x")
    assert len(reader) == 3
    write_episodes(make_stream(FIELDS, META), tmp_path / "x", overwrite=True)
    with pytest.raises(RuntimeError, match="overwritten"):
        reader.episodes()


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    write_episodes(make_stream(FIELDS, META), tmp_path / "x")
    assert len(read_episodes(tmp_path / "x")) == 3


def largest_file(path: Path) -> Path:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return max(files, key=lambda file: file.stat().st_size)


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_a_file_cut_short_is_named(name: str, share: float, tmp_path: Path) -> None:
    if name == "episodes":
        pytest.skip("a chunk of zeros at its end is how the store grows")
    write_episodes(make_stream(FIELDS, META, lengths=(400, 300)), tmp_path / "x", name)
    file = largest_file(tmp_path / "x")
    file.write_bytes(file.read_bytes()[: int(file.stat().st_size * share)])
    with pytest.raises(SharpwaveIOError, match="x"):
        convert(tmp_path / "x", tmp_path / "y", from_format=name)
    assert not (tmp_path / "y").exists()


def test_a_memmap_file_cut_short_is_named(tmp_path: Path) -> None:
    from tests.unit.formats.test_foreign_files import make_memmap_folder

    make_memmap_folder(tmp_path / "old")
    file = tmp_path / "old" / "state.data.npy"
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(SharpwaveIOError, match=r"state\.data\.npy is damaged"):
        read_episodes(tmp_path / "old")


def test_a_bit_flipped_in_a_zip_file_is_noticed(tmp_path: Path) -> None:
    write_episodes(make_stream(FIELDS, META, lengths=(400, 300)), tmp_path / "x.npz")
    content = bytearray((tmp_path / "x.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(SharpwaveIOError, match=r"x.npz is damaged: Bad CRC-32"):
        list(read_episodes(tmp_path / "x.npz"))


ARRAYS: dict[str, Any] = {
    "observations": np.zeros((4, 2)),
    "actions": np.zeros(4),
    "rewards": np.zeros(4),
    "terminals": np.array([0, 0, 0, 1]),
}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"terminals": None}, "does not say where episodes end: it must have one of the columns"),
        ({"rewards": np.zeros(3)}, r"'rewards' must have 4 rows like 'observations', got .*\(3,\)"),
        ({"rewards": np.zeros(())}, r"'rewards' must have 4 rows like 'observations', got .*\(\)"),
        ({"obs": np.zeros((4, 2))}, "columns 'observations' and 'obs' would both be 'obs'"),
        ({"actions": np.array(list("abcd"))}, "'actions' must hold numbers, got <U1"),
        ({"actions": np.zeros(4, complex)}, "'actions' must hold numbers, got complex128"),
        ({"actions": np.zeros((4, 0))}, "field 'action': shape must be of positive numbers"),
        ({"terminals": np.zeros((4, 2))}, "'terminals' must have one value per step"),
    ],
)
def test_arrays_that_are_no_steps_are_named(
    changes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    arrays = {key: values for key, values in (ARRAYS | changes).items() if values is not None}
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(ValueError, match=reason):
        read_episodes(tmp_path / "x.npz")


def test_pickles_in_npz_files_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", **ARRAYS, extra=np.array([{}, {}, {}, {}], object))
    with pytest.raises(ValueError, match="array 'extra' must hold numbers, got object"):
        read_episodes(tmp_path / "x.npz")


def test_a_hdf5_file_of_another_layout_is_refused(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["data/demo_0/obs"] = np.zeros(3)
    with pytest.raises(ValueError, match=r"must have the layout of D4RL .* got .'data/demo_0/obs'"):
        read_episodes(tmp_path / "x.h5")


def drop_npz(path: Path) -> None:
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(path.with_suffix(".new"), "w") as new:
        for member in old.namelist():
            if member not in ("action.npy", "meta/task.npy"):
                new.writestr(member, old.read(member))
    path.with_suffix(".new").replace(path)


def drop_hdf5(path: Path) -> None:
    import h5py

    with h5py.File(path, "a") as file:
        del file["actions"]


def drop_parquet(path: Path) -> None:
    import pyarrow.parquet as pq

    table = pq.read_table(path / "steps.parquet")
    pq.write_table(table.drop_columns(["action"]), path / "steps.parquet")


def drop_lerobot(path: Path) -> None:
    import pyarrow.parquet as pq

    file = path / "data" / "chunk-000" / "file-000.parquet"
    pq.write_table(pq.read_table(file).drop_columns(["action"]), file)


@pytest.mark.parametrize(
    ("name", "drop", "reason"),
    [
        ("npz", drop_npz, "has no column 'action'"),
        ("hdf5", drop_hdf5, "has no column 'actions'"),
        ("parquet", drop_parquet, "has no column 'action'"),
        ("lerobot", drop_lerobot, "has no column 'action'"),
    ],
)
def test_a_missing_column_is_named(
    name: str, drop: Callable[[Path], None], reason: str, tmp_path: Path
) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    write_episodes(make_stream(FIELDS, META), tmp_path / "x", name)
    drop(tmp_path / "x")
    with pytest.raises(ValueError, match=reason):
        read_episodes(tmp_path / "x")


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    write_episodes(make_stream(FIELDS, META), tmp_path / "x", "parquet")
    (tmp_path / "x" / "episodes.parquet").unlink()
    with pytest.raises(SharpwaveIOError, match=r"x has no episodes\.parquet"):
        read_episodes(tmp_path / "x")


def test_missing_values_and_uneven_lists_of_a_table_are_named(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    bad = {"a": ([1, None, 3], "missing values"), "b": ([[1], [1, 2], [3]], "lists of one size")}
    for key, (values, reason) in bad.items():
        pq.write_table(pa.table({"episode": [0, 0, 0], key: values}), tmp_path / "x.parquet")
        with pytest.raises(ValueError, match=f"column '{key}' must have .*{reason}"):
            list(read_episodes(tmp_path / "x.parquet"))


def test_a_description_of_a_later_version_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    write_episodes(make_stream(FIELDS, META), tmp_path / "x", "lerobot")
    file = tmp_path / "x" / "meta" / "sharpwave.json"
    note = json.loads(file.read_text())
    file.write_text(json.dumps(note | {"version": 99}))
    with pytest.raises(SharpwaveIOError, match="was written by a later version of this library"):
        read_episodes(tmp_path / "x")
    file.write_text("{")
    with pytest.raises(SharpwaveIOError, match="has a damaged description"):
        read_episodes(tmp_path / "x")


def test_names_that_a_format_uses_itself_are_refused(tmp_path: Path) -> None:
    fields = FIELDS | {"index": ("int64", ())}
    with pytest.raises(ValueError, match="field 'index' cannot go to LeRobot"):
        write_episodes(make_stream(fields), tmp_path / "x", "lerobot")
    fields = FIELDS | {"info.x": ("int64", ()), "x": ("int64", ())}
    for name in ("hdf5", "minari"):
        pytest.importorskip(NEEDS[name])
        with pytest.raises(ValueError, match=r"must differ without the `info.` before them"):
            write_episodes(make_stream(fields), tmp_path / "x", name)
    with pytest.raises(ValueError, match=r"field 'meta/x' cannot be stored in \.npz"):
        write_episodes(make_stream({"meta/x": ("int8", ())}), tmp_path / "x", "npz")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "library", "extra"),
    [("hdf5", "h5py", "hdf5"), ("parquet", "pyarrow", "arrow"), ("minari", "minari", "minari")],
)
def test_a_missing_library_names_the_extra(
    name: str, library: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_module = builtins.__import__("importlib").import_module

    def missing(module: str, *arguments: Any) -> Any:
        if module.partition(".")[0] == library:
            raise ImportError(f"No module named {library!r}")
        return import_module(module, *arguments)

    monkeypatch.setattr("sharpwave.core.optional.import_module", missing)
    with pytest.raises(ImportError, match=rf'pip install "sharpwave\[{extra}\]"'):
        write_episodes(make_stream(FIELDS, META), tmp_path / "x", name)
    assert list(tmp_path.iterdir()) == []
