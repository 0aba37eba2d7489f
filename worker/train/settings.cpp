#include "worker/train/settings.h"

#include <algorithm>

#include "common/base/result.h"
#include "common/contract/virtual_shards.h"
#include "worker/collectives/shard_tree.h"
#include "worker/kernels/gemm/onednn.h"

namespace tilewright::train {
namespace {

void check_required(const Settings& settings) {
  for (const TrainingFlag& flag : training_flags()) {
    const auto* member = std::get_if<std::string TrainingSettings::*>(&flag.member);
    if (!flag.required || member == nullptr || !(settings.**member).empty()) continue;
    throw Failure(ExitCode::kUsage,
                  fmt::format("--{} is missing; expected {}", flag.name,
                              flag.type == FlagType::kChoice ? describe_expected(flag)
                                                             : fmt::format("the {}", flag.help)));
  }
}

}  // namespace

Settings make_settings(const TrainingArguments& arguments, std::int64_t world) {
  Settings settings{arguments.settings()};
  check_required(settings);
  if (settings.uses_onednn() && settings.exact && arguments.is_set("exact")) {
    throw Failure(ExitCode::kUsage,
                  "found --gemm_backend=onednn with --exact=true, expected --exact=false: oneDNN "
                  "does not guarantee the same bits for different numbers of rows and threads");
  }
  if (settings.uses_onednn()) settings.exact = false;
  if (settings.init_seed < 0) settings.init_seed = settings.seed;
  if (settings.nominal_workers == 0) settings.nominal_workers = world;
  settings.max_workers = std::max(settings.max_workers, settings.nominal_workers);
  settings.global_batch =
      global_batch_size(settings.per_device_train_batch_size, settings.nominal_workers,
                        settings.gradient_accumulation_steps);
  if (settings.virtual_shards == 0) {
    settings.virtual_shards = choose_virtual_shards(settings.global_batch, settings.max_workers);
  }
  if (const Status status =
          collectives::check_shards(static_cast<int>(settings.virtual_shards),
                                    static_cast<int>(settings.max_workers), settings.global_batch);
      !status.ok()) {
    throw Failure(status.error());
  }
  return settings;
}

void check_gemm_backend(const Settings& settings, runtime::Isa isa) {
  if (!settings.uses_onednn() || kernels::limit_onednn_isa(isa, settings.bf16)) return;
  const bool fp32_works = settings.bf16 && isa != runtime::Isa::kRef;
  throw Failure(
      ExitCode::kUnsupported,
      fmt::format("--gemm_backend=onednn: found {} on {}, for which oneDNN has no kernels, "
                  "expected {}--gemm_backend=native or TILEWRIGHT_ISA={} or above",
                  settings.bf16 ? "bf16" : "fp32", runtime::name(isa),
                  fp32_works ? "--bf16=false, " : "", settings.bf16 ? "avx512" : "avx2"));
}

nlohmann::json fingerprint(const Settings& settings) {
  nlohmann::json values;
  for (const TrainingFlag& flag : training_flags()) {
    if (!flag.determines_weights) continue;
    std::visit([&](auto member) { values[std::string(flag.name)] = settings.*member; },
               flag.member);
  }
  values["global_batch_size"] = settings.global_batch;
  return values;
}

}  // namespace tilewright::train
