#include "common/tcpstore/store.h"

#include <gmock/gmock.h>

#include <functional>

#include "common/tcpstore/requests.h"

namespace tilewright::tcpstore {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr Store::Client kFirst = 10, kSecond = 11, kThird = 12;
using Keys = std::vector<std::string>;

TEST(Store, SetsGetsAndDeletes) {
  Store store;
  EXPECT_EQ(store.get("key"), "");
  store.set("key", "value").or_throw();
  EXPECT_EQ(store.get("key"), "value");
  store.append("key", "s").or_throw();
  store.append("other", "new").or_throw();
  EXPECT_EQ(store.get("key"), "values");
  EXPECT_THAT(store.keys(), ElementsAre("key", "other"));
  EXPECT_TRUE(store.remove("key"));
  EXPECT_FALSE(store.remove("key"));
  EXPECT_EQ(store.size(), 1u);
}

TEST(Store, ComparesAndSets) {
  Store store;
  // A key that does not exist: PyTorch's server returns what the client expected.
  EXPECT_EQ(store.compare_set("key", "old", "new").value(), "old");
  EXPECT_EQ(store.size(), 0u);
  EXPECT_EQ(store.compare_set("key", "", "one").value(), "one");
  EXPECT_EQ(store.compare_set("key", "", "two").value(), "one");
  EXPECT_EQ(store.compare_set("key", "one", "two").value(), "two");
  EXPECT_EQ(store.compare_set("key", "one", "three").value(), "two");
}

TEST(Store, AddsToDecimalNumbers) {
  Store store;
  EXPECT_EQ(store.add("n", -3).value(), -3);
  EXPECT_EQ(store.add("n", 5).value(), 2);
  EXPECT_EQ(store.get("n"), "2");
  store.set("text", " +12 apples").or_throw();
  EXPECT_EQ(store.add("text", 1).value(), 13);  // as std::stoll, which PyTorch's server uses
  for (const char* value : {"", "one", "+-1", "9223372036854775808"}) {
    store.set("bad", value).or_throw();
    const auto sum = store.add("bad", 1);
    ASSERT_FALSE(sum.ok()) << value;
    EXPECT_EQ(sum.error().code, ExitCode::kUsage);
    EXPECT_EQ(store.get("bad"), value);
  }
  store.set("large", "9223372036854775807").or_throw();
  EXPECT_FALSE(store.add("large", 1).ok());
  EXPECT_FALSE(store.barrier(kFirst, "large", 2).ok());
  EXPECT_EQ(store.get("large"), "9223372036854775807");
}

TEST(Store, AWaitEndsWhenTheLastKeyArrives) {
  Store store;
  store.set("a", "").or_throw();
  EXPECT_TRUE(store.wait(kFirst, Keys{"a"}).value());
  EXPECT_TRUE(store.wait(kFirst, Keys{}).value());
  EXPECT_FALSE(store.wait(kFirst, Keys{"a", "b", "c", "c"}).value());
  EXPECT_FALSE(store.wait(kSecond, Keys{"c"}).value());
  store.multi_set(Keys{"b"}, Keys{"1"}).or_throw();
  EXPECT_THAT(store.take_woken(), IsEmpty());
  EXPECT_EQ(store.add("c", 1).value(), 1);
  EXPECT_THAT(store.take_woken(), ElementsAre(kFirst, kSecond));
  EXPECT_EQ(store.waiting(), 0u);
}

TEST(Store, EveryWriteWakes) {
  const std::function<void(Store&)> writes[] = {
      [](Store& store) { store.set("key", "1").or_throw(); },
      [](Store& store) { store.multi_set(Keys{"key"}, Keys{"1"}).or_throw(); },
      [](Store& store) { store.append("key", "1").or_throw(); },
      [](Store& store) { (void)store.add("key", 1).value(); },
      [](Store& store) { (void)store.compare_set("key", "", "1").value(); },
      [](Store& store) { store.queue_push("key", "1").or_throw(); },
      [](Store& store) { (void)store.barrier(kThird, "key", 1).value(); },
  };
  for (const auto& write : writes) {
    Store store;
    EXPECT_FALSE(store.wait(kFirst, Keys{"key"}).value());
    write(store);
    EXPECT_THAT(store.take_woken(), ElementsAre(kFirst));
  }
}

TEST(Store, ACancelledWaitIsNotWoken) {
  Store store;
  EXPECT_FALSE(store.wait(kFirst, Keys{"a", "b"}).value());
  EXPECT_FALSE(store.wait(kSecond, Keys{"a"}).value());
  store.cancel_wait(kFirst);
  store.cancel_wait(kThird);  // it does not wait
  store.set("a", "").or_throw();
  store.set("b", "").or_throw();
  EXPECT_THAT(store.take_woken(), ElementsAre(kSecond));
  EXPECT_TRUE(store.wait(kFirst, Keys{"a"}).value());
}

TEST(Store, AClientWaitsOnce) {
  Store store;
  EXPECT_FALSE(store.wait(kFirst, Keys{"a"}).value());
  EXPECT_EQ(store.wait(kFirst, Keys{"b"}).error().message,
            "a wait while the same connection waits already");
  EXPECT_EQ(store.barrier(kFirst, "n", 2).error().code, ExitCode::kUsage);
  EXPECT_EQ(store.size(), 0u);
}

TEST(Store, ABarrierEndsWithTheLastOfTheWorld) {
  Store store;
  EXPECT_FALSE(store.barrier(kFirst, "gate", 3).value());
  EXPECT_FALSE(store.barrier(kSecond, "gate", 3).value());
  EXPECT_EQ(store.get("gate"), "2");
  EXPECT_THAT(store.take_woken(), IsEmpty());
  EXPECT_TRUE(store.barrier(kThird, "gate", 3).value());
  EXPECT_THAT(store.take_woken(), ElementsAre(kFirst, kSecond));
  EXPECT_TRUE(store.barrier(kThird, "gate", 3).value());
}

TEST(Store, AQueueIsFirstInFirstOut) {
  Store store;
  store.queue_push("q", "a").or_throw();
  store.queue_push("q", "b").or_throw();
  EXPECT_EQ(store.queue_length("q"), 2u);
  EXPECT_TRUE(store.check(Keys{"q"}));
  EXPECT_EQ(store.size(), 0u);
  EXPECT_EQ(store.queue_pop(kFirst, "q"), "a");
  EXPECT_EQ(store.queue_pop(kFirst, "q"), "b");
  EXPECT_EQ(store.queue_pop(kFirst, "q"), std::nullopt);
  EXPECT_FALSE(store.check(Keys{"q"}));
  EXPECT_EQ(store.entries(), 0u);
}

TEST(Store, APushWakesOneClient) {
  Store store;
  EXPECT_FALSE(store.wait(kThird, Keys{"q", "never"}).value());
  EXPECT_FALSE(store.wait(kFirst, Keys{"q"}).value());
  EXPECT_FALSE(store.wait(kSecond, Keys{"q"}).value());
  store.queue_push("q", "a").or_throw();
  EXPECT_THAT(store.take_woken(), ElementsAre(kFirst));
  EXPECT_EQ(store.queue_pop(kFirst, "q"), "a");
  store.remove_client(kFirst);
  EXPECT_THAT(store.take_woken(), IsEmpty());
  store.queue_push("q", "b").or_throw();
  EXPECT_THAT(store.take_woken(), ElementsAre(kSecond));
}

TEST(Store, AnItemOfADeadClientWakesTheNext) {
  Store store;
  EXPECT_FALSE(store.wait(kFirst, Keys{"q"}).value());
  EXPECT_FALSE(store.wait(kSecond, Keys{"q"}).value());
  store.queue_push("q", "a").or_throw();
  EXPECT_THAT(store.take_woken(), ElementsAre(kFirst));
  store.remove_client(kFirst);
  EXPECT_THAT(store.take_woken(), ElementsAre(kSecond));
}

TEST(Store, BoundsItsKeys) {
  Store store({.keys = 3, .bytes = 1 << 20});
  store.set("a", "").or_throw();
  store.queue_push("q", "").or_throw();
  EXPECT_EQ(store.multi_set(Keys{"b", "c"}, Keys{"", ""}).error().message,
            "the store would hold 4 keys, at most 3 are allowed");
  EXPECT_EQ(store.size(), 1u);
  EXPECT_FALSE(store.wait(kFirst, Keys{"b"}).value());
  EXPECT_EQ(store.set("b", "").error().code, ExitCode::kMemory);
  EXPECT_FALSE(store.barrier(kSecond, "b", 2).ok());
  store.set("a", "again").or_throw();
  store.cancel_wait(kFirst);
  store.set("b", "").or_throw();
}

TEST(Store, BoundsItsBytes) {
  const std::size_t entry = Store::kEntryBytes + 1;
  Store store({.keys = 100, .bytes = 2 * entry + 100});
  store.set("a", std::string(100, 'x')).or_throw();
  EXPECT_EQ(store.bytes(), entry + 100);
  store.set("b", "").or_throw();
  EXPECT_EQ(store.append("b", "x").error().code, ExitCode::kMemory);
  EXPECT_EQ(store.compare_set("b", "", "x").error().code, ExitCode::kMemory);
  EXPECT_EQ(store.queue_push("q", "").error().code, ExitCode::kMemory);
  EXPECT_EQ(store.wait(kFirst, Keys{"c"}).error().code, ExitCode::kMemory);
  EXPECT_FALSE(store.check(Keys{"c"}));
  store.set("a", "").or_throw();
  store.append("b", std::string(100, 'x')).or_throw();
  EXPECT_TRUE(store.remove("a"));
  EXPECT_TRUE(store.remove("b"));
  EXPECT_EQ(store.bytes(), 0u);
  EXPECT_EQ(store.entries(), 0u);
}

TEST(Requests, BoundTheReply) {
  Store store({.keys = 10, .bytes = 12 << 20});
  std::string reply;
  const std::string value(kMaxValueBytes, 'x');
  execute(store, kFirst, {.operation = Operation::kSet, .keys = {"k"}, .values = {value}}, reply)
      .or_throw();
  execute(store, kFirst, {.operation = Operation::kMultiGet, .keys = {"k"}}, reply).or_throw();
  EXPECT_EQ(reply.size(), kLengthBytes + kMaxValueBytes);
  reply.clear();
  const Status status =
      execute(store, kFirst, {.operation = Operation::kMultiGet, .keys = {"k", "k"}}, reply);
  EXPECT_EQ(status.error().message,
            "the reply to MULTI_GET has 16777232 bytes, at most 16777216 are allowed");
  EXPECT_EQ(reply, "");
}

}  // namespace
}  // namespace tilewright::tcpstore
