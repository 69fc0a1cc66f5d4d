"""rlox's environments on other machines."""

from sharpwave.distributed import RemoteEnvPool

__all__ = ["RemoteEnvPool"]
