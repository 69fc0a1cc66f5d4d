"""Search spaces: those of the library, those of files, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sharpwave.algorithms.registry import algorithm_class
from sharpwave.tuning import Choices, Range, read_space, space_of
from sharpwave.tuning.spaces import SPACES, checked, options_of, space_for


@pytest.mark.parametrize("name", SPACES)
def test_an_algorithm_takes_every_value_of_its_own_space(name: str) -> None:
    config = algorithm_class(name).Config
    assert checked(space_of(name), config).keys() == SPACES[name].keys()


def test_a_file_has_ranges_and_choices(tmp_path: Path) -> None:
    path = tmp_path / "space.yaml"
    path.write_text(
        "lr: {low: 1e-5, high: 1.0e-2, log: true}\n"
        "n_epochs: {low: 1, high: 20}\n"
        "hidden: [[64, 64], [256]]\n"
        "activation: [tanh, relu]\n"
    )
    config: Any = algorithm_class("ppo").Config
    space = read_space(path)
    assert space == {
        "lr": Range(1e-5, 1e-2, log=True),
        "n_epochs": Range(1, 20),
        "hidden": Choices(("[64, 64]", "[256]")),
        "activation": Choices(("tanh", "relu")),
    }
    assert options_of({"hidden": "[256]"}, config) == {"hidden": (256,)}


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ({}, "at least one option"),
        ({"gamma": {"low": 1, "high": 0.9}}, "gamma must have low less than high, got 1 and 0.9"),
        ({"gamma": {"low": 0, "high": 1, "log": True}}, "gamma must have low above 0 with log"),
        ({"gamma": {"low": 0.5}}, "gamma must have low, high and perhaps log, got low"),
        ({"gamma": 0.9}, "gamma must be low and high, or a list of choices, got 0.9"),
        ({"gamma": []}, "gamma must have different choices"),
        ({"gamma": [0.9, 2.0]}, "gamma must be between 0 and 1, got 2.0"),
        ({"activation": {"low": 0, "high": 1}}, "activation is no number: it must have choices"),
    ],
)
def test_impossible_spaces_are_refused(space: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        checked(space_for(space), algorithm_class("ppo").Config)


def test_an_unknown_option_is_named_with_the_nearest() -> None:
    with pytest.raises(TypeError, match=r"'gama'.*did you mean 'gamma'"):
        checked(space_for({"gama": [0.9]}), algorithm_class("ppo").Config)


def test_an_algorithm_without_a_space_says_so() -> None:
    with pytest.raises(ValueError, match="dreamer_v3 has no search space of its own"):
        space_of("dreamer_v3")
