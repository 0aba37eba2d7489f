#include "worker/checkpoint/pickle.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>

#include "common/base/printable.h"

namespace tilewright::checkpoint {
namespace {

using Value = PickleValue;
using Kind = PickleValue::Kind;

enum class Global : std::uint32_t {
  kOrderedDict,
  kRebuildTensor,
  kRebuildTensorV2,
  kRebuildParameter,
  kFirstStorage  // kFirstStorage + i is the type kStorageTypes[i]
};

struct GlobalRow {
  std::string_view name;
  Global global;
};
constexpr std::array<GlobalRow, 4> kGlobals = {
    {{"collections.OrderedDict", Global::kOrderedDict},
     {"torch._utils._rebuild_tensor", Global::kRebuildTensor},  // of torch before 0.4
     {"torch._utils._rebuild_tensor_v2", Global::kRebuildTensorV2},
     {"torch._utils._rebuild_parameter", Global::kRebuildParameter}}};

struct StorageRow {
  std::string_view name;
  DType dtype;
};
constexpr std::array<StorageRow, 12> kStorageTypes = {
    {{"torch.FloatStorage", DType::kF32},
     {"torch.HalfStorage", DType::kF16},
     {"torch.BFloat16Storage", DType::kBf16},
     {"torch.DoubleStorage", DType::kF64},
     {"torch.LongStorage", DType::kI64},
     {"torch.IntStorage", DType::kI32},
     {"torch.ShortStorage", DType::kI16},
     {"torch.CharStorage", DType::kI8},
     {"torch.ByteStorage", DType::kU8},
     {"torch.BoolStorage", DType::kBool},
     {"torch.UntypedStorage", DType::kU8},
     {"torch.storage.UntypedStorage", DType::kU8}}};

std::optional<Global> find_global(std::string_view name) {
  for (const GlobalRow& row : kGlobals) {
    if (row.name == name) return row.global;
  }
  for (std::size_t i = 0; i < kStorageTypes.size(); ++i) {
    if (kStorageTypes[i].name != name) continue;
    return static_cast<Global>(static_cast<std::uint32_t>(Global::kFirstStorage) + i);
  }
  return std::nullopt;
}

std::string_view global_name(std::uint32_t global) {
  constexpr auto kFirst = static_cast<std::uint32_t>(Global::kFirstStorage);
  return global < kFirst ? kGlobals[global].name : kStorageTypes[global - kFirst].name;
}

class Machine {
 public:
  Machine(std::span<const std::byte> content, const std::filesystem::path& path, ExitCode code)
      : input_(reinterpret_cast<const char*>(content.data()),
               std::min(content.size(), kMaxPickleBytes)),
        path_(path),
        code_(code),
        bounded_(content.size() > kMaxPickleBytes) {}

  Pickle run() {
    for (;;) {
      opcode_at_ = at_;
      const auto opcode = static_cast<unsigned char>(take(1)[0]);
      if (opcode == '.') break;
      execute(opcode);
    }
    out_.result = pop();
    if (!stack_.empty()) fail("leaves values on the stack at its end");
    out_.bytes = at_;
    return std::move(out_);
  }

 private:
  // ---- input
  [[noreturn]] void fail(const std::string& what) const {
    throw Failure(code_, fmt::format("{}: the pickle {}", path_.string(), what));
  }
  // For a violation of the format.
  [[noreturn]] void invalid(const std::string& what) const {
    fail(fmt::format("is invalid at byte {}: {}", opcode_at_, what));
  }

  std::string_view take(std::uint64_t count) {
    if (count > input_.size() - at_) {
      if (bounded_) fail(fmt::format("is longer than {} bytes", kMaxPickleBytes));
      fail(fmt::format("ends at byte {}, expected at least {} more (is the file truncated?)",
                       input_.size(), count - (input_.size() - at_)));
    }
    const std::string_view bytes = input_.substr(at_, static_cast<std::size_t>(count));
    at_ += static_cast<std::size_t>(count);
    return bytes;
  }
  // Little-endian, at most 8 bytes.
  std::uint64_t unsigned_integer(std::size_t bytes) {
    const std::string_view text = take(bytes);
    std::uint64_t value = 0;
    for (std::size_t i = bytes; i-- > 0;) value = value << 8 | static_cast<unsigned char>(text[i]);
    return value;
  }
  std::uint64_t length(std::size_t bytes, bool is_signed) {
    const std::uint64_t value = unsigned_integer(bytes);
    if (is_signed && value > INT32_MAX) invalid("found a negative length");
    return value;
  }
  std::string_view line() {
    constexpr std::size_t kLongest = 1000;
    const std::size_t end = input_.substr(at_, kLongest).find('\n');
    if (end == std::string_view::npos) {
      invalid(fmt::format("expected a name of less than {} bytes", kLongest));
    }
    const std::string_view text = take(end);
    take(1);
    return text;
  }

  // ---- stack
  void count_value() {
    if (++values_ > kMaxPickleValues) {
      fail(fmt::format("makes more than {} values", kMaxPickleValues));
    }
  }
  void push(Value value) {
    count_value();
    stack_.push_back(value);
  }
  Value pop() {
    if (stack_.empty()) invalid("the stack is empty");
    const Value value = stack_.back();
    if (value.kind == Kind::kMark) invalid("found a mark, expected a value");
    stack_.pop_back();
    return value;
  }
  const Value& top() const {
    if (stack_.empty() || stack_.back().kind == Kind::kMark) invalid("the stack is empty");
    return stack_.back();
  }
  // Removes the values above the topmost mark, and the mark.
  std::vector<Value> pop_to_mark() {
    const auto mark = std::find_if(stack_.rbegin(), stack_.rend(),
                                   [](const Value& value) { return value.kind == Kind::kMark; });
    if (mark == stack_.rend()) invalid("there is no mark on the stack");
    std::vector<Value> values(mark.base(), stack_.end());
    stack_.erase(mark.base() - 1, stack_.end());
    return values;
  }
  std::vector<Value> pop_values(std::size_t count) {
    std::vector<Value> values(count);
    for (std::size_t i = count; i-- > 0;) values[i] = pop();
    return values;
  }

  // ---- values
  template <typename Element>
  Value add(Kind kind, std::vector<Element>& all, Element element) {
    all.push_back(std::move(element));
    return {kind, static_cast<std::uint32_t>(all.size() - 1), 0};
  }
  void push_integer(std::int64_t value) { push({Kind::kInteger, 0, value}); }
  void push_bool(bool value) { push({Kind::kBool, 0, value ? 1 : 0}); }
  void push_string(std::string_view text) { push(add(Kind::kString, out_.strings, text)); }
  void push_list(std::vector<Value> values) {
    push(add(Kind::kList, out_.lists, std::move(values)));
  }
  void push_dict() { push(add(Kind::kDict, out_.dicts, {})); }
  // A two's-complement integer of any length.
  void push_long(std::string_view bytes) {
    if (bytes.size() > 8) return push(add(Kind::kLong, out_.strings, bytes));
    const bool negative = !bytes.empty() && (static_cast<unsigned char>(bytes.back()) & 0x80) != 0;
    std::uint64_t value = negative ? ~std::uint64_t{0} : 0;
    for (std::size_t i = bytes.size(); i-- > 0;) {
      value = value << 8 | static_cast<unsigned char>(bytes[i]);
    }
    push_integer(static_cast<std::int64_t>(value));
  }
  void push_global(std::string_view module, std::string_view name) {
    const std::string full = fmt::format("{}.{}", module, name);
    const std::optional<Global> global = find_global(full);
    if (!global) refuse(full);
    push({Kind::kGlobal, static_cast<std::uint32_t>(*global), 0});
  }
  [[noreturn]] void refuse(std::string_view global) const {
    fail(fmt::format("calls {}; expected only tensors", excerpt(global)));
  }

  void append(const std::vector<Value>& values) {
    const Value& list = top();
    if (list.kind != Kind::kList) invalid("expected a list to append to");
    auto& into = out_.lists[list.index];
    into.insert(into.end(), values.begin(), values.end());
  }
  void set_items(const std::vector<Value>& values) {
    const Value& dict = top();
    if (dict.kind != Kind::kDict) invalid("expected a dictionary to add items to");
    if (values.size() % 2 != 0) invalid("a key has no value");
    auto& into = out_.dicts[dict.index];
    for (std::size_t i = 0; i < values.size(); i += 2) {
      into.emplace_back(values[i], values[i + 1]);
    }
  }

  void put(std::uint64_t index) {
    count_value();
    memo_[index] = top();
  }
  void get(std::uint64_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) invalid(fmt::format("the memo has no entry {}", index));
    push(found->second);
  }

  // ---- what torch.save writes
  const std::vector<Value>& arguments(const Value& value) const {
    if (value.kind != Kind::kList) invalid("expected a tuple of arguments");
    return out_.lists[value.index];
  }
  std::int64_t integer(const Value& value, const char* what) const {
    if (value.kind != Kind::kInteger || value.integer < 0) {
      invalid(fmt::format("expected a non-negative integer in {}", what));
    }
    return value.integer;
  }
  std::vector<std::int64_t> integers(const Value& value, const char* what) const {
    if (value.kind != Kind::kList) invalid(fmt::format("expected a tuple as {}", what));
    const std::vector<Value>& list = out_.lists[value.index];
    if (list.size() > kMaxDimensions) {
      invalid(fmt::format("{} has {} dimensions, expected at most {}", what, list.size(),
                          kMaxDimensions));
    }
    std::vector<std::int64_t> out;
    out.reserve(list.size());
    for (const Value& element : list) out.push_back(integer(element, what));
    return out;
  }

  // ("storage", type, key, location, elements) and, before torch 1.6, a view of another storage.
  void push_storage() {
    const Value id = pop();
    const std::vector<Value>& tuple = arguments(id);
    const std::string_view* kind = tuple.empty() ? nullptr : out_.string(tuple[0]);
    if (kind == nullptr || *kind != "storage" || tuple.size() < 5 || tuple.size() > 6) {
      invalid("expected a persistent id (\"storage\", type, key, location, size)");
    }
    constexpr auto kFirst = static_cast<std::uint32_t>(Global::kFirstStorage);
    if (tuple[1].kind != Kind::kGlobal || tuple[1].index < kFirst) {
      invalid("the type of a storage is not a storage type");
    }
    const std::string_view* key = out_.string(tuple[2]);
    if (key == nullptr) invalid("the key of a storage is not a string");
    if (tuple.size() == 6 && tuple[5].kind != Kind::kNone) {
      fail(fmt::format("has a view of storage {}; expected whole storages", quoted_excerpt(*key)));
    }
    PickledStorage storage{*key, kStorageTypes[tuple[1].index - kFirst].dtype,
                           integer(tuple[4], "the size of a storage")};
    push(add(Kind::kStorage, out_.storages, storage));
  }

  // (storage, offset, shape, strides), for version 2 also (requires_grad, backward_hooks) and
  // possibly metadata.
  void push_tensor(const std::vector<Value>& values, std::size_t least, std::size_t most) {
    if (values.size() < least || values.size() > most || values[0].kind != Kind::kStorage) {
      invalid("a tensor is made from other arguments than a storage, offset, shape and strides");
    }
    PickledTensor tensor;
    tensor.storage = values[0].index;
    tensor.offset = integer(values[1], "the offset of a tensor");
    tensor.shape = integers(values[2], "the shape of a tensor");
    tensor.strides = integers(values[3], "the strides of a tensor");
    check_bounds(tensor);
    push(add(Kind::kTensor, out_.tensors, std::move(tensor)));
  }

  // The last element of the tensor must be inside the storage.
  void check_bounds(const PickledTensor& tensor) const {
    const PickledStorage& storage = out_.storages[tensor.storage];
    if (tensor.strides.size() != tensor.shape.size()) {
      invalid(fmt::format("a tensor has {} dimensions and {} strides", tensor.shape.size(),
                          tensor.strides.size()));
    }
    std::int64_t count = 1;
    std::int64_t last = tensor.offset;
    bool overflow = false;
    const bool empty = std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end();
    for (std::size_t d = 0; d < tensor.shape.size() && !empty; ++d) {
      std::int64_t distance = 0;
      overflow |= __builtin_mul_overflow(count, tensor.shape[d], &count);
      overflow |= __builtin_mul_overflow(tensor.shape[d] - 1, tensor.strides[d], &distance);
      overflow |= __builtin_add_overflow(last, distance, &last);
    }
    if (!overflow && (empty ? tensor.offset <= storage.size : last < storage.size)) return;
    fail(
        fmt::format("has a tensor of shape {} with strides {} at offset {}, which is outside "
                    "storage {} of {} elements",
                    to_string(tensor.shape), to_string(tensor.strides), tensor.offset,
                    quoted_excerpt(storage.key), storage.size));
  }

  void call() {
    const Value tuple = pop();
    const Value function = pop();
    if (function.kind != Kind::kGlobal) invalid("calls a value that is not a global");
    const std::vector<Value> values = arguments(tuple);
    switch (static_cast<Global>(function.index)) {
      case Global::kOrderedDict:
        return push_ordered_dict(values);
      case Global::kRebuildTensor:
        return push_tensor(values, 4, 4);
      case Global::kRebuildTensorV2:
        return push_tensor(values, 6, 7);
      case Global::kRebuildParameter:  // (tensor, requires_grad, backward_hooks)
        if (values.size() != 3 || values[0].kind != Kind::kTensor) {
          invalid("a parameter is made from something other than a tensor");
        }
        return push(values[0]);
      default:
        refuse(global_name(function.index));
    }
  }

  // OrderedDict() or, from Python 2, OrderedDict([[key, value], ...]).
  void push_ordered_dict(const std::vector<Value>& values) {
    push_dict();
    if (values.empty()) return;
    if (values.size() != 1 || values[0].kind != Kind::kList) {
      invalid("an OrderedDict is made from something other than a list of pairs");
    }
    std::vector<Value> items;
    for (const Value& pair : out_.lists[values[0].index]) {
      if (pair.kind != Kind::kList || out_.lists[pair.index].size() != 2) {
        invalid("an OrderedDict is made from something other than a list of pairs");
      }
      for (const Value& value : out_.lists[pair.index]) {
        count_value();  // a list may be shared, so the pairs need not be in the input
        items.push_back(value);
      }
    }
    set_items(items);
  }

  void execute(unsigned char opcode) {
    switch (opcode) {
      // The protocol and the frames do not change what the opcodes mean.
      case 0x80: {  // PROTO
        const std::uint64_t version = unsigned_integer(1);
        if (version > 5) invalid(fmt::format("found protocol {}, expected at most 5", version));
        return;
      }
      case 0x95:  // FRAME
        take(8);
        return;
      case '(':  // MARK
        return push({Kind::kMark, 0, 0});
      case '0':  // POP
        if (!stack_.empty() && stack_.back().kind == Kind::kMark) {
          stack_.pop_back();
        } else {
          pop();
        }
        return;
      case '1':  // POP_MARK
        pop_to_mark();
        return;
      case '2':  // DUP
        return push(top());
      case 'N':
        return push({Kind::kNone, 0, 0});
      case 0x88:  // NEWTRUE
        return push_bool(true);
      case 0x89:  // NEWFALSE
        return push_bool(false);
      case 'J':  // BININT
        return push_integer(static_cast<std::int32_t>(unsigned_integer(4)));
      case 'K':  // BININT1
        return push_integer(static_cast<std::int64_t>(unsigned_integer(1)));
      case 'M':  // BININT2
        return push_integer(static_cast<std::int64_t>(unsigned_integer(2)));
      case 0x8a:  // LONG1
        return push_long(take(length(1, false)));
      case 0x8b:  // LONG4
        return push_long(take(length(4, true)));
      case 'G':  // BINFLOAT; the value of a float is not used
        take(8);
        return push({Kind::kFloat, 0, 0});
      case 'X':  // BINUNICODE
      case 'B':  // BINBYTES
        return push_string(take(length(4, false)));
      case 'T':  // BINSTRING
        return push_string(take(length(4, true)));
      case 0x8c:  // SHORT_BINUNICODE
      case 'U':   // SHORT_BINSTRING
      case 'C':   // SHORT_BINBYTES
        return push_string(take(length(1, false)));
      case 0x8d:  // BINUNICODE8
      case 0x8e:  // BINBYTES8
        return push_string(take(length(8, false)));
      case ')':  // EMPTY_TUPLE
      case ']':  // EMPTY_LIST
        return push_list({});
      case 't':  // TUPLE
      case 'l':  // LIST
        return push_list(pop_to_mark());
      case 0x85:  // TUPLE1
      case 0x86:  // TUPLE2
      case 0x87:  // TUPLE3
        return push_list(pop_values(opcode - 0x84u));
      case 'a':  // APPEND
        return append(pop_values(1));
      case 'e':  // APPENDS
        return append(pop_to_mark());
      case '}':  // EMPTY_DICT
        return push_dict();
      case 's':  // SETITEM
        return set_items(pop_values(2));
      case 'u':  // SETITEMS
        return set_items(pop_to_mark());
      case 'h':  // BINGET
        return get(unsigned_integer(1));
      case 'j':  // LONG_BINGET
        return get(unsigned_integer(4));
      case 'q':  // BINPUT
        return put(unsigned_integer(1));
      case 'r':  // LONG_BINPUT
        return put(unsigned_integer(4));
      case 0x94:  // MEMOIZE
        return put(memo_.size());
      case 'c': {  // GLOBAL
        const std::string_view module = line();
        return push_global(module, line());
      }
      case 0x93: {  // STACK_GLOBAL
        const Value name = pop();
        const Value module = pop();
        if (out_.string(name) == nullptr || out_.string(module) == nullptr) {
          invalid("the name of a global is not a string");
        }
        return push_global(*out_.string(module), *out_.string(name));
      }
      case 'Q':  // BINPERSID
        return push_storage();
      case 'R':  // REDUCE
        return call();
      case 'b':  // BUILD; the attributes of a dictionary (_metadata) are not used
        pop();
        if (top().kind != Kind::kDict)
          invalid("sets attributes of something other than a dictionary");
        return;
      default:
        fail(
            fmt::format("has the opcode {:#04x} at byte {}, which dictionaries of tensors do not "
                        "need",
                        opcode, opcode_at_));
    }
  }

  std::string_view input_;
  const std::filesystem::path& path_;
  ExitCode code_;
  bool bounded_;  // whether input_ is a part of the content
  std::size_t at_ = 0;
  std::size_t opcode_at_ = 0;
  std::size_t values_ = 0;  // made so far
  std::vector<Value> stack_;
  std::map<std::uint64_t, Value> memo_;
  Pickle out_;
};

}  // namespace

const std::string_view* Pickle::string(const Value& value) const {
  return value.kind == Value::Kind::kString ? &strings[value.index] : nullptr;
}

const std::vector<PickleValue>* Pickle::list(const Value& value) const {
  return value.kind == Value::Kind::kList ? &lists[value.index] : nullptr;
}

const std::vector<std::pair<PickleValue, PickleValue>>* Pickle::dict(const Value& value) const {
  return value.kind == Value::Kind::kDict ? &dicts[value.index] : nullptr;
}

Pickle read_pickle(std::span<const std::byte> content, const std::filesystem::path& path,
                   ExitCode code) {
  return Machine(content, path, code).run();
}

}  // namespace tilewright::checkpoint
