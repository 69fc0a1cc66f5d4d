"""The page over HTTP, while a writer may append to the folder."""

from __future__ import annotations

from collections.abc import Mapping

from sharpwave.pages.serving import Answer, PageServer, json_answer
from sharpwave.pages.viewer.page import viewer_page
from sharpwave.pages.viewer.watched import Watched


def viewer_server(watched: Watched, port: int = 0) -> PageServer:
    """A server that answers questions about one folder: `/`, `/state`, `/episode`, `/frame`.

    Args:
        watched: The folder.
        port: Port to listen on; 0 takes a free one.

    Raises:
        OSError: The port is taken.
        ValueError: There is no such port.
    """

    def page(_: Mapping[str, str]) -> Answer:
        return "text/html", viewer_page(watched.state(), None).encode()

    def state(arguments: Mapping[str, str]) -> Answer:
        return json_answer(watched.state(_integer(arguments, "since", -1)))

    def episode(arguments: Mapping[str, str]) -> Answer:
        return json_answer(watched.detail(_integer(arguments, "id")))

    def frame(arguments: Mapping[str, str]) -> Answer:
        field = arguments.get("field", "")
        return "image/png", watched.frame(
            _integer(arguments, "id"), field, _integer(arguments, "step")
        )

    return PageServer({"/": page, "/state": state, "/episode": episode, "/frame": frame}, port)


def _integer(arguments: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = arguments.get(name)
    if text is None and default is not None:
        return default
    try:
        return int(text or "")
    except ValueError:
        raise ValueError(f"{name} must be an integer, got {text!r}") from None
