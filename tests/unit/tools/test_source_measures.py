from pathlib import Path

import pytest

from tests.unit.tools.trees import write
from tools.source_measures import (
    backend_tests,
    code_lines,
    kind_tests,
    lines_by_room,
    names_that_repeat,
    repetition,
    total,
)


def test_code_lines_leave_out_what_says_nothing(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "a.py": '''
            """A module.

            With two paragraphs.
            """

            from os import (
                path,
            )

            # A comment.
            x = 1  # kept
            """What x is."""


            def f():
                """Docstring."""
                import sys
                text = """a string
                that is code"""
                return text
            '''
        },
    )
    assert code_lines(tmp_path / "a.py") == [
        "x = 1  # kept",
        "def f():",
        'text = """a string',
        'that is code"""',
        "return text",
    ]


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("if self.native is not None:\n    pass", 1),
        ("if a:\n    pass\nelif backend == 'torch':\n    pass", 1),
        ("x = 1 if self.native else 2", 1),
        ("x = [y for y in z if y.native]", 1),
        ("assert native", 1),
        ("while not native_ready:\n    pass", 1),
        ("def f():\n    return backend == 'native'", 1),
        ("f(backend == 'native')", 1),
        ("if x == 'native' and y == 'native':\n    pass", 1),
        ("if x:\n    y = 1 if native else 2", 1),
        ("if native:\n    y = 1 if native else 2", 2),
        ("x = (1 if native else 2) if backend else 3", 2),
        ("x = native", 0),
        ("native.update(batch)", 0),
        ("if batch is None:\n    native.update(batch)", 0),
        ("# if native\nx = 'if native'", 0),
    ],
)
def test_a_test_of_a_backend_counts_once(tmp_path: Path, code: str, count: int) -> None:
    write(tmp_path, {"loops/a.py": code})
    assert len(backend_tests(tmp_path)) == count


def test_tests_of_backends_say_where_they_stand(tmp_path: Path) -> None:
    write(tmp_path, {"runs/deep/a.py": "x = 1\nif native:\n    pass\n"})
    assert list(map(str, backend_tests(tmp_path))) == ["runs/deep/a.py:2: native"]


def test_the_choice_of_a_learner_and_other_rooms_may_ask_for_backends(tmp_path: Path) -> None:
    code = "if native:\n    pass\n"
    write(tmp_path, {"learners/choose.py": code, "envs/a.py": code, "a.py": code})
    assert backend_tests(tmp_path) == []


def test_kinds_are_those_of_buffers_collectors_and_environments(tmp_path: Path) -> None:
    code = """
    isinstance(a, ReplayBuffer)
    isinstance(a, str | collect.TensorCollector)
    isinstance(a, (int, NativeVectorEnv))
    isinstance(a, str)
    isinstance(EnvBuffer, str)
    """
    write(tmp_path, {"runs/a.py": code, "envs/a.py": code})
    assert [place.line for place in kind_tests(tmp_path)] == [2, 3, 4]


def test_repeated_lines_stand_in_four_in_a_row_of_another_file(tmp_path: Path) -> None:
    shared = "a = 1\n\n# Apart.\nb = 2\nc = 3\nd = 4\n"
    write(
        tmp_path,
        {
            "one.py": f"class One: ...\n{shared}",
            "two.py": f"class Two: ...\nx = 0\n{shared}e = 5\ny = 6\n",
            "three.py": "class Three: ...\na = 1\nb = 2\nc = 3\n",
            "presets.py": shared * 10,
        },
    )
    found = repetition(tmp_path)
    assert {name: (part.lines, part.repeated) for name, part in found.items()} == {
        "one.py": (5, 4),
        "two.py": (8, 4),
        "three.py": (4, 0),
    }
    assert total(found.values()).share == pytest.approx(100 * 8 / 17)


def test_a_file_does_not_repeat_itself(tmp_path: Path) -> None:
    lines = "a = 1\nb = 2\nc = 3\nd = 4\n"
    write(tmp_path, {"one.py": f"class One: ...\n{lines}{lines}"})
    assert total(repetition(tmp_path).values()).repeated == 0


def test_rooms_are_the_folders_at_the_top(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "a.py": "x = 1\n",
            "b/__init__.py": "",
            "b/a.py": "x = 1\ny = 2\n",
            "b/c/__init__.py": "x = 1\n",
        },
    )
    assert lines_by_room(tmp_path) == {".": (1, 1), "b": (3, 3)}
    assert names_that_repeat(tmp_path) == ["a.py"]
