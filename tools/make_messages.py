"""Write src/sharpwave/distributed/envs/env_pb2.py: the messages of env.proto, by grpcio-tools.

python -m tools.make_messages            write the module
python -m tools.make_messages --check    fail if the committed one is not what would be written
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
PROTO = SOURCE / "sharpwave" / "distributed" / "envs" / "env.proto"
MODULE = PROTO.with_name("env_pb2.py")


def generated() -> str:
    """The text of the module.

    Raises:
        RuntimeError: protoc refuses the file.
    """
    with tempfile.TemporaryDirectory() as folder:
        arguments = [f"-I{SOURCE}", f"--python_out={folder}", str(PROTO)]
        if protoc.main(["protoc", *arguments]) != 0:
            raise RuntimeError(f"protoc cannot read {PROTO}")
        return _settled((Path(folder) / MODULE.relative_to(SOURCE)).read_text())


def _settled(text: str) -> str:
    """Text of protoc made fit for every supported protobuf, and beside rlox's own messages."""
    # It asks for a protobuf as new as protoc, though older ones do.
    text = re.sub(r"(?s)_runtime_version\.Validate.*?\n\)\n", "", text)
    text = re.sub(
        r"from google.protobuf import runtime_version.*\n|# Protobuf Python.*\n", "", text
    )
    # In the pool of all modules, no other one could have messages of the same names.
    return text.replace("_descriptor_pool.Default()", "_descriptor_pool.DescriptorPool()")


def main(arguments: list[str]) -> int:
    """Write or check the modules and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args(arguments).check
    text = generated()
    if MODULE.exists() and MODULE.read_text() == text:
        return 0
    if check:
        name = MODULE.relative_to(ROOT)
        sys.stderr.write(f"{name} is not what {PROTO.name} says: run `make messages`\n")
        return 1
    MODULE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
