"""Settings of a file of SB3, as its JSON tells them."""

from __future__ import annotations

import base64
import binascii
import pickletools
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from sharpwave.compat.sb3.refusals import refuse
from sharpwave.core.notice import notice

__all__ = ["Settings", "module_of"]

SERIALIZED = ":serialized:"
"""The mark of a pickle, which nobody runs here."""
RENAMED = {"stats_window_size": "_stats_window_size"}
"""SB3's attributes of arguments that have another name there."""
READ_APART = ("policy_kwargs", "device", "_init_setup_model", "tensorboard_log")
NOISE = ("_mu", "_sigma", "_theta", "_dt")
OWN_OPTIMIZERS = ("Adam", "RMSprop", "RMSpropTFLike")
SOFT = ("sac", "tqc", "crossq")
"""Algorithms whose actors have means and deviations apart."""
KEPT = ("log_std_init", "ortho_init", "n_critics", "n_quantiles")
"""Entries of `policy_kwargs` that JSON holds, of those that this library knows."""


def module_of(entry: Any) -> str:
    """The module of a class that the JSON names; empty if it does not."""
    return str(entry.get("__module__", "")) if isinstance(entry, Mapping) else ""


class Settings:
    """Settings of a file.

    Args:
        data: Its JSON.
        weights: Tensors of the policy by SB3's names.
        changed: Arguments that a program gives in place of saved ones.
    """

    def __init__(
        self, data: Mapping[str, Any], weights: Mapping[str, Any], changed: Mapping[str, Any]
    ) -> None:
        self.data = data
        self.weights = weights
        self.changed = changed

    def arguments(self, kind: Any) -> dict[str, Any]:
        """Arguments of the constructor of an algorithm, but for its networks and device.

        Raises:
            ValueError: One of them is known by a pickle alone.
        """
        found: dict[str, Any] = {}
        for name in kind.arguments:
            saved = self.data.get(RENAMED.get(name, name))
            if name in READ_APART or name == "policy":
                continue
            if name in self.changed:
                found[name] = self.changed[name]
            elif saved is not None:
                found |= self._argument(name, saved)
        optimizer = self._policy_kwargs.get("optimizer_kwargs")
        if "rms_prop_eps" in kind.arguments and isinstance(optimizer, Mapping):
            found.setdefault("rms_prop_eps", float(optimizer.get("eps", 1e-5)))
        return found

    def _argument(self, name: str, saved: Any) -> dict[str, Any]:
        """The argument of that name; nothing where its default is as good."""
        if not (isinstance(saved, Mapping) and SERIALIZED in saved):
            return {name: saved}
        if name in ("learning_rate", "clip_range", "clip_range_vf"):
            return {name: _constant(name, saved)}
        if name == "action_noise":
            return {name: _noise(saved)}
        if name == "target_entropy" and "numpy" in str(saved.get(":type:")):
            return {}  # what "auto" became
        if name == "train_freq":
            return {name: _train_freq(saved)}
        if name == "replay_buffer_class":
            module = module_of(saved)
            if module == "stable_baselines3.common.buffers":
                return {}
        if name == "rollout_buffer_class":
            return {}  # one of its own makes other minibatches of the same steps
        if name == "replay_buffer_kwargs" and not set(saved) - {":type:", SERIALIZED}:
            return {}
        raise _unknown(name)

    @property
    def _policy_kwargs(self) -> Mapping[str, Any]:
        saved = self.data.get("policy_kwargs")
        return saved if isinstance(saved, Mapping) else {}

    def policy(self, kind: Any) -> tuple[str, dict[str, Any]]:
        """The policy by its name, and `policy_kwargs`, as the weights and the JSON tell them.

        Raises:
            ValueError: The networks have parts that are known by a pickle alone.
        """
        given = self.changed.get("policy_kwargs")
        names = self.weights
        if any("features_extractor.extractors." in name for name in names):
            policy = "MultiInput"
        elif any("features_extractor.cnn." in name for name in names):
            policy = "Cnn"
        else:
            policy = "MultiInput" if self._is_dict else "Mlp"
        policy += kind.form.ends
        if given is not None:
            return policy, dict(given)
        return policy, self._kwargs_of_file(kind)

    @property
    def _is_dict(self) -> bool:
        space = self.data.get("observation_space")
        return isinstance(space, Mapping) and str(space.get(":type:")).endswith("Dict'>")

    def _kwargs_of_file(self, kind: Any) -> dict[str, Any]:
        saved = self._policy_kwargs
        kwargs = {name: saved[name] for name in KEPT if name in saved and name in kind.form.entries}
        kwargs |= self._sizes(kind)
        if "activation_fn" in saved:
            kwargs["activation_fn"] = _class_name(saved["activation_fn"])
        extractor = _class_name(saved.get("features_extractor_class", ""))
        module = str(saved.get("features_extractor_class", ""))
        if extractor and "stable_baselines3." not in module:
            raise _unknown(
                "policy_kwargs", f"whose features_extractor_class is {extractor} of the program"
            )
        if isinstance(saved.get("features_extractor_kwargs"), Mapping):
            kwargs["features_extractor_kwargs"] = dict(saved["features_extractor_kwargs"])
        optimizer = _class_name(saved.get("optimizer_class", "Adam"))
        if optimizer not in OWN_OPTIMIZERS:
            notice(f"optimizer_class {optimizer} is not taken over: give policy_kwargs to learn on")
        return kwargs

    def _sizes(self, kind: Any) -> dict[str, Any]:
        """Widths and numbers that the shapes of the weights tell."""
        name = kind.Agent.name
        if name in ("ppo", "a2c"):
            sizes: dict[str, Any] = {
                "net_arch": {
                    "pi": self._widths("mlp_extractor.policy_net"),
                    "vf": self._widths("mlp_extractor.value_net"),
                }
            }
            lstm = self.weights.get("lstm_actor.weight_hh_l0")
            if lstm is not None:
                sizes["lstm_hidden_size"] = int(lstm.shape[1])
            return sizes
        if name in ("dqn", "qr_dqn"):
            net = "q_net.q_net" if name == "dqn" else "quantile_net.quantile_net"
            *widths, outputs = self._widths(net)
            own = self.data.get("n_quantiles") or self._policy_kwargs.get("n_quantiles")
            return {"net_arch": widths} | (
                {} if name == "dqn" else {"n_quantiles": own or self._quantiles(outputs)}
            )
        body = "actor.latent_pi" if name in SOFT else "actor.mu"
        actor = self._widths(body)
        *critic, outputs = self._widths("critic.qf0")
        heads = {found[1] for n in self.weights if (found := re.match(r"critic\.(qf\d+)\.", n))}
        sizes = {
            "net_arch": {"pi": actor if name in SOFT else actor[:-1], "qf": critic},
            "n_critics": len(heads),
        }
        return sizes | ({"n_quantiles": outputs} if name == "tqc" else {})

    def _quantiles(self, outputs: int) -> int:
        space: Any = self.space("action_space")
        return outputs // int(space.n)

    def _widths(self, name: str) -> list[int]:
        """Outputs of the linear layers of a perceptron, in order."""
        layers = {
            int(found[1]): int(weight.shape[0])
            for key, weight in self.weights.items()
            if (found := re.fullmatch(rf"{re.escape(name)}\.(\d+)\.weight", key))
        }
        return [layers[i] for i in sorted(layers)]

    def space(self, name: str) -> spaces.Space[Any]:
        """A space, of what the JSON says of it.

        Raises:
            ValueError: It does not say enough.
        """
        saved = self.data.get(name)
        if not isinstance(saved, Mapping):
            raise _no_space(name)
        kind = _class_name(str(saved.get(":type:", "")))
        try:
            if kind == "Box":
                return _box(name, saved)
            if kind == "Discrete":
                return spaces.Discrete(int(saved["n"]), start=int(saved.get("start", 0)))
            if kind == "MultiDiscrete":
                nvec = saved["nvec"]
                return spaces.MultiDiscrete(_numbers(nvec).astype(np.int64))
            if kind == "MultiBinary":
                return spaces.MultiBinary(saved["n"])
        except (KeyError, TypeError, ValueError) as error:
            raise _no_space(name) from error
        raise _no_space(name)


def _box(name: str, saved: Mapping[str, Any]) -> spaces.Space[Any]:
    dtype: Any = np.dtype(str(saved["dtype"]))
    shape = tuple(int(size) for size in saved["_shape"])
    bounds: list[Any] = []
    for bound, least in (("low", -np.inf), ("high", np.inf)):
        text = str(saved[bound])
        if "..." in text and name == "action_space":
            raise _no_space(name)
        if "..." in text:  # nothing depends on the bounds of observations
            number = {"low": 0, "high": 255}[bound] if dtype == np.uint8 else least
            bounds.append(np.full(shape, number, dtype))
        else:
            bounds.append(_numbers(text).astype(dtype).reshape(shape))
    low, high = bounds
    return spaces.Box(low, high, shape, dtype.type)


def _numbers(text: Any) -> Any:
    if isinstance(text, list):
        return np.asarray(text)
    return np.array([float(word) for word in str(text).replace("[", " ").replace("]", " ").split()])


def _no_space(name: str) -> ValueError:
    return ValueError(f"env must be given: the file does not say its {name} but in a pickle")


def _unknown(name: str, more: str = "") -> ValueError:
    """The error of a setting that is in a pickle alone."""
    return refuse(name, f"a pickle{' ' + more if more else ''}", f"given, as {name}=...")


def _class_name(text: Any) -> str:
    """The last part of a class's name in text such as "<class 'torch.nn.ReLU'>"."""
    found = re.search(r"([\w.]+)'?>?$", str(text))
    return found[1].rpartition(".")[2] if found else ""


def _constant(name: str, saved: Mapping[str, Any]) -> float:
    """The number of a schedule of SB3's that is constant."""
    for value in (saved, saved.get("value_schedule"), saved.get("val")):
        found = re.search(r"ConstantSchedule\(val=([-+.\deE]+)\)", str(value))
        if found:
            return float(found[1])
    if isinstance(saved.get("val"), int | float):
        return float(saved["val"])
    raise _unknown(name, "of a function")


def _noise(saved: Mapping[str, Any]) -> Any:
    """Action noise with the numbers that the JSON has."""
    kind = _class_name(saved.get(":type:", ""))
    if not {"_mu", "_sigma"} <= set(saved) or "..." in f"{saved['_mu']}{saved['_sigma']}":
        raise _unknown("action_noise")
    made = type(kind, (), {})()
    for name in NOISE:
        if name in saved:
            numbers = _numbers(saved[name])
            setattr(made, name, float(numbers[0]) if name in ("_theta", "_dt") else numbers)
    return made


def _train_freq(saved: Mapping[str, Any]) -> Any:
    """A number of steps or episodes, from the listing of a pickle, which is not run."""
    try:
        codes = list(pickletools.genops(base64.b64decode(saved[SERIALIZED])))
    except (ValueError, TypeError, binascii.Error, IndexError) as error:
        raise _unknown("train_freq") from error
    counts = [x for code, x, _ in codes if code.name in ("BININT", "BININT1", "BININT2")]
    units = [x for _, x, _ in codes if x in ("step", "episode")]
    if len(counts) != 1 or len(units) != 1:
        raise _unknown("train_freq")
    return counts[0], units[0]
