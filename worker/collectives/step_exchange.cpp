#include "worker/collectives/step_exchange.h"

#include <fmt/format.h>

#include <algorithm>

#include "worker/collectives/sum.h"

namespace tilewright::collectives {

StepExchange::StepExchange(Mesh& mesh, Layout layout, const ReducerOptions& options)
    : mesh_(mesh),
      layout_(std::move(layout)),
      options_(options),
      widest_slice_(slice_of({0, options.chunk_elements}, 0, mesh.world()).size()),
      slots_(static_cast<std::size_t>(layout_.slots())) {
  TW_CHECK(layout_.world() == mesh.world(), "shards are split among {} ranks, the mesh has {}",
           layout_.world(), mesh.world());
  TW_CHECK(
      options_.window >= 1 && options_.shared_memory_window >= 1 && options_.chunk_elements >= 1,
      "windows {} and {}, chunks of {}", options_.window, options_.shared_memory_window,
      options_.chunk_elements);
  for (int peer = 0; peer < mesh.world(); ++peer) {
    if (peer == mesh.rank()) continue;
    Link& link = links_.emplace_back();
    link.peer = peer;
    link.window =
        mesh.transport().shares_memory(peer) ? options_.shared_memory_window : options_.window;
    link.iovecs.reserve(static_cast<std::size_t>(layout_.slots_of(mesh.rank())) + 1);
    const std::int64_t slices = std::int64_t{link.window} * layout_.slots_of(peer);
    link.partials = runtime::Buffer<float>(static_cast<std::size_t>(slices * widest_slice_));
  }
}

void StepExchange::begin(const GradientParts& parts, std::span<const Range> buckets) {
  parts_ = &parts;
  operation_ = mesh_.next_operation();
  chunks_.clear();
  chunks_before_.assign(1, 0);
  buckets_ = static_cast<int>(buckets.size());
  for (int bucket = 0; bucket < buckets_; ++bucket) {
    const Range& range = buckets[static_cast<std::size_t>(bucket)];
    const int count = chunks_in(range, options_.chunk_elements);
    for (int i = 0; i < count; ++i) {
      const std::int64_t begin = range.begin + i * options_.chunk_elements;
      chunks_.push_back(
          {{begin, std::min(begin + options_.chunk_elements, range.end)}, bucket, i == 0});
    }
    chunks_before_.push_back(chunks());
  }
  started_ = started_chunks_ = summed_ = buckets_sent_ = buckets_done_ = 0;
  for (Link& link : links_) {
    link.partials_sent = link.sums_sent = link.partials_received = link.sums_received = 0;
    link.in_payload = false;
    link.in_iovec = net::make_iovec(&link.in, sizeof link.in);
  }
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
    return !link.left.empty() || link.partials_sent < started_chunks_ || link.sums_sent < summed_;
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
  const bool sums = link.sums_sent < summed_;
  const bool partials =
      link.partials_sent < started_chunks_ && link.partials_sent < link.sums_received + link.window;
  if (!sums && !partials) return false;
  const int index = sums ? link.sums_sent : link.partials_sent;
  const Range slice =
      slice_of(chunk(index).elements, sums ? mesh_.rank() : link.peer, mesh_.world());
  const std::size_t bytes = static_cast<std::size_t>(slice.size()) * sizeof(float);
  link.iovecs.assign(1, net::make_iovec(&link.out, sizeof link.out));
  if (sums) {
    link.iovecs.push_back(net::make_iovec(parts_->sum + slice.begin, bytes));
  } else {
    for (const GradientPart& part : parts_->parts) {
      link.iovecs.push_back(net::make_iovec(part.data + slice.begin, bytes));
    }
  }
  link.out.kind = sums ? FrameKind::kSums : FrameKind::kPartials;
  link.out.operation = operation_;
  link.out.chunk = static_cast<std::uint64_t>(index);
  link.left = link.iovecs;
  mesh_.seal(link.peer, link.out, link.left.subspan(1));
  return true;
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
  return link.partials.data() + chunk % link.window * layout_.slots_of(link.peer) * widest_slice_;
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
  const int bound = sums ? link.partials_sent : std::min(summed_ + link.window, chunks());
  if (link.in.chunk != static_cast<std::uint64_t>(expected) || expected >= bound) {
    throw mesh_.lost(link.peer, fmt::format("sent {} of chunk {}, expected chunk {} below {}",
                                            name_of(link.in.kind), link.in.chunk, expected, bound));
  }
  const Range slice =
      slice_of(chunk(expected).elements, sums ? link.peer : mesh_.rank(), mesh_.world());
  const int copies = sums ? 1 : layout_.slots_of(link.peer);
  const std::size_t bytes = static_cast<std::size_t>(slice.size() * copies) * sizeof(float);
  if (link.in.bytes != bytes) {
    throw mesh_.lost(link.peer,
                     fmt::format("sent {} bytes in {} of chunk {}, expected {}: the ranks differ "
                                 "in shards or buckets",
                                 link.in.bytes, name_of(link.in.kind), expected, bytes));
  }
  float* into = sums ? parts_->sum + slice.begin : partials_at(link, expected);
  link.in_iovec = net::make_iovec(into, bytes);
  link.payload = {reinterpret_cast<const std::byte*>(into), bytes};
  link.in_payload = true;
}

void StepExchange::close_payload(Link& link) {
  mesh_.check_payload(link.peer, link.in, link.payload);
  ++(link.in.kind == FrameKind::kSums ? link.sums_received : link.partials_received);
  link.in_payload = false;
  link.in_iovec = net::make_iovec(&link.in, sizeof link.in);
  // Sums while the chunk is still in the cache.
  if (link.in.kind == FrameKind::kPartials) sum();
}

bool StepExchange::sum() {
  bool moved = false;
  while (summed_ < started_chunks_ && std::ranges::all_of(links_, [this](const Link& link) {
           return link.partials_received > summed_;
         })) {
    sum_chunk(summed_);
    if (chunk(summed_).first) options_.faults.hit("all_gather.before_send");
    ++summed_;
    moved = true;
  }
  return moved;
}

void StepExchange::sum_chunk(int index) {
  const Range slice = slice_of(chunk(index).elements, mesh_.rank(), mesh_.world());
  auto slot = static_cast<std::size_t>(layout_.first_slot[static_cast<std::size_t>(mesh_.rank())]);
  for (const GradientPart& part : parts_->parts) slots_[slot++] = part.data + slice.begin;
  for (const Link& link : links_) {
    slot = static_cast<std::size_t>(layout_.first_slot[static_cast<std::size_t>(link.peer)]);
    float* data = partials_at(link, index);
    for (int i = 0; i < layout_.slots_of(link.peer); ++i, data += slice.size()) {
      slots_[slot++] = data;
    }
  }
  run_merges(layout_.merges, slots_, parts_->sum + slice.begin, slice.size());
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
    const bool in = expects(link);
    const bool out = !link.left.empty();
    if (!in && !out) continue;
    mesh_.transport().watch(link.peer, static_cast<short>((in ? POLLIN : 0) | (out ? POLLOUT : 0)),
                            fds);
  }
}

void StepExchange::send_abort(std::string_view reason) {
  for (const Link& link : links_) mesh_.send_abort(link.peer, !link.left.empty(), reason);
}

std::string StepExchange::waiting_for() const {
  std::string text;
  for (const Link& link : links_) {
    const bool done = link.left.empty() && link.partials_sent >= started_chunks_ &&
                      link.sums_sent >= summed_ && link.partials_received >= started_chunks_ &&
                      link.sums_received >= started_chunks_;
    if (!done) text += (text.empty() ? "" : ", ") + mesh_.name(link.peer);
  }
  return text;
}

}  // namespace tilewright::collectives
