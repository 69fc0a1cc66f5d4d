"""Round trips: episodes written in a format come back as they were."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from sharpwave.episodes import EpisodeBuffer
from sharpwave.formats import (
    FORMATS,
    EpisodeStream,
    NotCarriedWarning,
    convert,
    format_of,
    merge,
    read_episodes,
    write_episodes,
)
from tests.examples import examples
from tests.unit.formats.streams import DTYPES, assert_same, make_stream, streams

NEEDS = {
    "lerobot": "pyarrow",
    "minari": "minari",
    "hdf5": "h5py",
    "parquet": "pyarrow",
    "arrow": "pyarrow",
}
WRITTEN = [
    ("episodes", {}),
    ("npz", {}),
    ("npz", {"compress": True}),
    ("hdf5", {}),
    ("hdf5", {"compress": True}),
    ("parquet", {}),
    ("arrow", {}),
    ("arrow", {"compress": False}),
    ("lerobot", {"fps": 5}),
    ("minari", {}),
]
repeated_observation = pytest.mark.filterwarnings("ignore:Minari wants the observation after")


@pytest.fixture(params=WRITTEN, ids=lambda param: "-".join([param[0], *param[1]]))
def written(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    name, options = request.param
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    return name, options


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sp ace é") as made:
        yield Path(made)


def round_trip(stream: EpisodeStream, name: str, options: dict[str, Any], folder: Path) -> None:
    path = folder / "written"
    write_episodes(stream, path, name, overwrite=path.exists(), **options)
    assert format_of(path).name == name
    assert_same(read_episodes(path), stream)


@pytest.mark.long(but=["episodes"])
@repeated_observation
@given(stream=streams())
@settings(
    max_examples=examples(8),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_every_schema_comes_back(
    written: tuple[str, dict[str, Any]], folder: Path, stream: EpisodeStream
) -> None:
    round_trip(stream, *written, folder)


@pytest.mark.long(but=["episodes"])
@repeated_observation
def test_every_dtype_comes_back(written: tuple[str, dict[str, Any]], folder: Path) -> None:
    fields = {"obs": ("float32", (3,)), "action": ("int64", ())}
    extra = {
        f"{dtype}_{n}": (dtype, shape) for dtype in DTYPES for n, shape in enumerate([(), (2,)])
    }
    meta = {f"of {name}": spec for name, spec in extra.items()}
    round_trip(make_stream(fields | extra, meta), *written, folder)


def test_images_come_back_bit_for_bit(written: tuple[str, dict[str, Any]], folder: Path) -> None:
    image = ("uint8", (40, 48, 3))
    fields = {"obs.left": image, "obs.right": ("uint8", (3, 40, 48)), "action": ("float32", (2,))}
    finals = {f"final_{name}": spec for name, spec in fields.items() if name.startswith("obs")}
    round_trip(make_stream(fields, finals), *written, folder)


@repeated_observation
def test_no_episodes_come_back_as_none(written: tuple[str, dict[str, Any]], folder: Path) -> None:
    fields = {"obs": ("float32", (3,)), "action": ("int64", ())}
    round_trip(make_stream(fields, {"task": ("int32", ())}, lengths=()), *written, folder)


@repeated_observation
def test_episodes_larger_than_a_group_of_rows_come_back(
    written: tuple[str, dict[str, Any]], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sharpwave.formats.tables.GROUP_BYTES", 100)
    fields = {"obs": ("float32", (3, 2)), "action": ("int64", ()), "reward": ("float32", ())}
    round_trip(make_stream(fields, lengths=(9, 1, 30, 2)), *written, folder)


def test_lerobot_spreads_episodes_over_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    writer = "sharpwave.formats.lerobot_writer"
    monkeypatch.setattr(f"{writer}.FILE_MEGABYTES", 0)
    monkeypatch.setattr(f"{writer}.CHUNK_FILES", 2)
    fields = {"obs": ("float32", (3,)), "action": ("int64", ())}
    stream = make_stream(fields, lengths=(1, 4, 2, 3, 3))
    round_trip(stream, "lerobot", {}, folder)
    files = sorted(path.relative_to(folder / "written") for path in folder.glob("*/data/*/*"))
    assert [str(path) for path in files] == [
        "data/chunk-000/file-000.parquet",
        "data/chunk-000/file-001.parquet",
        "data/chunk-001/file-000.parquet",
        "data/chunk-001/file-001.parquet",
        "data/chunk-002/file-000.parquet",
    ]


@pytest.mark.long
def test_a_chain_through_all_formats_loses_nothing(folder: Path) -> None:
    for library in set(NEEDS.values()):
        pytest.importorskip(library)
    fields = {"obs.a": ("float16", (2,)), "obs.b": ("uint8", ()), "action": ("int32", (1,))}
    meta = {"final_obs.a": ("float16", (2,)), "final_obs.b": ("uint8", ()), "seed": ("int64", ())}
    stream = make_stream(fields | {"reward": ("float64", ())}, meta)
    last = folder / "first"
    write_episodes(stream, last)
    for name in [name for name, each in FORMATS.items() if each.can_write]:
        convert(last, folder / name, to_format=name)
        last = folder / name
    assert_same(read_episodes(last), stream)


def test_merging_puts_episodes_one_after_another(folder: Path) -> None:
    fields = {"obs": ("float32", (3,)), "action": ("int64", ())}
    parts = [make_stream(fields, lengths=(n, 2), seed=n) for n in (1, 2, 3)]
    for number, part in enumerate(parts):
        write_episodes(part, folder / f"{number}.npz")
    merge([folder / f"{number}.npz" for number in range(3)], folder / "all")
    together = [episode for part in parts for episode in part]
    got = read_episodes(folder / "all")
    assert got.lengths.tolist() == [1, 2, 2, 2, 3, 2]
    for one, other in zip(got, together, strict=True):
        assert one.steps["obs"].tobytes() == other.steps["obs"].tobytes()


def test_merging_says_how_fields_differ(folder: Path) -> None:
    write_episodes(make_stream({"obs": ("float32", (3,)), "a": ("int8", ())}), folder / "x.npz")
    write_episodes(make_stream({"obs": ("float64", (3,)), "b": ("int8", ())}), folder / "y.npz")
    expected = (
        r"field 'obs' is float64 \(3,\) instead of float32 \(3,\); "
        r"field 'a' is missing instead of int8 \(\); field 'b' is int8 \(\) instead of missing"
    )
    with pytest.raises(ValueError, match=expected):
        merge([folder / "x.npz", folder / "y.npz"], folder / "all")
    assert not (folder / "all").exists()


@pytest.mark.long(but=["npz"])
@pytest.mark.parametrize("name", ["npz", "hdf5", "parquet", "arrow", "lerobot", "minari"])
def test_buffers_have_a_method_for_each_format(name: str, folder: Path) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    fields = {"obs": ("float32", (3,)), "action": ("int64", ())}
    stream = make_stream(fields, {"final_obs": ("float32", (3,))})
    write_episodes(stream, folder / "episodes")
    with EpisodeBuffer.from_folder(folder / "episodes") as buffer:
        getattr(buffer, f"to_{name}")(folder / "exported")
    read = getattr(EpisodeBuffer, f"from_{name}")
    with read(folder / "exported", folder / "imported", max_episodes=9, circular=True) as buffer:
        assert (buffer.max_episodes, buffer.circular, len(buffer)) == (9, True, 3)
        with buffer.one_episode():
            buffer.store(obs=[1, 2, 3], action=4)
        assert len(buffer) == 4
    assert_same(read_episodes(folder / "exported"), stream)


@pytest.mark.parametrize("data_format", ["arrow", "parquet"])
def test_minari_comes_back_from_its_other_storages(data_format: str, folder: Path) -> None:
    pytest.importorskip("minari")
    fields = {"obs.a": ("float64", (3,)), "obs.b": ("bool", ()), "action": ("int64", ())}
    fields |= {"reward": ("float32", ()), "info.x": ("int16", ()), "y": ("uint8", (2, 2))}
    meta = {"final_obs.a": ("float64", (3,)), "final_obs.b": ("bool", ()), "id": ("int8", (2,))}
    meta |= {"seed": ("int64", ()), "options.level": ("uint16", ())}
    round_trip(make_stream(fields, meta), "minari", {"data_format": data_format}, folder)


def test_minari_says_which_meta_fields_are_too_large(folder: Path) -> None:
    pytest.importorskip("minari")
    fields = {"obs": ("float32", (3,)), "action": ("int64", ())}
    meta = {"final_obs": ("float32", (3,)), "map": ("uint8", (300, 300)), "task": ("int8", ())}
    with pytest.warns(NotCarriedWarning, match="not carried over: map .too large"):
        write_episodes(make_stream(fields, meta), folder / "m", "minari")
    with pytest.raises(ValueError, match="'map'"):
        next(iter(read_episodes(folder / "m")))
