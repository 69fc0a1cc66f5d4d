"""The contract of learners: what loops, checkpoints and people with a loop of their own rely on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from sharpwave.envs import ActionScale
from sharpwave.learners import Learner
from sharpwave.storage.checkpoints import read_checkpoint, write_checkpoint
from sharpwave.testing.bits import (
    bits,
    first_difference,
    global_states,
    other_globals,
    state_of,
)
from sharpwave.testing.contract import DoesNotApply, by_name, expect, hold
from sharpwave.testing.learner_case import (
    LearnerCase,
    alone_like,
    columns_of,
    learn,
    own_loop,
    single,
)

if TYPE_CHECKING:
    from sharpwave.agents import Agent

__all__ = ["LEARNER_RULES", "check_learner"]

TD_ERRORS = "td_errors"


def check_learner(
    learner: type[Learner] | None,
    algorithm: type[Agent],
    source: Any,
    *,
    rules: str | Iterable[str] | None = None,
    **options: Any,
) -> tuple[str, ...]:
    """Check that a learner keeps its contract in an algorithm.

    Args:
        learner: The class; None for the algorithm's own, native where that can be.
        algorithm: The class of agents, such as `sw.SAC`.
        source: First argument of its constructor: an id or a function that makes the environment,
            or a dataset.
        rules: Names of `LEARNER_RULES` to check; all when None.
        **options: Further arguments of the constructor. Networks, batches and rollouts are small
            unless they say otherwise.

    Returns:
        The names of the rules that were checked; those that do not apply are left out.

    Raises:
        ContractError: Rules are broken; all of them are named.

    Example:
        >>> class Mine(sw.DQNLearner):
        ...     pass
        >>> rule = "update_counts_itself"
        >>> sw.testing.check_learner(Mine, sw.DQN, "CartPole-v1", rules=rule)
        ('update_counts_itself',)
    """
    subject = f"{algorithm.__name__}'s learner" if learner is None else learner.__qualname__
    case = LearnerCase(learner, algorithm, source, options)
    return hold(subject, LEARNER_RULES, case, rules)


# The rules


def is_taken_by_the_algorithm(case: LearnerCase) -> None:
    """The algorithm makes agents with it."""
    agent = case.make()
    learner = single(agent.learner)
    expect(isinstance(learner, Learner), "a Learner", type(learner).__name__)
    expect(agent.learner.updates == 0, "0 updates at first", agent.learner.updates)
    expect(agent.learner.networks, "networks that were added by `add`", "none")


def same_seed_gives_the_same_weights(case: LearnerCase) -> None:
    """The seed alone decides the first weights, whatever the global generators hold."""
    states = []
    for number, seed in enumerate((3, 3, 4)):
        with other_globals(number):
            states.append(state_of(case.make(seed).learner))
    _expect_equal(states[0], states[1], "first weights of the same seed")
    expect(states[0] != states[2], "other first weights for another seed", "the same")


def update_counts_itself(case: LearnerCase) -> None:
    """Each call of update adds one to `updates`."""
    learner = case.make().learner
    learner.follow(1.0)
    for number, batch in enumerate(case.batches, 1):
        learner.update(batch)
        expect(learner.updates == number, f"updates == {number}", learner.updates)


def update_changes_the_networks(case: LearnerCase) -> None:
    """A few updates change weights."""
    agent = case.make()
    before = state_of(agent.learner)
    learn(agent.learner, case.batches)
    expect(state_of(agent.learner) != before, "other weights after updates", "the same")


def update_leaves_the_batch_alone(case: LearnerCase) -> None:
    """The arrays and tensors of a batch are as they were before the update."""
    learner = case.make().learner
    learner.follow(1.0)
    for batch in case.batches:
        columns = columns_of(batch)  # an entry may be replaced by another, but not written into
        before = bits(columns)
        learner.update(batch)
        after = bits(columns)
        changed = [path for path in before if before[path] != after[path]]
        expect(not changed, "a batch as it was", f"other numbers in {', '.join(changed)}")


def updates_are_decided_by_seed_and_batches(case: LearnerCase) -> None:
    """Seed and batches decide the weights bit for bit, whatever the global generators hold."""
    states = []
    batches = case.batches, case.batches
    for number, mine in enumerate(batches):
        agent = case.make()
        with other_globals(number):
            learn(agent.learner, mine)
        states.append(state_of(agent.learner))
    _expect_equal(states[0], states[1], "weights after the same updates")


def learns_without_an_agent(case: LearnerCase) -> None:
    """Made by itself from options, spaces and seeds, it learns the same from batches."""
    agent = case.make()
    alone = alone_like(agent)
    learn(agent.learner, case.batches)
    learn(alone, case.batches)
    _expect_equal(state_of(agent.learner), state_of(alone), "weights with an agent and without")


def global_generators_are_left_alone(case: LearnerCase) -> None:
    """Making a learner, acting and updating draw nothing from random, NumPy and torch."""
    agent, batches = case.make(), case.batches
    before = global_states()
    learner = alone_like(agent)  # without an environment, which may draw the seed of its own
    case.acted(learner, 3, explore=True)
    learn(learner, batches)
    after = global_states()
    moved = [name for name in before if first_difference(before[name], after[name]) is not None]
    expect(not moved, "global generators where they were", f"{', '.join(moved)} moved on")


def metrics_are_finite_numbers(case: LearnerCase) -> None:
    """Updates measure something, and each metric that no buffer keeps is one finite number."""
    learner = case.make().learner
    kept = {TD_ERRORS, *getattr(getattr(learner, "Sampler", None), "written", ())}
    for metrics in learn(learner, case.batches):
        expect(metrics, "metrics by name", "none")
        for name, value in metrics.items():
            if name not in kept:
                good = value.size == 1 and bool(np.isfinite(value.astype(np.float64)).all())
                expect(good, f"one finite number as {name}", value)


def td_errors_are_one_for_each_row(case: LearnerCase) -> None:
    """The td_errors of an update are finite, one for each row of the batch."""
    batches = case.batches
    for batch, metrics in zip(batches, learn(case.make().learner, batches), strict=True):
        if TD_ERRORS not in metrics:
            raise DoesNotApply
        errors, n = metrics[TD_ERRORS], len(batch.rewards)
        good = errors.shape == (n,) and bool(np.isfinite(errors).all())
        expect(good, f"{n} finite td_errors of shape ({n},)", f"shape {errors.shape}, {errors}")


def act_gives_an_action_for_each_observation(case: LearnerCase) -> None:
    """Actions, log_probs and values have as many rows as there are observations."""
    agent = case.make()
    for n in (1, 5):
        for explore in (False, True):
            acted = case.acted(agent.learner, n, explore=explore)
            rows = np.shape(acted.actions)[:1]
            expect(rows == (n,), f"{n} actions for {n} observations", rows)
            for name in ("log_probs", "values"):
                column = getattr(acted, name)
                if column is not None:
                    expect(np.shape(column) == (n,), f"{name} ({n},)", np.shape(column))


def actions_are_in_their_space(case: LearnerCase) -> None:
    """Actions become those of the environment's space; scaled ones are in [-1, 1] before."""
    agent = case.make()
    learner = single(agent.learner)
    to_env, space = learner.action_map, learner.action_space
    for explore in (False, True):
        actions = case.acted(agent.learner, 7, explore=explore).actions
        if isinstance(to_env, ActionScale):
            inside = np.abs(actions).max() <= 1 + 1e-6
            expect(inside, "actions in [-1, 1]", f"{actions.min()} to {actions.max()}")
        for action in to_env.to_env(actions):
            expect(space.contains(action), f"an action of {space}", f"{action} {action.dtype}")


def acting_without_exploring_is_repeatable(case: LearnerCase) -> None:
    """Without exploring, an observation leads to the same action every time."""
    agent = case.make()
    first, again = (case.acted(agent.learner, 5, explore=False).actions for _ in range(2))
    same = first_difference(first, again) is None
    expect(same, "the same actions twice", f"{first.tolist()} and {again.tolist()}")


def acting_changes_nothing_that_learns(case: LearnerCase) -> None:
    """Acting moves no weight and counts no update."""
    agent = case.make()
    before = state_of(agent.learner)
    for explore in (False, True):
        case.acted(agent.learner, 5, explore=explore)
    _expect_equal(before, state_of(agent.learner), "weights after acting")
    expect(agent.learner.updates == 0, "0 updates", agent.learner.updates)


def state_dict_holds_arrays_and_plain_values(case: LearnerCase) -> None:
    """A checkpoint holds the whole state without pickling anything."""
    agent = case.make()
    learn(agent.learner, case.batches)
    path = case.folder() / "learner.safetensors"
    write_checkpoint(path, {}, agent.learner.state_dict())  # raises for anything else
    _, state = read_checkpoint(path)
    lost = set(bits(agent.learner.state_dict())) - set(bits(state))
    expect(not lost, "the whole state in the file", f"without {sorted(lost)}")


def state_dict_goes_on_bit_for_bit(case: LearnerCase) -> None:
    """A learner that loads the state of another acts and learns on exactly as that one does."""
    agent, other = case.make(3), case.make(4)
    learn(agent.learner, case.batches)
    path = case.folder() / "learner.safetensors"
    write_checkpoint(path, {}, agent.learner.state_dict())
    other.learner.load_state_dict(read_checkpoint(path)[1])
    _expect_equal(state_of(agent.learner), state_of(other.learner), "weights after loading")
    counts = agent.learner.updates, other.learner.updates
    expect(counts[0] == counts[1], f"updates == {counts[0]} after loading", counts[1])
    actions = [case.acted(one.learner, 5, explore=True).actions for one in (agent, other)]
    expect(first_difference(*actions) is None, "the same actions after loading", actions)
    for one in (agent, other):
        learn(one.learner, case.batches)
    _expect_equal(state_of(agent.learner), state_of(other.learner), "weights when it goes on")


def own_loop_learns_what_train_does(case: LearnerCase) -> None:
    """The documented loop of one's own ends with the weights of train, bit for bit."""
    trained, own = case.make(), case.make()
    trained.train(3 * case.steps)
    own_loop(own, 3 * case.steps)
    _expect_equal(state_of(trained.learner), state_of(own.learner), "weights of both loops")


def a_checkpoint_gives_the_agent_back(case: LearnerCase) -> None:
    """An agent that was saved and loaded has the same weights and predicts the same."""
    agent = case.make()
    agent.train(case.steps)
    path = case.folder() / "agent.safetensors"
    agent.save(path)
    other = case.load(path)
    _expect_equal(state_of(agent.learner), state_of(other.learner), "weights of the checkpoint")
    actions = [case.predictions(one, 5) for one in (agent, other)]
    expect(first_difference(*actions) is None, "the same predictions", actions)


def a_resumed_run_is_the_run(case: LearnerCase) -> None:
    """A run that was saved and loaded goes on bit for bit, where its environments do."""
    agent = case.make()
    agent.train(case.steps)
    case.need_exact_resume(agent)
    path = case.folder() / "agent.safetensors"
    agent.save(path)
    resumed = case.load(path)
    for one in (agent, resumed):
        one.train(case.steps)
    _expect_equal(state_of(agent.learner), state_of(resumed.learner), "weights of both runs")


def _expect_equal(one: dict[str, bytes], other: dict[str, bytes], what: str) -> None:
    differing = [name for name in {**one, **other} if one.get(name) != other.get(name)]
    expect(not differing, f"equal {what}", f"others in {', '.join(differing[:5])}")


LEARNER_RULES = by_name(
    is_taken_by_the_algorithm,
    same_seed_gives_the_same_weights,
    update_counts_itself,
    update_changes_the_networks,
    update_leaves_the_batch_alone,
    updates_are_decided_by_seed_and_batches,
    learns_without_an_agent,
    global_generators_are_left_alone,
    metrics_are_finite_numbers,
    td_errors_are_one_for_each_row,
    act_gives_an_action_for_each_observation,
    actions_are_in_their_space,
    acting_without_exploring_is_repeatable,
    acting_changes_nothing_that_learns,
    state_dict_holds_arrays_and_plain_values,
    state_dict_goes_on_bit_for_bit,
    own_loop_learns_what_train_does,
    a_checkpoint_gives_the_agent_back,
    a_resumed_run_is_the_run,
)
"""The rules of `check_learner` by name."""
