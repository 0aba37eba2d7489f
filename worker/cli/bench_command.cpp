// `tilewright-worker bench gemm|attention|step|tokenize|allreduce`: speed of the linear layers, of
// attention, of whole training steps, of the tokenizer and of the exchange of gradients.
#include <cstdio>
#include <memory>

#include "common/base/strings.h"
#include "common/contract/environment.h"
#include "worker/bench/allreduce_bench.h"
#include "worker/bench/attention_bench.h"
#include "worker/bench/gemm_bench.h"
#include "worker/bench/step_bench.h"
#include "worker/bench/tokenize_bench.h"
#include "worker/cli/commands.h"

namespace tilewright::cli {
namespace {

runtime::Isa isa_from_environment() {
  return runtime::choose_isa(runtime::detect_cpu(), environment_variable(env::kIsa)).or_throw();
}

void add_step(CLI::App& bench, int& exit_code) {
  auto options = std::make_shared<bench::StepBenchOptions>();
  auto json = std::make_shared<bool>(false);
  auto fp32 = std::make_shared<bool>(false);
  auto backend = std::make_shared<std::string>("native");
  CLI::App* step = bench.add_subcommand("step", "Forward, backward and AdamW on random tokens");
  step->add_option("--model", options->model,
                   "Model size: bert-base, bert-large, distilbert or minilm")
      ->capture_default_str();
  step->add_flag("--question_answering", options->question_answering,
                 "Train question answering instead of classification");
  step->add_option("--batch", options->examples, "Examples per step")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  step->add_option("--seq", options->seqlen, "Tokens per example")
      ->check(CLI::Range(1, 512))
      ->capture_default_str();
  step->add_option("--steps", options->steps, "Measured steps")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  step->add_option("--shards", options->shards,
                   "Virtual shards, as train --virtual_shards (8 for up to 8 processes); use 1 to "
                   "measure a step without exact mode")
      ->check(CLI::IsMember({1, 2, 4, 8, 16, 32}))
      ->capture_default_str();
  step->add_option("--threads", options->threads, "Threads; 0: one per physical core")
      ->check(CLI::Range(0, 1024));
  step->add_option("--gemm_backend", *backend,
                   "GEMM backend of the linear layers; use onednn to compare the native kernels "
                   "with oneDNN")
      ->check(CLI::IsMember({"native", "onednn"}));
  step->add_flag("--fp32", *fp32, "Use fp32 instead of bf16");
  step->add_flag("--json", *json, "Print JSON");
  step->callback([=, &exit_code] {
    options->bf16 = !*fp32;
    options->backend =
        *backend == "onednn" ? kernels::GemmBackend::kOneDnn : kernels::GemmBackend::kNative;
    const bench::StepBenchResult result = bench::bench_step(*options, isa_from_environment());
    std::fputs((*json ? result.to_json() : result.to_text()).c_str(), stdout);
    exit_code = 0;
  });
}

void add_gemm(CLI::App& bench, int& exit_code) {
  auto options = std::make_shared<bench::GemmBenchOptions>();
  auto json = std::make_shared<bool>(false);
  auto fp32 = std::make_shared<bool>(false);
  CLI::App* gemm = bench.add_subcommand("gemm", "Linear layers, compared with oneDNN");
  gemm->add_option("--threads", options->threads, "Thread counts to measure")
      ->capture_default_str();
  gemm->add_option("--repetitions", options->repetitions,
                   "Timed runs of each layer; the median is reported")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  gemm->add_option("--shards", options->shards,
                   "Virtual shards over which the weight gradient dW is summed, as train "
                   "--virtual_shards (8 for up to 8 processes); use 1 to measure without exact "
                   "mode")
      ->check(CLI::IsMember({1, 2, 4, 8, 16, 32}))
      ->capture_default_str();
  gemm->add_flag("--fp32", *fp32, "Use fp32 instead of bf16");
  gemm->add_flag("--json", *json, "Print JSON");
  gemm->callback([=, &exit_code] {
    options->bf16 = !*fp32;
    options->isa = isa_from_environment();
    const bench::GemmBench result = bench::bench_gemm(*options);
    std::fputs((*json ? result.to_json() : result.to_text()).c_str(), stdout);
    exit_code = 0;
  });
}

void add_attention(CLI::App& bench, int& exit_code) {
  struct Shape {
    std::vector<std::int32_t> sequences;
    std::string lengths;
    std::int64_t batch = 32;
    std::int64_t heads = 12;
    std::int64_t head_size = 64;
  };
  auto options = std::make_shared<bench::AttentionBenchOptions>();
  auto shape = std::make_shared<Shape>();
  auto json = std::make_shared<bool>(false);
  auto fp32 = std::make_shared<bool>(false);
  CLI::App* attention =
      bench.add_subcommand("attention", "Attention, forward and backward, with dropout");
  auto* sequence = attention
                       ->add_option("--sequence", shape->sequences,
                                    "Tokens per example, one row of the result for each value; "
                                    "default: the shapes of MiniLM, BERT-base and BERT-large")
                       ->check(CLI::Range(1, 512));
  attention
      ->add_option("--lengths", shape->lengths,
                   "File with the tokens of each example, one number per line")
      ->excludes(sequence);
  attention->add_option("--batch", shape->batch, "Examples, with --sequence")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  attention->add_option("--heads", shape->heads, "Heads, with --sequence or --lengths")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  attention->add_option("--head-size", shape->head_size, "Size of a head, a multiple of 8")
      ->check(CLI::Validator(
          [](const std::string& text) {
            std::int64_t size = 0;
            const bool good =
                CLI::detail::lexical_cast(text, size) && size >= 8 && size <= 512 && size % 8 == 0;
            return good ? std::string{} : "expected a multiple of 8 from 8 to 512, found " + text;
          },
          "INT:multiple of 8"))
      ->capture_default_str();
  attention->add_option("--dropout", options->dropout, "Probability of dropout")
      ->check(CLI::Range(0.0, 0.99))
      ->capture_default_str();
  attention->add_option("--threads", options->threads, "Thread counts to measure")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  attention->add_option("--repetitions", options->repetitions, "Timed runs; the median is reported")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  attention->add_flag("--fp32", *fp32, "Use fp32 instead of bf16");
  attention->add_flag("--json", *json, "Print JSON");
  attention->callback([=, &exit_code] {
    options->bf16 = !*fp32;
    options->isa = isa_from_environment();
    for (const std::int32_t tokens : shape->sequences) {
      options->shapes.push_back(
          {std::vector<std::int32_t>(shape->batch, tokens), shape->heads, shape->head_size});
    }
    if (!shape->lengths.empty()) {
      options->shapes.push_back(
          {bench::read_lengths(shape->lengths), shape->heads, shape->head_size});
    }
    const bench::AttentionBench result = bench::bench_attention(*options);
    std::fputs((*json ? result.to_json() : result.to_text()).c_str(), stdout);
    exit_code = 0;
  });
}

void add_allreduce(CLI::App& bench, int& exit_code) {
  auto options = std::make_shared<bench::AllreduceBenchOptions>();
  auto json = std::make_shared<bool>(false);
  CLI::App* allreduce =
      bench.add_subcommand("allreduce", "Sum of fp32 gradients over processes of this host");
  allreduce->add_option("--ranks", options->ranks, "Processes")
      ->check(CLI::Range(2, 64))
      ->capture_default_str();
  allreduce
      ->add_option("--sizes", options->megabytes,
                   "MiB of gradients, separated by commas, one row for each value")
      ->delimiter(',')
      ->check(CLI::Range(0.001, 4096.0))
      ->capture_default_str();
  allreduce
      ->add_option("--transport", options->transport,
                   "shm: shared memory, tcp: TCP over the loopback device")
      ->check(CLI::IsMember({"shm", "tcp"}))
      ->capture_default_str();
  allreduce->add_option("--repetitions", options->repetitions, "Timed runs; the median is reported")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  allreduce->add_flag("--json", *json, "Print JSON");
  allreduce->callback([=, &exit_code] {
    const bench::AllreduceBench result = bench::bench_allreduce(*options);
    std::fputs((*json ? result.to_json() : result.to_text()).c_str(), stdout);
    exit_code = 0;
  });
}

void add_tokenize(CLI::App& bench, int& exit_code) {
  auto options = std::make_shared<bench::TokenizeBenchOptions>();
  auto json = std::make_shared<bool>(false);
  CLI::App* tokenize = bench.add_subcommand("tokenize", "Conversion of a text file to tokens");
  tokenize
      ->add_option("--tokenizer_name", options->tokenizer,
                   "Model directory with the tokenizer, as in train")
      ->required();
  tokenize->add_option("--file", options->file, "Text in UTF-8; each line is a text")->required();
  tokenize
      ->add_option("--repetitions", options->repetitions,
                   "Timed runs over the file; the median is reported")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  tokenize->add_option("--threads", options->threads, "Threads")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  tokenize->add_flag("--json", *json, "Print JSON");
  tokenize->callback([=, &exit_code] {
    const bench::TokenizeBenchResult result = bench::bench_tokenize(*options);
    std::fputs((*json ? result.to_json() : result.to_text()).c_str(), stdout);
    exit_code = 0;
  });
}

}  // namespace

void add_bench_command(CLI::App& app, int& exit_code) {
  CLI::App* bench = app.add_subcommand("bench", "Measure the speed of this machine");
  bench->require_subcommand(1);
  add_gemm(*bench, exit_code);
  add_attention(*bench, exit_code);
  add_step(*bench, exit_code);
  add_allreduce(*bench, exit_code);
  add_tokenize(*bench, exit_code);
  add_start_bench(*bench, exit_code);
}

}  // namespace tilewright::cli
