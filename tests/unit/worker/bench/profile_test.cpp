#include "worker/bench/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/unit/worker/bench/well_formed_xml.h"

namespace tilewright::bench {
namespace {

using ::testing::HasSubstr;
using testing::is_well_formed_xml;

// A step of 100 ms: 20 ms at 1,000 GFLOP/s, 50 ms at 2 GB/s, 30 ms outside kernels.
Profile small_profile() {
  Profile profile;
  profile.title = "bert-base 12 x 384, \"Xeon\" <R> & co";
  profile.kernels = {{.kernel = "linear dW",
                      .shape = "8 x 16 x 32",
                      .calls = 3,
                      .seconds = 0.02,
                      .operations = 2e10},
                     {.kernel = "gelu_forward", .calls = 1, .seconds = 0.05, .bytes = 1e8}};
  profile.seconds = 0.1;
  profile.peak_gflops = 4000;
  return profile;
}

TEST(Profile, CountsTheTimeOutsideKernels) {
  EXPECT_NEAR(small_profile().other_seconds(), 0.03, 1e-12);
}

TEST(Profile, SortsByTime) {
  Profile profile = small_profile();
  profile.sort_by_time();
  EXPECT_EQ(profile.kernels[0].kernel, "gelu_forward");
  EXPECT_EQ(profile.kernels[1].kernel, "linear dW");
}

TEST(Profile, HasRatesAndSharesInJson) {
  const nlohmann::ordered_json rows = small_profile().to_json();
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["shape"], "8 x 16 x 32");
  EXPECT_DOUBLE_EQ(rows[0]["gflops"], 1000);
  EXPECT_DOUBLE_EQ(rows[0]["share_of_peak"], 0.25);
  EXPECT_DOUBLE_EQ(rows[0]["share_of_step"], 0.2);
  EXPECT_FALSE(rows[0].contains("gigabytes_per_second"));
  EXPECT_DOUBLE_EQ(rows[1]["gigabytes_per_second"], 2);
  EXPECT_FALSE(rows[1].contains("gflops"));
  EXPECT_EQ(rows[2]["kernel"], "other");
  EXPECT_NEAR(rows[2]["share_of_step"].get<double>(), 0.3, 1e-9);
}

TEST(Profile, PrintsALineForEachKernelAndTheRest) {
  const std::string text = small_profile().to_text();
  EXPECT_THAT(text, HasSubstr("linear dW 8 x 16 x 32"));
  EXPECT_THAT(text, HasSubstr("25.0 %"));
  EXPECT_THAT(text, ::testing::ContainsRegex("other +30.000 +30.0 %"));
  EXPECT_THAT(text, ::testing::ContainsRegex("total +100.000 +100.0 %"));
}

TEST(Profile, DrawsWellFormedSvg) {
  const std::string svg = small_profile().to_svg();
  EXPECT_TRUE(is_well_formed_xml(svg)) << svg;
  EXPECT_THAT(svg, HasSubstr("&quot;Xeon&quot; &lt;R&gt; &amp; co"));
  EXPECT_THAT(svg, HasSubstr("20.00 ms, 20.0 %; 1000 GFLOP/s, 25.0 %"));
  // The longest bar has 330 units.
  EXPECT_THAT(svg, HasSubstr("width=\"330.0\""));
  EXPECT_THAT(svg, HasSubstr("width=\"132.0\"")) << "20 of 50 ms";
}

TEST(WellFormedXml, RefusesWhatIsNot) {
  EXPECT_TRUE(is_well_formed_xml("<a b=\"c\"><d/>x &amp; y</a>\n"));
  for (const char* bad :
       {"", "<a>", "<a></b>", "<a/><b/>", "<a>&</a>", "<a b=c/>", "x<a/>", "<a><b></a></b>"}) {
    EXPECT_FALSE(is_well_formed_xml(bad)) << bad;
  }
}

}  // namespace
}  // namespace tilewright::bench
