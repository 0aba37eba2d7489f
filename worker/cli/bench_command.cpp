// `tilewright-worker bench ...`: one subcommand for each benchmark of worker/bench.
#include <cstdio>
#include <memory>

#include "common/base/files.h"
#include "common/base/strings.h"
#include "common/contract/environment.h"
#include "common/contract/training_flags.h"
#include "worker/bench/adamw_bench.h"
#include "worker/bench/allreduce_bench.h"
#include "worker/bench/attention_bench.h"
#include "worker/bench/checkpoint_bench.h"
#include "worker/bench/exactness_bench.h"
#include "worker/bench/gemm_bench.h"
#include "worker/bench/layers_bench.h"
#include "worker/bench/lengths.h"
#include "worker/bench/peak_bench.h"
#include "worker/bench/profile_bench.h"
#include "worker/bench/scaling_bench.h"
#include "worker/bench/step_bench.h"
#include "worker/bench/tokenize_bench.h"
#include "worker/cli/commands.h"
#include "worker/runtime/precision.h"

namespace tilewright::cli {
namespace {

runtime::Isa isa_from_environment() {
  return runtime::choose_isa(runtime::detect_cpu(), environment_variable(env::kIsa)).or_throw();
}

template <typename Bench>
void print(const Bench& bench, bool json) {
  std::fputs((json ? bench.to_json() : bench.to_text()).c_str(), stdout);
}

std::shared_ptr<bool> add_json(CLI::App& command) {
  auto json = std::make_shared<bool>(false);
  command.add_flag("--json", *json, "Print JSON");
  return json;
}

// For bench/run.py, not in the help.
std::shared_ptr<bool> add_list_shapes(CLI::App& command) {
  auto list = std::make_shared<bool>(false);
  command.add_flag("--list-shapes", *list, "Print the default shapes as JSON and measure nothing")
      ->group("");
  return list;
}

void add_repetitions(CLI::App& command, int& repetitions) {
  command.add_option("--repetitions", repetitions, "Timed runs; the median is reported")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
}

void add_shards(CLI::App& command, std::int64_t& shards) {
  command
      .add_option("--shards", shards,
                  "Virtual shards, as train --virtual_shards (8 for up to 8 processes); use 1 to "
                  "measure without exact mode")
      ->check(CLI::IsMember({1, 2, 4, 8, 16, 32}))
      ->capture_default_str();
}

// The value of --fp32.
runtime::Precision read_precision(bool fp32) {
  return fp32 ? runtime::Precision::kFp32 : runtime::Precision::kBf16;
}

// The flags of the benchmarks of training steps.
struct WorkloadFlags {
  bench::Workload workload;
  std::string task = "cls";
  std::string lengths;
  std::size_t batch = 32;
  std::int32_t seq = 128;
  std::string backend = "native";
  bool fp32 = false;

  bench::Workload read() const {
    bench::Workload result = workload;
    result.question_answering = task == "qa";
    result.lengths = lengths.empty() ? std::vector<std::int32_t>(batch, seq)
                                     : bench::sample_lengths(bench::read_lengths(lengths), batch);
    result.precision = read_precision(fp32);
    result.backend =
        backend == "onednn" ? kernels::GemmBackend::kOneDnn : kernels::GemmBackend::kNative;
    return result;
  }
};

constexpr const char* kLengthsHelp =
    "File with the lengths of real examples in tokens, one per line; the lengths of the --batch "
    "examples are sampled from them";

std::shared_ptr<WorkloadFlags> add_workload(CLI::App& command) {
  auto flags = std::make_shared<WorkloadFlags>();
  command
      .add_option("--model", flags->workload.model,
                  "Model size: bert-base, bert-large, distilbert or minilm")
      ->capture_default_str();
  command.add_option("--task", flags->task, "cls: classification, qa: question answering")
      ->check(CLI::IsMember({"cls", "qa"}))
      ->capture_default_str();
  command.add_option("--batch", flags->batch, "Examples per step")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  CLI::Option* seq = command.add_option("--seq", flags->seq, "Tokens per example")
                         ->check(CLI::Range(1, bench::kMaxLength))
                         ->capture_default_str();
  command.add_option("--lengths", flags->lengths, kLengthsHelp)->excludes(seq);
  command.add_option("--threads", flags->workload.threads, "Threads; 0: one per physical core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command
      .add_option("--gemm_backend", flags->backend,
                  "GEMM backend of the linear layers; use onednn to compare the native kernels "
                  "with oneDNN")
      ->check(CLI::IsMember({"native", "onednn"}))
      ->capture_default_str();
  command.add_flag("--fp32", flags->fp32, "Use fp32 instead of bf16");
  return flags;
}

void add_checkpointing(CLI::App& command, WorkloadFlags& flags) {
  command.add_flag("--gradient_checkpointing", flags.workload.gradient_checkpointing,
                   "Recompute activations in backward, as train --gradient_checkpointing");
}

void add_peak(CLI::App& bench, int& exit_code) {
  auto options = std::make_shared<bench::PeakBenchOptions>();
  CLI::App* peak = bench.add_subcommand(
      "peak", "Peak GFLOP/s by instruction set and data type, and memory copy bandwidth");
  peak->add_option("--threads", options->threads, "Thread counts to measure")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  add_repetitions(*peak, options->repetitions);
  const auto json = add_json(*peak);
  peak->callback([=, &exit_code] {
    options->isas = environment_variable(env::kIsa).empty()
                        ? runtime::detect_cpu().isas
                        : std::vector<runtime::Isa>{isa_from_environment()};
    print(bench::bench_peak(*options), *json);
    exit_code = 0;
  });
}

void add_step(CLI::App& bench, int& exit_code) {
  auto options = std::make_shared<bench::StepBenchOptions>();
  CLI::App* step =
      bench.add_subcommand("step", "Training step (forward, backward, AdamW) on random tokens");
  const auto flags = add_workload(*step);
  add_checkpointing(*step, *flags);
  step->add_option("--steps", options->steps, "Timed steps; the median is reported")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  add_shards(*step, options->shards);
  const auto json = add_json(*step);
  step->callback([=, &exit_code] {
    options->workload = flags->read();
    print(bench::bench_step(*options, isa_from_environment()), *json);
    exit_code = 0;
  });
}

void add_exactness(CLI::App& bench, int& exit_code) {
  auto options = std::make_shared<bench::ExactnessBenchOptions>();
  CLI::App* exactness = bench.add_subcommand(
      "exactness",
      "Cost of exact mode: the median ratio of the times of steps with and without it, run in "
      "alternation, with a 95 % confidence interval");
  const auto flags = add_workload(*exactness);
  exactness
      ->add_option("--pairs", options->pairs,
                   "Pairs of steps; more pairs give a narrower interval, fewer than 6 give none")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  exactness->add_option("--shards", options->shards, "Virtual shards of the exact steps")
      ->check(CLI::IsMember({2, 4, 8, 16, 32}))
      ->capture_default_str();
  const auto json = add_json(*exactness);
  exactness->callback([=, &exit_code] {
    options->workload = flags->read();
    print(bench::bench_exactness(*options, isa_from_environment()), *json);
    exit_code = 0;
  });
}

void add_profile(CLI::App& bench, int& exit_code) {
  auto options = std::make_shared<bench::ProfileBenchOptions>();
  auto svg = std::make_shared<std::string>();
  CLI::App* profile = bench.add_subcommand(
      "profile",
      "Time of a training step by kernel; linear layers by shape and product (forward, dX, dW)");
  const auto flags = add_workload(*profile);
  add_checkpointing(*profile, *flags);
  profile
      ->add_option("--steps", options->steps,
                   "Profiled steps; the means are reported. They alternate with as many unprofiled "
                   "steps, which show the overhead of profiling")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  add_shards(*profile, options->shards);
  profile->add_option("--svg", *svg, "Also write a bar chart to this file");
  const auto json = add_json(*profile);
  profile->callback([=, &exit_code] {
    options->workload = flags->read();
    const bench::ProfileBench result = bench::bench_profile(*options, isa_from_environment());
    if (!svg->empty()) write_output(*svg, result.profile.to_svg()).or_throw();
    print(result, *json);
    exit_code = 0;
  });
}

void add_layers(CLI::App& bench, int& exit_code) {
  auto options = std::make_shared<bench::LayersBenchOptions>();
  CLI::App* layers = bench.add_subcommand(
      "layers", "Time of one encoder layer, forward and backward with dropout, by operation");
  const auto flags = add_workload(*layers);
  add_repetitions(*layers, options->repetitions);
  add_shards(*layers, options->shards);
  const auto json = add_json(*layers);
  layers->callback([=, &exit_code] {
    options->workload = flags->read();
    print(bench::bench_layers(*options, isa_from_environment()), *json);
    exit_code = 0;
  });
}

void add_adamw(CLI::App& bench, int& exit_code) {
  auto options = std::make_shared<bench::AdamWBenchOptions>();
  CLI::App* adamw = bench.add_subcommand("adamw",
                                         "Optimizer step on all parameters of a model: "
                                         "gradient norm, AdamW, packing of weights");
  const auto flags = add_workload(*adamw);
  add_repetitions(*adamw, options->repetitions);
  const auto json = add_json(*adamw);
  adamw->callback([=, &exit_code] {
    options->workload = flags->read();
    print(bench::bench_adamw(*options, isa_from_environment()), *json);
    exit_code = 0;
  });
}

void add_checkpoint(CLI::App& bench, int& exit_code) {
  auto options = std::make_shared<bench::CheckpointBenchOptions>();
  CLI::App* checkpoint = bench.add_subcommand(
      "checkpoint",
      "How long a training stops for a checkpoint, written in the background or between two steps");
  const auto flags = add_workload(*checkpoint);
  checkpoint
      ->add_option(
          "--output_dir", options->directory,
          "Directory on the storage to measure; its folder bench-checkpoint keeps the last "
          "checkpoint")
      ->required();
  add_repetitions(*checkpoint, options->repetitions);
  const auto json = add_json(*checkpoint);
  checkpoint->callback([=, &exit_code] {
    options->workload = flags->read();
    print(bench::bench_checkpoint(*options, isa_from_environment()), *json);
    exit_code = 0;
  });
}

void add_gemm(CLI::App& bench, int& exit_code) {
  auto options = std::make_shared<bench::GemmBenchOptions>();
  auto fp32 = std::make_shared<bool>(false);
  auto shapes = std::make_shared<std::vector<std::string>>();
  CLI::App* gemm =
      bench.add_subcommand("gemm", "Matrix products of linear layers, compared with oneDNN");
  gemm->add_option("--shapes", *shapes,
                   "Shapes as ROWSxKxN; default: the layers of MiniLM, BERT-base and BERT-large");
  gemm->add_option("--threads", options->threads, "Thread counts to measure")
      ->capture_default_str();
  add_repetitions(*gemm, options->repetitions);
  add_shards(*gemm, options->shards);
  gemm->add_flag("--fp32", *fp32, "Use fp32 instead of bf16");
  const auto list = add_list_shapes(*gemm);
  const auto json = add_json(*gemm);
  gemm->callback([=, &exit_code] {
    exit_code = 0;
    if (*list) {
      std::fputs(bench::shapes_to_json(options->shapes).c_str(), stdout);
      return;
    }
    options->precision = read_precision(*fp32);
    options->isa = isa_from_environment();
    if (!shapes->empty()) options->shapes.clear();
    for (const std::string& shape : *shapes) {
      options->shapes.push_back(bench::parse_gemm_shape(shape));
    }
    print(bench::bench_gemm(*options), *json);
  });
}

void add_attention(CLI::App& bench, int& exit_code) {
  struct Shape {
    std::vector<std::int32_t> sequences;
    std::string lengths;
    std::size_t batch = 32;
    std::int64_t heads = 12;
    std::int64_t head_size = 64;
  };
  auto options = std::make_shared<bench::AttentionBenchOptions>();
  auto shape = std::make_shared<Shape>();
  auto fp32 = std::make_shared<bool>(false);
  CLI::App* attention =
      bench.add_subcommand("attention", "Attention, forward and backward, with dropout");
  auto* sequence = attention
                       ->add_option("--sequence", shape->sequences,
                                    "Tokens per example, one row of the result for each value; "
                                    "default: the shapes of MiniLM, BERT-base and BERT-large")
                       ->check(CLI::Range(1, bench::kMaxLength));
  attention->add_option("--lengths", shape->lengths, kLengthsHelp)->excludes(sequence);
  attention->add_option("--batch", shape->batch, "Examples, with --sequence or --lengths")
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
            return good ? std::string{}
                        : "found " + text + ", expected a multiple of 8 from 8 to 512";
          },
          "INT:multiple of 8"))
      ->capture_default_str();
  attention->add_option("--dropout", options->dropout, "Probability of dropout")
      ->check(CLI::Range(0.0, 0.99))
      ->capture_default_str();
  attention->add_option("--threads", options->threads, "Thread counts to measure")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  add_repetitions(*attention, options->repetitions);
  attention->add_flag("--fp32", *fp32, "Use fp32 instead of bf16");
  const auto list = add_list_shapes(*attention);
  const auto json = add_json(*attention);
  attention->callback([=, &exit_code] {
    exit_code = 0;
    if (*list) {
      std::fputs(bench::shapes_to_json(bench::model_attention_shapes()).c_str(), stdout);
      return;
    }
    options->precision = read_precision(*fp32);
    options->isa = isa_from_environment();
    for (const std::int32_t tokens : shape->sequences) {
      options->shapes.push_back(
          {std::vector<std::int32_t>(shape->batch, tokens), shape->heads, shape->head_size});
    }
    if (!shape->lengths.empty()) {
      options->shapes.push_back(
          {bench::sample_lengths(bench::read_lengths(shape->lengths), shape->batch), shape->heads,
           shape->head_size});
    }
    print(bench::bench_attention(*options), *json);
  });
}

void add_streams(CLI::App& command, int& streams) {
  command
      .add_option("--ddp_streams", streams,
                  "Communication threads per process, each with connections of its own")
      ->check(CLI::Range(1, static_cast<int>(kMaxDdpStreams)))
      ->capture_default_str();
}

void add_allreduce(CLI::App& bench, int& exit_code) {
  auto options = std::make_shared<bench::AllreduceBenchOptions>();
  CLI::App* allreduce = bench.add_subcommand(
      "allreduce", "All-reduce of fp32 gradients between processes of this host");
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
  add_streams(*allreduce, options->streams);
  add_repetitions(*allreduce, options->repetitions);
  const auto json = add_json(*allreduce);
  allreduce->callback([=, &exit_code] {
    print(bench::bench_allreduce(*options), *json);
    exit_code = 0;
  });
}

void add_scaling(CLI::App& bench, int& exit_code) {
  auto options = std::make_shared<bench::ScalingBenchOptions>();
  auto link = std::make_shared<std::string>(bench::format_link_rate(options->link_rate));
  auto hook = std::make_shared<std::string>("no");
  CLI::App* scaling = bench.add_subcommand(
      "scaling",
      "How training would scale to several nodes: processes exchange gradients over emulated links "
      "and wait for the measured time of the computation; needs root and iproute2");
  const auto flags = add_workload(*scaling);
  add_checkpointing(*scaling, *flags);
  scaling
      ->add_option(
          "--nodes", options->nodes,
          "Numbers of nodes, powers of two, separated by commas; each node has the --batch")
      ->delimiter(',')
      ->capture_default_str();
  scaling->add_option("--link", *link, "Rate of each node's link, in both directions")
      ->capture_default_str();
  scaling
      ->add_option("--slowdown", options->slowdown,
                   "Slow links, computation and communication threads by this factor, so that this "
                   "machine can emulate all nodes; 0: chosen from nodes, link and CPUs")
      ->check(CLI::Validator(
          [](const std::string& text) {
            double factor = 0;
            const bool good = CLI::detail::lexical_cast(text, factor) &&
                              (factor == 0 || (factor >= 1 && factor <= 1000));
            return good ? std::string{} : "found " + text + ", expected 0 or 1 to 1000";
          },
          "FLOAT:0 or 1 to 1000"))
      ->capture_default_str();
  scaling
      ->add_option("--host_speed", options->host_speed,
                   "How many times as fast as this machine the nodes compute")
      ->check(CLI::Range(0.01, 1000.0))
      ->capture_default_str();
  scaling
      ->add_option("--ddp_comm_hook", *hook,
                   "bf16: gradients are rounded to bf16 and sent as such, with one virtual shard "
                   "per node")
      ->check(CLI::IsMember({"no", "bf16"}))
      ->capture_default_str();
  add_streams(*scaling, options->streams);
  add_repetitions(*scaling, options->repetitions);
  const auto json = add_json(*scaling);
  scaling->callback([=, &exit_code] {
    options->workload = flags->read();
    options->link_rate = bench::parse_link_rate(*link);
    options->bf16_gradients = *hook == "bf16";
    print(bench::bench_scaling(*options, isa_from_environment()), *json);
    exit_code = 0;
  });
}

void add_tokenize(CLI::App& bench, int& exit_code) {
  auto options = std::make_shared<bench::TokenizeBenchOptions>();
  CLI::App* tokenize = bench.add_subcommand("tokenize", "Tokenizer throughput on a text file");
  tokenize
      ->add_option("--tokenizer_name", options->tokenizer,
                   "Model directory with the tokenizer, as in train")
      ->required();
  tokenize->add_option("--file", options->file, "UTF-8 file; each line is tokenized as one text")
      ->required();
  add_repetitions(*tokenize, options->repetitions);
  tokenize->add_option("--threads", options->threads, "Threads")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  const auto json = add_json(*tokenize);
  tokenize->callback([=, &exit_code] {
    print(bench::bench_tokenize(*options), *json);
    exit_code = 0;
  });
}

}  // namespace

void add_bench_command(CLI::App& app, int& exit_code) {
  CLI::App* bench = app.add_subcommand("bench", "Measure the speed of this machine");
  bench->require_subcommand(1);
  add_peak(*bench, exit_code);
  add_gemm(*bench, exit_code);
  add_attention(*bench, exit_code);
  add_layers(*bench, exit_code);
  add_step(*bench, exit_code);
  add_profile(*bench, exit_code);
  add_exactness(*bench, exit_code);
  add_adamw(*bench, exit_code);
  add_checkpoint(*bench, exit_code);
  add_tokenize(*bench, exit_code);
  add_allreduce(*bench, exit_code);
  add_scaling(*bench, exit_code);
  add_start_bench(*bench, exit_code);
}

}  // namespace tilewright::cli
