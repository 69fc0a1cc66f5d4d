"""The commands, and the way to them."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from sharpwave.cli.terminal import UserError, complain, say
from sharpwave.core.suggest import did_you_mean

COMMANDS = {
    "train": "Train an algorithm in an environment, from a dataset, or on a language model",
    "eval": "Play episodes with a trained policy, or complete prompts, and say how they went",
    "sample": "Let the language model of a run complete prompts",
    "tune": "Search for good options of an algorithm, by trials on all cores",
    "resume": "Go on with a run that was interrupted, or make it longer",
    "report": "Write the report of a run, or compare several",
    "watch": "Show many runs on one live page, while they train",
    "enjoy": "Watch a trained policy play, or film it",
    "dream": "Show what the world model of a run predicts, beside what came",
    "export": "Write a trained policy to a file that runs without sharpwave",
    "push": "Publish a trained agent on the Hugging Face Hub",
    "dataset": "Make datasets for offline learning, by scripted experts or by training",
    "list": "List algorithms, presets, environments, tasks or losses",
    "check-env": "Say what in an environment does not fit what training needs",
    "convert": "Write episodes from one format to another",
    "merge": "Write the episodes of several files or folders to one",
    "inspect": "Show what a folder of episodes or a replay buffer on disk holds",
    "repair": "Remove the damaged parts of a folder, and report what was lost",
    "plan": "Predict the bottleneck of many actors from a measurement of one",
    "actor": "Act for a learner on another machine",
    "serve-envs": "Let other processes play environments, over gRPC",
    "serve-model": "Let other processes sample from a language model",
    "serve-replay": "Hold a shard of a replay buffer for other processes",
    "bench": "Measure the training speed on this machine",
}

USER_ERROR = 2
INTERRUPTED = 130

# A module may not be called `eval`, `list` or `bench` and still say what it is.
_MODULES = {
    "eval": "evaluate",
    "list": "listing",
    "bench": "speed",
    "check-env": "check_env",
    "serve-envs": "serve_envs",
    "serve-model": "serve_model",
    "serve-replay": "serve_replay",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    Args:
        argv: The arguments after the program's name; those of this process when not given.

    Returns:
        0 when all went well, 1 when a folder is damaged, 2 when something in the arguments is
        wrong, 130 after Ctrl-C.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _dispatch(arguments)
    except UserError as error:
        complain(error)
        return USER_ERROR
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe has seen enough; keep the interpreter from flushing into it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        say(_overview())
        return 0
    command, *rest = arguments
    if command in ("-V", "--version", "version"):
        from sharpwave import __version__

        say(f"sharpwave {__version__}")
        return 0
    if command not in COMMANDS:
        close = did_you_mean(command, COMMANDS)
        raise UserError(f"unknown command {command!r}{close} (`sharpwave --help` lists them)")
    module = importlib.import_module(f"sharpwave.cli.{_MODULES.get(command, command)}")
    status: int = module.run(rest)
    return status


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items()]
    return "\n".join(
        [
            "usage: sharpwave COMMAND ...",
            "",
            *lines,
            "",
            "sharpwave train ppo CartPole-v1     trains until done and writes a run folder",
            "sharpwave train grpo --task copy4   does so with a language model",
            "sharpwave COMMAND --help            says what a command takes",
        ]
    )
