"""Options of algorithms: their fields, defaults, checks, files and schedules."""
