"""Checkpoints in several files: one path, replaced as a whole, never a mixture."""

from __future__ import annotations

import os
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import sharpwave as sw
from sharpwave.storage.checkpoints import (
    CheckpointReader,
    list_parts,
    read_checkpoint,
    read_header,
    remove_checkpoint,
    rename_checkpoint,
    torn_parts,
    write_checkpoint,
)
from sharpwave.storage.run_folder import RunFolder
from tests.durability.processes import killed_at
from tests.reference.nests import assert_same
from tests.unit.agents.small_runs import small_ppo

TENSORS = 4


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sharpwave.storage.checkpoints.writer.PART_BYTES", 1000)


def state_of(number: int) -> dict[str, Any]:
    """Every tensor holds the number, so that a mixture shows."""
    state: dict[str, Any] = {str(i): np.full(80, number) for i in range(TENSORS)}
    return {"number": number, "tied": state["3"], **state}


def write(path: Path, number: int) -> None:
    write_checkpoint(path, {"number": number}, state_of(number))


def number_in(path: Path) -> int:
    """The number of a checkpoint that is whole."""
    header, state = read_checkpoint(path)
    assert_same(state, state_of(header["number"]))
    return int(header["number"])


class TestOnePath:
    def test_it_is_read_as_if_it_were_one_file(self, tmp_path: Path) -> None:
        write(tmp_path / "a", 1)
        assert number_in(tmp_path / "a") == 1
        assert read_header(tmp_path / "a") == {"number": 1}
        parts = list_parts(tmp_path / "a")
        assert len(parts) == TENSORS
        assert {"a", *(part.name for part in parts)} == {x.name for x in tmp_path.iterdir()}
        assert all(part.stat().st_mode & 0o777 == 0o644 for part in parts)
        with CheckpointReader(tmp_path / "a") as checkpoint:
            assert len(checkpoint.names) == TENSORS + 1
            assert checkpoint.tensor("state.2").tolist() == [1] * 80

    def test_every_part_is_a_safetensors_file(self, tmp_path: Path) -> None:
        write(tmp_path / "a", 1)
        found: dict[str, Any] = {}
        for part in list_parts(tmp_path / "a"):
            found.update(load_file(part))
        assert len(found) == TENSORS
        assert load_file(tmp_path / "a") == {}

    def test_an_agent_is_saved_and_goes_on(self, tmp_path: Path) -> None:
        agent = small_ppo(hidden=(16, 16))
        agent.train(100)
        agent.save(tmp_path / "a.safetensors")
        assert len(list_parts(tmp_path / "a.safetensors")) > 1
        again = sw.PPO.from_checkpoint(tmp_path / "a.safetensors")
        assert_same(
            {name: dict(net.state_dict()) for name, net in again.networks.items()},
            {name: dict(net.state_dict()) for name, net in agent.networks.items()},
        )
        sw.Trainer.from_checkpoint(tmp_path / "a.safetensors").train(50)

    def test_the_same_content_has_the_same_files(self, tmp_path: Path) -> None:
        write(tmp_path / "a", 1)
        before = {x.name: x.read_bytes() for x in tmp_path.iterdir()}
        write(tmp_path / "a", 1)
        assert {x.name: x.read_bytes() for x in tmp_path.iterdir()} == before
        assert number_in(tmp_path / "a") == 1

    def test_a_smaller_one_takes_the_parts_away(self, tmp_path: Path) -> None:
        write(tmp_path / "a", 1)
        write_checkpoint(tmp_path / "a", {}, {"x": np.zeros(3)})
        assert [x.name for x in tmp_path.iterdir()] == ["a"]

    def test_names_that_begin_alike_keep_to_themselves(self, tmp_path: Path) -> None:
        names = ["a", "a.safetensors", "aa", "a.part", "a*", "[a]"]
        for number, name in enumerate(names):
            write(tmp_path / name, number)
        for number, name in enumerate(names):
            write(tmp_path / name, number + 10)
            assert len(list_parts(tmp_path / name)) == TENSORS
        assert [number_in(tmp_path / name) for name in names] == [10, 11, 12, 13, 14, 15]
        remove_checkpoint(tmp_path / "a")
        assert [number_in(tmp_path / name) for name in names[1:]] == [11, 12, 13, 14, 15]

    def test_it_is_moved_to_another_folder_or_stays(self, tmp_path: Path) -> None:
        (tmp_path / "x").mkdir()
        (tmp_path / "y").mkdir()
        write(tmp_path / "x" / "a", 1)
        write(tmp_path / "y" / "b", 2)
        rename_checkpoint(tmp_path / "x" / "a", tmp_path / "y" / "b")
        assert list((tmp_path / "x").iterdir()) == []
        assert number_in(tmp_path / "y" / "b") == 1
        assert len(list((tmp_path / "y").iterdir())) == 1 + TENSORS
        with pytest.raises(OSError, match="absent"):
            rename_checkpoint(tmp_path / "y" / "b", tmp_path / "absent" / "b")
        assert number_in(tmp_path / "y" / "b") == 1

    def test_a_folder_is_moved_as_a_whole(self, tmp_path: Path) -> None:
        (tmp_path / "x").mkdir()
        write(tmp_path / "x" / "a", 1)
        (tmp_path / "x").rename(tmp_path / "y")
        assert number_in(tmp_path / "y" / "a") == 1


class TestWhole:
    @pytest.mark.long
    def test_a_kill_leaves_the_old_or_the_new_one(self, memory_path: Path) -> None:
        folder = memory_path / "target"
        folder.mkdir()
        path = folder / "a"
        write(path, 0)
        step, number, killed = 0, 0, True
        seen = {"old": 0, "new": 0}
        while killed:
            killed = killed_at(step, partial(write, path, step + 1))
            found = number_in(path)
            assert found in (number, step + 1), "neither the old nor the new one"
            seen["old" if found == number else "new"] += 1
            write(path, number := 1000 + step)
            assert {x.name for x in folder.iterdir()} == {
                "a",
                *(part.name for part in list_parts(path)),
            }
            assert len(list_parts(path)) == TENSORS
            step += 1
        assert min(seen.values()) > 1, seen

    @pytest.mark.long
    def test_a_kill_while_it_is_renamed_or_removed_leaves_one_whole(
        self, memory_path: Path
    ) -> None:
        folder = memory_path / "target"
        folder.mkdir()
        killed, step = True, 0
        while killed:
            write(folder / "a", step)
            killed = killed_at(step, partial(rename_checkpoint, folder / "a", folder / "b"))
            whole = [name for name in "ab" if (folder / name).exists()]
            assert len(whole) == 1
            assert number_in(folder / whole[0]) == step
            killed_at(step, partial(remove_checkpoint, folder / whole[0]))
            if (folder / whole[0]).exists():
                assert number_in(folder / whole[0]) == step
            for name in "ab":
                remove_checkpoint(folder / name)
            assert list(folder.iterdir()) == []
            step += 1
        assert step > TENSORS

    def test_what_fails_half_way_leaves_the_old_one_alone(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(tmp_path / "a", 1)
        before = {x.name for x in tmp_path.iterdir()}
        replace = Path.replace

        def full(self: Path, to: Path) -> Path:
            if to.name == "a":
                raise OSError(28, "No space left on device")
            return replace(self, to)

        monkeypatch.setattr(Path, "replace", full)
        with pytest.raises(sw.SharpwaveIOError, match=r"No space left.*a'"):
            write(tmp_path / "a", 2)
        assert {x.name for x in tmp_path.iterdir()} == before
        assert number_in(tmp_path / "a") == 1
        remove_checkpoint(tmp_path / "a")
        with pytest.raises(sw.SharpwaveIOError, match="No space left"):
            write(tmp_path / "a", 2)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.long
    def test_many_write_and_read_one_path(self, tmp_path: Path) -> None:
        """The last one to finish wins, and readers see whole checkpoints only."""
        errors: list[BaseException] = []
        write(tmp_path / "a", 0)

        def run(work: Any) -> None:
            try:
                for turn in range(12):
                    work(turn)
            except BaseException as error:
                errors.append(error)

        works: list[Any] = [lambda turn, n=n: write(tmp_path / "a", 100 * n + turn) for n in (1, 2)]
        works += [lambda _: number_in(tmp_path / "a")] * 2
        threads = [threading.Thread(target=run, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        number_in(tmp_path / "a")
        write(tmp_path / "a", 5)
        assert len(list(tmp_path.iterdir())) == 1 + TENSORS

    def test_a_file_of_somebody_elses_is_not_taken_for_a_torn_part(self, tmp_path: Path) -> None:
        own = [tmp_path / "a.part-1", tmp_path / "a.part-00001-of-00002", tmp_path / "a.json"]
        for path in own:
            path.write_text("mine")
        write(tmp_path / "a", 1)
        write(tmp_path / "a", 2)
        remove_checkpoint(tmp_path / "a")
        assert sorted(tmp_path.iterdir()) == sorted(own)


class TestDamage:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        write(tmp_path / "a", 1)
        return tmp_path / "a"

    def assert_refused(self, path: Path, named: str) -> None:
        for read in (read_header, read_checkpoint, sw.Trainer.from_checkpoint):
            with pytest.raises(sw.SharpwaveIOError, match=named):
                read(path)

    @pytest.mark.long
    def test_a_changed_byte_of_any_file_names_the_file(self, path: Path) -> None:
        for file in (path, *list_parts(path)):
            content = file.read_bytes()
            for at in range(0, len(content), 61):
                file.write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
                self.assert_refused(path, f"{file.name}: ")
            for cut in (0, 7, 100, len(content) - 1):
                file.write_bytes(content[:cut])
                self.assert_refused(path, f"{file.name}: ")
            file.write_bytes(content + b"x")
            self.assert_refused(path, f"{file.name}: ")
            file.write_bytes(content)
        assert number_in(path) == 1

    def test_a_missing_part_is_named(self, path: Path) -> None:
        part = list_parts(path)[2]
        part.unlink()
        self.assert_refused(path, f"{part.name} is missing")

    def test_the_part_of_another_checkpoint_is_refused(self, path: Path, tmp_path: Path) -> None:
        write(tmp_path / "b", 2)
        parts, others = list_parts(path), list_parts(tmp_path / "b")
        parts[0].write_bytes(others[0].read_bytes())
        self.assert_refused(path, parts[0].name)

    def test_two_parts_in_each_others_place_are_refused(self, path: Path) -> None:
        first, second = list_parts(path)[:2]
        content = first.read_bytes()
        first.write_bytes(second.read_bytes())
        second.write_bytes(content)
        self.assert_refused(path, first.name)

    def test_a_part_is_no_checkpoint(self, path: Path) -> None:
        self.assert_refused(list_parts(path)[0], "part of a checkpoint")

    def test_what_is_not_a_file_does_not_keep_us_waiting(self, path: Path) -> None:
        part = list_parts(path)[0]
        part.unlink()
        os.mkfifo(part)
        self.assert_refused(path, part.name)
        part.unlink()
        part.mkdir()
        self.assert_refused(path, part.name)


class TestRuns:
    def test_torn_parts_of_a_run_are_found_and_whole_ones_are_not(self, tmp_path: Path) -> None:
        folder = RunFolder(tmp_path)
        write(folder.latest_checkpoint, 1)
        write(folder.best_checkpoint, 2)
        assert folder.torn() == torn_parts(folder.checkpoints) == []
        best = list_parts(folder.best_checkpoint)
        folder.best_checkpoint.unlink()
        stray = best[0].with_name(best[0].name.replace("best", "latest"))
        stray.write_bytes(b"torn")
        assert sorted(folder.torn()) == sorted([*best, stray])
        assert number_in(folder.latest_checkpoint) == 1

    def test_numbered_checkpoints_go_with_their_parts(self, tmp_path: Path) -> None:
        agent = small_ppo(hidden=(16, 16))
        kept = sw.CheckpointCallback(64, tmp_path, keep=2)
        agent.train(300, callbacks=kept)
        assert len(kept.paths) == 2
        expected = {x for path in kept.paths for x in (path, *list_parts(path))}
        assert len(expected) > 4
        assert set(tmp_path.iterdir()) == expected
        for path in kept.paths:
            sw.PPO.from_checkpoint(path)

    @pytest.mark.long
    def test_a_run_goes_on_from_its_folder(self, tmp_path: Path) -> None:
        """A best policy of after the checkpoint is put aside, with its parts."""
        run = tmp_path / "run"
        folder = RunFolder(run)
        agent = small_ppo(hidden=(16, 16))
        agent.train(200, run_dir=run)
        agent.save(tmp_path / "kept")
        agent.save(folder.best_checkpoint)
        line = f'{{"step": {agent.timesteps + 50}, "mean": 1e9, "std": 0, "mean_length": 1}}\n'
        folder.evaluations_file.write_text(line)
        again = sw.PPO.from_checkpoint(tmp_path / "kept")
        again.train(100, run_dir=run)
        aside = folder.checkpoints / f"best_of_step_{agent.timesteps + 50}.safetensors"
        assert sw.PPO.from_checkpoint(aside).timesteps == agent.timesteps
        assert sw.PPO.from_checkpoint(folder.latest_checkpoint).timesteps == again.timesteps
        assert folder.torn() == []
