"""Facts about presets: whose settings they are, and the returns that were reached with them here.

Results come from files: `preset_results.json` from the learning runs of `benchmarks/`, and the bars
of tests that train with a preset. Settings without either are only those of their source.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

RESULTS = Path(__file__).with_name("preset_results.json")
"""Written by `benchmarks/learning_page.py`."""

ZOO, CLEANRL, OURS = "RL Baselines3 Zoo", "CleanRL", "this project"

_SOURCES = {
    "c51": CLEANRL,
    "mappo": "the paper",
    "ippo": "the paper",
    "dreamer_v3": "its authors",
    **dict.fromkeys(("ppo", "a2c", "dqn", "qr_dqn", "sac", "tqc", "crossq", "td3", "ddpg"), ZOO),
}
_OTHER_SOURCES = {
    ("ppo", "MountainCarContinuous-v0"): OURS,
    ("dreamer_v3", "tiny"): OURS,
    ("dreamer_v3", "CartPole-v1"): OURS,
    ("dreamer_v3", "Pendulum-v1"): OURS,
    **{
        ("ppo", f"{name}-v5"): CLEANRL
        for name in (
            *("HalfCheetah", "Hopper", "Walker2d", "Ant", "Reacher", "Swimmer"),
            "InvertedPendulum",
        )
    },
}


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Runs with a preset beside those of another library.

    Attributes:
        seeds: Number of runs.
        steps: Their length.
        mean: Interquartile mean of their returns.
        low: Lower end of its interval.
        high: Upper end of its interval.
        date: Day on which they were made.
    """

    seeds: int
    steps: int
    mean: float
    low: float
    high: float
    date: str

    def __str__(self) -> str:
        interval = f"{self.mean:.0f} [{self.low:.0f}, {self.high:.0f}]"
        return f"run here, {self.seeds} seeds of {self.steps:,} steps: {interval} on {self.date}"


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A return that a test asks for of runs with a preset.

    Attributes:
        least: The return.
        of: The number that has to reach it.
        seeds: Number of runs.
        test: The test, in `tests/learning`.
        steps: Their length; None for that of the preset.
    """

    least: float
    of: str
    seeds: int
    test: str
    steps: int | None = None

    def __str__(self) -> str:
        length = "" if self.steps is None else f" of {self.steps:,} steps"
        return f"held by a test, {self.seeds} seeds{length}: {self.of} at least {self.least:g}"


_MEAN, _MEDIAN = "mean", "median"
_BEST_THREE = "best three evaluations in a row"
BARS = {
    ("ppo", "CartPole-v1"): Bar(
        least=475, of=_MEAN, seeds=3, test="test_bars.py:test_ppo_solves_cartpole"
    ),
    ("ppo", "Acrobot-v1"): Bar(
        least=-100, of=_MEAN, seeds=3, steps=200_000, test="test_bars.py:test_ppo_swings_up_acrobot"
    ),
    ("ppo", "MountainCarContinuous-v0"): Bar(
        least=90, of=_MEAN, seeds=3, test="test_bars.py:test_ppo_drives_up_the_mountain"
    ),
    ("ppo", "Pendulum-v1"): Bar(
        least=-300, of=_MEAN, seeds=3, test="test_bars.py:test_ppo_swings_up_pendulum"
    ),
    ("a2c", "CartPole-v1"): Bar(
        least=400, of=_MEDIAN, seeds=3, steps=200_000, test="test_bars.py:test_a2c_learns_cartpole"
    ),
    ("hybrid_ppo", "CartPole-v1"): Bar(
        least=475, of=_MEAN, seeds=3, test="test_bars.py:test_hybrid_ppo_solves_cartpole"
    ),
    ("hybrid_ppo", "Acrobot-v1"): Bar(
        least=-100, of=_MEAN, seeds=3, test="test_bars.py:test_hybrid_ppo_swings_up"
    ),
    ("hybrid_ppo", "Pendulum-v1"): Bar(
        least=-300, of=_MEAN, seeds=3, test="test_bars.py:test_hybrid_ppo_swings_up"
    ),
    ("impala", "CartPole-v1"): Bar(
        least=475, of=_BEST_THREE, seeds=3, test="test_bars.py:test_impala_solves_cartpole"
    ),
    ("appo", "CartPole-v1"): Bar(
        least=475, of=_BEST_THREE, seeds=3, test="test_bars.py:test_appo_solves_cartpole"
    ),
    ("dqn", "CartPole-v1"): Bar(
        least=450,
        of="mean of the best evaluations",
        seeds=3,
        test="test_q_bars.py:test_dqn_balances_the_pole",
    ),
    ("vdn", "mpe2/simple_spread_v3"): Bar(
        least=-18, of="each", seeds=3, test="test_team_values.py:test_agents_spread_out"
    ),
}
"""By algorithm and environment."""


def source_of(algorithm: str, name: str) -> str:
    """The source of the settings of a preset.

    Example:
        >>> source_of("ppo", "Hopper-v5"), source_of("grpo", "copy4")
        ('CleanRL', 'this project')
    """
    return _OTHER_SOURCES.get((algorithm, name), _SOURCES.get(algorithm, OURS))


def evidence_of(algorithm: str, name: str) -> str | None:
    """The result that was reached with a preset here; None where no file holds one.

    Example:
        >>> evidence_of("hybrid_ppo", "Acrobot-v1")
        'held by a test, 3 seeds: mean at least -100'
        >>> evidence_of("ppo", "Reacher-v5") is None
        True
    """
    found = _measured().get((algorithm, name)) or BARS.get((algorithm, name))
    return None if found is None else str(found)


@cache
def _measured() -> dict[tuple[str, str], Measured]:
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))
    return {(row.pop("algorithm"), row.pop("env")): Measured(**row) for row in rows}
