#include "controller/cli/gang_scheduler_option.h"

#include "controller/cluster/gang_scheduler.h"

namespace tilewright {

void add_gang_scheduler_option(CLI::App& command, std::string& gang_scheduler) {
  command.add_option_function<std::string>(
      "--gang_scheduler_name,--gang-scheduler-name",
      [&gang_scheduler](const std::string& value) {
        gang_scheduler = cluster::parse_gang_scheduler(value);
      },
      "Create a PodGroup for every job and run its pods, unless they name a scheduler, with this "
      "gang scheduler: volcano, or the name of one with the coscheduling plugin of "
      "scheduler-plugins; default: only jobs with a schedulingPolicy have a PodGroup");
}

}  // namespace tilewright
