#include "worker/tasks/squad/json_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/printable.h"
#include "common/base/result.h"
#include "worker/tasks/rows/rows.h"
#include "worker/tasks/rows/text_file.h"
#include "worker/text/utf8.h"

namespace tilewright::tasks::squad {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::string_view kJsonSpace = " \t\r\n";
constexpr int kMaxDepth = 16;
// Of one paragraph or row with everything in it. The largest published paragraph has some 500
// values. The parser's time grows with the square of the number of objects and arrays.
constexpr std::size_t kMaxValues = 1'000'000;
constexpr std::size_t kMaxContainers = 20'000;

constexpr const char* kLayouts =
    R"(expected {"data": [{"paragraphs": ...}]}, {"data": [rows]}, [rows] or one row per line)";

std::size_t line_of(std::string_view content, std::size_t byte) {
  const auto before = content.substr(0, std::min(byte, content.size()));
  return 1 + static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n'));
}

// The members of an object, for messages.
std::string list_members(const Json& object) {
  if (object.empty()) return "no members";
  std::vector<std::string> names;
  for (const auto& [name, ignored] : object.items()) names.push_back(name);
  return list_names(names, "and");
}

// A list whose elements were read and dropped.
bool is_empty_list(const Json& value) { return value.is_array() && value.empty(); }

// The values of one object, with its place for messages.
class Fields {
 public:
  Fields(const Json& object, std::string place) : object_(object), place_(std::move(place)) {
    if (!object.is_object()) fail("is {}, expected an object", object.type_name());
  }

  // null if it is missing.
  const Json& find(const char* name) const {
    static const Json kNull;
    const auto found = object_.find(name);
    return found == object_.end() ? kNull : *found;
  }

  const std::string& text(const char* name) const {
    const Json& value = find(name);
    if (!value.is_string()) {
      fail("\"{}\" is {}, expected a string", name, found_type(value));
    }
    return value.get_ref<const std::string&>();
  }

  // A string or an integer.
  std::string id() const {
    const Json& value = find("id");
    if (value.is_number_integer()) return value.dump();
    if (!value.is_string()) fail("\"id\" is {}, expected a string", found_type(value));
    return value.get<std::string>();
  }

  // Both layouts of answers; none for null or a missing member.
  std::vector<Answer> answers() const {
    const Json& value = find("answers");
    std::vector<Answer> answers;
    if (value.is_array()) {
      for (const Json& one : value) {
        const Fields fields(one, place_ + ": an answer");
        answers.push_back({fields.text("text"), fields.integer(fields.find("answer_start"))});
      }
    } else if (value.is_object()) {
      const Fields fields(value, place_ + ": answers");
      const Json& texts = fields.find("text");
      const Json& starts = fields.find("answer_start");
      if (!texts.is_array() || !starts.is_array() || texts.size() != starts.size()) {
        fail("answers are not two lists \"text\" and \"answer_start\" of one length");
      }
      for (std::size_t i = 0; i < texts.size(); ++i) {
        if (!texts[i].is_string()) {
          fail("an answer's text is {}, expected a string", texts[i].type_name());
        }
        answers.push_back({texts[i].get<std::string>(), fields.integer(starts[i])});
      }
    } else if (!value.is_null()) {
      fail("\"answers\" is {}, expected a list or an object", value.type_name());
    }
    const Json& impossible = find("is_impossible");
    if (impossible.is_boolean() && impossible.get<bool>() && !answers.empty()) {
      fail("is_impossible is true, but there are {} answers, expected none", answers.size());
    }
    return answers;
  }

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> message, Args&&... args) const {
    throw Failure(ExitCode::kData,
                  fmt::format("{}: {}", place_, fmt::format(message, std::forward<Args>(args)...)));
  }

 private:
  static const char* found_type(const Json& value) {
    return value.is_null() ? "missing or null" : value.type_name();
  }

  std::int64_t integer(const Json& value) const {
    if (!value.is_number_integer()) {
      fail("answer_start is {}, expected an integer",
           value.is_number() ? value.dump() : found_type(value));
    }
    if (value.is_number_unsigned() && !std::in_range<std::int64_t>(value.get<std::uint64_t>())) {
      fail("answer_start is {}, expected an offset in the context", value.get<std::uint64_t>());
    }
    return value.get<std::int64_t>();
  }

  const Json& object_;
  const std::string place_;
};

// Hands every paragraph or row to the builder as soon as it is parsed and drops it, so that memory
// does not grow with the file.
class Reader {
 public:
  Reader(std::string source, std::size_t max_questions)
      : source_(std::move(source)), builder_(source_, max_questions) {}

  void read_document(std::string_view content) {
    std::vector<std::string> keys(kMaxDepth + 2);  // the last key of the object at each depth
    bool rows_at_root = false;
    bool has_data = false;
    const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
      using Event = Json::parse_event_t;
      if (depth > kMaxDepth) {
        fail(fmt::format("is nested more than {} deep, {}", kMaxDepth, kLayouts));
      }
      if (event == Event::key) {
        std::string& key = keys[static_cast<std::size_t>(depth)];
        const bool had_data = depth == 1 && has_data;
        key = parsed.get_ref<const std::string&>();
        has_data = has_data || (depth == 1 && key == "data");
        if (had_data && key == "data") fail("has two members \"data\", expected one");
        return true;
      }
      count(event);
      if (event == Event::array_start && depth == 0) rows_at_root = true;
      if (event != Event::object_end) return true;
      const bool in_data = keys[1] == "data";
      if (depth == 4 && in_data && keys[3] == "paragraphs") {
        add_paragraph(parsed);
      } else if ((depth == 1 && rows_at_root) ||
                 (depth == 2 && in_data && !parsed.contains("paragraphs"))) {
        if (in_data && !parsed.contains("question") && !parsed.contains("context")) {
          fail_layout(parsed);
        }
        add_row(parsed, row_place());
      } else if (depth != 2 || !in_data || !is_empty_list(parsed.at("paragraphs"))) {
        return true;
      }
      values_ = containers_ = 0;
      return false;
    };
    const Json rest = parse(content, 0, watch);
    if (rest.is_object() && rest.contains("question")) {
      add_row(rest, row_place());
      return;
    }
    const Json& left = rest.is_object() && rest.contains("data") ? rest["data"] : rest;
    if (left.is_object() && !left.empty()) fail_layout(left);
    if (!is_empty_list(left)) fail(fmt::format("has another layout, {}", kLayouts));
  }

  void read_lines(std::string_view content) {
    std::size_t number = 1;
    for (std::size_t begin = 0; begin < content.size() && !builder_.full(); ++number) {
      const std::size_t end = std::min(content.find('\n', begin), content.size());
      const std::string_view line = content.substr(begin, end - begin);
      if (line.find_first_not_of(kJsonSpace) != std::string_view::npos) {
        if (line.size() > kMaxLineBytes) {
          throw Failure(ExitCode::kData,
                        fmt::format("{}:{}: the line has {} bytes, expected at most {}", source_,
                                    number, line.size(), kMaxLineBytes));
        }
        values_ = containers_ = 0;
        const auto watch = [&](int depth, Json::parse_event_t event, Json&) {
          if (depth > kMaxDepth) {
            fail(fmt::format("line {} is nested more than {} deep", number, kMaxDepth));
          }
          count(event);
          return true;
        };
        add_row(parse(line, number - 1, watch), fmt::format("{}:{}", source_, number));
      }
      begin = end + 1;
    }
  }

  Examples finish(bool needs_answers) && {
    if (needs_answers && !has_answers_ && builder_.questions() > 0) {
      fail(fmt::format("\"answers\" is missing in all questions, found {}", first_members_));
    }
    return std::move(builder_).finish();
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    throw Failure(ExitCode::kData, fmt::format("{}: {}", source_, message));
  }

  [[noreturn]] void fail_layout(const Json& object) const {
    fail(fmt::format("has an object with {}{}, {}", list_members(object), after_last_question(),
                     kLayouts));
  }

  void count(Json::parse_event_t event) {
    using Event = Json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) ++containers_;
    if (event != Event::key) ++values_;
    if (values_ > kMaxValues || containers_ > kMaxContainers) {
      fail(fmt::format("has more than {} without the end of a paragraph or row{}, {}",
                       values_ > kMaxValues ? fmt::format("{} values", kMaxValues)
                                            : fmt::format("{} objects and lists", kMaxContainers),
                       after_last_question(), kLayouts));
    }
  }

  std::string row_place() const {
    return fmt::format("{}: question {}", source_, builder_.questions() + 1);
  }

  std::string question_place(const std::string& id) const {
    return fmt::format("{}: question {}", source_, quoted_excerpt(id));
  }

  std::string after_last_question() const {
    const std::string& last = builder_.last_id();
    return last.empty() ? "" : fmt::format(", after question {}", quoted_excerpt(last));
  }

  // `lines_before`: of the file before `text`.
  template <typename Watch>
  Json parse(std::string_view text, std::size_t lines_before, const Watch& watch) const {
    try {
      return Json::parse(text, Json::parser_callback_t(watch));
    } catch (const Json::parse_error& error) {
      const std::string_view what = error.what();
      // The parser's position counts from 1; at the end of the text it is one beyond it.
      const bool at_end = error.byte > text.size();
      const char* problem = what.find("surrogate") != std::string_view::npos && !at_end
                                ? "has an unpaired UTF-16 surrogate escape, expected \\uD800 to "
                                  "\\uDBFF followed by \\uDC00 to \\uDFFF"
                            : at_end ? "ends before the JSON is complete: the file is cut off"
                                     : "is not valid JSON";
      throw Failure(
          ExitCode::kData,
          fmt::format("{}:{}: {} (byte {}{}){}", source_, lines_before + line_of(text, error.byte),
                      problem, std::min(error.byte, text.size()), after_last_question(),
                      is_json_file(source_) ? "" : "; expected a .json or .jsonl file"));
    } catch (const Json::exception&) {  // a number beyond a double's range
      fail(fmt::format("has a number out of a double's range{}", after_last_question()));
    }
  }

  void find_answers(const Json& question) {
    has_answers_ = has_answers_ || question.contains("answers");
    if (first_members_.empty()) first_members_ = list_members(question);
  }

  void add_row(const Json& row, const std::string& place) {
    const Fields fields(row, place);
    std::string id = fields.id();
    const Fields named(row, question_place(id));
    find_answers(row);
    builder_.add({std::move(id), named.text("context"), named.text("question"), named.answers()});
  }

  void add_paragraph(const Json& paragraph) {
    const Fields fields(paragraph, row_place());
    const Json& questions = fields.find("qas");
    if (!questions.is_array()) fields.fail("its paragraph has no list \"qas\" of questions");
    const std::size_t context = builder_.add_context(fields.text("context"));
    for (const Json& one : questions) {
      std::string id = Fields(one, row_place()).id();
      const Fields named(one, question_place(id));
      find_answers(one);
      builder_.add_question({std::move(id), named.text("question"), context, named.answers()});
    }
  }

  const std::string source_;
  ExamplesBuilder builder_;
  bool has_answers_ = false;                 // a question has the member
  std::string first_members_;                // of the first question, for messages
  std::size_t values_ = 0, containers_ = 0;  // since the last paragraph or row
};

// Whether each line is an object of its own: the first line is one, and another follows.
bool has_json_lines(const std::filesystem::path& path, std::string_view content) {
  const auto trimmed = [](std::string_view line) {
    const std::size_t first = line.find_first_not_of(kJsonSpace);
    if (first == std::string_view::npos) return std::string_view();
    return line.substr(first, line.find_last_not_of(kJsonSpace) + 1 - first);
  };
  if (path.extension() == ".jsonl") return true;
  content = trimmed(content);
  const std::size_t end = content.find('\n');
  if (end == std::string_view::npos) return false;
  const std::string_view first = trimmed(content.substr(0, end));
  return first.starts_with('{') && first.ends_with('}') &&
         trimmed(content.substr(end)).starts_with('{');
}

}  // namespace

Examples read_json(const std::filesystem::path& path, std::size_t max_questions,
                   bool needs_answers) {
  const std::string file = read_data_file(path);
  std::string_view content = file;
  if (const auto bad = text::find_invalid_utf8(content)) {
    throw Failure(ExitCode::kData, fmt::format("{}:{}: byte {} of the file is not valid UTF-8",
                                               path.string(), line_of(content, *bad), *bad + 1));
  }
  // The parser would end there.
  if (const std::size_t nul = content.find('\0'); nul != std::string_view::npos) {
    throw Failure(ExitCode::kData, fmt::format("{}:{}: byte {} of the file is NUL, expected JSON",
                                               path.string(), line_of(content, nul), nul + 1));
  }
  if (content.starts_with(kByteOrderMark)) content.remove_prefix(kByteOrderMark.size());
  if (content.find_first_not_of(kJsonSpace) == std::string_view::npos) {
    throw Failure(ExitCode::kData, fmt::format("{}: is empty, {}", path.string(), kLayouts));
  }
  Reader reader(path.string(), max_questions);
  if (has_json_lines(path, content)) {
    reader.read_lines(content);
  } else {
    reader.read_document(content);
  }
  return std::move(reader).finish(needs_answers);
}

}  // namespace tilewright::tasks::squad
