"""The installed package: light to import, safe on old CPUs, typed, and free of sources."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

import sharpwave

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "build" / "native" / "libsharpwave_core.a"
WIDE = {"kernels_v3.cpp.o", "kernels_v4.cpp.o"}

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


def binutils(*command: str) -> list[tuple[str, str]]:
    """The output of objdump or nm on the core, as pairs of object file and text."""
    result = subprocess.run([*command, str(CORE)], capture_output=True, text=True, check=True)
    parts = re.split(r"^(\S+\.o):.*$", result.stdout, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def test_the_version_stands_in_one_place() -> None:
    """The build reads it from the package; what installed it knows the same."""
    metadata = pytest.importorskip("scikit_build_core.metadata.regex")
    settings = {"input": str(ROOT / "src/sharpwave/__init__.py")}
    assert metadata.dynamic_metadata("version", settings) == sharpwave.__version__
    for name in ("pyproject.toml", "CITATION.cff"):
        assert not re.search(r"^version[ :]", (ROOT / name).read_text(), re.MULTILINE)


def test_no_module_is_ignored_by_git_and_so_left_out_of_the_wheel() -> None:
    """The room `runs` was, by a line that meant folders of runs."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a clone")
    modules = sorted(str(path) for path in (ROOT / "src").rglob("*.py"))
    asked = ["git", "check-ignore", "--no-index", "--stdin"]
    found = subprocess.run(
        asked, input="\n".join(modules), cwd=ROOT, text=True, capture_output=True
    )
    assert found.stdout == ""
    assert found.returncode == 1  # none is


@pytest.mark.long
def test_import_leaves_the_heavy_libraries_alone() -> None:
    heavy = {"torch", "gymnasium", "stable_baselines3"}
    code = "import sharpwave.datasets, sys; print(*{m.split('.')[0] for m in sys.modules})"
    loaded = run_python(code)
    assert "sharpwave" in loaded.split()
    assert not heavy & set(loaded.split())


@pytest.mark.long
@pytest.mark.parametrize("isa", ["base", "v3", "v4"])
def test_environment_asks_for_a_narrower_instruction_set(isa: str) -> None:
    code = "from sharpwave import _native; print(_native.isa())"
    order = ["base", "v3", "v4"]
    widest = run_python(code, SHARPWAVE_ISA="")
    expected = isa if order.index(isa) <= order.index(widest) else widest
    assert run_python(code, SHARPWAVE_ISA=isa) == expected


@pytest.mark.long
@needs_core
def test_wide_instructions_stay_inside_the_kernels_for_wide_cpus() -> None:
    # VEX and EVEX instructions: a v before the name and a vector register among the operands.
    wide = re.compile(r"%[yz]mm|\tv[a-z0-9]+ .*%xmm|\tvzero(upper|all)")
    members = binutils("objdump", "-d", "--no-show-raw-insn")
    users = {member for member, code in members if wide.search(code)}
    assert users == {member for member, _ in members} & WIDE


@needs_core
def test_kernels_for_wide_cpus_export_nothing_that_the_linker_could_merge() -> None:
    for member, listing in binutils("nm", "--defined-only", "--extern-only", "--demangle"):
        if member in WIDE:
            symbols = [line.split(maxsplit=2)[2] for line in listing.splitlines() if line]
            assert symbols == [f"sharpwave::{member.removesuffix('.cpp.o')}"]


@pytest.mark.long
def test_a_build_without_a_compiler_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("cmake", "ninja"):
        found = shutil.which(name)
        assert found is not None
        (tmp_path / "bin" / name).symlink_to(Path(found).resolve())
    configure = [str(tmp_path / "bin/cmake"), "-S", str(ROOT), "-B", str(tmp_path / "build")]
    done = subprocess.run(
        [*configure, "-G", "Ninja", "-DSHARPWAVE_PYTHON=OFF"],
        env={"PATH": str(tmp_path / "bin")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "needs a C++20 compiler: install g++" in " ".join(done.stderr.split())


@pytest.mark.slow
def test_wheel_holds_the_module_its_types_and_no_sources(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps"]
    subprocess.run([*build, "--wheel-dir", str(tmp_path), str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    package = [name for name in names if not name.split("/")[0].endswith(".dist-info")]
    assert {"sharpwave/__init__.py", "sharpwave/_native.pyi", "sharpwave/py.typed"} <= set(package)
    assert (
        sum(name.startswith("sharpwave/_native.") and name.endswith(".so") for name in names) == 1
    )
    assert {"sharpwave/pages/charts.js", "sharpwave/pages/viewer/style.css"} <= set(package)
    known = {".py", ".pyi", ".typed", ".so", ".css", ".js", ""}
    assert {Path(name).suffix for name in package} <= known
    assert all(name.startswith("sharpwave/") for name in package)


def test_hooks_run_programs_that_the_environment_has_and_fetch_none() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [repository["repo"] for repository in hooks["repos"]] == ["local"]
    pinned = (ROOT / "requirements/dev.txt").read_text()
    for hook in hooks["repos"][0]["hooks"]:
        assert hook["language"] == "system"
        program, *words = hook["entry"].split()
        name = Path(program).name
        assert program == f".venv/bin/{name}"
        assert name == "python" or f"\n{name}==" in pinned
        scripts = [word for word in words if word.startswith("tools")]
        assert all(
            (ROOT / (f"{script.replace('.', '/')}.py" if "/" not in script else script)).exists()
            for script in scripts
        )
