// Paths as the API server knows them.
#include "controller/kube/resource.h"

#include <gtest/gtest.h>

#include "controller/kube/base64.h"

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
  EXPECT_EQ(query_text({}), "");
  EXPECT_EQ(query_text({{"labelSelector", "a.b/c=d,e!=f"}, {"limit", "5"}}),
            "?labelSelector=a.b%2Fc%3Dd%2Ce%21%3Df&limit=5");
}

TEST(Base64, IsTheOneOfRfc4648) {
  for (const auto& [bytes, text] : {std::pair<std::string, std::string>{"", ""},
                                    {"f", "Zg=="},
                                    {"fo", "Zm8="},
                                    {"foo", "Zm9v"},
                                    {"foob", "Zm9vYg=="},
                                    {"foobar", "Zm9vYmFy"}}) {
    EXPECT_EQ(encode_base64(bytes), text);
    EXPECT_EQ(decode_base64(text), bytes);
  }
  EXPECT_EQ(decode_base64("Zm9v\nYmFy\r\n"), "foobar");
  EXPECT_FALSE(decode_base64("Zg="));
  EXPECT_FALSE(decode_base64("Z*=="));
}

}  // namespace
}  // namespace tilewright::kube
