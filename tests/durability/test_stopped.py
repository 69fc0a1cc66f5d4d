"""A writer that is stopped keeps its folder, and readers do not mind."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import pytest

from sharpwave import EpisodeBuffer, FolderLockedError
from tests.durability.crash import WRITING, Crashes
from tests.durability.episode_model import look
from tests.durability.episode_script import Episodes
from tests.durability.processes import preload

preload(__name__)
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")


@pytest.mark.long
def test_a_stopped_writer_of_episodes_keeps_the_lock_and_goes_on(memory_path: Path) -> None:
    subject = Episodes(circular=True)
    crashes = Crashes(subject, memory_path, random.randrange(2**32))
    life = crashes.start()
    life.wait(WRITING, 20)
    reader = EpisodeBuffer.from_folder(crashes.folder, read_only=True)
    for _ in range(5):
        time.sleep(random.random() * 0.01)
        with crashes.stopped(life):
            with pytest.raises(FolderLockedError, match=f"process {life.process.pid} ") as caught:
                subject.open(crashes.folder).__enter__()
            assert caught.value.owner == life.process.pid
            again = EpisodeBuffer.from_folder(crashes.folder)
            with pytest.raises(FolderLockedError, match=f"process {life.process.pid} "):
                again.store(number=1)
            assert look(reader) == look(again)
        life.wait(WRITING, life.progress.completed + 20)
    crashes.kill(life)
    crashes.round()
