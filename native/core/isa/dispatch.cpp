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
  __builtin_cpu_init();
  if (__builtin_cpu_supports("x86-64-v3")) {
    tables[count++] = &kernels_v3;
  }
  if (__builtin_cpu_supports("x86-64-v4")) {
    tables[count++] = &kernels_v4;
  }
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
