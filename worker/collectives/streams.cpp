#include "worker/collectives/streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "common/base/strings.h"
#include "worker/collectives/exchange.h"

namespace tilewright::collectives {
int default_streams(int threads) {
  if (threads < 8) return 1;
  return threads < 16 ? 2 : 4;
}

int agree_on_streams(Mesh& mesh, int wanted, MonotonicTime deadline) {
  if (mesh.world() == 1) return 1;
  constexpr std::size_t kMaxDigits = 2;
  int agreed = std::clamp(wanted, 1, kMaxStreams);
  const auto all = all_gather(mesh, std::to_string(agreed), kMaxDigits, deadline);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::string& text = all[rank];
    const auto streams = parse_number<int>(text, 1, kMaxStreams);
    if (!streams) {
      throw mesh.lost(
          static_cast<int>(rank),
          fmt::format("sent an invalid number of streams, expected 1 to {},", kMaxStreams));
    }
    agreed = std::min(agreed, *streams);
  }
  return agreed;
}

void open_streams(Mesh& mesh, int wanted, net::Listener& listener, const net::SecretKey& key,
                  MonotonicTime deadline, const net::WakeUp* cancel) {
  // After the agreement no rank is still building the mesh, where it would refuse further streams.
  const int streams = agree_on_streams(mesh, wanted, deadline);
  add_streams(mesh, streams, listener, key, deadline, cancel);
}

}  // namespace tilewright::collectives
