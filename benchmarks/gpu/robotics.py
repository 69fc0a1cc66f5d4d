"""Iterations of PPO with thousands of environments on a GPU, beside rsl_rl: all take turns.

python benchmarks/gpu/robotics.py --out benchmarks/results_robotics.json
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import statistics
import sys
import time
import traceback
import types
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from cart_poles import CartPoles
from robotics_envs import Tracking

import sharpwave as sw

LAYERS = {"tracking": (512, 256, 128), "cart-poles": (64, 64)}
STEPS = {"tracking": 24, "cart-poles": 128}
UPDATES = {"tracking": (5, 4), "cart-poles": (4, 4)}
"""Epochs, and minibatches of each."""
N_ENVS = 4096


def task(name: str, *, continuous: bool = False, capturable: bool = True) -> Any:
    """The environments."""
    made: Any = Tracking(N_ENVS, "cuda")
    if name == "cart-poles":
        made = CartPoles(N_ENVS, "cuda", continuous=continuous)
    made.capturable = capturable
    return made


class Ours:
    """An iteration of ours."""

    def __init__(
        self, name: str, *, capturable: bool = False, env: Any = None, **options: Any
    ) -> None:
        epochs, minibatches = UPDATES[name]
        given: dict[str, Any] = {
            "device": "cuda",
            "n_steps": STEPS[name],
            "n_epochs": epochs,
            "batch_size": N_ENVS * STEPS[name] // minibatches,
            "hidden": LAYERS[name],
            "activation": "elu",
            "learning_rate": 1e-3,
            "anneal_lr": False,
            "clip_vloss": True,
            "ent_coef": 0.01,
            "vf_coef": 1.0,
            "max_grad_norm": 1.0,
            "seed": 1,
        }
        env = task(name, capturable=capturable) if env is None else env
        self.agent: Any = sw.PPO(env, **{**given, **options})
        self.agent.learner.follow(1.0)

    def iterate(self) -> None:
        """One rollout, one update, and a look at the loss."""
        metrics = self.agent.learner.update(self.agent.loop.collect())
        float(metrics["loss"])


def rsl_rl() -> Any:
    """The runners of rsl_rl; without TensorBoard, which it imports and nobody needs here."""
    name = "torch.utils.tensorboard"
    try:
        __import__(name)
    except ImportError:
        stub: Any = types.ModuleType(name)
        stub.SummaryWriter = object
        sys.modules[name] = stub
    from rsl_rl import runners

    return runners


class RslRl:
    """An iteration of rsl_rl, as its runner has it, without its logger."""

    def __init__(self, name: str, *, schedule: str = "fixed") -> None:
        from tensordict import TensorDict

        self.task = task(name, continuous=True)
        space = self.task.single_action_space
        epochs, minibatches = UPDATES[name]
        inner = self.task

        class Env:
            num_envs, num_actions = N_ENVS, space.shape[0]
            max_episode_length, device, cfg = inner.limit, "cuda", {}
            episode_length_buf = inner.steps

            def get_observations(self) -> Any:
                return self.told(inner.state.clone())

            def told(self, obs: Any) -> Any:
                return TensorDict({"policy": obs}, batch_size=[N_ENVS])

            def step(self, actions: Any) -> Any:
                obs, rewards, terminated, truncated, _ = inner.step(actions)
                extras = {"time_outs": truncated}
                return self.told(obs.clone()), rewards, (terminated | truncated).long(), extras

        inner.reset(seed=0)
        self.env = Env()
        network = {
            "class_name": "MLPModel",
            "hidden_dims": list(LAYERS[name]),
            "activation": "elu",
            "obs_normalization": False,
        }
        config = {
            "seed": 1,
            "num_steps_per_env": STEPS[name],
            "save_interval": 1000,
            "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
            "actor": {
                **network,
                "distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 1.0},
            },
            "critic": dict(network),
            "algorithm": {
                "class_name": "PPO",
                "num_learning_epochs": epochs,
                "num_mini_batches": minibatches,
                "schedule": schedule,
                "learning_rate": 1e-3,
                "desired_kl": 0.01,
                "entropy_coef": 0.01,
                "value_loss_coef": 1.0,
                "max_grad_norm": 1.0,
                "use_clipped_value_loss": True,
                "rnd_cfg": None,
                "symmetry_cfg": None,
            },
        }
        self.runner = rsl_rl().OnPolicyRunner(self.env, config, None, "cuda")
        self.n_steps = STEPS[name]
        self.obs = self.env.get_observations()
        self.runner.alg.train_mode()

    def iterate(self) -> None:
        """One rollout and one update."""
        alg, env = self.runner.alg, self.env
        with torch.inference_mode():
            for _ in range(self.n_steps):
                self.obs, rewards, dones, extras = env.step(alg.act(self.obs))
                alg.process_env_step(self.obs, rewards, dones, extras)
            alg.compute_returns(self.obs)
        alg.update()


CONTENDERS: dict[str, Callable[[str], Any]] = {
    "rsl_rl": RslRl,
    "rsl_rl, adaptive": lambda name: RslRl(name, schedule="adaptive"),
    "ours without graphs": lambda name: Ours(name, cuda_graph=False),
    "ours": Ours,
    "ours, environment captured": lambda name: Ours(name, capturable=True),
    "ours, adaptive": lambda name: Ours(name, capturable=True, learning_rate="adaptive"),
    "ours, compiled": lambda name: Ours(name, capturable=True, compile=True),
    "ours, bf16": lambda name: Ours(name, capturable=True, matmul="bf16"),
    "ours, CartPole-v1 on the device": lambda name: Ours(
        name, env=sw.make_vec_env("CartPole-v1", N_ENVS, device="cuda")
    ),
}
ONLY = {"ours, CartPole-v1 on the device": "cart-poles"}
"""Contenders of one task alone."""


def facts(contender: Any) -> dict[str, Any]:
    """Kernels, waits and busy time of one iteration, by the profiler."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        contender.iterate()
        torch.cuda.synchronize()
    kernels, busy, calls = 0, 0.0, {"launches": 0, "graphs": 0, "waits": 0}
    for event in found.events():
        name = event.name
        if event.device_type == torch.autograd.DeviceType.CUDA:
            kernels += 1
            busy += event.device_time
        elif name in ("cudaLaunchKernel", "cuLaunchKernel", "cuLaunchKernelEx", "cudaMemcpyAsync"):
            calls["launches"] += 1
        elif name == "cudaGraphLaunch":
            calls["graphs"] += 1
        elif "Synchronize" in name:
            calls["waits"] += 1
    return {"kernels": kernels, "busy_ms": round(busy / 1e3, 2), **calls}


def made(label: str, name: str) -> tuple[Any, dict[str, Any]]:
    """A contender after three iterations, and the seconds and memory that those took.

    One that fails is None, and its row says why.
    """
    try:
        return _made(label, name)
    except Exception:
        failure = traceback.format_exc(limit=-6)
        print(name, label, failure, flush=True)
        return None, {"failure": failure}


def _made(label: str, name: str) -> tuple[Any, dict[str, Any]]:
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    contender = CONTENDERS[label](name)
    for _ in range(3):
        contender.iterate()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    seconds = time.perf_counter() - began
    return contender, {"first_3_s": round(seconds, 2), "peak_mib": round(peak / 2**20)}


def milliseconds(contender: Any) -> float:
    """Time of one iteration."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    contender.iterate()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) * 1e3


def measured(
    name: str, labels: list[str], rounds: int, *, with_facts: bool
) -> list[dict[str, Any]]:
    """The rows of one task; a failure is a row too."""
    contenders: dict[str, Any] = {}
    rows: dict[str, Any] = {}
    for label in labels:
        if ONLY.get(label, name) != name:
            continue
        contender, rows[label] = made(label, name)
        if contender is not None:
            contenders[label] = contender
    times: dict[str, list[float]] = {label: [] for label in contenders}
    for _ in range(rounds):
        for label, contender in contenders.items():
            times[label].append(milliseconds(contender))
    for label, contender in contenders.items():
        row = rows[label]
        row["ms"] = round(statistics.median(times[label]), 2)
        if "rsl_rl" in contenders:
            row["x rsl_rl"] = round(rows["rsl_rl"]["ms"] / row["ms"], 2)
        if with_facts:
            row.update(facts(contender))
        print(name, label, json.dumps(row), flush=True)
    return [{"task": name, "contender": label, **row} for label, row in rows.items()]


def main() -> None:
    """Measure, print, and write a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--tasks", nargs="*", default=list(STEPS))
    parser.add_argument("--only", nargs="*", default=list(CONTENDERS))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--facts", action="store_true", help="profile one iteration of each")
    given = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    report = {"machine": machine(), "results": []}
    for name in given.tasks:
        report["results"] += measured(name, given.only, given.rounds, with_facts=given.facts)
        if given.out is not None:
            given.out.write_text(json.dumps(report, indent=1) + "\n")


def machine() -> dict[str, Any]:
    """Facts that belong to the figures."""
    names = {"torch": "torch", "triton": "triton", "rsl_rl": "rsl-rl-lib"}
    installed = {found.name for found in metadata.distributions()}
    versions = {k: metadata.version(name) for k, name in names.items() if name in installed}
    today = datetime.date.today().isoformat()
    return {"gpu": torch.cuda.get_device_name(), "date": today, "versions": versions}


if __name__ == "__main__":
    main()
