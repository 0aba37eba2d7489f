// The checks behind validate(), one file for each part of a manifest.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "controller/api/document.h"
#include "controller/api/findings.h"
#include "controller/api/trainjob.h"

namespace tilewright::api {

// Gathers findings and looks up their lines.
class Judge {
 public:
  explicit Judge(const Positions& positions) : positions_(positions) {}

  void refuse(const std::string& path, std::string message) {
    findings_.errors.push_back({path, positions_.line_of(path), std::move(message)});
  }
  void warn(const std::string& path, std::string message) {
    findings_.warnings.push_back({path, positions_.line_of(path), std::move(message)});
  }
  // "found 0, expected a whole number from 1 to 1000"; nothing where the value is absent.
  void require_range(const std::string& path, const std::optional<std::int64_t>& value,
                     std::int64_t minimum, std::int64_t maximum) {
    if (!value || (*value >= minimum && *value <= maximum)) return;
    refuse(path, fmt::format("found {}, expected a whole number from {} to {}", *value, minimum,
                             maximum));
  }
  std::size_t count() const { return findings_.errors.size(); }
  Findings take() { return std::move(findings_); }

 private:
  const Positions& positions_;
  Findings findings_;
};

// Of an environment's entry at `path`.
void refuse_runtime_variable(const std::string& name, const std::string& path, Judge& judge);

// "found true, which restricted Pod Security forbids, expected false".
void forbid(Judge& judge, const std::string& path, const std::string& found,
            std::string_view expected);

// Of a volume at `path`, with the prefix of the operator's own.
void refuse_operators_volume(const std::string& name, const std::string& path, Judge& judge);
// The kinds of the volume at `path` that restricted Pod Security forbids.
void forbid_sources(const nlohmann::json& volume, const std::string& path, Judge& judge);

// "nothing" for an empty text; long ones are cut.
std::string shown(std::string_view text);

void validate_metadata(const TrainJob& job, Judge& judge);
void validate_replicas(const TrainJob& job, Judge& judge);
void validate_run_policy(const TrainJob& job, Judge& judge);
void validate_trainer(const TrainJob& job, Judge& judge);
void validate_worker(const TrainJob& job, Judge& judge);
void validate_volumes(const TrainJob& job, Judge& judge);
// What the overlay would take out of the operator's hands.
void validate_pod_template(const TrainJob& job, Judge& judge);
// What the overlay holds and restricted Pod Security forbids.
void validate_pod_security(const TrainJob& job, Judge& judge);

}  // namespace tilewright::api
