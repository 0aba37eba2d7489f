// Tests of JsonSplitter with arbitrary chunks.
#include "controller/client/json_splitter.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace tilewright::kube {
namespace {

const std::vector<std::string> kObjects = {
    R"({})",
    R"({"a":1})",
    R"({"braces":"}{][","escaped":"\"}\\"})",
    R"({"nested":{"list":[{"a":[]},{}],"text":"\\\\\""}})",
    "{\"line\\nend\": \"\xc3\xa4\",\n \"pretty\" : [1,\n2]}",
};

std::string stream() {
  std::string text = "\n ";
  for (const std::string& object : kObjects) text += object + "\n";
  return text + "\t\r\n";
}

std::vector<std::string> split(const std::vector<std::string>& pieces) {
  JsonSplitter splitter(1000);
  std::vector<std::string> found;
  for (const std::string& piece : pieces) {
    splitter.feed(piece);
    while (auto object = splitter.next()) found.push_back(std::move(*object));
    EXPECT_FALSE(splitter.fault());
  }
  EXPECT_TRUE(splitter.between_objects());
  return found;
}

TEST(JsonSplitter, FindsObjectsInOneChunk) { EXPECT_EQ(split({stream()}), kObjects); }

TEST(JsonSplitter, FindsObjectsByteByByte) {
  std::vector<std::string> bytes;
  for (const char c : stream()) bytes.emplace_back(1, c);
  EXPECT_EQ(split(bytes), kObjects);
}

TEST(JsonSplitter, FindsObjectsInRandomChunks) {
  std::mt19937 random(11);  // NOLINT: fixed seed for reproducible chunks
  for (int i = 0; i < 500; ++i) {
    std::vector<std::string> pieces;
    for (std::string rest = stream(); !rest.empty();) {
      const std::size_t size = 1 + random() % 30;
      pieces.push_back(rest.substr(0, size));
      rest.erase(0, size);
    }
    EXPECT_EQ(split(pieces), kObjects);
  }
}

TEST(JsonSplitter, FindsObjectsWithoutWhitespaceBetweenThem) {
  EXPECT_EQ(split({R"({"a":1}{"b":2}{})"}),
            (std::vector<std::string>{"{\"a\":1}", "{\"b\":2}", "{}"}));
}

TEST(JsonSplitter, DetectsAStreamThatEndsWithinAnObject) {
  JsonSplitter splitter(100);
  splitter.feed(R"({"a":1} {"b")");
  EXPECT_TRUE(splitter.next());
  EXPECT_FALSE(splitter.next());
  EXPECT_FALSE(splitter.between_objects());
}

TEST(JsonSplitter, RejectsDataThatIsNotAnObject) {
  for (const char* text : {"x", "[1]", "1 ", "} ", "HTTP/1.1 200 OK"}) {
    JsonSplitter splitter(100);
    splitter.feed(text);
    EXPECT_FALSE(splitter.next()) << text;
    EXPECT_EQ(splitter.fault(), JsonSplitter::Fault::kNotAnObject) << text;
  }
}

TEST(JsonSplitter, RejectsAnObjectThatIsTooLong) {
  JsonSplitter fits(20);
  fits.feed(R"({"a":"1234567890  "})");
  EXPECT_TRUE(fits.next()) << "exactly the maximum size";
  JsonSplitter splitter(20);
  splitter.feed(R"({"a":"1234567890   )");
  EXPECT_FALSE(splitter.next());
  EXPECT_FALSE(splitter.fault());
  splitter.feed("  ");
  EXPECT_FALSE(splitter.next());
  EXPECT_EQ(splitter.fault(), JsonSplitter::Fault::kTooLong);
}

}  // namespace
}  // namespace tilewright::kube
