#include "common/rendezvous/unauthenticated.h"

#include <gtest/gtest.h>

namespace tilewright::rendezvous {
namespace {

TEST(UnauthenticatedConnections, ASourceAboveItsShareLosesItsOldest) {
  UnauthenticatedConnections connections(10, 2);
  EXPECT_FALSE(connections.add(1, "10.0.0.9"));
  EXPECT_FALSE(connections.add(2, "10.0.0.1"));
  EXPECT_FALSE(connections.add(3, "10.0.0.1"));
  const auto evicted = connections.add(4, "10.0.0.1");
  ASSERT_TRUE(evicted);
  EXPECT_EQ(evicted->id, 2u);
  EXPECT_TRUE(evicted->share_used);
  EXPECT_EQ(connections.size(), 3u);
  EXPECT_FALSE(connections.add(5, "10.0.0.9")) << "another source keeps its share";
}

TEST(UnauthenticatedConnections, TheOldestClosesWhenAllSlotsAreInUse) {
  UnauthenticatedConnections connections(3, 2);
  EXPECT_FALSE(connections.add(1, "a"));
  EXPECT_FALSE(connections.add(2, "b"));
  EXPECT_FALSE(connections.add(3, "c"));
  const auto evicted = connections.add(4, "d");
  ASSERT_TRUE(evicted);
  EXPECT_EQ(evicted->id, 1u);
  EXPECT_FALSE(evicted->share_used);
}

TEST(UnauthenticatedConnections, AProofFreesTheSlot) {
  UnauthenticatedConnections connections(2, 1);
  EXPECT_FALSE(connections.add(1, "a"));
  EXPECT_FALSE(connections.add(2, "b"));
  connections.remove(1);
  connections.remove(1);
  EXPECT_FALSE(connections.add(3, "a"));
}

}  // namespace
}  // namespace tilewright::rendezvous
