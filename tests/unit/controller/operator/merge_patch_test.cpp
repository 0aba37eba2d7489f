// Tests of merge_patch_between(): applying the patch with nlohmann's merge_patch gives `after`.
#include "controller/operator/merge_patch.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace tilewright::controller {
namespace {

using nlohmann::json;

class Trees {
 public:
  explicit Trees(std::uint64_t seed) : random_(seed) {}

  // Few names, so that two trees share many of them.
  json object(int depth) {
    json tree = json::object();
    for (const char* name : {"a", "b", "c", "d"}) {
      if (below(2) == 0) tree[name] = value(depth);
    }
    return tree;
  }

  // A copy with a few changes.
  json changed(const json& tree) {
    json other = tree;
    for (auto& [name, member] : other.items()) {
      if (below(3) > 0) continue;
      member = member.is_object() && below(2) == 0 ? changed(member) : value(2);
    }
    if (!other.empty() && below(4) == 0) other.erase(other.begin());
    return other;
  }

 private:
  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }
  json value(int depth) {
    switch (below(depth > 0 ? 6 : 4)) {
      case 0:
        return below(3);
      case 1:
        return std::string(1, static_cast<char>('x' + below(3)));
      case 2:
        return below(2) == 0;
      case 3:
        // Array elements may be null, because arrays are replaced as a whole.
        return json::array({below(2), nullptr, json{{"n", nullptr}}});
      default:
        return object(depth - 1);
    }
  }
  std::mt19937_64 random_;
};

TEST(MergePatch, TransformsAnyTreeIntoAnyOther) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Trees trees(seed);
    const json before = trees.object(3);
    const json after = seed % 2 == 0 ? trees.object(3) : trees.changed(before);
    const json patch = merge_patch_between(before, after);
    json patched = before;
    patched.merge_patch(patch);
    ASSERT_EQ(patched, after) << "seed " << seed << ": " << before << " by " << patch;
    ASSERT_EQ(patch.empty(), before == after) << "seed " << seed << ": " << patch;
  }
}

TEST(MergePatch, ContainsOnlyChanges) {
  const json before = {{"phase", "Running"},
                       {"replicas", {{"ready", 1}, {"desired", 2}}},
                       {"progress", {{"step", 5}}},
                       {"selector", "app=x"}};
  json after = before;
  after["replicas"]["ready"] = 2;
  after.erase("progress");
  EXPECT_EQ(merge_patch_between(before, after),
            json({{"replicas", {{"ready", 2}}}, {"progress", nullptr}}));
}

TEST(MergePatch, ReplacesArraysAsAWhole) {
  const json before = {{"list", {{{"a", 1}}, {{"b", 2}}}}};
  const json after = {{"list", {{{"a", 1}}, {{"b", 3}}}}};
  EXPECT_EQ(merge_patch_between(before, after), after);
}

}  // namespace
}  // namespace tilewright::controller
