#include "core/disk/process.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#ifdef __APPLE__
#include <sys/sysctl.h>
#include <sys/time.h>
#endif

namespace sharpwave {
namespace {

std::atomic<unsigned long> generation{1};

const int registered = ::pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1); });

}  // namespace

unsigned long process_generation() {
  (void)registered;
  return generation.load(std::memory_order_relaxed);
}

std::array<std::uint8_t, 16> boot_id() {
  std::array<std::uint8_t, 16> id{};
#ifdef __APPLE__
  timeval started{};
  std::size_t size = sizeof(started);
  if (::sysctlbyname("kern.boottime", &started, &size, nullptr, 0) == 0) {
    std::memcpy(id.data(), &started, sizeof(started) < id.size() ? sizeof(started) : id.size());
  }
#else
  const int file = ::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (file < 0) return id;
  char text[64] = {};
  const ssize_t length = ::read(file, text, sizeof(text));
  ::close(file);
  int digits = 0;
  for (ssize_t i = 0; i < length && digits < 32; ++i) {
    const char c = text[i];
    int value = -1;
    if (c >= '0' && c <= '9') value = c - '0';
    if (c >= 'a' && c <= 'f') value = c - 'a' + 10;
    if (value < 0) continue;
    id[static_cast<std::size_t>(digits / 2)] |=
        static_cast<std::uint8_t>(digits % 2 == 0 ? value << 4 : value);
    ++digits;
  }
#endif
  return id;
}

}  // namespace sharpwave
