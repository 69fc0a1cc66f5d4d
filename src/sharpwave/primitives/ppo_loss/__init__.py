"""PPO's loss of a minibatch with its gradient, as one operation."""
