"""An experience engine for reinforcement learning: native replay buffers and primitives."""

__version__ = "0.1.0"
