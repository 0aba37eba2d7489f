#include "common/rendezvous/send_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

namespace tilewright::rendezvous {
namespace {

// Sends all, at most `step` bytes at once.
std::string drain(SendQueue& queue, std::size_t step) {
  std::string sent;
  while (!queue.empty()) {
    const std::string_view bytes = queue.front().substr(0, step);
    sent += bytes;
    queue.remove(bytes.size());
  }
  return sent;
}

TEST(SendQueue, SendsOwnAndSharedBytesInOrder) {
  const auto text = std::make_shared<const std::string>("shared");
  for (const std::size_t step : {1, 4, 100}) {
    SendQueue queue;
    queue.append("a");
    queue.append("b");
    queue.append(text);
    queue.append("");
    queue.append(text);
    queue.append("c");
    EXPECT_EQ(queue.size(), 15u);
    EXPECT_EQ(drain(queue, step), "absharedsharedc") << step;
  }
}

TEST(SendQueue, CountsOwnMemoryAndSharedBytesApart) {
  const auto text = std::make_shared<const std::string>(1 << 20, 'x');
  SendQueue queue;
  EXPECT_EQ(queue.memory(), 0u);
  queue.append("before");
  queue.append(text);
  EXPECT_LT(queue.memory(), 1000u);
  EXPECT_EQ(queue.shared_bytes(), text->size());
  EXPECT_EQ(queue.size(), 6 + text->size());
  queue.remove(6);
  queue.remove(1000);
  EXPECT_EQ(queue.memory(), 0u);
  EXPECT_EQ(queue.size(), text->size() - 1000);
}

TEST(SendQueue, FreesSentBytesBeforeItIsEmpty) {
  SendQueue queue;
  for (int i = 0; i < 1000; ++i) queue.append(std::string(100, 'x'));
  EXPECT_GE(queue.memory(), 100'000u);
  while (queue.size() > 200) queue.remove(std::min(queue.front().size(), queue.size() - 200));
  EXPECT_LT(queue.memory(), 20'000u);
}

TEST(SendQueue, ClearReleasesMemoryAndSharedTexts) {
  const auto text = std::make_shared<const std::string>("shared");
  SendQueue queue;
  queue.append(std::string(50'000, 'x'));
  queue.append(text);
  queue.remove(10);
  queue.clear();
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.size(), 0u);
  EXPECT_EQ(queue.memory(), 0u);
  EXPECT_EQ(text.use_count(), 1);
}

}  // namespace
}  // namespace tilewright::rendezvous
