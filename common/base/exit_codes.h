// Exit codes of both programs. As in PyTorchJob's restartPolicy ExitCode: 1 to 127 are permanent,
// 128 and above may be tried again.
#pragma once

namespace tilewright {

enum class ExitCode : int {
  kOk = 0,
  kInternal = 1,       // a bug of ours
  kUsage = 2,          // an unknown flag, a flag's value out of range
  kManifest = 10,      // a TrainJob that does not decode or validate
  kModel = 11,         // model folder or config.json missing or of another architecture
  kWeights = 12,       // safetensors truncated, corrupt, wrong dtype or shape
  kData = 13,          // a data file missing, malformed or empty
  kOutput = 14,        // an output folder that cannot be written or belongs to another job
  kMemory = 15,        // not enough memory for the job
  kUnsupported = 16,   // the CPU lacks what was asked for
  kCheckpoint = 17,    // a checkpoint that does not fit or does not verify
  kJobFailed = 18,     // `tilewright up`: the job ended Failed
  kInterrupted = 130,  // stopped by SIGINT
  kPeerLost = 144,     // a peer or the coordinator went away
  kTerminated = 143,   // stopped by SIGTERM
};

}  // namespace tilewright
