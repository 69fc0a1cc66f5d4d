"""Loops: what feeds a learner, from environments or from a dataset.

Belongs here: what gets experience to a learner; no mathematics, no branch on a backend.
"""
