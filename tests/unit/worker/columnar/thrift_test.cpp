// Structs of Thrift's compact protocol, encoded by hand after its specification.
#include "worker/columnar/thrift.h"

#include "tests/unit/worker/columnar/columnar_testing.h"

namespace tilewright::columnar {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Reads a struct: integers in the order of their fields, everything else is skipped.
std::vector<std::int64_t> integers_of(const std::vector<std::uint8_t>& bytes) {
  ThriftReader reader(std::as_bytes(std::span(bytes)), kPlace);
  std::vector<std::int64_t> integers;
  reader.read_struct([&](const ThriftField& field) {
    if (field.type >= ThriftType::kByte && field.type <= ThriftType::kI64) {
      integers.push_back(field.id);
      integers.push_back(reader.integer(field));
    } else {
      reader.skip(field);
    }
  });
  EXPECT_EQ(reader.position(), bytes.size());
  return integers;
}

std::string refusal_of(const std::vector<std::uint8_t>& bytes) {
  return failure_of([&] { integers_of(bytes); });
}

TEST(Thrift, ReadsIntegersOfEachWidth) {
  EXPECT_THAT(integers_of({0x13, 0xfe,              // field 1, byte -2
                           0x14, 0x03,              // field 2, i16 -2
                           0x35, 0xac, 0x02,        // field 5, i32 150
                           0x06, 0xc8, 0x01, 0x01,  // long form: field 100, i64 -1
                           0x00}),
              ElementsAre(1, -2, 2, -2, 5, 150, 100, -1));
  EXPECT_THAT(integers_of({0x16, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0}),
              ElementsAre(1, INT64_MIN));
}

TEST(Thrift, SkipsEveryType) {
  EXPECT_THAT(integers_of({0x11, 0x12,                                   // booleans
                           0x17, 0,    0,    0,    0,    0,    0, 0, 0,  // double
                           0x18, 0x03, 'a',  'b',  'c',                  // binary
                           0x19, 0x25, 0x02, 0x04,                       // list of two i32
                           0x19, 0xf1, 0x02, 0x01, 0x02,                 // list of booleans
                           0x1a, 0x13, 0x7f,                             // set of one byte
                           0x1b, 0x00,                                   // empty map
                           0x1b, 0x01, 0x85, 0x01, 'k',  0x02,           // map string to i32
                           0x1c, 0x15, 0x02, 0x1c, 0x00, 0x00,           // nested structs
                           0x15, 0x04, 0x00}),
              ElementsAre(11, 2));
}

TEST(Thrift, RefusesMalformedStructs) {
  EXPECT_THAT(refusal_of({}), HasSubstr("found 0 bytes, expected 1 bytes for the metadata"));
  EXPECT_THAT(refusal_of({0x15, 0x02}), HasSubstr("found 0 bytes"));
  EXPECT_THAT(refusal_of({0x1d}), HasSubstr("a field of type 13"));
  EXPECT_THAT(refusal_of({0x05, 0x01, 0x00, 0x00}), HasSubstr("a field with number -1"));
  EXPECT_THAT(refusal_of({0x15, 0x80, 0x80, 0x80, 0x80, 0x10, 0x00}),
              HasSubstr("expected an integer of 32 bits"));
  EXPECT_THAT(refusal_of({0x16, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02, 0}),
              HasSubstr("more than 64 bits"));
  EXPECT_THAT(refusal_of({0x18, 0xff, 0xff, 0xff, 0xff, 0x0f}),
              HasSubstr("found 0 bytes, expected 4294967295 bytes"));
  EXPECT_THAT(refusal_of({0x19, 0xfd, 0x01}), HasSubstr("a value of type 13"));
  EXPECT_THAT(refusal_of({0x19, 0xf5, 0xff, 0xff, 0xff, 0x0f}), HasSubstr("found 0 bytes"));
}

TEST(Thrift, BoundsListsByTheirLimitAndTheBytesLeft) {
  const auto read = [](const std::vector<std::uint8_t>& bytes, std::uint64_t most) {
    return failure_of([&] {
      ThriftReader reader(std::as_bytes(std::span(bytes)), kPlace);
      reader.read_struct([&](const ThriftField& field) {
        reader.list(field, ThriftType::kBinary, most, [&] { reader.binary_element(); });
      });
    });
  };
  EXPECT_EQ(read({0x19, 0x28, 0x01, 'a', 0x00, 0x00}, 2), "");
  EXPECT_THAT(read({0x19, 0x28, 0x01, 'a', 0x00, 0x00}, 1),
              HasSubstr("is a list of 2 elements, expected at most 1"));
  EXPECT_THAT(read({0x19, 0x58, 0x00, 0x00, 0x00}, 9),
              HasSubstr("is a list of 5 elements, expected at most 3"));
  EXPECT_THAT(read({0x19, 0x25, 0x00, 0x00, 0x00}, 9),
              HasSubstr("is a list of type 5, expected 8"));
}

}  // namespace
}  // namespace tilewright::columnar
