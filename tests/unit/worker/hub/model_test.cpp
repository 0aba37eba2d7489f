#include "worker/hub/model.h"

#include "tests/unit/worker/hub/hub_fixture.h"

namespace tilewright::hub {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::read_text;

class Model : public HubTest {
 protected:
  // What `hf download` leaves in the cache: the files of the model, and no markers of others.
  fs::path download_without_markers() {
    fs::path model = resolve();
    fs::remove_all(model.parent_path().parent_path() / ".no_exist");
    return model;
  }
};

TEST_F(Model, IsALocalDirectoryOfThisPath) {
  const fs::path local = folder_.path() / "model";
  fs::create_directories(local);
  EXPECT_EQ(resolve(local.string()), local);
  EXPECT_TRUE(server_.requests().empty());
}

TEST_F(Model, ConfigAloneIsALocalFileOfThisPath) {
  const fs::path file = folder_.path() / "distilled.json";
  write_file(file, "{}");
  const ModelRequest request{.name_or_path = file.string(),
                             .parts = {.config = true, .tokenizer = false, .weights = false}};
  EXPECT_EQ(resolve_model(request, options_), file);
  EXPECT_TRUE(server_.requests().empty());
}

// The layout that huggingface_hub documents and writes.
TEST_F(Model, IsDownloadedIntoACacheOfHuggingfaceHub) {
  add_model();
  server_.add_file(kModelType, "google-bert/bert-base-uncased", "README.md", "# BERT");
  server_.add_file(kModelType, "google-bert/bert-base-uncased", "pytorch_model.bin", "pickle");
  server_.add_file(kModelType, "google-bert/bert-base-uncased", "tokenizer_config.json", "{}");
  const std::string commit = server_.commit(kModelType, "google-bert/bert-base-uncased");

  const fs::path model = resolve();
  const fs::path folder = options_.cache_dir / "models--google-bert--bert-base-uncased";
  EXPECT_EQ(model, folder / "snapshots" / commit);
  EXPECT_EQ(read_text(model / "config.json"), kConfigText);
  EXPECT_EQ(read_text(model / "vocab.txt"), kVocabText);
  EXPECT_EQ(read_text(model / "model.safetensors"), weights_);
  EXPECT_EQ(read_text(folder / "refs/main"), commit);
  // git hash-object of "{}" without a newline.
  EXPECT_EQ(fs::read_symlink(model / "tokenizer_config.json"),
            "../../blobs/9e26dfeeb6e641a33dae4961196235bdb965b21b");
  EXPECT_TRUE(fs::exists(folder / ".no_exist" / commit / "tokenizer.json"));
  EXPECT_FALSE(fs::exists(model / "README.md"));
  EXPECT_FALSE(fs::exists(model / "pytorch_model.bin"));
  EXPECT_THAT(cached_paths(), Each(Not(HasSubstr("incomplete"))));
  EXPECT_THAT(cached_paths(), Each(Not(HasSubstr(".tmp-"))));
  EXPECT_TRUE(reported("model.safetensors (0.2 MB)"));
}

TEST_F(Model, InTheCacheNeedsNoRequest) {
  add_model();
  const fs::path first = resolve();
  const std::size_t requests = server_.requests().size();
  EXPECT_FALSE(reported("not compared"));
  EXPECT_EQ(resolve(), first);
  EXPECT_EQ(server_.requests().size(), requests);
  EXPECT_TRUE(reported("main is commit " + first.filename().string() +
                       " in the cache; not compared with the hub"));
}

TEST_F(Model, OfAnEarlierNameIsCachedUnderThatName) {
  add_model();
  server_.add_alias(kModelType, "bert-base-uncased", "google-bert/bert-base-uncased");
  const fs::path model = resolve("bert-base-uncased");
  EXPECT_EQ(model.parent_path().parent_path(), options_.cache_dir / "models--bert-base-uncased");
  EXPECT_EQ(read_text(model / "model.safetensors"), weights_);
}

TEST_F(Model, IsKeptInTheCacheOfTransformersIfThereIsOne) {
  add_model();
  options_.transformers_cache = folder_.path() / "transformers";
  const fs::path model = resolve();
  EXPECT_EQ(model.parent_path().parent_path(),
            options_.transformers_cache / "models--google-bert--bert-base-uncased");
  EXPECT_FALSE(fs::exists(options_.cache_dir));
}

TEST_F(Model, HasTheFirstKindOfWeightsThatExists) {
  const std::string name = "org/sharded";
  server_.add_file(kModelType, name, "config.json", kConfigText);
  server_.add_file(kModelType, name, "vocab.txt", kVocabText);
  server_.add_file(kModelType, name, "pytorch_model.bin.index.json",
                   R"({"weight_map": {"a": "pytorch_model-00001-of-00001.bin"}})");
  server_.add_file(kModelType, name, "pytorch_model-00001-of-00001.bin", "shard");
  EXPECT_TRUE(fs::exists(resolve(name) / "pytorch_model-00001-of-00001.bin"));

  server_.add_file(kModelType, name, "pytorch_model.bin", "one file");
  fs::remove_all(options_.cache_dir);
  fs::path model = resolve(name);
  EXPECT_TRUE(fs::exists(model / "pytorch_model.bin"));
  EXPECT_FALSE(fs::exists(model / "pytorch_model.bin.index.json"));

  server_.add_file(kModelType, name, "model.safetensors.index.json",
                   R"({"metadata": {}, "weight_map": {"a": "model-00001-of-00002.safetensors",
                       "b": "model-00002-of-00002.safetensors",
                       "c": "model-00001-of-00002.safetensors"}})");
  server_.add_file(kModelType, name, "model-00001-of-00002.safetensors", pattern(20'000, 1));
  server_.add_file(kModelType, name, "model-00002-of-00002.safetensors", pattern(20'000, 2));
  fs::remove_all(options_.cache_dir);
  model = resolve(name);
  EXPECT_EQ(read_text(model / "model-00001-of-00002.safetensors"), pattern(20'000, 1));
  EXPECT_EQ(read_text(model / "model-00002-of-00002.safetensors"), pattern(20'000, 2));
  EXPECT_FALSE(fs::exists(model / "pytorch_model.bin"));
}

TEST_F(Model, PartsAreDownloadedAlone) {
  add_model();
  const fs::path model =
      resolve_model({.name_or_path = "google-bert/bert-base-uncased",
                     .parts = {.config = false, .tokenizer = true, .weights = false}},
                    options_);
  EXPECT_TRUE(fs::exists(model / "vocab.txt"));
  EXPECT_TRUE(fs::exists(model / "config.json"));  // may name the tokenizer's class
  EXPECT_FALSE(fs::exists(model / "model.safetensors"));
  // The rest of the model follows into the same snapshot.
  EXPECT_EQ(resolve(), model);
  EXPECT_TRUE(fs::exists(model / "model.safetensors"));
}

TEST_F(Model, OfACommitIsThatCommit) {
  add_model();
  const std::string commit = server_.commit(kModelType, "google-bert/bert-base-uncased");
  server_.add_file(kModelType, "google-bert/bert-base-uncased", "vocab.txt", "other");
  EXPECT_EQ(read_text(resolve("google-bert/bert-base-uncased", commit) / "vocab.txt"), kVocabText);
  EXPECT_EQ(read_text(resolve() / "vocab.txt"), "other");
}

// transformers writes such a cache if only the model and not its tokenizer was loaded.
TEST_F(Model, WithUnknownFilesInTheCacheIsCompletedFromTheLatestCommit) {
  add_model();
  const fs::path first = resolve_model(
      {.name_or_path = "google-bert/bert-base-uncased", .parts = {.tokenizer = false}}, options_);
  server_.add_file(kModelType, "google-bert/bert-base-uncased", "vocab.txt", "later");
  const fs::path second = resolve();
  EXPECT_NE(first, second);
  EXPECT_EQ(read_text(second / "vocab.txt"), "later");
  // The weights have not changed, so they are linked, not downloaded.
  EXPECT_EQ(server_.count("GET", "/blob/"), 1);
}

TEST_F(Model, TokenIsSentToTheHubOnly) {
  add_model();
  server_.require_token(kModelType, "google-bert/bert-base-uncased", "hf_secret");
  options_.token = "hf_secret";
  EXPECT_EQ(read_text(resolve() / "model.safetensors"), weights_);
  int storage = 0;
  for (const auto& request : server_.requests()) {
    EXPECT_EQ(request.token, request.storage ? "" : "hf_secret") << request.target;
    storage += request.storage ? 1 : 0;
  }
  EXPECT_EQ(storage, 1);
}

TEST_F(Model, ThatIsGatedNeedsAToken) {
  add_model();
  server_.require_token(kModelType, "google-bert/bert-base-uncased", "hf_secret");
  const Error missing = failure_of([&] { resolve(); });
  EXPECT_EQ(missing.code, ExitCode::kModel);
  EXPECT_EQ(missing.message,
            "model google-bert/bert-base-uncased: " + server_.endpoint() +
                " refuses access (401, gated); accept the conditions on its page, and set HF_TOKEN "
                "to a token that has access");
  options_.token = "hf_other";
  const Error wrong = failure_of([&] { resolve(); });
  EXPECT_EQ(wrong.code, ExitCode::kModel);
  EXPECT_THAT(wrong.message, AllOf(HasSubstr("403, gated"), HasSubstr("the token in HF_TOKEN"),
                                   Not(HasSubstr("hf_other"))));
  EXPECT_TRUE(cached_paths().empty());
}

TEST_F(Model, OfAnUnknownNameIsAnError) {
  const Error error = failure_of([&] { resolve("no-such/model"); });
  EXPECT_EQ(error.code, ExitCode::kModel);
  EXPECT_EQ(error.message,
            "model no-such/model: " + server_.endpoint() +
                " has no public model of this name (401), expected a local directory or a name on "
                "the hub; if it is private or gated, set HF_TOKEN to a token that has access");
  options_.token = "hf_token";
  EXPECT_THAT(failure_of([&] { resolve("no-such/model"); }).message,
              HasSubstr("has no public model of this name (404)"));
}

TEST_F(Model, OfAnUnknownRevisionIsAnError) {
  add_model();
  const Error error = failure_of([&] { resolve("google-bert/bert-base-uncased", "v9"); });
  EXPECT_EQ(error.code, ExitCode::kModel);
  EXPECT_THAT(error.message, HasSubstr("has no such revision (404)"));
  EXPECT_EQ(failure_of([&] { resolve("org/name", "../../x"); }).code, ExitCode::kUsage);
}

TEST_F(Model, PathThatIsNoDirectoryIsAnError) {
  const Error missing = failure_of([&] { resolve("/no/such/model"); });
  EXPECT_EQ(missing.code, ExitCode::kModel);
  EXPECT_EQ(missing.message,
            "/no/such/model: no such directory, expected a model directory or a name on the hub "
            "such as google-bert/bert-base-uncased");
  const fs::path file = folder_.path() / "model.txt";
  write_file(file, "x");
  // A relative path, which is also the form of a name on the hub.
  for (const fs::path& path : {file, fs::relative(file)}) {
    EXPECT_EQ(failure_of([&] { resolve(path.string()); }).message,
              path.string() + ": is a file, expected a model directory or a name on the hub");
  }
  EXPECT_TRUE(server_.requests().empty());
}

TEST_F(Model, WithoutConfigTokenizerOrWeightsIsAnError) {
  server_.add_file(kModelType, "org/text", "README.md", "# Nothing");
  const Error config = failure_of([&] { resolve("org/text"); });
  EXPECT_EQ(config.code, ExitCode::kModel);
  EXPECT_THAT(config.message, HasSubstr("has no config.json"));

  server_.add_file(kModelType, "org/text", "config.json", kConfigText);
  EXPECT_THAT(failure_of([&] { resolve("org/text"); }).message,
              HasSubstr("has no tokenizer.json or vocab.txt"));

  server_.add_file(kModelType, "org/text", "vocab.txt", kVocabText);
  EXPECT_THAT(failure_of([&] { resolve("org/text"); }).message,
              HasSubstr("has no model.safetensors, pytorch_model.bin or an index"));

  server_.add_file(kModelType, "org/text", "model.safetensors.index.json",
                   R"({"weight_map": {"a": "lost.safetensors"}})");
  EXPECT_THAT(failure_of([&] { resolve("org/text"); }).message,
              HasSubstr("has no lost.safetensors, which model.safetensors.index.json names"));
  // A run without network must not trust what is there.
  EXPECT_FALSE(fs::exists(options_.cache_dir / "models--org--text/refs/main"));
}

TEST_F(Model, IndexCannotNameAFileOutsideTheModel) {
  server_.add_file(kModelType, "org/evil", "config.json", kConfigText);
  server_.add_file(kModelType, "org/evil", "vocab.txt", kVocabText);
  server_.add_file(kModelType, "org/evil", "model.safetensors.index.json",
                   R"({"weight_map": {"a": "../../../../evil.safetensors"}})");
  const Error error = failure_of([&] { resolve("org/evil"); });
  EXPECT_EQ(error.code, ExitCode::kModel);
  EXPECT_THAT(error.message, HasSubstr("weight_map[\"a\"] is no relative path of a file"));
}

TEST_F(Model, OfflineComesFromTheCacheOrIsAnError) {
  add_model();
  const fs::path online = resolve();
  options_.offline = true;
  const std::size_t requests = server_.requests().size();
  EXPECT_EQ(resolve(), online);
  const Error error = failure_of([&] { resolve("distilbert/distilbert-base-uncased"); });
  EXPECT_EQ(error.code, ExitCode::kModel);
  EXPECT_EQ(
      error.message,
      "model distilbert/distilbert-base-uncased: found no local directory of this name and no "
      "snapshot of the revision main in the cache " +
          (options_.cache_dir / "models--distilbert--distilbert-base-uncased").string() +
          ", expected a cached model or a model directory, because HF_HUB_OFFLINE forbids a "
          "download");
  EXPECT_EQ(server_.requests().size(), requests);
}

TEST_F(Model, OfflineNeedsNotTheOptionalFiles) {
  add_model();
  const fs::path first = download_without_markers();
  options_.offline = true;
  EXPECT_EQ(resolve(), first);
}

TEST_F(Model, InTheCacheReplacesAHubThatDoesNotAnswer) {
  add_model();
  const fs::path first = download_without_markers();
  server_.add_fault({.kind = Fault::kStatus, .times = 100, .status = 503});
  EXPECT_EQ(resolve(), first);
  EXPECT_TRUE(reported("using the cached model"));
}

// As in huggingface_hub: access may have been lost, or the model removed, since the download.
TEST_F(Model, InTheCacheReplacesAHubThatRefusesIt) {
  add_model();
  const fs::path first = download_without_markers();
  for (const int status : {401, 403, 404}) {
    lines_.clear();
    server_.add_fault({.kind = Fault::kStatus, .status = status});
    EXPECT_EQ(resolve(), first);
    EXPECT_TRUE(reported(fmt::format("({})", status))) << status;
    EXPECT_TRUE(reported("using the cached model")) << status;
  }
  server_.add_fault(
      {.kind = Fault::kStatus, .status = 404, .headers = "X-Error-Code: RevisionNotFound\r\n"});
  EXPECT_THAT(failure_of([&] { resolve(); }).message, HasSubstr("has no such revision (404)"));
}

TEST_F(Model, WithoutATokenizerInTheCacheNeedsTheHub) {
  add_model();
  resolve_model({.name_or_path = "google-bert/bert-base-uncased", .parts = {.tokenizer = false}},
                options_);
  server_.add_fault({.kind = Fault::kStatus, .times = 5, .status = 503});
  EXPECT_EQ(failure_of([&] { resolve(); }).code, ExitCode::kHubUnavailable);
  server_.add_fault({.kind = Fault::kStatus, .status = 403});
  EXPECT_THAT(failure_of([&] { resolve(); }).message, HasSubstr("refuses access (403)"));
  options_.offline = true;
  EXPECT_THAT(failure_of([&] { resolve(); }).message, HasSubstr("no tokenizer.json or vocab.txt"));
}

}  // namespace
}  // namespace tilewright::hub
