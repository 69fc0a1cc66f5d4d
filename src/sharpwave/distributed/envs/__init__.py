"""Remote environments over gRPC: a server, and vector environments whose steps run there."""

from sharpwave.distributed.envs.pool import RemoteEnvPool
from sharpwave.distributed.envs.remote import RemoteVectorEnv
from sharpwave.distributed.envs.server import EnvServer

__all__ = ["EnvServer", "RemoteEnvPool", "RemoteVectorEnv"]
