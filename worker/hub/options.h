// Settings of the hub client: where the hub and the caches are, and how long to wait.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "common/base/clock.h"
#include "common/base/strings.h"
#include "common/net/wait.h"

namespace tilewright::hub {

struct HubLimits {
  Duration connect = std::chrono::seconds(10);
  // A transfer fails if it brings fewer than kMinStallBytes in this time. A response without a body
  // must arrive within it.
  Duration stall = std::chrono::seconds(30);
  // How long to wait for another process that holds a file's lock while its download does not grow.
  Duration lock = std::chrono::minutes(10);
  int attempts = 5;  // of a request that fails with a transient error
  // The pause before the second attempt; each further pause is twice as long, up to max_pause.
  Duration first_pause = std::chrono::milliseconds(500);
  Duration max_pause = std::chrono::seconds(30);
  // A longer Retry-After of the hub is an error.
  Duration max_retry_after = std::chrono::minutes(2);
  Duration progress_interval = std::chrono::seconds(10);  // between two lines about one file
};

struct HubOptions {
  std::string endpoint = "https://huggingface.co";  // without a trailing slash
  std::filesystem::path cache_dir;                  // models--ORG--NAME, datasets--ORG--NAME
  std::filesystem::path transformers_cache;         // models only; empty: cache_dir
  std::filesystem::path datasets_cache;             // the datasets library's Arrow files
  std::string token;                                // empty: anonymous. Never part of a message.
  // Why the file of the token could not be read. A request then fails with kUsage.
  std::string token_problem;
  bool offline = false;                         // true: no network for models
  bool datasets_offline = false;                // true: no network for data sets
  std::filesystem::path ca_file, ca_directory;  // empty: the system's
  HubLimits limits;
  std::function<void(const std::string&)> progress;  // called with one line; may be empty
  const net::WakeUp* cancel = nullptr;               // ends every wait with Failure(kTerminated)

  const std::filesystem::path& model_cache() const {
    return transformers_cache.empty() ? cache_dir : transformers_cache;
  }
  void report(const std::string& line) const {
    if (progress) progress(line);
  }
};

// Reads the variables of huggingface_hub, transformers and datasets with their meanings
// (common/contract/environment.h lists them). `cache_dir`: the flag --cache_dir, which overrides
// the variables; empty if it is not given. `token`: the flag --token, with which no other token is
// read. Fails with kUsage on a bad value.
//
// cache_dir is the first one set of: the flag, HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME/hub,
// XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub. transformers 4 (utils/hub.py) looks for
// models in TRANSFORMERS_CACHE first; the flag overrides that too.
HubOptions options_from_environment(const GetVariable& variable, const std::string& cache_dir = "",
                                    const std::string& token = "");

}  // namespace tilewright::hub
