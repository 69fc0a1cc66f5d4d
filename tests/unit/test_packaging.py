"""What a user installs: light to import, safe on old CPUs, typed, and free of sources."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import sharpwave

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "build" / "native" / "libsharpwave_core.a"
WIDE = {"kernels_v3.cpp.o": "ymm", "kernels_v4.cpp.o": "zmm"}

needs_core = pytest.mark.skipif(
    not CORE.exists() or shutil.which("objdump") is None or shutil.which("nm") is None,
    reason="needs build/native (`make test` builds it) and binutils",
)


def run_python(code: str, **environment: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def by_member(listing: str) -> dict[str, str]:
    """What objdump or nm says of a static library, split by object file."""
    parts = re.split(r"^(\S+\.o):.*$", listing, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def binutils(*command: str) -> dict[str, str]:
    result = subprocess.run([*command, str(CORE)], capture_output=True, text=True, check=True)
    return by_member(result.stdout)


def test_version_is_the_one_of_the_project_file() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert sharpwave.__version__ == project["version"]


def test_import_leaves_the_heavy_libraries_alone() -> None:
    heavy = {"torch", "gymnasium", "stable_baselines3"}
    loaded = run_python("import sharpwave, sys; print(*{m.split('.')[0] for m in sys.modules})")
    assert "sharpwave" in loaded.split()
    assert not heavy & set(loaded.split())


@pytest.mark.parametrize("isa", ["base", "v3", "v4"])
def test_environment_asks_for_a_narrower_instruction_set(isa: str) -> None:
    code = "from sharpwave import _native; print(_native.isa())"
    order = ["base", "v3", "v4"]
    widest = run_python(code, SHARPWAVE_ISA="")
    expected = isa if order.index(isa) <= order.index(widest) else widest
    assert run_python(code, SHARPWAVE_ISA=isa) == expected


@needs_core
def test_wide_instructions_stay_inside_the_kernels_for_wide_cpus() -> None:
    members = binutils("objdump", "-d", "--no-show-raw-insn")
    if WIDE.keys().isdisjoint(members):
        pytest.skip("not an x86-64 build")
    # A VEX or EVEX instruction has a v before its name and a vector register among its operands.
    wide = re.compile(r"%[yz]mm|\tv[a-z0-9]+ +.*%xmm|\tvzero(upper|all)")
    for member, code in members.items():
        if member in WIDE:
            assert f"%{WIDE[member]}" in code, f"{member} was not compiled for its instruction set"
        else:
            assert not wide.search(code), f"{member}: {wide.search(code)}"


@needs_core
def test_kernels_for_wide_cpus_export_nothing_that_the_linker_could_merge() -> None:
    members = binutils("nm", "--defined-only", "--extern-only", "--demangle")
    if WIDE.keys().isdisjoint(members):
        pytest.skip("not an x86-64 build")
    for member in WIDE:
        symbols = [line.split(maxsplit=2)[2] for line in members[member].split("\n") if line]
        assert symbols == [f"sharpwave::{member.removesuffix('.cpp.o')}"]


@pytest.mark.slow
def test_wheel_holds_the_module_its_types_and_no_sources(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps"]
    subprocess.run([*build, "--wheel-dir", str(tmp_path), str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    package = [name for name in names if not name.split("/")[0].endswith(".dist-info")]
    assert {"sharpwave/__init__.py", "sharpwave/_native.pyi", "sharpwave/py.typed"} <= set(package)
    assert sum(name.startswith("sharpwave/_native.") and name.endswith(".so") for name in names) == 1
    assert {Path(name).suffix for name in package} <= {".py", ".pyi", ".typed", ".so", ""}
    assert all(name.startswith("sharpwave/") for name in package)
