// Files and mappings that close themselves, with errors that name the path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace sharpwave {

// The system refused: `code` is errno. The message names what was tried and the path.
struct IoError : std::runtime_error {
  IoError(const std::string& what, const std::string& path, int code);
  // A fault in what a file holds, not in the system.
  IoError(const std::string& what, const std::string& path);
  int code = 0;
};

enum class Access : std::uint8_t { read, write };

class File {
 public:
  File() = default;
  // Opens an existing file.
  File(const std::string& path, Access access);
  // Makes a new file; throws if there is one.
  static File create(const std::string& path);
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int descriptor() const { return descriptor_; }
  const std::string& path() const { return path_; }
  std::size_t size() const;
  void resize(std::size_t bytes);
  // Gets disk space for the range now, so that a write through a mapping cannot find the disk full.
  void allocate(std::size_t offset, std::size_t bytes);
  // The same for a range that is in the file already, but may have holes: a copy may have made
  // them.
  void fill_holes(std::size_t offset, std::size_t bytes);
  // Gives disk space back where the file system can; the range reads as zeros then.
  void punch(std::size_t offset, std::size_t bytes);
  void read(std::size_t offset, void* data, std::size_t bytes) const;
  void write(std::size_t offset, const void* data, std::size_t bytes);
  // Waits until the content is on the disk.
  void sync();

 private:
  int descriptor_ = -1;
  std::string path_;
};

// Waits until the entries of a folder are on the disk.
void sync_folder(const std::string& path);
void remove_file(const std::string& path);  // no error when it is not there

std::size_t page_bytes();

// A range of addresses. Parts of files are mapped into it; the rest must not be touched.
class AddressRange {
 public:
  AddressRange() = default;
  explicit AddressRange(std::size_t bytes);
  ~AddressRange();
  AddressRange(AddressRange&& other) noexcept;
  AddressRange& operator=(AddressRange&& other) noexcept;
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Maps the first `bytes` of a file at `address`, in place of what was there.
void map_file(const File& file, Access access, std::byte* address, std::size_t bytes);
// Makes sure that a reader can read the first `bytes` of a mapped file: a file system in memory
// takes room for a hole even when it is read. Throws IoError when there is none.
void check_readable(const File& file, std::byte* address, std::size_t bytes);
// Lets a reader find zeros there.
void map_zeros(std::byte* address, std::size_t bytes);
// Puts empty memory at `address`, in place of what was there.
void map_memory(std::byte* address, std::size_t bytes);
// Brings pages that are about to be written into the process, so that a write does not have to.
void populate(std::byte* data, std::size_t bytes);
// Takes the mapping away; the addresses stay reserved.
void unmap(std::byte* address, std::size_t bytes);

}  // namespace sharpwave
