"""Names of rlox that are not here, and why."""

from __future__ import annotations

__all__ = ["ABSENT", "reason_for"]

_VALUES = "sharpwave.QMIX learns values of several agents together"
_ACTORS = "distributed actors come with later work"
_OTHER = "this algorithm is not part of sharpwave"

ABSENT = {
    "QMIX": _VALUES,
    "QMIXConfig": _VALUES,
    "qmix": _VALUES,
    "SelfPlay": "opponents= of sharpwave.MAPPO lets earlier checkpoints play",
    "MultiGPUTrainer": _ACTORS,
    "TRPO": _OTHER,
    "TRPOConfig": _OTHER,
    "trpo": _OTHER,
    "ActorCritic": 'sharpwave.PPO(backend="native") learns without torch',
    "AsymmetricPolicy": "a policy of one's own may have a critic that sees more than its actor",
    "Checkpoint": "checkpoints are safetensors files: save and from_checkpoint of an algorithm",
    "checkpoint": "checkpoints are safetensors files: save and from_checkpoint of an algorithm",
    "RolloutBatch": "sharpwave.RolloutBuffer gives minibatches of tensors",
    "batch": "sharpwave.RolloutBuffer gives minibatches of tensors",
    "RolloutCollector": "sharpwave.collect gathers rollouts",
    "OffPolicyCollector": "sharpwave.collect gathers steps",
    "collectors": "sharpwave.collect gathers rollouts",
    "PPOLoss": "sharpwave.losses has the terms as functions; PPO.loss may be overridden",
    "losses": "sharpwave.losses has the terms as functions; PPO.loss may be overridden",
    "networks": "sharpwave.nn has the networks",
    "utils": "sharpwave.envs reads the spaces of environments",
}
"""By name; those of algorithms are in `algorithms` too."""


def reason_for(name: str) -> str | None:
    """Why a name of rlox is not here; None for one that rlox does not have either."""
    return None if name not in ABSENT else f"{name} of rlox is not here: {ABSENT[name]}"
