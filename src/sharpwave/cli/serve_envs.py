"""`sharpwave serve-envs`."""

from __future__ import annotations

import contextlib

from sharpwave.cli.environment import (
    add_env_options,
    env_of,
    import_modules,
    parse_env_kwargs,
    require_env,
)
from sharpwave.cli.listening import access_of, add_access_options, ending
from sharpwave.cli.parser import Parser, count, one_of
from sharpwave.cli.run_plan import Plan
from sharpwave.cli.terminal import input_errors, say
from sharpwave.distributed import EnvServer
from sharpwave.envs.make import MODES


def run(arguments: list[str]) -> int:
    """Let others play environments until Ctrl-C or SIGTERM, and return the exit status."""
    parsed = _parser().parse(arguments)
    import_modules(parsed.imports)
    require_env(parsed.env)
    host = f"[{parsed.host}]" if ":" in parsed.host else parsed.host
    with ending():
        with input_errors():
            access = access_of(parsed)
            server = EnvServer(
                env_of(Plan(algorithm="", env_id=parsed.env, wrappers=tuple(parsed.wrappers))),
                f"{host}:{parsed.port}",
                n_envs=parsed.n_envs,
                mode=parsed.mode,
                env_kwargs=parse_env_kwargs(parsed.env_kwargs),
                max_sessions=parsed.max_sessions,
                silence=parsed.silence,
                patience=parsed.patience,
                step_timeout=parsed.step_timeout,
                token=access.token,
                tls=access.tls,
            ).start()
        with server:
            many = f"{parsed.n_envs} x {parsed.env} for {parsed.max_sessions} clients at a time"
            say(f"{server.address} has {many}, until Ctrl-C")
            with contextlib.suppress(KeyboardInterrupt):
                server.serve()
    say("stopped")
    return 0


def _parser() -> Parser:
    parser = Parser("serve-envs", "Let other processes play environments, by RemoteVectorEnv.")
    parser.add_argument("env", metavar="ENV", help="id of the environment")
    parser.add_argument(
        "--n-envs",
        type=count(1),
        default=1,
        metavar="N",
        help="environments of each client (default: 1)",
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen at (default: 127.0.0.1)"
    )
    parser.add_argument(
        "--port",
        type=count(0),
        default=50051,
        metavar="N",
        help="port to listen at (default: 50051)",
    )
    parser.add_argument(
        "--max-sessions",
        type=count(1),
        default=4,
        metavar="N",
        help="clients at a time (default: 4)",
    )
    parser.add_argument(
        "--mode",
        type=one_of("mode", MODES),
        default="auto",
        help=f"{', '.join(MODES)} (default: auto)",
    )
    parser.add_argument(
        "--silence",
        type=float,
        default=600.0,
        metavar="S",
        help="seconds that a client may take between two steps (default: 600)",
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=60.0,
        metavar="S",
        help="seconds that environments wait for a client whose connection was lost (default: 60)",
    )
    parser.add_argument(
        "--step-timeout",
        type=float,
        default=120.0,
        metavar="S",
        help="seconds that a step of environments may take before it is given up (default: 120)",
    )
    add_env_options(parser)
    add_access_options(parser)
    return parser
