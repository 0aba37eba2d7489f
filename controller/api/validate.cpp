#include "controller/api/validate.h"

#include "common/contract/labels.h"
#include "controller/api/defaults.h"
#include "controller/api/names.h"
#include "controller/api/validate_parts.h"

namespace tilewright::api {

std::string shown(std::string_view text) {
  if (text.empty()) return "nothing";
  constexpr std::size_t kShown = 80;
  return text.size() <= kShown ? std::string(text) : std::string(text.substr(0, kShown)) + "...";
}

void validate_metadata(const TrainJob& job, Judge& judge) {
  constexpr std::size_t kLongestPodName = 63;  // it is the pod's host name too
  constexpr std::size_t kGeneratedLetters = 5;
  const ObjectMeta& metadata = job.metadata;
  const bool generated = metadata.name.empty();
  const std::string path = generated ? "metadata.generateName" : "metadata.name";
  const std::string& written = generated ? metadata.generate_name : metadata.name;
  if (written.empty()) {
    judge.refuse("metadata.name", "found nothing, expected a name, or a generateName");
  } else {
    const std::string name = generated ? written + std::string(kGeneratedLetters, 'x') : written;
    if (name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") != std::string::npos ||
        name.front() < 'a' || name.back() == '-') {
      judge.refuse(path, fmt::format("found {}, expected lower-case letters, digits and '-', a "
                                     "letter first and no '-' last",
                                     shown(written)));
    }
    const std::int64_t most = job.spec.elastic_policy.max_replicas.value_or(1);
    const std::string index = std::to_string(most > 1 ? most - 1 : 0);
    const std::size_t taken = std::string_view(kWorkerInfix).size() + index.size();
    if (name.size() + taken > kLongestPodName) {
      judge.refuse(
          path,
          fmt::format("found {} letters, expected at most {}, so that the pod {}{}{} "
                      "has a name of at most {}",
                      written.size(), kLongestPodName - taken - (name.size() - written.size()),
                      "NAME", kWorkerInfix, index, kLongestPodName));
    }
  }
  if (!metadata.namespace_name.empty() && !is_dns1123_label(metadata.namespace_name)) {
    judge.refuse("metadata.namespace",
                 fmt::format("found {}, expected up to 63 lower-case letters, digits and '-'",
                             shown(metadata.namespace_name)));
  }
  for (const auto& [key, value] : metadata.labels) {
    const std::string label = member_path("metadata.labels", key);
    if (!is_label_key(key)) {
      judge.refuse(label, "found no label's key, expected one such as team or example.org/team");
    }
    if (!is_label_value(value)) {
      judge.refuse(label,
                   fmt::format("found {}, expected up to 63 letters, digits, '-', '_' and '.'",
                               shown(value)));
    }
  }
}

Findings validate(const TrainJob& job, const Positions& positions) {
  Judge judge(positions);
  validate_metadata(job, judge);
  validate_replicas(job, judge);
  validate_run_policy(job, judge);
  validate_trainer(job, judge);
  validate_worker(job, judge);
  validate_volumes(job, judge);
  validate_pod_template(job, judge);
  return judge.take();
}

Result<Checked> check_manifest(std::string_view yaml, std::string_view file, Target target) {
  Decoded decoded = decode_manifest(yaml);
  if (!decoded.ok()) return Error{ExitCode::kManifest, sentences(decoded.errors, file)};
  apply_defaults(decoded.job);
  Findings findings = validate(decoded.job, decoded.positions);
  if (target == Target::kLocal) {
    findings.append(validate_for_local(decoded.job, decoded.positions));
  }
  if (target == Target::kCluster) {
    findings.append(validate_for_cluster(decoded.job, decoded.positions));
  }
  if (!findings.ok()) return Error{ExitCode::kManifest, sentences(findings.errors, file)};
  return Checked{std::move(decoded.job), std::move(findings.warnings)};
}

}  // namespace tilewright::api
