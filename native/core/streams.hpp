// Which slots hold steps, and where episodes begin and end: one ring of slots per stream (one
// stream per environment), with one bit per slot for each fact, so that "where does this episode
// end" is a word scan.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace sharpwave {

// A step of one stream. `seq` counts the slots ever used by the stream and never repeats.
struct Anchor {
  std::uint64_t seq;
  std::uint32_t stream;
};

// One bit per slot.
class Bits {
 public:
  explicit Bits(std::size_t count) : words_((count + 63) / 64) {}

  bool get(std::size_t i) const { return (words_[i >> 6] >> (i & 63)) & 1; }
  void set(std::size_t i) { words_[i >> 6] |= std::uint64_t{1} << (i & 63); }
  void reset(std::size_t i) { words_[i >> 6] &= ~(std::uint64_t{1} << (i & 63)); }
  void assign(std::size_t i, bool value) { value ? set(i) : reset(i); }
  void clear() { words_.assign(words_.size(), 0); }

  std::vector<std::uint64_t>& words() { return words_; }
  const std::vector<std::uint64_t>& words() const { return words_; }

 private:
  std::vector<std::uint64_t> words_;
};

class Streams {
 public:
  // The state of one stream's ring. Slots [floor, top) hold data; steps live in it are marked in
  // `live`.
  struct Head {
    std::uint64_t floor = 0;         // the oldest step that may still be drawn
    std::uint64_t top = 0;           // one past the newest slot in use
    std::uint64_t live = 0;          // steps in [floor, top)
    std::size_t top_position = 0;    // top's place in the ring
    std::size_t floor_position = 0;  // floor's place in the ring: spares a division per row
    bool pending = false;  // slot top - 1 holds an observation whose step has not come yet
    bool open = false;     // the newest step did not end its episode
  };

  // `lead` slots before a step belong to it (the older frames of a stack) and must outlive it.
  // Without tracking there is one stream whose slots are all steps in no particular order. A ring
  // may have more slots than the `kept` ones that hold data at any time.
  Streams(std::size_t n_streams, std::size_t slots_per_stream, std::size_t lead, bool tracked,
          std::size_t kept);
  Streams(std::size_t n_streams, std::size_t slots_per_stream, std::size_t lead, bool tracked)
      : Streams(n_streams, slots_per_stream, lead, tracked, slots_per_stream) {}

  std::size_t count() const { return heads_.size(); }
  std::size_t slots_per_stream() const { return slots_; }
  std::size_t kept() const { return kept_; }
  std::size_t lead() const { return lead_; }
  bool tracked() const { return tracked_; }
  Head& head(std::size_t stream) { return heads_[stream]; }
  const Head& head(std::size_t stream) const { return heads_[stream]; }
  // Steps in all streams; may be asked without a lock.
  std::uint64_t live() const { return live_.load(std::memory_order_relaxed); }
  std::size_t bytes() const;

  std::size_t slot(std::uint32_t stream, std::uint64_t seq) const {
    return stream * slots_ + static_cast<std::size_t>(seq % slots_);
  }
  // The same for a seq in [floor, top).
  std::size_t slot(Anchor anchor) const {
    const Head& head = heads_[anchor.stream];
    std::size_t position = head.floor_position + static_cast<std::size_t>(anchor.seq - head.floor);
    if (position >= slots_) position -= slots_;
    return anchor.stream * slots_ + position;
  }
  Anchor anchor_of_slot(std::size_t slot) const {
    const std::size_t stream = heads_.size() == 1 ? 0 : slot / slots_;
    const Head& head = heads_[stream];
    const std::size_t position = slot - stream * slots_;
    const std::size_t ahead = position >= head.floor_position
                                  ? position - head.floor_position
                                  : position + slots_ - head.floor_position;
    return {head.floor + ahead, static_cast<std::uint32_t>(stream)};
  }

  // Step ids: unique for ever, (seq, stream) packed.
  std::uint64_t id(Anchor anchor) const { return anchor.seq * heads_.size() + anchor.stream; }
  Anchor anchor(std::uint64_t id) const {
    if (heads_.size() == 1) return {id, 0};
    return {id / heads_.size(), static_cast<std::uint32_t>(id % heads_.size())};
  }

  bool is_live(Anchor anchor) const {
    const Head& head = heads_[anchor.stream];
    return anchor.seq >= head.floor && anchor.seq < head.top &&
           (!tracked_ || live_bits_.get(slot(anchor)));
  }
  bool is_first(Anchor anchor) const { return first_bits_.get(slot(anchor)); }
  bool is_last(Anchor anchor) const { return last_bits_.get(slot(anchor)); }
  // The step's next observation is stored apart, as a stack of its own.
  bool jumps(Anchor anchor) const { return lead_ > 0 && jump_bits_.get(slot(anchor)); }

  // Must be inlined: GCC drops calls of functions that only prefetch.
  [[gnu::always_inline]] void prefetch_marks(Anchor anchor) const {
    const std::size_t word = slot(anchor) >> 6;
    __builtin_prefetch(live_bits_.words().data() + word);
    __builtin_prefetch(last_bits_.words().data() + word);
  }

  // The last step of the episode (or of what is there of it), not before `anchor` and not past
  // `limit` steps on.
  std::uint64_t last_of(Anchor anchor, std::uint64_t limit) const;
  // The first step of the episode that is still there.
  std::uint64_t first_of(Anchor anchor) const;

  // The first step at or after `anchor` in its stream, passing bare observations; ~0 where
  // there is none.
  std::uint64_t next_step(Anchor anchor) const;

  // Makes room for `count` slots at the top of the stream; calls `evict(slot)` for each step that
  // leaves.
  template <typename Evict>
  void advance(std::uint32_t stream, std::uint64_t count, Evict&& evict) {
    Head& head = heads_[stream];
    head.top += count;
    head.top_position = wrapped(head.top_position + static_cast<std::size_t>(count));
    if (head.top + lead_ <= kept_) return;
    drop_before(stream, head.top + lead_ - kept_, evict);
  }
  // Lets the steps before `floor` go; calls `evict(slot)` for each.
  template <typename Evict>
  void drop_before(std::uint32_t stream, std::uint64_t floor, Evict&& evict) {
    Head& head = heads_[stream];
    if (!tracked_) {
      const std::uint64_t gone = floor > head.floor ? floor - head.floor : 0;
      move_floor(head, gone);
      head.live -= gone;
      add_live(-gone);
      return;
    }
    while (head.floor < floor) {
      const std::size_t leaving = slot({head.floor, stream});
      move_floor(head, 1);
      if (!live_bits_.get(leaving)) continue;
      live_bits_.reset(leaving);
      --head.live;
      add_live(~std::uint64_t{0});
      evict(leaving);
    }
  }

  // Lets all steps go and goes on at `seq`.
  template <typename Evict>
  void jump_to(std::uint32_t stream, std::uint64_t seq, Evict&& evict) {
    Head& head = heads_[stream];
    drop_before(stream, head.top, evict);
    head.floor = head.top = seq;
    head.floor_position = head.top_position = static_cast<std::size_t>(seq % slots_);
  }

  // Marks a step. The slot's marks of an earlier round are replaced.
  void add_step(Anchor anchor, bool first, bool last, bool jump);
  void add_untracked(std::uint64_t count) {
    heads_[0].live += count;
    add_live(count);
  }
  void set_last(Anchor anchor) { last_bits_.set(slot(anchor)); }
  // What is known about a slot, as one byte: kLive and others, 0 when it holds no step.
  enum Mark : std::uint8_t { kLive = 1, kFirst = 2, kLast = 4, kJump = 8 };
  std::uint8_t marks(std::size_t slot) const;
  // Sets the marks of a slot of a stream's data; a step that was not there before is counted.
  void set_marks(Anchor anchor, std::uint8_t marks);
  void clear();

  // For saving and restoring: live, first, last and, where there are stacks, jump.
  std::vector<Bits*> bitmaps();
  // Counts the steps of restored heads and marks; marks outside of [floor, top) are dropped.
  void recount();

 private:
  // Only the writer changes the count, so this need not be one atomic step.
  void add_live(std::uint64_t by) { live_.store(live() + by, std::memory_order_relaxed); }
  std::size_t wrapped(std::size_t position) const {
    return position < slots_       ? position
           : position < 2 * slots_ ? position - slots_
                                   : position % slots_;
  }
  void move_floor(Head& head, std::uint64_t by) {
    head.floor += by;
    head.floor_position = wrapped(head.floor_position + static_cast<std::size_t>(by));
  }

  std::vector<Head> heads_;
  std::size_t slots_;
  std::size_t kept_;
  std::size_t lead_;
  bool tracked_;
  std::atomic<std::uint64_t> live_{0};
  Bits live_bits_;
  Bits first_bits_;
  Bits last_bits_;
  Bits jump_bits_;
};

}  // namespace sharpwave
