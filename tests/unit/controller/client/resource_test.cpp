// Tests of resource paths and queries.
#include "controller/client/resource.h"

#include <gtest/gtest.h>

namespace tilewright::kube {
namespace {

TEST(Resource, HasThePathsOfTheApiServer) {
  EXPECT_EQ(path_of(resource::pods(), "default", "a", "status"),
            "/api/v1/namespaces/default/pods/a/status");
  EXPECT_EQ(path_of(resource::pods(), "", ""), "/api/v1/pods");
  EXPECT_EQ(path_of(resource::leases(), "ns", "a"),
            "/apis/coordination.k8s.io/v1/namespaces/ns/leases/a");
  EXPECT_EQ(path_of(resource::nodes(), "ignored", "n1"), "/api/v1/nodes/n1");
  EXPECT_EQ(path_of(resource::pods(), "default", "../secrets"),
            "/api/v1/namespaces/default/pods/..%2Fsecrets");
}

TEST(Resource, EncodesQueries) {
  EXPECT_EQ(query_string({}), "");
  EXPECT_EQ(query_string({{"labelSelector", "a.b/c=d,e!=f"}, {"limit", "5"}}),
            "?labelSelector=a.b%2Fc%3Dd%2Ce%21%3Df&limit=5");
}

}  // namespace
}  // namespace tilewright::kube
