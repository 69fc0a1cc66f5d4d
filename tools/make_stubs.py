"""Write src/sharpwave/_native.pyi: nanobind's stub of the module, with the raw names typed by hand.

nanobind knows the signatures of what was bound through it. The hot functions and types are bound to
the C-API directly and carry none: their declarations stand in native/bind/stubs/*.pyi and replace
what nanobind guesses.

    python tools/make_stubs.py            write the stub
    python tools/make_stubs.py --check    fail if the committed stub is not what would be written
"""

import argparse
import ast
import difflib
import subprocess
import sys
from pathlib import Path

from nanobind.stubgen import StubGen

from sharpwave import _native

ROOT = Path(__file__).resolve().parent.parent
STUB = ROOT / "src" / "sharpwave" / "_native.pyi"
FRAGMENTS = sorted((ROOT / "native" / "bind" / "stubs").glob("*.pyi"))
NOTICE = "# Written by `make stubs`; typed declarations of raw names stand in native/bind/stubs/.\n"


def names_of(node: ast.stmt) -> set[str]:
    """The names that a top-level statement of a stub declares."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return {node.target.id}
    if isinstance(node, ast.Assign):
        return {target.id for target in node.targets if isinstance(target, ast.Name)}
    return set()


def is_untyped(node: ast.stmt) -> bool:
    """Return whether nanobind found no signature: `(*args, **kwargs)`, or a method with them."""
    if isinstance(node, ast.ClassDef):
        return any(is_untyped(member) for member in node.body)
    return isinstance(node, ast.FunctionDef) and None not in (node.args.vararg, node.args.kwarg)


def ruff(arguments: list[str], text: str) -> str:
    """The text after one run of ruff as a filter."""
    command = [sys.executable, "-m", "ruff", *arguments]
    command += ["--quiet", "--stdin-filename", "native.pyi", "-"]
    return subprocess.run(
        command, input=text, capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout


def make_stub() -> str:
    """The text of the stub."""
    generator = StubGen(_native)
    generator.put(_native)
    generated = ast.parse(generator.get())
    raw = [node for path in FRAGMENTS for node in ast.parse(path.read_text()).body]
    typed = {name for node in raw for name in names_of(node)}

    gone = sorted(name for name in typed - set(vars(_native)) if not name.startswith("_"))
    if gone:
        sys.exit(f"native/bind/stubs declares names that the module does not have: {gone}")
    nodes = [node for node in generated.body if not names_of(node) & typed] + raw
    untyped = sorted(
        name for node in generated.body if is_untyped(node) for name in names_of(node) - typed
    )
    if untyped:
        sys.exit(f"no typed declaration in native/bind/stubs/*.pyi for: {untyped}")

    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    rest = [node for node in nodes if node not in imports]
    docstring = [rest.pop(0)] if isinstance(rest[0], ast.Expr) else []
    body = "\n".join(ast.unparse(node) for node in [*docstring, *imports, *rest])
    return NOTICE + ruff(["format"], ruff(["check", "--fix", "--select", "F401,I"], body))


def main() -> int:
    """Write or check the stub and return the exit status."""
    parser = argparse.ArgumentParser(description="Write or check src/sharpwave/_native.pyi")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    stub = make_stub()
    if not parser.parse_args().check:
        STUB.write_text(stub)
        return 0
    committed = STUB.read_text() if STUB.exists() else ""
    if committed == stub:
        return 0
    difference = difflib.unified_diff(
        committed.splitlines(True), stub.splitlines(True), "committed", "generated"
    )
    sys.stderr.writelines(difference)
    sys.stderr.write("src/sharpwave/_native.pyi is out of date: run `make stubs`\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
