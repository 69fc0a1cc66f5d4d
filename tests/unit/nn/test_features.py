"""Observations of every space become vectors, with their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from sharpwave.nn import make_features
from sharpwave.nn.features import NatureCNN


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def tensors(nest: Any) -> Any:
    if isinstance(nest, dict):
        return {key: tensors(leaf) for key, leaf in nest.items()}
    if isinstance(nest, tuple):
        return tuple(map(tensors, nest))
    return torch.from_numpy(np.asarray(nest))


def stacked(space: spaces.Space[Any], n: int) -> Any:
    """`n` samples of a space in one batch of tensors."""

    def join(samples: list[Any]) -> Any:
        if isinstance(samples[0], dict):
            return {key: join([s[key] for s in samples]) for key in samples[0]}
        if isinstance(samples[0], tuple):
            return tuple(join([s[i] for s in samples]) for i in range(len(samples[0])))
        return np.stack(samples)

    space.seed(0)
    return tensors(join([space.sample() for _ in range(n)]))


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
def test_boxes_are_flattened_and_cast(shape: tuple[int, ...], dtype: type) -> None:
    space = spaces.Box(-5, 5, shape, dtype)
    features = make_features(space, rng())
    obs = stacked(space, 6)
    flat = features(obs)
    assert flat.dtype == torch.float32
    torch.testing.assert_close(flat, obs.reshape(6, features.size).float(), rtol=0, atol=0)
    deep = features(obs.reshape(2, 3, *shape))
    torch.testing.assert_close(deep.reshape(6, -1), flat, rtol=0, atol=0)


def test_float32_vectors_pass_without_a_copy() -> None:
    obs = torch.zeros(4, 3)
    assert make_features(spaces.Box(-1, 1, (3,)), rng())(obs) is obs


def test_discrete_observations_are_one_hot_from_their_start() -> None:
    features = make_features(spaces.Discrete(3, start=-1), rng())
    assert features(torch.tensor([-1, 1, 0])).tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0]]
    assert features(torch.zeros(2, 5, dtype=torch.int64)).shape == (2, 5, 3)


def test_multi_discrete_observations_are_one_hot_side_by_side() -> None:
    features = make_features(spaces.MultiDiscrete([2, 3], start=[0, 10]), rng())
    assert features(torch.tensor([[1, 10], [0, 12]])).tolist() == [
        [0, 1, 1, 0, 0],
        [1, 0, 0, 0, 1],
    ]
    grid = spaces.MultiDiscrete(np.array([[2, 3], [4, 2]]))
    rows = make_features(grid, rng())(stacked(grid, 5))
    assert rows.shape == (5, 11)
    assert (rows.sum(-1) == 4).all()


def test_multi_binary_observations_are_floats() -> None:
    features = make_features(spaces.MultiBinary([2, 2]), rng())
    obs = torch.tensor([[[0, 1], [1, 1]]], dtype=torch.int8)
    assert features(obs).tolist() == [[0.0, 1.0, 1.0, 1.0]]


@pytest.mark.long(but=["shape0"])
@pytest.mark.parametrize("shape", [(4, 84, 84), (84, 84, 4), (36, 50, 3), (1, 40, 40)])
def test_images_have_their_channels_found(shape: tuple[int, ...]) -> None:
    space = spaces.Box(0, 255, shape, np.uint8)
    features = make_features(space, rng())
    assert isinstance(features, NatureCNN)
    first = features.layers[0]
    assert isinstance(first, nn.Conv2d)
    assert first.in_channels == min(shape)
    obs = stacked(space, 6)
    out = features(obs)
    assert out.shape == (6, 512)
    torch.testing.assert_close(
        features(obs.reshape(2, 3, *shape)).reshape(6, 512), out, rtol=1e-4, atol=1e-6
    )
    out.sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in features.parameters())


def test_both_orders_of_the_channels_give_the_same_features() -> None:
    images = torch.randint(256, (2, 3, 36, 40), dtype=torch.uint8)
    first = make_features(spaces.Box(0, 255, (3, 36, 40), np.uint8), rng())
    last = make_features(spaces.Box(0, 255, (36, 40, 3), np.uint8), rng())
    torch.testing.assert_close(
        first(images), last(images.movedim(1, -1).contiguous()), rtol=1e-4, atol=1e-6
    )


def test_white_pixels_are_ones() -> None:
    features = make_features(spaces.Box(0, 255, (1, 36, 36), np.uint8), rng())
    assert isinstance(features, NatureCNN)
    white = torch.full((1, 1, 36, 36), 255, dtype=torch.uint8)
    torch.testing.assert_close(features(white), features.layers(torch.ones(1, 1, 36, 36)))


def test_small_images_say_the_smallest_size() -> None:
    with pytest.raises(
        ValueError, match=r"at least 36 pixels high and wide, got shape \(7, 7, 3\)"
    ):
        make_features(spaces.Box(0, 255, (7, 7, 3), np.uint8), rng())


NESTED = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (36, 36, 3), np.uint8),
        "body.joints": spaces.Box(-1, 1, (2, 2), np.float64),
        "extra": spaces.Tuple((spaces.Discrete(3), spaces.Dict({"bits": spaces.MultiBinary(2)}))),
    }
)


def test_nested_observations_are_combined_leaf_by_leaf() -> None:
    features = make_features(NESTED, rng())
    assert features.size == 256 + 4 + 3 + 2
    obs = stacked(NESTED, 4)
    out = features(obs)
    assert out.shape == (4, features.size)
    keys = list(NESTED.spaces)
    at = keys.index("body.joints")
    before = sum({"camera": 256, "body.joints": 4, "extra": 5}[key] for key in keys[:at])
    joints: Tensor = obs["body.joints"].reshape(4, 4).float()
    torch.testing.assert_close(out[:, before : before + 4], joints, rtol=0, atol=0)
    out.sum().backward()
    assert all(p.grad is not None for p in features.parameters())


def test_vectors_need_no_parameters_and_no_state() -> None:
    for space in (spaces.Box(-1, 1, (3,)), spaces.Discrete(4), spaces.MultiBinary(2)):
        features = make_features(space, rng())
        assert not list(features.parameters())
        assert not features.state_dict()


def test_other_spaces_are_refused() -> None:
    with pytest.raises(TypeError, match=r"observation_space must be Box, .* got Text"):
        make_features(spaces.Dict({"words": spaces.Text(3)}), rng())
