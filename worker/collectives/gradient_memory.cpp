#include "worker/collectives/gradient_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

#include "worker/collectives/exchange.h"

namespace tilewright::collectives {
namespace {

constexpr std::size_t kMaxOffer = 200;  // bytes

// The size in bytes, then the offer; empty without memory.
std::string text_of(const SharedSegment& segment) {
  return segment.size() == 0 ? "" : fmt::format("{} {}", segment.size(), segment.offer());
}

SharedSegment open(std::string_view text) {
  std::size_t bytes = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, bytes);
  if (error != std::errc() || rest == end || bytes == 0) return {};
  auto opened = SharedSegment::open({rest, end}, bytes);
  return opened.ok() ? std::move(opened).value() : SharedSegment();
}

}  // namespace

std::unique_ptr<GradientMemory> GradientMemory::share(Mesh& mesh, std::size_t floats,
                                                      MonotonicTime deadline) {
  const auto world = static_cast<std::size_t>(mesh.world());
  if (world == 1) return nullptr;
  const auto shares_memory = [&](std::size_t peer) {
    return static_cast<int>(peer) != mesh.rank() &&
           mesh.transport().shares_memory(static_cast<int>(peer));
  };
  std::unique_ptr<GradientMemory> memory(new GradientMemory(world));
  bool has_peers = false;
  for (std::size_t peer = 0; peer < world; ++peer) has_peers = has_peers || shares_memory(peer);
  if (has_peers && floats > 0) {
    auto made = SharedSegment::create(floats * sizeof(float), SharedSegment::Pages::kOnAccess);
    if (made.ok()) memory->own_ = std::move(made).value();
  }
  const auto offers = all_gather(mesh, text_of(memory->own_), kMaxOffer, deadline);
  std::vector<bool> opened(world);
  for (std::size_t peer = 0; peer < world; ++peer) {
    if (memory->own_.size() > 0 && shares_memory(peer)) memory->peers_[peer] = open(offers[peer]);
    opened[peer] = memory->peers_[peer].size() > 0;
  }
  const auto opened_by = all_gather_bits(mesh, opened, deadline);
  memory->own_.close_offer();
  bool is_shared = false;
  for (std::size_t peer = 0; peer < world; ++peer) {
    if (!opened_by[peer][static_cast<std::size_t>(mesh.rank())]) memory->peers_[peer] = {};
    is_shared = is_shared || memory->peers_[peer].size() > 0;
  }
  return is_shared ? std::move(memory) : nullptr;
}

}  // namespace tilewright::collectives
