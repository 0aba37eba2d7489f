#include "worker/text/normaliser.h"

#include <algorithm>
#include <vector>

#include "worker/text/characters.h"
#include "worker/text/utf8.h"

namespace tilewright::text {
namespace {

constexpr unsigned char kDropped = 0xFF;

}  // namespace

// Writes the characters of one text. If accents are stripped, it removes non-spacing marks and
// keeps other characters with a combining class in `marks_` until the next starter, to write them
// in canonical order.
class Normaliser::Writer {
 public:
  Writer(bool strip_accents, bool lowercase, std::string& out)
      : strip_accents_(strip_accents), lowercase_(lowercase), out_(out) {}

  void put_ascii(unsigned char c) {
    flush();
    out_.push_back(static_cast<char>(c));
  }

  void put(char32_t c) {
    if (!strip_accents_) {
      write(c);
      return;
    }
    char32_t parts[kMaxDecomposition];
    const std::size_t count = decompose(c, parts);
    for (std::size_t i = 0; i < count; ++i) {
      const int order = combining_class(parts[i]);
      if (order == 0) flush();  // also for removed marks: class 0 is a boundary for reordering
      if (is_nonspacing_mark(parts[i])) continue;
      if (order == 0) {
        write(parts[i]);
      } else {
        marks_.push_back({order, parts[i]});
      }
    }
  }

  void flush() {
    if (marks_.empty()) return;
    std::stable_sort(marks_.begin(), marks_.end(),
                     [](const Mark& a, const Mark& b) { return a.order < b.order; });
    for (const Mark& mark : marks_) write(mark.code_point);
    marks_.clear();
  }

 private:
  struct Mark {
    int order;
    char32_t code_point;
  };

  void write(char32_t c) {
    if (!lowercase_) {
      append_utf8(c, out_);
    } else if (c == 0x130) {  // capital I with dot above: the only lower case of two code points
      append_utf8(U'i', out_);
      append_utf8(0x307, out_);
    } else {
      append_utf8(to_lower(c), out_);
    }
  }

  const bool strip_accents_;
  const bool lowercase_;
  std::string& out_;
  std::vector<Mark> marks_;
};

Normaliser::Normaliser(const NormaliserOptions& options)
    : clean_text_(options.clean_text),
      handle_chinese_chars_(options.handle_chinese_chars),
      strip_accents_(options.strip_accents.value_or(options.lowercase)),
      lowercase_(options.lowercase) {
  for (std::size_t i = 0; i < ascii_.size(); ++i) {
    const auto c = static_cast<unsigned char>(i);
    ascii_[i] = c;
    if (clean_text_ && is_control(c)) {
      ascii_[i] = kDropped;
    } else if (clean_text_ && is_whitespace(c)) {
      ascii_[i] = ' ';
    } else if (lowercase_) {
      ascii_[i] = static_cast<unsigned char>(to_lower(c));
    }
  }
}

void Normaliser::normalise(std::string_view text, std::string& out) const {
  out.clear();
  out.reserve(text.size() + 16);
  Writer writer(strip_accents_, lowercase_, out);
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0x80) {
      if (ascii_[byte] != kDropped) writer.put_ascii(ascii_[byte]);
      ++at;
      continue;
    }
    const Decoded next = decode_utf8(text, at);
    at += next.size;
    const char32_t c = next.code_point;
    if (clean_text_) {
      if (c == 0xFFFD || is_control(c)) continue;
      if (is_whitespace(c)) {
        writer.put_ascii(' ');
        continue;
      }
    }
    if (handle_chinese_chars_ && is_cjk_ideograph(c)) {
      writer.put_ascii(' ');
      writer.put(c);
      writer.put_ascii(' ');
    } else {
      writer.put(c);
    }
  }
  writer.flush();
}

}  // namespace tilewright::text
