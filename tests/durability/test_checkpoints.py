"""Checkpoints: what was saved comes back, and damage never goes unseen."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import sharpwave as sw
from sharpwave.nn import DiscretePolicy
from sharpwave.storage.checkpoints import read_checkpoint, read_header, write_checkpoint
from tests.reference.nests import assert_same
from tests.unit.agents.small_runs import Alike, small_ppo


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("saved") / "a"
    algo = small_ppo(normalize_obs=True)
    algo.train(200)
    algo.save(path)
    return path.read_bytes()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damaged") / "a"


def assert_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    for read in (read_header, read_checkpoint, sw.PPO.from_checkpoint, sw.Trainer.from_checkpoint):
        with pytest.raises(sw.SharpwaveIOError, match=path.name):
            read(path)


class TestDamage:
    @pytest.mark.long
    @given(data=st.data())
    def test_a_changed_byte_is_noticed(
        self, saved: bytes, place: Path, data: st.DataObject
    ) -> None:
        at = data.draw(st.integers(0, len(saved) - 1), label="at")
        new = data.draw(st.integers(0, 255).filter(lambda byte: byte != saved[at]), label="byte")
        assert_refused(place, saved[:at] + bytes([new]) + saved[at + 1 :])

    @pytest.mark.long
    @given(length=st.floats(0, 1, exclude_max=True))
    def test_a_missing_end_is_noticed(self, saved: bytes, place: Path, length: float) -> None:
        assert_refused(place, saved[: int(length * len(saved))])

    @pytest.mark.long
    @given(more=st.binary(min_size=1, max_size=100))
    def test_more_than_was_written_is_noticed(self, saved: bytes, place: Path, more: bytes) -> None:
        assert_refused(place, saved + more)

    @pytest.mark.long
    @given(data=st.data())
    def test_a_block_of_zeros_is_noticed(
        self, saved: bytes, place: Path, data: st.DataObject
    ) -> None:
        """The remains of a file that was not made to last, in a file system."""
        block = 512
        at = block * data.draw(st.integers(0, (len(saved) - 1) // block), label="block")
        changed = (saved[:at] + bytes(block) + saved[at + block :])[: len(saved)]
        if changed != saved:
            assert_refused(place, changed)

    @given(content=st.binary(max_size=200))
    def test_any_other_file_is_refused(self, place: Path, content: bytes) -> None:
        assert_refused(place, content)

    def test_another_safetensors_file_is_refused(self, place: Path) -> None:
        from safetensors.numpy import save

        assert_refused(place, save({"weights": np.zeros(3)}, metadata={"format": "np"}))

    def test_what_was_not_damaged_is_equal(self, saved: bytes, place: Path) -> None:
        place.write_bytes(saved)
        header, state = read_checkpoint(place)
        sw.PPO.from_checkpoint(place).save(place)
        again, same = read_checkpoint(place)
        assert header == again
        assert_same(same["learner"]["networks"], state["learner"]["networks"])
        assert_same(same["normalizer"], state["normalizer"])


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
arrays = hnp.arrays(
    st.sampled_from(["f4", "f8", "f2", "i1", "u1", "i4", "i8", "u4", "u8", "?"]),
    hnp.array_shapes(min_dims=0, min_side=0, max_side=3),
)
keys = st.text(alphabet="ab._é", max_size=3)
states = st.recursive(
    scalars | arrays,
    lambda inner: (
        st.dictionaries(keys, inner, max_size=3)
        | st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
    ),
    max_leaves=8,
)


def assert_equal(left: Any, right: Any) -> None:
    assert type(left) is type(right)
    if isinstance(left, dict):
        assert list(left) == list(right)
        for key in left:
            assert_equal(left[key], right[key])
    elif isinstance(left, list | tuple):
        assert len(left) == len(right)
        for a, b in zip(left, right, strict=True):
            assert_equal(a, b)
    elif isinstance(left, np.ndarray):
        assert_same(left, right)
    else:
        assert left == right or (math.isnan(left) and math.isnan(right))


@pytest.mark.long
@given(state=states)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_every_state_comes_back_as_it_was(place: Path, state: Any) -> None:
    write_checkpoint(place, {"algorithm": "none"}, state)
    assert_equal(read_checkpoint(place)[1], state)


@pytest.mark.parametrize("state", [object(), {"a": {1, 2}}, [np.array([object()])], b"bytes"])
def test_what_cannot_be_saved_is_named_and_nothing_is_written(state: Any, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"state.* must"):
        write_checkpoint(tmp_path / "a", {}, state)
    assert list(tmp_path.iterdir()) == []


class TestLoading:
    def test_hyperparameters_environment_and_statistics_come_back(self, tmp_path: Path) -> None:
        algo = small_ppo(
            "Acrobot-v1", gamma=0.9, normalize_obs=True, normalize_rewards=True, hidden=(5, 7)
        )
        algo.train(300)
        algo.save(tmp_path / "a")
        loaded = sw.PPO.from_checkpoint(tmp_path / "a")
        assert loaded.config == algo.config
        assert loaded.env_id == "Acrobot-v1"
        assert_same(loaded.normalizer.state_dict(), algo.normalizer.state_dict())
        obs = np.random.default_rng(0).normal(size=(20, 6))
        np.testing.assert_array_equal(loaded.predict(obs), algo.predict(obs))
        assert loaded.evaluate(2) == algo.evaluate(2)

    def test_options_of_the_environment_come_back(self, tmp_path: Path) -> None:
        algo = small_ppo("CartPole-v1", env_kwargs={"sutton_barto_reward": True})
        algo.save(tmp_path / "a")
        loaded = sw.PPO.from_checkpoint(tmp_path / "a")
        assert loaded.evaluate(1).mean == -1.0

    @pytest.mark.long
    def test_the_number_of_environments_may_change(self, tmp_path: Path) -> None:
        algo = small_ppo(normalize_obs=True, recurrent="gru")
        algo.train(200)
        algo.save(tmp_path / "a")
        loaded = sw.PPO.from_checkpoint(tmp_path / "a", n_envs=3)
        assert loaded.timesteps == algo.timesteps
        loaded.train(100)
        assert loaded.env.num_envs == 3

    def test_a_function_must_be_given_again(self, tmp_path: Path) -> None:
        def rate(progress: float) -> float:
            return 1e-3 * progress

        small_ppo(learning_rate=rate).save(tmp_path / "a")
        with pytest.raises(ValueError, match="learning_rate"):
            sw.PPO.from_checkpoint(tmp_path / "a")
        loaded = sw.PPO.from_checkpoint(tmp_path / "a", learning_rate=rate)
        loaded.train(200)

    def test_a_network_of_another_shape_is_refused(self, tmp_path: Path) -> None:
        small_ppo().save(tmp_path / "a")
        for options in ({"hidden": (3,)}, {"recurrent": "lstm"}):
            with pytest.raises(ValueError, match="network must be that of the checkpoint"):
                sw.PPO.from_checkpoint(tmp_path / "a", **options)

    def test_a_custom_network_must_be_given_again(self, tmp_path: Path) -> None:
        algo = small_ppo(policy=DiscretePolicy(4, 2, seed=0))
        algo.train(200)
        algo.save(tmp_path / "a")
        with pytest.raises(ValueError, match="policy must be given"):
            sw.PPO.from_checkpoint(tmp_path / "a")
        loaded = sw.PPO.from_checkpoint(tmp_path / "a", policy=DiscretePolicy(4, 2, seed=1))
        obs = np.random.default_rng(0).normal(size=(20, 4))
        np.testing.assert_array_equal(loaded.predict(obs), algo.predict(obs))

    def test_a_misspelt_option_names_the_nearest(self, tmp_path: Path) -> None:
        small_ppo().save(tmp_path / "a")
        with pytest.raises(TypeError, match=r"gama.*gamma"):
            sw.PPO.from_checkpoint(tmp_path / "a", gama=0.9)

    def test_a_checkpoint_saved_again_is_the_same(self, tmp_path: Path) -> None:
        algo = small_ppo(Alike, callbacks=sw.EvalCallback(eval_freq=100, n_eval_episodes=1))
        algo.train(300)
        algo.save(tmp_path / "a")
        sw.PPO.from_checkpoint(tmp_path / "a", Alike).save(tmp_path / "b")
        (_, first), (_, second) = (read_checkpoint(tmp_path / name) for name in "ab")
        assert first["callbacks"] == second["callbacks"] != {}
