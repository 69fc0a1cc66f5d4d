"""Small helpers of every room: trees of arrays, names of options, optional dependencies, notices.

What stands here imports nothing of the library but its errors and types, so every room may use it.
"""
