"""Options of algorithms: their fields, defaults, checks, files and schedules.

Belongs here: fields with a default, a check and a docstring, and presets; nothing that computes.
"""
