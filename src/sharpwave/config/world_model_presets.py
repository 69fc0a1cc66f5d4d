"""Settings of DreamerV3: sizes, kinds of tasks, and environments; see `presets`."""

from __future__ import annotations

from sharpwave.types import Settings

__all__ = ["DREAMER_V3"]


def _published(deter: int, hidden: int, classes: int, depth: int, units: int) -> Settings:
    """A model size with the settings that its authors train all sizes with."""
    return {
        "deter": deter,
        "hidden": hidden,
        "latents": 32,
        "classes": classes,
        "depth": depth,
        "units": units,
        "batch_size": 16,
        "sequence_length": 64,
        "imag_last": None,
        "learning_rate": 4e-5,
        "warmup": 1000,
        "train_ratio": 32,
        "buffer_size": 5_000_000,
    }


SIZES: dict[str, Settings] = {
    "tiny": {},  # the defaults
    "size1m": _published(512, 64, 4, 4, 64),
    "size12m": _published(2048, 256, 16, 16, 256),
    "size25m": _published(3072, 384, 24, 24, 384),
    "size50m": _published(4096, 512, 32, 32, 512),
    "size100m": _published(6144, 768, 48, 48, 768),
    "size200m": _published(8192, 1024, 64, 64, 1024),
    "size400m": _published(12288, 1536, 96, 96, 1536),
}


def _task(size: str, train_ratio: int, steps: int) -> Settings:
    """A kind of task, whose runs have so many steps; a longer buffer would only take memory."""
    kept = min(steps, SIZES[size]["buffer_size"])
    return {
        **SIZES[size],
        "train_ratio": train_ratio,
        "total_timesteps": steps,
        "buffer_size": kept,
    }


TASKS: dict[str, Settings] = {
    "state_control": _task("size1m", 1024, 1_100_000),
    "image_control": _task("size12m", 256, 1_100_000),
    "atari_100k": _task("size12m", 256, 110_000),
    "crafter": _task("size12m", 512, 1_100_000),
    "Atari": _task("size12m", 32, 51_000_000),
}

DREAMER_V3: dict[str, Settings] = {
    **SIZES,
    **TASKS,
    "CartPole-v1": {"total_timesteps": 12_000},
    "Pendulum-v1": {"total_timesteps": 14_000},
}
