// Exit codes of both programs. As in PyTorchJob's restartPolicy ExitCode, 1 to 127 are permanent
// failures and 128 and above may be retried.
#pragma once

#include <string_view>

namespace tilewright {

inline constexpr int kFirstRetryableExitCode = 128;
inline constexpr int kSignalExitCodeBase = 128;  // as in a shell: 128 + n after signal n
inline constexpr int kMaxSignal = 64;            // the highest of Linux

enum class ExitCode : int {
  kOk = 0,
  kInternal = 1,
  kUsage = 2,
  kManifest = 10,
  kModel = 11,
  kWeights = 12,
  kData = 13,
  kOutput = 14,
  kMemory = 15,
  kUnsupported = 16,
  kCheckpoint = 17,
  kJobFailed = 18,
  kSuperseded = 19,
  kCheckpointMissing = 20,
  kDiverged = 21,
  kCommandNotFound = 127,
  kInterrupted = 130,
  kTerminated = 143,
  kPeerLost = 144,
  kOutputUnavailable = 200,  // not 128 + a signal number
  kHubUnavailable = 201,
  kReplaced = 202,
};

// The meaning of an exit code; empty for other numbers. The table in docs/reference.md is generated
// from it. -Wswitch reports a code without a meaning.
constexpr std::string_view describe(ExitCode code) {
  switch (code) {
    case ExitCode::kOk:
      return "Success.";
    case ExitCode::kInternal:
      return "A bug in Tilewright, or the operating system refused a basic call.";
    case ExitCode::kUsage:
      return "An unknown flag, or a flag or environment variable with a bad value.";
    case ExitCode::kManifest:
      return "The TrainJob cannot be decoded or is not valid.";
    case ExitCode::kModel:
      return "The model directory or config.json is missing, or the architecture is not supported.";
    case ExitCode::kWeights:
      return "A weight file is truncated, corrupt or unsafe, or a dtype, shape or value is wrong.";
    case ExitCode::kData:
      return "A data file is missing, malformed or empty.";
    case ExitCode::kOutput:
      return "The output directory cannot be written or belongs to another job, or the cache of "
             "models and data sets or standard output cannot be written.";
    case ExitCode::kMemory:
      return "Not enough memory for the job.";
    case ExitCode::kUnsupported:
      return "The CPU or the system lacks what was requested, or the coordinator refused the "
             "worker.";
    case ExitCode::kCheckpoint:
      return "A checkpoint does not fit the job or fails its checksum.";
    case ExitCode::kJobFailed:
      return "`tilewright up`: the job ended as Failed.";
    case ExitCode::kSuperseded:
      return "A newer process of the job writes to the output directory.";
    case ExitCode::kCheckpointMissing:
      return "The job has written a later checkpoint than the output directory contains.";
    case ExitCode::kDiverged:
      return "The training diverged: the loss, the gradient or a weight is NaN or infinite.";
    case ExitCode::kCommandNotFound:
      return "The worker image cannot run the command: it runs run_qa.py and run_glue.py only.";
    case ExitCode::kInterrupted:
      return "Stopped by SIGINT.";
    case ExitCode::kTerminated:
      return "Stopped by SIGTERM.";
    case ExitCode::kPeerLost:
      return "Lost the connection to a peer, to the coordinator or, with validate --cluster, to "
             "the API server.";
    case ExitCode::kOutputUnavailable:
      return "A transient error of the output directory or of standard output: no space left, an "
             "I/O error, a stale network file handle.";
    case ExitCode::kHubUnavailable:
      return "A transient error of a download: the hub does not answer, is overloaded or limits "
             "requests, or the connection breaks.";
    case ExitCode::kReplaced:
      return "A newer process with the same worker index and local rank has replaced this one. The "
             "job continues with the newer process.";
  }
  return "";
}

}  // namespace tilewright
