"""Equations of the environments in torch, in the order of operations that native code has.

Each class moves a state on by an action and says what is seen of it. A state is a tuple of
variables [N] float64, an action [N] float64, and `option` the value of the one argument that
Gymnasium's constructor has.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

__all__ = ["DYNAMICS", "Dynamics", "Moved", "State", "in_float32"]

State = tuple[Tensor, ...]


class Moved(NamedTuple):
    """The step that an action led to."""

    state: State
    rewards: Tensor
    """[N] float64."""
    terminated: Tensor
    """[N] bool."""


class Dynamics(Protocol):
    """Equations of an environment."""

    starts_in_float32: bool
    """True if the first state of an episode is rounded, as Gymnasium does."""

    def move(self, state: State, action: Tensor, option: float) -> Moved:
        """Take one step."""

    def observe(self, state: State) -> State:
        """The numbers of an observation, [N] each."""


def in_float32(x: Tensor) -> Tensor:
    """Rounded to float32."""
    return x.float().double()


def float32(x: float) -> float:
    """The same of a number."""
    return torch.tensor(x, dtype=torch.float32).item()


class CartPole:
    """CartPole-v1: a pole stands on a cart that is pushed to the left (0) or right (1)."""

    starts_in_float32 = False
    TOTAL_MASS = 0.1 + 1.0
    POLE_MASS_LENGTH = 0.1 * 0.5
    LARGEST_ANGLE = 12 * 2 * math.pi / 360

    def move(self, state: State, action: Tensor, option: float) -> Moved:
        """Take one step; `option` is `sutton_barto_reward`."""
        position, velocity, angle, turning = state
        sine, cosine = torch.sin(angle), torch.cos(angle)
        force = 10.0 * (2.0 * action - 1.0)
        pushed = (force + self.POLE_MASS_LENGTH * (turning * turning) * sine) / self.TOTAL_MASS
        turns = (9.8 * sine - cosine * pushed) / (
            0.5 * (4.0 / 3.0 - 0.1 * (cosine * cosine) / self.TOTAL_MASS)
        )
        accelerates = pushed - self.POLE_MASS_LENGTH * turns * cosine / self.TOTAL_MASS

        position = position + 0.02 * velocity
        velocity = velocity + 0.02 * accelerates
        angle = angle + 0.02 * turning
        turning = turning + 0.02 * turns
        fell = (position.abs() > 2.4) | (angle.abs() > self.LARGEST_ANGLE)
        rewards = -fell.double() if option else torch.ones_like(position)
        return Moved((position, velocity, angle, turning), rewards, fell)

    def observe(self, state: State) -> State:
        """The state."""
        return state


class Pendulum:
    """Pendulum-v1: a torque within [-2, 2] swings a pendulum up and holds it there."""

    starts_in_float32 = False
    EFFORT = float32(0.001)

    def move(self, state: State, action: Tensor, option: float) -> Moved:
        """Take one step; `option` is `g`."""
        angle, speed = state
        torque = action.clamp(-2.0, 2.0)
        from_top = torch.remainder(angle + math.pi, 2 * math.pi) - math.pi
        effort = in_float32(in_float32(torque * torque) * self.EFFORT)
        cost = from_top * from_top + 0.1 * (speed * speed) + effort

        gained = 3 * option / 2 * torch.sin(angle) + in_float32(3.0 * torque)
        speed = (speed + gained * 0.05).clamp(-8.0, 8.0)
        angle = angle + speed * 0.05
        return Moved((angle, speed), -cost, torch.zeros_like(angle, dtype=torch.bool))

    def observe(self, state: State) -> State:
        """Cosine and sine of the angle, and the speed."""
        angle, speed = state
        return torch.cos(angle), torch.sin(angle), speed


class Acrobot:
    """Acrobot-v1: a torque of -1, 0 or 1 (0, 1, 2) between two links swings the lower one up."""

    starts_in_float32 = True
    LARGEST_SPEED_1 = 4 * math.pi
    LARGEST_SPEED_2 = 9 * math.pi

    def move(self, state: State, action: Tensor, option: float) -> Moved:  # noqa: ARG002
        """Take one step, by the Runge-Kutta method of fourth order."""
        torque = action - 1.0
        k1 = self._change(state, torque)
        k2 = self._change(_moved(state, 0.1, k1), torque)
        k3 = self._change(_moved(state, 0.1, k2), torque)
        k4 = self._change(_moved(state, 0.2, k3), torque)
        total = tuple(a + 2.0 * b + 2.0 * c + d for a, b, c, d in zip(k1, k2, k3, k4, strict=True))
        angle1, angle2, speed1, speed2 = _moved(state, 0.2 / 6, total)
        angle1, angle2 = _wrapped(angle1), _wrapped(angle2)
        speed1 = speed1.clamp(-self.LARGEST_SPEED_1, self.LARGEST_SPEED_1)
        speed2 = speed2.clamp(-self.LARGEST_SPEED_2, self.LARGEST_SPEED_2)
        is_up = -torch.cos(angle1) - torch.cos(angle2 + angle1) > 1.0
        return Moved((angle1, angle2, speed1, speed2), is_up.double() - 1.0, is_up)

    def _change(self, state: State, torque: Tensor) -> State:
        """The derivative of a state; d1, d2, phi1 and phi2 are those of Sutton and Barto's book."""
        angle1, angle2, speed1, speed2 = state
        sine2, cosine2 = torch.sin(angle2), torch.cos(angle2)
        d1 = 0.25 + (1.25 + cosine2) + 1.0 + 1.0
        d2 = (0.25 + 0.5 * cosine2) + 1.0
        phi2 = 0.5 * 9.8 * torch.cos(angle1 + angle2 - math.pi / 2)
        phi1 = (
            -0.5 * (speed2 * speed2) * sine2
            - speed2 * speed1 * sine2
            + 1.5 * 9.8 * torch.cos(angle1 - math.pi / 2)
            + phi2
        )
        turns2 = (torque + d2 / d1 * phi1 - 0.5 * (speed1 * speed1) * sine2 - phi2) / (
            1.25 - d2 * d2 / d1
        )
        turns1 = -(d2 * turns2 + phi1) / d1
        return speed1, speed2, turns1, turns2

    def observe(self, state: State) -> State:
        """Cosine and sine of both angles, and the speeds."""
        angle1, angle2, speed1, speed2 = state
        sines = torch.sin(angle1), torch.sin(angle2)
        return torch.cos(angle1), sines[0], torch.cos(angle2), sines[1], speed1, speed2


def _moved(state: State, time: float, by: State) -> State:
    return tuple(x + time * change for x, change in zip(state, by, strict=True))


def _wrapped(angle: Tensor) -> Tensor:
    """Within [-pi, pi] by whole turns; more of them than 8 only from a start far out."""
    for _ in range(8):
        angle = torch.where(angle > math.pi, angle - 2 * math.pi, angle)
        angle = torch.where(angle < -math.pi, angle + 2 * math.pi, angle)
    rest = torch.remainder(angle + math.pi, 2 * math.pi) - math.pi
    return torch.where(angle.abs() > math.pi, rest, angle)


class MountainCar:
    """MountainCar-v0: a car too weak for the hill is pushed left, not at all, or right."""

    starts_in_float32 = False

    def move(self, state: State, action: Tensor, option: float) -> Moved:
        """Take one step; `option` is `goal_velocity`."""
        position, velocity = state
        slope = torch.cos(3.0 * position)
        velocity = velocity + ((action - 1.0) * 0.001 + slope * -0.0025)
        velocity = velocity.clamp(-0.07, 0.07)
        position = (position + velocity).clamp(-1.2, 0.6)
        velocity = torch.where((position == -1.2) & (velocity < 0.0), 0.0, velocity)
        arrived = (position >= 0.5) & (velocity >= option)
        return Moved((position, velocity), torch.full_like(position, -1.0), arrived)

    def observe(self, state: State) -> State:
        """The state."""
        return state


class MountainCarContinuous:
    """MountainCarContinuous-v0: the same car with a force within [-1, 1].

    Gymnasium rounds the state to float32 in every step but the first of an episode, which begins
    with a state that float32 cannot hold. The trajectories are the same only when every rounding
    is.
    """

    starts_in_float32 = False

    def move(self, state: State, action: Tensor, option: float) -> Moved:
        """Take one step; `option` is `goal_velocity`."""
        position, velocity = state
        is_first = (in_float32(position) != position) | (in_float32(velocity) != velocity)

        def rounded(x: Tensor) -> Tensor:
            return torch.where(is_first, x, in_float32(x))

        def constant(x: float) -> Tensor:
            return rounded(torch.full_like(position, x))

        slope = 0.0025 * torch.cos(rounded(3.0 * position))
        # A force that was cut is a Python float, one that was not a float32.
        is_cut = action.abs() > 1.0
        force = action.clamp(-1.0, 1.0)
        pushed = in_float32(in_float32(force * float32(0.0015)) - in_float32(slope))
        gained = torch.where(is_cut, rounded(force * 0.0015 - slope), pushed)
        fastest, left, right = constant(0.07), constant(-1.2), constant(0.6)
        velocity = _held(rounded(velocity + gained), -fastest, fastest)
        position = _held(rounded(position + velocity), left, right)
        velocity = torch.where((position == left) & (velocity < 0.0), 0.0, velocity)
        arrived = (position >= constant(0.45)) & (velocity >= constant(option))
        rewards = torch.where(arrived, 100.0, 0.0) - action * action * 0.1
        return Moved((in_float32(position), in_float32(velocity)), rewards, arrived)

    def observe(self, state: State) -> State:
        """The state."""
        return state


def _held(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    return torch.minimum(torch.maximum(x, low), high)


DYNAMICS: dict[str, Dynamics] = {
    "CartPole-v1": CartPole(),
    "Pendulum-v1": Pendulum(),
    "Acrobot-v1": Acrobot(),
    "MountainCar-v0": MountainCar(),
    "MountainCarContinuous-v0": MountainCarContinuous(),
}
"""By Gymnasium's id."""
