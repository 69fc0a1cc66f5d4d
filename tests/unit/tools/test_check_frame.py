from pathlib import Path

from tests.unit.tools.trees import write
from tools.check_frame import check

SHARED = "a = 1\nb = 2\nc = 3\nd = 4\n"
TREE = {
    "loops/a.py": "if native:\n    pass\nx = 1 if backend else 2\n",
    "algorithms/one.py": f"class One: ...\n{SHARED}",
    "algorithms/two.py": f"class Two: ...\n{SHARED}",
}


def test_each_ceiling_is_held(tmp_path: Path) -> None:
    root = write(tmp_path, TREE)
    assert check(root, 2, 80.0) == []
    assert [line.split(":")[0] for line in check(root, 1, 80.0)[:2]] == ["loops/a.py"] * 2
    assert [line.split(":")[0] for line in check(root, 2, 79.9)[:2]] == [
        "algorithms/one.py",
        "algorithms/two.py",
    ]
