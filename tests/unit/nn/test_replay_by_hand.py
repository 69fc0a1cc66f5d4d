"""Networks of SAC and TD3 whose gradients can be taken by hand, and those that cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from sharpwave.nn import Critics, SACByHand, SquashedActor, TD3ByHand

BOX = spaces.Box(-np.inf, np.inf, (2, 3), np.float32)


class TestWhereItCannot:
    @pytest.mark.parametrize(
        ("options", "reason"),
        [
            ({"gsde": True}, "noise of its own"),
            ({"batch_norm": True}, "actor"),
            ({"activation": "silu"}, "activations other than"),
        ],
    )
    def test_it_says_why(self, options: dict[str, Any], reason: str) -> None:
        generator = np.random.default_rng(0)
        policy = SquashedActor(BOX, 2, generator=generator, **options)
        critics = Critics(BOX, 2, generator=generator)
        assert reason in str(SACByHand.why_not(policy, critics))
        with pytest.raises(TypeError, match="by hand"):
            SACByHand(policy, critics, critics)

    @pytest.mark.parametrize(
        ("options", "reason"),
        [
            ({"layer_norm": True}, "normalises"),
            ({"batch_norm": True}, "normalises"),
            ({"n_outputs": 3}, "several outputs"),
            ({"hidden": ()}, "no hidden layer"),
            ({"activation": "elu"}, "ELU"),
        ],
    )
    def test_it_says_what_is_in_the_way_of_critics(
        self, options: dict[str, Any], reason: str
    ) -> None:
        generator = np.random.default_rng(0)
        policy = SquashedActor(BOX, 2, generator=generator)
        critics = Critics(BOX, 2, generator=generator, **options)
        assert reason in str(SACByHand.why_not(policy, critics))

    def test_learned_features_are_left_to_autograd(self) -> None:
        image = spaces.Box(0, 255, (3, 40, 40), np.uint8)
        generator = np.random.default_rng(0)
        policy = SquashedActor(image, 2, generator=generator)
        critics = Critics(image, 2, generator=generator)
        assert "features" in str(SACByHand.why_not(policy, critics))
        assert "SquashedActor" in str(TD3ByHand.why_not(policy, critics))
