"""Buffers for the algorithms of other libraries. Each module imports its library; none is imported
by `import sharpwave`.
"""
