"""Policies of small networks, a whole step of which is one launch."""
