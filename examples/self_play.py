"""Pursuers and one who runs away, each of which learns against the last of the other.

    python examples/self_play.py [STEPS]

A group among the `opponents` plays and does not learn. Here the two sides take turns, STEPS each,
against the checkpoint that the other side left.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import sharpwave as sw

TAG = "mpe2/simple_tag_v3"
SIDES = ("adversary", "agent_0")
SETTINGS: dict[str, Any] = {"n_envs": 16, "n_steps": 25, "gamma": 0.95, "seed": 1}


def side_return(agent: sw.MAPPO, side: str) -> float:
    """The mean return of a side's agents."""
    means, members = agent.evaluate(10).agent_means, agent.env.groups[side]
    return sum(means[name] for name in members) / len(members)


def main(steps: int = 20_000, rounds: int = 3) -> None:
    with tempfile.TemporaryDirectory() as folder:
        beginning = Path(folder) / "beginning.safetensors"
        beginners = sw.MAPPO(TAG, **SETTINGS)
        beginners.save(beginning)
        beginners.close()
        latest = dict.fromkeys(SIDES, beginning)
        for number in range(1, rounds + 1):
            for side, other in (SIDES, SIDES[::-1]):
                agent = sw.MAPPO.from_checkpoint(latest[side], opponents={other: latest[other]})
                before = side_return(agent, side)
                agent.train(steps)
                after = side_return(agent, side)
                print(f"round {number}: {side} went from {before:.1f} to {after:.1f}")
                latest[side] = Path(folder) / f"{side}_{number}.safetensors"
                agent.save(latest[side])
                agent.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
