#include "worker/collectives/exchange.h"

#include <fmt/format.h>

#include <algorithm>

#include "worker/collectives/frame_exchange.h"

namespace tilewright::collectives {
void barrier(Mesh& mesh, MonotonicTime deadline) {
  FrameExchange exchange(mesh, FrameKind::kBarrier, mesh.next_operation(), deadline);
  for (int peer = 0; peer < mesh.world(); ++peer) {
    if (peer == mesh.rank()) continue;
    exchange.send(peer, {});
    exchange.receive(peer, std::span<std::byte>());
  }
  exchange.run();
}

void broadcast(Mesh& mesh, int root, std::span<std::byte> bytes, MonotonicTime deadline) {
  FrameExchange exchange(mesh, FrameKind::kBroadcast, mesh.next_operation(), deadline);
  if (mesh.rank() != root) exchange.receive(root, bytes);
  for (int peer = 0; peer < mesh.world() && mesh.rank() == root; ++peer) {
    if (peer != root) exchange.send(peer, bytes);
  }
  exchange.run();
}

std::string broadcast_string(Mesh& mesh, int root, std::string_view text, std::size_t max_bytes,
                             MonotonicTime deadline) {
  FrameExchange exchange(mesh, FrameKind::kBroadcast, mesh.next_operation(), deadline);
  std::string result;
  if (mesh.rank() != root) {
    exchange.receive(root, &result, max_bytes);
  } else {
    result = text;
    for (int peer = 0; peer < mesh.world(); ++peer) {
      if (peer != root) exchange.send(peer, std::as_bytes(std::span(text)));
    }
  }
  exchange.run();
  return result;
}

std::vector<std::string> gather(Mesh& mesh, int root, std::string_view text, std::size_t max_bytes,
                                MonotonicTime deadline) {
  FrameExchange exchange(mesh, FrameKind::kGather, mesh.next_operation(), deadline);
  std::vector<std::string> result;
  if (mesh.rank() != root) {
    exchange.send(root, std::as_bytes(std::span(text)));
  } else {
    result.resize(static_cast<std::size_t>(mesh.world()));
    result[static_cast<std::size_t>(root)] = text;
    for (int peer = 0; peer < mesh.world(); ++peer) {
      if (peer != root) {
        exchange.receive(peer, &result[static_cast<std::size_t>(peer)], max_bytes);
      }
    }
  }
  exchange.run();
  return result;
}

std::vector<std::string> all_gather(Mesh& mesh, std::string_view text, std::size_t max_bytes,
                                    MonotonicTime deadline) {
  FrameExchange exchange(mesh, FrameKind::kGather, mesh.next_operation(), deadline);
  std::vector<std::string> result(static_cast<std::size_t>(mesh.world()));
  for (int peer = 0; peer < mesh.world(); ++peer) {
    if (peer == mesh.rank()) continue;
    exchange.send(peer, std::as_bytes(std::span(text)));
    exchange.receive(peer, &result[static_cast<std::size_t>(peer)], max_bytes);
  }
  exchange.run();
  result[static_cast<std::size_t>(mesh.rank())] = text;
  return result;
}

bool all_of_ranks(Mesh& mesh, bool own, MonotonicTime deadline) {
  constexpr std::string_view kNo = "no";
  const auto said = all_gather(mesh, own ? "" : kNo, kNo.size(), deadline);
  return std::ranges::all_of(said, [](const std::string& one) { return one.empty(); });
}

std::vector<std::vector<bool>> all_gather_bits(Mesh& mesh, const std::vector<bool>& bits,
                                               MonotonicTime deadline) {
  const auto world = static_cast<std::size_t>(mesh.world());
  std::string digits;
  for (const bool bit : bits) digits += bit ? '1' : '0';
  std::vector<std::vector<bool>> all;
  for (const std::string& row : all_gather(mesh, digits, world, deadline)) {
    if (row.size() != world || row.find_first_not_of("01") != std::string::npos) {
      throw mesh.lost(static_cast<int>(all.size()),
                      fmt::format("sent {} bytes, expected {} digits 0 or 1,", row.size(), world));
    }
    std::vector<bool>& one = all.emplace_back();
    for (const char digit : row) one.push_back(digit == '1');
  }
  return all;
}

}  // namespace tilewright::collectives
