"""States of SB3's optimizers, taken over by the optimizers of a model.

SB3 counts the parameters of an optimizer; their names are those of the policy's tensors, in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sharpwave.compat.sb3.weights import BUFFERS, Weight, weights_of
from sharpwave.core.notice import notice

__all__ = ["OPTIMIZERS", "load_optimizers"]

PREFIXES = {
    "policy.optimizer.pth": "",
    "actor.optimizer.pth": "actor.",
    "critic.optimizer.pth": "critic.",
}
OF_VALUES = {"dqn": "q_net.", "qr_dqn": "quantile_net."}
"""Prefixes of what `policy.optimizer.pth` moves, where it is not the whole policy."""
TEMPERATURE = "ent_coef_optimizer.pth"
OPTIMIZERS = (*PREFIXES, TEMPERATURE)
"""Files of a zip."""
STEP = "step"


class Place(NamedTuple):
    """The place of a parameter in the block of its network."""

    block: str
    offset: int


def load_optimizers(model: Any, states: Mapping[str, Any], names: Mapping[str, Any]) -> None:
    """Let the optimizers of a model go on from where SB3's stood.

    One that does not fit, since the program gives another optimizer or another network, begins
    anew, and a notice says so.

    Args:
        model: The model, with the weights of the file.
        states: Optimizers' `state_dict` by the name of their file.
        names: Tensors of the policy, in the file's order.
    """
    for file, state in states.items():
        moved = [TEMPERATURE] if file == TEMPERATURE else _names(model, file, names)
        if not _load(model, state, moved):
            notice(f"{file} is of another optimizer than this model has, which begins anew")


def _names(model: Any, file: str, names: Mapping[str, Any]) -> list[str]:
    """The parameters that an optimizer moves."""
    prefix = OF_VALUES.get(model.agent.name, "") if PREFIXES[file] == "" else PREFIXES[file]
    copies = ("pi_features_extractor.", "vf_features_extractor.")
    return [
        name
        for name in names
        if name.startswith(prefix)
        and not name.startswith(copies)
        and name.rpartition(".")[2] not in BUFFERS
    ]


def _load(model: Any, saved: Mapping[str, Any], names: list[str]) -> bool:
    """Take over the state of one optimizer; False, and nothing has changed, if it does not fit."""
    learner = model.agent.learner
    numbers = [number for group in saved["param_groups"] for number in group["params"]]
    states = [saved["state"][number] for number in numbers if number in saved["state"]]
    if not states:
        return True  # it has not stepped yet
    weights = _temperature(learner) if names == [TEMPERATURE] else weights_of(model)
    if len(states) != len(names) or not weights.keys() >= set(names):
        return False
    writes: list[tuple[Tensor, Tensor]] = []
    for name, state in zip(names, states, strict=True):
        weight = weights[name]
        place = _place(learner, weight.view)
        if place is None:
            return False
        own = {
            key: torch.as_tensor(x) for key, x in learner.optimizers[place.block].arrays().items()
        }
        moments = state.keys() - {STEP}
        if moments != own.keys() - {"lr", "steps"}:
            return False
        for key in moments:
            if tuple(state[key].shape) != weight.shape:
                return False
            writes.append((_seen_as(own[key], weight.view, place.offset), state[key]))
        if "steps" in own:
            writes.append((own["steps"], torch.as_tensor(float(state[STEP]))))
    for target, value in writes:
        target.copy_(value.reshape(target.shape))
    return True


def _temperature(learner: Any) -> dict[str, Weight]:
    if "temperature" not in learner.optimizers:
        return {}
    block = _blocks(learner)["temperature"]
    return {TEMPERATURE: Weight(block, (1,))}


def _blocks(learner: Any) -> dict[str, Tensor]:
    """The memory of each network that an optimizer moves."""
    flats = learner.networks if learner.kind == "native" else learner.flats
    return {name: torch.as_tensor(flats[name].data) for name in learner.optimizers}


def _place(learner: Any, view: Tensor) -> Place | None:
    at = view.data_ptr()
    for name, block in _blocks(learner).items():
        offset = (at - block.data_ptr()) // block.element_size()
        if 0 <= offset < block.numel():
            return Place(name, offset)
    return None


def _seen_as(moment: Tensor, view: Tensor, offset: int) -> Tensor:
    """The part of a moment that belongs to a parameter, in its shape."""
    return torch.as_strided(moment, view.size(), view.stride(), offset)
