// The fuzz harnesses. Each reads arbitrary bytes as one kind of input, as the programs do, and
// aborts if an invariant is violated. libFuzzer runs them with sanitizers (`make fuzz`); the unit
// test fuzz_corpus_unit_tests runs them on the files of corpus/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tilewright::fuzz {

// Returns 0, as LLVMFuzzerTestOneInput.
using Harness = int (*)(const std::uint8_t* data, std::size_t size);

// Manifest -> TrainJob -> pod and the other objects, as YAML.
int fuzz_manifest(const std::uint8_t* data, std::size_t size);
// The body of one response of an API server.
int fuzz_api_response(const std::uint8_t* data, std::size_t size);
// A watch stream of jobs, pods, nodes and leases -> caches -> plan of a reconcile.
int fuzz_watch_stream(const std::uint8_t* data, std::size_t size);
// A kubeconfig.
int fuzz_kubeconfig(const std::uint8_t* data, std::size_t size);
// A safetensors file.
int fuzz_safetensors(const std::uint8_t* data, std::size_t size);
// A data set of the cache.
int fuzz_dataset_file(const std::uint8_t* data, std::size_t size);
// A model's config.json.
int fuzz_model_config(const std::uint8_t* data, std::size_t size);
// Files of a tokenizer (fuzz_files.h), then the text "input".
int fuzz_tokenizer(const std::uint8_t* data, std::size_t size);
// Parquet and Arrow.
int fuzz_columnar(const std::uint8_t* data, std::size_t size);
// pytorch_model.bin.
int fuzz_torch_file(const std::uint8_t* data, std::size_t size);
// A data file of each task.
int fuzz_tsv(const std::uint8_t* data, std::size_t size);
// The user's files of examples: CSV, TSV, JSON, JSON lines.
int fuzz_own_files(const std::uint8_t* data, std::size_t size);
// Responses of a hub -> the cache of a model and of a data set.
int fuzz_hub(const std::uint8_t* data, std::size_t size);
// Hello, length-prefixed messages of both directions.
int fuzz_rendezvous_messages(const std::uint8_t* data, std::size_t size);
// Requests of TCPStore's clients.
int fuzz_tcpstore(const std::uint8_t* data, std::size_t size);
// A sequence of events for the state machine of membership.
int fuzz_membership(const std::uint8_t* data, std::size_t size);
// What a peer sends while a mesh is built and used.
int fuzz_mesh(const std::uint8_t* data, std::size_t size);
// The files of a checkpoint.
int fuzz_checkpoint(const std::uint8_t* data, std::size_t size);
// A request to the server of probes and metrics.
int fuzz_http_request(const std::uint8_t* data, std::size_t size);
// Command line and environment of a training.
int fuzz_training_flags(const std::uint8_t* data, std::size_t size);
// A command of a shell, and words of torchrun or python.
int fuzz_launch_command(const std::uint8_t* data, std::size_t size);

// What a process manager answers, and what rank 0 shares through it.
int fuzz_process_manager(const std::uint8_t* data, std::size_t size);

struct NamedHarness {
  std::string_view name;  // of its files and of its directory in corpus/
  Harness run;
};

inline constexpr NamedHarness kHarnesses[] = {
    {"manifest", fuzz_manifest},
    {"api_response", fuzz_api_response},
    {"watch_stream", fuzz_watch_stream},
    {"kubeconfig", fuzz_kubeconfig},
    {"safetensors", fuzz_safetensors},
    {"dataset_file", fuzz_dataset_file},
    {"model_config", fuzz_model_config},
    {"tokenizer", fuzz_tokenizer},
    {"columnar", fuzz_columnar},
    {"torch_file", fuzz_torch_file},
    {"tsv", fuzz_tsv},
    {"own_files", fuzz_own_files},
    {"hub", fuzz_hub},
    {"rendezvous_messages", fuzz_rendezvous_messages},
    {"tcpstore", fuzz_tcpstore},
    {"membership", fuzz_membership},
    {"mesh", fuzz_mesh},
    {"checkpoint", fuzz_checkpoint},
    {"http_request", fuzz_http_request},
    {"training_flags", fuzz_training_flags},
    {"launch_command", fuzz_launch_command},
    {"process_manager", fuzz_process_manager},
};

}  // namespace tilewright::fuzz
