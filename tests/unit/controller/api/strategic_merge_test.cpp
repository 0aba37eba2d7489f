// The cases follow the documentation of strategic merge patches in Kubernetes.
#include "controller/api/strategic_merge.h"

#include <gtest/gtest.h>

namespace tilewright::api {
namespace {

using nlohmann::json;

json merged(const char* pod, const char* overlay) {
  json result = json::parse(pod);
  strategic_merge(result, json::parse(overlay));
  return result;
}

TEST(StrategicMerge, MergesMapsAndReplacesScalars) {
  EXPECT_EQ(merged(R"({"a": {"b": 1, "c": 2}, "d": 3})", R"({"a": {"c": 4, "e": 5}})"),
            json::parse(R"({"a": {"b": 1, "c": 4, "e": 5}, "d": 3})"));
}

TEST(StrategicMerge, MergesContainersByNameAndTheirListsByTheirKeys) {
  EXPECT_EQ(merged(R"({"containers": [{"name": "worker", "env": [{"name": "A", "value": "1"}],
                 "volumeMounts": [{"mountPath": "/m", "name": "v"}]}]})",
                   R"({"containers": [{"name": "side", "image": "s"},
                 {"name": "worker", "env": [{"name": "B", "value": "2"}, {"name": "A", "value": "3"}],
                  "volumeMounts": [{"mountPath": "/m", "readOnly": true}]}]})"),
            json::parse(R"({"containers": [
          {"name": "worker", "env": [{"name": "A", "value": "3"}, {"name": "B", "value": "2"}],
           "volumeMounts": [{"mountPath": "/m", "name": "v", "readOnly": true}]},
          {"name": "side", "image": "s"}]})"));
}

TEST(StrategicMerge, ReplacesListsWithoutAMergeKey) {
  EXPECT_EQ(merged(R"({"args": ["a", "b"], "tolerations": [{"key": "x"}]})",
                   R"({"args": ["c"], "tolerations": [{"key": "y"}]})"),
            json::parse(R"({"args": ["c"], "tolerations": [{"key": "y"}]})"));
}

TEST(StrategicMerge, HandlesMismatchedTypes) {
  EXPECT_EQ(merged(R"({"containers": {"a": 1}})", R"({"containers": [{"name": "x"}]})"),
            json::parse(R"({"containers": [{"name": "x"}]})"));
  EXPECT_EQ(merged(R"({"containers": [{"name": "x"}]})", R"({"containers": [7, {"name": 3}]})"),
            json::parse(R"({"containers": [{"name": "x"}, 7, {"name": 3}]})"));
}

}  // namespace
}  // namespace tilewright::api
