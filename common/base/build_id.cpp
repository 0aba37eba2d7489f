#include "common/base/build_id.h"

#include <elf.h>
#include <link.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "common/base/strings.h"

namespace tilewright {
namespace {

using namespace std::string_view_literals;

constexpr std::size_t aligned(std::size_t size) { return (size + 3) / 4 * 4; }

// The descriptor of the build ID's note: each note is a header, a name and a descriptor, the latter
// two padded to 4 bytes (ELF specification, "Note Section").
std::string find_build_id(std::span<const std::byte> notes) {
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    const auto* header = reinterpret_cast<const ElfW(Nhdr)*>(notes.data());
    const std::size_t name = sizeof *header;
    const std::size_t descriptor = name + aligned(header->n_namesz);
    const std::size_t end = descriptor + aligned(header->n_descsz);
    if (end > notes.size()) break;
    const std::string_view owner(reinterpret_cast<const char*>(notes.data() + name),
                                 header->n_namesz);
    if (header->n_type == NT_GNU_BUILD_ID && owner == "GNU\0"sv) {
      return to_hex(
          {reinterpret_cast<const unsigned char*>(notes.data()) + descriptor, header->n_descsz});
    }
    notes = notes.subspan(end);
  }
  return "";
}

// The first object that dl_iterate_phdr() reports is the program.
int visit_program(dl_phdr_info* program, std::size_t, void* found) {
  for (const ElfW(Phdr) & segment : std::span(program->dlpi_phdr, program->dlpi_phnum)) {
    if (segment.p_type != PT_NOTE) continue;
    const auto address = program->dlpi_addr + segment.p_vaddr;
    const auto* begin =
        reinterpret_cast<const std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
    std::string text = find_build_id({begin, segment.p_memsz});
    if (text.empty()) continue;
    *static_cast<std::string*>(found) = std::move(text);
    break;
  }
  return 1;  // ends the iteration
}

}  // namespace

std::string build_id() {
  std::string found;
  dl_iterate_phdr(&visit_program, &found);
  return found;
}

}  // namespace tilewright
