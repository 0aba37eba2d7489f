#include "common/launch/dates.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

#include "tests/support/run_command.h"
#include "tests/support/scoped_variable.h"

namespace tilewright::launch {
namespace {

constexpr std::int64_t kNow = 1764000123;  // 2025-11-24T16:02:03Z

std::string error_of(std::string_view text) {
  const auto expanded = expand_dates(text, kNow);
  if (expanded.ok()) return "";
  EXPECT_EQ(expanded.error().code, ExitCode::kUsage);
  return expanded.error().message;
}

// What date(1) prints.
std::string date(std::vector<std::string> arguments, const char* zone) {
  ChildCommand command;
  command.program = "/bin/date";
  command.arguments = std::move(arguments);
  command.arguments.insert(command.arguments.begin(), {"-d", "@" + std::to_string(kNow)});
  command.environment = {std::string("TZ=") + zone, "LC_ALL=C"};
  std::string output = testing::run_command(command).output;
  while (output.ends_with('\n')) output.pop_back();
  return output;
}

class Dates : public ::testing::TestWithParam<const char*> {
 protected:
  Dates() : zone_("TZ", GetParam()) { tzset(); }

 private:
  const testing::ScopedVariable zone_;
};

TEST_P(Dates, AreThoseOfDate) {
  for (const char letter : std::string_view("aAbBcCdDeFgGhHIjklmMnpPqrRsSTtuUVwWxXyYzZ%")) {
    for (const std::string flag : {"", "-", "_", "0", "^", "#"}) {
      if (!flag.empty() && std::string_view("nt%qsz").find(letter) != std::string_view::npos)
        continue;
      const std::string format = "+<%" + flag + letter + ">";
      EXPECT_EQ(*expand_dates("$(date " + format + ")", kNow), date({format}, GetParam()));
      EXPECT_EQ(*expand_dates("$(date -u " + format + ")", kNow), date({"-u", format}, GetParam()));
    }
  }
  EXPECT_EQ(*expand_dates("$(date)", kNow), date({}, GetParam()));
  EXPECT_EQ(*expand_dates("$(date -u)", kNow), date({"-u"}, GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Zones, Dates,
                         ::testing::Values("UTC", "America/New_York", "Asia/Kolkata", "CET-1CEST"),
                         [](const auto& parameter) {
                           std::string name = parameter.param;
                           std::erase_if(name, [](char c) { return isalnum(c) == 0; });
                           return name;
                         });

TEST(ExpandDates, ReplacesEachDateOfAText) {
  const testing::ScopedVariable zone("TZ", "UTC");
  tzset();
  EXPECT_EQ(*expand_dates("", kNow), "");
  EXPECT_EQ(*expand_dates("/tmp/output", kNow), "/tmp/output");
  EXPECT_EQ(*expand_dates("/tmp/output_$(date +%Y%m%d_%H%M%S)", kNow),
            "/tmp/output_20251124_160203");
  EXPECT_EQ(*expand_dates("$(date +%Y)/$( date  -u  '+%m %d' )/$(x)$(date \"+%s\")", kNow),
            "2025/11 24/$(x)1764000123");
  EXPECT_EQ(*expand_dates("$(date +%F%n)x", kNow), "2025-11-24x");  // as a shell
}

TEST(ExpandDates, KnowsADate) {
  EXPECT_TRUE(holds_date("a$(date)"));
  EXPECT_TRUE(holds_date("$(ls)$( date +%s)"));
  EXPECT_TRUE(holds_date("$(date"));
  EXPECT_FALSE(holds_date("$(dates) $date (date)"));
  EXPECT_FALSE(holds_date(""));
}

TEST(ExpandDates, RefusesWhatItCannotPrint) {
  EXPECT_EQ(error_of("$(date -d yesterday)"),
            "date -d yesterday: found \"-d yesterday\", expected $(date), $(date +FORMAT) or "
            "$(date -u +FORMAT)");
  EXPECT_EQ(error_of("$(date +%Y%N)"),
            "date +%Y%N: found the conversion \"%N\", expected $(date), $(date +FORMAT) or "
            "$(date -u +FORMAT)");
  EXPECT_NE(error_of("$(date +%)").find("\"%\" at its end"), std::string::npos);
  EXPECT_NE(error_of("$(date +%Y").find("found no \")\""), std::string::npos);
  EXPECT_NE(error_of("$(date +$(date +%Y))").find("$ in the format"), std::string::npos);
  EXPECT_NE(error_of("$(date +" + std::string(300, 'x') + ")").find("too long"), std::string::npos);
  EXPECT_NE(error_of("$(date +a\nb)").find("a control character"), std::string::npos);
}

TEST(DateCall, IsReadAsItIsWritten) {
  for (const std::string format : {"", "%Y", " %H %M ", "x%%y"}) {
    for (const bool utc : {false, true}) {
      const std::string text = DateCall{utc, format}.text();
      const auto call = DateCall::parse(std::string_view(text).substr(2, text.size() - 3));
      ASSERT_TRUE(call.ok()) << text;
      EXPECT_EQ(call->utc, utc) << text;
      EXPECT_EQ(call->format, format) << text;
    }
  }
}

TEST(DateCall, SaysWhetherAShellSplitsTheOutput) {
  const auto splits = [](std::string_view call) { return DateCall::parse(call)->needs_quotes(); };
  EXPECT_FALSE(splits("date +%Y%m%d_%H%M%S"));
  EXPECT_FALSE(splits("date -u +%F"));
  EXPECT_TRUE(splits("date"));
  EXPECT_TRUE(splits("date +%e"));
  EXPECT_TRUE(splits("date +%_d"));
  EXPECT_TRUE(splits("date \"+%H %M\""));
  EXPECT_TRUE(splits("date +%H*"));
}

}  // namespace
}  // namespace tilewright::launch
