// Reads files of pyarrow and `datasets` and compares every value with pyarrow's own reading.
#include <nlohmann/json.hpp>

#include "tests/unit/worker/columnar/columnar_testing.h"

namespace tilewright::columnar {
namespace {

using Json = nlohmann::json;

const Json& expected() {
  static const Json json = Json::parse(tilewright::testing::read_text(data_file("expected.json")));
  return json;
}

std::vector<std::string> file_names() {
  std::vector<std::string> names;
  for (const auto& [name, file] : expected().at("files").items()) names.push_back(name);
  return names;
}

Json value_of(const Column& column, std::size_t i) {
  if (column.type() == ValueType::kString) return std::string(column.strings()[i]);
  if (column.type() == ValueType::kReal) return column.reals()[i];
  if (column.type() == ValueType::kBoolean) return column.integers()[i] != 0;
  return column.integers()[i];
}

Json values_of(const Column& column) {
  Json values = Json::array();
  for (std::size_t row = 0; row < column.rows(); ++row) {
    if (column.is_null(row)) {
      values.push_back(nullptr);
    } else if (column.is_list()) {
      Json list = Json::array();
      for (auto i = column.list_offsets()[row]; i < column.list_offsets()[row + 1]; ++i) {
        list.push_back(value_of(column, static_cast<std::size_t>(i)));
      }
      values.push_back(std::move(list));
    } else {
      values.push_back(value_of(column, row));
    }
  }
  return values;
}

void expect_column(const Column& column, const Json& json) {
  SCOPED_TRACE(column.name());
  EXPECT_EQ(to_string(column.type()), json.at("type").get<std::string>());
  EXPECT_EQ(column.is_list(), json.at("list").get<bool>());
  EXPECT_EQ(values_of(column), json.at("values"));
}

class Files : public ::testing::TestWithParam<std::string> {
 protected:
  const Json& table_json() const {
    const std::string name = expected().at("files").at(GetParam());
    return expected().at("tables").at(name);
  }
};

TEST_P(Files, HaveTheValuesThatPyarrowReads) {
  const Table table = read_table(data_file(GetParam()));
  EXPECT_EQ(table.rows(), table_json().at("rows").get<std::size_t>());
  const Json& columns = table_json().at("columns");
  EXPECT_EQ(table.columns().size(), columns.size());
  for (const Column& column : table.columns()) {
    ASSERT_TRUE(columns.contains(column.name())) << column.name();
    expect_column(column, columns.at(column.name()));
  }
}

TEST_P(Files, GiveEachColumnOnItsOwn) {
  for (const auto& [name, json] : table_json().at("columns").items()) {
    const Table table = read_table(data_file(GetParam()), {name});
    ASSERT_EQ(table.columns().size(), 1u);
    expect_column(table.column(name), json);
  }
}

INSTANTIATE_TEST_SUITE_P(Columnar, Files, ::testing::ValuesIn(file_names()), [](const auto& test) {
  std::string name = test.param;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
});

}  // namespace
}  // namespace tilewright::columnar
