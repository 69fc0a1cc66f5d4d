"""The contract of vector environments."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import numpy as np
from gymnasium.vector.utils import batch_space

from sharpwave.core.tree import leaves, map_leaves
from sharpwave.envs import autoreset_mode, environment_state, restore_environment_state
from sharpwave.envs.autoreset import MODES, with_final_obs
from sharpwave.envs.spaces import check_spaces, leaf_spaces
from sharpwave.testing.bits import array_of, first_difference, other_globals
from sharpwave.testing.contract import DoesNotApply, by_name, expect, hold
from sharpwave.testing.env_case import EnvCase, Played, play
from sharpwave.types import Nested

__all__ = ["ENV_RULES", "check_env"]

AGAIN = 60
"""Steps that are played twice to see whether they are the same."""


def check_env(
    env: Any, *, n_steps: int | None = None, rules: str | Iterable[str] | None = None
) -> tuple[str, ...]:
    """Check that a vector environment keeps its contract, in whatever autoreset mode it has.

    Args:
        env: A vector environment, which is played and left open; a Gymnasium environment; an id; or
            a function that makes an environment or a vector environment, which is made anew for
            every rule.
        n_steps: Steps to look at; when None, a little more than the time limit. Rules on the ends
            of episodes do not apply where none ends meanwhile.
        rules: Names of `ENV_RULES` to check; all when None.

    Returns:
        The names of the rules that were checked; those that do not apply are left out.

    Raises:
        ContractError: Rules are broken; all of them are named.

    Example:
        >>> "reset_with_a_seed_reproduces" in sw.testing.check_env("CartPole-v1")
        True
    """
    subject = env if isinstance(env, str) else getattr(env, "__qualname__", type(env).__name__)
    return hold(subject, ENV_RULES, EnvCase(env, n_steps), rules)


# The rules


def can_be_reset_and_stepped(case: EnvCase) -> None:
    """It has spaces that are supported, and takes a reset and steps."""
    env = case.make()
    check_spaces(env)
    expect(isinstance(env.num_envs, int | np.integer), "a number of environments", env.num_envs)
    expect(len(case.record.returned) > 0, "steps", "none")


def spaces_are_those_of_one_environment_batched(case: EnvCase) -> None:
    """observation_space and action_space are the single ones, batched."""
    env = case.make()
    for name in ("observation_space", "action_space"):
        wanted = batch_space(getattr(env, f"single_{name}"), env.num_envs)
        expect(getattr(env, name) == wanted, f"{name} {wanted}", getattr(env, name))


def observations_have_shape_and_dtype_of_the_space(case: EnvCase) -> None:
    """Observations are arrays [N, ...] with the structure, shapes and dtypes of the space."""
    env = case.make()
    wanted = dict(leaves(leaf_spaces(env.single_observation_space)))
    for obs in case.record.observations:
        found = dict(leaves(obs))
        expect(found.keys() == wanted.keys(), f"entries {list(wanted)}", list(found))
        for path, space in wanted.items():
            array = array_of(found[path])
            form, shape = (array.dtype, array.shape), (env.num_envs, *space.shape)
            expect(form == (space.dtype, shape), f"obs {path} {space.dtype} {shape}", form)


def observations_are_in_their_space(case: EnvCase) -> None:
    """Every observation lies within the bounds of the space, and none is NaN."""
    space = case.make().single_observation_space
    for number, obs in enumerate(case.record.observations):
        _expect_inside(space, obs, f"step {number}")


def rewards_are_one_number_for_each(case: EnvCase) -> None:
    """Rewards are an array [N] of numbers."""
    n = case.make().num_envs
    for step in case.record.copies:
        rewards = array_of(step.rewards)
        good = rewards.shape == (n,) and rewards.dtype.kind in "fiub"
        expect(good, f"{n} rewards of shape ({n},)", f"{rewards.dtype} {rewards.shape}")


def rewards_are_finite(case: EnvCase) -> None:
    """No reward is NaN or infinite."""
    for number, step in enumerate(case.record.copies):
        rewards = array_of(step.rewards)
        finite = np.isfinite(rewards.astype(np.float64)).all()
        expect(finite, "finite rewards", f"{rewards.tolist()} in step {number}")


def terminated_and_truncated_are_flags(case: EnvCase) -> None:
    """Terminated and truncated are bool arrays [N]."""
    n = case.make().num_envs
    for step in case.record.copies:
        for name in ("terminated", "truncated"):
            flags = array_of(getattr(step, name))
            good = flags.dtype == np.bool_ and flags.shape == (n,)
            expect(good, f"{name} bool ({n},)", f"{flags.dtype} {flags.shape}")


def termination_and_truncation_are_told_apart(case: EnvCase) -> None:
    """An episode terminates or is cut off; not every end is both."""
    record = case.record
    if len(record.ends) < 3:
        raise DoesNotApply
    both = [
        record.copies[i].terminated[j] and record.copies[i].truncated[j] for i, j in record.ends
    ]
    expect(not all(both), "ends that are one of both", f"both flags in all {len(both)} ends")


def autoreset_mode_is_declared(case: EnvCase) -> None:
    """The metadata says what happens at the end of an episode."""
    env = case.make()
    declared = (env.metadata or {}).get("autoreset_mode", getattr(env, "autoreset_mode", None))
    expect(declared is not None, f'metadata["autoreset_mode"], one of {MODES}', env.metadata)
    expect(autoreset_mode(env) in MODES, f"a mode of {MODES}", declared)


def same_step_gives_the_true_last_observation(case: EnvCase) -> None:
    """In mode same_step infos["final_obs"] is what an episode's last action led to."""
    env = case.make()
    steps = _ending_steps(case, env, "same_step")
    lost: list[bool] = []
    for step in steps:
        true = with_final_obs(step.obs, step.ended, step.infos)  # raises where one is missing
        _expect_inside(env.single_observation_space, true, "the end of an episode")
        rows = np.flatnonzero(step.ended).tolist()
        lost += [first_difference(_row(step.obs, i), _row(true, i)) is None for i in rows]
    # One may happen to end where it starts, and one whose observations never change always does.
    if len(lost) > 1 and not _is_constant(case.record.observations):
        expect(not all(lost), "final_obs of the episode that ended", "the next one's first")


def next_step_resets_in_the_step_after_an_end(case: EnvCase) -> None:
    """In mode next_step the step after an end is a reset: reward 0 and no flags."""
    env = case.make()
    _ending_steps(case, env, "next_step")
    steps = case.record.copies
    for number, row in case.record.ends:
        told = "final_obs" in steps[number].infos
        expect(not told, "no final_obs, since obs is the last one", "infos with final_obs")
        if number + 1 < len(steps):
            after = steps[number + 1]
            reward = float(array_of(after.rewards)[row])
            expect(reward == 0, "reward 0 in the step that resets", reward)
            expect(not after.ended[row], "no end in the step that resets", "another one")


def disabled_resets_only_what_is_asked(case: EnvCase) -> None:
    """In mode disabled reset(options={"reset_mask": ...}) leaves the other environments alone."""
    env = case.make()
    _ending_steps(case, env, "disabled")
    for before, after, asked in case.record.resets:
        _expect_inside(env.single_observation_space, after, "a reset")
        for row in np.flatnonzero(~asked).tolist():
            moved = first_difference(_row(before, row), _row(after, row))
            expect(moved is None, f"environment {row} where it was", "another observation")


def reset_with_a_seed_reproduces(case: EnvCase) -> None:
    """Seed and actions decide what happens, whatever the global generators hold."""
    first, other = case.make(), case.make()
    runs = []
    for seed, env in enumerate((first, first, other)):
        with other_globals(seed):
            record = play(env, AGAIN, seed=11)
        runs.append([record.first[0], *(step.arrays for step in record.copies)])
    for run in runs[1:]:
        path = first_difference(runs[0], run)
        expect(path is None, "the same steps after the same seed", f"another {_in_words(path)}")


def returned_arrays_are_not_overwritten(case: EnvCase) -> None:
    """Arrays that a step returned do not change in later steps, unless `copy` is False."""
    if getattr(case.make().unwrapped, "copy", True) is False:
        raise DoesNotApply
    record = case.record
    for number, (now, then) in enumerate(zip(record.returned, record.copies, strict=True)):
        path = first_difference(then.arrays, now.arrays)
        expect(path is None, f"what step {number} returned", f"{path} that a later step changed")


def action_masks_fit_the_action_space(case: EnvCase) -> None:
    """Masks of actions have an entry for each choice, 0 or 1."""
    record = case.record
    if record.bad_mask is not None:
        raise record.bad_mask
    if not record.masks:
        raise DoesNotApply
    for infos in (record.first[1], *(step.infos for step in record.copies)):
        for mask in infos.get("action_mask", ()):
            values = set() if mask is None else {*np.asarray(mask).ravel().tolist()}
            expect(values <= {0, 1}, "masks of 0 and 1", values)


def infos_have_gymnasiums_form(case: EnvCase) -> None:
    """Infos are a dict by name, in which `_name` says by [N] flags which environments have one."""
    n = case.make().num_envs
    for infos in (case.record.first[1], *(step.infos for step in case.record.copies)):
        expect(isinstance(infos, dict), "a dict of infos", type(infos).__name__)
        for name in infos:
            expect(isinstance(name, str), "names of infos", repr(name))
            if name.startswith("_") and name[1:] in infos:
                flags = array_of(infos[name])
                good = flags.dtype == np.bool_ and flags.shape == (n,)
                expect(good, f"{name} bool ({n},)", f"{flags.dtype} {flags.shape}")


def a_saved_state_goes_on_exactly(case: EnvCase) -> None:
    """From the state that get_state gave, the same actions lead to the same steps."""
    env = case.make().unwrapped
    infos = play(env, 7, seed=3).copies[-1].infos
    state = environment_state(env)
    if state is None:
        raise DoesNotApply
    saved = copy.deepcopy(state)
    steps = _steps_of(env, infos)
    changed = first_difference(saved, state)
    expect(changed is None, "a state that stays as it was", f"another {changed} after some steps")
    restore_environment_state(env, saved)
    _expect_same(steps, _steps_of(env, infos))
    if case.makes_new:
        other = case.make().unwrapped
        other.reset(seed=4)
        restore_environment_state(other, saved)
        _expect_same(steps, _steps_of(other, infos))


def _steps_of(env: Any, after: dict[str, Any]) -> list[Any]:
    return [step.arrays for step in play(env, AGAIN, after=after).copies]


def _expect_same(steps: list[Any], again: list[Any]) -> None:
    path = first_difference(steps, again)
    expect(path is None, "the same steps from the same state", f"another {_in_words(path)}")


def _in_words(path: str | None) -> str:
    step, _, name = (path or "").partition(".")
    return f"{name or 'observation'} in step {step}"


def _ending_steps(case: EnvCase, env: Any, mode: str) -> list[Played]:
    """Steps in which an episode ended, of an environment of this mode."""
    found = [step for step in case.record.copies if step.ended.any()]
    if autoreset_mode(env) != mode or not found:
        raise DoesNotApply
    return found


def _expect_inside(space: Any, obs: Nested, when: str) -> None:
    inner = dict(leaves(leaf_spaces(space)))
    for path, leaf in leaves(obs):
        for row, value in enumerate(array_of(leaf)):
            if not inner[path].contains(np.asarray(value)):
                where = f"{value} of environment {row} in {when}"
                expect(False, f"an observation {path} in {inner[path]}", where)


def _row(obs: Nested, row: int) -> Nested:
    return map_leaves(lambda leaf: array_of(leaf)[row], obs)


def _is_constant(observations: list[Nested]) -> bool:
    return all(first_difference(observations[0], obs) is None for obs in observations)


ENV_RULES = by_name(
    can_be_reset_and_stepped,
    spaces_are_those_of_one_environment_batched,
    observations_have_shape_and_dtype_of_the_space,
    observations_are_in_their_space,
    rewards_are_one_number_for_each,
    rewards_are_finite,
    terminated_and_truncated_are_flags,
    termination_and_truncation_are_told_apart,
    autoreset_mode_is_declared,
    same_step_gives_the_true_last_observation,
    next_step_resets_in_the_step_after_an_end,
    disabled_resets_only_what_is_asked,
    reset_with_a_seed_reproduces,
    returned_arrays_are_not_overwritten,
    action_masks_fit_the_action_space,
    infos_have_gymnasiums_form,
    a_saved_state_goes_on_exactly,
)
"""The rules of `check_env` by name."""
