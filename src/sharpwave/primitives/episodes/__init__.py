"""Sums over the episodes of many environments on a device."""
