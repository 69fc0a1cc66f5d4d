"""`help` of an agent describes every argument and option of its constructor."""

from __future__ import annotations

import inspect
import pydoc
import re
import subprocess
import sys
from dataclasses import dataclass, fields
from typing import Any

import pytest

import sharpwave as sw
from sharpwave.algorithms.registry import algorithm_class, algorithm_names
from sharpwave.config.config import Config


@pytest.mark.parametrize("name", algorithm_names())
def test_help_has_every_option_with_its_default_and_meaning(name: str) -> None:
    kind: Any = algorithm_class(name)
    text = inspect.getdoc(kind)
    assert text is not None
    meanings = kind.Config.field_help()
    for field in fields(kind.Config):
        assert meanings[field.name], f"{field.name} has no docstring"
        said = [f"    {field.name} = {field.default!r}"]
        said += [f"        {line}" for line in meanings[field.name].splitlines()]
        assert "\n".join(said) in text


@pytest.mark.parametrize("name", algorithm_names())
def test_help_describes_every_argument_of_the_constructor(name: str) -> None:
    kind: Any = algorithm_class(name)
    text = inspect.getdoc(kind)
    assert text is not None
    _, _, arguments = text.partition("\nArgs:\n")
    described = re.findall(r"^    (\w+)(?:: \w| = )", arguments, flags=re.MULTILINE)
    assert set(described) == set(inspect.signature(kind).parameters)


def test_help_describes_an_argument_as_the_class_nearest_to_it_does() -> None:
    class Mine(sw.PPO):
        """PPO of mine.

        Args:
            env_id: My environment,
                and no other.

        Example:
            >>> Mine(mine)
        """

    text = inspect.getdoc(Mine)
    assert text is not None
    said = "PPO of mine.\n\nExample:\n    >>> Mine(mine)\n\nArgs:\n"
    assert text.startswith(
        f"{said}    env_id: My environment,\n        and no other.\n    n_envs: "
    )


def test_help_of_a_subclass_has_its_own_options() -> None:
    page = pydoc.plain(pydoc.render_doc(sw.PPO))
    assert "clip_eps = 0.2" in page
    assert "clip_eps" not in pydoc.plain(pydoc.render_doc(sw.A2C)).partition("Method resolution")[0]


def test_a_user_s_subclass_without_a_docstring_has_that_of_its_base() -> None:
    class Mine(sw.PPO):
        pass

    assert inspect.getdoc(Mine) == inspect.getdoc(sw.PPO)


def test_options_are_read_when_help_is_asked_for_and_not_before() -> None:
    program = (
        "import inspect\n"
        "asked = []\n"
        "inspect.getsource = asked.append\n"
        "import sharpwave as sw\n"
        "sw.PPO, sw.SAC\n"
        "assert not asked, asked\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("name", algorithm_names())
def test_help_of_a_configuration_has_every_option_with_its_default_and_meaning(name: str) -> None:
    config: Any = algorithm_class(name).Config
    text = inspect.getdoc(config)
    assert text is not None
    own, _, options = text.partition("\n\nOptions:\n")
    assert own == inspect.cleandoc(vars(config)["__doc__"])
    assert re.findall(r"^    (\w+) = ", options, flags=re.MULTILINE) == [
        field.name for field in fields(config)
    ]
    for meaning in config.field_help().values():
        assert f"        {meaning.splitlines()[0]}\n" in f"{options}\n"


def test_help_of_a_configuration_without_a_docstring_has_its_signature() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Coin(Config):
        bias: float = 0.5
        """Probability of heads."""

    text = inspect.getdoc(Coin)
    assert text is not None
    assert text.startswith("Coin(")
    assert text.endswith("Options:\n    bias = 0.5\n        Probability of heads.")
