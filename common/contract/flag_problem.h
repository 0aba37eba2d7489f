// A value of a training flag, or a combination of flags, that is wrong.
#pragma once

#include <string>
#include <string_view>

namespace tilewright {

struct FlagProblem {
  std::string_view flag;  // the flag to change
  std::string found;      // empty: the flag is missing
  std::string expected;

  // "found x, expected ..."; "found nothing, expected ..." if the flag is missing.
  std::string message() const;
  // "--train_file is missing, expected ...", "--seed: found x, expected ..." or, if `found` begins
  // with a flag, "found --a with --b, expected ...".
  std::string sentence() const;
};

}  // namespace tilewright
