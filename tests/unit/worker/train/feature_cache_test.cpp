#include "worker/train/feature_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/base_sink.h>

#include <condition_variable>
#include <fstream>
#include <future>
#include <mutex>

#include "common/base/result.h"
#include "tests/support/paths.h"
#include "tests/unit/worker/tasks/dataset_builders.h"
#include "worker/checkpoint/staging.h"

namespace tilewright::train {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Keeps the lines, which other threads may log.
class LineSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  std::string text() {
    const std::lock_guard lock(mutex_);
    return text_;
  }
  bool wait_for(const std::string& line) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60),
                             [&] { return text_.find(line) != std::string::npos; });
  }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    text_ += std::string(message.payload.data(), message.payload.size()) + "\n";
    changed_.notify_all();
  }
  void flush_() override {}

  std::string text_;
  std::condition_variable_any changed_;
};

class FeatureCacheTest : public ::testing::Test {
 protected:
  FeatureCacheTest() {
    options_.directory = folder_.path() / "cache/tilewright";
    options_.program = "build 1";
    options_.min_input_bytes = 1;
    write_input("text");
    std::ofstream(vocabulary_) << "[PAD]\n";
    expected_ = tasks::Dataset(tasks::small_lists());
    expected_.warnings = {"train.tsv: skipped 1 row"};
  }

  void write_input(const std::string& content) {
    std::ofstream(input_, std::ios::binary) << content;
  }

  FeatureCache::Key key() const {
    return {.settings = settings_,
            .data_files = {input_},
            .tokenizer_files = {vocabulary_},
            .limits = {}};
  }
  tasks::Dataset get() {
    return FeatureCache(options_, log_).get(key(), [&] {
      ++reads_;
      return expected_;
    });
  }
  // Whether get() calls `read`.
  bool reads() {
    const int before = reads_;
    expect_equal(get(), expected_);
    return reads_ > before;
  }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    if (!fs::exists(options_.directory)) return names;
    for (const auto& entry : fs::directory_iterator(options_.directory)) {
      if (entry.path().extension() != ".lock") names.push_back(entry.path().filename());
    }
    return names;
  }
  // The only entry.
  fs::path entry() const {
    const std::vector<std::string> all = names();
    EXPECT_EQ(all.size(), 1U);
    return options_.directory / all.at(0);
  }
  fs::path lock_path() const { return entry().string() + ".lock"; }

  const testing::TemporaryDirectory folder_;
  const fs::path input_ = folder_.path() / "train.tsv";
  const fs::path vocabulary_ = folder_.path() / "vocab.txt";
  FeatureCacheOptions options_;
  std::string settings_ = "settings";
  tasks::Dataset expected_;
  int reads_ = 0;
  const std::shared_ptr<LineSink> lines_ = std::make_shared<LineSink>();
  Logger log_{"", lines_};
};

TEST_F(FeatureCacheTest, ReadsOnce) {
  EXPECT_TRUE(reads());
  EXPECT_FALSE(fs::exists(lock_path()));
  EXPECT_FALSE(reads());
  EXPECT_THAT(lines_->text(),
              HasSubstr("training data: 2 examples from the cache " + entry().string()));
}

TEST_F(FeatureCacheTest, ReplacesBytesOfAWarningThatAreNoText) {
  expected_.warnings = {"\xff is no UTF-8 name"};
  get();
  EXPECT_EQ(get().warnings.at(0), "\xEF\xBF\xBD is no UTF-8 name");
  EXPECT_EQ(reads_, 1);
}

TEST_F(FeatureCacheTest, ReadsAgainAfterEachChangeOfItsInput) {
  EXPECT_TRUE(reads());
  settings_ = "others";
  EXPECT_TRUE(reads());
  options_.program = "build 2";
  EXPECT_TRUE(reads());
  write_input("tex_");
  EXPECT_TRUE(reads());
  std::ofstream(vocabulary_) << "[pad]\n";
  EXPECT_TRUE(reads());
  EXPECT_FALSE(reads());
  EXPECT_EQ(names().size(), 5U);
}

TEST_F(FeatureCacheTest, KeepsOnlyWhatItCanIdentifyAndIsWorthIt) {
  options_.min_input_bytes = 5;
  EXPECT_TRUE(reads());
  options_.min_input_bytes = 4;
  options_.program.clear();
  EXPECT_TRUE(reads());
  options_.program = "build 1";
  const FeatureCache::Key without_files{
      .settings = "", .data_files = {}, .tokenizer_files = {}, .limits = {}};
  FeatureCache(options_, log_).get(without_files, [&] { return expected_; });
  options_.directory.clear();
  EXPECT_TRUE(reads());
  EXPECT_FALSE(fs::exists(folder_.path() / "cache"));
}

TEST_F(FeatureCacheTest, OverwritesOnRequest) {
  EXPECT_TRUE(reads());
  options_.overwrite = true;
  EXPECT_TRUE(reads());
  EXPECT_TRUE(reads());
  options_.overwrite = false;
  EXPECT_FALSE(reads());
}

TEST_F(FeatureCacheTest, ADamagedEntryIsReplaced) {
  EXPECT_TRUE(reads());
  const std::string whole = testing::read_text(entry());
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    std::ofstream(entry(), std::ios::binary) << damaged;
    // A blank of the header, or the case of a letter in it, may change without an effect.
    if (!reads()) {
      EXPECT_LT(at, whole.rfind('}') + 8);
    }
  }
  for (std::size_t size = 0; size < whole.size(); size += 7) {
    std::ofstream(entry(), std::ios::binary) << whole.substr(0, size);
    EXPECT_TRUE(reads()) << size;
    EXPECT_FALSE(reads()) << size;
  }
  EXPECT_THAT(lines_->text(), HasSubstr(": the training data are tokenized again"));
}

TEST_F(FeatureCacheTest, OneOfSeveralProcessesReads) {
  EXPECT_TRUE(reads());
  const fs::path path = entry();
  const std::string whole = testing::read_text(path);
  fs::remove(path);
  std::optional<FileLock> other(std::in_place, path.string() + ".lock", [] { return false; });
  ASSERT_EQ(other->state(), FileLock::State::kLocked);
  auto found = std::async(std::launch::async, [&] { return get(); });
  EXPECT_TRUE(lines_->wait_for("waiting for another process that tokenizes the training data"));
  std::ofstream(path, std::ios::binary) << whole;
  other.reset();
  expect_equal(found.get(), expected_);
  EXPECT_EQ(reads_, 1);
}

TEST_F(FeatureCacheTest, ReadsIfTheOtherProcessHasEndedWithoutAnEntry) {
  EXPECT_TRUE(reads());
  const fs::path path = entry();
  fs::remove(path);
  std::optional<FileLock> other(std::in_place, path.string() + ".lock", [] { return false; });
  auto found = std::async(std::launch::async, [&] { return get(); });
  EXPECT_TRUE(lines_->wait_for("waiting for another process that tokenizes the training data"));
  other.reset();
  expect_equal(found.get(), expected_);
  EXPECT_EQ(reads_, 2);
  EXPECT_FALSE(reads());
}

TEST_F(FeatureCacheTest, WaitsForAnotherProcessOnlyUntilItsDeadline) {
  EXPECT_TRUE(reads());
  const FileLock other(lock_path(), [] { return false; });
  fs::remove(entry());
  options_.wait = Duration(1);
  EXPECT_TRUE(reads());
  EXPECT_THAT(names(), IsEmpty());
  EXPECT_THAT(lines_->text(), HasSubstr("they are tokenized without the cache"));
}

TEST_F(FeatureCacheTest, WaitCanBeCancelled) {
  EXPECT_TRUE(reads());
  const FileLock other(lock_path(), [] { return false; });
  fs::remove(entry());
  net::WakeUp cancel;
  cancel.signal();
  options_.cancel = &cancel;
  try {
    get();
    ADD_FAILURE() << "not cancelled";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kTerminated);
  }
}

TEST_F(FeatureCacheTest, TrainsWithoutADirectory) {
  options_.directory = input_ / "cache";
  EXPECT_TRUE(reads());
  EXPECT_THAT(lines_->text(),
              HasSubstr("the training data are not cached: " + options_.directory.string() +
                        ": cannot create the directory: Not a directory"));
}

TEST_F(FeatureCacheTest, TrainsWithoutAnEntryThatCannotBeWritten) {
  EXPECT_TRUE(reads());
  const fs::path path = entry();
  fs::remove(path);
  fs::create_directories(path / "occupied");
  EXPECT_TRUE(reads());
  EXPECT_THAT(lines_->text(), HasSubstr("cannot rename: Is a directory"));
  EXPECT_EQ(names().size(), 1U) << "a staging file is left";
}

TEST_F(FeatureCacheTest, AFailureToReadIsThatOfTheTask) {
  const FeatureCache cache(options_, log_);
  const auto fail = []() -> tasks::Dataset { throw Failure(ExitCode::kData, "line 7"); };
  EXPECT_THROW(cache.get(key(), fail), Failure);
  EXPECT_TRUE(fs::is_empty(options_.directory));
  fs::remove(input_);
  EXPECT_THROW(cache.get(key(), fail), Failure);
}

TEST_F(FeatureCacheTest, RemovesTheLeastRecentlyUsedEntries) {
  EXPECT_TRUE(reads());
  const fs::path first = entry();
  settings_ = "second";
  EXPECT_TRUE(reads());
  const auto now = fs::file_time_type::clock::now();
  for (const std::string& name : names()) {
    const bool is_first = options_.directory / name == first;
    fs::last_write_time(options_.directory / name, now - std::chrono::hours(is_first ? 2 : 1));
  }
  const fs::path young = options_.directory / checkpoint::new_staging_name("a.safetensors");
  const fs::path old = options_.directory / checkpoint::new_staging_name("a.safetensors");
  for (const fs::path& staging : {young, old}) std::ofstream(staging) << "x";
  fs::last_write_time(old, now - std::chrono::hours(2));
  options_.max_bytes = 2 * fs::file_size(first);
  settings_ = "third";
  EXPECT_TRUE(reads());
  EXPECT_FALSE(fs::exists(first));
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(young));
  EXPECT_EQ(names().size(), 3U);
  settings_ = "second";
  EXPECT_FALSE(reads()) << "its use makes it the youngest";
  settings_ = "fourth";
  EXPECT_TRUE(reads());
  settings_ = "second";
  EXPECT_FALSE(reads());
}

}  // namespace
}  // namespace tilewright::train
