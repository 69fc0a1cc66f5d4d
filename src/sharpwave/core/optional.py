"""Optional dependencies, and the extras of this package that install them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

EXTRAS = {
    "ale_py": "atari",
    "box2d": "box2d",
    "cmaes": "tune",
    "cv2": "atari",
    "grpc": "distributed",
    "h5py": "hdf5",
    "huggingface_hub": "hub",
    "imageio": "video",
    "imageio_ffmpeg": "video",
    "lz4": "codecs",
    "matplotlib": "plots",
    "minari": "minari",
    "mlflow": "mlflow",
    "mpe2": "multi",
    "mujoco": "mujoco",
    "onnx": "onnx",
    "opencv": "atari",
    "optuna": "tune",
    "peft": "llm",
    "pettingzoo": "multi",
    "pil": "lerobot",
    "pyarrow": "arrow",
    "pygame": "classic",
    "ray": "ray",
    "stable_baselines3": "sb3",
    "tensorboard": "tensorboard",
    "tokenizers": "llm",
    "torch": "torch",
    "transformers": "llm",
    "wandb": "wandb",
    "zstandard": "codecs",
}
"""The extra of this package that installs a library, by the name that it is imported by."""


def require(module: str, *, extra: str) -> Any:
    """Imports an optional dependency.

    Args:
        module: Name of the module, e.g. `"rich.progress"`.
        extra: The extra of this package that installs it.

    Raises:
        ImportError: If it cannot be imported; the message says what to install.

    Example:
        >>> require("json", extra="none").dumps([1])
        '[1]'
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{module} cannot be imported ({error}): {install(extra)}", name=module
        ) from error


def is_installed(module: str) -> bool:
    """Return whether an optional dependency can be found, without importing it."""
    return find_spec(module) is not None


def install(extra: str) -> str:
    """The command that installs an extra of this package, which is installed already."""
    return f'pip install "sharpwave[{extra}]"'


def missing_library(error: BaseException, needed_by: str) -> ImportError | None:
    """The error to raise where another one says that a library is missing; otherwise None.

    Gymnasium and PettingZoo say so in words of their own, at the end of a long chain of errors.

    Args:
        error: The error that was raised.
        needed_by: Name of the part that needs the library.

    Example:
        >>> print(missing_library(ModuleNotFoundError("no", name="mujoco"), "Hopper-v5"))
        Hopper-v5 needs mujoco, which is not installed: pip install "sharpwave[mujoco]"
        >>> missing_library(ModuleNotFoundError("no", name="my_module"), "My-v0") is None
        True
    """
    for one in _chain(error):
        of_gymnasium = type(one).__name__ == "DependencyNotInstalled"
        said = [(one.name or "").partition(".")[0]] if isinstance(one, ImportError) else []
        if of_gymnasium:
            said += re.findall(r"\w+", str(one))
        for name in said:
            if name.lower() in EXTRAS:
                return ImportError(
                    f"{needed_by} needs {name}, which is not installed: "
                    f"{install(EXTRAS[name.lower()])}",
                    name=name,
                )
        of_pettingzoo = type(one).__name__ == "FailedToImport"
        if of_gymnasium or (of_pettingzoo and isinstance(one.__cause__, ModuleNotFoundError)):
            return ImportError(f"{needed_by} needs a library that is not installed: {one}")
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what led to it, the first cause first."""
    found: list[BaseException] = []
    while error is not None and len(found) < 100:
        found.append(error)
        error = error.__cause__ or error.__context__
    yield from reversed(found)
