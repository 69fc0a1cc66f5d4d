"""Settings of DreamerV3's sizes and kinds of tasks, as the release of its authors has them.

The widths are those of the table of sizes; what is common to all are the defaults; the ratios
and numbers of steps are those of the benchmarks of the paper. Of a buffer of 5 million steps a
shorter run fills as many as it has.
"""

from __future__ import annotations

from typing import Any

Facts = dict[str, Any]

COMMON: Facts = {
    "latents": 32,
    "batch_size": 16,
    "sequence_length": 64,
    "learning_rate": 4e-5,
    "warmup": 1000,
    "agc": 0.3,
    "buffer_size": 5_000_000,
    "blocks": 8,
    "imagination": 15,
    "imag_last": None,
    "lam": 0.95,
    "slow_rate": 0.02,
    "return_rate": 0.01,
    "ent_coef": 3e-4,
    "unimix": 0.01,
    "free_nats": 1.0,
    "dynamics_coef": 1.0,
    "representation_coef": 0.1,
    "replay_value_coef": 0.3,
    "gamma": 1 - 1 / 333,
}
WIDTHS = ("deter", "hidden", "classes", "depth", "units")
SIZES: dict[str, tuple[int, ...]] = {
    "size1m": (512, 64, 4, 4, 64),
    "size12m": (2048, 256, 16, 16, 256),
    "size25m": (3072, 384, 24, 24, 384),
    "size50m": (4096, 512, 32, 32, 512),
    "size100m": (6144, 768, 48, 48, 768),
    "size200m": (8192, 1024, 64, 64, 1024),
    "size400m": (12288, 1536, 96, 96, 1536),
}
TASKS: dict[str, tuple[str, int, int]] = {
    "state_control": ("size1m", 1024, 1_100_000),
    "image_control": ("size12m", 256, 1_100_000),
    "atari_100k": ("size12m", 256, 110_000),
    "crafter": ("size12m", 512, 1_100_000),
    "Atari": ("size12m", 32, 51_000_000),
}


def facts_of(size: str) -> Facts:
    """Settings of a size, whatever the task."""
    return {**COMMON, **dict(zip(WIDTHS, SIZES[size], strict=True))}


DREAMER: dict[str, dict[str, Facts]] = {
    "dreamer_v3": {
        **{size: facts_of(size) for size in SIZES},
        **{
            task: {
                **facts_of(size),
                "train_ratio": ratio,
                "total_timesteps": steps,
                "buffer_size": min(steps, 5_000_000),
            }
            for task, (size, ratio, steps) in TASKS.items()
        },
    }
}
