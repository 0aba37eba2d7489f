#include "common/base/check.h"
#include "common/base/result.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/harness.h"
#include "worker/columnar/arrow_stream.h"
#include "worker/columnar/parquet.h"

namespace tilewright::fuzz {
namespace {

void check_table(const columnar::Table& table) {
  for (const columnar::Column& column : table.columns()) {
    TW_CHECK(column.rows() == table.rows(), "column {} has {} rows of {}", column.name(),
             column.rows(), table.rows());
    TW_CHECK(column.is_list() || column.values() == column.rows(), "column {} has {} values",
             column.name(), column.values());
    for (std::size_t i = 0; i < column.strings().size(); ++i) (void)column.strings()[i].size();
  }
}

}  // namespace

int fuzz_columnar(const std::uint8_t* data, std::size_t size) {
  const columnar::Bytes content(reinterpret_cast<const std::byte*>(data), size);
  for (const auto parse : {columnar::parse_parquet, columnar::parse_arrow_stream}) {
    try {
      check_table(parse(content, "data.parquet", {}));
    } catch (const Failure& failure) {
      check_message(failure.what());
    }
  }
  return 0;
}

}  // namespace tilewright::fuzz
