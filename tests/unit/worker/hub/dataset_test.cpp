#include "worker/hub/dataset.h"

#include <sys/fsuid.h>
#include <unistd.h>

#include "tests/unit/worker/hub/hub_fixture.h"

namespace tilewright::hub {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Key;
using ::testing::Not;
using testing::read_text;

class Dataset : public HubTest {
 protected:
  void add_squad(const std::string& name = "rajpurkar/squad") {
    add(name, "plain_text/train-00000-of-00001.parquet", 1);
    add(name, "plain_text/validation-00000-of-00001.parquet", 2);
    server_.add_file(kDatasetType, name, "README.md", "# SQuAD");
  }
  void add_glue() {
    for (const char* split : {"test_matched", "test_mismatched", "train", "validation_matched",
                              "validation_mismatched"}) {
      add("nyu-mll/glue", fmt::format("mnli/{}-00000-of-00001.parquet", split), 3);
    }
    for (const char* split : {"test", "train", "validation"}) {
      add("nyu-mll/glue", fmt::format("mrpc/{}-00000-of-00001.parquet", split), 4);
    }
  }
  void add(const std::string& name, const std::string& path, unsigned seed) {
    server_.add_file(kDatasetType, name, path, pattern(20'000, seed));
  }
  DatasetFiles resolve(const std::string& name, const std::string& config = "",
                       const std::string& revision = "main") {
    return resolve_dataset({.name = name, .config = config, .revision = revision}, options_);
  }
  // A data set as the datasets library prepares it.
  fs::path add_arrow(const std::string& folder, const std::string& config, const std::string& hash,
                     const std::string& name, bool sharded = false) {
    fs::path path = options_.datasets_cache / folder / config / "0.0.0" / hash;
    const std::string lengths = sharded ? R"(, "shard_lengths": [2, 3])" : "";
    write_file(path / "dataset_info.json", fmt::format(R"({{"config_name": "{}", "splits": {{
                 "train": {{"name": "train", "num_examples": 5{}}},
                 "validation": {{"name": "validation", "num_examples": 3}}}}}})",
                                                       config, lengths));
    if (sharded) {
      write_file(path / (name + "-train-00000-of-00002.arrow"), "0");
      write_file(path / (name + "-train-00001-of-00002.arrow"), "1");
    } else {
      write_file(path / (name + "-train.arrow"), "arrow");
    }
    write_file(path / (name + "-validation.arrow"), "arrow");
    return path;
  }
};

TEST_F(Dataset, IsDownloadedIntoACacheOfHuggingfaceHub) {
  add_squad();
  server_.add_alias(kDatasetType, "squad", "rajpurkar/squad");
  const std::string commit = server_.commit(kDatasetType, "rajpurkar/squad");
  const DatasetFiles files = resolve("squad");
  EXPECT_EQ(files.format, DatasetFiles::Format::kParquet);
  EXPECT_EQ(files.config, "plain_text");
  EXPECT_THAT(files.splits, ElementsAre(Key("train"), Key("validation")));
  const fs::path folder = options_.cache_dir / "datasets--squad";
  EXPECT_THAT(files.splits.at("train"), ElementsAre(folder / "snapshots" / commit /
                                                    "plain_text/train-00000-of-00001.parquet"));
  EXPECT_EQ(read_text(files.splits.at("train")[0]), pattern(20'000, 1));
  EXPECT_EQ(read_text(files.splits.at("validation")[0]), pattern(20'000, 2));
  EXPECT_EQ(read_text(folder / "refs/main"), commit);
  EXPECT_THAT(cached_paths(), Each(Not(HasSubstr("README.md"))));
}

TEST_F(Dataset, IsDownloadedOnce) {
  add_squad();
  const DatasetFiles first = resolve("rajpurkar/squad", "plain_text");
  EXPECT_EQ(resolve("rajpurkar/squad").splits, first.splits);
  // The alias finds the cache of its target.
  server_.add_alias(kDatasetType, "squad", "rajpurkar/squad");
  EXPECT_EQ(resolve("squad").splits, first.splits);
  EXPECT_EQ(server_.count("GET", "/blob/"), 2);
}

TEST_F(Dataset, HasTheSplitsOfItsConfiguration) {
  add_glue();
  EXPECT_THAT(resolve("nyu-mll/glue", "mrpc").splits,
              ElementsAre(Key("test"), Key("train"), Key("validation")));
  EXPECT_THAT(resolve("nyu-mll/glue", "mnli").splits,
              ElementsAre(Key("test_matched"), Key("test_mismatched"), Key("train"),
                          Key("validation_matched"), Key("validation_mismatched")));
  const Error none = failure_of([&] { resolve("nyu-mll/glue"); });
  EXPECT_EQ(none.code, ExitCode::kData);
  EXPECT_EQ(none.message,
            "data set nyu-mll/glue: found no configuration name (--dataset_config_name), expected "
            "one of mnli, mrpc");
  EXPECT_THAT(failure_of([&] { resolve("nyu-mll/glue", "qqq"); }).message,
              HasSubstr("found the configuration \"qqq\", expected one of mnli, mrpc"));
}

// While it lives, this thread may not read what its permissions forbid: root may.
struct UnprivilegedFileAccess {
  UnprivilegedFileAccess() { setfsuid(65534); }
  ~UnprivilegedFileAccess() { setfsuid(geteuid()); }
};

// As lost+found of a volume. The order of a directory's entries is arbitrary, so there are several.
TEST_F(Dataset, InADirectoryMayBeBesideOnesThatCannotBeRead) {
  const fs::path root = folder_.path() / "volume";
  std::vector<fs::path> expected;
  for (int i = 0; i < 20; ++i) {
    expected.push_back(root / fmt::format("cfg/train-{:05}-of-00020.parquet", i));
    write_file(expected.back(), "rows");
    fs::create_directory(root / fmt::format("cfg/lost+found{}", i));
    fs::permissions(root / fmt::format("cfg/lost+found{}", i), fs::perms::none);
  }
  for (const fs::path& path : {folder_.path(), root, root / "cfg"}) {
    fs::permissions(path, fs::perms(0755));
  }
  {
    const UnprivilegedFileAccess unprivileged;
    EXPECT_EQ(resolve(root).splits.at("train"), expected);
  }
  fs::permissions(root, fs::perms::none);
  Error refused;
  {
    const UnprivilegedFileAccess unprivileged;
    refused = failure_of([&] { resolve(root); });
  }
  fs::permissions(root, fs::perms(0755));
  EXPECT_EQ(refused.code, ExitCode::kData);
  EXPECT_EQ(refused.message, root.string() + ": cannot list the directory: Permission denied");
}

TEST_F(Dataset, FollowsANewCommit) {
  add_squad();
  resolve("rajpurkar/squad");
  add("rajpurkar/squad", "plain_text/train-00000-of-00001.parquet", 9);
  EXPECT_EQ(read_text(resolve("rajpurkar/squad").splits.at("train")[0]), pattern(20'000, 9));
  EXPECT_EQ(server_.count("GET", "/blob/"), 3) << "the validation split has not changed";
}

TEST_F(Dataset, IsALocalDirectoryOfThisPath) {
  const fs::path local = folder_.path() / "my";
  write_file(local / "data/train.parquet", "x");
  write_file(local / "notes.txt", "x");
  const DatasetFiles files = resolve(local.string());
  EXPECT_EQ(files.config, "default");
  EXPECT_THAT(files.splits.at("train"), ElementsAre(local / "data/train.parquet"));
  EXPECT_TRUE(server_.requests().empty());
}

TEST_F(Dataset, OfTheDatasetsLibraryIsUsedAsItIs) {
  const fs::path prepared = add_arrow("squad", "plain_text", "c11c", "squad");
  for (const char* name : {"squad", "rajpurkar/squad"}) {
    const DatasetFiles files = resolve(name);
    EXPECT_EQ(files.format, DatasetFiles::Format::kArrow);
    EXPECT_EQ(files.config, "plain_text");
    EXPECT_THAT(files.splits.at("train"), ElementsAre(prepared / "squad-train.arrow"));
    EXPECT_THAT(files.splits.at("validation"), ElementsAre(prepared / "squad-validation.arrow"));
    EXPECT_TRUE(
        reported(fmt::format("data set {}: as the datasets library has prepared it", name)));
  }
  EXPECT_TRUE(server_.requests().empty());
}

TEST_F(Dataset, OfTheDatasetsLibraryMayBeSharded) {
  const fs::path prepared = add_arrow("nyu-mll___glue", "mrpc", "c11c", "glue", true);
  EXPECT_THAT(resolve("glue", "mrpc").splits.at("train"),
              ElementsAre(prepared / "glue-train-00000-of-00002.arrow",
                          prepared / "glue-train-00001-of-00002.arrow"));
}

TEST_F(Dataset, OfTheDatasetsLibraryIsTheLatestComplete) {
  const fs::path old = add_arrow("squad", "plain_text", "aaaa", "squad");
  const fs::path latest = add_arrow("squad", "plain_text", "bbbb", "squad");
  const fs::path broken = add_arrow("squad", "plain_text", "cccc", "squad");
  fs::remove(broken / "squad-validation.arrow");
  const auto now = fs::file_time_type::clock::now();
  fs::last_write_time(old, now - std::chrono::hours(2));
  fs::last_write_time(latest, now - std::chrono::hours(1));
  fs::last_write_time(broken, now);
  EXPECT_THAT(resolve("squad").splits.at("train"), ElementsAre(latest / "squad-train.arrow"));
}

TEST_F(Dataset, OfTheDatasetsLibraryNeedsTheConfiguration) {
  add_glue();
  add_arrow("nyu-mll___glue", "mrpc", "c11c", "glue");
  EXPECT_EQ(resolve("nyu-mll/glue", "mnli").format, DatasetFiles::Format::kParquet);
}

// The layout after load_dataset("squad") with datasets 5.0: refs/main is the commit of README.md.
TEST_F(Dataset, OfflineComesFromTheCacheOrIsAnError) {
  add_squad();
  const DatasetFiles online = resolve("rajpurkar/squad");
  options_.offline = options_.datasets_offline = true;
  const std::size_t requests = server_.requests().size();
  EXPECT_EQ(resolve("rajpurkar/squad").splits, online.splits);
  EXPECT_EQ(resolve("squad").splits, online.splits);
  fs::remove_all(options_.cache_dir / "datasets--rajpurkar--squad/refs");
  EXPECT_EQ(resolve("squad").splits, online.splits);
  const Error error = failure_of([&] { resolve("glue", "mrpc"); });
  EXPECT_EQ(error.code, ExitCode::kData);
  EXPECT_THAT(error.message,
              AllOf(HasSubstr("data set glue, configuration mrpc: not in the caches " +
                              options_.cache_dir.string()),
                    HasSubstr("because HF_HUB_OFFLINE forbids a download")));
  EXPECT_EQ(server_.requests().size(), requests);
}

// As in datasets: access may have been lost, or the data set removed, since the download.
TEST_F(Dataset, InTheCacheReplacesAHubThatRefusesIt) {
  add_squad();
  const DatasetFiles online = resolve("rajpurkar/squad");
  for (const int status : {401, 403, 404}) {
    lines_.clear();
    server_.add_fault({.kind = Fault::kStatus, .status = status});
    EXPECT_EQ(resolve("rajpurkar/squad").splits, online.splits);
    EXPECT_TRUE(reported(fmt::format("({})", status))) << status;
    EXPECT_TRUE(reported("using the cached data set")) << status;
  }
}

// Other workers, whose caches have space, would train on the new version.
TEST_F(Dataset, InTheCacheDoesNotReplaceANewVersionThatCannotBeWritten) {
  add_squad();
  resolve("rajpurkar/squad");
  const fs::path marker = options_.cache_dir / "datasets--rajpurkar--squad/.incomplete";
  fs::remove_all(marker);
  write_file(marker, "");  // in place of the directory
  add("rajpurkar/squad", "plain_text/train-00000-of-00001.parquet", 9);
  const Error error = failure_of([&] { resolve("rajpurkar/squad"); });
  EXPECT_EQ(error.code, ExitCode::kOutput) << error.message;
}

TEST_F(Dataset, InTheCacheReplacesAHubThatDoesNotAnswer) {
  add_squad();
  const DatasetFiles online = resolve("rajpurkar/squad");
  server_.add_fault({.kind = Fault::kReset, .times = 100});
  EXPECT_EQ(resolve("rajpurkar/squad").splits, online.splits);
  EXPECT_TRUE(reported("using the cached data set"));
}

// A later start may use no half of it either.
TEST_F(Dataset, WhoseDownloadEndsHalfwayIsNotInTheCache) {
  add_squad();
  server_.add_fault({.kind = Fault::kStatus, .target = "validation", .times = 5, .status = 503});
  EXPECT_EQ(failure_of([&] { resolve("rajpurkar/squad"); }).code, ExitCode::kHubUnavailable);
  const fs::path snapshots = options_.cache_dir / "datasets--rajpurkar--squad/snapshots";
  EXPECT_FALSE(fs::is_empty(snapshots)) << "no split was downloaded";
  options_.datasets_offline = true;
  EXPECT_EQ(failure_of([&] { resolve("rajpurkar/squad"); }).code, ExitCode::kData);
  options_.datasets_offline = false;
  EXPECT_EQ(resolve("rajpurkar/squad").splits.size(), 2U);
  options_.datasets_offline = true;
  EXPECT_EQ(resolve("rajpurkar/squad").splits.size(), 2U);
}

TEST_F(Dataset, WhoseDownloadAnotherProgramCompletesIsInTheCache) {
  add_squad();
  server_.add_fault({.kind = Fault::kStatus, .target = "validation", .times = 5, .status = 503});
  EXPECT_EQ(failure_of([&] { resolve("rajpurkar/squad"); }).code, ExitCode::kHubUnavailable);
  const fs::path folder = options_.cache_dir / "datasets--rajpurkar--squad";
  const std::string commit = server_.commit(kDatasetType, "rajpurkar/squad");
  write_file(folder / "snapshots" / commit / "plain_text/validation-00000-of-00001.parquet",
             pattern(20'000, 2));
  options_.datasets_offline = true;
  EXPECT_EQ(resolve("rajpurkar/squad").splits.size(), 2U);
  options_.datasets_offline = false;
  // A cache that cannot be written.
  write_file(folder / "refs", "");
  EXPECT_EQ(resolve("rajpurkar/squad").splits.size(), 2U);
  fs::remove(folder / "refs");
  EXPECT_EQ(resolve("rajpurkar/squad").splits.size(), 2U);
  EXPECT_EQ(read_text(folder / "refs/main"), commit);
  EXPECT_TRUE(fs::is_empty(folder / ".incomplete" / commit));
}

TEST_F(Dataset, AConfigurationMayBeInTheCacheAndAnotherHalfOfIt) {
  add_glue();
  const DatasetFiles mrpc = resolve("nyu-mll/glue", "mrpc");
  server_.add_fault(
      {.kind = Fault::kStatus, .target = "mnli/validation", .times = 5, .status = 503});
  EXPECT_EQ(failure_of([&] { resolve("nyu-mll/glue", "mnli"); }).code, ExitCode::kHubUnavailable);
  options_.datasets_offline = true;
  EXPECT_EQ(failure_of([&] { resolve("nyu-mll/glue", "mnli"); }).code, ExitCode::kData);
  EXPECT_EQ(resolve("nyu-mll/glue", "mrpc").splits, mrpc.splits);
}

TEST_F(Dataset, OfTheHubThatIsNotThereIsAnError) {
  const Error unknown = failure_of([&] { resolve("no-such/data"); });
  EXPECT_EQ(unknown.code, ExitCode::kData);
  EXPECT_THAT(unknown.message, HasSubstr("has no public data set of this name (401)"));
  add_squad();
  server_.add_fault({.kind = Fault::kStatus, .target = "/api/", .times = 100, .status = 429});
  const Error limited = failure_of([&] { resolve("rajpurkar/squad"); });
  EXPECT_EQ(limited.code, ExitCode::kHubUnavailable);
  EXPECT_THAT(limited.message, HasSubstr("limits requests (429), after 5 attempts"));
}

TEST_F(Dataset, OfAWrongChecksumIsAnError) {
  add_squad();
  server_.add_fault({.kind = Fault::kCorrupt, .method = "GET", .target = "/blob/"});
  EXPECT_EQ(failure_of([&] { resolve("rajpurkar/squad"); }).code, ExitCode::kData);
  EXPECT_FALSE(fs::exists(options_.cache_dir / "datasets--rajpurkar--squad/refs/main"));
}

TEST_F(Dataset, WhoseApiIsStrangeIsAnError) {
  for (const char* body :
       {"<html>", "[]", R"({"sha": "main", "siblings": []})",
        R"({"sha": "0123456789012345678901234567890123456789"})",
        R"({"sha": "0123456789012345678901234567890123456789", "siblings": [3]})",
        R"({"sha": "0123456789012345678901234567890123456789", "siblings": []})",
        R"({"sha": "0123456789012345678901234567890123456789",
            "siblings": [{"rfilename": "../../x/train.parquet"}]})"}) {
    kube::ScriptedServer hub([&](kube::ScriptedConnection& connection,
                                 const kube::ScriptedRequest&) { connection.answer(200, body); });
    options_.endpoint = hub.url();
    EXPECT_EQ(failure_of([&] { resolve("org/data"); }).code, ExitCode::kData) << body;
  }
}

}  // namespace
}  // namespace tilewright::hub
