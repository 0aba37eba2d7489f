// Downloads under faults of the hub, the network and the disk.
#include <atomic>
#include <thread>

#include "common/base/sha256.h"
#include "tests/unit/worker/hub/hub_fixture.h"

namespace tilewright::hub {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::read_text;

class Download : public HubTest {
 protected:
  Download() { add_model(); }

  fs::path folder() const { return options_.cache_dir / "models--google-bert--bert-base-uncased"; }
  fs::path weights_blob() const { return folder() / "blobs" / sha256_hex(weights_); }
  fs::path partial() const { return weights_blob().string() + ".incomplete"; }

  void expect_weights() { EXPECT_EQ(read_text(resolve() / "model.safetensors"), weights_); }
  std::vector<std::string> storage_ranges() const {
    std::vector<std::string> ranges;
    for (const auto& request : server_.requests()) {
      if (request.storage) ranges.push_back(request.range);
    }
    return ranges;
  }
};

TEST_F(Download, ContinuesAfterHalfAFile) {
  server_.add_fault({.kind = Fault::kHalf, .method = "GET", .target = "/blob/"});
  expect_weights();
  EXPECT_THAT(storage_ranges(), ::testing::ElementsAre("", "bytes=100000-"));
}

TEST_F(Download, ContinuesAfterSilence) {
  options_.limits.stall = std::chrono::seconds(2);
  server_.add_fault({.kind = Fault::kSilence, .method = "GET", .target = "/blob/"});
  expect_weights();
  // A busy machine may delay an answer for as long, which leads to a further request.
  const std::vector<std::string> ranges = storage_ranges();
  ASSERT_GE(ranges.size(), 2U);
  EXPECT_EQ(ranges[0], "");
  for (std::size_t i = 1; i < ranges.size(); ++i)
    EXPECT_THAT(ranges[i], ::testing::StartsWith("bytes=")) << i;
  EXPECT_EQ(ranges[1], "bytes=100000-");
  EXPECT_TRUE(reported("does not answer in time"));
}

TEST_F(Download, ContinuesWhatAnEarlierProcessLeft) {
  write_file(partial(), weights_.substr(0, 150'000));
  expect_weights();
  EXPECT_THAT(storage_ranges(), ::testing::ElementsAre("bytes=150000-"));
}

TEST_F(Download, VerifiesACompletePartWithoutARequest) {
  write_file(partial(), weights_);
  expect_weights();
  EXPECT_TRUE(storage_ranges().empty());
}

TEST_F(Download, StartsAgainIfTheEarlierPartIsCorruptOrTooLong) {
  for (const std::string& part : {pattern(150'000, 7), weights_ + "more"}) {
    fs::remove_all(options_.cache_dir);
    write_file(partial(), part);
    expect_weights();
    EXPECT_FALSE(fs::exists(partial()));
  }
  EXPECT_TRUE(reported("the part of an earlier download is corrupt"));
}

TEST_F(Download, KeepsItsPartForTheNextRun) {
  options_.limits.attempts = 1;
  server_.add_fault({.kind = Fault::kHalf, .method = "GET", .target = "/blob/"});
  const Error error = failure_of([&] { resolve(); });
  EXPECT_EQ(error.code, ExitCode::kHubUnavailable);
  EXPECT_THAT(error.message, AllOf(HasSubstr("model google-bert/bert-base-uncased: "),
                                   HasSubstr("breaks off its response")));
  EXPECT_EQ(fs::file_size(partial()), 100'000U);
  EXPECT_FALSE(fs::exists(folder() / "refs/main"));
  EXPECT_FALSE(fs::exists(weights_blob()));
  expect_weights();
  EXPECT_THAT(storage_ranges(), ::testing::ElementsAre("", "bytes=100000-"));
}

TEST_F(Download, OfAWrongChecksumLeavesNothing) {
  server_.add_fault({.kind = Fault::kCorrupt, .method = "GET", .target = "/blob/"});
  const Error error = failure_of([&] { resolve(); });
  EXPECT_EQ(error.code, ExitCode::kModel);
  EXPECT_THAT(error.message, AllOf(HasSubstr("model.safetensors of"), HasSubstr("has the SHA-256"),
                                   HasSubstr("expected " + sha256_hex(weights_))));
  EXPECT_THAT(cached_paths(), Each(Not(HasSubstr("blobs/" + sha256_hex(weights_)))));
  EXPECT_THAT(cached_paths(), Each(Not(HasSubstr("model.safetensors"))));
  expect_weights();
}

TEST_F(Download, VerifiesSmallFilesByTheirGitObjectId) {
  server_.add_fault({.kind = Fault::kCorrupt, .method = "GET", .target = "vocab.txt", .times = 2});
  const Error error = failure_of([&] { resolve(); });
  // The first of the two faults is spent on the redirect.
  EXPECT_EQ(error.code, ExitCode::kModel);
  EXPECT_THAT(error.message, AllOf(HasSubstr("vocab.txt of"), HasSubstr("has the SHA-1")));
  EXPECT_THAT(cached_paths(), Each(Not(HasSubstr("vocab.txt"))));
}

TEST_F(Download, RetriesServerErrorsAndBrokenConnections) {
  server_.add_fault({.kind = Fault::kStatus, .target = "config.json", .status = 520});
  server_.add_fault({.kind = Fault::kReset, .target = "vocab.txt", .times = 2});
  server_.add_fault({.kind = Fault::kStatus, .method = "GET", .target = "/blob/", .status = 503});
  expect_weights();
  EXPECT_TRUE(reported("answers 520; attempt 2 of 5"));
}

TEST_F(Download, GivesUpAfterTheLastAttempt) {
  server_.add_fault({.kind = Fault::kStatus, .times = 100, .status = 500});
  const Error error = failure_of([&] { resolve(); });
  EXPECT_EQ(error.code, ExitCode::kHubUnavailable);
  EXPECT_EQ(error.message, "model google-bert/bert-base-uncased: " + server_.endpoint() +
                               " answers 500, after 5 attempts; found no local directory "
                               "google-bert/bert-base-uncased either: without a connection copy "
                               "the files to a directory and name that");
  EXPECT_EQ(server_.requests().size(), 5U);
}

TEST_F(Download, WaitsAsLongAsTheHubAsks) {
  server_.add_fault({.kind = Fault::kRateLimit, .retry_after = 0});
  expect_weights();
  fs::remove_all(options_.cache_dir);
  // The test does not wait: it cancels when the wait begins.
  net::WakeUp cancel;
  options_.cancel = &cancel;
  std::string last;
  options_.progress = [&](const std::string& line) {
    last = line;
    cancel.signal();
  };
  server_.add_fault({.kind = Fault::kRateLimit, .retry_after = 77});
  EXPECT_EQ(failure_of([&] { resolve(); }).code, ExitCode::kTerminated);
  EXPECT_THAT(last, HasSubstr("answers 429; attempt 2 of 5 in 1 min 17 s"));
}

TEST_F(Download, DoesNotWaitLongerThanTheLimit) {
  server_.add_fault({.kind = Fault::kRateLimit, .retry_after = 3600});
  const Error error = failure_of([&] { resolve(); });
  EXPECT_EQ(error.code, ExitCode::kHubUnavailable);
  EXPECT_EQ(error.message, "model google-bert/bert-base-uncased: " + server_.endpoint() +
                               " limits requests (429) and asks to wait 1 h 00 min; a token in "
                               "HF_TOKEN raises the limit; found no local directory "
                               "google-bert/bert-base-uncased either: without a connection copy "
                               "the files to a directory and name that");
  EXPECT_EQ(server_.requests().size(), 1U);
}

TEST_F(Download, FromNoServerIsAnError) {
  options_.endpoint = "http://127.0.0.1:1";
  const Error error = failure_of([&] { resolve(); });
  EXPECT_EQ(error.code, ExitCode::kHubUnavailable);
  EXPECT_THAT(error.message, AllOf(HasSubstr("cannot connect to http://127.0.0.1:1"),
                                   HasSubstr("after 5 attempts")));
}

TEST_F(Download, HidesATokenThatTheHubRepeats) {
  options_.token = "hf_s3cret";
  // The message is longer than the part of it that is shown, which ends within the token.
  const std::string message = std::string(195, 'm') + options_.token + std::string(195, 'm');
  server_.add_fault(
      {.kind = Fault::kStatus, .status = 400, .headers = "X-Error-Message: " + message + "\r\n"});
  const Error error = failure_of([&] { resolve(); });
  EXPECT_EQ(error.code, ExitCode::kModel);
  EXPECT_THAT(error.message,
              AllOf(HasSubstr("answered 400 mmm"), HasSubstr("m***"), Not(HasSubstr("hf_"))));
}

// Hidden in messages only: it may be part of what the hub says.
TEST_F(Download, WorksWithATokenThatIsPartOfACommitAndOfFileNames) {
  for (const char* token : {"config", "0", "e"}) {
    fs::remove_all(options_.cache_dir);
    options_.token = token;
    expect_weights();
  }
}

TEST_F(Download, HidesATokenInARedirect) {
  options_.token = "hf_s3cret";
  server_.add_fault({.kind = Fault::kStatus,
                     .status = 302,
                     .headers = "Location: ftp://user:pass@host/hf_s3cret?key=hf_s3cret\r\n"});
  const Error error = failure_of([&] { resolve(); });
  EXPECT_EQ(error.code, ExitCode::kModel);
  EXPECT_THAT(error.message, HasSubstr("with the redirect \"ftp://***@host/***?***\""));
}

TEST_F(Download, ThroughAProxyThatIsNoUrlIsAnErrorWithoutFurtherAttempts) {
  options_.endpoint = "http://hub.invalid";
  for (const char* proxy :
       {"http://user:s3cret@proxy:99999", "ftp://user:s3cret@proxy", "http://user:s3/cret@proxy"}) {
    const testing::ScopedVariable variable("http_proxy", proxy);
    const Error error = failure_of([&] { resolve(); });
    EXPECT_EQ(error.code, ExitCode::kUsage) << error.message;
    EXPECT_THAT(error.message,
                AllOf(HasSubstr("http_proxy: found \""), HasSubstr("://***@proxy"),
                      HasSubstr("expected the URL of a proxy"), Not(HasSubstr("cret"))));
  }
  EXPECT_FALSE(reported("attempt"));
}

TEST_F(Download, IsCancelledWhileTheHubIsSilent) {
  net::WakeUp cancel;
  options_.cancel = &cancel;
  server_.add_fault({.kind = Fault::kSilence, .method = "GET", .target = "/blob/"});
  std::thread canceller([&] {
    EXPECT_TRUE(server_.await("GET", "/blob/", 1));
    cancel.signal();
  });
  const Error error = failure_of([&] { resolve(); });
  canceller.join();
  EXPECT_EQ(error.code, ExitCode::kTerminated);
}

TEST_F(Download, IntoACacheThatCannotBeWrittenIsAnError) {
  write_file(folder_.path() / "file", "");
  options_.cache_dir = folder_.path() / "file" / "hub";
  const Error error = failure_of([&] { resolve(); });
  EXPECT_EQ(error.code, ExitCode::kOutput);
  EXPECT_THAT(error.message, AllOf(HasSubstr(options_.cache_dir.string()),
                                   HasSubstr("cannot create the directory")));
}

// A hub whose responses no hub sends.
class StrangeHub : public HubTest {
 protected:
  Error failure_with(const std::string& headers, int status = 200) {
    kube::ScriptedServer hub(
        [&](kube::ScriptedConnection& connection, const kube::ScriptedRequest&) {
          connection.head(status, headers);
        });
    options_.endpoint = hub.url();
    return failure_of([&] { resolve("org/name"); });
  }
  const std::string commit_ = "X-Repo-Commit: 0123456789012345678901234567890123456789\r\n";
};

TEST_F(StrangeHub, CannotChooseAPathOfTheCache) {
  for (const std::string& headers :
       {"X-Repo-Commit: ../../../etc\r\nETag: \"abc\"\r\nContent-Length: 1\r\n" + std::string(),
        commit_ + "ETag: \"../../evil\"\r\nContent-Length: 1\r\n",
        commit_ + "ETag: \"\"\r\nContent-Length: 1\r\n", commit_ + "Content-Length: 1\r\n",
        commit_ + "ETag: \"abc\"\r\nX-Linked-Etag: \"abc\"\r\nContent-Length: 1\r\n"}) {
    const Error error = failure_with(headers);
    EXPECT_EQ(error.code, ExitCode::kModel);
    EXPECT_THAT(error.message, HasSubstr("is HF_ENDPOINT the URL of a Hugging Face hub?"));
  }
  EXPECT_TRUE(cached_paths().empty());
}

TEST_F(StrangeHub, CannotRedirectForEver) {
  const Error error = failure_with("Location: /again\r\nContent-Length: 0\r\n", 302);
  EXPECT_EQ(error.code, ExitCode::kModel);
  EXPECT_THAT(error.message, HasSubstr("redirects more than 10 times"));
}

TEST_F(StrangeHub, CannotRedirectToAFile) {
  const Error error = failure_with("Location: file:///etc/passwd\r\nContent-Length: 0\r\n", 302);
  EXPECT_EQ(error.code, ExitCode::kModel);
  EXPECT_THAT(error.message, HasSubstr("the redirect \"file:///etc/passwd\""));
}

TEST_F(StrangeHub, CannotSendEndlessHeaders) {
  std::string headers;
  for (int i = 0; i < 40; ++i) headers += "X-Long: " + std::string(8000, 'x') + "\r\n";
  const Error error = failure_with(headers);
  EXPECT_EQ(error.code, ExitCode::kModel);
  EXPECT_THAT(error.message, HasSubstr("header"));
}

TEST_F(StrangeHub, CannotFillTheDisk) {
  const Error error = failure_with(
      commit_ +
      "ETag: \"abc\"\r\nX-Linked-Etag: \"abc\"\r\nX-Linked-Size: 4611686018427387904\r\n");
  EXPECT_EQ(error.code, ExitCode::kOutputUnavailable);
  EXPECT_THAT(error.message, HasSubstr("of free space in the Hugging Face cache"));
  EXPECT_THAT(cached_paths(), Each(Not(HasSubstr("incomplete"))));
}

TEST_F(StrangeHub, CannotSendMoreThanItAnnounced) {
  kube::ScriptedServer hub(
      [&](kube::ScriptedConnection& connection, const kube::ScriptedRequest& request) {
        if (request.method == "HEAD") {
          connection.head(200, commit_ + "ETag: \"abc\"\r\nContent-Length: 10\r\n");
        } else {
          connection.answer(200, std::string(1000, 'x'));
        }
      });
  options_.endpoint = hub.url();
  const Error error = failure_of([&] { resolve("org/name"); });
  EXPECT_EQ(error.code, ExitCode::kModel);
  EXPECT_THAT(error.message, HasSubstr("sends more than the 10 bytes that it announced"));
  EXPECT_THAT(cached_paths(), Each(Not(HasSubstr("blobs"))));
}

// A server without ranges, as some mirrors are, sends the whole file.
TEST_F(StrangeHub, MayIgnoreTheRange) {
  const std::string content = "0123456789";
  const std::string etag = "ad471007bd7f5983d273b9584e5629230150fd54";  // git hash-object
  kube::ScriptedServer hub(
      [&](kube::ScriptedConnection& connection, const kube::ScriptedRequest& request) {
        if (request.method == "HEAD") {
          connection.head(200, commit_ + "ETag: W/\"" + etag + "\"\r\nContent-Length: 10\r\n");
        } else {
          connection.answer(200, content);
        }
      });
  options_.endpoint = hub.url();
  write_file(options_.cache_dir / "models--org--name/blobs" / (etag + ".incomplete"), "01234");
  const fs::path model = resolve_model(
      {.name_or_path = "org/name", .parts = {.tokenizer = false, .weights = false}}, options_);
  EXPECT_EQ(read_text(model / "config.json"), content);
  ASSERT_EQ(hub.requests().size(), 2U);
  EXPECT_EQ(hub.requests()[1].headers.at("range"), "bytes=5-");
}

// Each connection starts again at the first byte, so a longer one after a shorter one is no
// progress.
TEST_F(StrangeHub, CannotStartAgainForEver) {
  constexpr std::size_t kSize = 4 << 20, kLong = 3 << 20, kShort = 1 << 20;
  options_.limits.attempts = 4;
  constexpr int kMostGets = 20;  // ends a client that would not stop
  std::atomic<int> gets = 0;
  kube::ScriptedServer hub(
      [&](kube::ScriptedConnection& connection, const kube::ScriptedRequest& request) {
        const std::string size = fmt::format("Content-Length: {}\r\n", kSize);
        if (request.method == "HEAD") {
          connection.head(200, commit_ + "ETag: \"abc\"\r\n" + size);
        } else if (gets == kMostGets) {
          connection.head(404, "Content-Length: 0\r\n");
        } else {
          connection.head(200, size);
          connection.send(std::string(gets++ % 2 == 0 ? kLong : kShort, 'x'));
          connection.hang_up();
        }
      });
  options_.endpoint = hub.url();
  const Error error = failure_of([&] { resolve("org/name"); });
  EXPECT_EQ(error.code, ExitCode::kHubUnavailable);
  EXPECT_THAT(error.message, HasSubstr("after 4 attempts"));
  EXPECT_EQ(gets.load(), 4);
}

}  // namespace
}  // namespace tilewright::hub
