"""Names of rlox 1.2.0: they are here, or say why not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import sharpwave.compat.rlox as rlox
from sharpwave.compat.rlox.absent import ABSENT

PUBLIC = """
A2CConfig ALGORITHM_REGISTRY ActorCritic AsymmetricPolicy Callback CandleCollector CartPole
ConsoleLogger ContinuousPolicy DPOPair DQNConfig DiscretePolicy EvalCallback ExperienceTable
GymEnv GymVecEnv HERBuffer MmapReplayBuffer OfflineDatasetBuffer PPOConfig
PrioritizedReplayBuffer ReplayBuffer RunningStats RunningStatsVec SACConfig SequenceReplayBuffer
TD3Config TRPOConfig Trainer TrainingConfig VarLenStore VecEnv VecNormalize
VideoRecordingCallback __version__ algorithms average_weight_vectors batch callbacks checkpoint
collectors compute_batch_group_advantages compute_batch_token_kl compute_batch_token_kl_f32
compute_batch_token_kl_schulman compute_batch_token_kl_schulman_f32 compute_gae
compute_gae_batched compute_gae_batched_f32 compute_goal_distance_potentials
compute_group_advantages compute_token_kl compute_token_kl_f32 compute_token_kl_schulman
compute_token_kl_schulman_f32 compute_vtrace config distributed gym_vec_env logging losses
networks offline pack_sequences policies py_sample_mixed random_shift_batch reptile_update
runner shape_rewards_pbrs train_from_config trainer utils vec_normalize
"""
SEEDS = ["QMIX"]
PAGE = Path(__file__).resolve().parents[3] / "docs" / "compat.md"


def test_there_are_as_many_as_rlox_has() -> None:
    assert len(PUBLIC.split()) == 74


@pytest.mark.parametrize("name", PUBLIC.split())
def test_a_public_name_is_there_or_says_why_not(name: str) -> None:
    """29 of the 74 were absent, without a word."""
    if name in ABSENT:
        with pytest.raises(AttributeError, match=f"{name} of rlox is not here: "):
            getattr(rlox, name)
        assert f"`{name}`" in PAGE.read_text().split("## What is not here", 1)[1]
    else:
        assert getattr(rlox, name) is not None
        assert name in dir(rlox)


@pytest.mark.parametrize("name", SEEDS)
def test_algorithms_that_have_another_place_say_so(name: str) -> None:
    for module in (rlox, rlox.algorithms):
        with pytest.raises(AttributeError, match=f"{name} of rlox is not here: sharpwave.{name} "):
            getattr(module, name)
    assert f"`{name}`" in PAGE.read_text().split("## What is not here", 1)[1]


@pytest.mark.long
def test_dir_lists_names_before_they_are_used() -> None:
    """It listed only what had been imported already."""
    script = (
        "import sharpwave.compat.rlox as r; names = dir(r); "
        "assert {'PPO', 'RunningStats', 'Trainer', 'callbacks', 'compute_gae'} <= set(names); "
        "assert set(r.__all__) <= set(names); print(*[n for n in names if not hasattr(r, n)])"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == ""
