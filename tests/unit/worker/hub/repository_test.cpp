#include "worker/hub/repository.h"

#include <gtest/gtest.h>

#include "worker/hub/blob_digest.h"
#include "worker/hub/http.h"

namespace tilewright::hub {
namespace {

TEST(Repository, HasTheFolderOfHuggingfaceHub) {
  EXPECT_EQ((Repository{RepositoryType::kModel, "bert-base-uncased"}.folder()),
            "models--bert-base-uncased");
  EXPECT_EQ((Repository{RepositoryType::kDataset, "rajpurkar/squad"}.folder()),
            "datasets--rajpurkar--squad");
}

TEST(Repository, EncodesRevisionsAndFilesInUrls) {
  const Repository repository{RepositoryType::kDataset, "org/name"};
  EXPECT_EQ(repository.file_path("refs/pr/1", "a b/c#1.parquet"),
            "/datasets/org/name/resolve/refs%2Fpr%2F1/a%20b/c%231.parquet");
  EXPECT_EQ(repository.api_path("main"), "/api/datasets/org/name/revision/main");
}

TEST(Repository, FileNameIsChecked) {
  for (const char* name : {"config.json", "a/b/c.parquet", "refs/pr/1", "with space", "..a"}) {
    EXPECT_TRUE(is_file_name(name)) << name;
  }
  for (const char* name :
       {"", "/etc/passwd", "../a", "a/../b", "a//b", "a/", ".", "a/.", "a\\b", "a\nb", "a\"b"}) {
    EXPECT_FALSE(is_file_name(name)) << name;
  }
  EXPECT_FALSE(is_file_name(std::string(256, 'a')));
}

// The first two digests: git hash-object; the third: FIPS 180-2, appendix B.1.
TEST(BlobDigest, IsGitsObjectIdOrSha256) {
  const std::string git = "ce013625030ba8dba906f756967f9e9ca394464a";
  BlobDigest hello(git, 6);
  hello.update("hel");
  hello.update("lo\n");
  EXPECT_EQ(hello.hex(), git);
  const std::string empty = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391";
  EXPECT_EQ(BlobDigest(empty, 0).hex(), empty);
  const std::string sha = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  BlobDigest abc(sha, 3);
  abc.update("zzz");
  abc.restart();
  abc.update("abc");
  EXPECT_EQ(abc.hex(), sha);
  EXPECT_STREQ(abc.algorithm(), "SHA-256");
}

TEST(BlobDigest, IsUnknownForOtherEtags) {
  EXPECT_FALSE(BlobDigest("d41d8cd98f00b204e9800998ecf8427e-2", 1).known());
  EXPECT_FALSE(BlobDigest("abc", 1).known());
}

TEST(Url, OriginIsSchemeHostAndPort) {
  EXPECT_EQ(origin_of("https://Hub.example/a?b"), "https://hub.example:443");
  EXPECT_EQ(origin_of("http://127.0.0.1:8080/a"), "http://127.0.0.1:8080");
  EXPECT_NE(origin_of("https://hub.example"), origin_of("https://hub.example.evil"));
  EXPECT_NE(origin_of("https://hub.example"), origin_of("http://hub.example"));
  EXPECT_EQ(origin_of("nonsense"), origin_of("nonsense"));
}

TEST(Url, LocationIsResolvedAgainstTheRequest) {
  EXPECT_EQ(resolve_location("https://a.b/c/d?e", "/f?g=%22h%22"), "https://a.b/f?g=%22h%22");
  EXPECT_EQ(resolve_location("https://a.b/c", "https://x.y/z?s=1&t=2"), "https://x.y/z?s=1&t=2");
  EXPECT_EQ(resolve_location("https://a.b/c", "file:///etc/passwd"), std::nullopt);
  EXPECT_EQ(resolve_location("https://a.b/c", "ftp://a.b/c"), std::nullopt);
}

}  // namespace
}  // namespace tilewright::hub
