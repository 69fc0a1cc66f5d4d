// The numbers that say what a store on disk holds: 64-bit words in a small mapped file.
//
// A store to a word is a commit against the death of the process: the page belongs to the system
// and outlives it. Against the loss of power there are checksummed copies of all words, written
// after the data they speak of is on the disk. Which of the two counts is told by the boot id:
// words written since the system was started have not lost their pages.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "core/disk/io.hpp"

namespace sharpwave {

class CommitState {
 public:
  // Makes the file with all words 0.
  static void create(const std::string& path, std::size_t n_words);
  // Opens it. Reading never writes: where the copy counts, the words are those of the copy, in
  // private memory. Throws IoError for a file that is none of ours, or damaged.
  CommitState(const std::string& path, std::size_t n_words, Access access);

  std::size_t size() const { return n_words_; }
  std::uint64_t get(std::size_t i) const { return words_[i].load(std::memory_order_acquire); }
  void set(std::size_t i, std::uint64_t value) {
    words_[i].store(value, std::memory_order_release);
  }
  std::atomic<std::uint64_t>& word(std::size_t i) { return words_[i]; }

  // True when the words are those of the last copy because the system was started anew without the
  // folder having been closed: files may be as of any moment since.
  bool rolled_back() const { return rolled_back_; }
  // Writes a checksummed copy of words and waits for the disk. The data they speak of must be on
  // the disk already.
  void save(const std::vector<std::uint64_t>& words);
  // The words as they are now.
  std::vector<std::uint64_t> words() const;
  // The words of the last copy: what they speak of is on the disk.
  const std::vector<std::uint64_t>& saved_words() const { return saved_words_; }
  // Marks the words as final until the next writer comes, so that damage to them is noticed.
  void seal();

 private:
  struct Header;
  std::uint64_t checksum_of_words() const;
  void restore(Access access);

  std::size_t n_words_;
  File file_;
  std::mutex save_mutex_;
  AddressRange range_;
  std::vector<std::atomic<std::uint64_t>> private_words_;
  Header* header_ = nullptr;
  std::atomic<std::uint64_t>* words_ = nullptr;
  std::vector<std::uint64_t> saved_words_;
  std::uint64_t copies_ = 0;
  bool rolled_back_ = false;
};

}  // namespace sharpwave
