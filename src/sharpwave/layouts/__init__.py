"""Networks as blocks of memory, without torch: their shapes, first weights and inputs."""
