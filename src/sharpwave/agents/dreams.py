"""Predictions of agents with a world model: imagined trajectories and open-loop prediction.

Classes of agents take these methods as their own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sharpwave import envs
from sharpwave.buffers import Uniform
from sharpwave.core.lazy import losses, nn, torch
from sharpwave.core.tree import leaves, map_leaves
from sharpwave.learners.sequences import SequenceBatch
from sharpwave.runs.interval import positive
from sharpwave.tensors.device_buffer import DeviceBuffer
from sharpwave.types import Array, Nested

if TYPE_CHECKING:
    from torch import Tensor

    from sharpwave.nn import Latent

__all__ = ["Dream", "OpenLoop", "check_has_batch", "imagine", "open_loop", "sequences_of"]

SHOWN = 6
"""Sequences that are drawn to look at."""
CONTEXT = 5
"""Rows that the model sees, of sequences that are long enough."""


class Dream(NamedTuple):
    """Steps [H, B] that a model imagined: what each action led to.

    Observations and rewards are as the learner has them: normalized where the run normalizes.

    Attributes:
        obs: [H, B, ...] the observations that the actions led to, nested as the space.
        actions: [H, B, ...] as the environment takes them.
        rewards: [H, B] that arrived with the observations.
        continues: [H, B] discounts of what follows: near 0 where the episode is expected to end.
        values: [H, B] expected returns from there on.
    """

    obs: Nested
    actions: Array
    rewards: Array
    continues: Array
    values: Array


class OpenLoop(NamedTuple):
    """Sequences [B, T] and what a model that saw their beginning made of them.

    Attributes:
        truth: [B, T, ...] observations, nested as the space.
        prediction: [B, T, ...] what the model decodes: the first `context` rows with the
            observation seen, the others with nothing but the actions.
        error: [B, T, ...] prediction less truth; of images halved and around 128, uint8; of
            integers whether they differ.
        rewards: [B, T] that arrived with the observations.
        predicted_rewards: [B, T] that the model expected.
        context: Rows that it saw.
    """

    truth: Nested
    prediction: Nested
    error: Nested
    rewards: Array
    predicted_rewards: Array
    context: int

    @property
    def videos(self) -> dict[str, Array]:
        """Truth, model and error of images side by side, [B, T, H, 3W, C] uint8 by entry."""
        parts = [dict(leaves(nest)) for nest in (self.truth, self.prediction, self.error)]
        images = [name for name, leaf in parts[0].items() if leaf.ndim == 5]
        return {name: np.concatenate([part[name] for part in parts], axis=3) for name in images}

    @property
    def video(self) -> Array | None:
        """The first of `videos`; None where no observation is an image."""
        return next(iter(self.videos.values()), None)

    @property
    def curves(self) -> dict[str, tuple[Array, Array]]:
        """Truth and prediction [B, T, n] of all that is no image, by entry; and of the reward."""
        prediction = dict(leaves(self.prediction))
        found = {
            name or "obs": (_rows(leaf), _rows(prediction[name]))
            for name, leaf in leaves(self.truth)
            if leaf.ndim != 5
        }
        return {**found, "reward": (_rows(self.rewards), _rows(self.predicted_rewards))}


def imagine(self: Any, obs_or_state: Any, horizon: int = 15) -> Dream:  # noqa: D417 - a method
    """Imagined trajectories of the policy in the world model, without the environment.

    Training goes on as if it had not been asked: this draws from what play draws from.

    Args:
        obs_or_state: An observation or a batch of them, with which episodes begin; or a memory, as
            `predict(..., state=...)` returns it, which goes on with the action chosen there.
        horizon: Steps H.

    Returns:
        Arrays [H, B, ...], B = 1 for one observation.

    Raises:
        ValueError: `horizon` is less than 1, or the shape is not that of observations.
    """
    horizon = positive(horizon, name="horizon")
    learner, generator = self.learner, self.play_generator
    world, actor = learner.world, learner.actor
    is_memory = _is_memory(learner, obs_or_state)
    memory = learner.own(obs_or_state) if is_memory else _seen(self, obs_or_state)
    with learner.inference():
        latent, action = learner._unpacked(memory[0])
        noise = world.rssm.noise((horizon, len(action)), generator)
        of_actions = actor.noise((horizon, len(action)), generator)
        states, actions = [], []
        for t in range(horizon):
            latent = world.rssm.imagine(latent, action, noise[t])
            states.append(latent)
            actions.append(action)
            action = actor.act(latent.features, noise=of_actions[t])
        every = _stacked(states)
        values = losses.two_hot_mean(learner.critic(every.features).float(), world.bins)
        return Dream(
            map_leaves(learner.array, world.decode(every)),
            _for_environment(learner, torch.stack(actions)),
            *(learner.array(x) for x in (world.rewards(every), world.continues(every), values)),
        )


def _is_memory(learner: Any, given: Any) -> bool:
    """Return whether something is the recurrent state [1, B, size] of a player."""
    if not isinstance(given, np.ndarray | torch.Tensor) or given.ndim != 3:
        return False
    size: int = learner.initial_state(1).shape[-1]
    return given.shape[0] == 1 and given.shape[-1] == size


def _seen(agent: Any, obs: Any) -> Tensor:
    """The memory of a player whose episodes begin with some observations."""
    batch, n, _ = envs.as_batch(agent.observation_space, obs)
    player = agent.player(n, False)
    player.act(batch, np.ones(n, np.bool_))
    memory: Tensor = player.state
    return memory


def _for_environment(learner: Any, actions: Tensor) -> Array:
    """Actions [H, B, size] of the model as the environment takes them."""
    flat = actions.flatten(0, 1)
    chosen = flat.argmax(-1) if learner.actor.is_discrete else flat.clamp(-1.0, 1.0)
    taken = np.asarray(learner.action_map.to_env(learner.array(chosen)))
    return taken.reshape(*actions.shape[:2], *taken.shape[1:])


def open_loop(  # noqa: D417
    self: Any, batch: SequenceBatch | None = None, context: int | None = None
) -> OpenLoop:
    """Open-loop prediction: the model sees the first steps of sequences, then actions alone.

    Where an episode begins after the context, the model begins anew without seeing it. It is a
    function of the weights and the sequences, and training goes on as if it had not been asked.

    Args:
        batch: Sequences [T, B]; some of the buffer when not given, the same ones at every call
            while the buffer stays the same.
        context: Rows that the model sees; None for 5, or half of sequences of less than 10.

    Raises:
        ValueError: `context` is less than 1 or leaves nothing to predict, or the buffer does not
            hold a batch yet.
    """
    learner = self.learner
    if batch is None:
        check_has_batch(self.loop)
        batch = sequences_of(self, SHOWN, self.config.sequence_length)
    given = {**vars(batch), "indices": None}  # nothing is written over
    batch = SequenceBatch(
        **{k: None if x is None else map_leaves(learner.own, x) for k, x in given.items()}
    )
    length = len(batch.rewards)
    context = min(CONTEXT, length // 2) if context is None else positive(context, name="context")
    if context >= length:
        raise ValueError(f"context must be less than the {length} rows of batch, got {context}")
    with learner.inference():
        latents = _latents(learner, batch, context)
        truth, prediction = (
            map_leaves(lambda x: learner.array(x).swapaxes(0, 1), nest)
            for nest in (batch.obs, learner.world.decode(latents))
        )
        rewards, expected = (
            learner.array(x.float()).T for x in (batch.rewards, learner.world.rewards(latents))
        )
    error = map_leaves(_error, truth, prediction)
    return OpenLoop(truth, prediction, error, rewards, expected, context)


def _latents(learner: Any, batch: SequenceBatch, context: int) -> Latent:
    """The states [T, B] of sequences: of the first rows as seen, then as expected."""
    generator = learner.make_generator(learner.seeds.playing)
    world, actions = learner.world, learner.world.actions(batch.prev_actions)
    columns = {"obs": batch.obs, "prev_actions": actions, "is_first": batch.is_first}
    seen = map_leaves(lambda x: x[:context], columns)
    observed = world.observe(seen, learner._before(batch), generator).latents
    states = [nn.Latent(*parts) for parts in zip(*observed, strict=True)]
    noise = world.rssm.noise(tuple(batch.rewards.shape), generator)
    for t in range(context, len(actions)):
        goes_on = (~batch.is_first[t]).to(actions.dtype)[:, None]
        deter, stoch = states[-1]
        before = nn.Latent(deter * goes_on, stoch * goes_on[..., None])
        states.append(world.rssm.imagine(before, actions[t] * goes_on, noise[t]))
    return _stacked(states)


def _stacked(states: list[Latent]) -> Latent:
    latents: Latent = nn.Latent(*(torch.stack(parts) for parts in zip(*states, strict=True)))
    return latents


def _error(truth: Array, prediction: Array) -> Array:
    if truth.ndim == 5:
        return ((prediction.astype(np.int16) - truth + 256) // 2).astype(np.uint8)
    # A vector of integers is predicted by numbers that are none, an integer by another one.
    return prediction != truth if prediction.dtype.kind in "iu" else prediction - truth


def _rows(column: Array) -> Array:
    return column.reshape(*column.shape[:2], -1)


def sequences_of(agent: Any, n: int, length: int, seed: int = 0) -> SequenceBatch:
    """Sequences [length, n] of the buffer, drawn without changing what training draws.

    Args:
        agent: The agent whose buffer it is.
        n: Number of sequences.
        length: Rows of each.
        seed: Of the draw.
    """
    own, source = agent.loop.sampler, agent.loop.store.source
    view = replace(own.view, length=length)
    sampler = type(own)(
        source,
        n,
        view=view,
        gamma=own.gamma,
        learner=agent.learner,
        has_masks=own.has_masks,
        normalizer=agent.loop.normalizer,
        columns=own.columns,
        selector=Uniform(),
    )
    sampler.refresh()
    if isinstance(source, DeviceBuffer):
        generator = agent.learner.make_generator(seed)
        drawn = source.sample_windows(n, view, generator=generator)
    else:
        drawn = sampler.draw(seed)
    batch: SequenceBatch = sampler.as_batch(drawn)
    return batch


def check_has_batch(loop: Any) -> None:
    """Refuse a loop whose buffer holds no batch yet."""
    _ = loop.sampler  # which opens the buffer
    if not loop.store.has_a_batch():
        raise ValueError(
            f"the buffer must hold a batch of {loop.config.steps_per_batch} steps, "
            f"got {len(loop.store.source)}: train first"
        )
