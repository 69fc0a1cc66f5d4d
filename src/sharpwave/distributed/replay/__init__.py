"""Distributed replay: a replay buffer sharded over several processes, sampled as one."""

from sharpwave.distributed.replay.local import FolderShard, LocalShard
from sharpwave.distributed.replay.rate import RateLimit
from sharpwave.distributed.replay.ray_shards import RayShards
from sharpwave.distributed.replay.server import ReplayServer, ShardOptions
from sharpwave.distributed.replay.shard import Shard
from sharpwave.distributed.replay.sharded import ShardedReplay

__all__ = [
    "FolderShard",
    "LocalShard",
    "RateLimit",
    "RayShards",
    "ReplayServer",
    "Shard",
    "ShardOptions",
    "ShardedReplay",
]
