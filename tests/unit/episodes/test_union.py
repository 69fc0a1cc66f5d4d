"""Several buffers read as one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sharpwave.episodes.union import EpisodeUnion
from tests.reference.episodes import ListedEpisodes, ListedField, assert_equal, flat
from tests.unit.episodes.listed import FIELDS, META, listed, more, values

LEVELS: list[dict[str, Any]] = [
    {},
    {"timestep_level": True, "filter_fields": {"reward": [0, 1]}},
    {"n_steps": 3, "sequence_fields": ["action"], "filter_meta": {"task": [0, 2]}},
    {"window_length": 3, "windows": "all"},
    {"window_length": 3},
]


def parts(*lengths: tuple[int, ...], room: int | None = None) -> list[ListedEpisodes]:
    """Buffers of episodes of these lengths, numbered through all of them."""
    buffers = []
    number = 0
    for some in lengths:
        buffer = ListedEpisodes(FIELDS, META, room=room)
        for length in some:
            buffer.store_episode(**values(number, length, number % 3))
            number += 1
        buffers.append(buffer)
    return buffers


@pytest.mark.parametrize("options", LEVELS)
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_union_yields_what_one_buffer_of_all_episodes_would(
    options: dict[str, Any], shuffle: bool
) -> None:
    union = EpisodeUnion(parts((4, 1), (), (7, 2, 5), (3,)))
    whole = listed((4, 1, 7, 2, 5, 3))
    assert len(union) == union.num_episodes == 6
    options = {**options, "return_indices": True, "shuffle": shuffle}
    for got, want in zip(
        union.dataloader(4, **options), whole.dataloader(4, **options), strict=True
    ):
        assert_equal(got, flat(want))


def test_rows_and_ranges_are_read_from_the_buffers_they_lie_in() -> None:
    union = EpisodeUnion(parts((4,), (3,)))
    starts = union.episodes().starts
    rows = np.array([[starts[1] + 2, -1], [starts[0] + 1, starts[1]]])
    got = union.gather(rows, ["action"])
    assert got["action"].tolist() == [[[1, 2], [0, 0]], [[0, 1], [1, 0]]]
    out = {"action": np.full((2, 2, 2), 9, np.int32)}
    assert union.gather(rows, ["action"], out) is out
    assert out["action"].tolist() == got["action"].tolist()
    ranges = union.gather_ranges(starts[::-1], np.array([2, 1]), 3)
    assert ranges["action"].tolist() == [[[1, 0], [1, 1], [0, 0]], [[0, 0], [0, 0], [0, 0]]]
    with pytest.raises(IndexError, match="rows must be numbers of the union's table"):
        union.gather(np.array([2 << 48]), ["action"])


def test_all_data_is_one_batch() -> None:
    union = EpisodeUnion(parts((4,), (3, 5)))
    data = union.get_all_data()
    assert data["obs.image"].shape == (3, 5, 2, 2)
    assert data["episode_lens"].tolist() == [4, 3, 5]
    assert set(union.get_all_data(fields=("reward",))) == {"reward"}
    assert set(union.get_all_data(meta_fields=("task",))) == {"task"}
    assert EpisodeUnion(parts((), ())).get_all_data() == {}


def test_overwritten_episodes_of_one_buffer_are_left_out() -> None:
    first, second = parts((3, 3), (3, 3), room=2)
    loader = EpisodeUnion([first, second]).dataloader(16, timestep_level=True)
    more(second, 3)
    (batch,) = loader
    assert sorted({int(number) for number in batch["action"][:, 0]}) == [0, 1, 3]


def test_different_fields_are_shown() -> None:
    (first,) = parts((3,))
    other = {name: field for name, field in FIELDS.items() if name != "done"}
    other["reward"] = ListedField("float64")
    other["action"] = ListedField("int32", (3,))
    second = ListedEpisodes(other, {**META, "score": ListedField("int8")})
    with pytest.raises(ValueError, match="sources must have the same fields") as caught:
        EpisodeUnion([first, second])
    lines = str(caught.value).splitlines()[1:]
    assert [line.strip() for line in lines] == [
        "field 'action': int32 (2,) and int32 (3,)",
        "field 'reward': float32 () and float64 ()",
        "field 'done': bool () and none",
        "meta field 'score': none and int8 ()",
    ]


def test_bad_sources_are_named() -> None:
    with pytest.raises(ValueError, match="at least one folder"):
        EpisodeUnion([])
    with pytest.raises(TypeError, match="sources must be a list of folders, got 'folder'"):
        EpisodeUnion("folder")
    with pytest.raises(TypeError, match="sources must be folders or episode buffers, got 3"):
        EpisodeUnion([3])  # type: ignore[list-item]
