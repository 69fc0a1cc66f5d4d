"""The native environments as tensors on a device: in Triton on CUDA, in torch everywhere.

Belongs here: what steps environments of known equations on a device. Importing it imports torch.
"""

from sharpwave.envs.on_device.vector_env import DeviceVectorEnv

__all__ = ["DeviceVectorEnv"]
