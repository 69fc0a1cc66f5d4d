"""Prioritized sampling, in proportion to priorities that stay on the device."""
