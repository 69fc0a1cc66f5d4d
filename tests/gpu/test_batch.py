"""Rows of batches on a GPU, in one launch."""

import pytest
import torch

from tests.unit.learners.test_batch import *  # noqa: F403

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.fixture  # type: ignore[no-redef]
def device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device())
