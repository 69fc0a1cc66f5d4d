"""Configurations of rsl_rl's runners, read as options of this library's agents."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sharpwave.compat.rsl_rl.refusals import check_entries, refuse
from sharpwave.core.suggest import did_you_mean

__all__ = ["ModelSettings", "Settings", "read_settings", "resolved"]

RUNNER = (
    "num_steps_per_env",
    "save_interval",
    "algorithm",
    "policy",
    "actor",
    "critic",
    "student",
    "teacher",
    "obs_groups",
    "empirical_normalization",
    "seed",
    "logger",
    "run_name",
    "wandb_project",
    "neptune_project",
    "check_for_nan",
    "torch_compile_mode",
    "multi_gpu",
)
"""Entries of a configuration that runners read."""
OF_SCRIPTS = (
    "class_name",
    "runner_class_name",
    "device",
    "max_iterations",
    "experiment_name",
    "resume",
    "resume_path",
    "load_run",
    "load_checkpoint",
    "checkpoint",
    "clip_actions",
)
"""Entries that training scripts and wrappers of environments read, and runners do not."""
PPO = {
    "num_learning_epochs": 5,
    "num_mini_batches": 4,
    "clip_param": 0.2,
    "gamma": 0.99,
    "lam": 0.95,
    "value_loss_coef": 1.0,
    "entropy_coef": 0.01,
    "learning_rate": 1e-3,
    "max_grad_norm": 1.0,
    "optimizer": "adam",
    "use_clipped_value_loss": True,
    "schedule": "adaptive",
    "desired_kl": 0.01,
    "normalize_advantage_per_mini_batch": False,
    "use_mixed_precision": False,
    "rnd_cfg": None,
    "symmetry_cfg": None,
    "share_cnn_encoders": False,
    "grad_reduce_bucket_mb": 25,
}
"""Entries of PPO with the defaults of rsl_rl 3 and later."""
PPO_UNTIL_2 = {
    "num_learning_epochs": 1,
    "num_mini_batches": 1,
    "gamma": 0.998,
    "entropy_coef": 0.0,
    "schedule": "fixed",
}
"""Defaults that were others until rsl_rl 2.3."""
DISTILLATION = {
    "num_learning_epochs": 1,
    "gradient_length": 15,
    "learning_rate": 1e-3,
    "max_grad_norm": None,
    "loss_type": "mse",
    "optimizer": "adam",
    "use_mixed_precision": False,
    "rnd_cfg": None,
    "symmetry_cfg": None,
    "grad_reduce_bucket_mb": 25,
}
"""Entries of Distillation with their defaults."""
ACTIVATIONS = {
    "elu": "elu",
    "crelu": "elu",  # rsl_rl's name of CELU, which is ELU with its one parameter of 1
    "selu": "selu",
    "relu": "relu",
    "lrelu": "leaky_relu",
    "tanh": "tanh",
    "gelu": "gelu",
    "swish": "silu",
}
"""Names of activations, and their names here."""
NOISE = ("init_noise_std", "noise_std_type", "state_dependent_std")
MEMORY = ("rnn_type", "rnn_hidden_dim", "rnn_num_layers", "rnn_hidden_size")


@dataclass(frozen=True)
class ModelSettings:
    """A network of a configuration.

    Attributes:
        hidden: Widths of its hidden layers; -1 stands for the length of its input.
        activation: By the name that it has here.
        normalizes: Its observations are normalized by running statistics.
        std: Initial standard deviation; None where the network has none.
        std_type: "scalar" or "log", what of the standard deviation is learned.
        memory: "lstm" or "gru"; None without.
        memory_size: Size of the memory.
    """

    hidden: tuple[int, ...] = (256, 256, 256)
    activation: str = "elu"
    normalizes: bool = False
    std: float | None = None
    std_type: str = "scalar"
    memory: str | None = None
    memory_size: int = 256

    def widths(self, size: int) -> tuple[int, ...]:
        """Widths of its hidden layers, for inputs of a length."""
        return tuple(size if width == -1 else width for width in self.hidden)


@dataclass(frozen=True)
class Settings:
    """A configuration, read.

    Attributes:
        form: Major version of rsl_rl whose names it has: 3 with `policy`, 4 with `actor` and
            `critic`, 5 where these have a `distribution_cfg`. Environments tell 2 from 3.
        is_distillation: A student learns from a teacher.
        models: "actor" and "critic", or "student" and "teacher".
        algorithm: All entries of the algorithm.
        obs_groups: Groups of observations by the set that they are in.
        n_steps: Steps of each environment in a rollout.
        save_interval: Iterations between two checkpoints.
        seed: Of the run; None for any.
        logger: Name or dict of the logger.
        run_name: For the console.
        compiles: Losses are compiled.
        raw: The configuration.
    """

    form: int
    is_distillation: bool
    models: dict[str, ModelSettings]
    algorithm: dict[str, Any]
    obs_groups: dict[str, list[str]]
    n_steps: int
    save_interval: int
    seed: int | None
    logger: Any
    run_name: str
    compiles: bool
    raw: dict[str, Any] = field(repr=False)

    def until_2(self) -> Settings:
        """The same as rsl_rl 2 reads it, which the environment tells from 3."""
        given = self.raw["algorithm"]
        usual = {} if self.is_distillation else PPO_UNTIL_2
        changed = {name: x for name, x in usual.items() if name not in given}
        return replace(self, form=2, algorithm={**self.algorithm, **changed})

    def ppo_options(self) -> dict[str, Any]:
        """Options of `sharpwave.PPO` that say the same of the algorithm."""
        given = self.algorithm
        shared = {
            "n_steps": self.n_steps,
            "n_epochs": given["num_learning_epochs"],
            "ortho_init": False,
            "anneal_lr": False,
            "compile": self.compiles,
        }
        if self.is_distillation:
            n_minibatches = max(1, round(self.n_steps / given["gradient_length"]))
            length, norm = self.n_steps / n_minibatches, given["max_grad_norm"]
            return {
                **shared,
                "n_minibatches": n_minibatches,
                "learning_rate": given["learning_rate"],
                # rsl_rl adds up the losses of so many steps, whose mean is minimized here.
                "max_grad_norm": 1e30 if norm is None else norm / length,
            }
        is_adaptive = given["schedule"] == "adaptive" and given["desired_kl"] is not None
        rate = given["learning_rate"]
        adaptive = {"learning_rate": f"adaptive({rate!r})", "desired_kl": given["desired_kl"]}
        return {
            **shared,
            "n_minibatches": given["num_mini_batches"],
            "normalize_advantages": given["normalize_advantage_per_mini_batch"],
            "clip_eps": given["clip_param"],
            "clip_vloss": given["use_clipped_value_loss"],
            "gamma": given["gamma"],
            "gae_lambda": given["lam"],
            # The value loss here has a ½.
            "vf_coef": 2.0 * given["value_loss_coef"],
            "ent_coef": given["entropy_coef"],
            "max_grad_norm": given["max_grad_norm"],
            **(adaptive if is_adaptive else {"learning_rate": rate}),
        }


def read_settings(config: Mapping[str, Any]) -> Settings:
    """Read a configuration, as `runner(env, train_cfg)` takes it.

    Raises:
        ValueError: An entry is unknown (the nearest one is in the message), missing, or has no
            counterpart here.
    """
    raw = {name: value for name, value in config.items() if not _is_missing(value)}
    check_entries(raw, {*RUNNER, *OF_SCRIPTS}, "train_cfg")
    for name in ("num_steps_per_env", "algorithm"):
        if name not in raw:
            raise ValueError(f"train_cfg must have an entry {name!r}, got {sorted(raw)}")
    algorithm = dict(raw["algorithm"])
    kind = _class_name(algorithm.pop("class_name", "PPO"))
    if kind not in ("PPO", "Distillation"):
        raise refuse("algorithm.class_name", kind, "'PPO' or 'Distillation'")
    is_distillation = kind == "Distillation"
    roles = ("student", "teacher") if is_distillation else ("actor", "critic")
    form, models = _models(raw, roles)
    usual = DISTILLATION if is_distillation else PPO
    check_entries(algorithm, usual, "algorithm")
    algorithm = {**usual, **algorithm}
    _check_algorithm(algorithm, is_distillation)
    compile_mode = raw.get("torch_compile_mode")
    if compile_mode not in (None, "default"):
        raise refuse("torch_compile_mode", compile_mode, "None or 'default'")
    groups = raw.get("obs_groups") or {}
    return Settings(
        form,
        is_distillation,
        models,
        algorithm,
        {name: list(some) for name, some in groups.items()},
        raw["num_steps_per_env"],
        raw.get("save_interval", 50),
        raw.get("seed"),
        raw.get("logger", "tensorboard"),
        raw.get("run_name") or "",
        compile_mode is not None,
        raw,
    )


def _check_algorithm(given: dict[str, Any], is_distillation: bool) -> None:
    if given["optimizer"] != "adam":
        raise refuse("optimizer", given["optimizer"], "'adam'")
    if given["use_mixed_precision"]:
        raise refuse("use_mixed_precision", True, "False")
    if not is_distillation:
        if given["schedule"] not in ("adaptive", "fixed", "constant"):
            raise refuse("schedule", given["schedule"], "'adaptive' or 'fixed'")
        if given["share_cnn_encoders"]:
            raise refuse("share_cnn_encoders", True, "False")
        return
    if given["loss_type"] not in ("mse", "huber"):
        raise refuse("loss_type", given["loss_type"], "'mse' or 'huber'")
    for name in ("rnd_cfg", "symmetry_cfg"):
        if given[name] is not None:
            raise refuse(name, given[name], "None for Distillation")


def _models(raw: dict[str, Any], roles: tuple[str, str]) -> tuple[int, dict[str, ModelSettings]]:
    """The form of a configuration, and its two networks."""
    if all(isinstance(raw.get(role), Mapping) for role in roles):
        if raw.get("empirical_normalization"):
            raise refuse("empirical_normalization", True, "obs_normalization of the two models")
        first, second = roles
        is_newest = "stochastic" not in raw[first] or _is_missing(raw[first]["stochastic"])
        models = {first: _model(raw[first], first), second: _model(raw[second], second)}
        if second == "critic":
            for name in ("activation", "memory", "memory_size"):
                ours, theirs = getattr(models[first], name), getattr(models[second], name)
                if ours != theirs:
                    raise refuse(f"critic.{name}", theirs, f"that of the actor, {ours!r},")
        if models[first].std is None:
            raise ValueError(f"{first} must have a distribution_cfg, got {dict(raw[first])}")
        return (5 if is_newest else 4), models
    policy = raw.get("policy")
    if policy is None:
        raise ValueError(
            f"train_cfg must have an entry 'policy', or {roles[0]!r} and {roles[1]!r}, got "
            f"{sorted(raw)}"
        )
    return 3, _models_of_policy(dict(policy), roles, raw.get("empirical_normalization"))


def _model(given: Mapping[str, Any], role: str) -> ModelSettings:
    """A network as rsl_rl 4 and 5 describe it."""
    given = {name: value for name, value in given.items() if not _is_missing(value)}
    kind = _class_name(given.get("class_name", "MLPModel"))
    if kind not in ("MLPModel", "RNNModel"):
        raise refuse(f"{role}.class_name", kind, "'MLPModel' or 'RNNModel'")
    known = ("class_name", "hidden_dims", "activation", "obs_normalization", "distribution_cfg")
    own = MEMORY if kind == "RNNModel" else ()
    check_entries(given, {*known, "stochastic", *NOISE, *own}, role)
    noise = _noise(given, role)
    return ModelSettings(
        tuple(given.get("hidden_dims", (256, 256, 256))),
        _activation(given.get("activation", "elu"), f"{role}.activation"),
        bool(given.get("obs_normalization", False)),
        **noise,
        **(_memory(given) if own else {}),
    )


def _noise(given: Mapping[str, Any], role: str) -> dict[str, Any]:
    """The standard deviation of a model, where it has one."""
    if "stochastic" in given:  # rsl_rl 4
        if given.get("state_dependent_std"):
            raise refuse("state_dependent_std", True, "False")
        if not given["stochastic"]:
            return {}
        return _std(given.get("init_noise_std", 1.0), given.get("noise_std_type", "scalar"))
    distribution = given.get("distribution_cfg")
    if distribution is None:
        return {}
    distribution = {name: x for name, x in distribution.items() if not _is_missing(x)}
    kind = _class_name(distribution.get("class_name", "GaussianDistribution"))
    if kind != "GaussianDistribution":
        raise refuse(f"{role}.distribution_cfg.class_name", kind, "'GaussianDistribution'")
    known = ("class_name", "init_std", "std_range", "std_type", "learn_std")
    check_entries(distribution, known, f"{role}.distribution_cfg")
    if not distribution.get("learn_std", True):
        raise refuse("learn_std", False, "True")
    if "std_range" in distribution and tuple(distribution["std_range"]) != (1e-6, 1e6):
        raise refuse("std_range", distribution["std_range"], "its default, (1e-6, 1e6)")
    return _std(distribution.get("init_std", 1.0), distribution.get("std_type", "scalar"))


def _std(start: float, kind: str) -> dict[str, Any]:
    if kind not in ("scalar", "log"):
        raise refuse("noise_std_type", kind, "'scalar' or 'log'")
    return {"std": float(start), "std_type": kind}


def _memory(given: Mapping[str, Any]) -> dict[str, Any]:
    kind = str(given.get("rnn_type", "lstm")).lower()
    if kind not in ("lstm", "gru"):
        raise refuse("rnn_type", kind, "'lstm' or 'gru'")
    if given.get("rnn_num_layers", 1) != 1:
        raise refuse("rnn_num_layers", given["rnn_num_layers"], "1")
    size = given.get("rnn_hidden_dim", given.get("rnn_hidden_size", 256))
    return {"memory": kind, "memory_size": int(size)}


def _models_of_policy(
    given: dict[str, Any], roles: tuple[str, str], normalizes: bool | None
) -> dict[str, ModelSettings]:
    """Both networks as rsl_rl 2 and 3 describe them."""
    given = {name: value for name, value in given.items() if not _is_missing(value)}
    usual = {"actor": "ActorCritic", "student": "StudentTeacher"}[roles[0]]
    kind = _class_name(given.get("class_name", usual))
    if kind not in (usual, f"{usual}Recurrent"):
        raise refuse("policy.class_name", kind, f"{usual!r} or '{usual}Recurrent'")
    is_recurrent = kind.endswith("Recurrent")
    names = [f"{role}_{entry}" for role in roles for entry in ("hidden_dims", "obs_normalization")]
    own = (*MEMORY, "teacher_recurrent") if is_recurrent else ()
    check_entries(given, {"class_name", "activation", *NOISE, *names, *own}, "policy")
    if given.get("state_dependent_std"):
        raise refuse("state_dependent_std", True, "False")
    start = given.get("init_noise_std", 0.1 if roles[0] == "student" else 1.0)
    noise = _std(start, given.get("noise_std_type", "scalar"))
    activation = _activation(given.get("activation", "elu"), "policy.activation")
    memory = _memory(given) if is_recurrent else {}
    return {
        role: ModelSettings(
            tuple(given.get(f"{role}_hidden_dims", (256, 256, 256))),
            activation,
            bool(given.get(f"{role}_obs_normalization", normalizes or False)),
            **(noise if role == roles[0] else {}),
            **(memory if role != "teacher" else {}),
        )
        for role in roles
    }


def _activation(name: str, entry: str) -> str:
    found = ACTIVATIONS.get(str(name).lower())
    if found is None:
        raise refuse(entry, name, f"one of {sorted(ACTIVATIONS)}{did_you_mean(name, ACTIVATIONS)}")
    return found


def _class_name(kind: Any) -> str:
    """The name of a class that is given by its name, with its module, or itself."""
    if isinstance(kind, type):
        return kind.__name__
    return str(kind).replace(":", ".").rpartition(".")[2]


def _is_missing(value: Any) -> bool:
    """Return whether an entry was never set: what Isaac Lab has from `dataclasses.MISSING`."""
    return type(value).__name__ == "_MISSING_TYPE"


def resolved(function: str | Callable[..., Any], entry: str) -> Callable[..., Any]:
    """A function that is given itself, or as `module:name` or `module.name`.

    Raises:
        ValueError: There is none of that name.
    """
    if callable(function):
        return function
    module, _, name = str(function).replace(":", ".").rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise refuse(entry, function, "a function, or its name as in 'module:name',") from error
    return found  # type: ignore[no-any-return]
