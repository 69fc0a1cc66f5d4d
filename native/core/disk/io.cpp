#include "core/disk/io.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#ifdef __linux__
#include <sys/vfs.h>
#endif
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

namespace sharpwave {

IoError::IoError(const std::string& what, const std::string& path, int error)
    : std::runtime_error(what + " " + path + ": " + std::strerror(error)), code(error) {}

IoError::IoError(const std::string& what, const std::string& path)
    : std::runtime_error(path + ": " + what) {}

namespace {

int open_file(const std::string& path, int flags) {
  int descriptor = -1;
  do {
    descriptor = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

}  // namespace

File::File(const std::string& path, Access access)
    : descriptor_(open_file(path, access == Access::read ? O_RDONLY : O_RDWR)), path_(path) {
  if (descriptor_ < 0) throw IoError("cannot open", path, errno);
}

File File::create(const std::string& path) {
  File file;
  file.path_ = path;
  file.descriptor_ = open_file(path, O_RDWR | O_CREAT | O_EXCL);
  if (file.descriptor_ < 0) throw IoError("cannot make", path, errno);
  return file;
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

File::File(File&& other) noexcept { *this = std::move(other); }

File& File::operator=(File&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(path_, other.path_);
  return *this;
}

std::size_t File::size() const {
  struct stat status{};
  if (::fstat(descriptor_, &status) != 0) throw IoError("cannot look at", path_, errno);
  return static_cast<std::size_t>(status.st_size);
}

void File::resize(std::size_t bytes) {
  while (::ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0) {
    if (errno != EINTR) throw IoError("cannot resize", path_, errno);
  }
}

void File::allocate(std::size_t offset, std::size_t bytes) {
#ifdef __APPLE__
  // No posix_fallocate: zeros take the space just as well. Only ranges never written are asked for.
  const std::vector<char> zeros(std::min<std::size_t>(bytes, std::size_t{1} << 20));
  for (std::size_t done = 0; done < bytes; done += zeros.size()) {
    write(offset + done, zeros.data(), std::min(zeros.size(), bytes - done));
  }
#else
  int code = 0;
  do {
    code = ::posix_fallocate(descriptor_, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (code == EINTR);
  if (code != 0) throw IoError("there is no room on the disk for", path_, code);
#endif
}

void File::fill_holes(std::size_t offset, std::size_t bytes) {
  if (bytes == 0) return;
#ifdef __linux__
  int code = 0;
  do {
    code = ::fallocate(descriptor_, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (code != 0 && errno == EINTR);
  if (code == 0) return;
  if (errno != EOPNOTSUPP) throw IoError("there is no room on the disk for", path_, errno);
#endif
  // Without the system's help all of the range is gone through, but only where there are holes.
  struct stat status{};
  if (::fstat(descriptor_, &status) != 0) throw IoError("cannot look at", path_, errno);
  if (status.st_blocks * 512 >= status.st_size) return;
  std::vector<char> piece(std::min<std::size_t>(bytes, std::size_t{1} << 20));
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t count = std::min(piece.size(), bytes - done);
    read(offset + done, piece.data(), count);
    write(offset + done, piece.data(), count);
    done += count;
  }
}

void File::punch(std::size_t offset, std::size_t bytes) {
#ifdef FALLOC_FL_PUNCH_HOLE
  ::fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(bytes));
#else
  (void)offset;
  (void)bytes;
#endif
}

void File::read(std::size_t offset, void* data, std::size_t bytes) const {
  auto* target = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = ::pread(descriptor_, target, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw IoError("cannot read", path_, errno);
    if (got == 0) throw IoError("the file is shorter than it should be", path_);
    target += got;
    offset += static_cast<std::size_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
}

void File::write(std::size_t offset, const void* data, std::size_t bytes) {
  const auto* source = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t put = ::pwrite(descriptor_, source, bytes, static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) throw IoError("cannot write", path_, errno);
    source += put;
    offset += static_cast<std::size_t>(put);
    bytes -= static_cast<std::size_t>(put);
  }
}

void File::sync() {
#ifdef __APPLE__
  const int code = ::fsync(descriptor_);
#else
  const int code = ::fdatasync(descriptor_);
#endif
  // Some file systems have nothing to wait for.
  if (code != 0 && errno != EINVAL && errno != EROFS) throw IoError("cannot sync", path_, errno);
}

void sync_folder(const std::string& path) {
  const int descriptor = open_file(path, O_RDONLY);
  if (descriptor < 0) throw IoError("cannot open", path, errno);
  const int code = ::fsync(descriptor);
  const int error = errno;
  ::close(descriptor);
  if (code != 0 && error != EINVAL && error != EROFS) throw IoError("cannot sync", path, error);
}

void remove_file(const std::string& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) throw IoError("cannot remove", path, errno);
}

std::size_t page_bytes() {
  static const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

AddressRange::AddressRange(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS;
#ifdef MAP_NORESERVE
  flags |= MAP_NORESERVE;
#endif
  void* address = ::mmap(nullptr, bytes, PROT_NONE, flags, -1, 0);
  if (address == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<std::byte*>(address);
}

AddressRange::~AddressRange() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

AddressRange::AddressRange(AddressRange&& other) noexcept { *this = std::move(other); }

AddressRange& AddressRange::operator=(AddressRange&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void map_file(const File& file, Access access, std::byte* address, std::size_t bytes) {
  const int protection = access == Access::read ? PROT_READ : PROT_READ | PROT_WRITE;
  if (::mmap(address, bytes, protection, MAP_SHARED | MAP_FIXED, file.descriptor(), 0) ==
      MAP_FAILED) {
    throw IoError("cannot map", file.path(), errno);
  }
}

void check_readable([[maybe_unused]] const File& file, [[maybe_unused]] std::byte* address,
                    [[maybe_unused]] std::size_t bytes) {
#ifdef __linux__
  constexpr int kPopulateRead = 22;           // MADV_POPULATE_READ, which older headers do not know
  constexpr long kMemoryFiles = 0x01021994L;  // tmpfs
  struct stat status{};
  struct statfs system{};
  if (bytes == 0 || ::fstat(file.descriptor(), &status) != 0 ||
      status.st_blocks * 512 >= status.st_size || ::fstatfs(file.descriptor(), &system) != 0 ||
      system.f_type != kMemoryFiles) {
    return;
  }
  if (::madvise(address, bytes, kPopulateRead) != 0 && (errno == EFAULT || errno == ENOMEM)) {
    throw IoError("there is no room on the disk for", file.path(), ENOSPC);
  }
#endif
}

namespace {

// Puts an empty mapping in the place of what is there.
void* map_nothing(std::byte* address, std::size_t bytes, int protection) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
#ifdef MAP_NORESERVE
  flags |= MAP_NORESERVE;
#endif
  return ::mmap(address, bytes, protection, flags, -1, 0);
}

}  // namespace

void map_zeros(std::byte* address, std::size_t bytes) {
  if (map_nothing(address, bytes, PROT_READ) == MAP_FAILED) throw std::bad_alloc();
}

void map_memory(std::byte* address, std::size_t bytes) {
  if (map_nothing(address, bytes, PROT_READ | PROT_WRITE) == MAP_FAILED) throw std::bad_alloc();
}

void populate([[maybe_unused]] std::byte* data, [[maybe_unused]] std::size_t bytes) {
#ifdef __linux__
  constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, which older headers do not know
  const std::size_t offset = reinterpret_cast<std::uintptr_t>(data) % page_bytes();
  ::madvise(data - offset, bytes + offset, kPopulateWrite);
#endif
}

void unmap(std::byte* address, std::size_t bytes) {
  // The addresses must not go to someone else.
  map_nothing(address, bytes, PROT_NONE);
}

}  // namespace sharpwave
