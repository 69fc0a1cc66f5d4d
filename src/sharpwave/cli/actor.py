"""`sharpwave actor`."""

from __future__ import annotations

import contextlib

from sharpwave.cli.listening import access_of, add_access_options, ending
from sharpwave.cli.parser import Parser, count
from sharpwave.cli.terminal import UserError, complain, input_errors, say
from sharpwave.distributed.wire import split_address
from sharpwave.errors import ActorFailed, EnvironmentFailed, NonFiniteError

LEFT_ALONE = 1


def run(arguments: list[str]) -> int:
    """Act for a learner until it has finished, and return the exit status."""
    parsed = _parser().parse(arguments)
    with input_errors():
        from sharpwave.algorithms.followers import follower_of
        from sharpwave.distributed.node import Node

        split_address(parsed.learner)
        node = Node(
            parsed.learner,
            access_of(parsed),
            n_actors=parsed.actors,
            env=parsed.env,
            patience=parsed.patience,
            followers=follower_of,
            tell=say,
        )
    with ending():
        try:
            with contextlib.suppress(KeyboardInterrupt):
                node.run()
        except (ActorFailed, EnvironmentFailed, NonFiniteError) as error:
            complain(error)
            return LEFT_ALONE
        except PermissionError as error:
            raise UserError(str(error)) from None
        except ConnectionError as error:
            complain(error)
            return LEFT_ALONE
        except (ValueError, OSError, ImportError) as error:
            raise UserError(str(error)) from None
    say("left")
    return 0


def _parser() -> Parser:
    parser = Parser(
        "actor",
        "Act for a learner on this or another machine, which trains with actors=grpc. Actors may "
        "join and leave a training that runs, and wait for a learner that is started again.",
    )
    parser.add_argument(
        "--learner", required=True, metavar="HOST:PORT", help="address of the learner"
    )
    parser.add_argument(
        "--actors",
        type=count(1),
        default=1,
        metavar="N",
        help="actors on this machine, which share a connection and the weights (default: 1)",
    )
    parser.add_argument(
        "--env",
        metavar="ID",
        help="the learner's environment; needed where its id names a module, as in my_module:My-v0",
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="wait so long for a learner that does not answer (default: 60)",
    )
    add_access_options(parser)
    return parser
