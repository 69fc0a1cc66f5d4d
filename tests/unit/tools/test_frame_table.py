import pytest

import sharpwave as sw
from tools.frame_table import class_rows, lineage, lines_of, members
from tools.iteration_walk import acting_hops, iteration


class Base:
    def _hidden(self) -> None: ...

    def shown(self) -> None: ...


class Derived(Base):
    def __len__(self) -> int:
        return 0


def test_members_are_those_of_bases_too_without_special_names() -> None:
    assert members(Derived) == ["_hidden", "shown"]


def test_only_classes_of_the_library_are_bases() -> None:
    assert lineage(Derived) == []


def test_a_row_counts_the_lines_of_the_file() -> None:
    rows = dict(class_rows("PPO"))
    (lines,) = [value for name, value in rows.items() if name.endswith("ppo.py")]
    assert isinstance(lines, int)
    assert lines > 100


@pytest.mark.long
def test_a_learner_that_a_class_names_is_counted_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = dict(class_rows("PPO"))
    monkeypatch.setattr(sw.PPO, "Learner", sw.A2C, raising=False)
    rows = dict(class_rows("PPO"))
    assert rows["PPO.Learner: lines of the class and its bases"] == lines_of(lineage(sw.A2C))
    name = "PPO: lines of the class and its bases"
    assert rows[name] == alone[name]


@pytest.mark.long
def test_an_iteration_visits_its_algorithm_and_goes_back_and_forth() -> None:
    walk = iteration("PPO", "torch")
    assert "algorithms/ppo.py" in walk.files
    assert len(set(walk.files)) == len(walk.files)
    assert walk.changes >= len(walk.files) - 1
    assert walk.calls >= len(walk.files)


@pytest.mark.long
def test_the_way_to_the_networks_is_that_of_acting() -> None:
    hops = acting_hops("PPO", "native")
    assert hops
    assert hops[-1].endswith(":act")
    assert not any(hop.startswith(("envs/", "collect/")) for hop in hops)
