#include "worker/train/start_timing.h"

#include "common/base/clock.h"
#include "worker/kernels/gemm/peak.h"
#include "worker/train/inputs.h"
#include "worker/train/instruction_set.h"
#include "worker/train/trainer.h"

namespace tilewright::train {

StartParts measure_start(const TrainingArguments& arguments, const RunOptions& options,
                         Logger& log) {
  StartParts parts;
  MonotonicTime last = monotonic_now();
  const auto end_part = [&](std::string_view name) {
    const MonotonicTime now = monotonic_now();
    parts.emplace_back(name, in_seconds(now - last));
    last = now;
  };
  Machine machine;
  machine.has_bf16 = has_bf16(options.isas);
  machine.question_file = find_question_file(arguments.settings());
  Settings settings = make_settings(arguments, machine);
  settings.output_dir.clear();
  const hub::HubOptions hub = hub_options(arguments, options, log);
  resolve_model_names(settings, hub);
  auto tables = resolve_data_set(settings, hub);
  runtime::ThreadPool pool(options.threads, options.thread_cpus);
  end_part("settings, model and data set names");
  const FeatureCache features = feature_cache(settings, hub, log);
  const Job job = load_job(settings, "",
                           {.task = nullptr,
                            .tables = std::move(tables),
                            .pool = &pool,
                            .features = &features,
                            .end_part = end_part});
  const runtime::Isa isa = usable_isas(job, options.isas).back();
  Faults faults;
  const auto trainer = make_trainer(job, isa, pool, faults, log);
  end_part("memory allocation");
  const kernels::PeakMeter peak(isa, settings.precision(), pool);
  end_part("CPU peak measurement");
  const auto mesh = collectives::Mesh::single_rank();
  trainer->begin_epoch(*mesh);
  trainer->restore(*mesh, {});
  end_part("weight loading");
  TrainerHooks hooks;
  bool first = true;
  hooks.on_step = [&](const StepReport&, const Rates&) {
    if (first) end_part("first step");
    first = false;
  };
  hooks.stop_requested = [&] { return first ? StopRequest::kNone : StopRequest::kStop; };
  trainer->train(*mesh, hooks);
  return parts;
}

}  // namespace tilewright::train
