"""Three agents spread over three landmarks: one policy for all, one critic that sees everyone.

    python examples/multi_agent.py [STEPS]

Training steps native code that has mpe2's numbers; the evaluation plays mpe2's own environment.
"""

import sys

import sharpwave as sw
from sharpwave.envs import make_multi_env

SPREAD = "mpe2/simple_spread_v3"


def main(steps: int = 100_000) -> None:
    agent = sw.MAPPO.preset(SPREAD)
    env = make_multi_env(SPREAD, 10, mode="sync")
    print(f"at first: {agent.evaluate(10, env=env)}")
    agent.train(steps, callbacks=[sw.ProgressCallback()])
    print(f"after {steps} steps: {agent.evaluate(10, env=env)}")
    env.close()
    agent.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
