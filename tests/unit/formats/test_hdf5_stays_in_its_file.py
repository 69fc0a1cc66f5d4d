"""An HDF5 file gives what it holds itself.

With external storage, external links and virtual datasets a file of a few bytes returned other
files of the machine as observations.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.cli import main
from sharpwave.formats import read_episodes

h5py = pytest.importorskip("h5py")

SECRET = np.arange(80, dtype=np.float32)


def external_storage(file: Any, name: str, folder: Path) -> None:
    file.create_dataset(name, (10, 8), "f4", external=[(str(folder / "secret"), 0, 320)])


def external_link(file: Any, name: str, folder: Path) -> None:
    file[name] = h5py.ExternalLink(str(folder / "secret.hdf5"), "/rows")


def external_group(file: Any, name: str, folder: Path) -> None:
    file[name] = h5py.ExternalLink(str(folder / "secret.hdf5"), "/")


def soft_link_through_an_external_one(file: Any, name: str, folder: Path) -> None:
    file["elsewhere"] = h5py.ExternalLink(str(folder / "secret.hdf5"), "/")
    file[name] = h5py.SoftLink("/elsewhere/rows")


def virtual(file: Any, name: str, folder: Path) -> None:
    layout = h5py.VirtualLayout((10, 8), "f4")
    layout[:] = h5py.VirtualSource(str(folder / "secret.hdf5"), "rows", (10, 8))
    file.create_virtual_dataset(name, layout)


def circle(file: Any, name: str, folder: Path) -> None:
    group = file.create_group(name)
    group[name] = group


def soft_circle(file: Any, name: str, folder: Path) -> None:
    file.create_group(name)["again"] = h5py.SoftLink(f"/{name}")


def nested(file: Any, name: str, folder: Path) -> None:
    external_link(file.create_group(f"{name}/a/b"), "c", folder)


WAYS = [
    external_storage,
    external_link,
    external_group,
    soft_link_through_an_external_one,
    virtual,
    circle,
    soft_circle,
    nested,
]
Way = Callable[[Any, str, Path], None]


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    SECRET.tofile(tmp_path / "secret")
    with h5py.File(tmp_path / "secret.hdf5", "w") as file:
        file["rows"] = SECRET.reshape(10, 8)
    return tmp_path


def d4rl(folder: Path, way: Way, name: str) -> Path:
    path = folder / "forged.hdf5"
    columns = {
        "observations": np.zeros((10, 8), np.float32),
        "actions": np.zeros((10, 2), np.float32),
        "rewards": np.zeros(10, np.float32),
        "terminals": np.arange(10) % 5 == 4,
    }
    with h5py.File(path, "w") as file:
        for column, values in columns.items():
            if column != name:
                file[column] = values
        way(file, name, folder)
    return path


@pytest.mark.long(but=["external_storage-observations"])
@pytest.mark.parametrize("name", ["observations", "infos", "unknown"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_file_of_episodes(way: Way, name: str, secret: Path) -> None:
    path = d4rl(secret, way, name)
    with pytest.raises(sw.SharpwaveIOError, match=r"forged\.hdf5"):
        list(read_episodes(path))
    with pytest.raises(sw.SharpwaveIOError, match=r"forged\.hdf5"):
        sw.BC(path)
    assert main(["convert", str(path), str(secret / "out.npz")]) == 2
    assert not (secret / "out.npz").exists()


@pytest.mark.parametrize("place", ["observations", "rewards", "infos/x", ""])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.filterwarnings("ignore:not carried", "ignore:Minari wants")
def test_a_minari_dataset(way: Way, place: str, secret: Path) -> None:
    pytest.importorskip("minari")
    with sw.EpisodeBuffer(
        secret / "episodes",
        max_episodes=4,
        max_timesteps=10,
        fields={"obs": ("float", 8), "action": "int", "reward": "float", "x": "float"},
    ) as buffer:
        for _ in range(2):
            with buffer.one_episode():
                for _ in range(5):
                    buffer.store(obs=np.zeros(8), action=1, reward=1.0, x=1.0)
        buffer.to_minari(secret / "data")
    with h5py.File(secret / "data/data/main_data.hdf5", "a") as file:
        full = "/".join(filter(None, ["episode_1", place]))
        parent, _, name = full.rpartition("/")
        group = file[parent] if parent else file
        del group[name]
        if way in (soft_circle, soft_link_through_an_external_one) and parent:
            way(file, "other", secret)
            group[name] = h5py.SoftLink("/other")
        else:
            way(group, name, secret)
    with pytest.raises(sw.SharpwaveIOError, match="data"):
        list(read_episodes(secret / "data"))


def test_links_inside_of_a_file_are_followed(secret: Path) -> None:
    def soft(file: Any, name: str, folder: Path) -> None:
        file["rows"] = SECRET.reshape(10, 8)
        file[name] = h5py.SoftLink("/rows")

    (first, _) = read_episodes(d4rl(secret, soft, "observations"))
    assert (first.steps["obs"] == SECRET.reshape(10, 8)[:5]).all()
