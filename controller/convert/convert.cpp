#include "controller/convert/convert.h"

#include <fmt/format.h>

#include <utility>

#include "common/contract/labels.h"
#include "common/json/members.h"
#include "common/json/positions.h"
#include "controller/api/defaults.h"
#include "controller/api/training_container.h"
#include "controller/convert/commented_yaml.h"
#include "controller/convert/draft.h"
#include "controller/convert/environment.h"
#include "controller/convert/flags.h"
#include "controller/convert/pod_overlay.h"
#include "controller/convert/policies.h"
#include "controller/convert/source.h"
#include "controller/convert/volumes.h"
#include "controller/convert/worker.h"

namespace tilewright::convert {
namespace {

void convert_master(const Source& source, Draft& draft) {
  if (!source.job.spec.master || !source.job.spec.worker) return;
  const std::string path = member_path(kReplicaSpecs, api::kMasterType);
  draft.note(path, "spec.worker.replicas",
             "Master: a TrainJob has workers only; one more worker replaces the master", true);
  if (source.job.spec.master->pod_template == source.job.spec.worker->pod_template) return;
  const api::TrainingContainer master(source.job.spec, *source.job.spec.master, path);
  const Result<api::Training> training = master.training();
  if (!training.ok() || training->command.arguments != source.training.command.arguments) {
    return draft.error(master.path() + ".command",
                       "found another command than that of the Worker, expected the same");
  }
  draft.note(path + ".template", "spec.worker",
             "template of the Master: it differs from the Worker's; all workers use the Worker's",
             true);
}

}  // namespace

Conversion convert(const api::PyTorchJob& written, const Positions& positions) {
  api::PyTorchJob job = written;
  api::apply_defaults(job);
  Draft draft(positions);
  const MainReplica main(job);
  const api::TrainingContainer container(job.spec, main.spec, main.path);
  const Result<api::Training> training = container.training();
  if (!training.ok()) {
    draft.error(container.path() + ".command", training.error().message);
    return draft.finish();
  }
  const Source source{written, job, main, container, *training};
  Volumes volumes(source, draft);
  // In the order in which the fields of the manifest are written.
  draft.tree["apiVersion"] = kApiVersion;
  draft.tree["kind"] = kTrainJobKind;
  convert_metadata(source, draft);
  convert_process_count(source, draft);
  convert_elastic_policy(source, draft);
  convert_run_policy(source, draft);
  convert_flags(source, draft, volumes);
  convert_worker(source, draft);
  convert_environment(source, draft, volumes);
  PodOverlay(source, draft, volumes).convert();
  convert_master(source, draft);
  if (!volumes.list().empty()) draft.tree["spec"]["volumes"] = volumes.list();
  return draft.finish();
}

std::string to_manifest(const Conversion& conversion, std::string_view source) {
  Comments comments;
  for (const Note& note : conversion.notes) comments[note.place].push_back(note.at.message);
  const std::string head = fmt::format(
      "Written by `tilewright convert {}`: a TrainJob that runs the training of the PyTorchJob "
      "with Tilewright's trainer. Comments explain the lines that have no counterpart.",
      source);
  return comment_lines(head, 0) + to_commented_yaml(conversion.tree, comments);
}

}  // namespace tilewright::convert
