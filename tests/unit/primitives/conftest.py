"""Where the kernels are tested: here on the CPU, in tests/gpu on CUDA, with the same tests."""

import pytest
import torch


@pytest.fixture
def device() -> torch.device:
    """The CPU: plain torch, or Triton's interpreter where TRITON_INTERPRET=1."""
    return torch.device("cpu")
