// Folders for replay buffers of steps, with chunks of few rows.
#pragma once

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <string>

#include "core/replay.hpp"
#include "tests/steps.hpp"
#include "tests/test_folder.hpp"

// The options of a buffer in a folder, which is made if need be.
inline sharpwave::ReplayOptions folder_options(const std::string& path, std::size_t n_streams,
                                               bool priorities, std::size_t capacity = 700,
                                               std::uint32_t identity = 5) {
  using namespace sharpwave;
  ReplayOptions options;
  options.schema = step_schema();
  options.layout = n_streams == 0 ? Layout::transition : Layout::stream;
  options.capacity = capacity;
  options.n_streams = n_streams;
  options.seed = 3;
  if (priorities) options.priorities = PriorityOptions{};
  FolderOptions folder = choose_columns(options);
  const std::size_t unit = page_bytes() / std::gcd(page_bytes(), folder.row_bytes);
  folder.chunk_rows = unit;
  folder.max_chunks = (capacity + 2 + unit - 1) / unit + 2;
  folder.path = path;
  folder.identity = identity;
  folder.continue_episodes = true;
  options.folder = folder;
  if (!std::filesystem::exists(path)) {
    std::filesystem::create_directories(path + "/columns");
    CommitState::create(path + "/state",
                        ReplayFolder::n_words(std::max<std::size_t>(n_streams, 1), identity));
  }
  return options;
}
