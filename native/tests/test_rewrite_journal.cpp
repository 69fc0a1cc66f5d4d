#include "core/disk/rewrite_journal.hpp"

#include <cstring>
#include <string>
#include <vector>

#include "tests/check.hpp"
#include "tests/test_folder.hpp"

namespace {

using namespace sharpwave;

std::vector<RowPatch> patches_of(const std::vector<std::string>& texts) {
  std::vector<RowPatch> patches;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    patches.push_back({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(texts[i].size()),
                       10 * i, i, reinterpret_cast<const std::byte*>(texts[i].data())});
  }
  return patches;
}

void check_same(const std::vector<RowPatch>& got, const std::vector<std::string>& texts) {
  CHECK(got.size() == texts.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    CHECK(got[i].stream == i && got[i].row == 10 * i && got[i].offset == i);
    CHECK(got[i].bytes == texts[i].size());
    CHECK(std::memcmp(got[i].data, texts[i].data(), texts[i].size()) == 0);
  }
}

void what_was_begun_is_found_until_it_ends(const std::string& path) {
  const std::vector<std::string> texts = {"one", "", std::string(9000, 'x')};
  {
    RewriteJournal journal(path, Access::write);
    CHECK(journal.unfinished().empty());
    journal.end();  // nothing was begun
    journal.begin(patches_of({"small"}));
    journal.end();
    journal.begin(patches_of(texts));
  }
  RewriteJournal journal(path, Access::write);
  check_same(journal.unfinished(), texts);
  RewriteJournal reader(path, Access::read);
  CHECK(reader.settled() == 2);  // a writer that is gone is not waited for
  journal.end();
  CHECK(journal.unfinished().empty());
  const std::uint64_t count = reader.settled();
  CHECK(reader.is_settled(count));
  journal.begin(patches_of({"again"}));
  CHECK(!reader.is_settled(count));
  journal.end();
  CHECK(!reader.is_settled(count));
}

void what_is_not_whole_is_nothing(const std::string& path) {
  {
    RewriteJournal journal(path, Access::write);
    journal.begin(patches_of({std::string(5000, 'y')}));
  }
  File file(path, Access::write);
  const char other = 'z';
  file.write(page_bytes() + 3000, &other, 1);
  RewriteJournal journal(path, Access::write);
  CHECK(journal.unfinished().empty());
}

}  // namespace

int main() {
  const TestFolder folder;
  what_was_begun_is_found_until_it_ends(folder.path() + "/a");
  what_is_not_whole_is_nothing(folder.path() + "/b");
  return 0;
}
