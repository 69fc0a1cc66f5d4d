"""A step and the starts of episodes in torch: what the Triton kernel computes, too.

Starts are drawn as native code draws them: by Philox4x32-10, keyed by the seed of an environment
and by how many resets it had. Nothing of that is counted by the host, so a captured step draws
anew whenever it is replayed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sharpwave.envs.on_device.dynamics import DYNAMICS, in_float32
from sharpwave.envs.on_device.memory import EnvMemory, Rules

__all__ = ["observed", "starts", "step"]

WORD = 0xFFFFFFFF


def step(rules: Rules, memory: EnvMemory, actions: Tensor) -> None:
    """Move all environments on, and start new episodes where one ended.

    Args:
        rules: Of the environments.
        memory: Their tensors, which are written over.
        actions: [N] integers or float32. What is no action makes a state of NaN.
    """
    chosen = actions.double()
    if rules.n_actions:
        is_action = (actions >= 0) & (actions < rules.n_actions)
        chosen = torch.where(is_action, chosen, torch.nan)
    state = memory.variables.unbind(0)
    moved = DYNAMICS[rules.env_id].move(state, chosen, rules.option)
    memory.steps.add_(1)
    memory.returns.add_(moved.rewards)
    memory.rewards.copy_(moved.rewards)
    memory.terminated.copy_(moved.terminated)
    torch.ge(memory.steps, rules.time_limit, out=memory.truncated)
    memory.variables.copy_(torch.stack(moved.state))
    memory.final_obs.copy_(observed(rules, memory.variables))
    ended = memory.terminated | memory.truncated
    if not ended.is_cuda and not ended.any():  # which a GPU would wait for
        memory.obs.copy_(memory.final_obs)
        return
    first = starts(rules, memory.seeds, memory.resets, memory.bounds)
    memory.resets.add_(ended)
    memory.steps.masked_fill_(ended, 0)
    memory.returns.masked_fill_(ended, 0)
    memory.variables.copy_(torch.where(ended, first, memory.variables))
    memory.obs.copy_(observed(rules, memory.variables))


def observed(rules: Rules, variables: Tensor) -> Tensor:
    """Observations [N, size] of states [V, N], float64."""
    return torch.stack(DYNAMICS[rules.env_id].observe(variables.unbind(0)), 1)


def starts(rules: Rules, seeds: Tensor, resets: Tensor, bounds: tuple[Tensor, Tensor]) -> Tensor:
    """First states [V, N] of episodes after so many resets."""
    low, high = bounds
    n_variables = len(low)
    units = _units(_mixed(_mixed(seeds) ^ resets), n_variables)
    first = low[:, None] + (high - low)[:, None] * units
    return in_float32(first) if DYNAMICS[rules.env_id].starts_in_float32 else first


def _units(key: Tensor, n: int) -> Tensor:
    """[n, N] numbers in [0, 1) with 53 bits, of keys [N]."""
    blocks = torch.arange((n + 1) // 2, device=key.device)[:, None].expand(-1, len(key))
    words = torch.stack(_philox(blocks, key), 1)  # of 32 bits, [blocks, 4, N]
    lower, upper = words.view(-1, 2, len(key)).unbind(1)
    return ((upper << 21) | (lower >> 11))[:n].double() * 2.0**-53


def _philox(counter: Tensor, key: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The ten rounds of the cipher; words of 32 bits in int64."""
    c0, c1, c2, c3 = counter, *(torch.zeros_like(counter) for _ in range(3))
    k0, k1 = key & WORD, _shifted(key, 32)
    for _ in range(10):
        # Products of 64 bits wrap around into the sign, which the shift cuts off.
        p0, p1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1 = _shifted(p1, 32) ^ c1 ^ k0, p1 & WORD
        c2, c3 = _shifted(p0, 32) ^ c3 ^ k1, p0 & WORD
        k0, k1 = (k0 + 0x9E3779B9) & WORD, (k1 + 0xBB67AE85) & WORD
    return c0, c1, c2, c3


def _mixed(x: Tensor) -> Tensor:
    """The finalizer of splitmix64; int64 with the bits of unsigned numbers."""
    x = x + _signed(0x9E3779B97F4A7C15)
    x = (x ^ _shifted(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shifted(x, 27)) * _signed(0x94D049BB133111EB)
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """Shifted to the right, zeros from the left."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(bits: int) -> int:
    return bits - (1 << 64) if bits >= 1 << 63 else bits
