// Values of variables that a command refers to and that only the pod knows. They stand in an
// interpreted command until the worker interprets the same command in the pod.
#pragma once

#include <string>
#include <string_view>

namespace tilewright::launch {

// In expanded text: kUnknownBegin NAME kUnknownEnd. Also in a script, for $(NAME) that the kubelet
// expands.
inline constexpr char kUnknownBegin = '\x03';
inline constexpr char kUnknownEnd = '\x04';

// The placeholder for the value of the variable.
std::string unknown_value(std::string_view name);
// The variable of the first placeholder; empty if there is none.
std::string unknown_variable(std::string_view text);
// The text with $NAME in place of each placeholder, for messages.
std::string with_references(std::string_view text);
// "found $NAME, whose value only the pod knows, expected a plain value in env"; for a variable that
// the operator sets whatever env says, "expected a plain value in the command".
std::string refuse_unknown(std::string_view name);

}  // namespace tilewright::launch
