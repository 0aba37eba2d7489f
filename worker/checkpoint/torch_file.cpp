#include "worker/checkpoint/torch_file.h"

#include <cstring>
#include <map>
#include <string>

#include "common/base/printable.h"
#include "worker/checkpoint/pickle.h"
#include "worker/checkpoint/zip_archive.h"

namespace tilewright::checkpoint {
namespace {

using Bytes = std::span<const std::byte>;
using Storages = std::map<std::string_view, Bytes>;  // by key

constexpr std::string_view kZipSignature = "PK\x03\x04";
// 0x1950a86a20f9469cfc6c, little-endian.
constexpr std::string_view kMagicNumber = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
constexpr std::int64_t kProtocol = 1001;

std::string_view text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Whether the elements lie in row-major order without gaps. Then strides are not needed.
bool is_contiguous(const PickledTensor& tensor) {
  std::int64_t expected = 1;
  for (std::size_t d = tensor.shape.size(); d-- > 0;) {
    if (tensor.shape[d] != 1 && tensor.strides[d] != expected) return false;
    expected *= tensor.shape[d];  // the pickle's reader has checked that it does not overflow
  }
  return true;
}

class TorchFileParser {
 public:
  TorchFileParser(Bytes content, const std::filesystem::path& path, ExitCode code)
      : content_(content), path_(path), code_(code) {}

  Tensors parse() {
    if (text_of(content_).starts_with(kZipSignature)) return parse_zip();
    return parse_legacy();
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Failure(code_, fmt::format("{}: {}", path_.string(), what));
  }

  Tensors parse_zip() {
    constexpr std::string_view kPickle = "/data.pkl";
    const ZipEntries entries = read_zip(content_, path_, code_);
    const ZipEntries::value_type* found = nullptr;
    for (const auto& entry : entries) {
      // At the first level: directories below belong to storages and code.
      if (!entry.first.ends_with(kPickle) ||
          entry.first.find('/') + kPickle.size() != entry.first.size()) {
        continue;
      }
      if (found != nullptr) fail("the archive has several files data.pkl, expected one");
      found = &entry;
    }
    if (found == nullptr) {
      fail("the archive has no file data.pkl, expected a file written by torch.save");
    }
    const std::string prefix(found->first.substr(0, found->first.size() - kPickle.size()));
    const auto order = entries.find(prefix + "/byteorder");
    if (order != entries.end() && text_of(order->second) != "little") {
      fail(fmt::format("found the byte order {}, expected \"little\"",
                       quoted_excerpt(text_of(order->second))));
    }
    if (found->second.size() > kMaxPickleBytes) {
      fail(fmt::format("found a pickle of {} bytes, expected at most {}", found->second.size(),
                       kMaxPickleBytes));
    }
    const std::string data = prefix + "/data/";
    Storages storages;
    for (const auto& [name, bytes] : entries) {
      if (name.starts_with(data)) storages.emplace(name.substr(data.size()), bytes);
    }
    return tensors_of(read_pickle(found->second, path_, code_), storages);
  }

  // The next pickle of a file of the older format.
  Pickle next_pickle() {
    Pickle pickle = read_pickle(content_.subspan(at_), path_, code_);
    at_ += pickle.bytes;
    return pickle;
  }
  Bytes take(std::uint64_t count, std::string_view what) {
    if (count > content_.size() - at_) {
      fail(
          fmt::format("{} of {} bytes is past the end of the file of {} bytes (is the file "
                      "truncated?)",
                      what, count, content_.size()));
    }
    const Bytes bytes = content_.subspan(at_, static_cast<std::size_t>(count));
    at_ += static_cast<std::size_t>(count);
    return bytes;
  }

  // Both lie at the beginning and are short, so that another kind of file is recognised before it
  // is read as a pickle.
  void read_magic_number() {
    constexpr std::size_t kNear = 64;
    const std::string_view begin = text_of(content_.first(std::min(content_.size(), kNear)));
    if (begin.find(kMagicNumber) == std::string_view::npos) {
      fail(fmt::format("begins with {}, expected a file written by torch.save",
                       quoted_excerpt(begin.substr(0, 16))));
    }
    const Pickle magic = next_pickle();
    if (magic.result.kind != PickleValue::Kind::kLong ||
        magic.strings[magic.result.index] != kMagicNumber) {
      fail("has another magic number than a file written by torch.save");
    }
    const Pickle protocol = next_pickle();
    if (protocol.result.kind != PickleValue::Kind::kInteger ||
        protocol.result.integer != kProtocol) {
      fail(fmt::format("was not written with the protocol {} of torch.save", kProtocol));
    }
  }

  void read_machine() {
    const Pickle machine = next_pickle();
    const auto* fields = machine.dict(machine.result);
    if (fields == nullptr) fail("has no description of the machine that wrote it");
    for (const auto& [key, value] : *fields) {
      const std::string_view* name = machine.string(key);
      if (name == nullptr || *name != "little_endian") continue;
      if (value.kind == PickleValue::Kind::kBool && value.integer == 1) continue;
      fail("was written by a big-endian machine, expected a little-endian one");
    }
  }

  Tensors parse_legacy() {
    read_magic_number();
    read_machine();
    const Pickle state = next_pickle();
    std::map<std::string_view, const PickledStorage*> described;
    for (const PickledStorage& storage : state.storages) described.emplace(storage.key, &storage);

    const Pickle keys = next_pickle();
    const auto* list = keys.list(keys.result);
    if (list == nullptr) fail("has no list of storages after its tensors");
    Storages storages;
    for (const PickleValue& value : *list) {
      const std::string_view* key = keys.string(value);
      const auto found = key == nullptr ? described.end() : described.find(*key);
      if (found == described.end()) fail("has a storage that no tensor uses");
      storages.emplace(found->first, read_storage(*found->second));
    }
    return tensors_of(state, storages);
  }

  Bytes read_storage(const PickledStorage& storage) {
    const std::string what = fmt::format("storage {}", quoted_excerpt(storage.key));
    std::int64_t count = 0;
    std::memcpy(&count, take(sizeof count, what).data(), sizeof count);
    if (count != storage.size) {
      fail(fmt::format("{} has {} elements, expected {}", what, count, storage.size));
    }
    std::uint64_t bytes = 0;
    if (__builtin_mul_overflow(storage.size, dtype_size(storage.dtype), &bytes)) {
      fail(fmt::format("{} is larger than any file", what));
    }
    return take(bytes, what);
  }

  Tensors tensors_of(const Pickle& pickle, const Storages& storages) const {
    const auto* items = pickle.dict(pickle.result);
    if (items == nullptr) fail("the pickle is not a dictionary; expected one of tensors by name");
    Tensors tensors;
    for (const auto& [key, value] : *items) {
      const std::string_view* name = pickle.string(key);
      if (name == nullptr) fail("the pickle has a key that is not a string; expected names");
      if (value.kind != PickleValue::Kind::kTensor) {
        fail(fmt::format("the pickle has {}, which is not a tensor; expected only tensors",
                         quoted_excerpt(*name)));
      }
      const PickledTensor& tensor = pickle.tensors[value.index];
      const bool added =
          tensors.emplace(*name, locate(*name, tensor, pickle.storages[tensor.storage], storages))
              .second;
      if (!added) fail(fmt::format("the pickle has {} twice", quoted_excerpt(*name)));
    }
    return tensors;
  }

  // The pickle's reader has checked that the tensor is inside a storage of this size.
  Tensor locate(std::string_view name, const PickledTensor& tensor, const PickledStorage& storage,
                const Storages& storages) const {
    const auto found = storages.find(storage.key);
    if (found == storages.end()) {
      fail(fmt::format("tensor {}: the file has no storage {}", quoted_excerpt(name),
                       quoted_excerpt(storage.key)));
    }
    const std::size_t element = dtype_size(storage.dtype);
    std::uint64_t bytes = 0;
    if (__builtin_mul_overflow(storage.size, element, &bytes) || bytes != found->second.size()) {
      fail(fmt::format("tensor {}: storage {} has {} bytes, expected {} elements of {}",
                       quoted_excerpt(name), quoted_excerpt(storage.key), found->second.size(),
                       storage.size, dtype_name(storage.dtype)));
    }
    Tensor out{storage.dtype, tensor.shape, {}, {}};
    if (out.size() == 0) return out;
    if (!is_contiguous(tensor)) out.strides = tensor.strides;
    std::int64_t last = tensor.offset;
    for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
      last += (tensor.shape[d] - 1) * tensor.strides[d];
    }
    const auto begin = static_cast<std::size_t>(tensor.offset) * element;
    out.bytes =
        found->second.subspan(begin, (static_cast<std::size_t>(last) + 1) * element - begin);
    return out;
  }

  Bytes content_;
  const std::filesystem::path& path_;
  ExitCode code_;
  std::size_t at_ = 0;  // in a file of the older format
};

}  // namespace

FileTensors parse_torch_file(Bytes content, const std::filesystem::path& path, ExitCode code) {
  return {TorchFileParser(content, path, code).parse()};
}

}  // namespace tilewright::checkpoint
