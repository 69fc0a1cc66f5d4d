"""Vector environments: making them, stepping them in every autoreset mode, normalizing, saving.

Belongs here: what makes, steps, resets and saves environments; no policy, no buffer.

The names are imported at their first use, so that what needs no environments does not import
Gymnasium.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sharpwave.envs.actions import ActionMap as ActionMap
    from sharpwave.envs.actions import ActionScale as ActionScale
    from sharpwave.envs.autoreset import Step as Step
    from sharpwave.envs.autoreset import Stepper as Stepper
    from sharpwave.envs.autoreset import autoreset_mode as autoreset_mode
    from sharpwave.envs.goals import goal_rewards as goal_rewards
    from sharpwave.envs.make import make_vec_env as make_vec_env
    from sharpwave.envs.masks import action_masks as action_masks
    from sharpwave.envs.multi.make import make_multi_env as make_multi_env
    from sharpwave.envs.multi.pettingzoo import PettingZooVectorEnv as PettingZooVectorEnv
    from sharpwave.envs.multi.single import SingleAgentVectorEnv as SingleAgentVectorEnv
    from sharpwave.envs.multi.vector import GroupStep as GroupStep
    from sharpwave.envs.multi.vector import MultiAgentVectorEnv as MultiAgentVectorEnv
    from sharpwave.envs.multi.vector import MultiStep as MultiStep
    from sharpwave.envs.native import NativeVectorEnv as NativeVectorEnv
    from sharpwave.envs.normalize import VecNormalize as VecNormalize
    from sharpwave.envs.observations import as_batch as as_batch
    from sharpwave.envs.on_device import DeviceVectorEnv as DeviceVectorEnv
    from sharpwave.envs.python import PythonVectorEnv as PythonVectorEnv
    from sharpwave.envs.spaces import check_same_form as check_same_form
    from sharpwave.envs.spaces import check_spaces as check_spaces
    from sharpwave.envs.spaces import space_from_json as space_from_json
    from sharpwave.envs.spaces import space_to_json as space_to_json
    from sharpwave.envs.state import environment_state as environment_state
    from sharpwave.envs.state import random_state as random_state
    from sharpwave.envs.state import restore_environment_state as restore_environment_state
    from sharpwave.envs.state import restore_random_state as restore_random_state
    from sharpwave.envs.subprocess import SubprocessVectorEnv as SubprocessVectorEnv
    from sharpwave.envs.tensors import TensorVectorEnv as TensorVectorEnv
    from sharpwave.envs.tensors import is_tensor_env as is_tensor_env
    from sharpwave.errors import EnvironmentFailed as EnvironmentFailed

_MODULES = {
    "ActionMap": "sharpwave.envs.actions",
    "ActionScale": "sharpwave.envs.actions",
    "DeviceVectorEnv": "sharpwave.envs.on_device",
    "EnvironmentFailed": "sharpwave.errors",
    "GroupStep": "sharpwave.envs.multi.vector",
    "MultiAgentVectorEnv": "sharpwave.envs.multi.vector",
    "MultiStep": "sharpwave.envs.multi.vector",
    "NativeVectorEnv": "sharpwave.envs.native",
    "PettingZooVectorEnv": "sharpwave.envs.multi.pettingzoo",
    "PythonVectorEnv": "sharpwave.envs.python",
    "SingleAgentVectorEnv": "sharpwave.envs.multi.single",
    "Step": "sharpwave.envs.autoreset",
    "Stepper": "sharpwave.envs.autoreset",
    "SubprocessVectorEnv": "sharpwave.envs.subprocess",
    "TensorVectorEnv": "sharpwave.envs.tensors",
    "VecNormalize": "sharpwave.envs.normalize",
    "action_masks": "sharpwave.envs.masks",
    "as_batch": "sharpwave.envs.observations",
    "autoreset_mode": "sharpwave.envs.autoreset",
    "check_same_form": "sharpwave.envs.spaces",
    "check_spaces": "sharpwave.envs.spaces",
    "environment_state": "sharpwave.envs.state",
    "goal_rewards": "sharpwave.envs.goals",
    "is_tensor_env": "sharpwave.envs.tensors",
    "make_multi_env": "sharpwave.envs.multi.make",
    "make_vec_env": "sharpwave.envs.make",
    "random_state": "sharpwave.envs.state",
    "restore_environment_state": "sharpwave.envs.state",
    "restore_random_state": "sharpwave.envs.state",
    "space_from_json": "sharpwave.envs.spaces",
    "space_to_json": "sharpwave.envs.spaces",
}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value  # found without coming here again
    return value
