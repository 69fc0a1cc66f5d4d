"""`sharpwave resume`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sharpwave.algorithms.registry import algorithm_class
from sharpwave.cli.environment import add_env_options, require_env, trusted
from sharpwave.cli.folders import existing
from sharpwave.cli.language import add_language_options, trusted_language
from sharpwave.cli.learners import check_learners, has_to_launch, launch
from sharpwave.cli.listening import add_token_option, use_token
from sharpwave.cli.parser import Parser, count
from sharpwave.cli.run_plan import Plan
from sharpwave.cli.terminal import input_errors
from sharpwave.envs.named import described_env


def run(arguments: list[str]) -> int:
    """Go on with a run, and return the exit status."""
    parsed = _parser().parse(arguments)
    run_dir = existing(parsed.run)
    with input_errors():
        use_token(parsed)
        plan = trusted(plan_in(run_dir), parsed, run_dir)
        plan = trusted_language(plan, parsed, run_dir, "resume")
        if parsed.learners is not None:
            plan = plan.replace(learners=parsed.learners)
        if parsed.worker_addresses is not None:
            algorithm: Any = algorithm_class(plan.algorithm)
            changed = algorithm.Config.parse({"worker_addresses": parsed.worker_addresses})
            plan = plan.replace(config={**plan.config, **changed})
        check_learners(plan)
        if plan.env_id is not None:
            require_env(plan.env_id, algorithm_class(plan.algorithm))
    if has_to_launch(plan):
        return launch(plan.learners, ["-m", "sharpwave", "resume", *arguments])

    from sharpwave.cli.running import carry_out

    return carry_out(plan, run_dir, quiet=parsed.quiet, total_timesteps=parsed.total_timesteps)


def plan_in(run_dir: Path) -> Plan:
    """The plan of a run folder; of one that a Python program made, what its checkpoint says."""
    if (run_dir / Plan.file).is_file():
        return Plan.from_file(run_dir / Plan.file)

    from sharpwave.storage.checkpoints import read_header
    from sharpwave.storage.run_folder import RunFolder

    checkpoint = RunFolder(run_dir).latest_checkpoint
    header = read_header(checkpoint)
    env_id: str | None = None
    env_kwargs: dict[str, Any] = {}
    wrappers: list[str] = []
    if header.get("env") is not None:
        env_id, env_kwargs, wrappers = described_env(checkpoint, header["env"])
    if "dataset" in header:
        if header["dataset"] is None:
            raise ValueError(f"{checkpoint} learned from data in memory: resume it in Python")
    elif env_id is None and "env" in header:
        raise ValueError(
            f"{checkpoint} was trained in an environment without an id: resume it in Python"
        )
    return Plan(
        algorithm=header["algorithm"],
        env_id=env_id,
        env_kwargs=env_kwargs,
        wrappers=tuple(wrappers),
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
        help="steps, or updates, of the whole run (default: as it was begun)",
    )
    parser.add_argument(
        "--learners",
        metavar="N",
        type=count(1),
        help="processes that learn together (default: as many as before)",
    )
    parser.add_argument(
        "--worker-addresses",
        metavar="HOST:PORT,...",
        help="servers of environments (default: those of before); none makes them here",
    )
    add_token_option(parser)
    parser.add_argument("--quiet", action="store_true", help="say only what goes wrong")
    add_env_options(parser, replaces=True)
    add_language_options(parser)
    return parser
