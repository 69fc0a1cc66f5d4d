"""Options of single groups of agents, beside those of all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sharpwave.config.config import Config
from sharpwave.core.suggest import did_you_mean

__all__ = ["GroupOptions"]

Self = TypeVar("Self", bound="GroupOptions")

OF_THE_LOOP = frozenset(
    {
        *("seed", "total_timesteps", "gamma", "gae_lambda", "n_envs", "n_steps", "env_mode"),
        *("normalize_obs", "normalize_rewards", "device", "threads", "group_options"),
        *("share_policy", "agent_id", "critic_input", "team_reward"),
    }
)
"""Options of the collection, which plays all groups at once."""


@dataclass(frozen=True, kw_only=True)
class GroupOptions(Config):
    """Base of configurations of several groups, each of which has a learner of its own."""

    group_options: dict[str, Any] | None = None
    """Options of networks and updates of single groups by name, in place of the ones of all:
    `{"adversary": {"hidden": [128], "learning_rate": 3e-4}}`."""

    def check(self) -> None:
        """Check the values."""
        super().check()
        for name in ("normalize_obs", "normalize_rewards"):
            if getattr(self, name, False):
                raise ValueError(f"{name} must be False: several agents are not normalized alike")
        for name, options in (self.group_options or {}).items():
            what = f"group_options[{name!r}]"
            if not isinstance(options, Mapping):
                raise TypeError(f"{what} must be options by name, got {options!r}")
            for option in options:
                if self.aliases.get(option, option) in OF_THE_LOOP:
                    raise ValueError(f"{what} must not have {option}, which is one for all groups")
            try:
                self.replace(**{**options, "group_options": None})
            except (TypeError, ValueError) as error:
                raise type(error)(f"{what}: {error}") from None

    def of_group(
        self: Self, group: str, groups: Iterable[str], alike: Mapping[str, Sequence[str]]
    ) -> Self:
        """The options of one group.

        Args:
            group: The group.
            groups: All groups.
            alike: The agents of each group; where every agent has a policy of its own, of those
                that would share one, whose options are those of each of their agents.

        Raises:
            ValueError: There are options of a group that does not exist.
        """
        given, known = self.group_options or {}, list(dict.fromkeys([*alike, *groups]))
        for name in given:
            if name not in known:
                close = did_you_mean(str(name), known)
                raise ValueError(f"group_options must name groups, {known}, got {name!r}{close}")
        shared = next((name for name, agents in alike.items() if group in agents), group)
        return self.replace(**{**given.get(shared, {}), **given.get(group, {})}, group_options=None)
