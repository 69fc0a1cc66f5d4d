"""Files of checkpoints with forged structure and right checksums: clear errors, and little memory.

An attacker can sign what he writes. Sizes, places, aliases and parts are believed only as far as
the file bears them out.
"""

from __future__ import annotations

import hashlib
import json
import random
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.storage.checkpoints import (
    CheckpointReader,
    list_parts,
    read_checkpoint,
    read_header,
    write_checkpoint,
)

BEGIN = b'{"__metadata__":{"checksum":"'
STATE: dict[str, Any] = {
    "a": np.arange(12.0).reshape(3, 4),
    "b": np.arange(5),
    "c": np.zeros(0),
    "n": 3,
}
STATE["tied"] = STATE["a"]
Header = dict[str, Any]


def parse(content: bytes) -> tuple[Header, Any, bytes]:
    """(header, document, data) of a file."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    document = json.loads(header["__metadata__"]["sharpwave"])
    return header, document, content[8 + length :]


def signed(header: Header, document: Any, data: bytes) -> bytes:
    """A file with the right checksum in its header."""
    metadata = {**header["__metadata__"], "checksum": "0" * 32, "sharpwave": json.dumps(document)}
    rest = {key: value for key, value in metadata.items() if key != "checksum"}
    metadata = {"checksum": metadata["checksum"], **rest}
    text = json.dumps({**header, "__metadata__": metadata}, separators=(",", ":")).encode()
    content = len(text).to_bytes(8, "little") + text
    checksum = hashlib.blake2b(content, digest_size=16).hexdigest().encode()
    at = 8 + len(BEGIN)
    return content[:at] + checksum + content[at + 32 :] + data


@contextmanager
def little_memory() -> Iterator[None]:
    """Inside, nothing can be allocated that is much larger than what there is."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + 2**28, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def use(path: Path) -> None:
    """Read it in every way."""
    read_header(path)
    with CheckpointReader(path) as checkpoint:
        for name in checkpoint.names:
            checkpoint.copy_to(name, np.zeros(checkpoint.shape(name)))
            checkpoint.read(name)
    read_checkpoint(path)


def assert_refused(path: Path) -> None:
    with little_memory(), pytest.raises(sw.SharpwaveIOError, match=path.name):
        use(path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "forged", {"algorithm": "none"}, STATE)
    return tmp_path / "forged"


def forge(path: Path, change: Callable[[Header, Any], Any]) -> None:
    header, document, data = parse(path.read_bytes())
    change(header, document)
    path.write_bytes(signed(header, document, data))


def test_what_is_signed_again_unchanged_is_read(path: Path) -> None:
    forge(path, lambda *_: None)
    use(path)


HUGE = 2**62
CHANGES: dict[str, Callable[[Header, Any], Any]] = {
    "a shape larger than its bytes": lambda h, _: h["state.a"].update(shape=[3, 5]),
    "a huge shape": lambda h, _: h["state.a"].update(shape=[HUGE, HUGE]),
    "a huge empty shape": lambda h, _: h["state.c"].update(shape=[HUGE, 0, HUGE]),
    "a negative shape": lambda h, _: h["state.a"].update(shape=[-3, -4]),
    "a shape of floats": lambda h, _: h["state.a"].update(shape=[3.0, 4.0]),
    "a shape of flags": lambda h, _: h["state.a"].update(shape=[True, 12]),
    "a shape of many dimensions": lambda h, _: h["state.a"].update(shape=[12] + [1] * 10**5),
    "a shape that is none": lambda h, _: h["state.a"].update(shape=None),
    "another dtype": lambda h, _: h["state.a"].update(dtype="F32"),
    "an unknown dtype": lambda h, _: h["state.a"].update(dtype="F128"),
    "a dtype that is none": lambda h, _: h["state.a"].update(dtype=["F64"]),
    "offsets behind the end": lambda h, _: h["state.a"].update(data_offsets=[HUGE, HUGE + 96]),
    "offsets before the data": lambda h, _: h["state.a"].update(data_offsets=[-96, 0]),
    "offsets that overlap": lambda h, _: h["state.b"].update(data_offsets=[0, 40]),
    "offsets backwards": lambda h, _: h["state.a"].update(data_offsets=[96, 0]),
    "offsets with a gap": lambda h, _: h.pop("state.a"),
    "three offsets": lambda h, _: h["state.a"].update(data_offsets=[0, 50, 96]),
    "an entry that is none": lambda h, _: h.update({"state.a": 7}),
    "a checksum too few": lambda h, _: h["__metadata__"].update(tensors="0" * 64),
    "checksums of nothing": lambda h, _: h["__metadata__"].update(tensors="x" * 96),
    "checksums that are none": lambda h, _: h["__metadata__"].update(tensors=[1, 2, 3]),
    "no checksums": lambda h, _: h["__metadata__"].pop("tensors"),
    "an alias of nothing": lambda _, d: d["aliases"]["state.tied"].update(of="absent"),
    "an alias of itself": lambda _, d: d["aliases"]["state.tied"].update(of="state.tied"),
    "aliases of each other": lambda _, d: d.update(
        aliases={
            "state.tied": {"of": "x", "shape": [3, 4], "axes": [0, 1]},
            "x": {"of": "state.tied", "shape": [3, 4], "axes": [0, 1]},
        }
    ),
    "an alias in place of a tensor": lambda _, d: d["aliases"].update(
        {"state.a": {"of": "state.b", "shape": [5], "axes": [0]}}
    ),
    "an alias of another size": lambda _, d: d["aliases"]["state.tied"].update(shape=[3, 5]),
    "a huge alias": lambda _, d: d["aliases"]["state.tied"].update(shape=[HUGE, HUGE]),
    "a negative alias": lambda _, d: d["aliases"]["state.tied"].update(shape=[-3, -4]),
    "axes that are no order": lambda _, d: d["aliases"]["state.tied"].update(axes=[0, 0]),
    "axes beyond the last": lambda _, d: d["aliases"]["state.tied"].update(axes=[0, HUGE]),
    "an alias without axes": lambda _, d: d["aliases"]["state.tied"].pop("axes"),
    "aliases that are none": lambda _, d: d.update(aliases=[1, 2]),
    "a tensor that is not there": lambda _, d: d["state"].update(a={"$array": "absent"}),
    "a tensor without a name": lambda _, d: d["state"].update(a={"$array": ["x"]}),
    "a tuple that is none": lambda _, d: d["state"].update(a={"$tuple": 5}),
    "a float that is none": lambda _, d: d["state"].update(a={"$float": "x"}),
    "no state": lambda _, d: d.pop("state"),
    "no header": lambda _, d: d.pop("header"),
    "version 0": lambda _, d: d.update(version=0),
    "version true": lambda _, d: d.update(version=True),
    "version 3": lambda _, d: d.update(version=3),
    "parts that are not there": lambda _, d: d.update(
        parts={"tag": "0" * 16, "checksums": ["0" * 32] * 3}
    ),
    "very many parts": lambda _, d: d.update(parts={"tag": "0" * 16, "checksums": [""] * 10**5}),
    "a tag that is a path": lambda _, d: d.update(
        parts={"tag": "/../../../../etc/passwd", "checksums": ["0" * 32]}
    ),
    "a tag of dots": lambda _, d: d.update(parts={"tag": "../x", "checksums": ["0" * 32]}),
    "a tag that is none": lambda _, d: d.update(parts={"tag": 7, "checksums": ["0" * 32]}),
    "parts without checksums": lambda _, d: d.update(parts={"tag": "0" * 16}),
    "a number of parts": lambda _, d: d.update(parts={"tag": "0" * 16, "checksums": HUGE}),
    "parts that are none": lambda _, d: d.update(parts=5),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_forged_file_is_refused(name: str, path: Path) -> None:
    forge(path, CHANGES[name])
    assert_refused(path)


def test_flags_that_are_neither_true_nor_false_are_refused(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "forged", {}, np.array([True, False]))
    header, document, data = parse((tmp_path / "forged").read_bytes())
    data = b"\x02" + data[1:]
    header["__metadata__"]["tensors"] = hashlib.blake2b(data, digest_size=16).hexdigest()
    (tmp_path / "forged").write_bytes(signed(header, document, data))
    with pytest.raises(sw.SharpwaveIOError, match="0 or 1"):
        read_checkpoint(tmp_path / "forged")


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 10**9, 0, 1])
def test_a_forged_length_of_the_header_is_refused(length: int, path: Path) -> None:
    path.write_bytes(length.to_bytes(8, "little") + path.read_bytes()[8:])
    assert_refused(path)


def test_a_header_that_is_nested_deeply_is_refused(path: Path) -> None:
    text = b'{"__metadata__":' + b"[" * 10**5
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    assert_refused(path)


class TestParts:
    @pytest.fixture
    def path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr("sharpwave.storage.checkpoints.writer.PART_BYTES", 50)
        write_checkpoint(tmp_path / "forged", {}, STATE)
        return tmp_path / "forged"

    def sign_parts(self, path: Path) -> None:
        """Have the index name the parts as they are now."""
        checksums = [
            parse(part.read_bytes())[0]["__metadata__"]["checksum"] for part in list_parts(path)
        ]
        forge(path, lambda _, document: document["parts"].update(checksums=checksums))

    def test_a_tensor_in_two_parts_is_refused(self, path: Path) -> None:
        first, second = list_parts(path)
        second.write_bytes(first.read_bytes())
        self.sign_parts(path)
        assert_refused(path)

    def test_a_part_that_lacks_tensors_is_refused(self, path: Path) -> None:
        first, _ = list_parts(path)
        header, document, _ = parse(first.read_bytes())
        metadata = {**header["__metadata__"], "tensors": ""}
        first.write_bytes(signed({"__metadata__": metadata}, document, b""))
        self.sign_parts(path)
        assert_refused(path)

    def test_parts_are_sought_beside_the_index_alone(self, path: Path, tmp_path: Path) -> None:
        inner = tmp_path / "inner"
        inner.mkdir()
        (inner / path.name).write_bytes(path.read_bytes())
        assert_refused(inner / path.name)


@pytest.mark.long
def test_random_changes_of_signed_structure_are_refused_or_read(path: Path) -> None:
    """Whatever stands anywhere in header and document."""
    values: list[Any] = [
        None,
        True,
        -1,
        0,
        7,
        2**31,
        2**63,
        10**30,
        0.5,
        "",
        "F64",
        "state.a",
        "../x",
    ]
    values += [[], [1, "a", None], {}, {"of": "state.a"}, {"$array": "state.b"}]
    original = path.read_bytes()
    rng = random.Random(0)
    refused = 0
    for _ in range(1500):
        header, document, data = parse(original)
        whole = {"header": header, "document": document}
        inner: Any = whole
        while True:
            keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
            key = rng.choice(keys)
            last = not isinstance(inner[key], dict | list) or not inner[key] or rng.random() < 0.3
            if last and inner is not whole and key not in ("__metadata__", "checksum"):
                break
            if not isinstance(inner[key], dict | list) or not inner[key]:
                inner = whole
                continue
            inner = inner[key]
        inner[key] = rng.choice(values)
        path.write_bytes(signed(header, document, data))
        try:
            with little_memory():
                use(path)
        except sw.SharpwaveIOError as error:
            assert path.name in str(error)  # noqa: PT017
            refused += 1
    assert refused > 200
