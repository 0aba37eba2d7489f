#include "common/json/timestamp.h"

#include <gtest/gtest.h>

namespace tilewright {
namespace {

TEST(Timestamp, ParsesRfc3339) {
  EXPECT_EQ(parse_timestamp("1970-01-02T00:00:01Z"), WallTime(std::chrono::seconds(86401)));
  EXPECT_EQ(parse_timestamp("1970-01-02T00:00:01.250Z"), WallTime(std::chrono::seconds(86401)));
  EXPECT_EQ(parse_timestamp("1970-01-02T01:30:01+01:30"), WallTime(std::chrono::seconds(86401)));
  EXPECT_EQ(parse_timestamp("1970-01-01T23:00:01-01:00"), WallTime(std::chrono::seconds(86401)));
  for (const char* text : {"", "1970-01-02", "1970-13-02T00:00:01Z", "1970-02-30T00:00:01Z",
                           "1970-01-02T24:00:01Z", "1970-01-02T00:00:01", "1970-01-02 00:00:01Z",
                           "1970-01-02T00:00:01+1", "1970-01-02T00:00:01.Z", "yesterday"}) {
    EXPECT_FALSE(parse_timestamp(text).has_value()) << text;
  }
}

TEST(Timestamp, RefusesYearsWhoseNanosecondsOverflow) {
  for (const char* text : {"9999-12-31T23:59:59Z", "2262-04-12T00:00:00Z", "2200-01-01T00:00:00Z",
                           "1969-12-31T23:59:59Z", "0001-01-01T00:00:00Z"}) {
    EXPECT_FALSE(parse_timestamp(text).has_value()) << text;
  }
  const auto last = parse_timestamp("2199-12-31T23:59:59Z");
  const auto first = parse_timestamp("1970-01-01T00:00:00Z");
  ASSERT_TRUE(last && first);
  EXPECT_EQ(to_rfc3339(*last), "2199-12-31T23:59:59Z");
  EXPECT_GT(*last - *first, std::chrono::hours(24 * 365 * 229)) << "the difference overflows";
}

TEST(Timestamp, FormatsRfc3339InUtc) {
  EXPECT_EQ(to_rfc3339(WallTime(std::chrono::seconds(951782400))), "2000-02-29T00:00:00Z");
}

}  // namespace
}  // namespace tilewright
