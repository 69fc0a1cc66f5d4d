"""`sharpwave resume`."""

from __future__ import annotations

from pathlib import Path

from sharpwave.cli.folders import existing
from sharpwave.cli.parser import Parser, count
from sharpwave.cli.plan import Plan
from sharpwave.cli.terminal import input_errors


def run(arguments: list[str]) -> int:
    """Go on with a run, and return the exit status."""
    parsed = _parser().parse(arguments)
    run_dir = existing(parsed.run)
    with input_errors():
        plan = plan_in(run_dir)

    from sharpwave.cli.running import carry_out

    return carry_out(plan, run_dir, quiet=parsed.quiet, total_timesteps=parsed.total_timesteps)


def plan_in(run_dir: Path) -> Plan:
    """The plan of a run folder; of one that a Python program made, what its checkpoint says."""
    if (run_dir / Plan.file).is_file():
        return Plan.from_file(run_dir / Plan.file)

    from sharpwave.train.checkpoint import read_header
    from sharpwave.train.run_folder import RunFolder

    checkpoint = RunFolder(run_dir).latest_checkpoint
    header = read_header(checkpoint)
    env_id = None if header["env"] is None else header["env"]["id"]
    if "dataset" in header:
        if header["dataset"] is None:
            raise ValueError(f"{checkpoint} learnt from data in memory: resume it in Python")
    elif env_id is None:
        raise ValueError(
            f"{checkpoint} was trained in an environment without an id: resume it in Python"
        )
    return Plan(
        algorithm=header["algorithm"],
        env_id=env_id,
        dataset=header.get("dataset"),
        config=header["config"],
    )


def _parser() -> Parser:
    parser = Parser("resume", "Go on with a run that was interrupted, or make it longer.")
    parser.add_argument("run", metavar="RUN", help="folder of the run")
    parser.add_argument(
        "--total-timesteps",
        metavar="N",
        type=count(1),
        help="environment steps of the whole run (default: what it was begun with)",
    )
    parser.add_argument("--quiet", action="store_true", help="say only what goes wrong")
    return parser
