#include "core/robust_mutex.hpp"

#include <cerrno>
#include <ctime>
#include <stdexcept>
#include <system_error>

namespace sharpwave {

#ifdef __APPLE__

void RobustMutex::create() {
  throw std::runtime_error("this system has no mutex that outlives the process which holds it");
}

bool RobustMutex::lock(int) { return false; }

void RobustMutex::unlock() { throw std::logic_error("this thread does not have the lock"); }

#else

namespace {

void check(int error, const char* what) {
  if (error != 0) throw std::system_error(error, std::generic_category(), what);
}

}  // namespace

void RobustMutex::create() {
  pthread_mutexattr_t attributes;
  check(pthread_mutexattr_init(&attributes), "pthread_mutexattr_init");
  check(pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED), "setpshared");
  check(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST), "setrobust");
  check(pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK), "settype");
  check(pthread_mutex_init(&mutex_, &attributes), "pthread_mutex_init");
  pthread_mutexattr_destroy(&attributes);
}

bool RobustMutex::lock(int milliseconds) {
  timespec until{};
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += milliseconds / 1000;
  until.tv_nsec += static_cast<long>(milliseconds % 1000) * 1000000L;
  if (until.tv_nsec >= 1000000000L) {
    until.tv_nsec -= 1000000000L;
    ++until.tv_sec;
  }
  const int error = pthread_mutex_timedlock(&mutex_, &until);
  if (error == ETIMEDOUT) return false;
  if (error == EOWNERDEAD) {
    // Whoever died may have been in the middle of something: that is for its user to know.
    check(pthread_mutex_consistent(&mutex_), "pthread_mutex_consistent");
    return true;
  }
  check(error, "pthread_mutex_timedlock");
  return true;
}

void RobustMutex::unlock() {
  if (pthread_mutex_unlock(&mutex_) != 0) {
    throw std::logic_error("this thread does not have the lock");
  }
}

#endif

}  // namespace sharpwave
