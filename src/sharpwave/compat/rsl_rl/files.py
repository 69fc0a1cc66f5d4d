"""Checkpoints of rsl_rl, of every version, and of this package: files `model_{iteration}.pt`.

What is read is tensors, numbers and names alone; no code in a file is run.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sharpwave.compat.rsl_rl.networks import Groups, RobotPolicy
from sharpwave.compat.rsl_rl.refusals import PAGE

__all__ = ["Saved", "load_network", "load_optimizer", "network_of", "optimizer_of", "read", "write"]

STD = "std"
"""Name of the standard deviation among the tensors of a network."""
MEMORIES = {"actor": "memory_a", "critic": "memory_c", "student": "memory_s", "teacher": "memory_t"}
NORM = {"_mean": "mean", "_var": "var", "count": "n"}
"""Statistics of rsl_rl's normalizers, and their names here."""
OF_NORMALIZER = {"actor": "obs_norm_state_dict", "critic": "privileged_obs_norm_state_dict"}
"""Entries for statistics until rsl_rl 2.3."""
OF_NORMALIZER |= {"student": OF_NORMALIZER["actor"], "teacher": OF_NORMALIZER["critic"]}

DAMAGED = (
    *(pickle.UnpicklingError, RuntimeError, EOFError, KeyError, IndexError),
    *(AttributeError, TypeError, ValueError),
)
"""Errors by which torch says that a file is none of its own, or holds more than tensors."""

Network = dict[str, Tensor]
"""Tensors of a network by `mlp.0.weight`, ..., `rnn.weight_ih_l0`, ..., `norm.mean`, ..., `std`."""


@dataclass
class Saved:
    """The contents of a checkpoint, whatever wrote it.

    Attributes:
        form: 2 to 5, the major version of rsl_rl that writes such files.
        networks: By role: "actor" and "critic", or "student" and "teacher".
        optimizer: State of torch's Adam; None where there is none.
        rnd: State of random network distillation; None without.
        iteration: Iterations before it was written.
        infos: As they were given to `save`.
    """

    form: int
    networks: dict[str, Network]
    optimizer: Mapping[str, Any] | None
    rnd: Mapping[str, Tensor] | None
    iteration: int
    infos: Any


def read(path: str | os.PathLike[str]) -> Saved:
    """Read a checkpoint.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is no checkpoint, or holds more than tensors, numbers and names.
    """
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
    except DAMAGED as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"{path} must be a checkpoint of tensors, numbers and names: {reason} (see {PAGE})"
        ) from error
    saved = saved if isinstance(saved, Mapping) else {"a single object": saved}
    if "model_state_dict" in saved:
        form, networks = _networks_of_model(saved)
    elif any(f"{role}_state_dict" in saved for role in MEMORIES):
        form, networks = _networks_of_models(saved)
    else:
        raise ValueError(f"{path} must be a checkpoint of rsl_rl, got one of {sorted(saved)}")
    return Saved(
        form,
        networks,
        saved.get("optimizer_state_dict"),
        saved.get("rnd_state_dict"),
        int(saved.get("iter", 0)),
        saved.get("infos"),
    )


def _networks_of_model(saved: Mapping[str, Any]) -> tuple[int, dict[str, Network]]:
    """Networks as rsl_rl 2 and 3 save them: all in one."""
    model: Mapping[str, Tensor] = saved["model_state_dict"]
    form = 2 if any(entry in saved for entry in OF_NORMALIZER.values()) else 3
    networks: dict[str, Network] = {}
    for role, memory in MEMORIES.items():
        found = {
            **_under(model, f"{role}.", "mlp."),
            **_under(model, f"{memory}.rnn.", "rnn."),
            **_norm(_under(model, f"{role}_obs_normalizer.", "")),
            **_norm(saved.get(OF_NORMALIZER[role], {})),
        }
        if any(name.startswith("mlp.") for name in found):
            networks[role] = found
    first = networks.get("actor", networks.get("student"))
    if first is not None:
        first |= _std(model)
    return form, networks


def _networks_of_models(saved: Mapping[str, Any]) -> tuple[int, dict[str, Network]]:
    """Networks as rsl_rl 4 and 5 save them: each by itself."""
    networks: dict[str, Network] = {}
    form = 4
    for role in MEMORIES:
        model: Mapping[str, Tensor] | None = saved.get(f"{role}_state_dict")
        if model is None:
            continue
        if any(name.startswith("distribution.") for name in model):
            form = 5
        networks[role] = {
            **_under(model, "mlp.", "mlp."),
            **_under(model, "rnn.rnn.", "rnn."),
            **_norm(_under(model, "obs_normalizer.", "")),
            **_std(model),
        }
    return form, networks


def _under(state: Mapping[str, Tensor], prefix: str, name: str) -> Network:
    return {
        name + key.removeprefix(prefix): x for key, x in state.items() if key.startswith(prefix)
    }


def _norm(state: Mapping[str, Tensor]) -> Network:
    return {
        f"norm.{ours}": state[theirs].squeeze(0) if theirs != "count" else state[theirs]
        for theirs, ours in NORM.items()
        if state
    }


def _std(model: Mapping[str, Tensor]) -> Network:
    for name in ("std", "distribution.std_param"):
        if name in model:
            return {STD: model[name]}
    for name in ("log_std", "distribution.log_std_param"):
        if name in model:
            return {STD: model[name].exp()}
    return {}


def network_of(mlp: nn.Module, features: Groups, rnn: nn.Module | None) -> Network:
    """The tensors of a network, as copies on the CPU."""
    found: dict[str, Tensor] = {f"mlp.{name}": x for name, x in mlp.state_dict().items()}
    if rnn is not None:
        found |= {f"rnn.{name}": x for name, x in rnn.state_dict().items()}
    if features.norm is not None:
        found |= {f"norm.{name}": x for name, x in features.norm.state_dict().items()}
    return {name: x.detach().cpu().clone() for name, x in found.items()}


def load_network(
    saved: Network, role: str, mlp: nn.Module, features: Groups, rnn: nn.Module | None
) -> None:
    """Take over the tensors of a network.

    Raises:
        ValueError: It is another network: the message names what differs.
    """
    parts: dict[str, nn.Module | None] = {"mlp": mlp, "rnn": rnn, "norm": features.norm}
    for name, module in parts.items():
        state = _under(saved, f"{name}.", "")
        if bool(state) != (module is not None):
            said = {"rnn": "a recurrent layer", "norm": "normalized observations"}
            there, here = ("has", "has not") if state else ("has not", "has")
            what = said.get(name, "layers")
            raise ValueError(f"{role} of the checkpoint {there} {what}, that of train_cfg {here}")
        if module is None:
            continue
        own = module.state_dict()
        shapes = {key: tuple(x.shape) for key, x in own.items()}
        found = {key: tuple(x.shape) for key, x in state.items()}
        if shapes != found:
            raise ValueError(f"{role} of the checkpoint must have shapes {shapes}, got {found}")
        module.load_state_dict(state)


def write(path: str | os.PathLike[str], saved: Saved) -> None:
    """Write a checkpoint in the form of its version of rsl_rl."""
    forms = {2: _as_model, 3: _as_model, 4: _as_models, 5: _as_models}
    contents = forms[saved.form](saved)
    contents["optimizer_state_dict"] = saved.optimizer
    if saved.rnd is not None:
        contents["rnd_state_dict"] = dict(saved.rnd)
    contents |= {"iter": saved.iteration, "infos": saved.infos}
    torch.save(contents, path)


def _as_model(saved: Saved) -> dict[str, Any]:
    model: dict[str, Tensor] = {}
    contents: dict[str, Any] = {"model_state_dict": model}
    for role, network in saved.networks.items():
        model |= _std_as(network, "std", "log_std")
        model |= _under(network, "rnn.", f"{MEMORIES[role]}.rnn.")
        model |= _under(network, "mlp.", f"{role}.")
        statistics = _norm_as(network)
        if statistics and saved.form == 2:
            contents[OF_NORMALIZER[role]] = statistics
        elif statistics:
            model |= {f"{role}_obs_normalizer.{name}": x for name, x in statistics.items()}
    return contents


def _as_models(saved: Saved) -> dict[str, Any]:
    names = ("std", "log_std")
    if saved.form == 5:
        names = ("distribution.std_param", "distribution.log_std_param")
    return {
        f"{role}_state_dict": {
            **_std_as(network, *names),
            **{f"obs_normalizer.{name}": x for name, x in _norm_as(network).items()},
            **_under(network, "mlp.", "mlp."),
            **_under(network, "rnn.", "rnn.rnn."),
        }
        for role, network in saved.networks.items()
    }


def _std_as(network: Network, linear: str, log: str) -> Network:
    if "log_std" in network:
        return {log: network["log_std"]}
    return {linear: network[STD]} if STD in network else {}


def _norm_as(network: Network) -> Network:
    if "norm.mean" not in network:
        return {}
    mean, var = network["norm.mean"].float()[None], network["norm.var"].float()[None]
    count = network["norm.n"].to(torch.int64)
    return {"_mean": mean, "_var": var, "_std": var.sqrt(), "count": count}


def _order(policy: RobotPolicy, form: int, roles: tuple[str, ...]) -> list[str]:
    """Names of parameters in the order that rsl_rl's optimizer has them."""
    names = [name for name, _ in policy.named_parameters()]
    mlp, rnn = (
        {role: [x for x in names if x.startswith(f"{role}{end}.")] for role in roles}
        for end in ("", "_rnn")
    )
    if form == 2:
        parts = [*(mlp[role] for role in roles), *(rnn[role] for role in roles)]
    else:
        pairs = [(mlp[role], rnn[role]) for role in roles]
        parts = [part for pair in pairs for part in (pair[::-1] if form == 3 else pair)]
    spread = [name for name in names if "." not in name]
    return [*spread, *(name for part in parts for name in part)]


def _pieces(policy: RobotPolicy, flat: Tensor) -> dict[str, Tensor]:
    """Views of one block by the names of parameters."""
    named = dict(policy.named_parameters())
    parts = flat.split([x.numel() for x in named.values()])
    return {name: part.view(x.shape) for (name, x), part in zip(named.items(), parts, strict=True)}


def optimizer_of(
    policy: RobotPolicy,
    arrays: Mapping[str, Tensor],
    form: int,
    roles: tuple[str, ...],
    others: int = 0,
) -> dict[str, Any]:
    """The state of an optimizer, as torch's Adam has it.

    Args:
        policy: The networks.
        arrays: The state here.
        form: Major version of rsl_rl.
        roles: Networks that learn.
        others: Tensors behind these that it is given and that never learn.
    """
    mean, square = _pieces(policy, arrays["exp_avg"]), _pieces(policy, arrays["exp_avg_sq"])
    order = _order(policy, form, roles)
    steps, lr = arrays["steps"].detach().cpu(), float(arrays["lr"])
    state = {
        i: {
            "step": steps.clone(),
            "exp_avg": mean[name].detach().cpu().clone(),
            "exp_avg_sq": square[name].detach().cpu().clone(),
        }
        for i, name in enumerate(order)
    }
    plain = torch.optim.Adam([nn.Parameter(torch.zeros(1))], lr=lr).state_dict()["param_groups"][0]
    group = {**plain, "params": list(range(len(order) + others))}
    return {"state": state if float(steps) else {}, "param_groups": [group]}


def load_optimizer(
    saved: Mapping[str, Any],
    policy: RobotPolicy,
    arrays: Mapping[str, Tensor],
    form: int,
    roles: tuple[str, ...],
) -> None:
    """Go on with the moments and the learning rate of torch's Adam.

    Raises:
        ValueError: They are those of other parameters.
    """
    state = saved["state"]
    mean, square = _pieces(policy, arrays["exp_avg"]), _pieces(policy, arrays["exp_avg_sq"])
    arrays["steps"].zero_()
    for i, name in enumerate(_order(policy, form, roles)):
        one = state.get(i)
        if one is None:  # it never had a gradient
            mean[name].zero_()
            square[name].zero_()
            continue
        if one["exp_avg"].shape != mean[name].shape:
            raise ValueError(
                f"the optimizer of the checkpoint must have shape {tuple(mean[name].shape)} for "
                f"{name}, got {tuple(one['exp_avg'].shape)}"
            )
        mean[name].copy_(one["exp_avg"])
        square[name].copy_(one["exp_avg_sq"])
        arrays["steps"].copy_(torch.as_tensor(one["step"]))
    arrays["lr"].fill_(float(saved["param_groups"][0]["lr"]))
