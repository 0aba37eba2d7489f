// Tests the names of staging directories and which of them are removed.
#include "worker/checkpoint/staging.h"

#include <memory>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "tests/unit/worker/checkpoint/checkpoint_testing.h"

namespace tilewright::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Staging : public ::testing::Test {
 protected:
  // Leaves a staging directory until the end of the test, as a process does that dies.
  std::string leave(const Writer& writer) {
    left_.push_back(std::make_unique<StagingDirectory>(directory_.path(), "target", writer));
    write_file(left_.back()->path() / "a", "1");
    return left_.back()->path().filename();
  }

  tilewright::testing::TemporaryDirectory directory_;
  std::vector<std::unique_ptr<StagingDirectory>> left_;
  const Writer owner_ = Writer{"uid-1", 5, new_writer_id()};
};

TEST_F(Staging, HasANameOfItsOwn) {
  const StagingDirectory first(directory_.path(), "target", owner_);
  const StagingDirectory second(directory_.path(), "target", owner_);
  EXPECT_NE(first.path(), second.path());
  EXPECT_TRUE(is_staging_name(first.path().filename()));
}

TEST_F(Staging, IsNotConfusedWithOtherHiddenNames) {
  EXPECT_TRUE(is_staging_name(".target.tmp-0123456789abcdef"));
  for (const char* name : {".target", ".tmp-0123456789abcdef", ".target.tmp-",
                           ".target.tmp-0123456789abcde", ".target.tmp-0123456789abcdef0",
                           "target.tmp-0123456789abcdef", ".target.tmp-0123456789ABCDEF"}) {
    EXPECT_FALSE(is_staging_name(name)) << name;
  }
}

TEST_F(Staging, IsRemovedOnlyIfItsWriterHasEnded) {
  const std::string newer = leave(Writer{"uid-1", 6, new_writer_id()});
  const std::string own = leave(owner_);
  std::vector<std::string> ended = {leave(Writer{"uid-1", 4, new_writer_id()}),
                                    leave(Writer{"uid-1", 5, new_writer_id()}),
                                    leave(Writer{"uid-2", 9, new_writer_id()})};
  std::filesystem::create_directory(directory_.path() / ".unnamed.tmp-0123456789abcdef");
  std::vector<std::string> removed = remove_staging_of_ended_writers(directory_.path(), owner_);
  std::ranges::sort(ended);
  std::ranges::sort(removed);
  EXPECT_EQ(removed, ended);
  std::vector<std::string> kept = {".unnamed.tmp-0123456789abcdef", newer, own};
  std::ranges::sort(kept);
  EXPECT_EQ(names_in(directory_.path()), kept);
}

TEST_F(Staging, IsNotAUserFileWithSuchAName) {
  write_file(directory_.path() / ".notes.tmp-0123456789abcdef", "text");
  EXPECT_THAT(remove_staging_of_ended_writers(directory_.path(), owner_), IsEmpty());
  EXPECT_THAT(names_in(directory_.path()), ElementsAre(".notes.tmp-0123456789abcdef"));
}

}  // namespace
}  // namespace tilewright::checkpoint
