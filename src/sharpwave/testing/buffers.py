"""The contract of replay buffers: what algorithms that learn from replay take as `buffer=`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from gymnasium import spaces

from sharpwave.algorithms import DQN, SAC
from sharpwave.buffers import ReplayBuffer
from sharpwave.core.tree import leaves, map_leaves
from sharpwave.envs.spaces import leaf_spaces
from sharpwave.loops.foreign_buffer import ForeignBuffer
from sharpwave.testing.bits import array_of, first_difference, global_states, state_of
from sharpwave.testing.buffer_case import CAPACITY, BufferCase, differing_rows
from sharpwave.testing.contract import DoesNotApply, by_name, expect, hold

__all__ = ["BUFFER_RULES", "check_buffer"]


def check_buffer(
    make: Callable[[int], Any],
    env: Any = "CartPole-v1",
    *,
    rules: str | Iterable[str] | None = None,
) -> tuple[str, ...]:
    """Check that replay buffers keep their contract, so that an algorithm may learn from them.

    A buffer has `push(obs, action, reward, terminated, truncated, next_obs)`, a length, and
    `sample(batch_size)` or `sample(batch_size, seed)`, which returns a dict of arrays or tensors
    with the entries obs, actions, rewards, next_obs, and terminated or discounts. One with
    `update_priorities(indices, priorities)` gives `indices` and `weights` too.

    Args:
        make: From a capacity to an empty buffer, again and again; often the class itself. A buffer
            with `close()` is closed after use.
        env: An id, or a function that makes the environment, whose steps the buffers hold.
        rules: Names of `BUFFER_RULES` to check; all when None.

    Returns:
        The names of the rules that were checked; those that do not apply are left out.

    Raises:
        ContractError: Rules are broken; all of them are named.

    Example:
        >>> def make(capacity):
        ...     return sw.ReplayBuffer(capacity, obs_dim=4, act_dim=1)
        >>> "oldest_rows_are_overwritten_first" in sw.testing.check_buffer(make)
        True
    """
    subject = getattr(make, "__qualname__", None) or repr(make)
    return hold(subject, BUFFER_RULES, BufferCase(make, env), rules)


# The rules


def has_push_sample_and_a_length(case: BufferCase) -> None:
    """A buffer has push, sample and a length."""
    buffer = case.make()
    if not isinstance(buffer, ReplayBuffer):
        ForeignBuffer(buffer, 0)  # raises, and names what is missing


def is_empty_at_first(case: BufferCase) -> None:
    """A new buffer holds nothing."""
    n = len(case.make())
    expect(n == 0, "length 0", n)


def refuses_to_sample_when_empty(case: BufferCase) -> None:
    """Sampling an empty buffer raises."""
    try:
        drawn = case.sample(case.make(), 1)
    except Exception:
        return
    expect(False, "an exception", f"a batch with {list(drawn)}")


def length_counts_rows_up_to_the_capacity(case: BufferCase) -> None:
    """The length is the number of pushes, up to the capacity."""
    buffer = case.make()
    n = 2 * CAPACITY + 3
    # One long episode: where observations are stored once, an episode's end takes a place too.
    for i, row in enumerate(case.rows(n, episode=n + 1), 1):
        buffer.push(*row)
        wanted = min(i, CAPACITY)
        expect(
            len(buffer) == wanted,
            f"length {wanted} after {i} pushes at capacity {CAPACITY}",
            len(buffer),
        )


def batches_have_all_entries(case: BufferCase) -> None:
    """A batch has obs, actions, rewards, next_obs, and terminated or discounts."""
    drawn = case.sample(case.filled(CAPACITY), 4)
    names = {"obs", "actions", "rewards", "next_obs"}
    names |= {"terminated"} if "discounts" not in drawn else set()
    expect(names <= set(drawn), f"the entries {sorted(names)}", sorted(drawn))


def batches_have_the_rows_asked_for(case: BufferCase) -> None:
    """A batch has as many rows as were asked for, in every entry."""
    buffer = case.filled(2 * CAPACITY)
    for size in (1, 3, len(buffer)):
        for path, leaf in leaves(case.sample(buffer, size)):
            rows = array_of(leaf).shape[:1]
            expect(rows == (size,), f"{size} rows of {path}", rows)


def shapes_and_dtypes_are_those_of_the_spaces(case: BufferCase) -> None:
    """Entries have the shapes of the spaces; integers stay integers, and numbers are numbers."""
    drawn = case.sample(case.filled(CAPACITY), 4)
    observation_space, action_space = case.spaces
    wanted = dict(leaves(leaf_spaces(observation_space)))
    for name in ("obs", "next_obs"):
        for path, leaf in leaves(drawn[name]):
            array, space = array_of(leaf), wanted[path]
            expect(array.shape[1:] == space.shape, f"{name} {path} of {space}", array.shape[1:])
            whole = space.dtype.kind in "iub"  # images are scaled by their dtype
            kinds = "iub" if whole else "f"
            expect(array.dtype.kind in kinds, f"{name} {path} of {space.dtype}", array.dtype)
    size = int(np.prod(action_space.shape or ()))
    actions = array_of(drawn["actions"])
    expect(actions.size == 4 * size, f"actions of {action_space}", actions.shape)
    expect(actions.dtype.kind in "iubf", "actions that are numbers", actions.dtype)
    for name in ("rewards", "terminated", "truncated", "discounts", "weights"):
        if name in drawn:
            array = array_of(drawn[name])
            expect(array.shape == (4,), f"{name} of shape (4,)", array.shape)
            expect(array.dtype.kind in "iubf", f"{name} that are numbers", array.dtype)
    rewards = array_of(drawn["rewards"])
    expect(rewards.dtype.kind == "f", "floating point rewards", rewards.dtype)


def rows_stay_together(case: BufferCase) -> None:
    """Observation, action and reward of a drawn row were pushed together."""
    for n in (CAPACITY // 2, 2 * CAPACITY + 7):
        drawn = case.draws(case.filled(n))
        _expect_entry(case, drawn, n, "obs", "obs")
        _expect_entry(case, drawn, n, "actions", "action")


def next_obs_is_what_the_action_led_to(case: BufferCase) -> None:
    """The next_obs of a drawn row is the one that was pushed with it, also at an episode's end."""
    for n in (CAPACITY // 2, 2 * CAPACITY + 7):
        _expect_entry(case, case.draws(case.filled(n)), n, "next_obs", "next_obs")


def termination_and_truncation_stay_apart(case: BufferCase) -> None:
    """Rows are marked as terminated where they were pushed so, and not where truncated."""
    n = 2 * CAPACITY + 7
    drawn = case.draws(case.filled(n))
    if "discounts" in drawn:
        zero = (array_of(drawn["discounts"]) == 0).tolist()
        wanted = [case.rows(n)[i].terminated for i in case.numbers(drawn)]
        expect(zero == wanted, "a discount of 0 where a row terminated alone", "another one")
    for name in ("terminated", "truncated"):
        if name in drawn:
            _expect_entry(case, drawn, n, name, name)


def oldest_rows_are_overwritten_first(case: BufferCase) -> None:
    """A full buffer holds the newest rows: the oldest are overwritten first."""
    for n in (CAPACITY + 1, 2 * CAPACITY + 7):
        buffer = case.filled(n)
        oldest = n - len(buffer)
        old = sorted({i for i in case.numbers(case.draws(buffer)) if i < oldest})
        expect(not old, f"rows {oldest} to {n - 1} after {n} pushes", f"rows {old} too")


def every_row_can_be_drawn(case: BufferCase) -> None:
    """Each row that the length counts is drawn at some time."""
    for n in (CAPACITY - 3, 2 * CAPACITY + 7):
        buffer = case.filled(n)
        missing = set(range(n - len(buffer), n)) - set(case.numbers(case.draws(buffer, 600)))
        expect(not missing, f"all of {len(buffer)} rows in 600 draws", f"never {sorted(missing)}")


def same_seed_gives_the_same_batch(case: BufferCase) -> None:
    """A seed and the rows decide what is drawn; another seed draws something else."""
    first, second = case.filled(CAPACITY), case.filled(CAPACITY)
    if not case.takes_seed(first):
        raise DoesNotApply
    second.sample(3, 1)  # what was drawn before does not count
    one, other = (dict(buffer.sample(8, 77)) for buffer in (first, second))
    expect((path := first_difference(one, other)) is None, "equal batches of a seed", f"{path=}")
    batches = [case.numbers(first.sample(8, seed)) for seed in range(5)]
    expect(any(x != batches[0] for x in batches), "other rows for other seeds", batches[0])


def draws_leave_global_generators_alone(case: BufferCase) -> None:
    """Pushing and sampling draw nothing from the generators of random, NumPy and torch."""
    buffer = case.make()
    before = global_states()
    for row in case.rows(CAPACITY):
        buffer.push(*row)
    case.sample(buffer, 8)
    after = global_states()
    moved = [name for name in before if first_difference(before[name], after[name]) is not None]
    expect(not moved, "global generators where they were", f"{', '.join(moved)} moved on")


def pushed_arrays_are_copied(case: BufferCase) -> None:
    """Changing an array after it was pushed does not change the row."""
    buffer, n = case.make(), CAPACITY // 2
    for row in case.rows(n):
        mine = row._replace(
            obs=map_leaves(np.array, row.obs), next_obs=map_leaves(np.array, row.next_obs)
        )
        buffer.push(*mine)
        for _, leaf in (*leaves(mine.obs), *leaves(mine.next_obs)):
            leaf[...] = 0
    drawn = case.draws(buffer, 50)
    _expect_entry(case, drawn, n, "obs", "obs")
    _expect_entry(case, drawn, n, "next_obs", "next_obs")


def batches_are_not_overwritten(case: BufferCase) -> None:
    """A batch stays as it was while more rows are pushed and other batches drawn."""
    buffer = case.filled(CAPACITY)
    batch = case.sample(buffer, 8)
    before = map_leaves(lambda leaf: array_of(leaf).copy(), batch)
    for row in case.rows(2 * CAPACITY)[CAPACITY:]:
        buffer.push(*row)
        case.sample(buffer, 8)
    changed = first_difference(before, batch)
    expect(changed is None, "a batch that stays as it was", f"another {changed}")


def refuses_rewards_that_are_not_finite(case: BufferCase) -> None:
    """Pushing a reward of NaN or infinity raises and stores nothing."""
    for bad in (np.nan, np.inf, -np.inf):
        _expect_refused(case, f"reward {bad}", reward=bad)


def refuses_observations_of_another_shape(case: BufferCase) -> None:
    """Pushing an observation of another shape raises and stores nothing."""
    larger = map_leaves(lambda leaf: np.stack([leaf] * 3), case.rows(1)[0].obs)
    _expect_refused(case, "obs of three times the size", obs=larger)


def priorities_are_followed(case: BufferCase) -> None:
    """Rows are drawn as their priorities say, with weights in (0, 1]."""
    buffer = case.filled(CAPACITY)
    if not hasattr(buffer, "update_priorities") or "indices" not in case.sample(buffer, 1):
        raise DoesNotApply
    drawn = case.draws(buffer)
    ids = dict(zip(case.numbers(drawn), array_of(drawn["indices"]).tolist(), strict=True))
    favorite = max(ids)
    low = [i for number, i in ids.items() if number != favorite]
    buffer.update_priorities(np.array([ids[favorite]]), np.array([100.0]))
    buffer.update_priorities(np.array(low), np.full(len(low), 1e-3))
    after = case.draws(buffer, 100 * CAPACITY)
    share = np.mean([number == favorite for number in case.numbers(after)])
    expect(share > 2 / CAPACITY, "more draws of a row of priority 100 than of 0.001", share)
    for batch in (drawn, after):
        weights = array_of(batch["weights"]).astype(np.float64)
        inside = bool(((weights > 0) & (weights <= 1 + 1e-6)).all())
        expect(inside, "weights in (0, 1]", f"{weights.min()} to {weights.max()}")


def an_algorithm_learns_from_it(case: BufferCase) -> None:
    """DQN, or SAC where actions are continuous, trains from it, and the seed decides how."""
    algorithm: Any = SAC if isinstance(case.spaces[1], spaces.Box) else DQN
    small = {"hidden": 8, "batch_size": 8, "learning_starts": 16, "train_freq": 4, "seed": 3}
    learned = []
    for _ in range(2):
        buffer = case.make(64)
        agent = algorithm(case.env, n_envs=1, buffer=buffer, **small)
        metrics = agent.train(48)
        steps, finite = agent.gradient_steps, all(map(np.isfinite, _of_updates(metrics)))
        expect(len(buffer) > 40, "the 48 steps of the run in the buffer", len(buffer))
        expect(steps > 0 and finite, "gradient steps with finite metrics", metrics)
        learned.append(state_of(agent))
        agent.close()
    if case.takes_seed(buffer):
        expect(learned[0] == learned[1], "equal weights of equal seeds", "others")


def _of_updates(metrics: dict[str, float]) -> list[float]:
    return [value for name, value in metrics.items() if name.endswith("loss")]


def _expect_entry(case: BufferCase, drawn: dict[str, Any], n: int, name: str, field: str) -> None:
    """An entry of the drawn rows is what was pushed with their rewards."""
    rows, numbers = case.rows(n), case.numbers(drawn)
    unknown = [i for i in numbers if i >= n]
    expect(not unknown, f"rows that were pushed, {n} of them", f"rewards of rows {unknown}")
    wrong = differing_rows(drawn[name], [getattr(rows[i], field) for i in numbers])
    bad = sorted({numbers[i] for i in wrong})
    expect(not wrong, f"the {field} that was pushed with each reward", f"others in rows {bad}")


def _expect_refused(case: BufferCase, what: str, **bad_entries: Any) -> None:
    buffer = case.filled(CAPACITY // 2)
    bad = case.rows(CAPACITY)[-1]._replace(**bad_entries)
    try:
        buffer.push(*bad)
    except Exception:
        n = len(buffer)
        expect(n == CAPACITY // 2, f"nothing stored of a {what}", f"length {n}")
    else:
        expect(False, f"an exception for {what}", f"a buffer of {len(buffer)} rows")


BUFFER_RULES = by_name(
    has_push_sample_and_a_length,
    is_empty_at_first,
    refuses_to_sample_when_empty,
    length_counts_rows_up_to_the_capacity,
    batches_have_all_entries,
    batches_have_the_rows_asked_for,
    shapes_and_dtypes_are_those_of_the_spaces,
    rows_stay_together,
    next_obs_is_what_the_action_led_to,
    termination_and_truncation_stay_apart,
    oldest_rows_are_overwritten_first,
    every_row_can_be_drawn,
    same_seed_gives_the_same_batch,
    draws_leave_global_generators_alone,
    pushed_arrays_are_copied,
    batches_are_not_overwritten,
    refuses_rewards_that_are_not_finite,
    refuses_observations_of_another_shape,
    priorities_are_followed,
    an_algorithm_learns_from_it,
)
"""The rules of `check_buffer` by name."""
