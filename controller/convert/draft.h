// The TrainJob that a conversion writes, with notes and errors about the lines of the PyTorchJob.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "common/json/positions.h"
#include "controller/convert/convert.h"

namespace tilewright::convert {

inline constexpr const char* kPodTemplate = "spec.worker.podTemplate";

// The excerpt of a scalar; a string is without quotes.
std::string format_value(const nlohmann::json& value);

class Draft {
 public:
  explicit Draft(const Positions& positions) : positions_(positions) {}

  nlohmann::ordered_json tree;
  nlohmann::ordered_json& trainer() { return tree["spec"]["trainer"]; }
  nlohmann::ordered_json& worker() { return tree["spec"]["worker"]; }

  void error(const std::string& path, std::string message);
  // `path`: of the PyTorchJob; `place`: the field of the TrainJob where the comment stands.
  void note(const std::string& path, const std::string& place, std::string message,
            bool trainjob = false);
  // A note that the trained model is lost, about the flag --output_dir at `path`.
  void note_lost_output(const std::string& path, std::string message);
  // The field of the TrainJob was made of the field of the PyTorchJob.
  void made_of(const std::string& place, const std::string& path) { origins_[place] = path; }

  // Checks the TrainJob as `tilewright validate` does, unless there are errors.
  Conversion finish();

 private:
  void validate();

  const Positions& positions_;
  std::map<std::string, std::string> origins_;
  Conversion result_;
};

}  // namespace tilewright::convert
