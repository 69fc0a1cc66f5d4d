"""The floor: hand-written C++ that does only the necessary work, compiled when first asked for."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import subprocess
import sysconfig
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np

FOLDER = Path(__file__).parent
FLAGS = ("-O3", "-march=native", "-ffast-math")


@cache
def load() -> ModuleType:
    """Compile floor.cpp for this machine and import it.

    Raises:
        ImportError: there is no compiler, or it refuses the source.
    """
    build = FOLDER / "build"
    build.mkdir(exist_ok=True)
    object_file = build / "floor.o"
    library = build / ("_floor" + sysconfig.get_config_var("EXT_SUFFIX"))
    includes = [f"-I{sysconfig.get_path('include')}", f"-I{np.get_include()}"]
    # Linking with -ffast-math would make the whole process flush denormals to zero.
    _compile(
        "-std=c++17", *FLAGS, "-fPIC", *includes, "-c", FOLDER / "floor.cpp", "-o", object_file
    )
    _compile("-shared", object_file, "-lm", "-o", library)
    loader = importlib.machinery.ExtensionFileLoader("_floor", str(library))
    spec = importlib.util.spec_from_loader("_floor", loader)
    if spec is None:
        raise ImportError(f"{library} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _compile(*arguments: str | Path) -> None:
    compiler = os.environ.get("CXX", "c++").split()
    try:
        subprocess.run([*compiler, *arguments], check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise ImportError(f"the floor needs a C++ compiler, got {error}") from error
    except subprocess.CalledProcessError as error:
        raise ImportError(f"the floor does not compile: {error.stderr[-300:]}") from error
