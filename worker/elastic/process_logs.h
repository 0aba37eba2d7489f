// The files that torchrun's --redirects and --tee write, in torchrun's layout:
//   LOGDIR/RUNID_xxxxxx/attempt_0/0/stdout.log    attempt, local rank
// A process that is restarted writes to the directory of a new attempt.
#pragma once

#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "common/base/file_descriptor.h"
#include "common/base/log.h"

namespace tilewright::elastic {

// Bits of torchrun's values: 1 standard output, 2 standard error.
struct StreamSelection {
  int all = 0;                 // of every local rank
  std::map<int, int> by_rank;  // replaces `all` if it is not empty; other ranks have 0
  int of(int local_rank) const;
  bool any() const;
};

// "3" or "0:1,1:2". Throws Failure(kUsage) that names the flag.
StreamSelection parse_streams(const char* flag, const std::string& text);

struct LogOptions {
  std::filesystem::path directory;           // empty: a new one for temporary files
  StreamSelection redirects;                 // to files only
  StreamSelection tee;                       // to files too
  std::optional<std::set<int>> shown_ranks;  // local ranks whose output is shown; nullopt: all
};

enum class Stream { kOutput, kError };

// The files of one process in one attempt.
class ProcessLogs {
 public:
  // Whether the lines of a stream go to the agent's own output.
  static bool is_shown(const LogOptions& options, int local_rank, Stream stream);

  // Creates the directory of the attempt below `run` and the files. Throws Failure(kOutput).
  ProcessLogs(const LogOptions& options, const std::filesystem::path& run, int attempt,
              int local_rank);
  // A write that fails, for example on a full disk, is logged once; the process continues.
  void write(Stream stream, std::string_view bytes, Logger& log);

 private:
  struct File {
    std::filesystem::path path;
    FileDescriptor descriptor;
    bool failed = false;
  };
  std::array<File, 2> files_;  // by Stream; without a descriptor if the stream has no file
};

// Creates DIRECTORY/RUNID_xxxxxx for this run of the agent. Throws Failure(kOutput).
std::filesystem::path create_run_directory(const LogOptions& options, const std::string& run_id);

}  // namespace tilewright::elastic
