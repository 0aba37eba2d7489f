// `tilewright-worker bench gemm|step`: speed of the linear layers and of whole training steps.
#include <cstdio>
#include <memory>

#include "common/base/text.h"
#include "common/contract/environment.h"
#include "worker/bench/gemm_bench.h"
#include "worker/bench/step_bench.h"
#include "worker/cli/commands.h"

namespace tilewright::cli {
namespace {

runtime::Isa isa_of_environment() {
  return runtime::choose_isa(runtime::detect_cpu(), environment_variable(env::kIsa)).or_throw();
}

void add_step(CLI::App& bench, int& exit_code) {
  auto options = std::make_shared<bench::StepBenchOptions>();
  auto json = std::make_shared<bool>(false);
  auto fp32 = std::make_shared<bool>(false);
  auto backend = std::make_shared<std::string>("native");
  CLI::App* step = bench.add_subcommand("step", "forward, backward and AdamW on random tokens");
  step->add_option("--model", options->model, "bert-base, bert-large or minilm")
      ->capture_default_str();
  step->add_option("--batch", options->examples, "examples")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  step->add_option("--seq", options->seqlen, "tokens an example")
      ->check(CLI::Range(1, 512))
      ->capture_default_str();
  step->add_option("--steps", options->steps, "steps timed")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  step->add_option("--shards", options->shards, "virtual shards; 1: exact mode off")
      ->check(CLI::IsMember({1, 2, 4, 8, 16, 32}))
      ->capture_default_str();
  step->add_option("--threads", options->threads, "0: one a physical core")
      ->check(CLI::Range(0, 1024));
  step->add_option("--gemm_backend", *backend)->check(CLI::IsMember({"native", "onednn"}));
  step->add_flag("--fp32", *fp32, "fp32 in place of bf16");
  step->add_flag("--json", *json, "print JSON");
  step->callback([=, &exit_code] {
    options->bf16 = !*fp32;
    options->backend =
        *backend == "onednn" ? kernels::GemmBackend::kOneDnn : kernels::GemmBackend::kNative;
    const bench::StepBenchResult result = bench::bench_step(*options, isa_of_environment());
    std::fputs((*json ? result.to_json() : result.to_text()).c_str(), stdout);
    exit_code = 0;
  });
}

void add_gemm(CLI::App& bench, int& exit_code) {
  auto options = std::make_shared<bench::GemmBenchOptions>();
  auto json = std::make_shared<bool>(false);
  auto fp32 = std::make_shared<bool>(false);
  CLI::App* gemm = bench.add_subcommand("gemm", "the linear layers beside oneDNN's");
  gemm->add_option("--threads", options->threads, "numbers of threads")->capture_default_str();
  gemm->add_option("--repetitions", options->repetitions)
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  gemm->add_option("--shards", options->shards, "virtual shards that dW is summed over")
      ->check(CLI::IsMember({1, 2, 4, 8, 16, 32}))
      ->capture_default_str();
  gemm->add_flag("--fp32", *fp32, "fp32 in place of bf16");
  gemm->add_flag("--json", *json, "print JSON");
  gemm->callback([=, &exit_code] {
    options->bf16 = !*fp32;
    options->isa = isa_of_environment();
    const bench::GemmBench result = bench::bench_gemm(*options);
    std::fputs((*json ? result.to_json() : result.to_text()).c_str(), stdout);
    exit_code = 0;
  });
}

}  // namespace

void add_bench_command(CLI::App& app, int& exit_code) {
  CLI::App* bench = app.add_subcommand("bench", "measures this machine");
  bench->require_subcommand(1);
  add_gemm(*bench, exit_code);
  add_step(*bench, exit_code);
}

}  // namespace tilewright::cli
