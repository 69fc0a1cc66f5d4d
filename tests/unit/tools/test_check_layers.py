from pathlib import Path

import pytest

from tests.unit.tools.trees import write
from tools.check_layers import RANKS, check, rooms_that_keep_silent


def faults(root: Path, files: dict[str, str]) -> list[str]:
    rooms = {f"{room}/__init__.py": "" for room in RANKS}
    rooms["primitives/a/__init__.py"] = rooms["primitives/a/tensors.py"] = ""
    return check(write(root, {**rooms, "core/lazy.py": "", **files}), {})


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("buffers/a.py", "from sharpwave.algorithms import PPO"),
        ("buffers/a.py", "import sharpwave.algorithms.ppo"),
        ("buffers/a.py", "from sharpwave import algorithms"),
        ("buffers/a.py", "def f():\n    from sharpwave.algorithms import PPO"),
        ("buffers/a.py", "if TYPE_CHECKING:\n    from sharpwave.algorithms import PPO"),
        ("buffers/a.py", "try:\n    import sharpwave.algorithms\nexcept ImportError:\n    pass"),
        ("buffers/a.py", "from sharpwave.tensors.buffers import rows"),
        ("buffers/deep/a.py", "from sharpwave.algorithms import PPO"),
        ("collect/a.py", "from sharpwave.core.lazy import nn"),
        ("a.py", "from sharpwave.envs import make"),
        ("primitives/a/tensors.py", "from sharpwave.losses import mean"),
        ("primitives/a/__init__.py", "from sharpwave.primitives.a import tensors"),
        ("envs/a.py", "def f():\n    from sharpwave.primitives.a import tensors"),
        ("envs/a.py", "from sharpwave.envs.on_device import DeviceVectorEnv"),
        ("layouts/a.py", "def f():\n    from sharpwave.envs.on_device import DeviceVectorEnv"),
        ("learners/a.py", "from sharpwave.loops import OffPolicyLoop"),
        ("runs/a.py", "from sharpwave.algorithms import PPO"),
        ("envs/a.py", "from sharpwave.config.config import Config"),
    ],
)
def test_no_room_imports_from_one_above_or_beside_it(tmp_path: Path, name: str, code: str) -> None:
    (fault,) = faults(tmp_path, {name: code})
    assert fault.startswith(f"{name}:")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("algorithms/a.py", "from sharpwave.buffers import ReplayBuffer"),
        ("algorithms/a.py", "from sharpwave.algorithms.ppo import PPO"),
        ("algorithms/a.py", "from sharpwave.core.lazy import nn, torch"),
        ("algorithms/a.py", "import numpy\nfrom gymnasium import spaces"),
        ("tensors/buffers/a.py", "from sharpwave.buffers.schema import Schema"),
        ("buffers/a.py", "from sharpwave import __version__"),
        ("buffers/a.py", "from sharpwave._native import Store"),
        ("envs/a.py", "if TYPE_CHECKING:\n    import torch"),
        ("envs/a.py", "def f():\n    import torch"),
        ("primitives/a/plain.py", "import torch"),
        ("primitives/a/__init__.py", "def f():\n    from sharpwave.primitives.a import tensors"),
        ("envs/a.py", "def f():\n    from sharpwave.envs.on_device import DeviceVectorEnv"),
        ("runs/a.py", "def f():\n    from sharpwave.tensors.buffers import RolloutBuffer"),
        ("runs/a.py", "from sharpwave.learners import Learner"),
        ("learners/a.py", "from sharpwave.config.config import Config"),
        ("learners/a.py", "from sharpwave.learners.native import SAC"),
        ("nn/a.py", "import torch\nfrom sharpwave.losses import mean"),
        ("__init__.py", "from sharpwave.buffers import ReplayBuffer"),
    ],
)
def test_rooms_import_from_below(tmp_path: Path, name: str, code: str) -> None:
    assert faults(tmp_path, {name: code}) == []


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("envs/a.py", "import torch"),
        ("envs/a.py", "from torch import nn"),
        ("envs/a.py", "import torch.nn.functional as F"),
        ("envs/a.py", "if TYPE_CHECKING:\n    pass\nelse:\n    import torch"),
        ("envs/a.py", "class A:\n    import torch"),
        ("algorithms/a.py", "import torch"),
        ("algorithms/a.py", "from sharpwave.nn import MLP"),
        ("algorithms/a.py", "from sharpwave import losses"),
        ("runs/a.py", "from sharpwave.tensors.buffers import RolloutBuffer"),
    ],
)
def test_torch_is_imported_late(tmp_path: Path, name: str, code: str) -> None:
    (fault,) = faults(tmp_path, {name: code})
    assert "torch" in fault


def test_a_room_must_have_a_place(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, {"attic/a.py": "x = 1"})
    assert fault.startswith("attic/a.py:")


def test_an_exception_excuses_one_room_of_one_file(tmp_path: Path) -> None:
    code = "from sharpwave.algorithms import PPO\nfrom sharpwave.runs import Run\n"
    files = {"algorithms/__init__.py": "", "runs/__init__.py": "", "buffers/a.py": code}
    root = write(tmp_path, {**files, "buffers/b.py": code})
    left = check(root, {"buffers/a.py": {"algorithms"}})
    assert [line.split(": ")[0] for line in left] == [
        "buffers/a.py:2",
        "buffers/b.py:1",
        "buffers/b.py:2",
    ]


def test_an_exception_that_is_not_needed_is_a_fault(tmp_path: Path) -> None:
    root = write(tmp_path, {"buffers/a.py": "", "algorithms/__init__.py": ""})
    assert check(root, {"buffers/a.py": {"algorithms"}}) != []
    assert check(root, {"buffers/gone.py": {"algorithms"}}) != []


def test_the_first_lines_of_a_room_say_what_may_enter(tmp_path: Path) -> None:
    said = '"""Loops.\n\nBelongs here: what feeds a learner.\n"""\n'
    silent = '"""Runs."""\n'
    root = write(tmp_path, {"loops/__init__.py": said, "runs/__init__.py": silent, "envs/a.py": ""})
    assert [line.split("/")[0] for line in rooms_that_keep_silent(root)] == ["envs", "runs"]
