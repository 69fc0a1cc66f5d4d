# Written by `make stubs`; typed declarations of raw names stand in native/bind/stubs/.
"The native core of sharpwave."

from collections.abc import Sequence
from typing import Annotated, Any, Final

import numpy
from numpy.typing import NDArray

from sharpwave.types import Array, BatchDict

def isa() -> str:
    """
    The instruction set of the kernels in use: base, v3 (AVX2) or v4 (AVX-512).
    """

class WriterLock:
    """Holds a folder for its one writer."""

    def __init__(self, path: str) -> None: ...
    @property
    def is_mine(self) -> bool:
        """False in a process forked from the one that took the lock."""

def writer_of(path: str) -> int:
    """The process that holds the lock at `path`, 0 when nobody does."""

def create_commit_state(path: str, n_words: int) -> None:
    """Makes the file of a store's commit words, all 0."""

def delta_rows(
    data: Annotated[
        NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    row_bytes: int,
    item_bytes: int,
    out: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu")],
) -> None:
    """Rows as their differences, bytes of equal weight together."""

def undelta_rows(
    data: Annotated[
        NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    row_bytes: int,
    item_bytes: int,
    out: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu")],
) -> None:
    """The rows that `delta_rows` was given."""

def crc32c(data: bytes, so_far: int = 0) -> int:
    """CRC-32C of what `so_far` covers followed by `data`."""

class Engine:
    """The native replay buffer behind the public classes."""

    def __init__(
        self,
        fields: Sequence[tuple[str, str, Sequence[int], str, int, int, bool, int]],
        stream_rows: bool,
        capacity: int,
        n_streams: int,
        seed: int,
        oversample: bool,
        priorities: tuple[str, float, float, bool, bool] | None,
        folder: dict | None = None,
    ) -> None: ...
    @staticmethod
    def describe_folder(
        fields: Sequence[tuple[str, str, Sequence[int], str, int, int, bool, int]],
        stream_rows: bool,
        capacity: int,
        n_streams: int,
    ) -> tuple[int, int, int, int]:
        """
        (row_bytes, chunk_rows, max_chunks, commit words) of such a buffer's folder.
        """

    def __len__(self) -> int: ...
    def clear(self) -> None:
        """Forgets all steps; ids go on."""

    def flush(self) -> None:
        """Waits until everything pushed is on the disk."""

    def close(self, keep: bool, reason: str = "the buffer is closed") -> None:
        """
        Leaves the folder. The buffer is empty then, and later calls raise the reason.
        """

    @property
    def damage(self) -> list[str]:
        """What was left out of a repaired folder."""

    @property
    def lost_steps(self) -> int:
        """How many steps that cost."""

    def stats(self) -> dict:
        """Counters and sizes."""

    @property
    def beta(self) -> float: ...
    @beta.setter
    def beta(self, arg: float, /) -> None: ...
    @property
    def max_priority(self) -> float: ...
    def leaf_sums(self) -> tuple[float, float]:
        """
        The sum of all leaves and the smallest positive one, as the last draw saw them.
        """

    def leaves(
        self,
        ids: Annotated[
            NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
    ) -> Annotated[NDArray[numpy.float32], dict(shape=(None,))]:
        """The leaves of steps, 0 for those that are not in the buffer any more."""

    @property
    def slots(self) -> int: ...
    @property
    def is_full(self) -> bool: ...
    @property
    def slots_per_stream(self) -> int: ...
    def ids(self) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,))]:
        """The ids of all steps, oldest first within a stream."""

    def alive(
        self,
        ids: Annotated[
            NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
    ) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))]:
        """Which ids are still in the buffer."""

    def next_call(self) -> int:
        """Moves the buffer's own generator on, for draws made in Python."""

    def choose_goals(
        self,
        ids: Annotated[
            NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        strategy: int,
        ratio: float,
        seed: int | None,
    ) -> tuple: ...
    def lock_rows(self) -> None:
        """Keeps writers out until unlock_rows."""

    def unlock_rows(self) -> None: ...
    def column_bytes(self, field: int) -> int:
        """Bytes per slot of a stored field, 0 when it is not stored."""

    def read_column(
        self,
        field: int,
        first: int,
        count: int,
        memory: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu")],
    ) -> None: ...
    def write_column(
        self,
        field: int,
        first: int,
        count: int,
        memory: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu")],
    ) -> None: ...
    def heads(self) -> list[tuple[int, int, bool, bool]]: ...
    def bitmaps(self) -> list: ...
    def restore_heads(
        self,
        heads: Sequence[tuple[int, int, bool, bool]],
        bitmaps: Sequence[
            Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu")]
        ],
    ) -> None: ...
    def counters(self) -> list[int]: ...
    def restore_counters(self, counters: Sequence[int]) -> None: ...
    def save_priorities(self) -> dict: ...
    def restore_priorities(
        self,
        leaves: Annotated[
            NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        raw: Annotated[
            NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        sorted: Annotated[
            NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        changes: int,
        max_priority: float,
        beta: float,
    ) -> None: ...

def permuted(
    n: int, seed: int, begin: int, end: int
) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,))]:
    """Entries begin to end of a seeded permutation of n numbers."""

def fresh_queues(engine: Engine) -> list[tuple[int, list[tuple[int, int]]]]:
    """(rows, [(next, taken) by stream]) of every queue of fresh windows."""

def restore_fresh_queues(
    engine: Engine, queues: Sequence[tuple[int, Sequence[tuple[int, int]]]]
) -> None: ...

MAX_EPISODE_FIELDS: int = 256
EPISODE_STATE_WORDS: int = 16
EPISODE_INDEX_ROW_BYTES: int = 16

def choose_chunk_rows(row_bytes: int, max_rows: int) -> int:
    """
    Rows per chunk file for rows of this size of which there will be at most max_rows.
    """

class EpisodeEngine:
    """Episodes in a folder."""

    def __init__(
        self,
        folder: str,
        steps: Sequence[tuple[str, int, int, int]],
        episodes: Sequence[tuple[str, int, int, int]],
        index_chunk_rows: int,
        max_episodes: int,
        max_timesteps: int,
        circular: bool,
        power: bool,
        decoded_bytes: int,
        identity: int,
        write: bool,
        repair: bool,
    ) -> None: ...
    @property
    def is_writer(self) -> bool: ...
    @property
    def has_open(self) -> bool: ...
    @property
    def open_length(self) -> int: ...
    @property
    def steps_front(self) -> int: ...
    @property
    def steps_top(self) -> int: ...
    @property
    def n_complete(self) -> int: ...
    def complete(self) -> None: ...
    def abort(self) -> None: ...
    def flush(self) -> None: ...
    def settle(self) -> None: ...
    def clear(self) -> None: ...
    def close(self) -> None: ...
    def close_if_idle(self) -> bool: ...
    def abandon(self) -> None: ...
    def refresh(self) -> None: ...
    @property
    def n_lanes(self) -> int: ...
    @property
    def repaired(self) -> tuple: ...
    def install(
        self,
        blocks: Sequence[
            tuple[
                int,
                int,
                int,
                Annotated[
                    NDArray[numpy.uint8],
                    dict(shape=(None,), order="C", device="cpu", writable=False),
                ],
            ]
        ],
    ) -> None: ...
    def compressible(self, column: int) -> list[int]: ...
    def adopt_coded(self, column: int, chunk: int) -> None: ...
    def verify(self) -> tuple: ...
    def table(self, aborted: bool, open: bool = False) -> tuple: ...
    def gather_meta(
        self,
        ids: Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        column: int,
        out: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu")],
    ) -> None: ...

class Anchors:
    """
    The items of a dataset: counts[e] of episode e, or of those the chosen.
    """

    def __init__(self, counts: Any, starts: Any, stride: int = 1, chosen: Any = None) -> None: ...
    def __len__(self) -> int: ...
    def find(
        self, items: Any
    ) -> tuple[NDArray[numpy.int64], NDArray[numpy.int64], NDArray[numpy.int64]]:
        """
        The episode of every item, the step of the episode, and the row of that step.
        """

    def span(
        self, begin: int, end: int, key: int | None = None
    ) -> tuple[NDArray[numpy.int64], NDArray[numpy.int64], NDArray[numpy.int64]]:
        """
        The same of items begin to end of a permutation with this key, or as they are.
        """

def drawn_windows(
    episodes: Any, first_rows: Any, lengths: Any, width: int, key: int
) -> tuple[NDArray[numpy.int64], NDArray[numpy.int64], NDArray[numpy.int64]]:
    """
    The first step of a random window of each episode, its row, and the window's steps.
    """

def shuffled(seed: int, call: int, n_orders: int, n: int) -> NDArray[numpy.int64]:
    """Permutations [n_orders, n] of 0 to n - 1, a function of the arguments."""

class PolicyLearner:
    """
    Updates of a policy whose parameters and gradient are given arrays. A batch is (obs, actions, advantages, returns, log_probs, values, masks, weights, joint, joint_rows), None for what is missing.
    """

    def __init__(
        self,
        n_inputs: int,
        hidden: Sequence[int],
        critic_hidden: Sequence[int],
        activation: str,
        actions: str,
        options: Sequence[int],
        parameters: Any,
        gradient: Any,
        n_critic_inputs: int | None = None,
    ) -> None: ...
    def gradient(
        self,
        batch: tuple[Any, ...],
        rows: Any,
        clip: float | None,
        value_clip: float | None,
        normalize: bool,
        vf_coef: float,
        ent_coef: float,
        threads: int,
    ) -> NDArray[numpy.float64]:
        """
        Overwrites the gradient with that of the loss on some rows; the metrics but for the norm. Without a clip range it is A2C's loss.
        """

    def evaluate(
        self, batch: tuple[Any, ...]
    ) -> tuple[NDArray[numpy.float32], NDArray[numpy.float32], NDArray[numpy.float32]]:
        """Log-probabilities, entropies and values."""

    def act(
        self, obs: Any, masks: Any, draw: tuple[int, int] | None
    ) -> tuple[NDArray[Any], NDArray[numpy.float32], NDArray[numpy.float32] | None]:
        """
        Actions [n, k], log-probabilities and, where the critic has the same inputs, values; draw is the seed of a generator and the number of the call, None for the most likely actions.
        """

    def values(self, obs: Any) -> NDArray[numpy.float32]:
        """Values [n]."""

    def ppo_update(
        self,
        batch: tuple[Any, ...],
        orders: Any,
        batch_size: int,
        clip: float,
        value_clip: float | None,
        normalize: bool,
        vf_coef: float,
        ent_coef: float,
        max_grad_norm: float,
        target_kl: float | None,
        exp_avg: Any,
        exp_avg_sq: Any,
        steps: Any,
        lr: float,
        beta1: float,
        beta2: float,
        eps: float,
        threads: int,
        huber_delta: float | None = None,
        value_norm: Any = None,
        decay: float = 0.0,
        desired_kl: float | None = None,
        rate_bounds: tuple[float, float] = (0.0, 0.0),
        rate: Any = None,
    ) -> NDArray[numpy.float64]:
        """
        Metrics, the norm and the explained variance. `value_norm` is [3] mean, mean square and weight of a ValueNorm, which changes. With `desired_kl` so does `rate`, [] the learning rate, within bounds.
        """

    def a2c_update(
        self,
        batch: tuple[Any, ...],
        normalize: bool,
        vf_coef: float,
        ent_coef: float,
        max_grad_norm: float,
        square_avg: Any,
        lr: float,
        alpha: float,
        eps: float,
        threads: int,
    ) -> NDArray[numpy.float64]:
        """Metrics, the norm and the explained variance."""

class SACLearner:
    """
    Steps of SAC. Networks that are optimized are (data, grad, exp_avg, exp_avg_sq, steps, lr, beta1, beta2, eps), `targets` the data of the slow critics. A batch is (obs, actions, rewards, next_obs, discounts, weights), of which the last may be None.
    """

    def __init__(
        self,
        n_obs: int,
        n_actions: int,
        hidden: Sequence[int],
        activation: str,
        n_critics: int,
        critic_hidden: Sequence[int],
        actor: tuple[Any, ...],
        critics: tuple[Any, ...],
        alpha: tuple[Any, ...],
        targets: Any,
    ) -> None: ...
    def step(
        self,
        batch: tuple[Any, ...],
        noise: Any,
        seed: int,
        call: int,
        fixed_alpha: float | None,
        target_entropy: float,
        max_grad_norm: float,
        tau: float,
        threads: int,
    ) -> tuple[NDArray[numpy.float64], NDArray[numpy.float32]]:
        """
        One gradient step; the metrics, and the errors. Noise [2, n, n_actions] is drawn where it is None.
        """

class TD3Learner:
    """Steps of TD3 and TD3+BC; as `SACLearner`."""

    def __init__(
        self,
        n_obs: int,
        n_actions: int,
        hidden: Sequence[int],
        activation: str,
        n_critics: int,
        critic_hidden: Sequence[int],
        actor: tuple[Any, ...],
        critics: tuple[Any, ...],
        target_actor: Any,
        target_critics: Any,
    ) -> None: ...
    def step(
        self,
        batch: tuple[Any, ...],
        noise: Any,
        seed: int,
        call: int,
        target_noise: float,
        noise_clip: float,
        max_grad_norm: float,
        tau: float,
        moves_actor: bool,
        bc_weight: float | None,
        threads: int,
    ) -> tuple[NDArray[numpy.float64], NDArray[numpy.float32]]:
        """
        One gradient step; the metrics, and the errors. Noise [n, n_actions] is drawn where it is None.
        """

class SquashedActor:
    """Actions of the tanh of a normal variable."""

    def __init__(
        self, n_obs: int, n_actions: int, hidden: Sequence[int], activation: str, parameters: Any
    ) -> None: ...
    def mode(self, obs: Any) -> NDArray[numpy.float32]:
        """The tanh of the mean."""

    def explore(self, obs: Any, seed: int, call: int) -> NDArray[numpy.float32]:
        """Drawn actions, a function of the seed and the number of the call."""

class DeterministicActor:
    """Actions that are the tanh of a network."""

    def __init__(
        self, n_obs: int, n_actions: int, hidden: Sequence[int], activation: str, parameters: Any
    ) -> None: ...
    def mode(self, obs: Any) -> NDArray[numpy.float32]:
        """The actions."""

    def explore(self, obs: Any, deviation: float, seed: int, call: int) -> NDArray[numpy.float32]:
        """With normal noise, and clipped to [-1, 1]."""

def normals(seed: int, call: int, n: int) -> NDArray[numpy.float32]:
    """
    Standard normal variables, a function of the seed and the number of the call.
    """

class QLearner:
    """
    Steps of Q-learning. `online` is (data, grad, exp_avg, exp_avg_sq, steps, lr, beta1, beta2, eps), `target` the data of the target network. A batch is (obs, actions, rewards, next_obs, discounts, weights, next_allowed), of which the last two may be None.
    """

    def __init__(
        self,
        n_inputs: int,
        hidden: Sequence[int],
        activation: str,
        choices: Sequence[int],
        dueling: bool,
        online: tuple[Any, ...],
        target: Any,
    ) -> None: ...
    def gradient(
        self, batch: tuple[Any, ...], double: bool, huber: bool, threads: int
    ) -> tuple[NDArray[numpy.float64], NDArray[numpy.float32]]:
        """Overwrites the gradient; the metrics but for its norm, and the errors."""

    def step(
        self,
        batch: tuple[Any, ...],
        double: bool,
        huber: bool,
        max_grad_norm: float,
        tau: float,
        threads: int,
    ) -> tuple[NDArray[numpy.float64], NDArray[numpy.float32]]:
        """One gradient step; the metrics, and the errors."""

class QActor:
    """Chooses actions [n, n_choices] by the values of a network."""

    def __init__(
        self,
        n_inputs: int,
        hidden: Sequence[int],
        activation: str,
        choices: Sequence[int],
        dueling: bool,
        parameters: Any,
    ) -> None: ...
    def best(self, obs: Any, allowed: Any) -> NDArray[numpy.int64]:
        """The best actions."""

    def explore(
        self, obs: Any, allowed: Any, epsilon: float, seed: int, call: int
    ) -> NDArray[numpy.int64]:
        """
        With chance epsilon random actions; a function of the seed and the number of the call.
        """

class SharedRing:
    """The head of a ring of steps in memory that processes share."""

    def __init__(
        self, memory: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu")]
    ) -> None: ...
    BYTES: Final[int] = ...
    "(arg: object, /) -> int"

    @staticmethod
    def create(
        memory: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu")],
        capacity: int,
    ) -> None:
        """Prepares memory that is zero."""

    def lock(self) -> None:
        """Wait for the right to write."""

    def begin(self) -> int:
        """The step whose slot may be written now."""

    def finish(self) -> None:
        """The slot is whole."""

    def clear(self) -> None:
        """Forget all steps."""

    def unlock(self) -> None:
        """Let others write."""

    def range(self) -> tuple[int, int]:
        """The oldest whole step, and one after the newest."""

    def count(self) -> int:
        """The steps, of which one may be in the writing."""

    def next_ticket(self) -> int:
        """A number that nobody else gets."""

class Collector:
    """Rollouts of a policy in a VectorEnv."""

    def __init__(
        self,
        env: VectorEnv,
        hidden: Sequence[int],
        critic_hidden: Sequence[int],
        activation: str,
        weights: Any,
        n_steps: int,
        gamma: float,
        gae_lambda: float,
        seed: int,
        capacity: int,
        threads: int,
        is_valued: bool = True,
        has_agent_id: bool = False,
        critic: str = "obs",
        is_team_paid: bool = False,
    ) -> None: ...
    def recv(self) -> dict[str, Any]: ...
    def try_recv(self) -> dict[str, Any] | None: ...
    def request(self) -> None: ...
    def set_weights(
        self, weights: Any, value_mean: float = 0.0, value_deviation: float = 1.0
    ) -> int: ...
    def weights(self) -> NDArray[numpy.float32]: ...
    def stop(self) -> None: ...
    @property
    def is_stopped(self) -> bool: ...
    @property
    def version(self) -> int: ...
    @property
    def count(self) -> int: ...
    @count.setter
    def count(self, arg: int, /) -> None: ...
    def __len__(self) -> int: ...

class RowBuffer:
    """The type under every replay buffer: the methods that run for every step."""

    def __init__(self, engine: Engine, plan: dict[str, Any], /) -> None: ...
    @property
    def _engine(self) -> Engine: ...
    def push(self, *args: Any, **kwargs: Any) -> None: ...
    def push_batch(self, *args: Any, **kwargs: Any) -> None: ...
    def sample(
        self,
        batch_size: int,
        seed: int | None = None,
        *,
        view: Any = None,
        selector: Any = None,
        out: Any = None,
        indices: bool = False,
    ) -> BatchDict: ...
    def gather(self, indices: Any, *, view: Any = None, out: Any = None) -> BatchDict: ...
    def update_priorities(self, indices: Any, priorities: Any) -> int: ...
    def _rewrite(self, indices: Any, fields: dict[str, Any], /) -> int: ...
    def _drawable(self, view: Any, /) -> Any: ...
    def _take_fresh(self, view: Any, length: int, most: int, /) -> Any: ...
    def _allocate(
        self, batch_size: int, view: Any, selector: Any, indices: bool, /
    ) -> tuple[BatchDict, Any]: ...
    def __len__(self) -> int: ...

def environment_specs() -> dict[str, dict[str, Any]]: ...
def multi_environment_spec(env_id: str, n_agents: int, /) -> dict[str, Any]: ...

class VectorEnv:
    """The type under NativeVectorEnv and NativeMultiAgentEnv: many environments of one kind."""

    def __init__(
        self,
        env_id: str,
        num_envs: int,
        max_episode_steps: int,
        option: float,
        autoreset_mode: str,
        threads: int,
        n_agents: int = 0,
        /,
    ) -> None: ...
    def step(self, actions: Any) -> tuple[Array, Array, Array, Array, dict[str, Any]]: ...
    def _step_agents(self, actions: Any, /) -> tuple[Array, Array, Array, Array, Array]: ...
    def _reset(
        self,
        mask: Array | None,
        seeds: Array | None,
        is_seeded: Array | None,
        low: Array,
        high: Array,
        /,
    ) -> Array: ...
    def _save(self) -> dict[str, Any]: ...
    def _restore(
        self,
        variables: Array,
        steps: Array,
        returns: Array,
        seeds: Array,
        resets: Array,
        ended: Array,
        /,
    ) -> None: ...
    def _close(self) -> None: ...

class EpisodeRows:
    """The type under EpisodeBuffer: the methods that run for every step and every batch."""

    @property
    def _engine(self) -> EpisodeEngine: ...
    @property
    def _is_closed(self) -> bool: ...
    def store(self, **fields: Any) -> Any: ...
    def store_episode(self, **fields: Any) -> None: ...
    def store_batch(self, active: Any = None, /, **fields: Any) -> None: ...
    def store_meta_batch(self, **fields: Any) -> None: ...
    def gather(self, rows: Any, fields: Any = None, out: Any = None) -> dict[str, Array]: ...
    def gather_ranges(
        self, starts: Any, lengths: Any, width: int, fields: Any = None, out: Any = None
    ) -> dict[str, Array]: ...
    def _begin(self, **meta: Any) -> None: ...
    def _begin_batch(self, batch_size: int, /, **meta: Any) -> None: ...
    def _update(self, entries: list[tuple[bool, str, Array, Array, Array]], /) -> None: ...
    def _finish(self, **meta: Any) -> None: ...
    def _attach(
        self, engine: EpisodeEngine | str, fields: dict[str, Any], meta: dict[str, Any], /
    ) -> None: ...

def compute_gae(
    rewards: Any,
    values: Any,
    dones: Any,
    last_value: float,
    gamma: float,
    lam: float,
    out: tuple[Any, Any] | None,
    /,
) -> tuple[Any, Any]: ...
def compute_gae_batched(
    rewards: Any,
    values: Any,
    dones: Any,
    last_values: Any,
    n_steps: int,
    gamma: float,
    lam: float,
    out: tuple[Any, Any] | None,
    /,
) -> tuple[Any, Any]: ...
def compute_gae_batched_f32(
    rewards: Any,
    values: Any,
    dones: Any,
    last_values: Any,
    n_steps: int,
    gamma: float,
    lam: float,
    out: tuple[Any, Any] | None,
    /,
) -> tuple[Any, Any]: ...
def gae(
    rewards: Any,
    values: Any,
    next_values: Any,
    bootstrap: Any,
    terminated: Any,
    truncated: Any,
    gamma: float,
    lam: float,
    out: tuple[Any, Any] | None,
    /,
) -> tuple[Any, Any]: ...
def compute_vtrace(
    log_rhos: Any,
    rewards: Any,
    values: Any,
    dones: Any,
    bootstrap_value: float,
    gamma: float,
    rho_bar: float,
    c_bar: float,
    /,
) -> tuple[Any, Any]: ...
def vtrace(
    log_rhos: Any,
    rewards: Any,
    values: Any,
    next_values: Any,
    bootstrap: Any,
    terminated: Any,
    truncated: Any,
    gamma: float,
    lam: float,
    rho_bar: float,
    c_bar: float,
    pg_rho_bar: float | None,
    out: tuple[Any, Any] | None,
    /,
) -> tuple[Any, Any]: ...
def n_step_returns(
    rewards: Any, next_values: Any, terminated: Any, truncated: Any, n: int, gamma: float, /
) -> Any: ...
def discounted_returns(rewards: Any, dones: Any, gamma: float, bootstrap: Any, /) -> Any: ...
def compute_group_advantages(rewards: Any, /) -> Any: ...
def compute_batch_group_advantages(rewards: Any, group_size: int, /) -> Any: ...
def compute_token_kl(
    log_probs_policy: Any, log_probs_ref: Any, estimator: str, mask: Any, /
) -> float: ...
def compute_batch_token_kl(
    log_p: Any, log_q: Any, seq_len: int, estimator: str, mask: Any, out: Any, /
) -> Any: ...
def plan_packing(lengths: Any, max_len: int, /) -> tuple[int, Any, Any, Any]: ...
def pack_lengths(lengths: Any, max_len: int, /) -> tuple[Any, Any, Any]: ...
def pack_tokens(
    sequences: Any, max_len: int, pad_id: int, /
) -> tuple[Any, Any, Any, Any, Any, Any, Any, Any]: ...
def stats_update(mean: Any, m2: Any, count: Any, batch: Any, /) -> None: ...
def stats_merge(
    mean: Any, m2: Any, count: Any, other_mean: Any, other_m2: Any, other_count: Any, /
) -> None: ...
def stats_normalize(
    mean: Any, m2: Any, count: Any, x: Any, clip: float | None, epsilon: float, /
) -> Any: ...
def polyak(target: Any, source: Any, tau: float, /) -> None: ...
def norm_silu(x: Any, scale: Any, /) -> Any: ...
def norm_silu_backward(x: Any, scale: Any, grad: Any, /) -> tuple[Any, Any]: ...
def norm_silu_rows(x: Any, scale: Any, grad: Any, /) -> Any: ...
def linear(x: Any, weight: Any, bias: Any, /) -> Any: ...
def linear_backward(
    x: Any, weight: Any, grad: Any, wants_x: bool, /
) -> tuple[Any | None, Any, Any]: ...
def layer(x: Any, weight: Any, bias: Any, scale: Any, /) -> tuple[Any, Any]: ...
def layer_backward(
    x: Any, weight: Any, scale: Any, z: Any, grad: Any, wants_x: bool, /
) -> tuple[Any | None, Any, Any, Any]: ...
def head(weights: tuple[Any, ...], x: Any, /) -> Any: ...
def imagined_step(
    weights: tuple[Any, ...],
    deter: Any,
    stoch: Any,
    action: Any,
    noise: Any,
    blocks: int,
    share: float,
    /,
) -> tuple[Any, Any]: ...
def remember(gates: Any, before: Any, /) -> Any: ...
def remember_backward(gates: Any, before: Any, grad: Any, /) -> tuple[Any, Any]: ...
def draw_classes(logits: Any, noise: Any, share: float, /) -> Any: ...
def draw_classes_backward(logits: Any, grad: Any, share: float, /) -> Any: ...
def two_hot_mean(logits: Any, bins: Any, /) -> Any: ...
def two_hot_loss(logits: Any, bins: Any, targets: Any, weights: Any, /) -> Any: ...
def two_hot_loss_backward(
    logits: Any, bins: Any, targets: Any, weights: Any, grad: Any, /
) -> Any: ...
