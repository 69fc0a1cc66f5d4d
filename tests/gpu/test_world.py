"""The single rows of a world model, in Triton on a GPU."""

import pytest
import torch

from tests.unit.primitives.test_world import *  # noqa: F403

pytestmark = pytest.mark.gpu


@pytest.fixture
def device() -> torch.device:
    return torch.device("cuda")
