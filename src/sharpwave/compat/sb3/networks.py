"""Networks as `policy` and `policy_kwargs` describe them, in the options of this library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gymnasium import spaces

from sharpwave.compat.sb3.refusals import check_names, refuse
from sharpwave.core.lazy import nn
from sharpwave.layouts.features import is_image

__all__ = ["Networks", "PolicyForm", "read_networks"]

KINDS = ("MultiInput", "Mlp", "Cnn")
LIBRARIES = ("stable_baselines3", "sb3_contrib")
OWN_EXTRACTORS = ("FlattenExtractor", "NatureCNN", "CombinedExtractor")
"""Features extractors of SB3 that are those of this library."""
ACTIVATIONS = {
    "Tanh": "tanh",
    "ReLU": "relu",
    "LeakyReLU": "leaky_relu",
    "ELU": "elu",
    "SELU": "selu",
    "GELU": "gelu",
    "SiLU": "silu",
}
"""Names of activations here, by the classes of torch."""
ENTRIES = (
    "net_arch",
    "activation_fn",
    "features_extractor_class",
    "features_extractor_kwargs",
    "share_features_extractor",
    "optimizer_class",
    "optimizer_kwargs",
)
"""Entries of `policy_kwargs` that all policies have."""
FIXED = {
    "normalize_images": True,
    "squash_output": False,
    "full_std": True,
    "use_expln": False,
    "use_sde": False,
    "n_lstm_layers": 1,
    "shared_lstm": False,
    "enable_critic_lstm": True,
    "clip_mean": 2.0,
    "lstm_kwargs": None,
}
"""Entries of `policy_kwargs` that must have their default."""
RENAMED = {"lstm_hidden_size": "recurrent_size"}


@dataclass(frozen=True, kw_only=True)
class PolicyForm:
    """The form of an algorithm's policies.

    Attributes:
        net_arch: Widths of hidden layers where none are given.
        image_net_arch: The same after the convolutions of a Cnn policy.
        critic: Name of the critic in `net_arch`; None without one.
        shares_features: True if actor and critic share the features extractor.
        entries: Entries of `policy_kwargs` that are options, beside those of all policies.
        adam_eps: ε of an Adam that is asked for without arguments.
        ends: End of the policies' names.
    """

    net_arch: Any = (64, 64)
    image_net_arch: Any = ()
    critic: str | None = "vf"
    shares_features: bool = True
    entries: tuple[str, ...] = ()
    adam_eps: float = 1e-8
    ends: str = "Policy"


@dataclass(frozen=True, kw_only=True)
class Networks:
    """Networks that `policy` and `policy_kwargs` ask for.

    Attributes:
        options: Options of the algorithm's configuration.
        kind: "Mlp", "Cnn" or "MultiInput".
        extractor: Class of the features extractor; None for that of the space.
        extractor_kwargs: Its arguments.
        optimizer: Class of the optimizer, of torch; None for that of the algorithm.
        optimizer_kwargs: Its arguments.
    """

    options: dict[str, Any]
    kind: str = "Mlp"
    extractor: Any = None
    extractor_kwargs: dict[str, Any] = field(default_factory=dict)
    optimizer: Any = None
    optimizer_kwargs: dict[str, Any] = field(default_factory=dict)

    def check(self, space: spaces.Space[Any]) -> None:
        """Raise where the policy does not look at such observations.

        Raises:
            ValueError: The policy is for others.
        """
        is_dict = isinstance(space, spaces.Dict)
        if (self.kind == "MultiInput") != is_dict:
            wanted = "a MultiInput one" if is_dict else "one of another kind"
            raise ValueError(f"policy must be {wanted} for observations {space}, got {self.kind}")
        if self.kind == "Cnn" and self.extractor is None and not is_image(space):
            raise ValueError(f"policy must not be a Cnn one without images of uint8, got {space}")

    def learner(self, kind: Any, space: spaces.Space[Any] | None) -> Any:
        """The class of a learner with these networks; None for the one that there is.

        Args:
            kind: The algorithm's learner.
            space: The observations, where they are known yet.
        """
        own_features = self.extractor is not None or bool(self.extractor_kwargs)
        own_features |= self.kind == "Mlp" and space is not None and is_image(space)
        if not own_features and self.optimizer is None:
            return None
        networks = self

        class OwnNetworks(kind):  # type: ignore[misc]
            """The learner with networks or optimizers of a program for SB3."""

            def network_options(self, network: str) -> dict[str, Any]:
                """Arguments of the networks, with the features extractor."""
                options = super().network_options(network)
                if own_features:
                    made = networks.make_features(self.observation_space, self.weights_generator)
                    options["features"] = made
                return options  # type: ignore[no-any-return]

            def make_optimizer(self, flat: nn.FlatParameters) -> nn.FlatOptimizer:
                """The optimizer of a network."""
                if networks.optimizer is None:
                    return super().make_optimizer(flat)  # type: ignore[no-any-return]
                from sharpwave.compat.sb3.modules import TorchOptimizer

                return TorchOptimizer(flat, networks.optimizer, networks.optimizer_kwargs)

        OwnNetworks.__name__ = OwnNetworks.__qualname__ = kind.__name__
        return OwnNetworks

    def make_features(self, space: spaces.Space[Any], generator: Any) -> Any:
        """The features extractor that a program asks for.

        Args:
            space: The observations.
            generator: Source of the weights of this library's own.
        """
        from sharpwave.compat.sb3.modules import ExtractedFeatures, Flattened, NatureCNN

        if self.extractor is None and self.kind == "Cnn":
            return NatureCNN(space.shape or (), self.extractor_kwargs["features_dim"], generator)
        return ExtractedFeatures(space, self.extractor or Flattened, self.extractor_kwargs)


def read_networks(
    policy: Any, policy_kwargs: Mapping[str, Any] | None, form: PolicyForm
) -> Networks:
    """The networks that a program asks for.

    Args:
        policy: A name such as "MlpPolicy", or SB3's own class of such a policy.
        policy_kwargs: Of the constructor.
        form: The form of the algorithm's policies.

    Raises:
        TypeError: The policy is a program's own class, or an entry is unknown.
        ValueError: A value has no counterpart.
    """
    given = dict(policy_kwargs or {})
    kind = _kind(policy, form.ends)
    check_names(given, (*ENTRIES, *form.entries, *FIXED), "policy_kwargs")
    for name, default in FIXED.items():
        if given.get(name, default) != default:
            raise refuse(name, given[name], repr(default))
    extractor, extractor_kwargs = _extractor(given, kind)
    learned = extractor is not None or kind != "Mlp"  # features that it matters to share
    if learned and given.get("share_features_extractor", form.shares_features) != (
        form.shares_features
    ):
        raise refuse(
            "share_features_extractor",
            given["share_features_extractor"],
            repr(form.shares_features),
        )
    options = {RENAMED.get(name, name): given[name] for name in form.entries if name in given}
    net_arch = given.get("net_arch")
    if net_arch is None:
        net_arch = form.image_net_arch if kind == "Cnn" else form.net_arch
    options["hidden"] = _hidden(net_arch, form)
    if "activation_fn" in given:
        options["activation"] = _activation(given["activation_fn"])
    optimizer, optimizer_kwargs = _optimizer(given, form)
    return Networks(
        options=options,
        kind=kind,
        extractor=extractor,
        extractor_kwargs=extractor_kwargs,
        optimizer=optimizer,
        optimizer_kwargs=optimizer_kwargs,
    )


def _kind(policy: Any, ends: str) -> str:
    """The kind of a policy, from its name or SB3's class."""
    known = [f"{kind}{ends}" for kind in KINDS]
    if isinstance(policy, str):
        if policy not in known:
            raise ValueError(f"policy must be one of {', '.join(known)}, got {policy!r}")
        return policy.removesuffix(ends)
    module = str(getattr(policy, "__module__", ""))
    if not isinstance(policy, type) or module.partition(".")[0] not in LIBRARIES:
        raise TypeError(
            f"policy must be one of {', '.join(known)} or SB3's class of that name, got "
            f"{policy!r}: a network of your own is features_extractor_class in policy_kwargs, or "
            "policy= of an agent of sharpwave"
        )
    return next((kind for kind in ("MultiInput", "Cnn") if kind in policy.__name__), "Mlp")


def _extractor(given: Mapping[str, Any], kind: str) -> tuple[Any, dict[str, Any]]:
    """The class of the features extractor, where it is not that of the space, and its arguments."""
    extractor: Any = given.get("features_extractor_class")
    kwargs = dict(given.get("features_extractor_kwargs") or {})
    module = str(getattr(extractor, "__module__", ""))
    is_own = module.startswith(LIBRARIES) and extractor.__name__ in OWN_EXTRACTORS
    if extractor is not None and not is_own:
        return extractor, kwargs
    if kwargs and not (kind == "Cnn" and set(kwargs) == {"features_dim"}):
        raise refuse("features_extractor_kwargs", kwargs, "for a features_extractor_class")
    return None, kwargs


def _hidden(net_arch: Any, form: PolicyForm) -> Any:
    """Widths of hidden layers."""
    if isinstance(net_arch, Mapping):
        if form.critic is None:
            raise refuse("net_arch", net_arch, "a list of widths")
        check_names(net_arch, ("pi", form.critic), "net_arch")
        actor, critic = (tuple(net_arch.get(name, ())) for name in ("pi", form.critic))
        return {"actor": actor, "critic": critic}
    if any(isinstance(one, Mapping) for one in net_arch):
        if len(net_arch) == 1:  # as SB3 before 1.8 had it
            return _hidden(net_arch[0], form)
        raise refuse("net_arch", net_arch, "without layers that pi and vf share")
    return tuple(int(width) for width in net_arch)


def _activation(function: Any) -> str:
    name = getattr(function, "__name__", str(function))
    if name not in ACTIVATIONS:
        raise refuse("activation_fn", function, f"one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def _optimizer(given: Mapping[str, Any], form: PolicyForm) -> tuple[Any, dict[str, Any]]:
    """The class and the arguments of an optimizer other than the algorithm's own."""
    kind: Any = given.get("optimizer_class")
    kwargs: Any = given.get("optimizer_kwargs")
    if kind is None and not kwargs:
        return None, {}
    if kind is None:
        from torch.optim import Adam

        kind = Adam
    if kwargs is None and kind.__name__ == "Adam":
        kwargs = {"eps": form.adam_eps}
    if "lr" in (kwargs or {}):
        raise refuse("optimizer_kwargs['lr']", kwargs["lr"], "learning_rate of the constructor")
    return kind, dict(kwargs or {})
