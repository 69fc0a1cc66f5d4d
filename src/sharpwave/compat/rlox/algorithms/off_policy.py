"""What the off-policy algorithms have in common under rlox's names."""

from __future__ import annotations

from typing import Any

from sharpwave.train.off_policy import OffPolicy

__all__ = ["ByPosition"]


class ByPosition(OffPolicy):
    """Takes its options by position too, in the order of `leading_arguments`.

    None stands for what is not given, as in rlox.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        signature = cls.__signature__
        cls.__signature__ = signature.replace(
            parameters=[
                parameter.replace(default=None) if parameter.name == "buffer" else parameter
                for parameter in signature.parameters.values()
            ]
        )

    def __init__(self, env_id: Any, *args: Any, collector: Any = None, **options: Any) -> None:
        names = list(self.leading_arguments)[1:]
        if len(args) > len(names):
            given = 1 + len(args)
            raise TypeError(f"{type(self).__name__} takes {1 + len(names)} arguments, got {given}")
        by_position = dict(zip(names, args, strict=False))
        twice = sorted(by_position.keys() & options.keys())
        if twice:
            raise TypeError(f"{type(self).__name__} got {twice[0]!r} twice")
        collector = by_position.pop("collector", collector)
        if collector is not None:
            raise TypeError(
                "collector must be None: give the environments themselves as env_id, "
                "a vector environment or a maker with n_envs"
            )
        given = {**by_position, **options}
        super().__init__(env_id, **{k: v for k, v in given.items() if v is not None})
