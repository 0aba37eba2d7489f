#include "worker/tasks/squad/layout.h"

#include <fstream>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "common/base/json_events.h"
#include "worker/tasks/rows/rows.h"

namespace tilewright::tasks::squad {
namespace {

// More than a row of a file that read_json() accepts usually has.
constexpr std::size_t kProbedBytes = std::size_t{4} << 20;

// Receives the parser's events up to the end of the first row.
class FirstRow : public JsonEvents {
 public:
  bool holds_questions() const {
    return paragraphs_ || (keys_.contains("question") && keys_.contains("context") &&
                           keys_.contains("answers") && !keys_.contains("label"));
  }

  bool start_object(std::size_t) override {
    ++depth_;
    const bool begins = row_depth_ == 0 && depth_ == (in_list_ ? list_depth_ + 1 : 1);
    if (begins) row_depth_ = depth_;
    return true;
  }
  bool key(string_t& name) override {
    if (depth_ != row_depth_) return true;
    keys_.insert(name);
    last_key_ = std::move(name);
    return true;
  }
  bool end_object() override { return depth_-- != row_depth_; }
  bool start_array(std::size_t) override {
    ++depth_;
    const bool in_row = row_depth_ > 0 && depth_ == row_depth_ + 1;
    if (depth_ == 1 || (in_row && row_depth_ == 1 && !in_list_ && last_key_ == "data")) {
      // The rows are in this list; an object around it is the document.
      in_list_ = true;
      list_depth_ = depth_;
      row_depth_ = 0;
      keys_.clear();
    } else if (in_row && last_key_ == "paragraphs") {
      paragraphs_ = true;
    }
    return !paragraphs_;
  }
  bool end_array() override {
    --depth_;
    return true;
  }

 private:
  int depth_ = 0;      // objects and lists that are open
  int row_depth_ = 0;  // depth_ directly in the first row; 0: it has not begun
  bool in_list_ = false;
  int list_depth_ = 0;  // depth_ directly in the list of rows
  std::string last_key_;
  std::set<std::string> keys_;  // of the row
  bool paragraphs_ = false;
};

}  // namespace

bool holds_questions(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!is_json_file(path) || !std::filesystem::is_regular_file(path, ignored)) return false;
  std::ifstream file(path, std::ios::binary);
  std::string beginning(kProbedBytes, '\0');
  file.read(beginning.data(), static_cast<std::streamsize>(beginning.size()));
  beginning.resize(static_cast<std::size_t>(file.gcount()));
  FirstRow row;
  // A row that is cut off counts as far as it goes.
  nlohmann::json::sax_parse(beginning, &row, nlohmann::json::input_format_t::json, false);
  return row.holds_questions();
}

}  // namespace tilewright::tasks::squad
