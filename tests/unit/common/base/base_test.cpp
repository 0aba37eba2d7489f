#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <fstream>

#include "common/base/clock.h"
#include "common/base/files.h"
#include "common/base/mapped_file.h"
#include "common/base/random.h"
#include "common/base/result.h"
#include "common/base/sha256.h"
#include "tests/support/paths.h"

namespace tilewright {
namespace {

TEST(Sha256, MatchesTheFipsTestVector) {  // FIPS 180-4, "abc"
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Files, RoundTripAndLeaveNoTemporaryFile) {
  const testing::TemporaryDirectory directory;
  const auto path = directory.path() / "a.txt";
  ASSERT_TRUE(write_file_atomically(path, "first").ok());
  ASSERT_TRUE(write_file_atomically(path, "second").ok());
  EXPECT_EQ(read_file(path, 100, ExitCode::kData).value(), "second");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);
}

TEST(Files, NameTheMissingOrOversizedFile) {
  const testing::TemporaryDirectory directory;
  const auto path = directory.path() / "a.txt";
  const auto missing = read_file(path, 100, ExitCode::kData);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ExitCode::kData);
  EXPECT_NE(missing.error().message.find("a.txt: cannot open: No such file"), std::string::npos);
  ASSERT_TRUE(write_file_atomically(path, std::string(101, 'x')).ok());
  EXPECT_NE(read_file(path, 100, ExitCode::kData).error().message.find("larger than 100 bytes"),
            std::string::npos);
  EXPECT_FALSE(read_file(directory.path(), 100, ExitCode::kData).ok());
}

// A clone of a Hugging Face repository that was made without Git LFS.
TEST(Files, ThatAreGitLfsPointersAreRefused) {
  const testing::TemporaryDirectory directory;
  const auto path = directory.path() / "model.safetensors";
  ASSERT_TRUE(write_file_atomically(path,
                                    "version https://git-lfs.github.com/spec/v1\n"
                                    "oid sha256:53aa51172d142c89d9012cce15ae4d6cc0ca6895895114\n"
                                    "size 90868376\n")
                  .ok());
  const std::string expected = path.string() +
                               ": is a Git LFS pointer, expected the file itself: run git lfs pull "
                               "in its repository, or give the repository's name on the Hugging "
                               "Face hub";
  const auto read = read_file(path, 1000, ExitCode::kModel);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, ExitCode::kModel);
  EXPECT_EQ(read.error().message, expected);
  try {
    const MappedFile mapped(path, ExitCode::kWeights);
    ADD_FAILURE() << "mapped";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kWeights);
    EXPECT_EQ(failure.what(), expected);
  }
}

TEST(Files, ThatAreNotRegularAreRefusedAtOnceWhereSeveralProcessesReadThem) {
  const testing::TemporaryDirectory directory;
  const auto pipe = directory.path() / "config.json";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const auto& [path, type] :
       {std::pair(pipe, "pipe"), {"/dev/zero", "device"}, {"/dev/null", "device"}}) {
    const auto read = read_regular_file(path, 100, ExitCode::kModel);
    ASSERT_FALSE(read.ok()) << path;
    EXPECT_EQ(read.error().code, ExitCode::kModel);
    EXPECT_EQ(
        read.error().message,
        fmt::format("{}: is a {}, expected a regular file, because several processes read it, "
                    "again after a restart",
                    path.string(), type));
  }
  const auto link = directory.path() / "link";
  ASSERT_TRUE(write_file_atomically(directory.path() / "file", "text").ok());
  std::filesystem::create_symlink("file", link);
  EXPECT_EQ(read_regular_file(link, 100, ExitCode::kModel).value(), "text");
}

// The shell passes `<(command)` as such a path.
TEST(Files, ThatArePipesAreReadToTheirEnd) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  const FileDescriptor reading(ends[0]);
  {
    const FileDescriptor writing(ends[1]);
    ASSERT_EQ(write(writing.get(), "text", 4), 4);
  }
  const auto path = fmt::format("/dev/fd/{}", reading.get());
  EXPECT_EQ(read_file(path, 100, ExitCode::kData).value(), "text");
}

// As in `{ read -r line; program -; } < file`.
TEST(Files, StandardInputIsReadFromWhereItIs) {
  const testing::TemporaryDirectory directory;
  const auto path = directory.path() / "file";
  std::ofstream(path) << "line\ntext";
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const FileDescriptor standard(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0));
  const auto read_from = [&](off_t offset, std::uint64_t max_bytes) {
    EXPECT_GE(dup2(file.get(), STDIN_FILENO), 0);
    EXPECT_EQ(lseek(STDIN_FILENO, offset, SEEK_SET), offset);
    const Result<Input> input = read_input("-", max_bytes, ExitCode::kData);
    dup2(standard.get(), STDIN_FILENO);
    return input.ok() ? input->text : input.error().message;
  };
  EXPECT_EQ(read_from(5, 4), "text");
  EXPECT_EQ(read_from(9, 4), "");
  EXPECT_EQ(read_from(5, 3), "standard input: is larger than 3 bytes, the limit for this file");
}

// The first byte of the last page of a mapped file that another process truncates.
// As under `ulimit -v`. Exits with the code of the failure.
void map_without_address_space(const std::filesystem::path& path) {
  std::uint64_t mapped_pages = 0;
  std::ifstream("/proc/self/statm") >> mapped_pages;
  constexpr rlim_t kLeft = rlim_t{256} << 20;
  const rlim_t most = mapped_pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + kLeft;
  const rlimit limit{most, most};
  if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(1);
  try {
    const MappedFile mapped(path, ExitCode::kWeights);
    _exit(2);
  } catch (const Failure& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    _exit(static_cast<int>(failure.code()));
  }
}

// The file itself is sound.
TEST(MappedFileDeathTest, SaysThatMemoryIsMissing) {
  const testing::TemporaryDirectory directory;
  const auto path = directory.path() / "weights";
  ASSERT_TRUE(write_file_atomically(path, "x").ok());
  std::filesystem::resize_file(path, std::uintmax_t{1} << 30);  // sparse
  EXPECT_EXIT(map_without_address_space(path),
              ::testing::ExitedWithCode(static_cast<int>(ExitCode::kMemory)), "cannot map");
}

void read_truncated(const std::filesystem::path& path, const MappedFile& mapped) {
  std::filesystem::resize_file(path, 1);
  const volatile std::byte* last = &mapped.content().back();
  static_cast<void>(*last);
}

TEST(MappedFileDeathTest, EndsWithAMessageIfItIsTruncated) {
  const testing::TemporaryDirectory directory;
  const auto path = directory.path() / "model.safetensors";
  std::ofstream(path) << std::string(1 << 20, 'x');
  EXPECT_EXIT(read_truncated(path, MappedFile(path, ExitCode::kWeights)),
              ::testing::ExitedWithCode(static_cast<int>(ExitCode::kWeights)),
              "model.safetensors: cannot read the mapped file: found it truncated or unreadable, "
              "expected 1048576 bytes");
}

TEST(MappedFileDeathTest, LeavesOtherMemoryToTheHandlerBeforeIt) {
  const testing::TemporaryDirectory directory;
  const auto path = directory.path() / "file";
  const auto other = directory.path() / "other";
  std::ofstream(path) << std::string(1 << 20, 'x');
  std::ofstream(other) << "x";
  const auto access = [&] {
    std::signal(SIGBUS, SIG_DFL);  // a sanitizer's
    { const MappedFile unmapped(path, ExitCode::kWeights); }
    const MappedFile mapped(path, ExitCode::kWeights);
    const FileDescriptor file(open(other.c_str(), O_RDONLY));
    // The second page has no file behind it.
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    void* memory = mmap(nullptr, 2 * page, PROT_READ, MAP_PRIVATE, file.get(), 0);
    static_cast<void>(*(static_cast<const volatile char*>(memory) + page));
  };
  EXPECT_EXIT(access(), ::testing::KilledBySignal(SIGBUS), "^$");
}

TEST(Files, AnOutputReplacesTheFileThatALinkNames) {
  const testing::TemporaryDirectory directory;
  const auto file = directory.path() / "file";
  const auto link = directory.path() / "link";
  std::filesystem::create_symlink("file", link);
  for (const std::string content : {"longer", "second"}) {  // at first the file is missing
    ASSERT_TRUE(write_output(link, content).ok());
    EXPECT_TRUE(std::filesystem::is_symlink(link));
    EXPECT_EQ(read_file(file, 100, ExitCode::kData).value(), content);
  }
  ASSERT_TRUE(write_output(file, "third").ok());
  EXPECT_EQ(read_file(file, 100, ExitCode::kData).value(), "third");
  ASSERT_TRUE(write_output(directory.path() / "new", "new").ok());
  EXPECT_EQ(read_file(directory.path() / "new", 100, ExitCode::kData).value(), "new");
}

TEST(Files, AnOutputReplacesNoPipeAndNoDevice) {
  const testing::TemporaryDirectory directory;
  const auto pipe = directory.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const FileDescriptor reader(open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  ASSERT_TRUE(write_output(pipe, "text").ok());
  std::array<char, 8> buffer{};
  ASSERT_EQ(read(reader.get(), buffer.data(), buffer.size()), 4);
  EXPECT_STREQ(buffer.data(), "text");
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));

  // A link, so that a failing test leaves the device.
  const auto full = directory.path() / "full";
  std::filesystem::create_symlink("/dev/full", full);
  const Status written = write_output(full, "text");
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, ExitCode::kOutputUnavailable);
  EXPECT_EQ(written.error().message, full.string() + ": cannot write: No space left on device");
  EXPECT_FALSE(write_output(directory.path(), "text").ok());
}

// As `-o /dev/stdout >> file`.
TEST(Files, AnOutputContinuesStandardOutput) {
  const testing::TemporaryDirectory directory;
  const auto path = directory.path() / "file";
  std::ofstream(path) << "before, ";
  const FileDescriptor file(open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  const FileDescriptor standard(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0));
  ASSERT_GE(dup2(file.get(), STDOUT_FILENO), 0);
  const Status written = write_output("/dev/stdout", "text");
  dup2(standard.get(), STDOUT_FILENO);
  ASSERT_TRUE(written.ok()) << written.error().message;
  EXPECT_EQ(read_file(path, 100, ExitCode::kData).value(), "before, text");
}

TEST(Files, FailedWriteReturnsAnOutputError) {
  const testing::TemporaryDirectory directory;
  const auto status = write_file_atomically(directory.path() / "none" / "a.txt", "x");
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ExitCode::kOutput);
}

TEST(Result, OrThrowThrowsFailure) {
  Result<int> bad(Error{ExitCode::kData, "line 3: found 7"});
  try {
    std::move(bad).or_throw();
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kData);
    EXPECT_STREQ(failure.what(), "line 3: found 7");
  }
  EXPECT_EQ(Result<int>(4).or_throw(), 4);
}

TEST(Random, UuidsHaveTheirVersionAndDiffer) {
  const std::string uuid = random_uuid();
  EXPECT_THAT(uuid, ::testing::MatchesRegex(
                        "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"));
  EXPECT_NE(uuid, random_uuid());
}

TEST(Clock, FormatsDurations) {
  EXPECT_EQ(format_duration(std::chrono::seconds(3725)), "1 h 02 min");
  EXPECT_EQ(format_duration(std::chrono::seconds(200)), "3 min 20 s");
}

}  // namespace
}  // namespace tilewright
