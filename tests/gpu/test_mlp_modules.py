"""Modules that a GPU takes as one operation."""

import pytest
import torch

from tests.unit.nn.test_mlp_on_gpu import *  # noqa: F403

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.fixture  # type: ignore[no-redef]
def device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device())
