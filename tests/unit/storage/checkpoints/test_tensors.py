"""Tensors of every dtype that safetensors knows, and tied ones, in checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from sharpwave.storage.checkpoints import (
    CheckpointReader,
    RawTensor,
    as_arrays,
    read_checkpoint,
    to_tensor,
    write_checkpoint,
)

NUMPY_HAS = [
    *("float64", "float32", "float16", "int64", "int32", "int16", "int8"),
    *("uint64", "uint32", "uint16", "uint8", "bool", "complex64"),
]
NUMPY_LACKS = [
    *("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
    *("float8_e8m0fnu", "float4_e2m1fn_x2"),
]
LOADED_BY_SAFETENSORS = set(NUMPY_HAS + NUMPY_LACKS) - {"float8_e8m0fnu", "float4_e2m1fn_x2"}
SHAPES = [(), (0,), (5,), (3, 4), (2, 0, 3)]


def tensor_of(dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    """Any bits, as far as the dtype allows them."""
    kind = getattr(torch, dtype)
    if dtype == "bool":
        return torch.rand(shape) < 0.5
    size = (*shape, kind.itemsize)
    words = torch.randint(0, 128, size, dtype=torch.uint8)
    return words.view(kind).reshape(shape)


def bits(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return b"" if flat.numel() == 0 else flat.view(torch.uint8).numpy().tobytes()


def assert_same_bits(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert bits(found) == bits(expected)


def data_bytes(path: Path) -> int:
    """Bytes of a file behind its header."""
    content = path.read_bytes()
    return len(content) - 8 - int.from_bytes(content[:8], "little")


class TestDtypes:
    @pytest.mark.parametrize("dtype", NUMPY_HAS + NUMPY_LACKS)
    def test_it_comes_back_as_it_was(self, dtype: str, tmp_path: Path) -> None:
        state = {str(i): tensor_of(dtype, shape) for i, shape in enumerate(SHAPES)}
        if dtype == "float4_e2m1fn_x2":
            state.pop("0")  # it has no last dimension to hold two values
        write_checkpoint(tmp_path / "a", {}, state)
        found = read_checkpoint(tmp_path / "a")[1]
        for name, tensor in state.items():
            assert isinstance(found[name], RawTensor if dtype in NUMPY_LACKS else np.ndarray)
            assert_same_bits(to_tensor(found[name]), tensor)
        with CheckpointReader(tmp_path / "a") as checkpoint:
            for name, tensor in state.items():
                assert checkpoint.dtype(f"state.{name}") == dtype
                assert checkpoint.shape(f"state.{name}") == tuple(tensor.shape)
                assert_same_bits(checkpoint.tensor(f"state.{name}"), tensor)

    @pytest.mark.parametrize("dtype", sorted(LOADED_BY_SAFETENSORS))
    def test_safetensors_reads_it(self, dtype: str, tmp_path: Path) -> None:
        state = {"x": tensor_of(dtype, (3, 4)), "y": tensor_of("float32", (2,))}
        write_checkpoint(tmp_path / "a", {}, state)
        found = load_file(tmp_path / "a")
        for name, tensor in state.items():
            assert_same_bits(found[f"state.{name}"], tensor)

    def test_what_was_read_is_written_again(self, tmp_path: Path) -> None:
        state = {"x": tensor_of("bfloat16", (3, 4))}
        write_checkpoint(tmp_path / "a", {"k": 1}, state)
        write_checkpoint(tmp_path / "b", *read_checkpoint(tmp_path / "a"))
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()

    def test_a_copy_as_arrays_keeps_the_dtype_and_shares_nothing(self) -> None:
        tensor = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
        copy = as_arrays({"x": [tensor]})["x"][0]
        again = as_arrays(copy)
        tensor.zero_()
        assert to_tensor(copy).tolist() == [1.5, -2.0]
        assert to_tensor(copy).dtype == torch.bfloat16
        to_tensor(copy).zero_()
        assert to_tensor(again).tolist() == [1.5, -2.0]

    @pytest.mark.parametrize(
        "leaf",
        [
            torch.zeros(2, dtype=torch.complex128),
            torch.zeros(2, 2).to_sparse(),
            torch.zeros(2, device="meta"),
            np.zeros(2, np.complex128),
            np.zeros(2, np.longdouble),
            np.array(["a"]),
        ],
    )
    def test_what_safetensors_has_no_name_for_is_refused(self, leaf: Any, tmp_path: Path) -> None:
        with pytest.raises(TypeError, match=r"state\.x must"):
            write_checkpoint(tmp_path / "a", {}, {"x": leaf})
        assert list(tmp_path.iterdir()) == []

    def test_views_are_written_as_what_they_show(self, tmp_path: Path) -> None:
        base = torch.arange(24.0).reshape(4, 6)
        numbers = np.arange(12, dtype=">i4").reshape(3, 4)
        state = {
            "transposed": base.t(),
            "strided": base[::2, 1::2],
            "expanded": torch.ones(1, 1).expand(3, 2),
            "conj": torch.tensor([1 + 2j]).conj(),
            "swapped": numbers,
            "reversed": numbers[::-1, ::-1],
            "parameter": torch.nn.Parameter(base[0]),
        }
        write_checkpoint(tmp_path / "a", {}, state)
        found = read_checkpoint(tmp_path / "a")[1]
        for name, value in state.items():
            shown = value.detach().resolve_conj().numpy() if hasattr(value, "detach") else value
            np.testing.assert_array_equal(found[name], shown, err_msg=name)

    def test_large_views_are_written_piece_by_piece(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sharpwave.storage.checkpoints.tensors.CHUNK_BYTES", 40)
        base = torch.arange(2.0 * 30 * 14).reshape(2, 30, 14)
        state = {"a": base.transpose(0, 2), "b": base[:, :, ::2], "c": base[:1].transpose(1, 2)}
        write_checkpoint(tmp_path / "a", {}, state)
        found = read_checkpoint(tmp_path / "a")[1]
        for name, value in state.items():
            np.testing.assert_array_equal(found[name], value.numpy(), err_msg=name)


class TestTies:
    def test_a_tied_weight_is_written_once(self, tmp_path: Path) -> None:
        embedding, head = torch.nn.Embedding(50, 8), torch.nn.Linear(8, 50, bias=False)
        head.weight = embedding.weight
        state = {"embedding": embedding.state_dict(), "head": head.state_dict()}
        write_checkpoint(tmp_path / "a", {}, state)
        assert data_bytes(tmp_path / "a") == 50 * 8 * 4
        found = read_checkpoint(tmp_path / "a")[1]
        left, right = found["embedding"]["weight"], found["head"]["weight"]
        np.testing.assert_array_equal(left, embedding.weight.detach().numpy())
        left[0] = 7.0
        np.testing.assert_array_equal(left, right)
        with CheckpointReader(tmp_path / "a") as checkpoint:
            names = {"state.embedding.weight", "state.head.weight"}
            assert set(checkpoint.names) == names
            ((tied, of),) = checkpoint.aliases.items()
            assert {tied, of} == names
            for name in names:
                assert checkpoint.shape(name) == (50, 8)
                assert_same_bits(checkpoint.tensor(name), embedding.weight.detach())
                target = torch.zeros(50, 8)
                checkpoint.copy_to(name, target)
                assert_same_bits(target, embedding.weight.detach())

    @pytest.mark.parametrize("first", ["base", "view"])
    @pytest.mark.parametrize(
        ("dtype", "view"),
        [
            ("float32", lambda x: x.reshape(-1)),
            ("float32", lambda x: x.reshape(6, 4)),
            ("float32", lambda x: x.t()),
            ("bfloat16", lambda x: x.reshape(2, 3, 4).permute(2, 0, 1)),
            ("float32", lambda x: x.numpy()),
            ("float32", lambda x: x[None, :, None]),
        ],
    )
    def test_a_view_of_all_of_it_is_written_once(
        self, dtype: str, view: Any, first: str, tmp_path: Path
    ) -> None:
        base = tensor_of(dtype, (4, 6))
        state = {"base": base, "view": view(base)}
        if first == "view":
            state = dict(reversed(state.items()))
        write_checkpoint(tmp_path / "a", {}, state)
        assert data_bytes(tmp_path / "a") == base.nbytes
        found = read_checkpoint(tmp_path / "a")[1]
        left, right = (to_tensor(found[name]) for name in ("base", "view"))
        assert_same_bits(left, base)
        assert_same_bits(right, torch.as_tensor(state["view"]))
        assert left.data_ptr() == right.data_ptr()

    def test_what_overlaps_in_part_or_shares_bits_only_is_written_apart(
        self, tmp_path: Path
    ) -> None:
        base = torch.arange(24.0).reshape(4, 6)
        complex_ = torch.tensor([1 + 2j, 3 - 1j])
        state = {
            "base": base,
            "rows": base[:2],
            "columns": base[:, :3],
            "bits": base.view(torch.int32),
            "number": complex_,
            "conj": complex_.conj(),
            "nothing": torch.zeros(0),
            "nothing too": torch.zeros(0),
            "row": torch.ones(1, 1).expand(4, 6),
        }
        write_checkpoint(tmp_path / "a", {}, state)
        found = read_checkpoint(tmp_path / "a")[1]
        for name, tensor in state.items():
            shown = tensor.resolve_conj().numpy()
            assert found[name].dtype == shown.dtype
            np.testing.assert_array_equal(found[name], shown, err_msg=name)
        with CheckpointReader(tmp_path / "a") as checkpoint:
            assert checkpoint.aliases == {}

    def test_a_strided_view_under_two_names_is_written_once(self, tmp_path: Path) -> None:
        column = torch.arange(24.0).reshape(4, 6)[:, 2]
        write_checkpoint(tmp_path / "a", {}, {"x": column, "y": column})
        assert data_bytes(tmp_path / "a") == 16
        found = read_checkpoint(tmp_path / "a")[1]
        assert found["x"].tolist() == found["y"].tolist() == column.tolist()


class TestReader:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        state = {"a": np.arange(600.0), "b": {"c": np.arange(6).reshape(2, 3)}, "d": "text"}
        write_checkpoint(tmp_path / "a", {"algorithm": "none"}, state)
        return tmp_path / "a"

    def test_header_names_shapes_and_dtypes(self, path: Path) -> None:
        with CheckpointReader(path) as checkpoint:
            assert checkpoint.header == {"algorithm": "none"}
            assert checkpoint.names == ("state.a", "state.b.c")
            assert [checkpoint.shape(name) for name in checkpoint.names] == [(600,), (2, 3)]
            assert [checkpoint.dtype(name) for name in checkpoint.names] == ["float64", "int64"]
            with pytest.raises(KeyError):
                checkpoint.read("state.b")
            with pytest.raises(KeyError):
                checkpoint.shape("absent")

    def test_opening_reads_no_tensor_and_reading_one_reads_that(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import os

        read: list[tuple[int, int]] = []
        preadv = os.preadv

        def counted(descriptor: int, buffers: Any, offset: int) -> int:
            count = preadv(descriptor, buffers, offset)
            read.append((offset, count))
            return count

        header = 8 + int.from_bytes(path.read_bytes()[:8], "little")
        monkeypatch.setattr(os, "preadv", counted)
        with CheckpointReader(path) as checkpoint:
            assert all(offset + count <= header for offset, count in read)
            read.clear()
            assert checkpoint.read("state.b.c").shape == (2, 3)
            assert sum(count for _, count in read) == 48

    def test_damage_is_found_in_the_tensor_that_is_read(self, path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[-1] ^= 1  # in the last one
        path.write_bytes(content)
        with CheckpointReader(path) as checkpoint:
            assert checkpoint.read("state.a").shape == (600,)
            target = np.zeros((2, 3), np.int64)
            for use in (
                lambda: checkpoint.read("state.b.c"),
                lambda: checkpoint.copy_to("state.b.c", target),
                checkpoint.state,
                checkpoint.verify,
            ):
                with pytest.raises(OSError, match=r"a: .*checksum of 'state\.b\.c'"):
                    use()
            assert not target.any()

    def test_parameters_of_other_dtypes_and_layouts_are_filled(self, path: Path) -> None:
        with CheckpointReader(path) as checkpoint:
            parameter = torch.nn.Parameter(torch.zeros(600, dtype=torch.bfloat16))
            checkpoint.copy_to("state.a", parameter)
            assert torch.equal(parameter, torch.arange(600.0).bfloat16())
            transposed = torch.zeros(3, 2).t()
            checkpoint.copy_to("state.b.c", transposed)
            assert transposed.tolist() == [[0, 1, 2], [3, 4, 5]]
            array = np.zeros((2, 6), np.float32)[:, ::2]
            checkpoint.copy_to("state.b.c", array)
            assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
            with pytest.raises(ValueError, match=r"shape \(2, 3\)"):
                checkpoint.copy_to("state.b.c", np.zeros(6))

    def test_large_parameters_are_filled_piece_by_piece(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sharpwave.storage.checkpoints.container.CHUNK_BYTES", 128)
        target = np.zeros(600)
        with CheckpointReader(path) as checkpoint:
            checkpoint.copy_to("state.a", target)
            checkpoint.verify()
        np.testing.assert_array_equal(target, np.arange(600.0))

    def test_bfloat16_fills_arrays_and_tensors(self, tmp_path: Path) -> None:
        write_checkpoint(tmp_path / "b", {}, torch.tensor([1.5, 2.0], dtype=torch.bfloat16))
        with CheckpointReader(tmp_path / "b") as checkpoint:
            target: Any
            for target in (np.zeros(2, np.float32), torch.zeros(2), torch.zeros(2).bfloat16()):
                checkpoint.copy_to("state", target)
                assert target.tolist() == [1.5, 2.0]

    def test_the_files_content_is_that_of_safetensors(self, path: Path) -> None:
        """Aligned, without gaps, with text alone in the metadata."""
        content = path.read_bytes()
        length = int.from_bytes(content[:8], "little")
        assert length % 8 == 0
        header = json.loads(content[8 : 8 + length])
        assert all(isinstance(value, str) for value in header["__metadata__"].values())
