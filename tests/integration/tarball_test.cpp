// The tarball of the worker, in a root that holds nothing else but /proc and /dev; for a training
// also model, data and /tmp.
#include "tests/integration/tarball.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <regex>

#include "tests/integration/training_fixture.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;
using testing::CommandResult;
using ::testing::HasSubstr;

class Tarball : public testing::Training {
 protected:
  void SetUp() override {
    Training::SetUp();
    std::string missing = testing::missing_for_tarball();
    if (geteuid() != 0) missing = "chroot needs root";
    if (!missing.empty()) {
      if (testing::prerequisites_required()) FAIL() << missing;
      GTEST_SKIP() << missing;
    }
    name_ = testing::unpack_tarball(root()).filename();
    ASSERT_NE(name_, "");
  }
  fs::path root() const { return folder() / "root"; }

  // Runs the start program in the root, which has /proc and /dev; the mounts end with the command.
  // `prepare`: shell commands that add more.
  CommandResult in_root(const std::string& words, const std::string& prepare = "") const {
    return testing::run_script(
        "unshare --mount --pid --fork bash -euc '"
        "mkdir -p \"$R/proc\" \"$R/dev\";"
        "mount -t proc proc \"$R/proc\"; mount --bind /dev \"$R/dev\";" +
            prepare + "exec /usr/sbin/chroot \"$R\" /\"$NAME\"/tilewright-worker " + words + "'",
        {{"R", root()},
         {"NAME", name_},
         {"MODEL", testing::model_dir()},
         {"DATA", testing::source_dir() / "examples/data/paraphrase"},
         {"SSL_CERT_FILE", ""}},
        testing::kTarballTimeout);
  }

  std::string name_;
};

TEST_F(Tarball, RunsInARootThatHoldsNothingElse) {
  EXPECT_TRUE(std::regex_match(name_, std::regex("tilewright-worker-[0-9.]+-x86_64"))) << name_;
  for (const char* file :
       {"LICENSE", "NOTICE", "share/ca-certificates.crt", "share/doc/libc6/copyright",
        "lib/ld-linux-x86-64.so.2", "lib/libc.so.6"})
    EXPECT_TRUE(fs::exists(root() / name_ / file)) << file;
  EXPECT_TRUE(fs::exists(root() / name_ / "share/sbom" / (name_ + ".spdx.json")));
  const CommandResult version = in_root("--version");
  EXPECT_EQ(version.exit_code, 0) << version.output;
  EXPECT_THAT(version.output, HasSubstr("tilewright-worker "));
  int entries = 0;
  for (const auto& entry : fs::directory_iterator(root())) entries += entry.exists() ? 1 : 0;
  EXPECT_EQ(entries, 3) << "the tarball, /proc and /dev";
  const CommandResult doctor = in_root("doctor");
  EXPECT_EQ(doctor.exit_code, 0) << doctor.output;
  EXPECT_THAT(doctor.output, HasSubstr("selected kernels"));
}

TEST_F(Tarball, TrainsWithTheHashOfTheProgram) {
  const std::string reference =
      train_in_one_process("one", 1, {"--model_name_or_path=" + testing::model_dir().string()});
  const CommandResult trained = in_root(
      "agent --nproc-per-node=2 -- train --task_name=mrpc --model_name_or_path=/model "
      "--data_dir=/data --output_dir=/tmp/out --per_device_train_batch_size=4 "
      "--nominal_workers=2 --max_workers=3 --learning_rate=1e-4 --max_steps=12 --save_steps=4 "
      "--do_eval=false --threads=1",
      "mkdir \"$R/model\" \"$R/data\" \"$R/tmp\";"
      "mount --bind \"$MODEL\" \"$R/model\"; mount --bind \"$DATA\" \"$R/data\";");
  EXPECT_EQ(trained.exit_code, 0) << trained.output;
  output_ = trained.output;
  EXPECT_EQ(digest(), reference);
}

TEST_F(Tarball, SaysThatALibraryOfTheSystemIsNotPreloaded) {
  const CommandResult result = testing::run_script(
      "LD_PRELOAD=/lib/libmissing.so \"$R/$NAME/tilewright-worker\" --version 2>&1",
      {{"R", root()}, {"NAME", name_}});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("LD_PRELOAD=/lib/libmissing.so has no effect"));
}

// The bill of materials could not list it.
TEST(TarballOfAProgram, WithALibraryOfNoPackageIsRefusedWithItsName) {
  const std::string missing = testing::missing_for_tarball();
  if (!missing.empty()) {
    if (testing::prerequisites_required()) FAIL() << missing;
    GTEST_SKIP() << missing;
  }
  const testing::TemporaryDirectory directory;
  const CommandResult result = testing::run_script(
      "cd \"$DIRECTORY\";"
      "echo 'int foreign(void) { return 0; }' | cc -shared -fPIC -o libforeign.so -xc -;"
      "echo 'int foreign(void); int main(void) { return foreign(); }' >main.c;"
      "cc -o tilewright-worker main.c -L. -lforeign -Wl,-rpath,\"$DIRECTORY\";"
      "\"$SOURCE/docker/tarball\" \"$DIRECTORY/tilewright-worker\" \"$DIRECTORY/packed\"",
      {{"DIRECTORY", directory.path()}, {"SOURCE", testing::source_dir()}});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.output, HasSubstr("libforeign.so: found in no Debian package"));
}

}  // namespace
}  // namespace tilewright
