"""Looking into folders of the durable store: in the terminal, on a page, and live."""

from sharpwave.episodes.viewer.viewer import Viewer

__all__ = ["Viewer"]
