"""Exceptions of this library beyond the built-in ones."""


class SharpwaveIOError(OSError):
    """A saved buffer cannot be read or written: missing, foreign, incomplete or corrupt."""
