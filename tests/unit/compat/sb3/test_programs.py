"""Programs for Stable-Baselines3 run with nothing but their import line changed."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.unit.compat.sb3.network_programs import CONTRIB_PROGRAMS, NETWORK_PROGRAMS
from tests.unit.compat.sb3.programs import PROGRAMS as BASE_PROGRAMS

HERE = "sharpwave.compat.sb3"
PROGRAMS = {**BASE_PROGRAMS, **NETWORK_PROGRAMS}
pytestmark = pytest.mark.filterwarnings("ignore:You have specified a mini-batch")  # of SB3


def run(program: str, library: str, contrib: str) -> None:
    exec(textwrap.dedent(program).format(library=library, contrib=contrib), {"__name__": "program"})


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs_here(name: str) -> None:
    run(PROGRAMS[name], HERE, HERE)


@pytest.mark.long(only=["crossq"])
@pytest.mark.parametrize("name", CONTRIB_PROGRAMS)
def test_a_program_for_contrib_runs_here(name: str) -> None:
    run(CONTRIB_PROGRAMS[name], HERE, HERE)


@pytest.mark.long
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_a_program_for_sb3(name: str) -> None:
    run(PROGRAMS[name], "stable_baselines3", "sb3_contrib")


@pytest.mark.long
@pytest.mark.parametrize("name", CONTRIB_PROGRAMS)
def test_it_is_a_program_for_contrib(name: str) -> None:
    pytest.importorskip("sb3_contrib")
    run(CONTRIB_PROGRAMS[name], "stable_baselines3", "sb3_contrib")
