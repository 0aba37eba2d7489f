// Tests of the options that select a cluster.
#include "controller/cli/kubeconfig_options.h"

#include <gtest/gtest.h>

namespace tilewright {
namespace {

TEST(KubeconfigOptions, BecomeSourcesOfTheConfiguration) {
  CLI::App command;
  KubeconfigOptions options;
  add_kubeconfig_options(command, options);
  command.parse("--kubeconfig=file --context=kind --allow_insecure");
  const kube::ConfigSources sources = config_sources(options);
  EXPECT_EQ(sources.kubeconfig, "file");
  EXPECT_EQ(sources.context, "kind");
  EXPECT_TRUE(sources.allow_insecure);
  EXPECT_EQ(sources.home, kube::config_sources_from_environment().home);
}

TEST(KubeconfigOptions, CanBeMadeToNeedAnother) {
  CLI::App command;
  bool cluster = false;
  CLI::Option* needed = command.add_flag("--cluster", cluster);
  KubeconfigOptions options;
  for (CLI::Option* option : add_kubeconfig_options(command, options)) option->needs(needed);
  for (const char* line : {"--kubeconfig=file", "--context=kind", "--allow_insecure"}) {
    EXPECT_THROW(command.parse(line), CLI::RequiresError) << line;
  }
}

}  // namespace
}  // namespace tilewright
