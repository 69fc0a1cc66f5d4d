"""Learners that break their contract, each in one way."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch

import sharpwave as sw
from sharpwave import nn


class NotALearner:
    pass


class WeightsOfTheGlobalGenerator(sw.DQNLearner):
    def build(self) -> None:
        super().build()
        with torch.no_grad():
            self.flats["q_network"].data.add_(np.random.normal())  # noqa: NPY002


class SameWeightsForAllSeeds(sw.DQNLearner):
    def build(self) -> None:
        super().build()
        for flat in self.flats.values():
            flat.data.fill_(0.1)


class NeverCounts(sw.DQNLearner):
    def update(self, batch: Any) -> Any:
        metrics = super().update(batch)
        self.updates -= 1
        return metrics


class NeverLearns(sw.DQNLearner):
    def update(self, batch: Any) -> Any:
        self.updates += 1
        return {"loss": 0.0}


class WritesIntoTheBatch(sw.DQNLearner):
    def update(self, batch: Any) -> Any:
        batch.rewards.mul_(0.9)
        return super().update(batch)


class DrawsGlobally(sw.DQNLearner):
    def update(self, batch: Any) -> Any:
        batch.rewards = batch.rewards + torch.randn_like(batch.rewards)
        return super().update(batch)


class CopiesTheGlobalGenerator(sw.DQNLearner):
    """Leaves the generator where it was, and depends on it all the same."""

    def update(self, batch: Any) -> Any:
        with torch.random.fork_rng(devices=[]):
            batch.rewards = batch.rewards + torch.randn_like(batch.rewards)
        return super().update(batch)


class NotANumber(sw.DQNLearner):
    def update(self, batch: Any) -> Any:
        return {**super().update(batch), "surprise": torch.tensor(float("nan"))}


class RowsAsMetric(sw.DQNLearner):
    def update(self, batch: Any) -> Any:
        return {**super().update(batch), "rewards": batch.rewards}


class ColumnOfErrors(sw.DQNLearner):
    def update(self, batch: Any) -> Any:
        metrics = super().update(batch)
        return {**metrics, "td_errors": metrics["td_errors"][:, None]}


class ActsForOne(sw.DQNLearner):
    def act(self, obs: Any, **options: Any) -> Any:
        acted = super().act(obs, **options)
        return acted._replace(actions=acted.actions[:1])


class ActsOutside(sw.SACLearner):
    def act(self, obs: Any, **options: Any) -> Any:
        acted = super().act(obs, **options)
        return acted._replace(actions=3 * acted.actions)


class ChoosesOutside(sw.DQNLearner):
    def act(self, obs: Any, **options: Any) -> Any:
        acted = super().act(obs, **options)
        return acted._replace(actions=acted.actions + 2)


class AlwaysExplores(sw.SACLearner):
    def act(self, obs: Any, *, explore: bool, **options: Any) -> Any:
        return super().act(obs, explore=True, **options)


class LearnsByActing(sw.DQNLearner):
    def act(self, obs: Any, **options: Any) -> Any:
        with torch.no_grad():
            self.flats["q_network"].data.add_(1e-3)
        return super().act(obs, **options)


class StateOfObjects(sw.DQNLearner):
    def extra_state(self) -> dict[str, Any]:
        return {**super().extra_state(), "config": self.config}


class ForgetsItsOptimizer(sw.DQNLearner):
    """Has momentum beside the library's optimizer, which no checkpoint knows."""

    velocity: Any = 0.0

    def update(self, batch: Any) -> Any:
        metrics = super().update(batch)
        flat = self.flats["q_network"]
        with torch.no_grad():
            self.velocity = 0.9 * self.velocity + flat.data
            flat.data.sub_(1e-3 * self.velocity)
        return metrics


class ForgetsToCount(sw.DQNLearner):
    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.updates = 0


class CountsAllLearners(sw.DQNLearner):
    """Scales rewards by a number that learners of the whole process share."""

    calls: ClassVar[list[int]] = [0]

    def update(self, batch: Any) -> Any:
        self.calls[0] += 1
        batch.rewards = batch.rewards / self.calls[0]
        return super().update(batch)


class CountedByTheLoop(sw.DQNLearner):
    """Scales rewards by a count that the library's loops keep, and a loop of one's own does not."""

    def update(self, batch: Any) -> Any:
        before = self.updates
        batch.rewards = batch.rewards / (1 + before)
        metrics = super().update(batch)
        self.updates = before
        return metrics


class ForgetsInCheckpoints(sw.DQNLearner):
    """Loads the first weights of a network of its own."""

    def build(self) -> None:
        super().build()
        self.model = self.add("model", torch.nn.Linear(4, 4), lambda flat: nn.Adam(flat, lr=0.0))

    def update(self, batch: Any) -> Any:
        self.descend("model", (self.model(batch.obs) - batch.next_obs).square().mean())
        return super().update(batch)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        first = {k: v.clone() for k, v in self.model.state_dict().items()}
        super().load_state_dict(state)
        self.model.load_state_dict(first)


class Curious(sw.DQNLearner):
    """Keeps the contract with a network of torch's layers beside its own."""

    def build(self) -> None:
        super().build()
        self.model = self.add("model", torch.nn.Linear(4, 4), lambda flat: nn.Adam(flat, lr=0.0))

    def update(self, batch: Any) -> Any:
        surprise = (self.model(batch.obs) - batch.next_obs).square().mean(-1)
        self.descend("model", surprise.mean())
        batch.rewards = batch.rewards + 0.1 * surprise.detach()
        return {**super().update(batch), "surprise": surprise.detach().mean()}


BROKEN: dict[type, tuple[str, ...]] = {
    NotALearner: ("is_taken_by_the_algorithm",),
    WeightsOfTheGlobalGenerator: ("same_seed_gives_the_same_weights",),
    SameWeightsForAllSeeds: ("same_seed_gives_the_same_weights",),
    NeverCounts: ("update_counts_itself",),
    NeverLearns: ("update_changes_the_networks",),
    WritesIntoTheBatch: ("update_leaves_the_batch_alone",),
    CopiesTheGlobalGenerator: ("updates_are_decided_by_seed_and_batches",),
    CountsAllLearners: ("learns_without_an_agent",),
    DrawsGlobally: (
        "global_generators_are_left_alone",
        "updates_are_decided_by_seed_and_batches",
    ),
    NotANumber: ("metrics_are_finite_numbers",),
    RowsAsMetric: ("metrics_are_finite_numbers",),
    ColumnOfErrors: ("td_errors_are_one_for_each_row",),
    ActsForOne: ("act_gives_an_action_for_each_observation",),
    ActsOutside: ("actions_are_in_their_space",),
    ChoosesOutside: ("actions_are_in_their_space",),
    AlwaysExplores: ("acting_without_exploring_is_repeatable",),
    LearnsByActing: ("acting_changes_nothing_that_learns",),
    StateOfObjects: ("state_dict_holds_arrays_and_plain_values",),
    ForgetsItsOptimizer: ("state_dict_goes_on_bit_for_bit", "a_resumed_run_is_the_run"),
    ForgetsToCount: ("state_dict_goes_on_bit_for_bit",),
    CountedByTheLoop: ("own_loop_learns_what_train_does",),
    ForgetsInCheckpoints: ("a_checkpoint_gives_the_agent_back",),
}
"""Broken learners, and the rules that find each."""
