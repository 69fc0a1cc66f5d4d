#include <cstring>
#include <filesystem>

#include "check.hpp"
#include "core/disk/commit_state.hpp"
#include "test_folder.hpp"

using namespace sharpwave;

namespace {

constexpr std::streamoff kBoot = 16;
constexpr std::streamoff kWords = 64;

void words_outlive_their_writer(const TestFolder& folder) {
  const std::string path = folder / "words";
  CommitState::create(path, 3);
  CHECK_THROWS(IoError, CommitState::create(path, 3));
  {
    CommitState state(path, 3, Access::write);
    CHECK(state.get(0) == 0);
    state.set(1, 7);
    const CommitState reader(path, 3, Access::read);
    state.set(2, 8);
    CHECK(reader.get(1) == 7 && reader.get(2) == 8);
  }
  CommitState state(path, 3, Access::write);
  CHECK(state.get(1) == 7 && !state.rolled_back());
  CHECK_THROWS(IoError, CommitState(path, 4, Access::read));
}

// What another start of the system finds: the live words may have lost their page.
void a_new_start_takes_the_last_copy(const TestFolder& folder) {
  const std::string path = folder / "boots";
  CommitState::create(path, 2);
  {
    CommitState state(path, 2, Access::write);
    state.set(0, 10);
    state.save(state.words());
    state.set(0, 20);
    state.save(state.words());
    state.set(0, 30);
  }
  flip_byte(path, kBoot);
  {
    const auto before = std::filesystem::last_write_time(path);
    const CommitState reader(path, 2, Access::read);
    CHECK(reader.get(0) == 20 && reader.rolled_back());
    CHECK(std::filesystem::last_write_time(path) == before);
  }
  flip_byte(path, 4096 + 4096 + 8);  // the newer copy (number 3, in slot 1)
  {
    const CommitState reader(path, 2, Access::read);
    CHECK(reader.get(0) == 10);
  }
  {
    CommitState state(path, 2, Access::write);
    CHECK(state.get(0) == 10 && state.rolled_back());
    state.set(0, 11);
  }
  const CommitState state(path, 2, Access::write);
  CHECK(state.get(0) == 11 && !state.rolled_back());
  flip_byte(path, kBoot);
  flip_byte(path, 4096 + 8);
  CHECK_THROWS(IoError, CommitState(path, 2, Access::read));
}

void a_flipped_bit_in_sealed_words_is_noticed(const TestFolder& folder) {
  const std::string path = folder / "sealed";
  CommitState::create(path, 2);
  {
    CommitState state(path, 2, Access::write);
    state.set(1, 5);
    state.save(state.words());
    state.seal();
  }
  CHECK(CommitState(path, 2, Access::read).get(1) == 5);
  flip_byte(path, kWords + 8);
  const CommitState state(path, 2, Access::read);
  CHECK(state.get(1) == 5 && state.rolled_back());
}

void foreign_files_are_refused(const TestFolder& folder) {
  std::ofstream(folder / "short") << "hello";
  CHECK_THROWS(IoError, CommitState(folder / "short", 1, Access::read));
  std::ofstream(folder / "long") << std::string(100000, 'x');
  CHECK_THROWS(IoError, CommitState(folder / "long", 1, Access::write));
  CHECK_THROWS(IoError, CommitState(folder / "none", 1, Access::read));
}

void readers_of_a_closed_state_follow_the_next_writer(const TestFolder& folder) {
  const std::string path = folder / "closed";
  CommitState::create(path, 1);
  {
    CommitState state(path, 1, Access::write);
    state.set(0, 5);
    state.save(state.words());
    state.seal();
  }
  flip_byte(path, kBoot);
  const CommitState reader(path, 1, Access::read);
  CHECK(reader.get(0) == 5 && !reader.rolled_back());
  CommitState writer(path, 1, Access::write);
  writer.set(0, 6);
  CHECK(reader.get(0) == 6);
}

}  // namespace

int main() {
  const TestFolder folder;
  words_outlive_their_writer(folder);
  a_new_start_takes_the_last_copy(folder);
  readers_of_a_closed_state_follow_the_next_writer(folder);
  a_flipped_bit_in_sealed_words_is_noticed(folder);
  foreign_files_are_refused(folder);
  return 0;
}
