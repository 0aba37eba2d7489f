#include <map>
#include <variant>

#include "common/base/check.h"
#include "common/contract/rdzv_conf.h"
#include "common/contract/training_flags.h"
#include "common/contract/unknown_variables.h"
#include "common/contract/virtual_shards.h"
#include "common/net/address.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/harness.h"

namespace tilewright::fuzz {
namespace {

// One argument per line.
std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size() && lines.size() < 200;) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

void check_normal_form(const TrainingFlag& flag, const std::string& value) {
  const Result<std::string> normal = normalize_flag_value(flag, value);
  if (!normal.ok()) return check_message(normal.error().message);
  const Result<std::string> again = normalize_flag_value(flag, *normal);
  TW_CHECK(again.ok() && *again == *normal, "--{}: the normal form {} of {} is not normal",
           flag.name, *normal, value);
}

void check_settings(const TrainingSettings& settings) {
  for (const TrainingFlag& flag : training_flags()) {
    double value = flag.minimum;
    if (const auto* member = std::get_if<std::int64_t TrainingSettings::*>(&flag.member)) {
      value = static_cast<double>(settings.**member);
    } else if (const auto* real = std::get_if<double TrainingSettings::*>(&flag.member)) {
      value = settings.**real;
    }
    const bool special =
        (flag.allows_minus_one && value == -1) || (flag.counts_steps && value > 0 && value < 1);
    TW_CHECK(special || (value >= flag.minimum && value <= flag.maximum) ||
                 flag.type == FlagType::kBool || flag.type == FlagType::kString ||
                 flag.type == FlagType::kChoice,
             "--{} is {}", flag.name, value);
  }
}

}  // namespace

int fuzz_training_flags(const std::uint8_t* data, std::size_t size) {
  const std::vector<std::string> lines = lines_of(as_text(data, size));
  const Result<TrainingArguments> parsed = TrainingArguments::parse(lines);
  if (parsed.ok()) {
    check_settings(parsed->settings());
  } else {
    check_message(parsed.error().message);
  }
  std::vector<const char*> environment;
  for (const std::string& line : lines) {
    environment.push_back(line.c_str());
    const std::size_t equals = std::min(line.find('='), line.size());
    RdzvConf conf;
    Status status =
        set_rdzv_conf(conf, line.substr(0, equals), line.substr(std::min(equals + 1, line.size())));
    if (status.ok()) status = check(conf);
    if (!status.ok()) check_message(status.error().message);
    const Result<net::Address> address = net::parse_address(line);
    if (address.ok()) {
      const Result<net::Address> again = net::parse_address(net::to_string(*address));
      TW_CHECK(again.ok() && *again == *address, "an address changes: {}", line);
    } else {
      check_message(address.error().message);
    }
    for (const TrainingFlag& flag : training_flags()) check_normal_form(flag, line);
  }
  environment.push_back(nullptr);
  for (const std::string& sentence : describe_unknown_variables(environment.data())) {
    check_message(sentence);
  }
  return 0;
}

}  // namespace tilewright::fuzz
