#include "worker/collectives/step_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "worker/collectives/sum.h"

namespace tilewright::collectives {
namespace {

std::span<const Range> ranks_of(std::span<const Range> split, Range ranks) {
  return split.subspan(static_cast<std::size_t>(ranks.begin),
                       static_cast<std::size_t>(ranks.size()));
}

iovec bytes_of(std::span<const std::uint64_t> numbers) {
  return net::make_iovec(numbers.data(), numbers.size_bytes());
}

// More than all chunks of a step, and small enough to be added to.
constexpr int kNoWindow = std::numeric_limits<int>::max() / 2;

}  // namespace

StepExchange::StepExchange(Mesh& mesh, int stream, std::span<const Range> split,
                           const ReducerOptions& options)
    : mesh_(mesh.stream(stream)),
      stream_(stream),
      streams_(mesh.streams()),
      options_(options),
      grid_(mesh.world(), options.ranks_per_host),
      host_(grid_.host_of(mesh.rank())),
      place_(grid_.place_of(mesh.rank())),
      rank_layout_(options.mode, ranks_of(split, grid_.ranks_of(host_))),
      host_layout_(options.mode, grid_.split_among_hosts(split)) {
  TW_CHECK(host_layout_.sums == std::vector{0}, "the shards of {} hosts are not a full tree",
           grid_.hosts);
  TW_CHECK(options_.window >= 1 && options_.chunk_elements >= 1, "a window of {}, chunks of {}",
           options_.window, options_.chunk_elements);
  const Range widest_piece = slice_of({0, options_.chunk_elements}, 0, grid_.ranks_per_host);
  const auto add_link = [&](int peer, bool same_host, int slots, std::int64_t widest_slice) {
    Link& link = links_.emplace_back();
    link.peer = peer;
    link.same_host = same_host;
    // With several ranks per host, what is sent to other hosts is not always in this rank's memory.
    if (options_.memory != nullptr && (same_host || grid_.ranks_per_host == 1)) {
      link.memory = options_.memory->of(peer);
    }
    link.window = link.memory.empty() ? options_.window : kNoWindow;
    link.slots = slots;
    link.widest_slice = widest_slice;
    link.packs = link.memory.empty() && !mesh_.transport().shares_memory(peer);
    link.iovecs.reserve(static_cast<std::size_t>(rank_layout_.slots()) + 1);
    if (!link.memory.empty()) {
      link.placed.resize(kPlacedSum + 1 + static_cast<std::size_t>(slots));
      link.arriving = link.placed;
      return;
    }
    link.partials = runtime::Buffer<float>(
        static_cast<std::size_t>(std::int64_t{link.window} * slots * widest_slice));
  };
  for (int place = 0; place < grid_.ranks_per_host; ++place) {
    if (place == place_) continue;
    add_link(host_ * grid_.ranks_per_host + place, true, rank_layout_.slots_of(place),
             widest_piece.size());
  }
  for (int host = 0; host < grid_.hosts; ++host) {
    if (host == host_) continue;
    add_link(host * grid_.ranks_per_host + place_, false, host_layout_.slots_of(host),
             slice_of(widest_piece, 0, grid_.hosts).size());
  }
}

void StepExchange::begin(const GradientParts& parts, std::span<const Range> buckets) {
  parts_ = &parts;
  operation_ = mesh_.next_operation();
  chunks_.clear();
  chunks_before_.assign(1, 0);
  buckets_ = static_cast<int>(buckets.size());
  int turn = 0;  // the stream of the next chunk
  for (int bucket = 0; bucket < buckets_; ++bucket) {
    const Range& range = buckets[static_cast<std::size_t>(bucket)];
    const int count = chunks_in(range, options_.chunk_elements);
    for (int i = 0; i < count; ++i, turn = (turn + 1) % streams_) {
      if (turn != stream_) continue;
      const std::int64_t begin = range.begin + i * options_.chunk_elements;
      chunks_.push_back({{begin, std::min(begin + options_.chunk_elements, range.end)},
                         bucket,
                         chunks() == chunks_before_.back(),
                         precision_of(parts, range)});
    }
    chunks_before_.push_back(chunks());
  }
  started_ = started_chunks_ = host_summed_ = summed_ = gathered_ = 0;
  buckets_sent_ = buckets_done_ = 0;
  find_places();
  for (Link& link : links_) {
    if (parts.bf16_count > 0 && link.packs && link.packed_in.size() == 0) {
      link.packed_in = runtime::Buffer<runtime::bf16>(most_elements(link));
      link.packed_out = runtime::Buffer<runtime::bf16>(most_elements(link));
    }
    link.partials_sent = link.sums_sent = link.partials_received = link.sums_received = 0;
    link.in_payload = false;
    link.in_iovec = net::make_iovec(&link.in, sizeof link.in);
  }
}

void StepExchange::find_places() {
  places_.clear();
  if (options_.memory == nullptr) return;
  const std::span<float> own = options_.memory->own();
  const auto add = [&](const float* data) {
    TW_CHECK(own.data() <= data && data + parts_->count <= own.data() + own.size(),
             "{} elements of a gradient are not in the shared memory", parts_->count);
    places_.push_back(static_cast<std::uint64_t>(data - own.data()));
  };
  add(parts_->sum);
  for (const GradientPart& part : parts_->parts) add(part.data);
}

void StepExchange::start(int count) {
  for (; started_ < count; ++started_) options_.faults.hit("reduce_scatter.before_send");
  started_chunks_ = chunks_before_[static_cast<std::size_t>(started_)];
}

bool StepExchange::advance() {
  bool moved = false;
  for (Link& link : links_) {
    moved |= send(link);
    moved |= receive(link);
  }
  moved |= sum();
  update_buckets_sent();
  update_buckets_done();
  return moved;
}

bool StepExchange::unsent() const {
  return std::ranges::any_of(links_, [this](const Link& link) {
    return !link.left.empty() || link.partials_sent < partials_ready(link) ||
           link.sums_sent < sums_ready(link);
  });
}

bool StepExchange::complete() const { return buckets_done_ == buckets_ && !unsent(); }

bool StepExchange::send(Link& link) {
  bool moved = false;
  while (!link.left.empty() || load_next_frame(link)) {
    const auto sent = mesh_.transport().try_write(link.peer, link.left);
    if (!sent.ok()) throw mesh_.lost(link.peer, "is lost: " + sent.error().message);
    if (*sent == 0) break;
    moved = true;
    link.left = net::advance(link.left, *sent);
    if (!link.left.empty()) continue;
    ++(link.out.kind == FrameKind::kSums ? link.sums_sent : link.partials_sent);
  }
  return moved;
}

// Sums have priority: other ranks wait for them and can always receive them. Partial sums are sent
// only while the peer has buffers: once its sums of chunk c have arrived, its buffer of c is free.
bool StepExchange::load_next_frame(Link& link) {
  const bool sums = link.sums_sent < sums_ready(link);
  const bool partials = link.partials_sent < partials_ready(link) &&
                        link.partials_sent < link.sums_received + link.window;
  if (!sums && !partials) return false;
  const int index = sums ? link.sums_sent : link.partials_sent;
  const Range slice = slice_of_rank(link, index, sums ? mesh_.rank() : link.peer);
  link.iovecs.assign(1, net::make_iovec(&link.out, sizeof link.out));
  if (link.memory.empty()) {
    payload_.clear();
    if (sums) {
      payload_.push_back(parts_->sum + slice.begin);
    } else if (link.same_host) {
      for (const GradientPart& part : parts_->parts) payload_.push_back(part.data + slice.begin);
    } else {
      append_host_sums(index, slice, payload_);
    }
    append_payload(link, payload_, slice.size(), is_packed(link, index));
  } else if (sums) {
    // Those over the hosts are there already.
    if (link.same_host) {
      std::memcpy(sum_of_peer(link, slice), parts_->sum + slice.begin,
                  static_cast<std::size_t>(slice.size()) * sizeof(float));
    }
  } else {
    link.own_placed = {static_cast<std::uint64_t>(slice.begin),
                       static_cast<std::uint64_t>(slice.size())};
    link.own_placed.insert(link.own_placed.end(), places_.begin(), places_.end());
    link.iovecs.push_back(bytes_of(link.own_placed));
  }
  link.out.kind = sums ? FrameKind::kSums : FrameKind::kPartials;
  link.out.operation = operation_;
  link.out.chunk = static_cast<std::uint64_t>(index);
  link.left = link.iovecs;
  mesh_.seal(link.peer, link.out, link.left.subspan(1));
  return true;
}

void StepExchange::append_payload(Link& link, std::span<float* const> data, std::int64_t count,
                                  bool packed) {
  if (!packed) {
    for (float* floats : data) {
      link.iovecs.push_back(
          net::make_iovec(floats, static_cast<std::size_t>(count) * sizeof(float)));
    }
    return;
  }
  runtime::bf16* end = link.packed_out.data();
  for (const float* floats : data) {
    pack(end, floats, count);
    end += count;
  }
  link.iovecs.push_back(net::make_iovec(
      link.packed_out.data(),
      static_cast<std::size_t>(end - link.packed_out.data()) * sizeof(runtime::bf16)));
}

std::size_t StepExchange::most_elements(const Link& link) const {
  const std::size_t own = link.same_host ? parts_->parts.size() : rank_layout_.sums.size();
  const std::size_t slots = std::max({std::size_t{1}, own, static_cast<std::size_t>(link.slots)});
  return slots * static_cast<std::size_t>(link.widest_slice);
}

bool StepExchange::receive(Link& link) {
  bool moved = false;
  // Reads only the frames of this step, because the next bytes belong to the next operation.
  while (expects(link)) {
    if (link.in_iovec.iov_len > 0) {
      const auto got = mesh_.transport().try_read(
          link.peer,
          std::span(static_cast<std::byte*>(link.in_iovec.iov_base), link.in_iovec.iov_len));
      if (!got.ok()) throw mesh_.lost(link.peer, "is lost: " + got.error().message);
      if (*got == 0) break;
      moved = true;
      link.in_iovec.iov_base = static_cast<std::byte*>(link.in_iovec.iov_base) + *got;
      link.in_iovec.iov_len -= *got;
    }
    if (link.in_iovec.iov_len > 0) continue;
    if (!link.in_payload) {
      if (awaits_own_send(link)) break;
      open_payload(link);
    } else {
      close_payload(link);
    }
  }
  return moved;
}

// A transport that reports late may deliver partial sums, and the sums that a peer makes of them,
// before this rank knows that its buffers are free.
bool StepExchange::awaits_own_send(const Link& link) const {
  return mesh_.transport().reports_late() && link.in.kind == FrameKind::kSums &&
         !link.left.empty() && link.out.kind == FrameKind::kPartials &&
         link.sums_received == link.partials_sent;
}

float* StepExchange::partials_at(const Link& link, int chunk) const {
  return link.partials.data() + chunk % link.window * link.slots * link.widest_slice;
}

Range StepExchange::piece(int index, int place) const {
  return slice_of(chunk(index).elements, place, grid_.ranks_per_host);
}

Range StepExchange::slice_of_rank(const Link& link, int index, int rank) const {
  return link.same_host ? piece(index, grid_.place_of(rank)) : slice_of_host(index, rank);
}

Range StepExchange::slice_of_host(int index, int rank) const {
  return slice_of(piece(index, grid_.place_of(rank)), grid_.host_of(rank), grid_.hosts);
}

void StepExchange::open_payload(Link& link) {
  mesh_.check(link.peer, link.in, operation_);
  const bool sums = link.in.kind == FrameKind::kSums;
  if (!sums && link.in.kind != FrameKind::kPartials) {
    throw mesh_.lost(link.peer,
                     fmt::format("sent a {} frame during a step", name_of(link.in.kind)));
  }
  const int expected = sums ? link.sums_received : link.partials_received;
  // Sums are valid only after this rank's partial sums of the chunk are sent, because both use the
  // same memory. Partial sums are valid within the window.
  const int bound =
      sums ? link.partials_sent : std::min(partials_used(link) + link.window, chunks());
  if (link.in.chunk != static_cast<std::uint64_t>(expected) || expected >= bound) {
    throw mesh_.lost(link.peer, fmt::format("sent {} of chunk {}, expected chunk {} below {}",
                                            name_of(link.in.kind), link.in.chunk, expected, bound));
  }
  const Range slice = slice_of_rank(link, expected, sums ? link.peer : mesh_.rank());
  const bool packed = is_packed(link, expected);
  std::size_t bytes = 0;
  void* into = nullptr;
  link.unpacked = nullptr;
  if (link.memory.empty()) {
    float* const floats = sums ? parts_->sum + slice.begin : partials_at(link, expected);
    const int copies = sums ? 1 : link.slots;
    bytes = static_cast<std::size_t>(slice.size() * copies) *
            (packed ? sizeof(runtime::bf16) : sizeof(float));
    into = packed ? static_cast<void*>(link.packed_in.data()) : floats;
    if (packed) link.unpacked = floats;
  } else if (!sums) {
    bytes = std::span(link.arriving).size_bytes();
    into = link.arriving.data();
  }
  if (link.in.bytes != bytes) {
    throw mesh_.lost(link.peer,
                     fmt::format("sent {} bytes in {} of chunk {}, expected {}: the ranks differ "
                                 "in shards or buckets",
                                 link.in.bytes, name_of(link.in.kind), expected, bytes));
  }
  link.in_payload = true;
  link.in_iovec = net::make_iovec(into, bytes);
  link.payload = {static_cast<const std::byte*>(into), bytes};
}

void StepExchange::close_payload(Link& link) {
  mesh_.check_payload(link.peer, link.in, link.payload);
  if (link.unpacked != nullptr) {
    unpack(link.unpacked, link.packed_in.data(),
           static_cast<std::int64_t>(link.payload.size() / sizeof(runtime::bf16)));
  }
  if (link.in.kind == FrameKind::kPartials && !link.memory.empty()) {
    take_placement(link, slice_of_rank(link, link.partials_received, mesh_.rank()));
  }
  // The next bytes are a header.
  ++(link.in.kind == FrameKind::kSums ? link.sums_received : link.partials_received);
  link.in_payload = false;
  link.in_iovec = net::make_iovec(&link.in, sizeof link.in);
  // Sums while the chunk is still in the cache.
  if (link.in.kind == FrameKind::kPartials && link.memory.empty()) sum();
}

void StepExchange::take_placement(Link& link, Range slice) const {
  const auto [begin, size] = std::pair{link.arriving[0], link.arriving[1]};
  if (begin != static_cast<std::uint64_t>(slice.begin) ||
      size != static_cast<std::uint64_t>(slice.size())) {
    throw mesh_.lost(link.peer, fmt::format("sent {} elements from {}, expected {} from {}: the "
                                            "ranks differ in shards or buckets",
                                            size, begin, slice.size(), slice.begin));
  }
  const auto count = static_cast<std::uint64_t>(parts_->count);
  for (const std::uint64_t place : std::span(link.arriving).subspan(kPlacedSum)) {
    if (place <= link.memory.size() && count <= link.memory.size() - place) continue;
    throw mesh_.lost(link.peer,
                     fmt::format("sent a gradient of {} elements at {} in a memory of {}", count,
                                 place, link.memory.size()));
  }
  link.placed = link.arriving;
}

bool StepExchange::sum() {
  const auto all_of = [this](bool same_host, int Link::*received, int chunk) {
    return std::ranges::all_of(links_, [=](const Link& link) {
      return link.same_host != same_host || link.*received > chunk;
    });
  };
  bool moved = false;
  if (host_summed_ < started_chunks_ && all_of(true, &Link::partials_received, host_summed_)) {
    sum_over_host(host_summed_++);
    moved = true;
  }
  if (summed_ < host_summed_ && all_of(false, &Link::partials_received, summed_)) {
    sum_over_hosts(summed_);
    if (chunk(summed_).first) options_.faults.hit("all_gather.before_send");
    ++summed_;
    moved = true;
  }
  if (gathered_ < summed_ && all_of(false, &Link::sums_received, gathered_)) {
    ++gathered_;
    moved = true;
  }
  return moved;
}

void StepExchange::append_partials(const Link& link, int index, Range elements,
                                   std::vector<float*>& data) const {
  if (link.memory.empty()) {
    float* const first = partials_at(link, index);
    for (int i = 0; i < link.slots; ++i) data.push_back(first + i * elements.size());
  } else {
    for (const std::uint64_t place : std::span(link.placed).subspan(kPlacedSum + 1)) {
      data.push_back(link.memory.data() + place + elements.begin);
    }
  }
}

void StepExchange::append_host_sums(int index, Range slice, std::vector<float*>& data) {
  find_host_slots(index);
  const std::int64_t offset = slice.begin - piece(index, place_).begin;
  for (const int slot : rank_layout_.sums) {
    data.push_back(slots_[static_cast<std::size_t>(slot)] + offset);
  }
}

void StepExchange::find_host_slots(int index) {
  slots_.clear();
  const Range elements = piece(index, place_);
  auto link = links_.begin();
  for (int place = 0; place < grid_.ranks_per_host; ++place) {
    if (place == place_) {
      for (const GradientPart& part : parts_->parts) slots_.push_back(part.data + elements.begin);
      continue;
    }
    append_partials(*link++, index, elements, slots_);
  }
}

void StepExchange::sum_over_host(int index) {
  if (rank_layout_.merges.empty()) return;
  find_host_slots(index);
  run_merges(chunk(index).precision, rank_layout_.merges, slots_, piece(index, place_).size());
}

void StepExchange::sum_over_hosts(int index) {
  const Range elements = slice_of_host(index, mesh_.rank());
  host_slots_.clear();
  auto link = links_.begin() + (grid_.ranks_per_host - 1);
  for (int host = 0; host < grid_.hosts; ++host) {
    if (host == host_) {
      append_host_sums(index, elements, host_slots_);
      continue;
    }
    append_partials(*link++, index, elements, host_slots_);
  }
  sums_.assign(1, parts_->sum + elements.begin);
  for (const Link& other : links_) {
    if (!other.same_host && !other.memory.empty()) {
      sums_.push_back(sum_of_peer(other, elements));
    }
  }
  run_merges(chunk(index).precision, host_layout_.merges, host_slots_, sums_, elements.size());
}

void StepExchange::update_buckets_sent() {
  const auto sent = [this](int chunks_wanted) {
    return std::ranges::all_of(
        links_, [chunks_wanted](const Link& link) { return link.partials_sent >= chunks_wanted; });
  };
  while (buckets_sent_ < started_ &&
         sent(chunks_before_[static_cast<std::size_t>(buckets_sent_) + 1])) {
    ++buckets_sent_;
    options_.faults.hit("reduce_scatter.after_send");
  }
}

void StepExchange::update_buckets_done() {
  while (buckets_done_ < started_) {
    const int wanted = chunks_before_[static_cast<std::size_t>(buckets_done_) + 1];
    const bool gathered = std::ranges::all_of(
        links_, [wanted](const Link& link) { return link.sums_received >= wanted; });
    if (!gathered || summed_ < wanted) return;
    ++buckets_done_;
    options_.faults.hit("bucket.done");
  }
}

void StepExchange::watch(std::vector<pollfd>& fds) const {
  for (const Link& link : links_) {
    const int events = (expects(link) ? POLLIN : 0) | (link.left.empty() ? 0 : POLLOUT);
    if (events == 0) continue;
    mesh_.transport().watch(link.peer, static_cast<short>(events), fds);
  }
}

bool StepExchange::uses_sockets() const {
  return std::ranges::any_of(
      links_, [this](const Link& link) { return !mesh_.transport().shares_memory(link.peer); });
}

void StepExchange::watch_idle(std::vector<pollfd>& fds) const {
  for (const Link& link : links_) {
    if (expects(link)) mesh_.transport().watch_idle(link.peer, fds);
  }
}

void StepExchange::send_abort(std::string_view reason) {
  for (const Link& link : links_) mesh_.send_abort(link.peer, !link.left.empty(), reason);
}

std::string StepExchange::waiting_for() const {
  std::string text;
  for (const Link& link : links_) {
    const bool done = link.left.empty() && link.partials_sent >= partials_ready(link) &&
                      link.sums_sent >= sums_ready(link) &&
                      link.partials_received >= started_chunks_ &&
                      link.sums_received >= started_chunks_;
    if (!done) text += (text.empty() ? "" : ", ") + mesh_.name(link.peer);
  }
  return text;
}

}  // namespace tilewright::collectives
