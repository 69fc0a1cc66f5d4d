// What a replay buffer does more when its rows live in a folder.
#include <algorithm>
#include <bit>
#include <limits>
#include <stdexcept>

#include "core/replay.hpp"

namespace sharpwave {
namespace {

// Slots that a push of one step may take in its stream: the frames of a new segment, and those of
// its next observation.
std::size_t slots_of_step(const ReplayOptions& options) {
  if (options.layout == Layout::transition) return 1;
  return 2 * static_cast<std::size_t>(options.schema.max_stack());
}

// Marks in the mirror have their complement above them, so that damage shows.
std::uint8_t encode_marks(std::uint8_t marks) {
  return static_cast<std::uint8_t>(marks | (~marks & 0xf) << 4);
}

bool is_encoded(std::uint8_t byte) { return ((byte ^ byte >> 4) & 0xf) == 0xf; }

}  // namespace

void Replay::open_folder() {
  const bool writer = !folder_->is_reader();
  if (priorities_) {
    if (folder_->number(ReplayFolder::kMaxPriority) > 0.0) {
      beta_ = folder_->number(ReplayFolder::kBeta);
    } else if (writer) {  // it is new
      folder_->set_number(ReplayFolder::kBeta, beta());
      commit_priorities();
    }
  }
  counters_.move_to(folder_->words());
  if (!writer) {
    counters_.move_home();
    counters_.pushed() = folder_->get(ReplayFolder::kPushed);
  }
  left_out_.resize(streams_.count());
  if (folder_->lost_marks()) forget_unmarked();
  take_in();
  std::uint64_t rows = 0;
  for (std::uint32_t stream = 0; stream < streams_.count(); ++stream) {
    if (writer && !options_.folder->continue_episodes) cut_episode(stream);
    rows += streams_.head(stream).top;
  }
  // In version 1 a crash leaves the push in flight counted. Where every row is a step, the rows
  // tell.
  const bool version_1 = options_.folder->identity == 0;
  if (writer && version_1 && options_.layout == Layout::transition) counters_.pushed() = rows;
  if (priorities_ && writer) priorities_->mirror_to(folder_->priorities());
  if (folder_->lost_priorities()) renew_priorities();
  if (writer) folder_->recover_rewrites();
  folder_->set_open();
  if (writer) folder_->settle_tail();
}

// Without marks nobody knows which slots hold steps.
void Replay::forget_unmarked() {
  damage_.push_back(folder_->path_of("marks") + " is damaged");
  for (std::uint32_t stream = 0; stream < streams_.count(); ++stream) {
    const std::uint64_t top = folder_->top(stream);
    const std::uint64_t kept = streams_.kept() - streams_.lead();
    const std::uint64_t begin = std::max(folder_->cleared(stream), top > kept ? top - kept : 0);
    lost_steps_ += top - begin;
    folder_->set_cleared(stream, top);
  }
}

// Every step gets the highest priority, as if it were new.
void Replay::renew_priorities() {
  damage_.push_back(folder_->path_of("priorities") + " is damaged, and all are the same now");
  for (const std::uint64_t id : ids(View{})) {
    priorities_->push(streams_.slot(streams_.anchor(id)), 1, nullptr);
  }
}

std::uint64_t Replay::folder_version() const {
  const std::atomic<std::uint64_t>* words = folder_->words();
  std::uint64_t sum = words[ReplayFolder::kUpdates].load(std::memory_order_acquire);
  for (std::uint32_t stream = 0; stream < streams_.count(); ++stream) {
    sum += folder_->top(stream) + folder_->cleared(stream);
  }
  return sum;
}

bool Replay::folder_is_ahead() const {
  if (folder_->is_reader()) return folder_version() != version_seen_;
  return !parted_ && !folder_->is_mine();
}

void Replay::refresh() {
  if (folder_->is_closed()) return;
  if (!folder_->is_reader()) {
    // A fork keeps what it saw last, and draws without moving its parent's generator on.
    if (!folder_->is_mine() && !parted_) {
      counters_.move_home();
      if (priorities_) priorities_->mirror_to(nullptr);
      parted_ = true;
    }
    return;
  }
  take_in();
}

void Replay::take_in() {
  const std::uint64_t version = folder_version();
  const std::uint64_t updates = folder_->words()[ReplayFolder::kUpdates].load();
  for (std::uint32_t stream = 0; stream < streams_.count(); ++stream) {
    while (!follow(stream, updates != updates_seen_)) {
    }
  }
  updates_seen_ = updates;
  version_seen_ = version;
}

bool Replay::follow(std::uint32_t stream, bool new_priorities) {
  Streams::Head& head = streams_.head(stream);
  const std::uint64_t top = folder_->top(stream);
  const std::uint64_t cleared = folder_->cleared(stream);
  const std::uint64_t kept = streams_.kept();
  const std::uint64_t lead = streams_.lead();
  const std::uint64_t begin = std::max({cleared, left_out_[stream], top > kept ? top - kept : 0});
  std::uint64_t floor = std::max(cleared, top + lead > kept ? top + lead - kept : 0);
  if (left_out_[stream] > 0) floor = std::max(floor, std::min(left_out_[stream] + lead, top));
  const auto evict = [&](std::size_t slot) {
    if (priorities_) priorities_->remove(slot);
  };
  const auto drop_before = [&](std::uint64_t row) {
    row = std::min(row, head.top);
    if (priorities_ && !streams_.tracked()) remove_priorities(head.floor, row);
    streams_.drop_before(stream, row, evict);
  };
  // Rows that lose their mapping are not to be drawn any more, whatever happens next.
  drop_before(floor);
  const std::vector<ChunkCheck> damage =
      folder_->map_rows(stream, begin, top, options_.folder->verify && head.top == 0);
  if (!damage.empty()) {
    // A writer beside us may have removed chunks since we looked.
    const std::uint64_t now = folder_->top(stream);
    std::uint64_t gone = 0;
    for (const ChunkCheck& check : damage) {
      gone = std::max(gone, (check.chunk + 1) * options_.folder->chunk_rows);
    }
    if (folder_->is_reader() && now > kept && gone <= now - kept) return false;
    floor = leave_out(stream, damage, floor);
    if (!folder_->is_reader()) return false;  // once more, without the files that are not there
    drop_before(floor);
  }
  if (head.top < floor) streams_.jump_to(stream, floor, evict);
  const std::uint64_t old_top = head.top;
  if (!streams_.tracked()) streams_.add_untracked(top - old_top);
  streams_.advance(stream, top - old_top, evict);
  // The observation that was pending may be a step now, and have ended the episode before it.
  const std::uint64_t changed = old_top > 2 ? old_top - 2 : 0;
  if (streams_.tracked()) read_marks(stream, changed);
  if (priorities_) read_priorities(stream, new_priorities ? head.floor : changed);
  // Marks and priorities that a writer wrote over while we read them are of rows that are gone.
  return !folder_->is_reader() ||
         folder_->top(stream) + options_.folder->chunk_rows < begin + streams_.slots_per_stream();
}

std::uint64_t Replay::leave_out(std::uint32_t stream, const std::vector<ChunkCheck>& damage,
                                std::uint64_t floor) {
  for (const ChunkCheck& check : damage) {
    const bool missing = check.verdict == ChunkCheck::Verdict::missing;
    if (!options_.folder->repair && !(missing && folder_->rolled_back())) {
      throw IoError("cannot be used, " + folder_->describe(stream, check) +
                        "; repair=True leaves its steps and older ones out",
                    options_.folder->path);
    }
    damage_.push_back(folder_->describe(stream, check));
    left_out_[stream] =
        std::max(left_out_[stream], (check.chunk + 1) * options_.folder->chunk_rows);
  }
  const std::uint64_t top = folder_->top(stream);
  const std::uint64_t rest = std::max(floor, std::min(left_out_[stream] + streams_.lead(), top));
  lost_steps_ += rest - floor;
  if (!folder_->is_reader()) {
    // Rows to come go to a chunk of their own if the newest one is damaged.
    if (left_out_[stream] > top) folder_->commit(stream, left_out_[stream]);
    folder_->set_cleared(stream, std::max(rest, left_out_[stream]));
  }
  return rest;
}

void Replay::read_marks(std::uint32_t stream, std::uint64_t begin) {
  Streams::Head& head = streams_.head(stream);
  const bool stream_rows = options_.layout == Layout::stream;
  const std::uint8_t* marks = folder_->marks();
  // The newest slot of stream rows is an observation whose step has not come: a push that was cut
  // short may have marked it.
  const std::uint64_t end = head.top - (stream_rows && head.top > 0 ? 1 : 0);
  for (std::uint64_t seq = std::max(begin, head.floor); seq < end; ++seq) {
    const std::uint8_t byte = marks[streams_.slot({seq, stream})];
    if (is_encoded(byte)) {
      streams_.set_marks({seq, stream}, byte & 0xf);
    } else {
      mend_marks({seq, stream});
    }
  }
  head.pending = stream_rows && head.top > folder_->cleared(stream);
  const std::uint64_t back = stream_rows ? 2 : 1;
  const Anchor newest{head.top - back, stream};
  head.open =
      head.top >= head.floor + back && streams_.is_live(newest) && !streams_.is_last(newest);
}

// Goes on without a step: the episode ends before it, and what follows is another.
void Replay::mend_marks(Anchor anchor) {
  const std::string path = folder_->path_of("marks");
  if (!options_.folder->repair) {
    throw IoError("a mark is corrupt; repair=True leaves its step out", path);
  }
  if (lost_marks_++ == 0) damage_.push_back(path + " is corrupt");
  ++lost_steps_;
  const Anchor before{anchor.seq - 1, anchor.stream};
  if (streams_.is_live(before)) streams_.set_last(before);
  if (folder_->is_reader()) return;
  std::uint8_t* marks = folder_->marks();
  marks[streams_.slot(anchor)] = encode_marks(0);
  if (streams_.is_live(before)) {
    marks[streams_.slot(before)] = encode_marks(streams_.marks(streams_.slot(before)));
  }
  const Anchor after{anchor.seq + 1, anchor.stream};
  if (after.seq < streams_.head(anchor.stream).top) {
    std::uint8_t& byte = marks[streams_.slot(after)];
    if (is_encoded(byte) && (byte & Streams::kLive) != 0) {
      byte = encode_marks((byte & 0xf) | Streams::kFirst);
    }
  }
}

void Replay::read_priorities(std::uint32_t stream, std::uint64_t begin) {
  const Streams::Head& head = streams_.head(stream);
  const double limit = priorities_->kind() == PriorityKind::rank
                           ? static_cast<double>(std::numeric_limits<float>::max())
                           : static_cast<double>(Priorities::kMaxLeaf);
  std::vector<float> values;
  for (std::uint64_t seq = std::max(begin, head.floor); seq < head.top;) {
    const std::size_t first = streams_.slot({seq, stream});
    const std::size_t ring_end = (stream + std::size_t{1}) * streams_.slots_per_stream();
    const std::uint64_t count = std::min<std::uint64_t>(head.top - seq, ring_end - first);
    values.assign(static_cast<std::size_t>(count), 0.0F);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!streams_.is_live({seq + i, stream})) continue;
      values[i] = folder_->priorities()[first + i];
      if (!(values[i] >= 0.0F && values[i] <= limit)) {
        throw IoError("a priority is damaged", options_.folder->path + "/priorities");
      }
    }
    if (priorities_->kind() == PriorityKind::rank) {
      priorities_->push(first, values.size(), values.data());
    } else {
      priorities_->set_leaves(first, values.size(), values.data());
    }
    seq += count;
  }
  priorities_->set_max_priority(folder_->number(ReplayFolder::kMaxPriority));
}

void Replay::cut_episode(std::uint32_t stream) {
  Streams::Head& head = streams_.head(stream);
  if (!head.open) return;
  const Anchor newest{head.top - (options_.layout == Layout::stream ? 2 : 1), stream};
  streams_.set_last(newest);
  folder_->marks()[streams_.slot(newest)] = encode_marks(streams_.marks(streams_.slot(newest)));
  head.open = false;
}

void Replay::push_durably(std::size_t n, const Source* sources, const std::uint32_t* streams,
                          const float* priorities) {
  folder_->require_writer();
  const std::size_t per_step = slots_of_step(options_);
  const std::size_t most = options_.folder->chunk_rows / per_step;  // steps of a stream at once
  const auto reserve = [&](std::uint32_t stream, std::uint64_t steps) {
    const Streams::Head& head = streams_.head(stream);
    const std::uint64_t oldest = head.floor > streams_.lead() ? head.floor - streams_.lead() : 0;
    folder_->reserve(stream, head.top + steps * per_step, oldest);
  };
  const std::size_t n_streams = streams_.count();
  steps_.resize(n_streams);
  std::vector<Source> rest;
  for (std::size_t begin = 0; begin < n;) {
    // As many rows as all streams have room for, before any is written.
    std::size_t count = std::min(most * n_streams, n - begin);
    for (const std::uint32_t stream : touched_) steps_[stream] = 0;
    touched_.clear();
    if (streams == nullptr) {
      for (std::uint32_t stream = 0; stream < std::min(count, n_streams); ++stream) {
        touched_.push_back(stream);
        reserve(stream, (count - stream + n_streams - 1) / n_streams);
      }
    } else {
      std::size_t row = 0;
      for (; row < count && steps_[streams[begin + row]] < most; ++row) {
        if (steps_[streams[begin + row]]++ == 0) touched_.push_back(streams[begin + row]);
      }
      count = row;
      for (const std::uint32_t stream : touched_) reserve(stream, steps_[stream]);
    }
    if (streams_.tracked()) {
      push_rows(begin, begin + count, sources, streams, priorities);
    } else {
      if (begin > 0) {
        rest.assign(sources, sources + options_.schema.fields.size());
        for (Source& source : rest) source.data += begin * source.stride;
      }
      push_unordered(count, begin > 0 ? rest.data() : sources,
                     priorities == nullptr ? nullptr : priorities + begin);
    }
    commit_push(count);
    begin += count;
  }
  if (options_.folder->power) folder_->flush();
}

void Replay::commit_push(std::size_t n) {
  changes_.clear();
  changes_.push_back({ReplayFolder::kPushed, counters_.pushed().load() + n});
  if (priorities_) {
    changes_.push_back(
        {ReplayFolder::kMaxPriority, std::bit_cast<std::uint64_t>(priorities_->max_priority())});
  }
  for (const std::uint32_t stream : touched_) {
    changes_.push_back({ReplayFolder::kTops + stream, streams_.head(stream).top});
  }
  folder_->commit(changes_);
}

bool Replay::may_be_rewritten() const {
  const std::vector<Field>& fields = options_.schema.fields;
  return folder_->is_reader() && std::any_of(fields.begin(), fields.end(), [](const Field& field) {
           return field.role == Role::extra;
         });
}

void Replay::rewrite_durably(const std::vector<Anchor>& anchors,
                             const std::vector<std::size_t>& rows,
                             const std::vector<std::size_t>& fields, const Source* sources) {
  Residency& residency = folder_->residency();
  const std::size_t stride = store_.stride();
  std::size_t missing = 0;
  for (const Anchor& anchor : anchors) {
    missing += residency.missing(store_.record(streams_.slot(anchor)), stride);
  }
  if (missing > 0) {
    folder_->make_room(missing);
    for (const Anchor& anchor : anchors) {
      residency.announce(store_.record(streams_.slot(anchor)), stride);
    }
  }
  std::vector<RowPatch> patches;
  patches.reserve(anchors.size() * fields.size());
  for (std::size_t i = 0; i < anchors.size(); ++i) {
    for (const std::size_t field : fields) {
      const Column& column = store_.column(field);
      patches.push_back({anchors[i].stream, static_cast<std::uint32_t>(column.bytes),
                         anchors[i].seq, column.offset,
                         sources[field].data + rows[i] * sources[field].stride});
    }
  }
  folder_->rewrite(patches);
  if (options_.folder->power) folder_->flush();
}

bool Replay::folder_has_room(std::size_t rows, const std::uint32_t* streams) const {
  if (options_.folder->power || folder_->is_closed()) return false;
  const std::size_t slots = rows * slots_of_step(options_);
  const std::size_t n = streams != nullptr ? rows : std::min(rows, streams_.count());
  for (std::size_t i = 0; i < n; ++i) {
    const auto stream = streams != nullptr ? streams[i] : static_cast<std::uint32_t>(i);
    if (!folder_->has_room(stream, streams_.head(stream).top + slots)) return false;
  }
  return true;
}

void Replay::mirror_marks(std::uint32_t stream, std::uint64_t old_top) {
  const Streams::Head& head = streams_.head(stream);
  std::uint64_t seq = old_top;
  if (options_.layout == Layout::stream) {
    // The step may have taken the observation that was pending, or ended the episode before it.
    seq = std::max(old_top > 2 ? old_top - 2 : 0, head.floor);
  }
  std::uint8_t* marks = folder_->marks();
  for (; seq < head.top; ++seq) {
    const std::size_t slot = streams_.slot(stream, seq);
    marks[slot] = encode_marks(streams_.marks(slot));
  }
}

void Replay::commit_clear() {
  changes_.clear();
  if (priorities_) {
    changes_.push_back(
        {ReplayFolder::kMaxPriority, std::bit_cast<std::uint64_t>(priorities_->max_priority())});
  }
  for (std::uint32_t stream = 0; stream < streams_.count(); ++stream) {
    changes_.push_back({folder_->cleared_word(stream), streams_.head(stream).top});
  }
  folder_->commit(changes_);
  if (priorities_) commit_priorities();
  if (options_.folder->power) folder_->flush();
}

void Replay::commit_priorities() {
  folder_->set_number(ReplayFolder::kMaxPriority, priorities_->max_priority());
  folder_->words()[ReplayFolder::kUpdates].fetch_add(1);
}

void Replay::set_beta(double beta) {
  beta_.store(beta, std::memory_order_relaxed);
  if (folder_ && !folder_->is_reader() && folder_->is_mine() && !folder_->is_closed()) {
    folder_->set_number(ReplayFolder::kBeta, beta);
  }
}

template <typename Visit>
void Replay::visit_records(const View& view, const Slots& slots, Visit&& visit) {
  const std::size_t stride = store_.stride();
  const std::uint64_t ring = streams_.slots_per_stream();
  const auto lead = static_cast<std::uint64_t>(streams_.lead());
  const bool n_step = view.kind == View::Kind::n_step;
  for (const auto* list : {&slots.current, &slots.next, &slots.last}) {
    if (list == &slots.last && !n_step && !view.arrivals) continue;
    for (const std::uint64_t slot : *list) {
      if (slot == kNoSlot) continue;
      // The older frames of a stack may be at the other end of the ring.
      const std::uint64_t back = lead == 0 ? 0 : std::min(lead, slot % ring);
      visit(store_.record(slot - back), (back + 1) * stride);
      if (back == lead) continue;
      const std::uint64_t end = slot - slot % ring + ring;
      visit(store_.record(end - (lead - back)), (lead - back) * stride);
    }
  }
  const int reward = options_.schema.find(Role::reward);
  for (std::size_t i = 0; n_step && reward >= 0 && i < slots.current.size(); ++i) {
    const Column& column = store_.column(static_cast<std::size_t>(reward));
    const std::uint64_t base = slots.current[i] / ring * ring;
    for (std::uint32_t step = 1; step + 1 < slots.taken[i]; ++step) {
      const std::uint64_t slot = base + (slots.current[i] - base + step) % ring;
      visit(store_.record(slot) + column.offset, column.bytes);
    }
  }
}

void Replay::announce(const View& view, const Slots& slots) {
  Residency& residency = folder_->residency();
  std::size_t missing = 0;
  visit_records(view, slots, [&](const std::byte* data, std::size_t bytes) {
    missing += residency.missing(data, bytes);
  });
  pages_missed_.store(missing > 0, std::memory_order_relaxed);
  if (missing == 0) return;
  folder_->make_room(missing);
  visit_records(view, slots,
                [&](const std::byte* data, std::size_t bytes) { residency.announce(data, bytes); });
}

void Replay::close(bool keep, const std::string& reason) {
  if (is_closed()) return;
  if (priorities_) {
    priorities_->mirror_to(nullptr);
    priorities_->clear();
  }
  counters_.move_home();
  // The steps go last: whoever looks meanwhile shall wait and be told that it is closed, not empty.
  try {
    folder_->close(keep, reason);
  } catch (const std::exception&) {
    streams_.clear();
    throw;
  }
  streams_.clear();
}

}  // namespace sharpwave
