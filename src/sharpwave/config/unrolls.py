"""Options of asynchronous actor-learner algorithms (IMPALA, APPO)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from sharpwave.config.on_policy import RolloutConfig
from sharpwave.distributed.envs.remote import checked_addresses
from sharpwave.distributed.security import TLS, Access
from sharpwave.distributed.wire import split_address
from sharpwave.distributed.workers import shared_out

__all__ = ["UnrollConfig"]


@dataclass(frozen=True, kw_only=True)
class UnrollConfig(RolloutConfig):
    """Options of actors, of their unrolls, and of V-trace, which corrects for their lag."""

    n_actors: int = 2
    """Number of actors, each with environments of its own."""
    actors: Literal["auto", "threads", "processes", "grpc", "ray"] = "auto"
    """Placement of actors: threads, which suit native environments; processes, in which Python
    environments run in parallel; wherever `sharpwave actor` starts some, which join over gRPC; or
    where Ray starts them. "auto" takes threads or processes, whichever suits."""
    worker_addresses: tuple[str, ...] | None = None
    """Environment servers (`sharpwave serve-envs`) that the actors play on, as host:port: each
    actor has its share, in order. None makes the environments where the actors are."""
    address: str | None = None
    """With gRPC the address on which to listen for actors, as host:port; a free port that this
    machine alone can reach when None. Of several learners each listens at a port of its own, from
    this one on. With Ray the address of the cluster, or "auto" for the one of
    this machine; when None, a Ray of its own is started here."""
    tls: tuple[str, ...] = ()
    """PEM files of certificate, key and authority, for mutual TLS with actors that join, or with
    servers of environments."""
    n_envs: int = 16
    """Number of environments of each actor; at servers, those that they have."""
    n_steps: int = 64
    """Number of steps of each environment in an unroll."""
    batch_unrolls: int | None = None
    """Number of unrolls of an update; as many as there are actors when None."""
    max_lag: int = 4
    """Maximum policy lag: number of updates that the weights of an unroll may be behind. Older
    unrolls are dropped, and counted as `dropped_unrolls`."""
    max_in_flight: int | None = None
    """Maximum number of unrolls in flight or queued, at which actors wait; as many as an update
    takes, or as there are actors, when None."""
    step_timeout: float = 120.0
    """Timeout in seconds of a step, a reset or the creation of an actor's environments. An actor
    that waits for longer has failed, and is restarted."""
    deterministic: bool = False
    """Deterministic runs given the seed, bit for bit: the unrolls of an update are collected during
    the update before, so that their weights are exactly one update behind, whoever is faster."""
    anneal_lr: bool = True
    """Anneal a constant learning rate linearly to 0 over the run."""
    rho_bar: float = 1.0
    """V-trace clipping threshold ρ̄ of importance weights of temporal differences."""
    c_bar: float = 1.0
    """V-trace clipping threshold c̄ of importance weights of traces."""
    pg_rho_bar: float | None = None
    """Clipping threshold of importance weights of policy gradients; `rho_bar` when None."""
    vtrace_lambda: float = 1.0
    """λ of the V-trace targets: 0 trusts the values, 1 the rewards."""

    divided: ClassVar[tuple[str, ...]] = ("n_actors", "batch_unrolls")
    divided_up: ClassVar[tuple[str, ...]] = ("max_in_flight",)

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("n_actors")
        self.require_positive("step_timeout")
        self.require_range("vtrace_lambda", 0, 1)
        for name in ("max_lag", "rho_bar", "c_bar"):
            self.require_range(name, 0)
        if self.pg_rho_bar is not None:
            self.require_range("pg_rho_bar", 0)
        if self.batch_unrolls is not None:
            self.require_positive("batch_unrolls")
        least = 1 if self.max_in_flight is None else self.max_in_flight
        if least < 1:
            raise ValueError(f"max_in_flight must be at least 1, got {self.max_in_flight}")
        if self.deterministic:
            self._check_deterministic()
        elif self.max_lag < (least := (self.in_flight - 1) // self.n_unrolls):
            raise ValueError(
                f"max_lag must be at least {least} where {self.in_flight} unrolls are in flight "
                f"and an update takes {self.n_unrolls}, got {self.max_lag}: most would be dropped"
            )
        if self.env_mode == "device":
            raise ValueError("env_mode must not be 'device': actors act with arrays")
        self._check_listening()
        self._check_workers()
        for name in ("normalize_obs", "normalize_rewards"):
            if getattr(self, name):
                raise ValueError(f"{name} must be False: statistics of actors are not merged")

    def _check_listening(self) -> None:
        if len(self.tls) not in (0, 3):
            raise ValueError(f"tls must be certificate, key and authority, got {self.tls}")
        if self.address is not None and self.actors not in ("grpc", "ray"):
            raise ValueError(
                f"address is for actors='grpc' and actors='ray', got actors={self.actors!r}"
            )
        if self.address is not None and (self.actors, self.address) != ("ray", "auto"):
            split_address(self.address)
        if self.tls and self.actors != "grpc" and self.worker_addresses is None:
            raise ValueError(
                f"tls is for actors='grpc' and worker_addresses, got actors={self.actors!r}"
            )

    def _check_workers(self) -> None:
        if self.worker_addresses is None:
            return
        if self.actors in ("grpc", "ray"):
            raise ValueError(
                f"worker_addresses is for actors of this machine, got actors={self.actors!r}"
            )
        for address in checked_addresses(self.worker_addresses):
            split_address(address)
        shared_out(self.worker_addresses, self.n_actors)

    def _check_deterministic(self) -> None:
        if self.max_lag < 1:
            raise ValueError("max_lag must be at least 1 where deterministic is True, got 0")
        if self.n_unrolls != self.n_actors:
            raise ValueError(
                "batch_unrolls must be n_actors where deterministic is True, "
                f"got {self.batch_unrolls} for {self.n_actors}"
            )
        if self.in_flight != self.n_actors:
            raise ValueError(
                "max_in_flight must be n_actors where deterministic is True, since each actor "
                f"makes one unroll for each update, got {self.max_in_flight} for {self.n_actors}"
            )

    def access(self, token: str | None) -> Access:
        """Access rules for actors that join and for servers, with a token that is in no file.

        Raises:
            ValueError: A token is given that nobody would be asked for, or that is no good.
        """
        if token is not None and self.actors != "grpc" and self.worker_addresses is None:
            raise ValueError(
                f"token is for actors='grpc' and worker_addresses, got actors={self.actors!r}"
            )
        return Access.of(token, TLS(*self.tls) if self.tls else None)

    @property
    def n_unrolls(self) -> int:
        """Number of unrolls of an update."""
        return self.n_actors if self.batch_unrolls is None else self.batch_unrolls

    @property
    def rows(self) -> int:
        """Number of steps of an update."""
        return self.n_unrolls * super().rows

    @property
    def in_flight(self) -> int:
        """Maximum number of unrolls in flight or queued."""
        if self.max_in_flight is None:
            return max(self.n_unrolls, self.n_actors)
        return self.max_in_flight

    @property
    def needs_torch(self) -> str | None:
        """Reason why native code cannot learn so; None when it can."""
        return None
