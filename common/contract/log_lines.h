// Worker log lines that `tilewright up` recognizes: it shows rank 0's summary lines on its screen
// and replaces the step lines with a progress bar. Every other log line below warn, and the blocks
// of metrics, go to the log files.
#pragma once

#include <array>
#include <string_view>

#include "common/base/log.h"

namespace tilewright::log_lines {

// A summary line is one of these names, a colon, a space, and the text: "data: 642 examples ...".
inline constexpr std::string_view kMachine = "machine";
inline constexpr std::string_view kData = "data";
inline constexpr std::string_view kColumns = "columns";  // of the user's own files
inline constexpr std::string_view kModel = "model";
inline constexpr std::string_view kTraining = "training";  // steps, global batch, shards
inline constexpr std::string_view kTrained = "trained";    // steps and duration
inline constexpr std::string_view kResults = "results";
inline constexpr std::string_view kBaselines = "baselines";
inline constexpr std::string_view kOutput = "output";  // directory and SHA-256 of the weights
// A membership epoch continues from the state in memory: after a loss; after other changes.
inline constexpr std::string_view kRecovered = "recovered";
inline constexpr std::string_view kResized = "resized";
// A worker has become slow, or has recovered, or its shards move.
inline constexpr std::string_view kSpeed = "speed";
inline constexpr std::array kSummaryNames = {kMachine,  kData,      kColumns, kModel,
                                             kTraining, kTrained,   kResults, kBaselines,
                                             kOutput,   kRecovered, kResized, kSpeed};

// A step line begins with this word: "step 120/690  epoch 1.04  loss 0.5321 ...".
inline constexpr std::string_view kStep = "step";

// Whether the line is of a block that rank 0 prints on standard output, "***** train metrics *****"
// or "  epoch = 3.0".
inline bool is_metrics_line(std::string_view line) {
  line = without_process_prefix(line);
  return (line.starts_with("***** ") && line.ends_with(" metrics *****")) ||
         (line.starts_with("  ") && line.find(" = ") != std::string_view::npos);
}

}  // namespace tilewright::log_lines
