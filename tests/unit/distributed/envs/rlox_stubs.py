"""rlox's own messages and stubs, made of its .proto by grpcio-tools as its users would."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

PROTO = Path(__file__).with_name("rlox_env.proto")


@cache
def rlox_stubs() -> tuple[Any, Any]:
    """The module of the messages, and that of the calls."""
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory() as folder:
        out = [f"-I{PROTO.parent}", f"--python_out={folder}", f"--grpc_python_out={folder}"]
        assert protoc.main(["protoc", *out, str(PROTO)]) == 0
        return _imported(Path(folder), "_pb2"), _imported(Path(folder), "_pb2_grpc")


def _imported(folder: Path, ending: str) -> Any:
    name = PROTO.stem + ending
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
