#include "core/isa/table.inl"

namespace sharpwave {

extern const Kernels kernels_v4;
const Kernels kernels_v4 = {"v4",           returns_table(), llm_table(),      stats_table(),
                            tree_table(),   rows_table(),    checksum_table(), learn_table(),
                            policy_table(), replay_table(),  env_table(),      column_table(),
                            world_table()};

}  // namespace sharpwave
