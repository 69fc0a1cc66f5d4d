"""Whole episodes on disk."""
