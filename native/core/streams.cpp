#include "core/streams.hpp"

#include <algorithm>

namespace sharpwave {

Streams::Streams(std::size_t n_streams, std::size_t slots_per_stream, std::size_t lead,
                 bool tracked, std::size_t kept)
    : heads_(n_streams),
      slots_(slots_per_stream),
      kept_(kept),
      lead_(lead),
      tracked_(tracked),
      live_bits_(tracked ? n_streams * slots_per_stream : 0),
      first_bits_(tracked ? n_streams * slots_per_stream : 0),
      last_bits_(tracked ? n_streams * slots_per_stream : 0),
      jump_bits_(lead > 0 ? n_streams * slots_per_stream : 0) {}

std::size_t Streams::bytes() const {
  const std::size_t words = live_bits_.words().size() + first_bits_.words().size() +
                            last_bits_.words().size() + jump_bits_.words().size();
  return words * sizeof(std::uint64_t) + heads_.size() * sizeof(Head);
}

std::uint64_t Streams::last_of(Anchor anchor, std::uint64_t limit) const {
  const Head& head = heads_[anchor.stream];
  // A pending observation is not a step; the newest step ends what is there of its episode.
  const std::uint64_t steps_end = head.top - (head.pending ? 1 : 0);
  const std::uint64_t end = std::min(steps_end, anchor.seq + limit);
  const auto& words = last_bits_.words();
  const std::size_t base = anchor.stream * slots_;
  std::uint64_t seq = anchor.seq;
  while (seq < end) {
    const std::size_t position = static_cast<std::size_t>(seq % slots_);
    const std::size_t bit = base + position;
    const std::uint64_t run =
        std::min({end - seq, std::uint64_t{slots_ - position}, std::uint64_t{64 - (bit & 63)}});
    std::uint64_t word = words[bit >> 6] >> (bit & 63);
    if (run < 64) word &= (std::uint64_t{1} << run) - 1;
    if (word != 0) return seq + static_cast<std::uint64_t>(std::countr_zero(word));
    seq += run;
  }
  return end - 1;
}

std::uint64_t Streams::first_of(Anchor anchor) const {
  const std::uint64_t floor = heads_[anchor.stream].floor;
  const auto& words = first_bits_.words();
  const std::size_t base = anchor.stream * slots_;
  std::uint64_t seq = anchor.seq;
  while (true) {
    const std::size_t position = static_cast<std::size_t>(seq % slots_);
    const std::size_t bit = base + position;
    // Bits (bit - run, bit] of one word, none below the ring's start or the stream's floor.
    const std::uint64_t run =
        std::min({seq - floor + 1, std::uint64_t{position + 1}, std::uint64_t{(bit & 63) + 1}});
    std::uint64_t word = words[bit >> 6] << (63 - (bit & 63));
    if (run < 64) word &= ~std::uint64_t{0} << (64 - run);
    if (word != 0) return seq - static_cast<std::uint64_t>(std::countl_zero(word));
    if (seq - floor + 1 == run) return floor;
    seq -= run;
  }
}

std::uint64_t Streams::next_step(Anchor anchor) const {
  const std::uint64_t top = heads_[anchor.stream].top;
  for (; anchor.seq < top; ++anchor.seq) {
    if (is_live(anchor)) return anchor.seq;
  }
  return ~std::uint64_t{0};
}

void Streams::add_step(Anchor anchor, bool first, bool last, bool jump) {
  const std::size_t at = slot(anchor);
  live_bits_.set(at);
  first_bits_.assign(at, first);
  last_bits_.assign(at, last);
  if (lead_ > 0) jump_bits_.assign(at, jump);
  ++heads_[anchor.stream].live;
  add_live(1);
}

std::uint8_t Streams::marks(std::size_t slot) const {
  if (!live_bits_.get(slot)) return 0;
  unsigned marks = kLive;
  if (first_bits_.get(slot)) marks |= kFirst;
  if (last_bits_.get(slot)) marks |= kLast;
  if (lead_ > 0 && jump_bits_.get(slot)) marks |= kJump;
  return static_cast<std::uint8_t>(marks);
}

void Streams::set_marks(Anchor anchor, std::uint8_t marks) {
  if ((marks & kLive) == 0) return;
  const bool last = (marks & kLast) != 0;
  if (!live_bits_.get(slot(anchor))) {
    add_step(anchor, (marks & kFirst) != 0, last, (marks & kJump) != 0);
  } else if (last) {
    set_last(anchor);
  }
}

void Streams::clear() {
  for (Head& head : heads_) {
    // Ids never repeat: the counters go on where they were.
    move_floor(head, head.top - head.floor);
    head.live = 0;
    head.pending = head.open = false;
  }
  live_.store(0, std::memory_order_relaxed);
  for (Bits* bits : bitmaps()) bits->clear();
}

std::vector<Bits*> Streams::bitmaps() {
  std::vector<Bits*> all;
  if (tracked_) all = {&live_bits_, &first_bits_, &last_bits_};
  if (lead_ > 0) all.push_back(&jump_bits_);
  return all;
}

void Streams::recount() {
  std::uint64_t total = 0;
  for (std::uint32_t stream = 0; stream < heads_.size(); ++stream) {
    Head& head = heads_[stream];
    head.top_position = static_cast<std::size_t>(head.top % slots_);
    head.floor_position = static_cast<std::size_t>(head.floor % slots_);
    head.live = head.top - head.floor;
    if (tracked_) {
      head.live = 0;
      for (std::uint64_t seq = head.floor; seq < head.top; ++seq) {
        head.live += live_bits_.get(slot(stream, seq)) ? 1 : 0;
      }
      for (std::uint64_t seq = head.top; seq < head.floor + slots_; ++seq) {
        live_bits_.reset(slot(stream, seq));
      }
    }
    total += head.live;
  }
  live_.store(total, std::memory_order_relaxed);
}

}  // namespace sharpwave
