"""Agents with memory that take turns: what they remember in play, in rollouts and in learning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import sharpwave as sw
from sharpwave.collect.joint import flat_rows
from sharpwave.envs import make_multi_env

TICTACTOE = "pettingzoo.classic.tictactoe_v3"
SMALL: dict[str, Any] = {"n_envs": 2, "hidden": (8,), "recurrent_size": 4, "seed": 0}
ON_POLICY: dict[str, Any] = {"n_steps": 16, "learning_rate": 1e-2}
REPLAY: dict[str, Any] = {"learning_starts": 32, "batch_size": 8, "sequence_length": 5}
KINDS: dict[str, Any] = {
    "mappo": (sw.MAPPO, ON_POLICY),
    "vdn": (sw.VDN, REPLAY),
    "qmix": (sw.QMIX, REPLAY),
}


@pytest.mark.parametrize("recurrent", ["gru", "lstm"])
@pytest.mark.parametrize("kind", KINDS)
def test_agents_remember_their_own_turns(kind: str, recurrent: str) -> None:
    """`predict` is asked only where an agent acts, and play goes through the turns of all."""
    make, options = KINDS[kind]
    agent = make(TICTACTOE, recurrent=recurrent, **SMALL, **options)
    agent.train(64)
    env = make_multi_env(TICTACTOE, 1)
    player = agent.player(1, deterministic=True)
    step, n_turns = env.reset(seed=0), 0
    memories: dict[str, Any] = {}
    begins = np.ones((1, 2), np.bool_)
    while not step.ended[0]:
        group = step.groups["player"]
        assert group.masks is not None
        (number,) = np.flatnonzero(group.alive[0])
        name = env.groups["player"][number]
        actions = player.play(step, {"player": begins & group.alive})
        chosen, memories[name] = agent.predict(
            flat_rows(group.obs)[number],
            agent=name,
            action_masks=group.masks[0, number],
            state=memories.get(name),
            episode_start=name not in memories,
        )
        assert chosen == actions["player"][0, number], f"turn {n_turns}"
        kept = player._actors["player"].state[:, number]
        torch.testing.assert_close(kept, memories[name][:, 0])
        begins &= ~group.alive
        step, n_turns = env.step(actions), n_turns + 1
    assert n_turns >= 5
    env.close()
    agent.close()


@pytest.mark.parametrize("kind", ["vdn", "qmix"])
def test_teams_act_as_their_sequences_are_learned(kind: str) -> None:
    """The whole team at once, one group by itself, and the replay of what they saw."""
    make, options = KINDS[kind]
    agent = make(TICTACTOE, recurrent="gru", **SMALL, **options)
    agent.train(64)
    learner, env = agent.learner, agent.joint_env
    obs, infos = env.reset(seed=1)
    state, seen, found, memory = learner.initial_state(2), [], [], None
    with torch.no_grad():
        for _ in range(7):
            inputs = learner.inputs(obs)
            values, after = learner.policy.step(inputs, state)
            waits = inputs["acts"] == 0
            memory, state = state["player"], after
            assert torch.equal(state["player"][waits], memory[waits])
            assert not torch.equal(state["player"][~waits], memory[~waits])
            seen.append(inputs)
            found.append(values)
            actions = [row.reshape(2, -1).argmax(1) for row in infos["action_mask"]]
            obs, *_, infos = env.step(np.array(actions))
        sequences = {x: torch.stack([one[x] for one in seen]) for x in ("acts", "begins")}
        rows = torch.stack([one["agents"]["player"] for one in seen])
        unrolled = learner.policy.unroll({"agents": {"player": rows}, **sequences})
    acts = sequences["acts"].bool()
    for values, learned, acting in zip(found, unrolled, acts, strict=True):
        both = (x.unflatten(1, (2, -1))[acting] for x in (learned, values))
        torch.testing.assert_close(*both)
    agent.close()


@pytest.mark.parametrize("critic_input", ["concat", "obs"])
@pytest.mark.parametrize("recurrent", ["gru", "lstm"])
def test_policies_learn_from_what_they_acted_on(recurrent: str, critic_input: str) -> None:
    """Before the first gradient step they are those that acted, memory included."""
    options = {**SMALL, **ON_POLICY, "recurrent": recurrent, "critic_input": critic_input}
    agent = sw.MAPPO(TICTACTOE, **options)
    agent.train(128)
    batch = agent.loop.collect()["player"]
    assert not batch.valid.all()
    _, metrics = agent.learner["player"].loss(batch)
    assert abs(metrics["approx_kl"]) < 1e-8
    agent.close()
