// Expected values follow the API reference of Kubernetes for EnvVar.value and Container.args.
#include "controller/api/expansion.h"

#include <gtest/gtest.h>

namespace tilewright::api {
namespace {

const Environment kVariables = {{"A", "a"}, {"B", "$(A)"}, {"EMPTY", ""}, {"X.Y", "dotted"}};

TEST(Expansion, SubstitutesValuesOnce) {
  EXPECT_EQ(expand("$(A)", kVariables), "a");
  EXPECT_EQ(expand("x$(A)y$(A)z", kVariables), "xayaz");
  EXPECT_EQ(expand("$(B)", kVariables), "$(A)");
  EXPECT_EQ(expand("[$(EMPTY)]", kVariables), "[]");
  EXPECT_EQ(expand("$(X.Y)", kVariables), "dotted");
}

TEST(Expansion, KeepsReferencesToUnknownVariables) {
  EXPECT_EQ(expand("$(NONE)", kVariables), "$(NONE)");
  EXPECT_EQ(expand("$()", kVariables), "$()");
  EXPECT_EQ(expand("$( A)", kVariables), "$( A)");
}

TEST(Expansion, UnescapesDoubledDollars) {
  EXPECT_EQ(expand("$$(A)", kVariables), "$(A)");
  EXPECT_EQ(expand("$$$(A)", kVariables), "$a");
  EXPECT_EQ(expand("$$$$(A)", kVariables), "$$(A)");
  EXPECT_EQ(expand("$$", kVariables), "$");
  EXPECT_EQ(expand("a$$b", kVariables), "a$b");
}

TEST(Expansion, KeepsOtherDollars) {
  EXPECT_EQ(expand("$A ${A} 5$", kVariables), "$A ${A} 5$");
  EXPECT_EQ(expand("$", kVariables), "$");
  EXPECT_EQ(expand("", kVariables), "");
  EXPECT_EQ(expand("$A$(A)", kVariables), "$Aa");
}

TEST(Expansion, KeepsAnUnclosedReference) {
  EXPECT_EQ(expand("$(A", kVariables), "$(A");
  EXPECT_EQ(expand("$(A $(A)", kVariables), "$(A $(A)");  // names the variable "A $(A"
  EXPECT_EQ(expand("$(", kVariables), "$(");
}

TEST(Expansion, IsBounded) {
  std::vector<std::pair<std::string, std::string>> list = {{"V0", "0123456789"}};
  for (int i = 1; i < 60; ++i) {
    const std::string reference = "$(V" + std::to_string(i - 1) + ")";
    list.emplace_back("V" + std::to_string(i), reference + reference);
  }
  // Without a bound V59 would have 5e18 bytes.
  const Environment variables = expand_environment(list);
  EXPECT_EQ(variables.at("V1").size(), 20U);
  EXPECT_EQ(variables.at("V59").size(), kMaxExpandedBytes + 1);
  EXPECT_EQ(expand("$(V59)$(V59)", variables).size(), kMaxExpandedBytes + 1);
}

TEST(Expansion, ResolvesEarlierVariables) {
  const Environment out = expand_environment({{"FIRST", "1"},
                                              {"SECOND", "$(FIRST)2"},
                                              {"THIRD", "$(SECOND)3"},
                                              {"EARLY", "$(LATE)"},
                                              {"LATE", "late"},
                                              {"HOST", "$(OUTSIDE)"}},
                                             {{"OUTSIDE", "o"}, {"FIRST", "hidden"}});
  EXPECT_EQ(out.at("SECOND"), "12");
  EXPECT_EQ(out.at("THIRD"), "123");
  EXPECT_EQ(out.at("EARLY"), "$(LATE)");
  EXPECT_EQ(out.at("HOST"), "o");
  EXPECT_FALSE(out.contains("OUTSIDE"));
}

TEST(Expansion, ResolvesAnEarlierVariableOfTheSameName) {
  EXPECT_EQ(expand_environment({{"P", "a"}, {"P", "$(P):b"}}).at("P"), "a:b");
}

}  // namespace
}  // namespace tilewright::api
