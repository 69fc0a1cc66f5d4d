"""Films of a policy at work."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, TypeAlias, cast

import gymnasium
import numpy as np

from sharpwave.extras import missing_library, require
from sharpwave.types import Array

DEFAULT_FPS = 30

Maker: TypeAlias = Callable[[], gymnasium.Env[Any, Any]]


def record_video(
    algo: Any,
    path: str | Path,
    n_episodes: int = 1,
    *,
    fps: int | None = None,
    env: Maker | None = None,
    deterministic: bool = True,
) -> Any:
    """Films some episodes of an algorithm's policy into one mp4 file.

    Args:
        algo: The algorithm; its `evaluate` plays.
        path: The file; its folder is made if missing. It appears when it is whole.
        n_episodes: Episodes to film.
        fps: Frames per second; None takes the environment's, or 30.
        env: Makes the environment, with `render_mode="rgb_array"`; None makes one like the
            training environment.
        deterministic: Whether to take the most likely action.

    Returns:
        The evaluation of these episodes.

    Raises:
        ImportError: If `imageio-ffmpeg` is not installed.
        ValueError: If there is no environment to film, or it does not render arrays.

    Example:
        >>> film = record_video(sw.PPO("CartPole-v1"), "cartpole.mp4")
    """
    require("imageio_ffmpeg", extra="video")
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.stem}.partial.mp4")
    film = Film(_make(algo, env), partial, n_episodes, fps)
    try:
        result = algo.evaluate(n_episodes, env=film, deterministic=deterministic)
        film.close()
        partial.replace(path)
    finally:
        film.close()
        partial.unlink(missing_ok=True)
    return result


def check_filming(algo: Any, env: Maker | None = None) -> None:
    """Find out whether `record_video` can film, by a single picture.

    Raises:
        ImportError: What films or renders is not installed; the message says what installs it.
        ValueError: There is no environment to film, or it renders no pictures here.
    """
    require("imageio_ffmpeg", extra="video")
    made = _make(algo, env)
    try:
        made.reset()
        picture = made.render()
    except Exception as error:
        missing = missing_library(error, f"a picture of {made}")
        raise missing or ValueError(f"{made} cannot be rendered here: {error}") from error
    finally:
        made.close()
    if np.ndim(cast("Any", picture)) != 3:
        raise ValueError(f"{made} must render pictures [height, width, 3], got {picture!r:.80}")


class Film(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Writes every frame of the first episodes of an environment to a file.

    Args:
        env: An environment with `render_mode="rgb_array"`.
        path: The mp4 file.
        n_episodes: Episodes to film; later ones are played, not filmed.
        fps: Frames per second; None takes the environment's, or 30.
    """

    def __init__(
        self, env: gymnasium.Env[Any, Any], path: Path, n_episodes: int, fps: int | None
    ) -> None:
        super().__init__(env)
        self._path = path
        self._episodes_left = n_episodes
        self._fps = fps or env.metadata.get("render_fps") or DEFAULT_FPS
        self._writer: Generator[None, Array | None, None] | None = None

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Resets, and films the first frame."""
        answer = self.env.reset(**kwargs)
        self._film()
        return answer

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Steps, and films what came of it."""
        answer = self.env.step(action)
        self._film()
        if answer[2] or answer[3]:
            self._episodes_left -= 1
        return answer

    def close(self) -> None:
        """Completes the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self._episodes_left = 0
        super().close()

    def _film(self) -> None:
        if self._episodes_left <= 0:
            return
        frame = _even(self.env.render())
        if self._writer is None:
            self._writer = _open(self._path, frame, self._fps)
        self._writer.send(frame)


def _make(algo: Any, env: Maker | None) -> gymnasium.Env[Any, Any]:
    made = algo.make_env(1, render_mode="rgb_array").envs[0] if env is None else env()
    if made.render_mode != "rgb_array":
        made.close()
        raise ValueError(f'env must have render_mode "rgb_array", got {made.render_mode!r}')
    return cast("gymnasium.Env[Any, Any]", made)


def _even(frame: Any) -> Array:
    """The frame with an even height and width, as the video format wants them."""
    height, width, _ = frame.shape
    padded = np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    return np.ascontiguousarray(padded, dtype=np.uint8)


def _open(path: Path, frame: Array, fps: int) -> Generator[None, Array | None, None]:
    height, width, _ = frame.shape
    writer: Generator[None, Array | None, None] = require(
        "imageio_ffmpeg", extra="video"
    ).write_frames(
        str(path), (width, height), fps=fps, macro_block_size=2, ffmpeg_log_level="error"
    )
    writer.send(None)
    return writer
