"""The one place that decides which learner computes, and whether its losses are compiled."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cached_property, wraps
from typing import Any, NamedTuple

from gymnasium import spaces

from sharpwave.core.lazy import torch
from sharpwave.core.optional import install, is_installed
from sharpwave.core.ranks import ALONE, Ranks
from sharpwave.layouts.policy import why_not_native
from sharpwave.learners.devices import check_matmul, why_gpu
from sharpwave.learners.fused import why_not_fused
from sharpwave.learners.learner import Learner
from sharpwave.learners.seeds import Seeds

__all__ = ["Choice", "choose", "compiled", "why_not_ours"]

LIBRARY = __name__.partition(".")[0]


class _Mixin:
    """A class that changes nothing."""

    annotated: Any


OF_PYTHON = {*vars(_Mixin), *vars(type("Derived", (_Mixin, Learner), {})), "__slots__"}
"""Names that every class has, whatever is written in it."""


class Choice(NamedTuple):
    """A learner and why it is that one.

    Attributes:
        learner: The learner.
        reason: Why it computes.
        why_not_act: Why native code cannot act for its policy, whoever learns; None when it can.
    """

    learner: Learner
    reason: str
    why_not_act: str | None


def choose(
    facade: Any,
    config: Any,
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    *,
    learner: type[Learner] | None = None,
    seeds: Seeds,
    given: Mapping[str, Any],
    against: str | None = None,
    ranks: Ranks = ALONE,
    env_device: Any = None,
    **options: Any,
) -> Choice:
    """Make the learner of an agent: the native twin where it can do what is asked for.

    Args:
        facade: The agent's class, with `Learner` and, where there is a twin, `Native`.
        config: Options.
        observation_space: Of one environment.
        action_space: Of one environment.
        learner: A learner in place of the agent's own.
        seeds: Of the learner.
        given: Networks of the user's, by name.
        against: A reason of the loop's that native code cannot learn; None for none.
        ranks: The processes that learn together.
        env_device: Device on which environments step tensors; None where they step arrays.
        **options: Of the learner's own.

    Raises:
        ImportError: Torch must compute and is not installed.
        ValueError: Native code is asked for where it cannot be.
    """
    kind = learner or facade.Learner
    if not (isinstance(kind, type) and issubclass(kind, Learner)):
        raise TypeError(f"learner must be a class derived from Learner, got {kind!r}")
    twin = _twin(facade)
    device, gain = _device(config, observation_space, env_device)
    check_matmul(getattr(config, "matmul", None), device)
    changed = next(_changes(kind, _ours(kind) if twin is None else twin.definition), None)
    why_not_act = changed or _why_not_act(config, device, given, twin)
    reason = against or why_not_act or _why_not(facade, config, twin, ranks)
    reason = reason or why_not_native(observation_space, action_space)
    if config.backend == "native" and reason is not None:
        raise ValueError(f"backend must be 'auto' or 'torch' here, got 'native': {reason}")
    if config.backend == "torch":
        reason = "it was asked for"
    arguments: dict[str, Any] = {"seeds": seeds, "given": given, **options}
    described = config, observation_space, action_space
    if reason is None and twin is not None:
        made: Any = twin.native(kind, *described, **arguments)
        return Choice(made, "native code knows networks, device and options", None)
    if not ranks.is_alone:  # which a learner of a user's need not know
        arguments["ranks"] = ranks
    fused = None if changed else _fused(facade, kind, device)
    why_not = fused and _why_not_fused(config, action_space, given, ranks)
    with _torch_for(facade.name, reason):
        made = (fused if fused and not why_not else kind)(*described, **arguments, device=device)
        _wrap(made)
    # Where torch learns for the sake of its gradients, native code collects for it.
    if ranks.is_alone and not getattr(facade, "collects_natively", False):
        why_not_act = "torch acts"
    said = gain or reason or ""
    if fused is not None:
        said += f", without fused kernels, since {why_not}" if why_not else ", with fused kernels"
    return Choice(made, said, why_not_act)


@contextmanager
def _torch_for(name: str, reason: str | None) -> Iterator[None]:
    """Inside, say for what torch is needed where it is not installed."""
    try:
        yield
    except ImportError as error:
        if error.name != "torch":
            raise
        raise ImportError(
            f"{name} needs torch here, which is not installed, since {reason}: {install('torch')}",
            name="torch",
        ) from error


class _Twin(NamedTuple):
    native: Any
    definition: type[Learner]


def _twin(facade: Any) -> _Twin | None:
    """The native learner of an agent, and the one that it stands for."""
    for kind in facade.__mro__:
        native = vars(kind).get("Native")
        if native is not None:
            return _Twin(native, kind.Learner)
    return None


def _device(
    config: Any, observation_space: spaces.Space[Any], env_device: Any
) -> tuple[str, str | None]:
    """Device of a torch learner, and the reason for one that was not asked for."""
    if config.device != "auto":
        return config.device, None
    if env_device is not None and env_device.type == "cuda" and config.backend != "native":
        return str(env_device), f"on {env_device}, since environments step tensors there"
    gain = None if config.backend == "native" else why_gpu(config, observation_space)
    if gain is not None and is_installed("torch") and torch.cuda.is_available():
        return "cuda", f"on cuda, since {gain}"
    return "cpu", None


def _fused(facade: Any, kind: type[Learner], device: str) -> type[Learner] | None:
    """The learner with kernels in place of one of this library's; None where there is none."""
    fused: Any = getattr(facade, "Fused", None)
    if fused is None or device.partition(":")[0] != "cuda":
        return None
    return fused if kind in fused.__bases__ else None


def _why_not_fused(
    config: Any, action_space: spaces.Space[Any], given: Mapping[str, Any], ranks: Ranks
) -> str | None:
    """Why kernels do not know what a learner learns; None when they do."""
    if not ranks.is_alone:
        return f"{ranks.size} learners share their gradients"
    return _own_network(given) or why_not_fused(config, action_space)


def _why_not_act(
    config: Any, device: str, given: Mapping[str, Any], twin: _Twin | None
) -> str | None:
    """Why native code cannot act for the networks; None when it can."""
    if device != "cpu":
        return f"device is {device!r}"
    if (own := _own_network(given)) is not None:
        return own
    for not_known in () if twin is None else twin.native.not_known:
        option, _, refused = not_known.partition("=")
        value = getattr(config, option, None)
        if value == refused if refused else value:
            return f"{option} is on" if value is True else f"{option} is {value!r}"
    return None


def _own_network(given: Mapping[str, Any]) -> str | None:
    own = next((name for name, network in given.items() if network is not None), None)
    return None if own is None else f"{own} is a network of its own"


def _why_not(facade: Any, config: Any, twin: _Twin | None, ranks: Ranks) -> str | None:
    if twin is None:
        return f"{facade.name} has no native update"
    if not ranks.is_alone:
        return f"{ranks.size} learners share their gradients, and native code keeps its own"
    for option in ("compile", "cuda_graph"):
        if getattr(config, option, False):
            return f"{option} is on"
    return None


def _changes(kind: type[Learner], definition: type[Learner]) -> Iterator[str]:
    """The differences of a learner from one of this library.

    A subclass, a mixin and an assignment to a class of this library count alike.
    """
    if not issubclass(kind, definition):
        yield f"{kind.__name__} is not {definition.__name__}"
    for cls in kind.__mro__:
        if cls not in definition.__mro__:
            names = (x for x in vars(cls) if x not in OF_PYTHON and hasattr(definition, x))
        elif _is_of_library(cls):
            names = (x for x, value in vars(cls).items() if _is_code(value) and not _is_ours(value))
        else:
            continue
        yield from (f"{cls.__name__} changes {name}" for name in names)


def why_not_ours(kind: type[Learner]) -> str | None:
    """Why a learner is not as this library has it; None when it is."""
    if not _is_of_library(kind):
        return f"{kind.__qualname__} is a class of its own"
    return next(_changes(kind, kind), None)


def _wrap(learner: Any) -> None:
    """Compile the losses of a learner, and replay its updates as CUDA graphs, if asked for."""
    if getattr(learner.config, "compile", False):
        from torch.compiler import disable

        names = (*learner.compiled_too, *learner.losses)
        learner.wrappers = {
            **dict.fromkeys(names, compiled),
            **dict.fromkeys(learner.uncompiled, disable),
        }
        for name in learner.wrappers:
            setattr(learner, name, getattr(learner, name))
    if learner.device.type == "cuda" and learner.ranks.is_alone:  # a graph waits for no process
        _capture(learner)


def _capture(learner: Any) -> None:
    """Have what a learner does on CUDA replayed as graphs, as far as nobody changed it."""
    config = learner.config
    is_asked = getattr(config, "cuda_graph", False)
    if is_asked is None:
        is_asked = not learner.given
    kind = type(learner)
    # What somebody else's method does in Python nobody knows, unless it names the kind too.
    changed = {change.rpartition(" ")[2] for change in _changes(kind, _ours(kind))}
    if not is_asked or learner.changes_size or (changed and "update_kind" not in changed):
        return
    from sharpwave.learners.graphs import replay_as_graphs

    replay_as_graphs(learner)
    # Noise that depends on the state is drawn anew between rollouts, into other memory.
    learner.acts_in_graphs = not changed and not getattr(config, "use_gsde", False)


def _ours(kind: type) -> Any:
    return next(cls for cls in kind.__mro__ if _is_of_library(cls))


def _is_of_library(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == LIBRARY


def _is_code(value: Any) -> bool:
    descriptor = isinstance(value, property | cached_property | staticmethod | classmethod)
    return descriptor or (callable(value) and not isinstance(value, type))


def _is_ours(value: Any) -> bool:
    """Return whether code is written in this library; wrappers copy its name, not its globals."""
    if isinstance(value, property):
        parts = [part for part in (value.fget, value.fset) if part is not None]
    elif isinstance(value, cached_property):
        parts = [value.func]
    elif isinstance(value, staticmethod | classmethod):
        parts = [value.__func__]
    else:
        parts = [value]
    if not all(hasattr(part, "__globals__") for part in parts):
        return not any(_is_code(part) for part in parts)
    return all(part.__globals__.get("__name__", "").partition(".")[0] == LIBRARY for part in parts)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, compiled at its first call; as it is from the first failure of the compiler on.

    A run that was killed while it compiled may leave a broken cache. What that breaks is found in
    the first call, whose gradient is compiled with it; errors of the function itself are raised.
    """
    import torch
    from torch._dynamo.exc import BackendCompilerFailed
    from torch._functorch import config

    quick, calls = torch.compile(function), 0
    at_once = "force_non_lazy_backward_lowering"  # which older versions of torch do not have
    with_gradient = config.patch(at_once, True) if hasattr(config, at_once) else nullcontext()

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        nonlocal quick, calls
        if quick is function:
            return function(*args, **options)
        calls += 1
        try:
            if calls > 1:
                return quick(*args, **options)
            with with_gradient:
                return quick(*args, **options)
        except BackendCompilerFailed as error:
            first = next((line for line in str(error).splitlines() if line.strip()), "")
            warnings.warn(
                f"{function.__name__} runs uncompiled, since the compiler failed: {first} "
                "(its cache may be broken, see TORCHINDUCTOR_CACHE_DIR)",
                RuntimeWarning,
                stacklevel=2,
            )
            quick = function
            return function(*args, **options)

    return call
