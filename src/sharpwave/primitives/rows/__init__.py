"""Rows of many columns on a device: gather, scatter and push."""
