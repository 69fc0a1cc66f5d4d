"""Remote environment servers shared out among the actors of a fleet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sharpwave.distributed.security import Access

if TYPE_CHECKING:  # what plays elsewhere is imported where it is used: other actors start sooner
    from sharpwave.distributed.envs import RemoteVectorEnv
    from sharpwave.distributed.envs.description import Description

__all__ = ["WorkerRecipe", "shared_out"]

TIMEOUT = 30.0
"""Seconds that a server has for an answer."""


@dataclass(frozen=True, kw_only=True)
class WorkerRecipe:
    """The vector environments of actors at servers elsewhere; `find` asks those."""

    env: str
    """The id of the environments, as the servers have it."""
    shares: tuple[tuple[str, ...], ...]
    """The addresses of each actor's servers."""
    sizes: tuple[int, ...]
    """Number of environments of each actor there."""
    kwargs: dict[str, Any] | None
    """Keyword arguments for the id; None where it is no id."""
    access: Access
    """Token and certificates, as the servers have them."""

    @classmethod
    def find(
        cls, env: str, addresses: Sequence[str], n_actors: int, access: Access
    ) -> WorkerRecipe:
        """Ask the servers for their environments, of which each actor gets a share.

        Raises:
            ConnectionError: A server is not there.
            PermissionError: A server asks for another token.
            ValueError: There are fewer servers than actors, one is named twice, or they have
                other environments.
            WireError: A server speaks another version.
        """
        from sharpwave.distributed.envs.description import check_alike
        from sharpwave.distributed.envs.remote import checked_addresses

        shares = shared_out(checked_addresses(addresses), n_actors)
        told = [_described(address, access) for share in shares for address in share]
        if told[0].env.rpartition(":")[2] != env.rpartition(":")[2]:
            raise ValueError(
                f"worker_addresses must have environments {env}: "
                f"{told[0].address} has {told[0].env}"
            )
        check_alike(told)
        many = {one.address: one.num_envs for one in told}
        return cls(
            env=env,
            shares=shares,
            sizes=tuple(sum(many[address] for address in share) for share in shares),
            kwargs=told[0].env_kwargs,
            access=access,
        )

    @property
    def n_envs(self) -> int:
        """Environments of the actor that has most."""
        return max(self.sizes)

    def part(self, first: int, n_actors: int) -> WorkerRecipe:
        """That of some of the actors."""
        own = slice(first, first + n_actors)
        return replace(self, shares=self.shares[own], sizes=self.sizes[own])

    def make(self, number: int = 0) -> RemoteVectorEnv:
        """The environments of an actor, at its servers."""
        from sharpwave.distributed.envs import RemoteVectorEnv

        access = self.access
        return RemoteVectorEnv(
            self.shares[number], timeout=TIMEOUT, token=access.token, tls=access.tls
        )

    def to_json(self) -> dict[str, Any]:
        """Nothing: addresses and tokens are sent to no other machine.

        Raises:
            TypeError: Always.
        """
        raise TypeError("worker_addresses are for actors of this machine: threads or processes")


def shared_out(addresses: Sequence[str], n_actors: int) -> tuple[tuple[str, ...], ...]:
    """A share of the addresses for each actor, in order; the first have one more where need be.

    Raises:
        ValueError: There are fewer addresses than actors.

    Example:
        >>> shared_out(["a:1", "b:1", "c:1"], 2)
        (('a:1', 'b:1'), ('c:1',))
    """
    if len(addresses) < n_actors:
        raise ValueError(
            f"worker_addresses must name a server or more for each of {n_actors} actors, "
            f"got {len(addresses)}"
        )
    least, more = divmod(len(addresses), n_actors)
    ends = [(i + 1) * least + min(i + 1, more) for i in range(n_actors)]
    return tuple(tuple(addresses[begin:end]) for begin, end in zip([0, *ends], ends, strict=False))


def _described(address: str, access: Access) -> Description:
    from sharpwave.distributed.envs.connection import spaces_at
    from sharpwave.distributed.envs.description import Description

    channel, told = spaces_at(address, access, TIMEOUT)
    channel.close()
    return Description.of(address, told)
