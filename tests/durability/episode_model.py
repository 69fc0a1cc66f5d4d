"""A model in plain Python of what a folder of episodes holds."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sharpwave import EpisodeBuffer
from sharpwave.episodes import ABORTED, COMPLETE

OPEN, GONE = 0, 3
MAX_TIMESTEPS = 60
FRAME = 2048
FIELDS = {
    "number": "int64",
    "frame": ("uint8", FRAME),  # so large that a file holds few of them
    "pair": ("float", 2),
    "label": "int",
}
META = {"task": "int", "score": ("float", (), -1.0)}

Seen = tuple[Any, ...]
"""A reader's view of an episode: id, flag, task, score, numbers and labels of its steps."""


def steps(numbers: Any) -> dict[str, Any]:
    """The fields of steps: all follow from their numbers, but for the label."""
    number = np.asarray(numbers, np.int64)
    return {
        "number": number,
        "frame": np.broadcast_to(
            (number * 7 % 251).astype(np.uint8)[..., None], (*number.shape, FRAME)
        ),
        "pair": np.stack([number % 1000, -(number % 1000)], axis=-1).astype(np.float32),
        "label": np.zeros(number.shape, np.int32),
    }


@dataclass
class Episode:
    """One of the model."""

    id: int
    task: int
    score: float = -1.0
    numbers: list[int] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    flag: int = OPEN

    def append(self, *numbers: int) -> None:
        if len(self.numbers) + len(numbers) > MAX_TIMESTEPS:
            raise ValueError("too long")
        self.numbers += numbers
        self.labels += [0] * len(numbers)


@dataclass
class EpisodeModel:
    """The content of a folder, also while something is going on."""

    max_episodes: int
    circular: bool
    episodes: list[Episode] = field(default_factory=list)
    next_id: int = 0
    open: list[Episode] = field(default_factory=list)
    batch: bool = False
    ending: int = ABORTED
    update: tuple[list[int], int] | None = None
    """Ids, and their new label and score. Some of them may have it already."""

    def complete(self) -> list[Episode]:
        return [episode for episode in self.episodes if episode.flag == COMPLETE]

    def check_room(self, n: int = 1) -> None:
        taken = 0 if self.circular else len(self.complete())
        if taken + n > self.max_episodes:
            raise ValueError("full")

    def begin(self, tasks: list[int], *, batch: bool = False) -> list[Episode]:
        self.check_room(len(tasks))
        self.open = [Episode(self.next_id + i, task) for i, task in enumerate(tasks)]
        self.batch, self.ending = batch, ABORTED
        self.episodes += self.open
        self.next_id += len(tasks)
        return self.open

    def end(self, flag: int) -> Iterator[None]:
        """End what is open: one episode after the other."""
        for episode in list(self.open):
            episode.flag = flag if episode.numbers else GONE
            self.open.remove(episode)
            yield
        self.evict()
        yield

    def evict(self) -> None:
        while self.circular and len(self.complete()) > self.max_episodes:
            self.episodes.pop(0)

    def apply_update(self) -> None:
        ids, value = self.update or ([], 0)
        for episode in self.episodes:
            if episode.id in ids:
                episode.score, episode.labels = value, [value] * len(episode.numbers)
        self.update = None

    def recovered(self) -> EpisodeModel:
        model = copy.deepcopy(self)
        model.apply_update()
        for _ in model.end(model.ending if model.batch else ABORTED):
            pass
        return model

    def difference(self, found: list[Seen]) -> str:
        ids = self.update[0] if self.update else []

        def masked(episodes: list[Seen]) -> list[Seen]:
            """Without what an update that is going on may have changed."""
            return [(*e[:3], e[4]) if e[0] in ids else e for e in episodes]

        expected = [
            (e.id, e.flag, e.task, e.score, e.numbers, e.labels)
            for e in self.episodes
            if e.flag in (COMPLETE, ABORTED)
        ]
        if masked(found) == masked(expected):
            return ""
        return f"found {[_short(e) for e in found]}, expected {[_short(e) for e in expected]}"

    def settle(self, found: list[Seen]) -> None:
        """A writer finishes what is left open."""


def look(buffer: EpisodeBuffer) -> list[Seen]:
    """A reader's view. Steps whose fields do not belong together are a failure at once."""
    table = buffer.episodes(aborted=True)
    if len(table) == 0:
        return []
    rows = [np.arange(s, s + n) for s, n in zip(table.starts, table.lengths, strict=True)]
    found = buffer.gather(np.concatenate(rows))
    for name, expected in steps(found["number"]).items():
        if name != "label":
            np.testing.assert_array_equal(found[name], expected, err_msg=name)
    ends = np.cumsum(table.lengths)[:-1]
    return list(
        zip(
            table.ids.tolist(),
            table.flags.tolist(),
            table.meta["task"].tolist(),
            table.meta["score"].tolist(),
            [numbers.tolist() for numbers in np.split(found["number"], ends)],
            [labels.tolist() for labels in np.split(found["label"], ends)],
            strict=True,
        )
    )


def _short(episode: Seen) -> str:
    *head, numbers, labels = episode
    return f"<{head}: {len(numbers)} steps from {numbers[:1]} {set(labels)}>"
