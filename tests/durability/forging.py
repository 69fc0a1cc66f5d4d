"""Files that nobody of us wrote, although their checksums are right."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import traceback
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sharpwave import _native

DEEP: Any = 0
for _ in range(300):
    DEEP = {"dict": {"a": DEEP}}

NUMBERS = (-1, 0, 1, 2, 3, 7, 8, 16, 255, 256, 4095, 4096, 4097, 65536)
POWERS = (31, 32, 40, 48, 62, 63, 64, 70)
TEXTS = ("", "x", "a/../../b", "\x1b[31mred", "nul\0", "_episodes", "zstd", "float64", "O", "V16")
LISTS: tuple[Any, ...] = ([], [1], [-1], [2**40], [2**40, 2**40], [0], [1] * 70, [[1]])
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0.5, 1e300, float("nan"), float("inf"), 10**400, -(2**63)),
    *NUMBERS,
    *(2**power + more for power in POWERS for more in (-1, 0)),
    *TEXTS,
    *LISTS,
    *({}, {"a": 1}, {"dict": {}}, {"tuple": []}, DEEP),
)


def forged(value: Any, rng: random.Random) -> Any:
    """A JSON value like another one, with parts of it changed, missing, or in other places."""
    value = _copy(value)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        places = list(_places(value))
        holder, key = rng.choice(places)
        doing = rng.randrange(10)
        if doing == 0:
            del holder[key]
        elif doing == 1:
            other, name = rng.choice(places)
            holder[key] = _copy(other[name]) if name in _keys(other) else None
        elif doing == 2 and isinstance(holder, list):
            holder.insert(rng.randrange(len(holder) + 1), _copy(holder[key]))
        elif doing == 3 and isinstance(holder, dict) and isinstance(key, str):
            holder[rng.choice([key + "x", "", "a.b", key.upper(), "\x1b]0;"])] = holder.pop(key)
        elif doing < 7 and isinstance(holder[key], int):
            number = int(holder[key])
            holder[key] = rng.choice([number + 1, number - 1, number * 2, number // 2, -number])
        else:
            holder[key] = _copy(rng.choice(VALUES))
        if not list(_places(value)):
            break
    return value


def _copy(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _keys(holder: Any) -> Any:
    return holder if isinstance(holder, dict) else range(len(holder))


def _places(value: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict | list) and depth < 20:
        for key in list(_keys(value)):
            yield value, key
            yield from _places(value[key], depth + 1)


def forge_header(folder: Path, rng: random.Random) -> None:
    """Forge what the header of a store says."""
    path = folder / "header.json"
    header = json.loads(path.read_text())
    fixed = {name: header.pop(name) for name in ("format", "version", "kind", "checksum")}
    header = {**fixed, **forged(header, rng)}
    header.pop("checksum")
    header["checksum"] = _native.crc32c(json.dumps(header, sort_keys=True).encode())
    path.write_text(json.dumps(header))


def forge_words(folder: Path, rng: random.Random) -> None:
    """Forge what is committed: words, and their copies with checksums."""
    path = folder / "state"
    data = bytearray(path.read_bytes())
    n_words = int.from_bytes(data[12:16], "little")
    pages = -(-(64 + 8 * n_words) // 4096) * 4096
    copy_pages = -(-(8 * (n_words + 2)) // 4096) * 4096
    words = [int.from_bytes(data[64 + 8 * i : 72 + 8 * i], "little") for i in range(n_words)]
    for _ in range(rng.choice([1, 1, 2, 4])):
        number = rng.randrange(n_words)
        near = [rng.randrange(20), words[number] + 1, words[number] * 2]
        words[number] = rng.choice([*near, 2 ** rng.randrange(64), 2**64 - 1]) % 2**64
    memory = b"".join(word.to_bytes(8, "little") for word in words)
    data[64 : 64 + len(memory)] = memory
    seal = rng.choice([0, _native.crc32c(memory) | 1 << 32])
    data[32:40] = seal.to_bytes(8, "little")
    for slot in range(2) if rng.random() < 0.7 else ():
        kept = (9 + slot).to_bytes(8, "little") + memory
        kept += (_native.crc32c(kept) | 1 << 32).to_bytes(8, "little")
        start = pages + slot * copy_pages
        data[start : start + len(kept)] = kept
    path.write_bytes(data)


def forge_journal(folder: Path, rng: random.Random) -> None:
    """Forge a journal of an update that was cut off."""
    numbers = [rng.choice([0, 1, 2, 5, 30, 2**20, 2**62, 2**64 - 1]) for _ in range(40)]
    count = rng.choice([0, 1, 2, 7, 2**40, 2**64 - 1])
    text = b"swpatch\n" + count.to_bytes(8, "little")
    for number in numbers[: rng.randrange(41)]:
        text += number.to_bytes(8, "little")
    text += os.urandom(rng.randrange(100))
    (folder / "update.journal").write_bytes(text + _native.crc32c(text).to_bytes(4, "little"))


def forge_commit(folder: Path, rng: random.Random) -> None:
    """Forge the commit of a save."""
    path = folder / "commit.json"
    commit = json.loads(path.read_bytes().split(b"\n", 1)[1])
    fixed = {name: commit.pop(name) for name in ("format", "version", "class")}
    text = json.dumps({**forged(commit, rng), **fixed})
    path.write_bytes(f"{zlib.crc32(text.encode()):08x}\n{text}".encode())


def forge_bytes(path: Path, rng: random.Random) -> None:
    """Write something else over some of a file."""
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 3, 20])):
        at = rng.randrange(max(len(data), 1))
        size = rng.choice([1, 8, 64])
        data[at : at + size] = rng.choice(
            [bytes(size), b"\xff" * size, rng.randbytes(size), (2**40).to_bytes(8, "little")]
        )
    path.write_bytes(data)


def survives(work: Callable[[], Any], notes: Path, seconds: int = 100) -> None:
    """Do work in a process that must end by itself; `notes` tells how far it came."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            resource.setrlimit(resource.RLIMIT_DATA, (8 << 30, 8 << 30))
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(seconds)
            work()
            status = 0
        except BaseException:
            notes.write_text(notes.read_text() + "\n" + traceback.format_exc())
        finally:
            os._exit(status)
    ended = os.waitpid(child, 0)[1]
    assert ended == 0, f"ended with {ended}: {notes.read_text()}"
