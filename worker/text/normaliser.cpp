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
  // `positions` may be null.
  Writer(bool strip_accents, bool lowercase, std::string& out,
         std::vector<std::uint32_t>* positions)
      : strip_accents_(strip_accents), lowercase_(lowercase), out_(out), positions_(positions) {}

  // `position`: of the character in the original text, in code points.
  void put_ascii(unsigned char c, std::uint32_t position) {
    flush();
    out_.push_back(static_cast<char>(c));
    if (positions_ != nullptr) positions_->push_back(position);
  }

  void put(char32_t c, std::uint32_t position) {
    if (!strip_accents_) {
      write(c, position);
      return;
    }
    unwritten_.push_back(position);
    char32_t parts[kMaxDecomposition];
    const std::size_t count = decompose(c, parts);
    for (std::size_t i = 0; i < count; ++i) {
      const int order = combining_class(parts[i]);
      const Part part = {order, parts[i], i > 0, is_nonspacing_mark(parts[i])};
      if (order == 0) {
        flush();  // also for removed marks: class 0 is a boundary for reordering
        write(part);
      } else {
        marks_.push_back(part);
      }
    }
  }

  void flush() {
    if (marks_.empty()) return;
    std::stable_sort(marks_.begin(), marks_.end(),
                     [](const Part& a, const Part& b) { return a.order < b.order; });
    for (const Part& mark : marks_) write(mark);
    marks_.clear();
  }

 private:
  // A code point of a decomposition.
  struct Part {
    int order;
    char32_t code_point;
    bool added;    // not the first of its decomposition
    bool removed;  // an accent
  };

  // Hugging Face's tokenizers replace the original characters by the parts in their new order: the
  // k-th part that begins a decomposition gets the position of the k-th character, and an added
  // part that of the part before it.
  void write(const Part& part) {
    if (!part.added) {
      last_ = unwritten_[next_++];
      if (next_ == unwritten_.size()) {
        unwritten_.clear();
        next_ = 0;
      }
    }
    if (!part.removed) write(part.code_point, last_);
  }

  void write(char32_t c, std::uint32_t position) {
    if (!lowercase_) {
      append_utf8(c, out_);
    } else if (c == 0x130) {  // capital I with dot above: the only lower case of two code points
      append_utf8(U'i', out_);
      append_utf8(0x307, out_);
    } else {
      append_utf8(to_lower(c), out_);
    }
    if (positions_ != nullptr) positions_->resize(out_.size(), position);
  }

  const bool strip_accents_;
  const bool lowercase_;
  std::string& out_;
  std::vector<std::uint32_t>* const positions_;
  std::vector<Part> marks_;
  std::vector<std::uint32_t> unwritten_;  // positions of characters whose parts are in marks_
  std::size_t next_ = 0;                  // in unwritten_
  std::uint32_t last_ = 0;                // the position that was written last
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
  Writer writer(strip_accents_, lowercase_, out, nullptr);
  normalise(text, writer);
}

void Normaliser::normalise(std::string_view text, std::string& out,
                           std::vector<std::uint32_t>& positions) const {
  out.clear();
  positions.clear();
  out.reserve(text.size() + 16);
  positions.reserve(text.size() + 16);
  Writer writer(strip_accents_, lowercase_, out, &positions);
  normalise(text, writer);
}

void Normaliser::normalise(std::string_view text, Writer& writer) const {
  std::uint32_t position = 0;
  for (std::size_t at = 0; at < text.size(); ++position) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0x80) {
      if (ascii_[byte] != kDropped) writer.put_ascii(ascii_[byte], position);
      ++at;
      continue;
    }
    const Decoded next = decode_utf8(text, at);
    at += next.size;
    const char32_t c = next.code_point;
    if (clean_text_) {
      if (c == 0xFFFD || is_control(c)) continue;
      if (is_whitespace(c)) {
        writer.put_ascii(' ', position);
        continue;
      }
    }
    if (handle_chinese_chars_ && is_cjk_ideograph(c)) {
      writer.put_ascii(' ', position);
      writer.put(c, position);
      writer.put_ascii(' ', position);
    } else {
      writer.put(c, position);
    }
  }
  writer.flush();
}

}  // namespace tilewright::text
