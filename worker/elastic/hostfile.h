// The list of hosts of a job, in the forms of Open MPI and Hydra.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace tilewright::elastic {

struct Host {
  std::string name;           // as written: ssh resolves it with ~/.ssh/config
  std::optional<int> slots;   // processes on this host
  bool is_this_host = false;  // set by this_host_first()
  bool operator==(const Host&) const = default;
};

// One host per line: `host`, `host slots=2` (Open MPI; max_slots is accepted) or `host:2` (Hydra).
// A `#` begins a comment. A host that is listed again has the sum of its slots, 1 for a line
// without. Error: kUsage, with `where`, the line, what was found and what was expected.
Result<std::vector<Host>> parse_hostfile(std::string_view text, const std::string& where);

// Reads and parses a file of at most 1 MiB.
Result<std::vector<Host>> read_hostfile(const std::filesystem::path& path);

// The slots that all hosts have; nullopt: none is given. Error: kUsage, with two hosts that differ.
Result<std::optional<int>> common_slots(const std::vector<Host>& hosts);

}  // namespace tilewright::elastic
