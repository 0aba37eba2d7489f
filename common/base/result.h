// Errors as values. The controller and common return Result<T>. The worker converts an Error into
// the exception Failure where it cannot continue, and its main converts that into the exit code.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

#include "common/base/check.h"
#include "common/base/exit_codes.h"

namespace tilewright {

// An expected failure. The message is one sentence: the place, what was found, what was expected.
struct Error {
  ExitCode code = ExitCode::kInternal;
  std::string message;
};

inline Error usage_error(std::string message) { return {ExitCode::kUsage, std::move(message)}; }

class Failure : public std::runtime_error {
 public:
  explicit Failure(const Error& error) : std::runtime_error(error.message), code_(error.code) {}
  Failure(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }
  Error error() const { return {code_, what()}; }

 private:
  ExitCode code_;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}      // NOLINT: implicit on purpose
  Result(Error error) : state_(std::move(error)) {}  // NOLINT: implicit on purpose
  bool ok() const { return std::holds_alternative<T>(state_); }
  explicit operator bool() const { return ok(); }
  const T& value() const& { return checked(), std::get<T>(state_); }
  T& value() & { return checked(), std::get<T>(state_); }
  T&& value() && { return checked(), std::get<T>(std::move(state_)); }
  const T& operator*() const& { return value(); }
  T& operator*() & { return value(); }
  const T* operator->() const { return &value(); }
  T* operator->() { return &value(); }
  const Error& error() const {
    TW_CHECK(!ok(), "error() of a Result that holds a value");
    return std::get<Error>(state_);
  }
  // Returns the value, or throws Failure.
  T or_throw() && {
    if (!ok()) throw Failure(error());
    return std::get<T>(std::move(state_));
  }

 private:
  void checked() const {
    TW_CHECK(ok(), "value() of an Error: {}", std::get<Error>(state_).message);
  }
  std::variant<T, Error> state_;
};

// A Result without a value.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::move(error)), ok_(false) {}  // NOLINT: implicit on purpose
  bool ok() const { return ok_; }
  explicit operator bool() const { return ok_; }
  const Error& error() const {
    TW_CHECK(!ok_, "error() of a Status that is ok");
    return error_;
  }
  void or_throw() const {
    if (!ok_) throw Failure(error_);
  }

 private:
  Error error_;
  bool ok_ = true;
};

}  // namespace tilewright
