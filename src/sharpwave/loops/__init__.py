"""Loops: what feeds a learner, from environments or from a dataset."""
