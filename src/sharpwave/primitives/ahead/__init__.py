"""n-step transitions of steps in a ring on a device."""
