"""Devices of these tests: here the CPU, in tests/gpu CUDA, with the same tests."""

import pytest
import torch


@pytest.fixture
def device() -> torch.device:
    """The CPU: plain torch, or Triton's interpreter where TRITON_INTERPRET=1."""
    return torch.device("cpu")
