// The kernels that gain from wide vectors: one table of functions per instruction set, chosen once.
//
// Each kernels_<isa>.cpp compiles the same *.inl files in an anonymous namespace. Those files must
// not use inline functions of the standard library: the linker could keep the copy compiled for a
// wide instruction set and hand it to code that runs on an old CPU.
#pragma once

#include "core/isa/checksum_kernels.hpp"
#include "core/isa/column_kernels.hpp"
#include "core/isa/learn_kernels.hpp"
#include "core/isa/llm_kernels.hpp"
#include "core/isa/policy_kernels.hpp"
#include "core/isa/replay_kernels.hpp"
#include "core/isa/returns_kernels.hpp"
#include "core/isa/rows_kernels.hpp"
#include "core/isa/stats_kernels.hpp"
#include "core/isa/tree_kernels.hpp"
#include "core/isa/world_kernels.hpp"
#include "envs/env_kernels.hpp"

namespace sharpwave {

struct Kernels {
  const char* isa;
  ReturnsKernels returns;
  LlmKernels llm;
  StatsKernels stats;
  TreeKernels tree;
  RowsKernels rows;
  ChecksumKernels checksum;
  LearnKernels learn;
  PolicyKernels policy;
  ReplayKernels replay;
  EnvTable env;
  ColumnKernels columns;
  WorldKernels world;
};

// The table for this CPU. The environment variable SHARPWAVE_ISA=base|v3|v4 asks for a narrower
// one.
const Kernels& kernels();

// The tables this CPU can run, narrowest first (for tests).
int supported_kernels(const Kernels** tables);

}  // namespace sharpwave
