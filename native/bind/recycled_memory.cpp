#include "bind/recycled_memory.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <vector>

namespace sharpwave::bind {
namespace {

constexpr std::size_t kMostKept = std::size_t{64} << 20;
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

struct Block {
  void* memory;
  std::size_t bytes;
};

void* allocate(std::size_t bytes) {
  if (bytes < kHugePage) return std::aligned_alloc(kAlignment, bytes);
  void* memory = std::aligned_alloc(kHugePage, (bytes + kHugePage - 1) / kHugePage * kHugePage);
#ifdef MADV_HUGEPAGE
  if (memory != nullptr) ::madvise(memory, bytes, MADV_HUGEPAGE);
#endif
  return memory;
}

// Free blocks, oldest first.
class BlockCache {
 public:
  void* take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = free_.size(); i-- > 0;) {
      if (free_[i].bytes != bytes) continue;
      void* memory = free_[i].memory;
      free_.erase(free_.begin() + static_cast<std::ptrdiff_t>(i));
      kept_ -= bytes;
      return memory;
    }
    return allocate(bytes);
  }

  void give(Block block) noexcept {
    const std::lock_guard lock(mutex_);
    try {
      free_.push_back(block);
    } catch (const std::bad_alloc&) {
      std::free(block.memory);
      return;
    }
    kept_ += block.bytes;
    while (kept_ > kMostKept) {
      std::free(free_.front().memory);
      kept_ -= free_.front().bytes;
      free_.erase(free_.begin());
    }
  }

 private:
  std::mutex mutex_;
  std::vector<Block> free_;
  std::size_t kept_ = 0;
};

// Never destroyed: arrays may outlive static destructors.
BlockCache& cache() {
  static auto* blocks = new BlockCache;
  return *blocks;
}

constexpr const char* kCapsuleName = "sharpwave.memory";

void give_back(PyObject* capsule) {
  auto* block = static_cast<Block*>(PyCapsule_GetPointer(capsule, kCapsuleName));
  cache().give(*block);
  delete block;
}

}  // namespace

Ref new_output_array(int ndim, const npy_intp* shape, int type) {
  auto* dims = const_cast<npy_intp*>(shape);
  PyArray_Descr* descr = PyArray_DescrFromType(type);
  const auto item_bytes = static_cast<std::size_t>(PyDataType_ELSIZE(descr));
  Py_DECREF(descr);
  const npy_intp size = PyArray_OverflowMultiplyList(dims, ndim);
  const auto bytes = static_cast<std::size_t>(size) * item_bytes;
  // NumPy makes the small ones, and the error for what cannot be.
  if (size < 0 || bytes < kSmallestRecycled || bytes > kMostKept) {
    return Ref::take(PyArray_SimpleNew(ndim, dims, type));
  }
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* memory = cache().take(rounded);
  if (memory == nullptr) throw std::bad_alloc();
  auto* block = new Block{memory, rounded};
  PyObject* capsule = PyCapsule_New(block, kCapsuleName, give_back);
  if (capsule == nullptr) {
    std::free(memory);
    delete block;
    throw PythonError();
  }
  Ref owner(capsule);
  Ref array = Ref::take(PyArray_SimpleNewFromData(ndim, dims, type, memory));
  if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(array.get()), owner.release()) != 0) {
    throw PythonError();
  }
  return array;
}

}  // namespace sharpwave::bind
