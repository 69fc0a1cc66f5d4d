#include <cstdlib>
#include <cstring>

#include "core/isa/kernels.hpp"

namespace sharpwave {

extern const Kernels kernels_base;
#ifdef SHARPWAVE_X86
extern const Kernels kernels_v3;
extern const Kernels kernels_v4;
#endif

int supported_kernels(const Kernels** tables) {
  int count = 0;
  tables[count++] = &kernels_base;
#ifdef SHARPWAVE_X86
  // Features, not levels such as "x86-64-v3", which clang learned to ask for only lately.
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  if (v3) tables[count++] = &kernels_v3;
  if (v4) tables[count++] = &kernels_v4;
#endif
  return count;
}

const Kernels& kernels() {
  static const Kernels* chosen = [] {
    const Kernels* tables[3];
    const int count = supported_kernels(tables);
    const char* wanted = std::getenv("SHARPWAVE_ISA");
    for (int i = 0; wanted != nullptr && i < count; ++i) {
      if (std::strcmp(tables[i]->isa, wanted) == 0) {
        return tables[i];
      }
    }
    return tables[count - 1];
  }();
  return *chosen;
}

}  // namespace sharpwave
