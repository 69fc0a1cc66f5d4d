"""Settings of language models for the small tasks of `llm.tasks`; see `presets`."""

from __future__ import annotations

from sharpwave.types import Settings

__all__ = ["DPO", "GRPO", "KTO", "ONLINE_DPO", "SFT"]


ANSWERS = {"copy4": 4, "sort3": 3, "mod10": 1, "even": 8}
"""Tokens of an answer, by task."""

_GRPO: Settings = {
    "total_timesteps": 200,
    "n_prompts": 16,
    "group_size": 16,
    "learning_rate": 2e-3,
    "kl_coef": 0.0,
    "loss": "dapo",
}
_DPO: Settings = {"total_timesteps": 200, "n_pairs": 64, "learning_rate": 1e-3}
_SFT: Settings = {"total_timesteps": 200, "n_examples": 64, "learning_rate": 2e-3}


_FOR: dict[str, Settings] = {
    "sort3": {"total_timesteps": 300, "entropy_coef": 0.01},
    "mod10": {
        "total_timesteps": 400,
        "n_prompts": 32,
        "learning_rate": 1e-3,
        "entropy_coef": 0.01,
    },
    "even": {"total_timesteps": 60},
}
"""Settings of GRPO by task, in place of those above."""


def _of_each_task(settings: Settings, *, but: str | None = None) -> dict[str, Settings]:
    return {
        task: {**settings, "max_new_tokens": length}
        for task, length in ANSWERS.items()
        if task != but
    }


GRPO = {task: {**all_, **_FOR.get(task, {})} for task, all_ in _of_each_task(_GRPO).items()}
ONLINE_DPO = _of_each_task({**_DPO, "n_pairs": 128, "learning_rate": 2e-3})
DPO = _of_each_task(_DPO, but="even")
KTO = _of_each_task({**_SFT, "n_examples": 128, "learning_rate": 1e-3}, but="even")
SFT = _of_each_task(_SFT, but="even")
SFT["mod10"]["total_timesteps"] = 1500  # for long it only knows how likely each digit is
