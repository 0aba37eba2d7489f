#include "worker/tasks/squad/prediction_files.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "common/base/check.h"
#include "worker/text/utf8.h"

namespace tilewright::tasks::squad {
namespace {

constexpr std::string_view kIndent = "    ";

void append_candidate(const Candidate& candidate, std::string& out) {
  // The script inserts the keys in these two orders.
  const std::string logits =
      fmt::format("{0}{0}{0}\"start_logit\": {1},\n{0}{0}{0}\"end_logit\": {2},\n", kIndent,
                  python_float(static_cast<double>(candidate.start_logit)),
                  python_float(static_cast<double>(candidate.end_logit)));
  const std::string text =
      fmt::format("{0}{0}{0}\"text\": {1},\n", kIndent, python_json_string(candidate.text));
  out += fmt::format("{0}{0}{{\n{1}{2}{0}{0}{0}\"probability\": {3}\n{0}{0}}}", kIndent,
                     candidate.placeholder ? text : logits, candidate.placeholder ? logits : text,
                     python_float(candidate.probability));
}

std::string nbest_value(const Prediction& prediction) {
  std::string value = "[\n";
  for (std::size_t i = 0; i < prediction.n_best.size(); ++i) {
    if (i > 0) value += ",\n";
    append_candidate(prediction.n_best[i], value);
  }
  return value + fmt::format("\n{}]", kIndent);
}

// An object with one member per question. value(prediction) is its JSON.
template <typename Value>
std::string object_of(const Examples& examples, std::span<const Prediction> predictions,
                      const Value& value) {
  std::string out = "{\n";
  for (std::size_t i = 0; i < predictions.size(); ++i) {
    if (i > 0) out += ",\n";
    out += fmt::format("{}{}: {}", kIndent, python_json_string(examples.questions[i].id),
                       value(predictions[i]));
  }
  return out + "\n}\n";
}

}  // namespace

std::string python_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  std::array<char, 64> buffer;
  const auto scientific = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                        std::chars_format::scientific);
  const std::string text(buffer.data(), scientific.ptr);
  const std::size_t mark = text.find('e');
  const int exponent = std::atoi(text.c_str() + mark + 1);
  if (value != 0 && (exponent < -4 || exponent >= 16)) return text;
  const auto fixed =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed);
  std::string plain(buffer.data(), fixed.ptr);
  if (plain.find('.') == std::string::npos) plain += ".0";
  return plain;
}

std::string python_json_string(std::string_view text) {
  std::string out = "\"";
  for (std::size_t at = 0; at < text.size();) {
    const text::Decoded next = text::decode_utf8(text, at);
    at += next.size;
    const auto c = static_cast<std::uint32_t>(next.code_point);
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\b':
        out += "\\b";
        break;
      default:
        if (c >= ' ' && c <= '~') {
          out += static_cast<char>(c);
        } else if (c < 0x10000) {
          out += fmt::format("\\u{:04x}", c);
        } else {
          out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((c - 0x10000) >> 10),
                             0xDC00 + ((c - 0x10000) & 0x3FF));
        }
    }
  }
  return out + '"';
}

std::map<std::string, std::string> make_prediction_files(const Examples& examples,
                                                         std::span<const Prediction> predictions,
                                                         std::string_view prefix,
                                                         bool version_2_with_negative) {
  TW_CHECK(predictions.size() == examples.questions.size() && !predictions.empty(),
           "{} predictions for {} questions", predictions.size(), examples.questions.size());
  std::map<std::string, std::string> files;
  files.emplace(fmt::format("{}_predictions.json", prefix),
                object_of(examples, predictions, [](const Prediction& prediction) {
                  return python_json_string(prediction.answer);
                }));
  files.emplace(fmt::format("{}_nbest_predictions.json", prefix),
                object_of(examples, predictions, nbest_value));
  if (version_2_with_negative) {
    files.emplace(fmt::format("{}_null_odds.json", prefix),
                  object_of(examples, predictions, [](const Prediction& prediction) {
                    return python_float(static_cast<double>(prediction.null_odds));
                  }));
  }
  return files;
}

}  // namespace tilewright::tasks::squad
