#include <cstdlib>
#include <cstring>

#include "check.hpp"
#include "core/isa/kernels.hpp"

int main() {
  const sharpwave::Kernels* tables[3];
  const int count = sharpwave::supported_kernels(tables);
  CHECK(count >= 1 && count <= 3);
  CHECK(std::strcmp(tables[0]->isa, "base") == 0);
  for (int i = 1; i < count; ++i) CHECK(std::strcmp(tables[i]->isa, tables[i - 1]->isa) != 0);

  setenv("SHARPWAVE_ISA", "base", 1);
  CHECK(&sharpwave::kernels() == tables[0]);
  setenv("SHARPWAVE_ISA", "v3", 1);  // the choice is made once
  CHECK(&sharpwave::kernels() == tables[0]);
}
