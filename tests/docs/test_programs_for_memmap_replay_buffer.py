"""Programs written for memmap-replay-buffer run with their import line changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

STORE = """
import torch
from memmap_replay_buffer import ReplayBuffer

# initialize buffer

buffer = ReplayBuffer(
    './replay_data',
    max_episodes = 1000,
    max_timesteps = 500,
    fields = dict(
        state = ('float', (3, 16, 16), 0.), # type, shape, and optional default value
        action = ('int', 2),
        reward = 'float' # default shape is ()
    ),
    meta_fields = dict(
        task_id = 'int'
    ),
    circular = True,
    overwrite = True
)

# store 4 episodes

for _ in range(4):
    with buffer.one_episode(task_id = 1):
        for _ in range(100):
            buffer.store(
                state = torch.randn(3, 16, 16),
                action = torch.randint(0, 4, (2,)).numpy(),
                reward = 1.0
            )

# rehydrate from disk

buffer_rehydrated = ReplayBuffer.from_folder('./replay_data')
assert buffer_rehydrated.num_episodes == 4
"""

TRAJECTORIES = """
dataloader = buffer.dataloader(
    batch_size = 2,
    return_mask = True,
    to_named_tuple = ('state', 'action', 'reward', 'task_id', '_mask', '_lens')
)

for state, action, reward, task_id, mask, lens in dataloader:
    assert state.shape  == (2, 100, 3, 16, 16)
    assert action.shape == (2, 100, 2)
    assert reward.shape == (2, 100)
    assert task_id.shape == (2,)
    assert lens.shape == (2,)
    assert mask.shape == (2, 100)
"""

TIMESTEPS = """
dataloader = buffer.dataloader(
    batch_size = 8,
    filter_meta = dict(
        task_id = 1
    ),
    to_named_tuple = ('state', 'action', 'task_id'),
    timestep_level = True,
    drop_last = True
)

for state, action, task_id in dataloader:
    assert state.shape == (8, 3, 16, 16)
    assert action.shape == (8, 2)
    assert task_id.shape == (8,)
"""

N_STEPS = """
dataloader = buffer.dataloader(
    batch_size = 4,
    n_steps = 5,
    current_fields = ('state',),
    next_fields = ('state',),
    sequence_fields = ('action', 'reward'),
    to_named_tuple = ('state', 'next_state', 'action_chunk', 'rewards', 'n_step_lens'),
    fieldname_map = {
        'seq_action': 'action_chunk',
        'seq_reward': 'rewards'
    }
)

for state, next_state, action_chunk, rewards, n_step_lens in dataloader:
    assert state.shape == (4, 3, 16, 16)
    assert next_state.shape == (4, 3, 16, 16)
    assert action_chunk.shape == (4, 5, 2)
    assert rewards.shape == (4, 5)
    assert n_step_lens.shape == (4,)
"""


def run(program: str) -> dict[str, Any]:
    changed = program.replace(
        "from memmap_replay_buffer import", "from sharpwave.compat.memmap_replay_buffer import"
    )
    namespace: dict[str, Any] = {}
    exec(compile(changed, "program", "exec"), namespace)
    return namespace


@pytest.fixture(autouse=True)
def _in_a_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_trajectories_come_padded_with_mask_and_lengths() -> None:
    ran = run(STORE + TRAJECTORIES)
    batches = list(ran["dataloader"])
    assert len(batches) == 2
    for state, action, reward, task_id, mask, lens in batches:
        assert [t.dtype for t in (state, action, reward, task_id, mask, lens)] == [
            *(torch.float32, torch.int32, torch.float32, torch.int32, torch.bool, torch.int64)
        ]
        assert mask.all()
        assert lens.tolist() == [100, 100]
        assert task_id.tolist() == [1, 1]
        assert reward.eq(1).all()
        assert 0.9 < float(state.std()) < 1.1


def test_timesteps_come_filtered() -> None:
    ran = run(STORE + TIMESTEPS)
    assert len(list(ran["dataloader"])) == 50
    assert len(list(ran["buffer"].dataloader(8, filter_meta={"task_id": 2}))) == 0


def test_n_step_transitions_come_renamed() -> None:
    ran = run(STORE + N_STEPS)
    batches = list(ran["dataloader"])
    assert len(batches) == 99
    lens = torch.cat([batch[4] for batch in batches]).reshape(4, 99)
    assert lens[:, :-4].eq(5).all()
    assert lens[:, -4:].tolist() == [[4, 3, 2, 1]] * 4
    rewards = torch.cat([batch[3] for batch in batches])
    assert rewards.sum(1).tolist() == lens.flatten().tolist()
    states = torch.cat([batch[0] for batch in batches]).reshape(4, 99, -1)
    later = torch.cat([batch[1] for batch in batches]).reshape(4, 99, -1)
    assert torch.equal(states[:, 5:], later[:, :94])


def test_the_whole_program_runs_a_second_time_in_the_same_folder() -> None:
    program = STORE + TRAJECTORIES + TIMESTEPS + N_STEPS
    first = next(iter(run(program)["dataloader"]))
    second = next(iter(run(program)["dataloader"]))
    assert not torch.equal(first.state, second.state)


WINDOWS = """
from torch.utils.data import DataLoader
from memmap_replay_buffer import ReplayDatasetTimeWindow, ReplayDatasetNStep

windows = ReplayDatasetTimeWindow(buffer, 20, fields = ('reward',), return_indices = True)
batches = list(DataLoader(windows, batch_size = 2))

from_folder = ReplayDatasetNStep('./replay_data', n_steps = 3, include_metadata = False)
item = from_folder[0]
"""


def test_datasets_have_their_names() -> None:
    ran = run(STORE + WINDOWS)
    for batch in ran["batches"]:
        assert set(batch) == {
            *("reward", "task_id", "_lens", "_reaches_episode_end", "_index", "_start"),
        }
        assert batch["reward"].shape == (2, 20)
        assert batch["_lens"].tolist() == [20, 20]
    assert "task_id" not in ran["item"]
    assert int(ran["item"]["n_step_lens"]) == 3


UNION = """
from memmap_replay_buffer import ConcatReplayBuffer

other = ReplayBuffer(
    './other_data', max_episodes = 3, max_timesteps = 10, meta_fields = dict(task_id = 'int'),
    fields = dict(state = ('float', (3, 16, 16)), action = ('int', 2), reward = 'float')
)
with other.one_episode(task_id = 2):
    other.store(reward = 3.)

both = ConcatReplayBuffer(['./replay_data', './other_data'])
data = both.get_all_data()
tasks = [batch['task_id'].tolist() for batch in both.dataloader(5)]
"""


def test_folders_are_concatenated() -> None:
    ran = run(STORE + UNION)
    assert len(ran["both"]) == 5
    assert ran["data"]["state"].shape == (5, 100, 3, 16, 16)
    assert ran["data"]["episode_lens"].tolist() == [100, 100, 100, 100, 1]
    assert ran["tasks"] == [[1, 1, 1, 1, 2]]
