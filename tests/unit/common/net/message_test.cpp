#include "common/net/message.h"

#include <thread>

#include "tests/unit/common/net/net_fixtures.h"

namespace tilewright::net {
namespace {

TEST(Message, ArrivesCompleteAndInOrder) {
  auto [client, server] = connected_pair();
  const std::string large(5'000'000, 'y');
  std::thread writer([&client = client, &large] {
    for (const std::string& text : {std::string("one"), std::string(), large}) {
      EXPECT_TRUE(write_message(client, text, soon()).ok());
    }
  });
  EXPECT_EQ(read_message(server, 3, soon()).value(), "one");
  EXPECT_EQ(read_message(server, 0, soon()).value(), "");
  EXPECT_EQ(read_message(server, large.size(), soon()).value(), large);
  writer.join();
}

TEST(Message, OverLimitIsRejectedBeforeReading) {
  auto [client, server] = connected_pair();
  ASSERT_TRUE(client.write_all(bytes_of(std::string_view("\xff\xff\xff\xff", 4)), soon()).ok());
  const auto message = read_message(server, 1000, soon());
  ASSERT_FALSE(message.ok());
  EXPECT_EQ(message.error().code, ExitCode::kPeerLost);
  EXPECT_NE(message.error().message.find("4294967295 bytes, at most 1000"), std::string::npos);
}

TEST(Message, TruncatedIsAnError) {
  auto [client, server] = connected_pair();
  ASSERT_TRUE(client.write_all(bytes_of(message_prefix(10) + "12345"), soon()).ok());
  client.close();
  EXPECT_FALSE(read_message(server, 1000, soon()).ok());
}

TEST(MessageReader, ReassemblesMessagesFromAnyFragmentation) {
  const std::string stream =
      message_prefix(3) + "one" + message_prefix(0) + message_prefix(300) + std::string(300, 'z');
  for (std::size_t cut = 1; cut <= stream.size(); ++cut) {
    MessageReader reader(300);
    std::vector<std::string> messages;
    for (std::size_t i = 0; i < stream.size(); i += cut) {
      reader.append(std::string_view(stream).substr(i, cut));
      while (auto message = reader.next().value()) messages.push_back(*message);
    }
    EXPECT_EQ(messages, (std::vector<std::string>{"one", "", std::string(300, 'z')})) << cut;
    EXPECT_EQ(reader.remaining(), "");
  }
}

TEST(MessageReader, ReturnsTheMemoryOfALongMessage) {
  MessageReader reader(1 << 20);
  reader.append(message_prefix(1 << 20) + std::string(1 << 20, 'z'));
  EXPECT_GT(reader.capacity(), 1u << 20);
  ASSERT_TRUE(reader.next().value());
  ASSERT_FALSE(reader.next().value());
  EXPECT_LE(reader.capacity(), 4u << 10);
}

TEST(MessageReader, RejectsAnOverlongPrefix) {
  MessageReader reader(299);
  reader.append(message_prefix(300));
  EXPECT_FALSE(reader.next().ok());
}

}  // namespace
}  // namespace tilewright::net
