"""The contract of multi-agent vector environments."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from sharpwave.core.tree import leaves, map_leaves
from sharpwave.envs import environment_state, restore_environment_state
from sharpwave.envs.masks import choices
from sharpwave.envs.multi.groups import checked_groups
from sharpwave.envs.spaces import check_action_space, check_observation_space, leaf_spaces
from sharpwave.testing.bits import first_difference, other_globals
from sharpwave.testing.contract import DoesNotApply, by_name, expect, hold
from sharpwave.testing.multi_env_case import AgentLives, MultiEnvCase, arrays_of, play_multi
from sharpwave.types import Nested

__all__ = ["MULTI_ENV_RULES", "check_multi_env"]

AGAIN = 40
"""Steps that are played twice to see whether they are the same."""


def check_multi_env(
    env: Any, *, n_steps: int | None = None, rules: str | Iterable[str] | None = None
) -> tuple[str, ...]:
    """Check that a multi-agent vector environment keeps its contract.

    Args:
        env: A MultiAgentVectorEnv, which is played and left open; or what `make_multi_env` takes,
            or a function that makes a MultiAgentVectorEnv, which is made anew for every rule.
        n_steps: Steps to look at; 120 when None. Rules on the ends of agents and episodes do not
            apply where none ends meanwhile.
        rules: Names of `MULTI_ENV_RULES` to check; all when None.

    Returns:
        The names of the rules that were checked; those that do not apply are left out.

    Raises:
        ContractError: Rules are broken; all of them are named.

    Example:
        >>> from sharpwave.envs.multi.toys import Mortal
        >>> "an_end_is_told_once" in sw.testing.check_multi_env(Mortal)
        True
    """
    subject = env if isinstance(env, str) else getattr(env, "__qualname__", type(env).__name__)
    return hold(subject, MULTI_ENV_RULES, MultiEnvCase(env, n_steps), rules)


# The rules


def can_be_reset_and_stepped(case: MultiEnvCase) -> None:
    """It has groups and spaces that are supported, and takes a reset and steps."""
    env = case.make()
    expect(isinstance(env.num_envs, int | np.integer), "a number of environments", env.num_envs)
    for name in env.groups:
        check_observation_space(env.observation_spaces[name], f"observation_spaces[{name!r}]")
        check_action_space(env.action_spaces[name], f"action_spaces[{name!r}]")
    expect(len(case.record.returned) > 1, "steps", "none")


def every_agent_is_in_one_group(case: MultiEnvCase) -> None:
    """Groups have every agent once, and spaces for each of them."""
    env = case.make()
    pairs = {agent: (spaces.Discrete(1), spaces.Discrete(1)) for agent in env.agents}
    checked_groups(env.groups, pairs)
    for what in (env.observation_spaces, env.action_spaces):
        expect(what.keys() == env.groups.keys(), f"spaces of {list(env.groups)}", list(what))


def arrays_have_the_form_of_their_group(case: MultiEnvCase) -> None:
    """Observations, rewards, flags and masks are arrays [N, G, ...] of the right dtypes."""
    env = case.make()
    for step in case.record.copies:
        expect(step.groups.keys() == env.groups.keys(), f"{list(env.groups)}", list(step.groups))
        _expect_form("ended", step.ended, (env.num_envs,), np.bool_)
        for name, group in step.groups.items():
            rows = (env.num_envs, len(env.groups[name]))
            wanted = dict(leaves(leaf_spaces(env.observation_spaces[name])))
            for what, obs in (("obs", group.obs), ("next_obs", group.next_obs)):
                found = dict(leaves(obs))
                expect(found.keys() == wanted.keys(), f"entries {list(wanted)}", list(found))
                for path, space in wanted.items():
                    shape = (*rows, *space.shape)
                    _expect_form(f"{name} {what} {path}", found[path], shape, space.dtype)
            _expect_form(f"{name} rewards", group.rewards, rows, np.float64)
            for flags in ("terminated", "truncated", "alive"):
                _expect_form(f"{name} {flags}", getattr(group, flags), rows, np.bool_)


def state_has_the_form_of_its_space(case: MultiEnvCase) -> None:
    """The state is an array [N, ...] or [N, G, ...] of its space, or None where there is none."""
    env = case.make()
    space = env.state_space
    for step in case.record.copies:
        for state in (step.state, step.next_state):
            if space is None:
                expect(state is None, "no state without a state_space", type(state).__name__)
                continue
            shape = (env.num_envs, *(space.shape or ()))
            own = (env.num_envs, len(env.agents), *(space.shape or ()))
            form = getattr(state, "shape", None), getattr(state, "dtype", None)
            good = form[0] in (shape, own) and form[1] == space.dtype
            expect(good, f"a state {space.dtype} {shape}", f"{form[1]} {form[0]}")


def observations_are_in_their_space(case: MultiEnvCase) -> None:
    """Every observation of an agent that acts next lies within the bounds of its space."""
    env = case.make()
    for number, step in enumerate(case.record.copies):
        for name, group in step.groups.items():
            inner = dict(leaves(leaf_spaces(env.observation_spaces[name])))
            for path, leaf in leaves(group.obs):
                for value in leaf[group.alive]:
                    inside = inner[path].contains(np.asarray(value))
                    where = f"{value} of {name} in step {number}"
                    expect(inside, f"an observation {path} in {inner[path]}", where)


def rewards_are_finite(case: MultiEnvCase) -> None:
    """No reward is NaN or infinite."""
    for number, step in enumerate(case.record.copies):
        for name, group in step.groups.items():
            where = f"{group.rewards.tolist()} of {name} in step {number}"
            expect(np.isfinite(group.rewards).all(), "finite rewards", where)


def a_reset_begins_without_ends(case: MultiEnvCase) -> None:
    """After a reset nothing has ended or been paid, and somebody acts in every environment."""
    first = case.record.copies[0]
    expect(not first.ended.any(), "no episode that ended", first.ended.tolist())
    for name, group in first.groups.items():
        for flags in (group.terminated, group.truncated, group.rewards):
            expect(not flags.any(), f"no ends and rewards of {name}", flags.tolist())
    _expect_somebody(first)


def an_end_is_told_once(case: MultiEnvCase) -> None:
    """An agent is terminated or truncated in one step, and not again while it is gone."""
    number = 0
    for number, lives in enumerate(AgentLives.of(case.record), 1):
        for name, group in lives.step.groups.items():
            again = (group.terminated | group.truncated) & lives.gone[name]
            where = f"that of agents {np.argwhere(again).tolist()} of {name} in step {number}"
            expect(not again.any(), "no end of an agent that was gone", where)
    _needs_ends(case)


def the_gone_have_zeros(case: MultiEnvCase) -> None:
    """An agent that ended is not alive, observes zeros and is paid nothing."""
    _needs_ends(case)
    for number, lives in enumerate(AgentLives.of(case.record), 1):
        for name, group in lives.step.groups.items():
            gone = lives.gone[name] & ~group.alive
            over = (group.terminated | group.truncated) & ~lives.step.ended[:, None]
            _expect_zeros(group.rewards, lives.gone[name], f"rewards of {name} in step {number}")
            for what, obs, rows in (
                ("obs", group.obs, (gone | over) & ~lives.step.ended[:, None]),
                ("next_obs", group.next_obs, gone & ~lives.step.ended[:, None]),
            ):
                where = f"{what} of {name} in step {number}"
                for _, leaf in leaves(obs):
                    _expect_zeros(leaf, rows & ~group.alive, where)


def an_episode_ends_when_nobody_is_left(case: MultiEnvCase) -> None:
    """`ended` is True where the last agent of an episode ended, and nowhere else."""
    _needs_ends(case)
    for number, lives in enumerate(AgentLives.of(case.record), 1):
        _expect_somebody(lives.step)
        left = np.zeros(len(lives.step.ended), np.bool_)
        for name, group in lives.step.groups.items():
            over = group.terminated | group.truncated
            left |= (lives.before[name] & ~over).any(axis=1)
        wrong = lives.step.ended & left
        where = f"agents left in environments {np.flatnonzero(wrong).tolist()} in step {number}"
        expect(not wrong.any(), "nobody left where an episode ended", where)


def the_true_last_observations_are_kept(case: MultiEnvCase) -> None:
    """At the end of an episode, next_obs is its last observation, not that of the reset."""
    record = case.record
    ends = [step for step in record.copies if step.ended.any()]
    if not ends:
        raise DoesNotApply
    seen = False
    for name in ends[0].groups:
        observed = [_row(step.groups[name].obs, np.ones_like(step.ended)) for step in record.copies]
        if all(first_difference(observed[0], obs) is None for obs in observed):
            continue
        seen = True
        for step in ends:
            group = step.groups[name]
            if first_difference(_row(group.obs, step.ended), _row(group.next_obs, step.ended)):
                return
    if not seen:
        raise DoesNotApply
    expect(False, "last observations that differ from the first ones", "the same at every end")


def masks_allow_something(case: MultiEnvCase) -> None:
    """Masks are [N, G, n] with an entry for each choice, and allow an action everywhere."""
    env = case.make()
    found = False
    for number, step in enumerate(case.record.copies):
        for name, group in step.groups.items():
            if group.masks is None:
                continue
            found = True
            parts = choices(env.action_spaces[name])
            shape = (env.num_envs, len(env.groups[name]), sum(parts))
            _expect_form(f"masks of {name}", group.masks, shape, np.bool_)
            if isinstance(env.action_spaces[name], spaces.MultiBinary):
                continue
            starts = np.cumsum([0, *parts[:-1]])
            allows = np.logical_or.reduceat(group.masks, starts, axis=2).all()
            expect(allows, f"masks of {name} that allow an action", f"none in step {number}")
    if not found:
        raise DoesNotApply


def actions_of_the_gone_are_ignored(case: MultiEnvCase) -> None:
    """Actions of agents that are gone change nothing."""
    env = case.make()
    if all(group.alive.all() for step in case.record.copies for group in step.groups.values()):
        raise DoesNotApply
    one, two = (play_multi(env, AGAIN, seed=11, of_the_gone=x).copies for x in range(2))
    _expect_same(one, two, "whatever agents do that are gone")


def reset_with_a_seed_reproduces(case: MultiEnvCase) -> None:
    """Seed and actions decide what happens, whatever the global generators hold."""
    first, other = case.make(), case.make()
    runs = []
    for seed, env in enumerate((first, first, other)):
        with other_globals(seed):
            runs.append(play_multi(env, AGAIN, seed=11).copies)
    for run in runs[1:]:
        _expect_same(runs[0], run, "after the same seed")


def returned_arrays_are_not_overwritten(case: MultiEnvCase) -> None:
    """Arrays that a step returned do not change in later steps."""
    record = case.record
    for number, (now, then) in enumerate(zip(record.returned, record.copies, strict=True)):
        path = first_difference(arrays_of(then), arrays_of(now))
        expect(path is None, f"what step {number} returned", f"{path} that a later step changed")


def infos_are_one_for_each_environment(case: MultiEnvCase) -> None:
    """Infos are a mapping for each environment, with "final_info" where an episode ended."""
    for number, step in enumerate(case.record.copies):
        n = len(step.ended)
        expect(len(step.infos) == n, f"{n} infos in step {number}", len(step.infos))
        for info in step.infos:
            expect(isinstance(info, Mapping), "infos by agent", type(info).__name__)
        told = ["final_info" in info for info in step.infos]
        ended = step.ended.tolist()
        # Who never tells anything has nothing to tell of the last step either.
        good = told == ended or not any(map(bool, step.infos))
        expect(good, f"final_info of {ended} in step {number}", told)


def a_saved_state_goes_on_exactly(case: MultiEnvCase) -> None:
    """From a saved state, the same actions lead to the same steps."""
    env = case.make()
    last = play_multi(env, 7, seed=3).copies[-1]
    state = environment_state(env)
    if state is None:
        raise DoesNotApply
    saved = copy.deepcopy(state)
    steps = play_multi(env, AGAIN, after=last).copies
    changed = first_difference(saved, state)
    expect(changed is None, "a state that stays as it was", f"another {changed} after some steps")
    restore_environment_state(env, saved)
    _expect_same(steps, play_multi(env, AGAIN, after=last).copies, "from the same state")
    if case.makes_new:
        other = case.make()
        other.reset(seed=4)
        restore_environment_state(other, saved)
        _expect_same(steps, play_multi(other, AGAIN, after=last).copies, "from the same state")


def _expect_same(steps: list[Any], again: list[Any], when: str) -> None:
    path = first_difference([arrays_of(x) for x in steps], [arrays_of(x) for x in again])
    step, _, name = (path or "").partition(".")
    expect(path is None, f"the same steps {when}", f"another {name} in step {step}")


def _expect_form(what: str, array: Any, shape: tuple[int, ...], dtype: Any) -> None:
    form = getattr(array, "dtype", type(array).__name__), getattr(array, "shape", None)
    expect(form == (np.dtype(dtype), shape), f"{what} {np.dtype(dtype)} {shape}", form)


def _expect_zeros(array: Any, rows: Any, what: str) -> None:
    expect(not array[rows].any(), "zeros where an agent is gone", f"{what}: {array[rows].tolist()}")


def _expect_somebody(step: Any) -> None:
    acting = np.any([group.alive.any(axis=1) for group in step.groups.values()], axis=0)
    expect(acting.all(), "somebody who acts in every environment", acting.tolist())


def _needs_ends(case: MultiEnvCase) -> None:
    """A rule on ends has nothing to look at where nothing ends."""
    steps = case.record.copies
    groups = [group for step in steps for group in step.groups.values()]
    if not any((group.terminated | group.truncated).any() for group in groups):
        raise DoesNotApply


def _row(obs: Nested, rows: Any) -> Nested:
    return map_leaves(lambda leaf: leaf[rows], obs)


MULTI_ENV_RULES = by_name(
    can_be_reset_and_stepped,
    every_agent_is_in_one_group,
    arrays_have_the_form_of_their_group,
    state_has_the_form_of_its_space,
    observations_are_in_their_space,
    rewards_are_finite,
    a_reset_begins_without_ends,
    an_end_is_told_once,
    the_gone_have_zeros,
    an_episode_ends_when_nobody_is_left,
    the_true_last_observations_are_kept,
    masks_allow_something,
    actions_of_the_gone_are_ignored,
    reset_with_a_seed_reproduces,
    returned_arrays_are_not_overwritten,
    infos_are_one_for_each_environment,
    a_saved_state_goes_on_exactly,
)
"""The rules of `check_multi_env` by name."""
