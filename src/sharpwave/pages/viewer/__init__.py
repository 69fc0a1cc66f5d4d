"""Looking into folders of the durable store: in the terminal, on a page, and live."""

from sharpwave.pages.viewer.viewer import Viewer

__all__ = ["Viewer"]
