#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <thread>

#include "common/base/check.h"
#include "common/base/result.h"
#include "common/net/connect.h"
#include "common/net/handshake.h"
#include "common/net/message.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/harness.h"
#include "worker/collectives/crc32c.h"
#include "worker/collectives/exchange.h"
#include "worker/collectives/mesh.h"
#include "worker/collectives/step_exchange.h"

namespace tilewright::fuzz {
namespace {

using namespace collectives;

const std::string kUid = "job-1";
constexpr std::uint64_t kEpoch = 7;
constexpr std::uint64_t kInstances[] = {100, 101};

net::SecretKey make_key() {
  return net::SecretKey::from_bytes("a secret of enough bytes").or_throw();
}

// Rank 0 and a peer that knows the secret and then sends what the input says: mode (1 byte), a
// change of its greeting, then frames: kind, flags, operation, length, payload. The peer closes its
// direction at the end, so that rank 0 waits for nothing.
struct Input {
  explicit Input(Numbers numbers) {
    mode = numbers.byte();
    if ((mode & 1) != 0) greeting = {numbers.byte(), numbers.integer(8)};
    if ((mode & 2) != 0) {
      raw = numbers.rest();
      return;
    }
    while (!numbers.empty() && frames.size() < 32) {
      FrameHeader header;
      const int flags = numbers.byte();
      header.kind = static_cast<FrameKind>(numbers.byte() % 8);
      header.epoch = (flags & 1) != 0 ? numbers.integer(8) : kEpoch;
      header.operation = numbers.byte();
      header.chunk = (flags & 2) != 0 ? numbers.integer(8) : numbers.byte() % 4;
      std::string payload;
      const int bytes = numbers.byte();
      for (int i = 0; i < bytes && !numbers.empty(); ++i)
        payload += static_cast<char>(numbers.byte());
      if ((flags & 4) != 0) header.magic = static_cast<std::uint32_t>(numbers.integer(4));
      const std::array<iovec, 1> parts{net::make_iovec(payload.data(), payload.size())};
      seal(header, parts);
      if ((flags & 8) != 0) {  // another length, with a checksum that fits
        header.bytes = numbers.integer(8);
        header.header_crc =
            crc32c(std::as_bytes(std::span(&header, 1)).first(offsetof(FrameHeader, header_crc)));
      }
      frames.emplace_back(reinterpret_cast<const char*>(&header), sizeof header);
      frames.back() += payload;
    }
  }

  int mode = 0;
  std::pair<std::uint8_t, std::uint64_t> greeting{};  // offset, value
  std::string raw;
  std::vector<std::string> frames;
};

// The greeting of mesh_builder.cpp: version, epoch, both instances, rank, world, stream 0.
std::string hello() {
  const std::uint64_t words[] = {kMeshProtocolVersion, kEpoch, kInstances[1], kInstances[0]};
  const std::int32_t ranks[] = {1, 2};
  std::string bytes(reinterpret_cast<const char*>(words), sizeof words);
  bytes.append(reinterpret_cast<const char*>(ranks), sizeof ranks);
  return bytes;
}

void run_peer(const net::Address& address, const Input& input) {
  const MonotonicTime deadline = monotonic_now() + kTimeout;
  auto connected = net::connect_to(address, deadline);
  if (!connected.ok()) return;
  net::Socket socket = std::move(connected).value();
  if (!net::authenticate(socket, net::Role::kClient, make_key(), "tilewright mesh of job " + kUid,
                         deadline)
           .ok()) {
    return;
  }
  std::string greeting = hello();
  if ((input.mode & 1) != 0) {
    const std::size_t at = input.greeting.first % (greeting.size() - 8);
    std::memcpy(greeting.data() + at, &input.greeting.second, 8);
  }
  const auto send = [&](std::string_view bytes) {
    return socket.write_all(std::as_bytes(std::span(bytes)), deadline).ok();
  };
  if (!send(greeting) || !send(input.raw)) return;
  if (!net::read_message(socket, 1000, deadline).ok()) return;
  for (const std::string& frame : input.frames) {
    if (!send(frame)) return;
  }
  socket.shutdown_write();
  // Reads what rank 0 sends, so that its writes do not fail for lack of a reader.
  std::byte byte{};
  while (socket.read_exact(std::span(&byte, 1), deadline).ok()) {
  }
}

void exchange_step(Mesh& mesh, std::int64_t bf16_count) {
  constexpr std::int64_t kElements = 64;
  ReducerOptions options;
  options.chunk_elements = 32;
  StepExchange exchange(mesh, 0, even_split(2, 4), options);
  std::vector<float> gradient(kElements, 1.0f);
  const std::array<Range, 2> buckets{Range{0, 32}, Range{32, 64}};
  const GradientParts parts{kElements, bf16_count, {{{0, 2}, gradient.data()}}, gradient.data()};
  exchange.begin(parts, buckets);
  exchange.start(2);
  const MonotonicTime deadline = monotonic_now() + kTimeout;
  while (!exchange.complete()) {
    if (exchange.advance()) continue;
    TW_CHECK(monotonic_now() < deadline, "a step waits for a peer that has closed");
    std::vector<pollfd> fds;
    exchange.watch(fds);
    poll(fds.data(), fds.size(), 100);
  }
}

}  // namespace

int fuzz_mesh(const std::uint8_t* data, std::size_t size) {
  const Input input{Numbers(data, size)};
  static net::Listener listener = net::Listener::bind({"127.0.0.1", 0}).or_throw();
  MeshConfig config;
  config.job_uid = kUid;
  config.epoch = kEpoch;
  config.peers = {{listener.local_address(), kInstances[0]}, {{"127.0.0.1", 1}, kInstances[1]}};
  net::WakeUp peer_ended;
  std::thread peer([&] {
    run_peer(listener.local_address(), input);
    peer_ended.signal();
  });
  const MonotonicTime start = monotonic_now();
  const MonotonicTime deadline = start + kTimeout;
  config.shared_memory = SharedMemory::kNever;  // the peer sends its frames over TCP
  std::unique_ptr<Mesh> mesh;
  try {
    // A peer that was refused ends, which ends the construction.
    mesh = build_mesh(listener, config, make_key(), deadline, &peer_ended);
    const std::int64_t bf16_count = (input.mode & 16) != 0 ? 32 : 0;
    switch ((input.mode >> 2) & 3) {
      case 0:
        exchange_step(*mesh, bf16_count);
        break;
      case 1: {
        for (const std::string& text : all_gather(*mesh, "text", 64, deadline)) {
          TW_CHECK(text.size() <= 64, "{} bytes", text.size());
        }
        TW_CHECK(broadcast_string(*mesh, 1, "", 64, deadline).size() <= 64, "a long text");
        break;
      }
      case 2: {
        std::array<std::byte, 16> bytes{};
        broadcast(*mesh, 1, bytes, deadline);
        barrier(*mesh, deadline);
        break;
      }
      default:
        barrier(*mesh, deadline);
        exchange_step(*mesh, bf16_count);
    }
  } catch (const Failure& failure) {
    check_message(failure.what());
    const bool changed = (input.mode & 3) != 0;
    TW_CHECK(changed || mesh != nullptr, "a correct greeting is refused: {}", failure.what());
  }
  mesh.reset();  // ends a peer that still reads
  peer.join();
  TW_CHECK(monotonic_now() - start < kTimeout, "rank 0 waits for a peer that ended");
  return 0;
}

}  // namespace tilewright::fuzz
