#include "worker/train/faults.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "common/base/file_descriptor.h"
#include "common/base/strings.h"

namespace tilewright::train {
namespace {

Error invalid(std::string_view text, const std::string& why) {
  return {ExitCode::kUsage,
          fmt::format("TILEWRIGHT_FAULT={}: {}, expected "
                      "POINT[@STEP[-STEP]][,worker=INDEX][,epoch=EPOCH][,once=FILE]"
                      "[,delay=MILLISECONDS][,hold=PIPE][;...]",
                      text, why)};
}

}  // namespace

Result<Faults> Faults::parse(std::string_view text) {
  Faults faults;
  while (!text.empty()) {
    const std::string_view one = text.substr(0, text.find(';'));
    text = one.size() < text.size() ? text.substr(one.size() + 1) : std::string_view();
    Result<Target> target = parse_one(one);
    if (!target.ok()) return target.error();
    faults.targets_.push_back(std::move(target).value());
  }
  return faults;
}

Result<Faults::Target> Faults::parse_one(std::string_view text) {
  Target target;
  std::string_view rest = text;
  std::string_view head = rest.substr(0, rest.find(','));
  rest = head.size() < rest.size() ? rest.substr(head.size() + 1) : std::string_view();
  if (const auto at = head.find('@'); at != std::string_view::npos) {
    const std::string_view steps = head.substr(at + 1);
    const auto dash = steps.find('-');
    target.first_step = parse_number<std::int64_t>(steps.substr(0, dash), 0);
    target.last_step = dash == std::string_view::npos
                           ? target.first_step
                           : parse_number<std::int64_t>(steps.substr(dash + 1), 0);
    if (!target.first_step || !target.last_step) {
      return invalid(text, "the step is not an integer");
    }
    head = head.substr(0, at);
  }
  if (std::find(std::begin(kFaultPoints), std::end(kFaultPoints), head) == std::end(kFaultPoints)) {
    std::string known;
    for (const std::string_view point : kFaultPoints) {
      known += fmt::format("{}{}", known.empty() ? "" : ", ", point);
    }
    return invalid(text, fmt::format("unknown point \"{}\" (known: {})", head, known));
  }
  target.point = head;
  while (!rest.empty()) {
    const std::string_view part = rest.substr(0, rest.find(','));
    rest = part.size() < rest.size() ? rest.substr(part.size() + 1) : std::string_view();
    const auto equals = part.find('=');
    const std::string_view given =
        equals == std::string_view::npos ? std::string_view() : part.substr(equals + 1);
    const auto value = parse_number<std::int64_t>(given, 0);
    if (!given.empty() && part.substr(0, equals) == "once") {
      target.file = given;
    } else if (!given.empty() && part.substr(0, equals) == "hold") {
      target.pipe = given;
    } else if (value && part.substr(0, equals) == "worker") {
      target.worker = *value;
    } else if (value && part.substr(0, equals) == "epoch") {
      target.epoch = static_cast<std::uint64_t>(*value);
    } else if (value && part.substr(0, equals) == "delay") {
      target.delay = std::chrono::milliseconds(*value);
    } else {
      return invalid(text, fmt::format("found \"{}\"", part));
    }
  }
  return target;
}

bool Faults::matches(const Target& target, std::string_view point) const {
  return target.point == point &&
         target.epoch.value_or(target.file.empty() ? 1 : epoch_) == epoch_ &&
         target.worker.value_or(worker_) == worker_ && target.first_step.value_or(step_) <= step_ &&
         target.last_step.value_or(step_) >= step_;
}

void Faults::hit(std::string_view point) const {
  for (const Target& target : targets_) {
    if (!matches(target, point)) continue;
    // Of several processes that reach the point, the one that removes the file has the fault.
    if (!target.file.empty() && unlink(target.file.c_str()) != 0) continue;
    if (!target.pipe.empty()) {
      const FileDescriptor held(open(target.pipe.c_str(), O_RDONLY | O_CLOEXEC));
      char ignored = 0;
      while (held && read(held.get(), &ignored, 1) > 0) {
      }
      continue;
    }
    if (target.delay > std::chrono::milliseconds(0)) {
      if (sleep_) {
        sleep_(target.delay);
      } else {
        std::this_thread::sleep_for(target.delay);
      }
      continue;
    }
    kill(getpid(), SIGKILL);
    // The first process of a container (PID 1) cannot kill itself with SIGKILL.
    _exit(128 + SIGKILL);
  }
}

}  // namespace tilewright::train
