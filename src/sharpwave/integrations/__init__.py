"""Buffers for the algorithms of other libraries.

Belongs here: what other libraries take from us. Each module imports its library.
"""
