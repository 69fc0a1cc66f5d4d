"""Environment server over gRPC: other processes reset and step its environments remotely."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import gymnasium as gym
from gymnasium.vector import VectorEnv

from sharpwave.distributed.codec import LIMIT
from sharpwave.distributed.envs.arrays import messages, parsed
from sharpwave.distributed.envs.plain import plain_space
from sharpwave.distributed.envs.sessions import Seat, Sessions, SessionsFull
from sharpwave.distributed.hanging import kill_processes
from sharpwave.distributed.security import TLS, Access
from sharpwave.distributed.wire import Method, Server, serve, service, split_address
from sharpwave.envs import make_vec_env
from sharpwave.envs.spaces import space_to_json
from sharpwave.errors import WireError

__all__ = ["SERVICE", "VERSION", "EnvServer"]

SERVICE = "rlox.env.EnvService"
VERSION = 1
"""Version of `Play`; a client of another one is refused."""
MAX_SESSIONS = 4
SHARED = "of all who give no name"
"""The session of rlox's clients, which know of none."""


class EnvServer:
    """Environments for clients on other machines: `RemoteVectorEnv`, `RemoteEnvPool`, or rlox's.

    Each client has a session with environments of its own. It is freed when the client leaves, when
    it says nothing for too long, or when its connection is lost and it does not come back. Clients
    of rlox share one session: a reset takes it, and a step of another client is refused.

    Args:
        env: Environment for `make_vec_env`. Of one that is made already there is one session.
        address: Address to listen at, such as "127.0.0.1:50051"; port 0 takes a free one.
        n_envs: Environments of a session.
        mode: Stepping mode, see `make_vec_env`.
        env_kwargs: Arguments of an id or a maker.
        max_sessions: Sessions at a time; None for 4, or one of an environment that is made.
        silence: Seconds that a client may take between two steps; a learner needs some.
        patience: Seconds that a session waits for a client whose connection was lost.
        step_timeout: Seconds that environments may take for a step, a reset, or to be made. A
            session whose environments do not come back is over: its client is told, and their
            processes are killed. Environments of this process cannot be, and are left behind.
        token: Token of the clients; None takes that of the variable `SHARPWAVE_TOKEN`, if any.
        tls: Certificates of both sides.
        max_message: Bytes of a message.

    Attributes:
        address: Address at which it listens, once it does.

    Raises:
        ImportError: grpcio is not installed.
        OSError: `start` and `serve` raise it where the port is taken.
        PermissionError: Other machines could call without token or certificate.
        TypeError: `env` makes no environments.
        ValueError: An argument does not fit.

    Example:
        >>> from sharpwave.distributed import RemoteVectorEnv
        >>> with EnvServer("CartPole-v1", n_envs=2) as server:
        ...     env = RemoteVectorEnv(server.address)
        ...     obs, _ = env.reset(seed=0)
        ...     env.close()
        >>> obs.shape
        (2, 4)
    """

    def __init__(
        self,
        env: Any,
        address: str = "127.0.0.1:0",
        *,
        n_envs: int | None = None,
        mode: str = "auto",
        env_kwargs: Mapping[str, Any] | None = None,
        max_sessions: int | None = None,
        silence: float = 600.0,
        patience: float = 60.0,
        step_timeout: float = 120.0,
        token: str | None = None,
        tls: TLS | None = None,
        max_message: int = LIMIT,
    ) -> None:
        self._host, self._port = split_address(address)
        self.address = address
        self._access = Access.of(token, tls)
        self._silence, self._max_message = _positive("silence", silence), max_message
        is_made = isinstance(env, VectorEnv | gym.Env)
        limit = (1 if is_made else MAX_SESSIONS) if max_sessions is None else max_sessions
        if limit < 1 or (is_made and limit > 1):
            raise ValueError(
                "max_sessions must be at least 1, and 1 with an environment that is already made, "
                f"got {max_sessions}"
            )
        kwargs = dict(env_kwargs or {})
        self._made = partial(make_vec_env, env, n_envs, mode=mode, env_kwargs=kwargs or None)
        self._first: Any = self._made()
        self._kept = self._first if is_made else None
        self._kept_hangs = False
        try:
            self._spaces = _described(self._first, env, kwargs)
            self._sessions = Sessions(
                self._taken,
                self._given_back,
                limit,
                _positive("patience", patience),
                _positive("step_timeout", step_timeout),
                self._abandoned,
            )
        except BaseException:
            if not is_made:
                self._first.close()
            raise
        self._owner = ""
        self._shared_lock = threading.Lock()
        self._first_lock = threading.Lock()
        self._server: Server | None = None

    @property
    def n_sessions(self) -> int:
        """Sessions at present."""
        return len(self._sessions)

    def start(self) -> EnvServer:
        """Answer calls in threads from now on, until `close`."""
        names = {"StepBatch": self._step_batch, "ResetBatch": self._reset_batch}
        methods = [Method(name, function) for name, function in names.items()]
        methods.append(Method("GetSpaces", self._get_spaces))
        methods.append(Method("Play", self._play, stream_in=True, stream_out=True))
        self._server = serve(
            [service(SERVICE, methods)],
            self._host,
            self._port,
            self._access,
            max_message=self._max_message,
            # Some may be waiting for a session, and others may be lost ones that nobody has missed.
            max_calls=2 * self._sessions.limit + 8,
            silence=self._silence,
        )
        self.address = self._server.address
        return self

    def serve(self) -> None:
        """Answer calls until `close` is called elsewhere, or Ctrl-C ends it."""
        try:
            if self._server is None:
                self.start()
            assert self._server is not None
            while self._server.wait(3600.0):
                pass
        finally:
            self.close()

    def close(self) -> None:
        """Take no more calls, end all sessions and close their environments.

        Environments that do not come back are waited for some seconds, and left behind then.
        """
        if self._server is not None:
            self._server.stop()
        self._sessions.close()
        if self._first is not None:
            self._first.close()
            self._first = None

    def __enter__(self) -> EnvServer:
        return self if self._server is not None else self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _taken(self) -> Any:
        if self._kept_hangs:
            raise SessionsFull("the environments have not come back from a step")
        with self._first_lock:
            first = self._first
            if self._kept is None:
                self._first = None
        return self._made() if first is None else first

    def _given_back(self, env: Any) -> None:
        if env is not self._kept:
            env.close()
        else:
            self._kept_hangs = False

    def _abandoned(self, env: Any) -> None:
        """Kill the processes of environments that do not come back, whose thread then does."""
        if env is self._kept:
            self._kept_hangs = True
            return
        kill_processes(env)

    def _get_spaces(self, data: bytes, _: Any) -> bytes:
        parsed(messages().Empty, data)
        answer: bytes = self._spaces.SerializeToString()
        return answer

    def _play(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        known = messages()
        seat, welcome = self._welcomed(parsed(known.PlayRequest, next(requests, b"")))
        if seat is None:
            yield welcome.SerializeToString()
            return
        turn = seat.turn
        patience: float | None = None  # the connection may be lost at any moment
        # While environments step, this function does not hear of it.
        context.add_callback(partial(self._sessions.leave, seat, turn))
        try:
            yield welcome.SerializeToString()
            for data in requests:
                if seat.turn != turn:
                    return
                request = parsed(known.PlayRequest, data)
                if request.HasField("goodbye"):
                    patience = 0.0
                    return
                yield seat.session.answer(request).SerializeToString()
                if seat.session.failed:
                    patience = 0.0
                    return
        except WireError:
            patience = 0.0  # a client that says such things has lost its way
            raise
        finally:
            self._sessions.leave(seat, turn, patience)

    def _welcomed(self, request: Any) -> tuple[Seat | None, Any]:
        """The session that a client asks for, and what it is told."""
        known = messages()
        if request.WhichOneof("ask") != "hello":
            raise WireError("a client must say hello first")
        hello = request.hello
        if hello.version != VERSION:
            said = f"the server speaks version {VERSION}, the client {hello.version}"
            return None, _refusal("VERSION", said)
        seat = self._sessions.find(hello.session) if hello.session else None
        if seat is None and hello.session and not hello.or_new:
            return None, _refusal("GONE", "there is no such session any more")
        try:
            seat = seat or self._sessions.open()
        except SessionsFull as error:
            return None, _refusal("FULL", str(error))
        session = seat.session
        welcome = known.Welcome(session=session.name, last_id=session.last_id, spaces=self._spaces)
        return seat, known.PlayResponse(welcome=welcome)

    def _reset_batch(self, data: bytes, context: Any) -> bytes:
        request = parsed(messages().ResetRequest, data)
        with self._shared_lock:
            seat = self._sessions.find(SHARED) or self._sessions.open(SHARED)
            self._owner = context.peer()
            return self._answered(seat, lambda: seat.session.reset(request, in_floats=True))

    def _step_batch(self, data: bytes, context: Any) -> bytes:
        request = parsed(messages().StepRequest, data)
        with self._shared_lock:
            seat = self._sessions.find(SHARED)
            if seat is None or self._owner != context.peer():
                raise WireError(
                    "the environments must be reset by this client first: "
                    + ("another one has reset them" if seat else "there are none yet")
                )
            return self._answered(seat, lambda: seat.session.step(request))

    def _answered(self, seat: Seat, ask: Any) -> bytes:
        patience = self._silence
        try:
            answer: bytes = seat.session.called(ask).SerializeToString()
        except ValueError:
            raise
        except Exception:
            patience = 0.0  # the environments are closed
            raise
        finally:
            self._sessions.leave(seat, seat.turn, patience)
        return answer


def _described(env: Any, source: Any, kwargs: dict[str, Any]) -> Any:
    """SpacesResponse about environments, and about what they were made of."""
    action_space, observation_space = env.single_action_space, env.single_observation_space
    try:
        said = json.dumps(kwargs) if isinstance(source, str) else ""
    except TypeError:
        said = ""
    return messages().SpacesResponse(
        action_space_json=plain_space(action_space),
        obs_space_json=plain_space(observation_space),
        num_envs=env.num_envs,
        version=VERSION,
        action_space=json.dumps(space_to_json(action_space)),
        observation_space=json.dumps(space_to_json(observation_space)),
        env=_name(source),
        env_kwargs=said,
        server=secrets.token_hex(8),
    )


def _name(env: Any) -> str:
    """Name of the environments: an id, or the name of what makes them."""
    if isinstance(env, str):
        return env
    spec = getattr(env, "spec", None)  # of a class it may be a property
    name = getattr(spec, "id", None) or getattr(env, "__name__", type(env).__name__)
    return str(name)


def _refusal(kind: str, message: str) -> Any:
    known = messages()
    return known.PlayResponse(
        failure=known.Failure(kind=known.Failure.Kind.Value(kind), message=message)
    )


def _positive(name: str, seconds: float) -> float:
    if not 0 < seconds < 1e9:
        raise ValueError(f"{name} must be a positive number of seconds, got {seconds}")
    return float(seconds)
