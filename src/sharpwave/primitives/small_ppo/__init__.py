"""The gradient of PPO's loss for small networks, from the rows of a rollout."""
