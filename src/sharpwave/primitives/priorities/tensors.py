"""Prioritized sampling, in proportion to priorities that stay on the device.

Priorities lie in blocks, and every block keeps its sum, its smallest positive and its largest
priority. A sample looks for its block among the prefix sums of the blocks and then for its leaf
among the prefix sums inside the block; an update sums the touched blocks anew, so that no error
piles up. The highest priority so far is kept for rows that are new. Nothing waits for the device,
and everything can be captured in a CUDA graph.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sharpwave.primitives.backend import HAS_TRITON, uses_triton

if HAS_TRITON:
    from sharpwave.primitives.priorities import triton as jit

__all__ = ["PrioritySums"]

LARGEST = 1e30  # so that sums stay finite
LONG = 2**16  # samples of a batch from which on its smallest probability is looked for once
INFINITY = float("inf")


class PrioritySums:
    """Priorities of `capacity` rows, all 0 at first, with two levels of sums.

    The highest priority so far is 1 at first.

    Args:
        capacity: Number of rows.
        device: Device of the priorities.

    Raises:
        ValueError: capacity is not positive.

    Example:
        >>> sums = PrioritySums(4)
        >>> sums.set(torch.tensor([1, 3]), torch.tensor([3.0, 1.0]))
        >>> index, probability = sums.sample(4, uniforms=torch.full((4,), 0.5))
        >>> index.tolist(), probability.tolist()
        ([1, 1, 1, 3], [0.75, 0.75, 0.75, 0.25])
        >>> sums.weights(probability, 1.0).tolist()
        [0.3333333432674408, 0.3333333432674408, 0.3333333432674408, 1.0]
    """

    def __init__(self, capacity: int, device: torch.device | str = "cpu") -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        self.capacity = capacity
        self.block = block_size(capacity)
        self.n_blocks = -(-capacity // self.block)
        # The low half of an entry is the priority's bits. The high half is 0 but during an update,
        # where it lets the last of several writers of one row win.
        self._entries = torch.zeros(self.n_blocks * self.block, dtype=torch.int64, device=device)
        self._sums = torch.zeros(self.n_blocks, device=device)
        self._minima = torch.full((self.n_blocks,), INFINITY, device=device)
        self._maxima = torch.zeros(self.n_blocks, device=device)
        # The second is ahead of the first during an update only.
        self._highest = torch.ones(2, device=device)

    @property
    def device(self) -> torch.device:
        """Device of the priorities."""
        return self._sums.device

    @property
    def _leaves(self) -> Tensor:
        return self._entries.view(torch.float32)[::2]

    @property
    def priorities(self) -> Tensor:
        """[capacity] float32, a copy."""
        return self._leaves[: self.capacity].clone()

    @property
    def total(self) -> Tensor:
        """Sum of all priorities, a tensor without axes."""
        return self._sums.sum()

    @property
    def minimum(self) -> Tensor:
        """The smallest priority that is not 0, inf if all are; a tensor without axes."""
        return self._minima.amin()

    @property
    def maximum(self) -> Tensor:
        """The largest priority, a tensor without axes."""
        return self._maxima.amax()

    @property
    def highest(self) -> Tensor:
        """The largest priority that any row ever got; a tensor without axes."""
        return self._highest[0]

    def set(self, index: Tensor, priority: Tensor) -> None:
        """Give rows their priorities; where an index occurs twice, the later one counts.

        Args:
            index: [B] int64. On CUDA nobody looks: an index outside the capacity is passed over.
            priority: [B]; NaN and negative numbers count as 0, more than 1e30 as 1e30.

        Raises:
            ValueError: A shape, dtype or device does not fit.
        """
        self._check("priority", index, priority)
        if uses_triton(self._sums):
            self._launch_update(index, priority)
        else:
            self._set(index, priority.to(torch.float32))

    def set_errors(self, index: Tensor, errors: Tensor, alpha: float, epsilon: float) -> None:
        """Give rows the priorities (|error| + ε)^α; where an index occurs twice, the later counts.

        Args:
            index: [B] int64. On CUDA nobody looks: an index outside the capacity is passed over.
            errors: [B]; one whose priority is not finite gives the highest so far.
            alpha: Priority exponent α.
            epsilon: Added to absolute errors, more than 0.

        Raises:
            ValueError: A shape, dtype or device does not fit.
        """
        self._check("errors", index, errors)
        if uses_triton(self._sums):
            self._launch_update(index, errors, (float(alpha), float(epsilon)))
            return
        priority = (errors.to(torch.float32).abs() + epsilon).pow(alpha)
        self._set(index, torch.where(torch.isfinite(priority), priority, self.highest))

    def fill(self, begin: int, end: int) -> None:
        """Give rows from begin to end (without) the highest priority so far.

        Raises:
            ValueError: The rows do not lie in the capacity.
        """
        if not 0 <= begin <= end <= self.capacity:
            raise ValueError(
                f"begin and end must be rows of {self.capacity}, got {begin} and {end}"
            )
        if begin == end:
            return
        if uses_triton(self._sums):
            jit.fill(*self._levels(), begin, end, self.block)
        else:
            self._leaves[begin:end] = self.highest
            blocks = range(begin // self.block, (end - 1) // self.block + 1)
            self._renew(torch.tensor(blocks, device=self.device))

    def _check(self, name: str, index: Tensor, given: Tensor) -> None:
        if index.dtype != torch.int64 or index.dim() != 1:
            raise ValueError(
                f"index must be int64 of one axis, got {index.dtype} of shape {tuple(index.shape)}"
            )
        if given.shape != index.shape:
            raise ValueError(
                f"{name} must have shape {tuple(index.shape)} like index, got {tuple(given.shape)}"
            )
        if index.device != self.device or given.device != self.device:
            raise ValueError(
                f"index and {name} must be on {self.device}, got {index.device} and {given.device}"
            )

    def _levels(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        return self._entries, self._sums, self._minima, self._maxima, self._highest

    def _launch_update(
        self, index: Tensor, given: Tensor, exponents: tuple[float, float] | None = None
    ) -> None:
        index, given = index.contiguous(), given.contiguous()
        jit.update(*self._levels(), index, given, self.capacity, self.block, exponents)

    def _set(self, index: Tensor, priority: Tensor) -> None:
        if len(index) == 0:
            return
        priority = torch.where(priority > 0, priority, 0.0).clamp(max=LARGEST)
        self._highest.copy_(torch.maximum(self.highest, priority.max()))
        order = index.argsort(stable=True)
        ordered = index[order]
        last = torch.ones_like(ordered, dtype=torch.bool)
        last[:-1] = ordered[1:] != ordered[:-1]
        self._leaves[ordered[last]] = priority[order[last]]
        self._renew(index // self.block)

    def _renew(self, blocks: Tensor) -> None:
        rows = self._leaves.reshape(self.n_blocks, self.block)[blocks]
        self._sums[blocks] = rows.sum(1)
        self._minima[blocks] = torch.where(rows > 0, rows, INFINITY).amin(1)
        self._maxima[blocks] = rows.amax(1)

    def sample(
        self,
        count: int,
        *,
        uniforms: Tensor | None = None,
        stratified: bool = True,
        generator: torch.Generator | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Draw rows with P(i) = priority_i / total. A row of priority 0 is never drawn.

        Args:
            count: Number of samples.
            uniforms: [count] in [0, 1) that decide; drawn if None. float64 tells rows apart that
                float32 cannot, when there are millions.
            stratified: The k-th sample comes from the k-th of `count` equal parts of the total.
            generator: Random generator of the uniforms.

        Returns:
            (index, probability), int64 [count] and float32 [count]. Where every priority is 0,
            index and probability are 0.

        Raises:
            ValueError: uniforms do not fit.
        """
        if uniforms is None:
            options: Any = {"dtype": torch.float64, "device": self.device}
            uniforms = torch.rand(count, generator=generator, **options)
        elif uniforms.shape != (count,) or not uniforms.is_floating_point():
            raise ValueError(
                f"uniforms must be floating-point of shape ({count},),"
                f" got {uniforms.dtype} of shape {tuple(uniforms.shape)}"
            )
        elif uniforms.device != self.device:
            raise ValueError(f"uniforms must be on {self.device}, got {uniforms.device}")
        if uses_triton(self._sums):
            return jit.sample(
                self._entries, self._sums, uniforms.contiguous(), stratified, self.block
            )
        return self._sample(uniforms, stratified)

    def _sample(self, uniforms: Tensor, stratified: bool) -> tuple[Tensor, Tensor]:
        count = len(uniforms)
        shares = uniforms.double()
        if stratified:
            shares = (torch.arange(count, device=self.device) + shares) / max(count, 1)
        prefixes = self._sums.double().cumsum(0)
        targets = shares * prefixes[-1]
        block = _first_above(prefixes.expand(count, -1), self._sums.expand(count, -1), targets)
        before = prefixes[block] - self._sums[block]
        leaves = self._leaves.reshape(self.n_blocks, self.block)[block]
        leaf = _first_above(leaves.double().cumsum(1), leaves, targets - before)
        chosen = leaves.gather(1, leaf[:, None])[:, 0]
        probability = torch.where(chosen > 0, chosen / prefixes[-1].float(), 0.0)
        return block * self.block + leaf, probability

    def weights(
        self, probability: Tensor, beta: float | Tensor, *, of_batch: bool = False
    ) -> Tensor:
        """Importance weights over the largest of any row: (min_j P(j) / P(i))^β.

        This is (N P(i))^-β / max_j (N P(j))^-β, whatever the number N of rows.

        Args:
            probability: [B] of drawn rows, from `sample`.
            beta: Importance-sampling exponent, from 0 to 1; a tensor is read on the device.
            of_batch: Take the largest of the B rows instead, so that one weight is 1.

        Returns:
            [B] float32.
        """
        if uses_triton(self._sums) and not (of_batch and len(probability) > LONG):
            return jit.weights(self._sums, self._minima, probability.contiguous(), beta, of_batch)
        smallest = probability.min() if of_batch else self.minimum / self.total
        return (smallest / probability) ** beta

    def state_dict(self) -> dict[str, Any]:
        """The priorities and the highest so far."""
        return {"priorities": self.priorities, "highest": self.highest.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave.

        Raises:
            ValueError: The capacity differs.
        """
        priorities = torch.as_tensor(state["priorities"], dtype=torch.float32, device=self.device)
        if priorities.shape != (self.capacity,):
            raise ValueError(
                f"priorities must have shape ({self.capacity},), got {tuple(priorities.shape)}"
            )
        self._leaves[: self.capacity] = priorities
        self._highest.copy_(torch.as_tensor(state["highest"]))
        self._renew(torch.arange(self.n_blocks, device=self.device))


def block_size(capacity: int) -> int:
    """Leaves per block: a power of two near the square root, so that both levels are short."""
    size = 64
    while size < 1024 and 2 * size * size < capacity:
        size *= 2
    return size


def _first_above(prefixes: Tensor, parts: Tensor, targets: Tensor) -> Tensor:
    """Per row the first part that is positive and whose prefix sum is above the target.

    Rounding may leave no prefix above the target; the last positive part is the one then.
    """
    places = torch.arange(parts.shape[1], device=parts.device)
    positive = parts > 0
    above = positive & (prefixes > targets[:, None])
    first = torch.where(above, places, parts.shape[1]).amin(1)
    last = torch.where(positive, places, 0).amax(1)
    return torch.minimum(first, last)
