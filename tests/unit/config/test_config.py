"""Configurations check what they are given, and survive files."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharpwave.config.config import Config
from sharpwave.config.convert import from_text
from sharpwave.config.schedules import Linear, ScheduleLike


@dataclass(frozen=True, kw_only=True)
class Shared(Config):
    """Options that several have."""

    gamma: float = 0.99
    """The discount."""

    seed: int = 42
    """The seed of
    everything.
    """


@dataclass(frozen=True, kw_only=True)
class Example(Shared):
    """One field of each kind."""

    aliases: ClassVar[dict[str, str]] = {"lr": "learning_rate", "clip_range": "clip_eps"}

    learning_rate: ScheduleLike = 2.5e-4
    """The step size."""

    clip_eps: ScheduleLike = 0.2

    target_kl: float | None = 0.01
    """Stops an update early."""

    hidden: tuple[int, ...] = (64, 64)
    activation: Literal["tanh", "relu"] = "tanh"
    recurrent: Literal["lstm", "gru"] | None = None
    ent_coef: float | Literal["auto"] = "auto"
    anneal: bool = True
    device: str = "cpu"
    env_kwargs: dict[str, Any] = field(default_factory=dict)

    gamma: float = 0.9
    """The discount of the example."""

    def check(self) -> None:
        self.require_range("gamma", 0, 1)
        self.require_range("clip_eps", 0)
        self.require_positive("learning_rate", "hidden", "target_kl")


positive = st.floats(min_value=1e-300, allow_nan=False, allow_infinity=False)
not_negative = st.floats(min_value=0, allow_nan=False, allow_infinity=False)
text = st.text(st.characters(exclude_categories=("Cs", "Cc")))
examples = st.builds(
    Example,
    gamma=st.floats(0, 1),
    seed=st.integers(-(2**63), 2**63 - 1),
    learning_rate=positive | st.builds(Linear, positive, positive),
    clip_eps=not_negative | st.builds(Linear, not_negative, not_negative),
    target_kl=st.none() | positive | st.just(math.inf),
    hidden=st.lists(st.integers(1, 10**6)).map(tuple),
    activation=st.sampled_from(["tanh", "relu"]),
    recurrent=st.sampled_from([None, "lstm", "gru"]),
    ent_coef=not_negative | st.just("auto"),
    anneal=st.booleans(),
    device=text,
    env_kwargs=st.dictionaries(text, st.integers(-5, 5) | text | st.booleans()),
)


@given(examples)
def test_a_dict_holds_everything(config: Example) -> None:
    written = json.loads(json.dumps(config.to_dict(), allow_nan=False))
    assert Example.from_dict(written) == config


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("configs")


@pytest.mark.long(but=["yaml"])
@given(config=examples)
@pytest.mark.parametrize("suffix", ["yaml", "toml", "json"])
def test_a_file_holds_everything(config: Example, suffix: str, folder: Path) -> None:
    path = folder / f"config.{suffix}"
    getattr(config, f"to_{suffix}")(path)
    assert Example.from_file(path) == config


def test_yaml_and_toml_are_read_under_any_name(tmp_path: Path) -> None:
    path = tmp_path / "settings"
    config = Example(seed=3, target_kl=None)
    config.to_yaml(path)
    assert Example.from_yaml(path) == config
    config.to_toml(path)
    assert Example.from_toml(path) == config


@pytest.mark.parametrize("suffix", ["yaml", "toml"])
def test_numbers_in_a_file_may_have_an_exponent(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"config.{suffix}"
    sign = ":" if suffix == "yaml" else " ="
    path.write_text(f"learning_rate{sign} 1e-3\nseed{sign} 1e6\n")
    config = Example.from_file(path)
    assert (config.learning_rate, config.seed) == (1e-3, 1_000_000)
    assert type(config.seed) is int


def test_an_empty_file_gives_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("# nothing yet\n")
    assert Example.from_file(path) == Example()


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("config.ini", "", r"must end in one of \.yaml, .*, got '\.ini'"),
        ("config.yaml", "- 1\n- 2\n", "must hold named options, got list"),
        ("config.yaml", "a: [", "is not YAML"),
        ("config.toml", "a = ", "is not TOML"),
        ("config.json", "{", "is not JSON"),
    ],
)
def test_a_malformed_file_is_named(tmp_path: Path, name: str, content: str, reason: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(ValueError, match=f"{name}.*{reason}"):
        Example.from_file(path)


@pytest.mark.parametrize("build", [Example, lambda **o: Example.from_dict(o), Example().merge])
def test_a_misspelt_option_gets_the_nearest(build: Callable[..., Example]) -> None:
    reason = "unknown option 'lerning_rate' of Example; did you mean 'learning_rate'?"
    with pytest.raises(TypeError) as caught:
        build(lerning_rate=1e-3)
    assert str(caught.value) == reason


def test_an_option_like_no_other_gets_no_advice() -> None:
    with pytest.raises(TypeError, match=r"^unknown option 'xyzzy' of Example$"):
        Example(xyzzy=1)  # type: ignore[call-arg]


def test_aliases_name_the_same_field() -> None:
    assert Example.from_dict({"clip_range": 0.1}).clip_eps == 0.1
    assert Example(lr=0.1).learning_rate == 0.1  # type: ignore[call-arg]
    assert Example().merge(lr=0.1).learning_rate == 0.1
    with pytest.raises(TypeError, match="option 'clip_eps' of Example is given twice"):
        Example.from_dict({"clip_range": 0.1, "clip_eps": 0.1})


@pytest.mark.parametrize(
    ("options", "error", "reason"),
    [
        ({"seed": True}, TypeError, "seed must be an integer, got True"),
        ({"seed": 1.5}, ValueError, "seed must be an integer, got 1.5"),
        ({"seed": None}, TypeError, "seed must be an integer, got None"),
        ({"gamma": True}, TypeError, "gamma must be a number, got True"),
        ({"gamma": "high"}, ValueError, "gamma must be a number, got 'high'"),
        ({"gamma": math.nan}, ValueError, "gamma must be a number, got nan"),
        ({"gamma": 10**400}, ValueError, "gamma must be a number, got 1000"),
        ({"gamma": 1.1}, ValueError, "gamma must be between 0 and 1, got 1.1"),
        ({"clip_eps": -0.1}, ValueError, "clip_eps must be at least 0, got -0.1"),
        ({"clip_eps": Linear(0.1, -1)}, ValueError, "clip_eps must be at least 0, got -1.0"),
        ({"target_kl": math.nan}, ValueError, "target_kl must be a number or none, got nan"),
        ({"target_kl": 0}, ValueError, "target_kl must be greater than 0, got 0.0"),
        ({"learning_rate": Linear(0, 1)}, ValueError, "learning_rate must be greater than 0"),
        ({"learning_rate": Linear(1, -1)}, ValueError, "learning_rate must be at least 0"),
        ({"hidden": [64, 0]}, ValueError, "hidden must be greater than 0, got 0"),
        ({"hidden": ["a"]}, ValueError, "hidden must be an integer, got 'a'"),
        ({"hidden": {}}, TypeError, "hidden must be an integer, got {}"),
        ({"activation": "tan"}, ValueError, "activation must be one of 'tanh', 'relu', got 'tan'"),
        ({"recurrent": "rnn"}, ValueError, "one of 'lstm', 'gru' or none, got 'rnn'"),
        ({"anneal": 1}, TypeError, "anneal must be true or false, got 1"),
        ({"device": 0}, TypeError, "device must be text, got 0"),
        ({"env_kwargs": 3}, TypeError, "env_kwargs must be a mapping, got 3"),
        (
            {"learning_rate": "fast"},
            ValueError,
            "learning_rate must be a number, a linear schedule or a callable, got 'fast'",
        ),
        ({"learning_rate": [1]}, TypeError, "learning_rate must be a number, a linear schedule"),
    ],
)
def test_a_bad_value_is_named(options: dict[str, Any], error: type[Exception], reason: str) -> None:
    with pytest.raises(error) as caught:
        Example.from_dict(options)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"gamma": 1}, 1.0),
        ({"gamma": np.float32(0.5)}, 0.5),
        ({"seed": np.int64(3)}, 3),
        ({"seed": "100_000"}, 100_000),
        ({"seed": str(2**62 + 1)}, 2**62 + 1),
        ({"hidden": 32}, (32,)),
        ({"hidden": np.array([8, 4])}, (8, 4)),
        ({"anneal": np.True_}, True),
        ({"learning_rate": "linear(1e-3, 0)"}, Linear(1e-3)),
        ({"learning_rate": "lin_1e-3"}, Linear(1e-3)),
        ({"learning_rate": "1e-3"}, 1e-3),
        ({"ent_coef": "0.1"}, 0.1),
        ({"ent_coef": "auto"}, "auto"),
    ],
)
def test_lossless_conversions_are_silent(options: dict[str, Any], expected: Any) -> None:
    ((name, _),) = options.items()
    value = getattr(Example.from_dict(options), name)
    assert value == expected
    assert type(value) is type(expected)


def test_text_of_a_command_line_is_read() -> None:
    given_texts = {
        "gamma": "0.5",
        "hidden": "256,128",
        "anneal": "off",
        "target_kl": "none",
        "recurrent": "lstm",
        "lr": "lin_1e-3",
        "env_kwargs": '{"goal": 1}',
    }
    assert Example.from_text(given_texts) == Example(
        gamma=0.5,
        hidden=(256, 128),
        anneal=False,
        target_kl=None,
        recurrent="lstm",
        learning_rate=Linear(1e-3),
        env_kwargs={"goal": 1},
    )


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("anneal", "maybe", "anneal must be true or false, got 'maybe'"),
        ("hidden", "64,x", "hidden must be an integer, got 'x'"),
        ("env_kwargs", "{", "env_kwargs must be a JSON object, got '{'"),
        ("recurrent", "no", "recurrent must be one of 'lstm', 'gru' or none, got 'no'"),
    ],
)
def test_bad_text_is_named(name: str, value: str, reason: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        Example.from_text({name: value})
    assert str(caught.value) == reason


def test_a_callable_must_be_passed_again() -> None:
    config = Example(learning_rate=lambda progress_remaining: progress_remaining)
    written = json.loads(json.dumps(config.to_dict()))
    with pytest.raises(ValueError, match=r"which a file cannot hold: pass learning_rate again"):
        Example.from_dict(written)
    assert Example.from_dict({**written, "learning_rate": 0.1}) == config.merge(learning_rate=0.1)


def test_merge_changes_only_what_it_is_told() -> None:
    config = Example(seed=1)
    assert config.merge({"gamma": 0.5}) == config.merge(gamma=0.5) == Example(seed=1, gamma=0.5)
    assert config.replace(gamma=0.5) == Example(seed=1, gamma=0.5)
    assert config == Example(seed=1)
    with pytest.raises(ValueError, match="gamma must be between"):
        config.merge(gamma=2)


def test_help_is_the_docstring_under_each_field() -> None:
    texts = Example.field_help()
    assert list(texts)[:2] == ["gamma", "seed"]
    assert texts["gamma"] == "The discount of the example."
    assert texts["seed"] == "The seed of\neverything."
    assert texts["learning_rate"] == "The step size."
    assert texts["clip_eps"] == ""


def test_the_signature_names_every_field_with_its_default() -> None:
    parameters = inspect.signature(Example).parameters
    assert list(parameters) == list(Example.annotations())
    assert parameters["seed"].default == 42


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("A.pem, Key.pem,CA.pem", ("A.pem", "Key.pem", "CA.pem")),
        ("[::1]:50051", ("[::1]:50051",)),
        ("[Host:1, b:2]", ("Host:1", "b:2")),
    ],
)
def test_texts_in_a_list_stay_as_they_are(text: str, read: tuple[str, ...]) -> None:
    assert from_text(text, tuple[str, ...] | None) == read
