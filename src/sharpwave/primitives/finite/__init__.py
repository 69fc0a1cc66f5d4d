"""A look for numbers on a device that are not finite."""
