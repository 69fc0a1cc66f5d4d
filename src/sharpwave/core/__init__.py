"""Small helpers of every room: trees of arrays, names of options, optional dependencies, notices.

Belongs here: helpers that any room may need and that know none of them: nothing but errors and
types of the library is imported.
"""
