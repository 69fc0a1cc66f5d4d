// What tells one process, and one start of the system, from another.
#pragma once

#include <array>
#include <cstdint>

namespace sharpwave {

// Another number in a forked child than in its parent; costs no system call.
unsigned long process_generation();

// The same since the system was started; zeros where the system does not tell.
std::array<std::uint8_t, 16> boot_id();

}  // namespace sharpwave
