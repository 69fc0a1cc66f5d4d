"""A server answers whatever it is sent: with a name for what is wrong, and in the same memory."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

grpc = pytest.importorskip("grpc")

from sharpwave.distributed import RemoteVectorEnv
from sharpwave.distributed.envs.arrays import array_message, messages
from sharpwave.distributed.envs.server import SERVICE, VERSION
from sharpwave.envs import make_vec_env
from tests.unit.distributed.envs.servers import serving
from tests.waiting import LONG

NAMED = {"OK", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"}


def valid(rng: np.random.Generator) -> dict[str, Any]:
    """A message for each call, with some values that are out of their range."""
    known = messages()
    wild = int(rng.choice([0, 1, 2, 2**31 - 1, 2**32 - 1]))
    dtype = str(rng.choice(["<i8", "<f4", "|O", "|b1", "junk", "", "<f16"]))
    shape = rng.choice([0, 1, 2, 2**31, 2**32 - 1], int(rng.integers(0, 5))).tolist()
    array = known.Array(dtype=dtype, shape=shape, data=rng.bytes(int(rng.integers(0, 64))))
    if rng.random() < 0.3:
        array = array_message(rng.integers(0, 2, 2) > 0)
    step = known.StepRequest(raw=rng.integers(0, 2, int(rng.integers(0, 4))).tobytes())
    if rng.random() < 0.5:
        step = known.StepRequest(actions=rng.normal(size=wild % 9), act_dim=wild)
    seeds = [str(rng.choice(["", "-1", "x", "9" * 50, "7"])) for _ in range(wild % 4)]
    options = str(rng.choice(["", "{", "[]", '{"low": "x"}', '{"low": -1e9}', "[" * 10_000]))
    reset = known.ResetRequest(seed=wild, has_seed=True, seeds=seeds, options=options)
    if rng.random() < 0.5:
        reset.mask.CopyFrom(array)
    ask = {"step": step} if rng.random() < 0.5 else {"reset": reset}
    play = known.PlayRequest(id=int(rng.integers(0, 3)), **ask)
    return {"StepBatch": step, "ResetBatch": reset, "GetSpaces": known.Empty(), "Play": play}


def broken(rng: np.random.Generator, data: bytes) -> bytes:
    """The bytes as they are, cut, with some changed, or others altogether."""
    kind = rng.integers(0, 4)
    if kind == 0 or not data:
        return rng.bytes(int(rng.integers(0, 200)))
    if kind == 1:
        return data[: int(rng.integers(0, len(data)))]
    if kind == 2:
        changed = bytearray(data)
        for place in rng.integers(0, len(data), 3):
            changed[place] = int(rng.integers(0, 256))
        return bytes(changed)
    return data


class Attacker:
    """Sends bytes, and counts how it is answered."""

    def __init__(self, address: str, rng: np.random.Generator) -> None:
        self.rng = rng
        self.codes: Counter[str] = Counter()
        self.words: Counter[str] = Counter()
        self.channel = grpc.insecure_channel(address)
        self.hello = messages().PlayRequest(hello=messages().Hello(version=VERSION))

    def attack(self) -> None:
        call, message = list(valid(self.rng).items())[self.rng.integers(0, 4)]
        data = broken(self.rng, message.SerializeToString())
        try:
            if call == "Play":
                self._play(data)
            else:
                self.channel.unary_unary(f"/{SERVICE}/{call}")(data, timeout=LONG)
        except grpc.RpcError as error:
            self.codes[error.code().name] += 1
            self.words[str(error.details())[:60]] += 1
        else:
            self.codes["OK"] += 1

    def _play(self, data: bytes) -> None:
        known = self.hello.SerializeToString()
        asked = [data] if self.rng.random() < 0.3 else [known, data]
        goodbye = messages().PlayRequest(goodbye=messages().Empty()).SerializeToString()
        for _ in self.channel.stream_stream(f"/{SERVICE}/Play")(
            iter([*asked, goodbye]), timeout=LONG
        ):
            pass


def resident(pid: int) -> float:
    """MB of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("the process is gone")


@pytest.mark.long
@pytest.mark.parametrize("number", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_broken_messages_are_named_and_leave_nothing(number: int) -> None:
    arguments = ("CartPole-v1", "--n-envs", "2", "--patience", "0.5")
    with serving(*arguments) as server:
        attacker = Attacker(server.address, np.random.default_rng(number))
        for _ in range(number // 4):
            attacker.attack()
        before = resident(server.process.pid)
        for _ in range(number - number // 4):
            attacker.attack()
        assert attacker.codes.total() == number
        assert set(attacker.codes) <= NAMED, (attacker.codes, attacker.words)
        assert attacker.codes["INVALID_ARGUMENT"] > number // 5
        assert resident(server.process.pid) - before < 32
        attacker.channel.close()
        assert server.process.poll() is None
        env, local = RemoteVectorEnv(server.address), make_vec_env("CartPole-v1", 2)
        np.testing.assert_array_equal(env.reset(seed=1)[0], local.reset(seed=1)[0])
        env.close()
