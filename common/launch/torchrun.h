// The flags of torchrun (`python -m torch.distributed.run`), as users of the CPU guides write them.
// `tilewright-worker agent` has the same flags, and a few more.
// Source: torch/distributed/run.py of PyTorch 2.x, function get_args_parser(); argparse_util.py for
// the variables PET_NAME.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/base/strings.h"

namespace tilewright::launch {

// Each member is empty if neither the flag nor its variable PET_NAME is set. The values have the
// form that is given here, but their bounds are not checked.
struct TorchrunOptions {
  std::optional<std::string> nnodes;          // N or MIN:MAX, MIN at most MAX, from 1
  std::optional<std::string> nproc_per_node;  // auto, cpu, gpu, xpu or N from 1
  std::optional<std::string> rdzv_backend;    // c10d, static, ...
  std::optional<std::string> rdzv_endpoint;   // HOST or HOST:PORT
  std::optional<std::string> rdzv_id;
  std::optional<std::string> rdzv_conf;  // key=value,...
  bool standalone = false;
  std::optional<std::string> max_restarts;      // an integer from 0
  std::optional<std::string> monitor_interval;  // seconds
  std::optional<std::string> node_rank;         // an integer from 0
  std::optional<std::string> master_addr;
  std::optional<std::string> master_port;  // 0 to 65535
  std::optional<std::string> local_addr;
  std::optional<std::string> log_dir;
  std::optional<std::string> redirects;           // 0 to 3, or LOCAL_RANK:N,...
  std::optional<std::string> tee;                 // as redirects
  std::optional<std::string> local_ranks_filter;  // LOCAL_RANK,...
  std::optional<std::string> start_method;        // spawn, fork or forkserver
  std::optional<std::string> role;
  std::optional<std::string> event_log_handler;
  std::optional<std::string> logs_specs;
  std::optional<std::string> numa_binding;
  std::optional<std::string> signals_to_handle;
  std::optional<std::string> shutdown_timeout;  // seconds, an integer from 0
  std::optional<std::string> log_line_prefix_template;
  std::optional<std::string> duplicate_stdout_filters;
  std::optional<std::string> duplicate_stderr_filters;
  bool module = false;     // -m: the script is a Python module
  bool no_python = false;  // --no-python: the script is a program
  bool run_path = false;
  bool virtual_local_rank = false;
  bool use_env = false;  // of torch.distributed.launch, torchrun's predecessor
  bool help = false;     // --help: torchrun_help() is wanted, nothing else
};

// A flag beside those of torchrun.
struct ExtraFlag {
  std::string name;   // with hyphens and without the leading ones: rdzv-key-file
  std::string value;  // its value in the help, as FILE; empty: a switch without a value
  std::string help;
  std::function<void(const std::string& value)> set;
};

// Removes torchrun's flags from the front of `words`, up to the first word that is no flag, and
// returns their values; a flag overrides its variable PET_NAME. A `--` that ends the flags is
// removed too. As argparse does, accepts `--nproc-per-node` and `--nproc_per_node`, `--name value`
// and `--name=value`, `-r 3` and `-r3`, and the beginning of a name that only one flag has. Error:
// kUsage, with the flag that is unknown (and the closest known one), has no value or a value of
// another type. Values of flags that only the pod knows, see unknown_value.h, are accepted if
// `accept_unknown`; those of PET_NAME count as not set.
Result<TorchrunOptions> take_torchrun_options(std::vector<std::string>& words,
                                              const GetVariable& environment,
                                              std::span<const ExtraFlag> extra = {},
                                              bool accept_unknown = false);

// One sentence for each option that is set and has no effect here: what is done instead.
std::vector<std::string> unused_options(const TorchrunOptions& options);

// One line per flag, for --help.
std::string torchrun_help(std::span<const ExtraFlag> extra = {});

}  // namespace tilewright::launch
