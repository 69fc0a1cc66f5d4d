"""Weights of the networks by the names that SB3 has for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from torch import Tensor, nn

from sharpwave.compat.sb3.refusals import absent
from sharpwave.nn.batch_renorm import BatchRenorm

__all__ = ["BUFFERS", "Weight", "weights_of"]

CNN = {0: "cnn.0", 2: "cnn.2", 4: "cnn.4", 7: "linear.0"}
"""Layers of `NatureCNN` by their number here."""

RENORM = {
    "scale": "weight",
    "bias": "bias",
    "ra_mean": "running_mean",
    "ra_var": "running_var",
    "steps": "batches",
}
"""Numbers of a layer of batch renormalization by SB3's names."""
BUFFERS = ("ra_mean", "ra_var", "steps")
"""Those of them that no optimizer moves."""


class Weight(NamedTuple):
    """A part of the parameters, seen as SB3 has it.

    Attributes:
        view: The memory of the network.
        shape: SB3's shape, of as many numbers.
    """

    view: Tensor
    shape: tuple[int, ...]

    def read(self) -> Tensor:
        """A copy of the numbers."""
        return self.view.detach().clone().reshape(self.shape)

    def write(self, value: Tensor) -> None:
        """Take over other numbers.

        Raises:
            ValueError: They have another shape.
        """
        if tuple(value.shape) != self.shape:
            raise ValueError(f"must have shape {self.shape}, got {tuple(value.shape)}")
        self.view.data.copy_(value.reshape(self.view.shape))


def weights_of(model: Any) -> dict[str, Weight]:
    """The weights of a model by SB3's names.

    Raises:
        AttributeError: The algorithm's networks have other parameters than SB3's.
    """
    family = FAMILIES.get(model.agent.name)
    if family is None:
        raise absent(f"policy of {type(model).__name__}", "state_dict")
    learner = model.agent.learner
    networks: Mapping[str, Any] = learner.networks
    if learner.kind == "native":
        networks = learner.modules
    return {name: Weight(part, _shape(part)) for name, part in family(networks, model)}


def _shape(part: Tensor) -> tuple[int, ...]:
    """SB3's shape: quantiles of actions lie in one row there."""
    shape = tuple(part.shape)
    quantiles = getattr(part, "_of_quantiles", False)
    return (shape[0] * shape[1], *shape[2:]) if quantiles else shape


Named = Iterator[tuple[str, Tensor]]


def _on_policy(networks: Mapping[str, Any], model: Any) -> Named:  # noqa: ARG001
    policy = networks["policy"]
    if policy.log_std is not None:
        yield "log_std", policy.log_std
    yield from _features(policy, "")
    if policy.recurrent:
        for name in ("actor", "critic"):
            rnn = getattr(policy, f"{name}_rnn")
            for own, parameter in rnn.named_parameters():
                yield f"lstm_{name}.{own}", parameter
    names = (("actor", "policy_net", "action_net"), ("critic", "value_net", "value_net"))
    for own, body, head in names:
        yield from _layers(getattr(policy, own), f"mlp_extractor.{body}", head)


def _dqn(networks: Mapping[str, Any], model: Any) -> Named:  # noqa: ARG001
    for own, theirs in (("q_network", "q_net"), ("target", "q_net_target")):
        yield from _features(networks[own], f"{theirs}.")
        yield from _layers(networks[own].net, f"{theirs}.q_net", None)


def _qr_dqn(networks: Mapping[str, Any], model: Any) -> Named:
    n_quantiles = model.agent.config.n_quantiles
    for own, theirs in (("q_network", "quantile_net"), ("target", "quantile_net_target")):
        yield from _features(networks[own], f"{theirs}.")
        *body, (weight_name, weight), (bias_name, bias) = _layers(
            networks[own].net, f"{theirs}.quantile_net", None
        )
        yield from body
        for name, part in ((weight_name, weight), (bias_name, bias)):
            view = part.detach().unflatten(0, (-1, n_quantiles)).transpose(0, 1)
            view._of_quantiles = True
            yield name, view


def _sac(networks: Mapping[str, Any], model: Any) -> Named:
    actor = networks["actor"]
    yield from _features(actor, "actor.")
    if actor.log_std is not None:
        yield "actor.log_std", actor.log_std
        yield from _layers(actor.net, "actor.latent_pi", "actor.mu")
    else:
        *body, (_, weight), (_, bias) = _layers(actor.net, "actor.latent_pi", "")
        yield from body
        for theirs, half in (("mu", 0), ("log_std", 1)):
            yield f"actor.{theirs}.weight", weight.detach().chunk(2)[half]
            yield f"actor.{theirs}.bias", bias.detach().chunk(2)[half]
    yield from _critics(networks, model)


def _crossq(networks: Mapping[str, Any], model: Any) -> Named:
    for i, layer in enumerate(networks["actor"].net):
        if isinstance(layer, BatchRenorm):
            yield from _renorm(layer, f"actor.latent_pi.{i}")
    yield from _sac(networks, model)


def _renorm(layer: Any, name: str, of: int | None = None) -> Named:
    """A layer of batch renormalization, or that of one of several critics."""
    for theirs, own in RENORM.items():
        part = getattr(layer, own).detach()
        if own == "batches":
            yield f"{name}.{theirs}", part
        else:
            yield f"{name}.{theirs}", part[0] if of is None else part[of, 0]


def _td3(networks: Mapping[str, Any], model: Any) -> Named:
    for own, theirs in (("actor", "actor"), ("target_actor", "actor_target")):
        yield from _features(networks[own], f"{theirs}.")
        yield from _layers(networks[own].net, f"{theirs}.mu", None)
    yield from _critics(networks, model)


def _critics(networks: Mapping[str, Any], model: Any) -> Named:
    for own, theirs in (("critics", "critic"), ("target_critics", "critic_target")):
        if own not in networks:
            continue
        net = networks[own].net
        norms = getattr(net, "batch_norms", ())
        yield from _features(networks[own], f"{theirs}.")
        for k in range(model.agent.config.n_critics):
            for i, layer in enumerate(net.layers):
                at = 2 * i
                if len(norms):  # one before each layer
                    at = 3 * i + 1
                    yield from _renorm(norms[i], f"{theirs}.qf{k}.{3 * i}", of=k)
                yield f"{theirs}.qf{k}.{at}.weight", layer.weight.detach()[k].T
                yield f"{theirs}.qf{k}.{at}.bias", layer.bias.detach()[k, 0]


def _layers(net: Any, body: str, head: str | None) -> Named:
    """The linear layers of a perceptron; without `head` the last one is one of the body."""
    layers = [(i, layer) for i, layer in enumerate(net) if isinstance(layer, nn.Linear)]
    for i, layer in layers:
        name = body if head is None or layer is not layers[-1][1] else head
        full = name if name == head else f"{name}.{i}"
        yield f"{full}.weight", layer.weight
        yield f"{full}.bias", layer.bias


def _features(network: Any, prefix: str) -> Named:
    """The parameters of a features extractor."""
    features, name = network.features, f"{prefix}features_extractor"
    if hasattr(features, "module"):
        for own, parameter in features.module.named_parameters():
            yield f"{name}.{own}", parameter
    elif hasattr(features, "leaves"):
        for key, leaf in zip(features._keys, features.leaves, strict=True):
            yield from _convolutions(leaf, f"{name}.extractors.{key}")
    else:
        yield from _convolutions(features, name)


def _convolutions(leaf: Any, name: str) -> Named:
    for i, theirs in CNN.items() if hasattr(leaf, "layers") else ():
        for own, parameter in leaf.layers[i].named_parameters():
            yield f"{name}.{theirs}.{own}", parameter


FAMILIES: dict[str, Callable[[Mapping[str, Any], Any], Named]] = {
    "ppo": _on_policy,
    "a2c": _on_policy,
    "dqn": _dqn,
    "qr_dqn": _qr_dqn,
    "sac": _sac,
    "tqc": _sac,
    "crossq": _crossq,
    "td3": _td3,
    "ddpg": _td3,
}
"""Functions that name the weights, by the algorithm."""
