"""Steps of Adam, in Triton on a GPU."""

import pytest
import torch

from tests.unit.primitives.test_adam import *  # noqa: F403

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.fixture
def device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device())
