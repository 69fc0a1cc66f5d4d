"""Models that Stable-Baselines3 saved, read without running a pickle.

Of the zip these are looked at: the JSON `data`, whose `:serialized:` entries are left alone, and
the tensors of `policy.pth`, `pytorch_variables.pth` and of the optimizers, by a reader that knows
tensors and numbers alone.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from sharpwave.compat.sb3.environments import NoEnvironments
from sharpwave.compat.sb3.files import MODEL_SUFFIX, existing
from sharpwave.compat.sb3.moments import OPTIMIZERS, load_optimizers
from sharpwave.compat.sb3.off_policy import DDPG, DQN, QRDQN, SAC, TD3, TQC, CrossQ
from sharpwave.compat.sb3.on_policy import A2C, PPO, MaskablePPO, RecurrentPPO
from sharpwave.compat.sb3.refusals import PAGE, check_names
from sharpwave.compat.sb3.settings import Settings, module_of
from sharpwave.envs import make_vec_env

__all__ = ["from_sb3"]

VARIABLES = "pytorch_variables.pth"
LARGEST = 4 << 30
"""Bytes of an entry that are read."""


def from_sb3(
    path: str | os.PathLike[str],
    env: Any = None,
    *,
    algorithm: Any = None,
    device: Any = "auto",
    **changed: Any,
) -> Any:
    """A model of this package with the weights and settings of one that SB3 saved.

    Optimizers go on from where they stood. The replay buffer is empty, as SB3 leaves it.

    Args:
        path: The zip.
        env: Environments to go on in; without any the model only predicts.
        algorithm: The class of the model; that of the file when None.
        device: Device of the networks.
        **changed: Arguments of the constructor in place of saved ones.

    Raises:
        FileNotFoundError: There is no such file.
        TypeError: An argument is unknown.
        ValueError: The file is damaged, or of another algorithm, or one of its settings is in a
            pickle alone; the message names it.
    """
    with existing(path, MODEL_SUFFIX) as file:
        data, weights, variables, optimizers = _read(file)
    try:
        made = _same_kind(_kind(data, weights), algorithm)
        check_names(changed, made.arguments | {"policy": None}, made.__name__)
        settings = Settings(data, weights, changed)
        model = _made(made, settings, env, device)
        model.policy.load_state_dict(weights)
        load_optimizers(model, optimizers, weights)
    except (ValueError, TypeError) as error:
        raise type(error)(f"{path}: {error}") from error
    _set_counts(model, data, variables)
    if env is None:
        model._env = None
    return model


def _read(path: Path) -> tuple[dict[str, Any], ...]:
    """Settings, weights of the policy, other tensors, and states of optimizers of a zip."""
    try:
        with zipfile.ZipFile(path) as archive:
            data = json.loads(_entry(path, archive, "data"))
            weights = _tensors(path, _entry(path, archive, "policy.pth"), "policy.pth")
            variables = {}
            if VARIABLES in archive.namelist():
                variables = _tensors(path, _entry(path, archive, VARIABLES), VARIABLES)
            optimizers = {
                name: _optimizer(path, _entry(path, archive, name), name)
                for name in OPTIMIZERS
                if name in archive.namelist()
            }
    except (zipfile.BadZipFile, EOFError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a whole file of SB3: {error}") from error
    if not isinstance(data, dict):
        raise ValueError(f"{path} must have named settings, got {type(data).__name__}")  # noqa: TRY004
    return data, weights, variables, optimizers


def _entry(path: Path, archive: zipfile.ZipFile, name: str) -> bytes:
    """The content of one file of a zip."""
    names = archive.namelist()
    if name not in names:
        raise ValueError(f"{path} must hold {name!r} as files of SB3 do, got {names[:8]}")
    if archive.getinfo(name).file_size > LARGEST:
        raise ValueError(f"{name} in {path} has more than {LARGEST >> 20} MiB")
    return archive.read(name)


def _loaded(path: Path, content: bytes, name: str) -> Any:
    """The content of a file of torch; what is no tensor or plain value is refused, never made."""
    try:
        return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:
        raise ValueError(
            f"{path}: {name} must hold tensors alone, and is not read: {str(error)[:200]}"
        ) from error


def _optimizer(path: Path, content: bytes, name: str) -> dict[str, Any]:
    """The `state_dict` of an optimizer."""
    found = _loaded(path, content, name)
    if not _is_optimizer(found):
        raise ValueError(f"{path}: {name} must hold the state of an optimizer")
    return dict(found)


def _is_optimizer(found: Any) -> bool:
    """True for numbers and tensors of numbered parameters, as optimizers of torch have them."""
    if not isinstance(found, Mapping):
        return False
    try:
        values = [value for state in found["state"].values() for value in state.values()]
        numbers = {number for group in found["param_groups"] for number in group["params"]}
        known = all(isinstance(value, torch.Tensor | int | float) for value in values)
        return known and set(found["state"]) <= numbers
    except (KeyError, TypeError, AttributeError):
        return False


def _tensors(path: Path, content: bytes, name: str) -> dict[str, Any]:
    """Named tensors of a file of torch."""
    found = _loaded(path, content, name)
    if found is None:  # what SB3 writes where there are none
        return {}
    if not isinstance(found, Mapping) or not all(
        isinstance(x, torch.Tensor) for x in found.values()
    ):
        raise ValueError(f"{path}: {name} must hold named tensors")
    return dict(found)


def _kind(data: Mapping[str, Any], weights: Mapping[str, Any]) -> Any:
    """The algorithm that wrote a file.

    Raises:
        ValueError: None that is here did.
    """
    module = module_of(data.get("policy_class"))
    if not module.startswith(("stable_baselines3.", "sb3_contrib.")):
        raise ValueError(
            f"policy_class must be SB3's own, got one of module {module or 'unknown'!r}: see {PAGE}"
        )
    if "n_epochs" in data:
        if "maskable" in module:
            return MaskablePPO
        return RecurrentPPO if "recurrent" in module else PPO
    if "exploration_fraction" in data:
        return QRDQN if "qrdqn" in module else DQN
    if "tqc" in module:
        return TQC
    if "crossq" in module:
        return CrossQ
    if module.startswith("stable_baselines3.sac"):
        return SAC
    if module.startswith("stable_baselines3.td3"):
        return TD3 if "critic.qf1.0.weight" in weights else DDPG
    if "gae_lambda" in data and module == "stable_baselines3.common.policies":
        return A2C
    raise ValueError(f"its policies of {module} are of an algorithm that is not here: see {PAGE}")


def _same_kind(kind: Any, algorithm: Any) -> Any:
    """The class that a program asks for, if it is that of the file, or that."""
    if algorithm is not None and not issubclass(algorithm, kind):
        raise ValueError(f"it holds a {kind.__name__}, not a {algorithm.__name__}")
    return algorithm or kind


def _made(kind: Any, settings: Settings, env: Any, device: Any) -> Any:
    """A new model with the settings of a file."""
    if env is None:
        spaces = settings.space("observation_space"), settings.space("action_space")
        env = NoEnvironments(*spaces, num_envs=int(settings.data.get("n_envs", 1)))
    elif isinstance(env, str):
        env = make_vec_env(env, int(settings.data.get("n_envs", 1)))
    arguments = settings.arguments(kind)
    policy, policy_kwargs = settings.policy(kind)
    policy = settings.changed.get("policy", policy)
    return kind(policy, env, **arguments, policy_kwargs=policy_kwargs, device=device)


def _set_counts(model: Any, data: Mapping[str, Any], variables: Mapping[str, Any]) -> None:
    """Let a model stand where the saved one did."""
    agent = model.agent
    agent.loop.timesteps = agent.loop.collector.timesteps = int(data.get("num_timesteps", 0))
    agent.run.target_timesteps = int(data.get("_total_timesteps", 0))
    if "exploration_rate" in data and hasattr(agent.learner, "epsilon"):
        agent.learner.epsilon = float(data["exploration_rate"])
    if "log_ent_coef" in variables and "temperature" in agent.learner.networks:
        temperature = agent.learner.temperature
        temperature.value.data.fill_(float(variables["log_ent_coef"].detach().reshape(-1)[0]))
