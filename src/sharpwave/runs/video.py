"""Films of a policy at work."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from sharpwave.core.optional import missing_library, require
from sharpwave.envs.multi import MultiAgentVectorEnv, MultiStep, make_multi_env
from sharpwave.types import Array, Maker

DEFAULT_FPS = 30


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
        deterministic: Take the most likely actions; otherwise sample.

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
    film = _film_of(algo, env, partial, n_episodes, fps)
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
        ImportError: A library to film or render is not installed; the message tells which.
        ValueError: There is no environment to film, or it renders no pictures here.
    """
    require("imageio_ffmpeg", extra="video")
    made = _make(algo, env)
    try:
        made.reset()
        picture = _picture(made)
    except Exception as error:
        missing = missing_library(error, f"a picture of {made}")
        raise missing or ValueError(f"{made} cannot be rendered here: {error}") from error
    finally:
        made.close()
    if np.ndim(picture) != 3:
        raise ValueError(f"{made} must render pictures [height, width, 3], got {picture!r:.80}")


class FilmFile:
    """An mp4 file that takes the frames of some episodes.

    Args:
        path: The file.
        n_episodes: Episodes to film; the frames of later ones are left out.
        fps: Frames per second.
    """

    def __init__(self, path: Path, n_episodes: int, fps: int) -> None:
        self._path, self._fps = path, fps
        self._episodes_left = n_episodes
        self._writer: Generator[None, Array | None, None] | None = None

    @property
    def is_full(self) -> bool:
        """True once all episodes are filmed."""
        return self._episodes_left <= 0

    def add(self, frame: Any) -> None:
        """Film a frame [height, width, 3]."""
        even = _even(frame)
        if self._writer is None:
            self._writer = _open(self._path, even, self._fps)
        self._writer.send(even)

    def end_episode(self) -> None:
        """Count an episode."""
        self._episodes_left -= 1

    def close(self) -> None:
        """Complete the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self._episodes_left = 0


class Film(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Writes every frame of the first episodes of an environment to a file.

    Args:
        env: An environment with `render_mode="rgb_array"`.
        file: The file to write to.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], file: FilmFile) -> None:
        super().__init__(env)
        self._file = file

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
            self._file.end_episode()
        return answer

    def close(self) -> None:
        """Completes the file."""
        self._file.close()
        super().close()

    def _film(self) -> None:
        if not self._file.is_full:
            self._file.add(self.env.render())


class TeamFilm(MultiAgentVectorEnv):
    """Writes every frame of the first episodes of a multi-agent environment to a file.

    An episode's last frame is that before its last step, which begins the next one.

    Args:
        env: One environment with `render_mode="rgb_array"`.
        file: The file to write to.
    """

    def __init__(self, env: MultiAgentVectorEnv, file: FilmFile) -> None:
        self.env, self._file = env, file
        self.num_envs, self.agents, self.groups = env.num_envs, env.agents, env.groups
        self.observation_spaces, self.action_spaces = env.observation_spaces, env.action_spaces
        self.state_space, self.resets_apart = env.state_space, env.resets_apart

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> MultiStep:
        """Resets, and films the first frame."""
        answer = self.env.reset(seed=seed, options=options)
        self._film()
        return answer

    def step(self, actions: Mapping[str, Any]) -> MultiStep:
        """Steps, and films what came of it."""
        answer = self.env.step(actions)
        if answer.ended[0]:
            self._file.end_episode()
        self._film()
        return answer

    def close(self) -> None:
        """Completes the file."""
        self._file.close()
        self.env.close()

    def _film(self) -> None:
        if not self._file.is_full:
            self._file.add(_picture(self.env))


def _film_of(algo: Any, env: Maker | None, path: Path, n_episodes: int, fps: int | None) -> Any:
    """The environment of an algorithm, which films itself."""
    made = _make(algo, env)
    file = FilmFile(path, n_episodes, fps or made.metadata.get("render_fps") or DEFAULT_FPS)
    return TeamFilm(made, file) if isinstance(made, MultiAgentVectorEnv) else Film(made, file)


def _make(algo: Any, env: Maker | None) -> Any:
    made: Any = algo.make_env(1, render_mode="rgb_array") if env is None else env()
    own = getattr(algo, "env", None)
    if isinstance(own, MultiAgentVectorEnv):
        if env is not None:
            made = make_multi_env(made, groups=dict(own.groups))
    elif env is None:
        made = made.envs[0]
    mode = getattr(made, "render_mode", None)
    if mode != "rgb_array":
        made.close()
        raise ValueError(f'env must have render_mode "rgb_array", got {mode!r}')
    return made


def _picture(env: Any) -> Any:
    """The rendered frame of an environment; of several, of the first one."""
    picture = env.render()
    return picture[0] if isinstance(env, MultiAgentVectorEnv) else picture


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
