"""A step of the environments in Triton: one launch, everything in registers.

The dynamics are those of `dynamics.py`, in the same order of operations, and without fused
multiplications and additions; only sines and cosines may differ in the last bit of float64.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from sharpwave.envs.on_device.dynamics import DYNAMICS, Acrobot, CartPole, Pendulum
from sharpwave.envs.on_device.memory import EnvMemory, Rules
from sharpwave.primitives.launching import launch

__all__ = ["step"]

FEW = 2**14
"""Environments up to which one warp has a program: many of them wait for each other less."""

PI = tl.constexpr(3.141592653589793)
TURN = tl.constexpr(2 * 3.141592653589793)
TOTAL_MASS = tl.constexpr(CartPole.TOTAL_MASS)
POLE_MASS_LENGTH = tl.constexpr(CartPole.POLE_MASS_LENGTH)
LARGEST_ANGLE = tl.constexpr(CartPole.LARGEST_ANGLE)
EFFORT = tl.constexpr(Pendulum.EFFORT)
LARGEST_SPEED_1 = tl.constexpr(Acrobot.LARGEST_SPEED_1)
LARGEST_SPEED_2 = tl.constexpr(Acrobot.LARGEST_SPEED_2)
ROUNDER = tl.constexpr(6755399441055744.0)
"""A number that is added to it and taken from it again becomes an integer, the nearest."""


@triton.jit
def in_float32(x):
    """Rounded to float32."""
    return x.to(tl.float32).to(tl.float64)


@triton.jit
def held(x, low, high):
    """Within bounds; NaN stays."""
    x = tl.where(x < low, low, x)
    return tl.where(x > high, high, x)


@triton.jit
def within_turn(x):
    """The remainder of whole turns, in [0, 2 pi)."""
    turns = (x / TURN + ROUNDER) - ROUNDER
    rest = tl.fma(turns, tl.full(x.shape, -TURN, tl.float64), x)
    return tl.where(rest < 0.0, rest + TURN, rest)


@triton.jit
def move_cart_pole(state, action, option):
    position, velocity, angle, turning = state
    sine = tl.sin(angle)
    cosine = tl.cos(angle)
    force = 10.0 * (2.0 * action - 1.0)
    pushed = (force + POLE_MASS_LENGTH * (turning * turning) * sine) / TOTAL_MASS
    turns = (9.8 * sine - cosine * pushed) / (
        0.5 * (4.0 / 3.0 - 0.1 * (cosine * cosine) / TOTAL_MASS)
    )
    accelerates = pushed - POLE_MASS_LENGTH * turns * cosine / TOTAL_MASS
    position = position + 0.02 * velocity
    velocity = velocity + 0.02 * accelerates
    angle = angle + 0.02 * turning
    turning = turning + 0.02 * turns
    fell = (tl.abs(position) > 2.4) | (tl.abs(angle) > LARGEST_ANGLE)
    lost = fell.to(tl.float64)
    reward = tl.where(option != 0.0, -lost, 1.0)
    return (position, velocity, angle, turning), reward, fell


@triton.jit
def move_pendulum(state, action, option):
    angle, speed = state
    torque = held(action, -2.0, 2.0)
    from_top = within_turn(angle + PI) - PI
    effort = in_float32(in_float32(torque * torque) * EFFORT)
    cost = from_top * from_top + 0.1 * (speed * speed) + effort
    gained = 3.0 * option / 2.0 * tl.sin(angle) + in_float32(3.0 * torque)
    speed = held(speed + gained * 0.05, -8.0, 8.0)
    angle = angle + speed * 0.05
    return (angle, speed), -cost, tl.zeros(angle.shape, tl.int1)


@triton.jit
def change_of_acrobot(angle1, angle2, speed1, speed2, torque):
    sine2 = tl.sin(angle2)
    cosine2 = tl.cos(angle2)
    d1 = 0.25 + (1.25 + cosine2) + 1.0 + 1.0
    d2 = (0.25 + 0.5 * cosine2) + 1.0
    phi2 = 0.5 * 9.8 * tl.cos(angle1 + angle2 - PI / 2)
    phi1 = (
        -0.5 * (speed2 * speed2) * sine2
        - speed2 * speed1 * sine2
        + 1.5 * 9.8 * tl.cos(angle1 - PI / 2)
        + phi2
    )
    turns2 = (torque + d2 / d1 * phi1 - 0.5 * (speed1 * speed1) * sine2 - phi2) / (
        1.25 - d2 * d2 / d1
    )
    turns1 = -(d2 * turns2 + phi1) / d1
    return speed1, speed2, turns1, turns2


@triton.jit
def moved(state, time, by):
    a, b, c, d = state
    p, q, r, s = by
    return a + time * p, b + time * q, c + time * r, d + time * s


@triton.jit
def mean_of(a, b, c, d):
    return a + 2.0 * b + 2.0 * c + d


@triton.jit
def wrapped(angle):
    for _ in tl.static_range(8):
        angle = tl.where(angle > PI, angle - TURN, angle)
        angle = tl.where(angle < -PI, angle + TURN, angle)
    return tl.where(tl.abs(angle) > PI, within_turn(angle + PI) - PI, angle)


@triton.jit
def move_acrobot(state, action, option):
    torque = action - 1.0
    k1 = change_of_acrobot(*state, torque)
    k2 = change_of_acrobot(*moved(state, 0.1, k1), torque)
    k3 = change_of_acrobot(*moved(state, 0.1, k2), torque)
    k4 = change_of_acrobot(*moved(state, 0.2, k3), torque)
    total = (
        mean_of(k1[0], k2[0], k3[0], k4[0]),
        mean_of(k1[1], k2[1], k3[1], k4[1]),
        mean_of(k1[2], k2[2], k3[2], k4[2]),
        mean_of(k1[3], k2[3], k3[3], k4[3]),
    )
    angle1, angle2, speed1, speed2 = moved(state, 0.2 / 6, total)
    angle1 = wrapped(angle1)
    angle2 = wrapped(angle2)
    speed1 = held(speed1, -LARGEST_SPEED_1, LARGEST_SPEED_1)
    speed2 = held(speed2, -LARGEST_SPEED_2, LARGEST_SPEED_2)
    is_up = -tl.cos(angle1) - tl.cos(angle2 + angle1) > 1.0
    return (angle1, angle2, speed1, speed2), is_up.to(tl.float64) - 1.0, is_up


@triton.jit
def move_mountain_car(state, action, option):
    position, velocity = state
    slope = tl.cos(3.0 * position)
    velocity = velocity + ((action - 1.0) * 0.001 + slope * -0.0025)
    velocity = held(velocity, -0.07, 0.07)
    position = held(position + velocity, -1.2, 0.6)
    velocity = tl.where((position == -1.2) & (velocity < 0.0), 0.0, velocity)
    arrived = (position >= 0.5) & (velocity >= option)
    return (position, velocity), tl.full(position.shape, -1.0, tl.float64), arrived


@triton.jit
def rounded(x, is_first):
    return tl.where(is_first, x, in_float32(x))


@triton.jit
def move_mountain_car_continuous(state, action, option):
    position, velocity = state
    one = tl.full(position.shape, 1.0, tl.float64)
    is_first = (in_float32(position) != position) | (in_float32(velocity) != velocity)
    slope = 0.0025 * tl.cos(rounded(3.0 * position, is_first))
    force = held(action, -1.0, 1.0)
    pushed = in_float32(in_float32(force * in_float32(one * 0.0015)) - in_float32(slope))
    cut = rounded(force * 0.0015 - slope, is_first)
    gained = tl.where(tl.abs(action) > 1.0, cut, pushed)
    fastest = rounded(one * 0.07, is_first)
    left = rounded(one * -1.2, is_first)
    velocity = held(rounded(velocity + gained, is_first), -fastest, fastest)
    right = rounded(one * 0.6, is_first)
    position = held(rounded(position + velocity, is_first), left, right)
    velocity = tl.where((position == left) & (velocity < 0.0), 0.0, velocity)
    goal = rounded(one * 0.45, is_first)
    arrived = (position >= goal) & (velocity >= rounded(one * option, is_first))
    reward = tl.where(arrived, one * 100.0, 0.0) - action * action * 0.1
    return (in_float32(position), in_float32(velocity)), reward, arrived


@triton.jit
def move(state, action, option, ENV: tl.constexpr):
    if ENV == "CartPole-v1":
        return move_cart_pole(state, action, option)
    elif ENV == "Pendulum-v1":
        return move_pendulum(state, action, option)
    elif ENV == "Acrobot-v1":
        return move_acrobot(state, action, option)
    elif ENV == "MountainCar-v0":
        return move_mountain_car(state, action, option)
    else:
        return move_mountain_car_continuous(state, action, option)


@triton.jit
def observed(state, ENV: tl.constexpr):
    if ENV == "Pendulum-v1":
        return tl.cos(state[0]), tl.sin(state[0]), state[1]
    elif ENV == "Acrobot-v1":
        sines = tl.sin(state[0]), tl.sin(state[1])
        return tl.cos(state[0]), sines[0], tl.cos(state[1]), sines[1], state[2], state[3]
    else:
        return state


@triton.jit
def mixed(x):
    """The finalizer of splitmix64."""
    x = x + 0x9E3779B97F4A7C15
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


@triton.jit
def philox(key, counter):
    """Philox4x32-10 of a counter of 32 bits: four words [N]."""
    k0 = (key & 0xFFFFFFFF).to(tl.uint32)
    k1 = (key >> 32).to(tl.uint32)
    c0 = tl.zeros_like(k0) + counter
    c1 = tl.zeros_like(k0)
    c2 = tl.zeros_like(k0)
    c3 = tl.zeros_like(k0)
    for _ in tl.static_range(10):
        before = c0
        c0 = tl.umulhi(c2, tl.full(c2.shape, 0xCD9E8D57, tl.uint32)) ^ c1 ^ k0
        c1 = c2 * 0xCD9E8D57
        c2 = tl.umulhi(before, tl.full(c2.shape, 0xD2511F53, tl.uint32)) ^ c3 ^ k1
        c3 = before * 0xD2511F53
        k0 = k0 + 0x9E3779B9
        k1 = k1 + 0xBB67AE85
    return c0, c1, c2, c3


@triton.jit
def unit(lower, upper):
    """A number in [0, 1) with 53 bits."""
    bits = (upper.to(tl.int64) << 21) | (lower.to(tl.int64) >> 11)
    return bits.to(tl.float64) * 1.1102230246251565e-16


@triton.jit
def step_kernel(
    variables, steps, returns, seeds, resets, numbers, actions,
    obs, final_obs, rewards, terminated, truncated, n_envs, time_limit, n_actions,
    ENV: tl.constexpr, VARIABLES: tl.constexpr, SIZE: tl.constexpr, FLOAT32: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """A whole step of BLOCK environments; where an episode ends, the next one begins."""
    env = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = env < n_envs
    given = tl.load(actions + env, mask=inside, other=0)
    action = given.to(tl.float64)
    if n_actions > 0:
        action = tl.where((given >= 0) & (given < n_actions), action, float("nan"))
    state = ()
    for j in tl.static_range(VARIABLES):
        state = state + (tl.load(variables + j * n_envs + env, mask=inside, other=0.0),)
    state, reward, fell = move(state, action, tl.load(numbers), ENV)
    step = tl.load(steps + env, mask=inside, other=0) + 1
    total = tl.load(returns + env, mask=inside, other=0.0) + reward
    cut = step >= time_limit
    ended = fell | cut
    seen = observed(state, ENV)

    reset = tl.load(resets + env, mask=inside, other=0)
    seed = tl.load(seeds + env, mask=inside, other=0)
    key = mixed(mixed(seed.to(tl.uint64, bitcast=True)) ^ reset.to(tl.uint64, bitcast=True))
    words = philox(key, 0)
    if VARIABLES > 2:
        words = words + philox(key, 1)
    first = ()
    for j in tl.static_range(VARIABLES):
        low = tl.load(numbers + 1 + j)
        high = tl.load(numbers + 1 + VARIABLES + j)
        value = low + (high - low) * unit(words[2 * j], words[2 * j + 1])
        if FLOAT32:
            value = in_float32(value)
        first = first + (value,)
    begun = observed(first, ENV)

    for j in tl.static_range(VARIABLES):
        kept = tl.where(ended, first[j], state[j])
        tl.store(variables + j * n_envs + env, kept, mask=inside)
    for j in tl.static_range(SIZE):
        shown = tl.where(ended, begun[j], seen[j])
        tl.store(obs + env * SIZE + j, shown.to(tl.float32), mask=inside)
        tl.store(final_obs + env * SIZE + j, seen[j].to(tl.float32), mask=inside)
    tl.store(steps + env, tl.where(ended, 0, step), mask=inside)
    tl.store(returns + env, tl.where(ended, 0.0, total), mask=inside)
    tl.store(resets + env, reset + ended.to(tl.int64), mask=inside)
    tl.store(rewards + env, reward.to(tl.float32), mask=inside)
    tl.store(terminated + env, fell, mask=inside)
    tl.store(truncated + env, cut, mask=inside)


def step(rules: Rules, memory: EnvMemory, actions: Tensor) -> None:
    """Launch `step_kernel`; arguments are those of `plain.step`."""
    n_variables, n_envs = memory.variables.shape
    warps = 1 if n_envs <= FEW else 4
    launch(
        step_kernel,
        (-(-n_envs // (32 * warps)),),
        memory.variables,
        memory.variables,
        memory.steps,
        memory.returns,
        memory.seeds,
        memory.resets,
        memory.numbers,
        actions,
        memory.obs,
        memory.final_obs,
        memory.rewards,
        memory.terminated,
        memory.truncated,
        n_envs,
        rules.time_limit,
        rules.n_actions,
        ENV=rules.env_id,
        VARIABLES=n_variables,
        SIZE=memory.obs.shape[1],
        FLOAT32=DYNAMICS[rules.env_id].starts_in_float32,
        BLOCK=32 * warps,
        num_warps=warps,
        enable_fp_fusion=False,
    )
