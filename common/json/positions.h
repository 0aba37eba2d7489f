// The paths of values in a tree (spec.volumes[0].name) and their lines.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tilewright {

// Line numbers, from 1, of the values of a tree. A value stores its own name only: stored paths
// would repeat a long name for every value below it.
class Positions {
 public:
  struct Place {
    int line = 0;                 // 0: unknown
    std::string name;             // of a member of an object
    std::vector<Place> children;  // members or elements, in the order of the file
  };

  Positions() = default;
  explicit Positions(Place root) : root_(std::move(root)) {}

  // The line of the field at a path (spec.volumes[0].name) or, if it is missing, of the nearest
  // enclosing field. 0: unknown.
  int line_of(std::string_view path) const;

  // The positions in the value at a path, without those of set_line().
  Positions below(std::string_view path) const;

  // For a value that stands elsewhere in the file than its path says.
  void set_line(std::string path, int line) { moved_[std::move(path)] = line; }

 private:
  Place root_;
  std::map<std::string, int, std::less<>> moved_;
};

// spec.worker. Quotes a name with dots or slashes: metadata.labels["a.b/c"].
std::string member_path(std::string_view parent, std::string_view name);
// spec.volumes[0].
std::string element_path(std::string_view parent, std::size_t index);

}  // namespace tilewright
