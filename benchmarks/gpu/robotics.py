"""Iterations of PPO with thousands of environments on a GPU, beside rsl_rl: all take turns.

python benchmarks/gpu/robotics.py --out benchmarks/results_robotics.json
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from robotics_tasks import CartPoles, Tracking

import sharpwave as sw

LAYERS = {"tracking": (512, 256, 128), "cart-poles": (64, 64)}
STEPS = {"tracking": 24, "cart-poles": 128}
UPDATES = {"tracking": (5, 4), "cart-poles": (4, 4)}
"""Epochs, and minibatches of each."""
N_ENVS = 4096


def task(name: str, *, continuous: bool = False, capturable: bool = True) -> Any:
    made: Any = Tracking(N_ENVS, "cuda")
    if name == "cart-poles":
        made = CartPoles(N_ENVS, "cuda", continuous=continuous)
    made.capturable = capturable
    return made


class Ours:
    """An iteration of ours."""

    def __init__(self, name: str, *, capturable: bool = False, **options: Any) -> None:
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
        self.agent: Any = sw.PPO(task(name, capturable=capturable), **{**given, **options})
        self.agent.learner.follow(1.0)

    def iterate(self) -> None:
        metrics = self.agent.learner.update(self.agent.loop.collect())
        float(metrics["loss"])

    def mean_return(self) -> float:
        return float(self.agent.episodes.mean_return)


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
            episode_length_buf = inner.time

            def get_observations(self) -> Any:
                return self.told(inner.observe(inner.state))

            def told(self, obs: Any) -> Any:
                return TensorDict({"policy": obs}, batch_size=[N_ENVS])

            def step(self, actions: Any) -> Any:
                obs, rewards, terminated, truncated, _ = inner.step(actions)
                extras = {"time_outs": truncated}
                return self.told(obs), rewards, (terminated | truncated).long(), extras

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
    "ours, compiled": lambda name: Ours(name, capturable=True, compile=True),
    "ours, bf16": lambda name: Ours(name, capturable=True, compile=True, matmul="bf16"),
}


def facts(contender: Any) -> dict[str, Any]:
    """Kernels, waits and busy time of one iteration, by the profiler."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        contender.iterate()
        torch.cuda.synchronize()
    kernels, calls, slowest = 0, {"launches": 0, "graphs": 0, "waits": 0}, {}
    busy = 0.0
    for event in found.events():
        name = event.name
        if event.device_type == torch.autograd.DeviceType.CUDA:
            kernels += 1
            busy += event.device_time
            slowest[name] = slowest.get(name, 0.0) + event.device_time
        elif name in ("cudaLaunchKernel", "cuLaunchKernel", "cuLaunchKernelEx", "cudaMemcpyAsync"):
            calls["launches"] += 1
        elif name == "cudaGraphLaunch":
            calls["graphs"] += 1
        elif "Synchronize" in name:
            calls["waits"] += 1
    top = sorted(slowest.items(), key=lambda item: -item[1])[:12]
    listed = [[name[:90], round(us / 1e3, 3)] for name, us in top]
    return {"kernels": kernels, "busy_ms": busy / 1e3, **calls, "slowest": listed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--tasks", nargs="*", default=list(STEPS))
    parser.add_argument("--only", nargs="*", default=list(CONTENDERS))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--facts", action="store_true", help="profile one iteration of each")
    given = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    results: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    for name in given.tasks:
        made: dict[str, Any] = {}
        rows: dict[str, Any] = {}
        for label in given.only:
            began = time.perf_counter()
            gc.collect()
            torch.cuda.empty_cache()
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            try:
                made[label] = CONTENDERS[label](name)
                for _ in range(3):
                    made[label].iterate()
            except Exception as error:  # the others are measured all the same
                import traceback

                traceback.print_exc()
                rows[label] = {"failed": repr(error)[:300]}
                made.pop(label, None)
                continue
            torch.cuda.synchronize()
            peak = torch.cuda.max_memory_allocated() - before
            first = time.perf_counter() - began
            rows[label] = {"first_3_s": round(first, 2), "peak_mib": round(peak / 2**20)}
        times: dict[str, list[float]] = {label: [] for label in made}
        for _ in range(given.rounds):
            for label, contender in made.items():
                torch.cuda.synchronize()
                began = time.perf_counter()
                contender.iterate()
                torch.cuda.synchronize()
                times[label].append((time.perf_counter() - began) * 1e3)
        for label, found in times.items():
            rows[label]["ms"] = round(statistics.median(found), 2)
        for label, contender in made.items():
            if given.facts:
                rows[label] |= facts(contender)
            if "rsl_rl" in rows and "ms" in rows["rsl_rl"]:
                rows[label]["x rsl_rl"] = round(rows["rsl_rl"]["ms"] / rows[label]["ms"], 2)
            print(name, label, json.dumps(rows[label]), flush=True)
        results[name] = rows
        if given.out is not None:
            given.out.write_text(json.dumps(results, indent=1) + "\n")
        made.clear()


if __name__ == "__main__":
    main()
