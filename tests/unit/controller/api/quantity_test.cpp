#include "controller/api/quantity.h"

#include <gtest/gtest.h>

namespace tilewright::api {
namespace {

std::int64_t milli(std::string_view text) {
  const auto parsed = parse_quantity(text);
  return parsed ? parsed->milli : -1;
}

TEST(Quantity, ReadsEverySuffix) {
  EXPECT_EQ(milli("1"), 1000);
  EXPECT_EQ(milli("500m"), 500);
  EXPECT_EQ(milli("1.5"), 1500);
  EXPECT_EQ(milli(".5"), 500);
  EXPECT_EQ(milli("2."), 2000);
  EXPECT_EQ(milli("+2"), 2000);
  EXPECT_EQ(milli("2k"), 2'000'000);
  EXPECT_EQ(milli("2Ki"), 2'048'000);
  EXPECT_EQ(milli("2Mi"), 2LL * 1024 * 1024 * 1000);
  EXPECT_EQ(milli("2Gi"), 2LL * 1024 * 1024 * 1024 * 1000);
  EXPECT_EQ(milli("1.5Gi"), 3LL * 512 * 1024 * 1024 * 1000);
  EXPECT_EQ(milli("1Ti"), 1024LL * 1024 * 1024 * 1024 * 1000);
  EXPECT_EQ(milli("1G"), 1'000'000'000'000);
  EXPECT_EQ(milli("1e3"), 1'000'000);
  EXPECT_EQ(milli("12E6"), 12'000'000'000);
  EXPECT_EQ(milli("5e-1"), 500);
}

TEST(Quantity, RoundsUpToThousandths) {
  EXPECT_EQ(milli("1n"), 1);
  EXPECT_EQ(milli("1500u"), 2);
  EXPECT_EQ(milli("0.0001"), 1);
  EXPECT_EQ(milli("0"), 0);
  EXPECT_EQ(parse_quantity("1.2")->rounded_up(), 2);
}

TEST(Quantity, RejectsInvalidQuantities) {
  for (const char* text : {"",
                           " ",
                           "m",
                           "1 Gi",
                           "1GiB",
                           "1gi",
                           "-1",
                           "1.2.3",
                           "1e",
                           "1ee3",
                           "e3",
                           "0x10",
                           "1,5",
                           "1e99",
                           "99999999999999999999",
                           "9999999999999999P",
                           "10Ei",
                           "inf",
                           "nan",
                           "1K"}) {
    EXPECT_FALSE(parse_quantity(text).has_value()) << text;
  }
}

TEST(Quantity, SaysWhatIsWrongWithAString) {
  const std::pair<const char*, const char*> cases[] = {
      {"2GB", "; did you mean 2G or 2Gi?"},
      {"2GiB", "; did you mean 2Gi?"},
      {"2gb", "; did you mean 2G or 2Gi?"},
      {"1.5mb", "; did you mean 1.5M or 1.5Mi?"},
      {"1gi", "; did you mean 1Gi?"},
      {"64K", "; did you mean 64k or 64Ki?"},
      {"-2Gi", ", above zero"},
      {"100000Ei", ", at most 9P"},
      {"9999999999999999P", ", at most 9P"},
      {"two", ""},
      {"", ""},
      {"1.2.3", ""},
      {"-", ""},
      {"5x", ""},
      {"1 Gi", ""},
  };
  for (const auto& [text, hint] : cases) {
    EXPECT_FALSE(parse_quantity(text).has_value()) << text;
    EXPECT_EQ(quantity_hint(text), hint) << text;
  }
}

TEST(Quantity, ComparesAmountsNotStrings) {
  EXPECT_EQ(*parse_quantity("1Gi"), *parse_quantity("1024Mi"));
  EXPECT_FALSE(*parse_quantity("1G") == *parse_quantity("1Gi"));
}

}  // namespace
}  // namespace tilewright::api
