"""Imports: nothing is imported for language models by those who have none."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import sharpwave as sw
print("torch" in sys.modules, "transformers" in sys.modules)
sw.GRPO, sw.DPO, sw.OnlineDPO, sw.SFT
print("torch" in sys.modules, "transformers" in sys.modules)
model = sw.nn.Transformer(vocab_size=14)
agent = sw.GRPO(model, reward_fn=lambda completions, _: [1.0, 2.0] * 2, group_size=2, n_prompts=2)
agent.train([[1, 2], [3, 4]], n_updates=1)
print("torch" in sys.modules, "transformers" in sys.modules)
"""


@pytest.mark.long
def test_transformers_is_imported_for_its_models_alone() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["False", "False", "False", "False", "True", "False"]
