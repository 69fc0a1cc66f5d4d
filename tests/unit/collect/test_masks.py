"""Action masks in rollouts."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from sharpwave.collect import OnPolicyCollector
from sharpwave.envs import ActionMap, PythonVectorEnv
from sharpwave.learners import Acted
from sharpwave.types import Array
from tests.envs import MaskedEnv, vectorized

KINDS = ["own", "next_step", "same_step", "disabled"]


class FirstAllowed:
    """Takes the first allowed action."""

    def act(self, obs: Array, starts: Array, masks: Any) -> Acted:
        zeros = np.zeros(len(obs), np.float32)
        actions = np.zeros(len(obs), np.int64) if masks is None else masks.argmax(1)
        return Acted(actions, zeros, zeros)

    def values(self, obs: Array, rows: Array | None = None) -> Array:
        return np.zeros(len(obs), np.float32)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("silent", [(), (0,), (1, 2), (0, 1, 2), (2, 3)])
def test_masks_are_those_of_the_observations_acted_on(kind: str, silent: tuple[int, ...]) -> None:
    makers = [partial(MaskedEnv, (n,), n, "truncated", silent=silent) for n in (2, 4)]
    env = PythonVectorEnv(makers) if kind == "own" else vectorized(makers, kind)
    action_map = ActionMap(env.single_action_space)
    collector = OnPolicyCollector(env, FirstAllowed(), action_map, n_steps=7, seed=0)
    for _ in range(2):
        rollout = collector.collect(0.9, 0.9)
        assert rollout is not None
        steps = rollout.obs[..., 2].astype(int)
        allowed = np.arange(3) != steps[..., None] % 3
        allowed[np.isin(steps, silent)] = True
        masks = np.ones_like(allowed) if rollout.masks is None else rollout.masks
        np.testing.assert_array_equal(masks[rollout.valid], allowed[rollout.valid])
