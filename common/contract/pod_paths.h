// Paths inside a worker's pod, the job's key and the program that the pod runs.
#pragma once

#include <string>

namespace tilewright {

// VOLUME:relative/path in a manifest maps to kVolumeRoot/VOLUME/relative/path in a pod.
inline constexpr const char* kVolumeRoot = "/mnt/tilewright";
// The pod mounts the job's secret here; the file holds kJobKeyBytes random bytes in hexadecimal.
inline constexpr const char* kJobKeyDirectory = "/var/run/tilewright";
inline constexpr const char* kJobKeyName = "job-key";
inline constexpr int kJobKeyBytes = 32;
inline std::string job_key_path() { return std::string(kJobKeyDirectory) + "/" + kJobKeyName; }

// HF_HOME of a pod whose manifest sets no cache: the pod's own, writable /tmp.
inline constexpr const char* kPodHubCache = "/tmp/huggingface";

inline constexpr const char* kWorkerProgram = "tilewright-worker";

}  // namespace tilewright
