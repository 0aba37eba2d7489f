#include <sys/socket.h>

#include <algorithm>

#include "common/base/check.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/harness.h"
#include "worker/elastic/launched_group.h"
#include "worker/elastic/pmi1.h"

namespace tilewright::fuzz {
namespace {

using namespace elastic;

void read_shared(std::string_view text) {
  const auto shared = decode_rendezvous(text);
  if (!shared.ok()) return check_message(shared.error().message);
  TW_CHECK(!shared->addresses.empty() && !shared->secret.empty(), "a rendezvous without address");
  const auto again = decode_rendezvous(
      encode_rendezvous(shared->uid, shared->secret, shared->addresses, text.size() + 4096));
  TW_CHECK(again.ok() && again->uid == shared->uid && again->secret == shared->secret &&
               again->addresses == shared->addresses,
           "a rendezvous reads as another");
}

}  // namespace

// The bytes that a process manager sends, whatever it is asked, then closes.
int fuzz_process_manager(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = as_text(data, size);
  read_shared(text);
  if (const auto tasks = tasks_on_node(text, static_cast<int>(size % 7))) {
    TW_CHECK(*tasks >= 1, "{} tasks on a host", *tasks);
  }
  int ends[2];
  TW_CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
  // At most what the buffer of the socket holds.
  const FileDescriptor manager(ends[1]);
  const auto sent = send(manager.get(), data, std::min<std::size_t>(size, 1 << 16), MSG_NOSIGNAL);
  shutdown(manager.get(), SHUT_WR);
  TW_CHECK(sent >= 0 || size == 0, "send");
  try {
    const net::Wait wait = net::within(std::chrono::seconds(5));
    Pmi1 pmi{FileDescriptor(ends[0]), static_cast<int>(size % 2), wait};
    TW_CHECK(pmi.max_text() >= 127 && pmi.max_text() < Pmi1::kMaxLine, "texts of {} bytes",
             pmi.max_text());
    read_shared(pmi.share("uid,secret,10.0.0.1:1", wait));
  } catch (const Failure& failure) {
    check_message(failure.what());
  }
  return 0;
}

}  // namespace tilewright::fuzz
