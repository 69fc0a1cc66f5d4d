"""Facts of a run from its configuration: subject, unit, and the metric to judge it by.

Runs that were recorded before these were written down are in environments, or count gradient
steps.
"""

from __future__ import annotations

from typing import Any

from sharpwave.pages.headline import RETURN, Headline
from sharpwave.pages.units import ENVIRONMENT_STEPS, GRADIENT_STEPS, singular
from sharpwave.storage.run_folder import EARLIER_RETURN


def unit_of(config: dict[str, Any]) -> str:
    """Unit of the steps of a run, in the plural."""
    told = config.get("unit")
    if isinstance(told, str) and told:
        return told
    is_offline = config.get("step_unit") == singular(GRADIENT_STEPS)
    return GRADIENT_STEPS if is_offline else ENVIRONMENT_STEPS


def subject_of(config: dict[str, Any]) -> str:
    """The environment or dataset that a run learns from."""
    if config.get("env"):
        return str(config["env"])
    if "env" not in config and config.get("subject"):
        return str(config["subject"])
    return "a dataset" if unit_of(config) == GRADIENT_STEPS else "an environment without an id"


def headline_of(config: dict[str, Any]) -> Headline:
    """The metric to judge a run by; the return where it names none."""
    told = config.get("headline")
    if not isinstance(told, dict) or not isinstance(told.get("metric"), str):
        return RETURN
    if told["metric"] == EARLIER_RETURN and not told.get("title"):
        return RETURN
    words = {
        name: told[name]
        for name in ("counted_by", "title", "hint", "each", "evaluation")
        if isinstance(told.get(name), str) and told[name]
    }
    return Headline(told["metric"], lower_is_better=told.get("lower_is_better") is True, **words)


def has_headline(config: dict[str, Any]) -> bool:
    """Return whether training measures the metric that a run is judged by."""
    if "headline" in config:
        return config["headline"] is not None
    return unit_of(config) == ENVIRONMENT_STEPS


def title_of(headline: Headline) -> str:
    """The title of a chart of a metric."""
    return "Episode return" if headline.is_return else headline.title or headline.words.capitalize()


def curve_of(headline: Headline) -> str:
    """The name of its curve."""
    return "training return" if headline.is_return else headline.words
