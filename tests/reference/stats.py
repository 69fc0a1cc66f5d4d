"""Moments of everything seen, from the list of all samples."""

import math


def moments(samples: list[float]) -> tuple[float, float]:
    """Mean and population variance of a list of numbers."""
    mean = math.fsum(samples) / len(samples)
    return mean, math.fsum((x - mean) ** 2 for x in samples) / len(samples)
