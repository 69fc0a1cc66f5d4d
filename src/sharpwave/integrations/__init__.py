"""Buffers for the algorithms of other libraries.

Each module imports its library; `import sharpwave` imports none of them.
"""
