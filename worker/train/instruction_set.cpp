#include "worker/train/instruction_set.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "worker/checkpoint/checkpoint.h"

namespace tilewright::train {
namespace {

namespace fs = std::filesystem;

struct Recorded {
  fs::path checkpoint;
  std::string isa;
};

// The instruction set of the checkpoint from which the training would resume; nullopt: there is
// none, or its content is damaged, which restore() reports.
std::optional<Recorded> find_recorded(const Job& job) {
  std::vector<fs::path> checkpoints = checkpoint::list_checkpoints(job.settings.output_dir);
  const auto own_checkpoints = checkpoints.size();
  if (!job.settings.resume_from_checkpoint.empty()) {
    checkpoints.emplace_back(job.settings.resume_from_checkpoint);
  }
  for (std::size_t i = 0; i < checkpoints.size(); ++i) {
    try {
      const auto state = checkpoint::read_checkpoint_state(checkpoints[i]);
      if (i < own_checkpoints && state.job_uid != job.uid) continue;
      return Recorded{checkpoints[i], state.settings.value(kInstructionSetSetting, "(none)")};
    } catch (const Failure& failure) {
      if (failure.code() != ExitCode::kCheckpoint) throw;
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<runtime::Isa> usable_isas(const Job& job, const std::vector<runtime::Isa>& isas) {
  if (!job.settings.exact || !job.settings.do_train) return isas;
  const std::optional<Recorded> recorded = find_recorded(job);
  if (!recorded) return isas;
  const std::optional<runtime::Isa> isa = runtime::parse_isa(recorded->isa);
  if (isa && std::ranges::find(isas, *isa) != isas.end()) return {*isa};
  std::vector<std::string_view> names;
  names.reserve(isas.size());
  for (const runtime::Isa each : isas) names.push_back(runtime::name(each));
  throw Failure(ExitCode::kUnsupported,
                fmt::format("{} was written with the instruction set {}, this process can use {}: "
                            "an exact training keeps its instruction set; expected a CPU that has "
                            "it, another --output_dir, or --exact=false from the start",
                            recorded->checkpoint.string(), recorded->isa, fmt::join(names, ", ")));
}

}  // namespace tilewright::train
