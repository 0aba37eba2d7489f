#include "common/tcpstore/protocol.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <iterator>

namespace tilewright::tcpstore {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are copied to the wire");

// The fields of a request: k key, v value, n number of 8 bytes, w number of 4 bytes. After '*' they
// are the items of a list.
struct Format {
  const char* name;
  std::string_view fields;
};
constexpr Format kFormats[] = {
    {"VALIDATE", "w"},   {"SET", "kv"},     {"COMPARE_SET", "kvv"}, {"GET", "k"},
    {"ADD", "kn"},       {"CHECK", "*k"},   {"WAIT", "*k"},         {"GETNUMKEYS", ""},
    {"DELETE_KEY", "k"}, {"APPEND", "kv"},  {"MULTI_GET", "*k"},    {"MULTI_SET", "*kv"},
    {"CANCEL_WAIT", ""}, {"PING", "w"},     {"QUEUE_PUSH", "kv"},   {"QUEUE_POP", "k"},
    {"QUEUE_LEN", "k"},  {"LIST_KEYS", ""}, {"BARRIER", "kn"},
};
static_assert(std::size(kFormats) == static_cast<std::size_t>(Operation::kBarrier) + 1);

const Format& format_of(Operation operation) {
  return kFormats[static_cast<std::size_t>(operation)];
}

template <typename Number>
void append_bytes_of(std::string& text, Number number) {
  char bytes[sizeof number];
  std::memcpy(bytes, &number, sizeof number);
  text.append(bytes, sizeof number);
}

Error malformed(const std::string& why) { return {ExitCode::kUsage, why}; }

}  // namespace

const char* to_string(Operation operation) { return format_of(operation).name; }

void append_number(std::string& reply, std::int64_t number) { append_bytes_of(reply, number); }

void append_string(std::string& reply, std::string_view value) {
  append_bytes_of(reply, std::uint64_t{value.size()});
  reply += value;
}

void RequestReader::append(std::string_view bytes) {
  discard_taken();
  buffer_ += bytes;
}

void RequestReader::discard_taken() {
  buffer_.erase(0, begin_);
  begin_ = 0;
  constexpr std::size_t kKeptBytes = 4 << 10;
  if (buffer_.empty() && buffer_.capacity() > kKeptBytes) buffer_.shrink_to_fit();
}

template <typename Number>
std::optional<Number> RequestReader::take_number() {
  if (rest().size() < sizeof(Number)) return std::nullopt;
  Number number;
  std::memcpy(&number, rest().data(), sizeof number);
  begin_ += sizeof number;
  request_->bytes += sizeof number;
  return number;
}

Result<std::optional<std::string>> RequestReader::take_string(char field) {
  if (rest().size() < kLengthBytes) return std::optional<std::string>();
  std::uint64_t size = 0;
  std::memcpy(&size, rest().data(), sizeof size);
  const std::size_t most = field == 'k' ? kMaxKeyBytes : kMaxValueBytes;
  if (size > most)
    return malformed(fmt::format("{} of {} bytes in {}, expected at most {}",
                                 field == 'k' ? "a key" : "a value", size,
                                 to_string(request_->operation), most));
  if (request_->bytes + kLengthBytes + size > kMaxRequestBytes)
    return malformed(
        fmt::format("{} of more than {} bytes", to_string(request_->operation), kMaxRequestBytes));
  if (rest().size() < kLengthBytes + size) return std::optional<std::string>();
  std::string text(rest().substr(kLengthBytes, size));
  begin_ += kLengthBytes + size;
  request_->bytes += kLengthBytes + size;
  request_memory_ += sizeof(std::string) + text.capacity();
  return std::optional<std::string>(std::move(text));
}

Result<bool> RequestReader::take_field(char field) {
  if (field == 'n') {
    const auto number = take_number<std::int64_t>();
    if (number) request_->number = *number;
    return number.has_value();
  }
  if (field == 'w') {
    const auto number = take_number<std::uint32_t>();
    if (number) request_->number = *number;
    return number.has_value();
  }
  Result<std::optional<std::string>> text = take_string(field);
  if (!text.ok()) return text.error();
  if (!text->has_value()) return false;
  (field == 'k' ? request_->keys : request_->values).push_back(*std::move(text).value());
  return true;
}

Result<std::optional<Request>> RequestReader::next() {
  if (!request_) {
    if (rest().empty()) {
      discard_taken();
      return std::optional<Request>();
    }
    const auto code = static_cast<std::uint8_t>(rest().front());
    if (code >= std::size(kFormats))
      return malformed(
          fmt::format("operation {}, expected 0 to {}", code, std::size(kFormats) - 1));
    ++begin_;
    request_ = Request{.operation = static_cast<Operation>(code), .bytes = 1};
    items_left_.reset();
    next_field_ = 0;
  }
  std::string_view fields = format_of(request_->operation).fields;
  const bool is_list = fields.starts_with('*');
  if (is_list) fields.remove_prefix(1);
  if (!items_left_) {
    if (is_list) {
      items_left_ = take_number<std::uint64_t>();
      if (!items_left_) return std::optional<Request>();
      if (*items_left_ > kMaxKeys)
        return malformed(fmt::format("{} keys in {}, expected at most {}", *items_left_,
                                     to_string(request_->operation), kMaxKeys));
    } else {
      items_left_ = 1;
    }
  }
  while (*items_left_ > 0) {
    for (; next_field_ < fields.size(); ++next_field_) {
      const Result<bool> taken = take_field(fields[next_field_]);
      if (!taken.ok()) return taken.error();
      if (!*taken) return std::optional<Request>();
    }
    next_field_ = 0;
    --*items_left_;
  }
  request_memory_ = 0;
  return std::exchange(request_, std::nullopt);
}

}  // namespace tilewright::tcpstore
