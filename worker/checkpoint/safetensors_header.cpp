#include "worker/checkpoint/safetensors_header.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "common/base/json_events.h"
#include "common/base/printable.h"

namespace tilewright::checkpoint {
namespace {

using Json = nlohmann::json;

// The nesting of the header: file, tensor, list. Deeper JSON is refused before it uses memory.
constexpr std::size_t kMaxHeaderDepth = 3;

// Finds what nlohmann::json accepts and a header must not have: deep nesting, and duplicate keys,
// of which it keeps the last. A callback of parse() would take quadratic time.
class HeaderEvents final : public JsonEvents {
 public:
  const std::string& problem() const { return problem_; }  // empty: none

  bool start_object(std::size_t) override { return opened(); }
  bool start_array(std::size_t) override { return opened(); }
  bool end_object() override { return closed(); }
  bool end_array() override { return closed(); }
  bool key(string_t& key) override {
    if (keys_.back().insert(key).second) return true;
    problem_ = fmt::format("the header has {} twice", quoted_excerpt(key));
    return false;
  }

 private:
  bool opened() {
    keys_.emplace_back();
    if (keys_.size() <= kMaxHeaderDepth) return true;
    problem_ = fmt::format("the header nests deeper than {} levels", kMaxHeaderDepth);
    return false;
  }
  bool closed() {
    keys_.pop_back();
    return true;
  }

  std::vector<std::set<std::string>> keys_;  // of the open objects; lists have none
  std::string problem_;
};

class HeaderParser {
 public:
  HeaderParser(std::span<const std::byte> content, const std::filesystem::path& path, ExitCode code)
      : content_(content), path_(path), code_(code) {}

  FileTensors parse() {
    const Json json = parse_json(header_text());
    if (!json.is_object()) {
      fail(fmt::format("the header is a JSON {}, expected an object of tensors", json.type_name()));
    }
    FileTensors result;
    for (const auto& [name, value] : json.items()) {
      if (name == "__metadata__") {
        check_metadata(value);
        result.sha256 = value.value(kTensorsDigest, "");
      } else {
        result.tensors.emplace(name, tensor(name, value));
      }
    }
    check_layout();
    return result;
  }

 private:
  struct Extent {
    std::uint64_t begin, end;
    std::string name;
  };

  [[noreturn]] void fail(const std::string& what) const {
    throw Failure(code_, fmt::format("{}: {}", path_.string(), what));
  }
  [[noreturn]] void fail(const std::string& tensor, const std::string& what) const {
    fail(fmt::format("tensor {}: {}", quoted_excerpt(tensor), what));
  }

  std::string_view header_text() {
    if (content_.size() < 8) {
      fail(fmt::format("is {} bytes long, expected at least 8 bytes for the header length",
                       content_.size()));
    }
    std::uint64_t length = 0;
    for (int i = 7; i >= 0; --i) length = length << 8 | std::to_integer<std::uint64_t>(content_[i]);
    if (length > kMaxHeaderBytes) {
      fail(fmt::format("found a header length of {} bytes, expected at most {}", length,
                       kMaxHeaderBytes));
    }
    if (length > content_.size() - 8) {
      fail(fmt::format("the header of {} bytes is past the end of the file of {} bytes", length,
                       content_.size()));
    }
    data_ = content_.subspan(8 + length);
    return {reinterpret_cast<const char*>(content_.data()) + 8, static_cast<std::size_t>(length)};
  }

  Json parse_json(std::string_view text) const {
    HeaderEvents events;
    Json::sax_parse(text, &events);
    if (!events.problem().empty()) fail(events.problem());
    try {
      return Json::parse(text);
    } catch (const Json::parse_error& error) {
      fail(fmt::format(
          "the header is not valid JSON at byte {} of it, expected an object of tensors",
          error.byte));
    } catch (const Json::exception&) {
      fail("the header has a number out of range");
    }
  }

  // __metadata__ holds strings.
  void check_metadata(const Json& value) const {
    if (!value.is_object()) fail("__metadata__ is not an object");
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) {
        fail(fmt::format("__metadata__: the value of {} is not a string", quoted_excerpt(key)));
      }
    }
  }

  Tensor tensor(const std::string& name, const Json& value) {
    if (!value.is_object()) fail(name, "the description is not an object");
    for (const auto& [key, unused] : value.items()) {
      if (key != "dtype" && key != "shape" && key != "data_offsets") {
        fail(name, fmt::format("unknown field {}", quoted_excerpt(key)));
      }
    }
    for (const char* key : {"dtype", "shape", "data_offsets"}) {
      if (!value.contains(key)) fail(name, fmt::format("{} is missing", key));
    }
    Tensor out;
    out.dtype = dtype(name, value["dtype"]);
    std::uint64_t bytes = dtype_size(out.dtype);
    for (const std::uint64_t extent : unsigned_integers(name, "shape", value["shape"])) {
      out.shape.push_back(static_cast<std::int64_t>(extent));
      if (__builtin_mul_overflow(bytes, extent, &bytes)) {
        fail(name, fmt::format("shape {} is larger than any file", value["shape"].dump()));
      }
    }
    const auto offsets = unsigned_integers(name, "data_offsets", value["data_offsets"]);
    if (offsets.size() != 2 || offsets[0] > offsets[1]) {
      fail(name,
           fmt::format("data_offsets is {}, expected [begin, end]", value["data_offsets"].dump()));
    }
    if (offsets[1] > data_.size()) {
      fail(name, fmt::format("bytes {} to {} are past the end of the data of {} bytes "
                             "(is the file truncated?)",
                             offsets[0], offsets[1], data_.size()));
    }
    if (offsets[1] - offsets[0] != bytes) {
      fail(name, fmt::format("data_offsets cover {} bytes, expected {} for {} {}",
                             offsets[1] - offsets[0], bytes, dtype_name(out.dtype),
                             to_string(out.shape)));
    }
    out.bytes = data_.subspan(offsets[0], bytes);
    extents_.push_back({offsets[0], offsets[1], name});
    return out;
  }

  DType dtype(const std::string& name, const Json& value) const {
    if (value.is_string()) {
      const auto& text = value.get_ref<const std::string&>();
      if (const auto known = parse_dtype(text)) return *known;
      fail(name, fmt::format("dtype is {}, expected a safetensors dtype such as F32, F16 or BF16",
                             quoted_excerpt(text)));
    }
    fail(name, "dtype is not a string");
  }

  // A list of at most kMaxDimensions integers of at most 63 bits.
  std::vector<std::uint64_t> unsigned_integers(const std::string& name, const char* field,
                                               const Json& value) const {
    if (!value.is_array() || value.size() > kMaxDimensions) {
      fail(name, fmt::format("{} is not a list of at most {} integers", field, kMaxDimensions));
    }
    std::vector<std::uint64_t> numbers;
    for (const Json& number : value) {
      if (!number.is_number_unsigned() || number.get<std::uint64_t>() > INT64_MAX) {
        fail(name, fmt::format(
                       "{} contains {}, expected non-negative integers", field,
                       quoted_excerpt(number.dump(-1, ' ', true, Json::error_handler_t::replace))));
      }
      numbers.push_back(number.get<std::uint64_t>());
    }
    return numbers;
  }

  // Sorted by offset, each tensor must begin at the end of the previous one.
  void check_layout() {
    std::sort(extents_.begin(), extents_.end(), [](const Extent& a, const Extent& b) {
      return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
    });
    std::uint64_t end = 0;
    const std::string* before = nullptr;
    for (const Extent& extent : extents_) {
      if (extent.begin < end) {
        fail(extent.name, fmt::format("begins at byte {} and overlaps tensor {}, which ends at {}",
                                      extent.begin, quoted_excerpt(*before), end));
      }
      if (extent.begin > end) {
        fail(extent.name,
             fmt::format("begins at byte {}, expected {} (the data has a gap)", extent.begin, end));
      }
      end = extent.end;
      before = &extent.name;
    }
    if (end != data_.size()) {
      fail(fmt::format("has {} bytes of data, expected {} for its tensors", data_.size(), end));
    }
  }

  std::span<const std::byte> content_;
  const std::filesystem::path& path_;
  ExitCode code_;
  std::span<const std::byte> data_{};
  std::vector<Extent> extents_;
};

}  // namespace

FileTensors parse_safetensors(std::span<const std::byte> content, const std::filesystem::path& path,
                              ExitCode code) {
  return HeaderParser(content, path, code).parse();
}

}  // namespace tilewright::checkpoint
