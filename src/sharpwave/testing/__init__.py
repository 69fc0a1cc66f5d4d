"""The contracts of buffers, learners and environments, to hold your own to them.

Belongs here: contracts that others can hold their own classes to, without a test framework.

Each contract is a list of small rules with names. A check goes through all of them and raises one
`ContractError` that lists those that are broken. Nothing here needs a test framework.
"""

from __future__ import annotations

from sharpwave.testing.buffers import BUFFER_RULES, check_buffer
from sharpwave.testing.contract import ContractError
from sharpwave.testing.envs import ENV_RULES, check_env
from sharpwave.testing.learners import LEARNER_RULES, check_learner
from sharpwave.testing.multi_envs import MULTI_ENV_RULES, check_multi_env

__all__ = [
    "BUFFER_RULES",
    "ENV_RULES",
    "LEARNER_RULES",
    "MULTI_ENV_RULES",
    "ContractError",
    "check_buffer",
    "check_env",
    "check_learner",
    "check_multi_env",
]
