// Compares the objects that Kubeflow's operator and ours make of the same jobs, leaf by leaf. Every
// difference must be one of the intended ones, and every intended one must be found.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <string>

namespace tilewright::testing {

// By "KIND STAGE:NAME", for example "Pod running:guide-worker-0": an object at a stage of its job.
using Snapshots = std::map<std::string, nlohmann::json>;

// The object without what the API server, the node or the run sets. Of a PyTorchJob: its status.
nlohmann::json normalized(nlohmann::json object, const std::string& namespace_name);

class Comparison {
 public:
  // Reports differences that are not intended, and intended ones that are not there, as failures of
  // the test.
  void compare(const Snapshots& theirs, const Snapshots& ours);
  void write_report(std::ostream& out, std::size_t jobs) const;

 private:
  std::size_t objects_ = 0;
  std::size_t equal_ = 0;  // leaves
  // By subject of the table: "KIND /path".
  std::map<std::string, std::set<std::string>> found_;
};

}  // namespace tilewright::testing
