# The commands of the README; everything else is CMake: `cmake --preset release && cmake --build --preset release`.
SHELL := /bin/bash
PRESET ?= release
BUILD := build/$(PRESET)
MODEL := .cache/models/all-minilm-l6-v2

.PHONY: help demo crd docs test unit hosts build deps test-deps model cluster-programs cluster cluster-down e2e chaos images tarball \
  tarball-debian-11 peers peers-kubeflow peers-torchrun bench bench-controller elastic-report parity parity-gradients parity-loss-curves parity-quality kubeflow-crd \
  install asan tsan sanitize fuzz format tidy words clean

help: ## this list
	@awk -F ' *## ' '/^[a-z][a-z0-9-]*:.*## / {split($$1, target, ":"); printf "make %-18s %s\n", target[1], $$2}' Makefile

demo: build model ## trains a pre-trained BERT on the example data with two workers
	$(BUILD)/bin/tilewright up examples/trainjob.yaml

# The end-to-end tests drain the node and stop its kubelet, so only `make e2e` runs them.
test: test-deps model ## builds and runs every test but those of `make e2e`, `make hosts` and `make peers`; `make cluster-programs` enables those that need an API server
	$(MAKE) build TARGETS=tests
	ctest --preset $(PRESET) -j 3 -LE "e2e|peers|hosts" -E _NOT_BUILT; code=$$?; .ci/skipped $(BUILD) && exit $$code

hosts: test-deps model ## trainings on several hosts: agent over ssh, Open MPI, Hydra (network namespaces; needs root; minutes)
	$(MAKE) build TARGETS="mpi_integration_tests agent_integration_tests"
	ctest --preset $(PRESET) -L hosts -j 1; code=$$?; .ci/skipped $(BUILD) && exit $$code

unit: ## builds and runs the unit tests alone
	$(MAKE) build TARGETS=tests
	ctest --preset $(PRESET) -L unit

TARGETS ?= tilewright tilewright-worker
# All sources of a target at once; for edits to single sources, configure with -DTILEWRIGHT_UNITY=OFF.
CMAKE_FLAGS ?= -DTILEWRIGHT_UNITY=ON
build: deps ## builds the programs
	cmake --preset $(PRESET) $(CMAKE_FLAGS)
	cmake --build --preset $(PRESET) --target $(TARGETS)

deps: ## installs missing Debian packages (with sudo if not root), or prints the command to run
	@.ci/install-packages .ci/packages.txt

test-deps: ## the same, and what only tests need
	@.ci/install-packages .ci/packages.txt .ci/packages-metrics.txt

model: $(MODEL)/model.safetensors ## downloads a pre-trained BERT, pinned by version and hash
$(MODEL)/model.safetensors: .ci/model.txt | deps
	.ci/fetch-model $(MODEL)

cluster-programs: ## builds etcd, kube-apiserver and kubectl for tests against an API server (minutes, once)
	.ci/control-plane build

cluster: images ## starts a one-node Kubernetes on this machine (or uses KUBECONFIG) and installs the operator; needs root
	tests/cluster/cluster up build/images/*.tar

cluster-down: ## removes everything that `make cluster` started
	tests/cluster/cluster down

images: build ## builds the images of worker, controller and test helpers
	.ci/install-packages .ci/packages-cluster.txt
	docker/build

tarball: build ## packs the worker with its loader and libraries, for any Linux without containers
	docker/tarball

# Debian 11 has glibc 2.31 and Linux 5.10; its packages come from the mirror of debootstrap.
tarball-debian-11: tarball model ## trains with the tarball in a Debian 11 root; needs root, debootstrap and a mirror
	. docker/version.sh && tests/tarball-root "build/tilewright-worker-$$version-x86_64.tar.xz" bullseye

e2e: export KUBECONFIG ?= $(wildcard $(shell tests/cluster/cluster folder)/kubeconfig)
e2e: test-deps model ## the end-to-end tests on the cluster of KUBECONFIG, by default that of `make cluster`
	$(MAKE) build TARGETS=e2e_tests
	ctest --preset $(PRESET) -L e2e -j 2; code=$$?; .ci/skipped $(BUILD) && exit $$code

peers: peers-kubeflow peers-torchrun ## tests with Kubeflow's operator and with torchrun

peers-kubeflow: cluster-programs ## compares the operator with Kubeflow's on the same PyTorchJobs
	$(MAKE) build TARGETS="tilewright kubeflow_peer_tests"
	tests/peers/kubeflow/run $(BUILD)

chaos: model ## soak on the cluster of `make cluster`: faults from a seed during trainings (two hours; CHAOS_FLAGS="--minutes 30 --seed 7")
	$(MAKE) build TARGETS="tilewright tilewright-worker"
	tests/chaos/soak.py $(CHAOS_FLAGS)

elastic-report: build model ## trains MRPC and SQuAD while workers are killed, frozen, added and removed and a link is cut: one SHA-256; a table of stalls (40 minutes; ELASTIC_FLAGS="--tasks squad --seed 7")
	python3 bench/elastic_report.py --worker $(BUILD)/bin/tilewright-worker --tool $(BUILD)/bin/tilewright --model $(MODEL) --data $(PARITY_DATA) $(ELASTIC_FLAGS)

BENCH_PYTHON ?= python3
bench: build model ## every benchmark of the worker, compared with PyTorch, oneDNN, Gloo and tokenizers where installed: tables and plots in bench/results (three hours; an idle machine; resumes; BENCH_PYTHON has PyTorch; BENCH_FLAGS="--kinds step gemm")
	python3 bench/run.py --worker $(BUILD)/bin/tilewright-worker --model $(MODEL) --data $(PARITY_DATA) --peer-python $(BENCH_PYTHON) $(BENCH_FLAGS)

bench-controller: ## the operator under load: 200 jobs at once, 2,000 stored (needs an idle machine)
	.ci/control-plane build etcd kube-apiserver kubectl kube-scheduler kwok
	$(MAKE) build TARGETS="tilewright tilewright-controller-bench"
	$(BUILD)/bin/tilewright-controller-bench --out $$(python3 bench/support.py controller)

PEERS_PYTHON := .cache/peers/bin/python
peers-torchrun: .cache/peers/installed cluster-programs ## real torchrun agents with Tilewright's store, some of them killed (PyTorch from PyPI, 5 GB; needs root)
	$(MAKE) build TARGETS="tcpstore_server tilewright torchrun_peer_tests"
	TILEWRIGHT_PEER_PYTHON=$(CURDIR)/$(PEERS_PYTHON) $(BUILD)/tests/torchrun_peer_tests
	$(PEERS_PYTHON) tests/peers/operations.py --server $(BUILD)/tests/tcpstore_server
	$(PEERS_PYTHON) tests/peers/torchrun.py --server $(BUILD)/tests/tcpstore_server --out bench/results/torchrun.json

.cache/peers/installed: tests/peers/requirements.txt
	python3 -m venv $(@D)
	$(PEERS_PYTHON) -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

PARITY_PYTHON := .cache/parity/bin/python
PARITY_DATA ?= ../shared/data
PARITY_MODELS ?= bert-small distilbert-small tinybert bert-base distilbert bert-large
parity: parity-gradients parity-loss-curves parity-quality ## compares gradients and loss curves with PyTorch's and trained models with Hugging Face's Trainer (hours; resumes; PARITY_FLAGS="--tasks mrpc --minutes 60")

.cache/parity/installed: bench/parity/requirements.txt .ci/packages-peers.txt
	.ci/install-packages .ci/packages-peers.txt
	python3 -m venv $(@D)
	$(PARITY_PYTHON) -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

parity-gradients: .cache/parity/installed ## gradients of the models PARITY_MODELS, with random weights
	$(MAKE) build TARGETS=tilewright-parity-gradients
	$(PARITY_PYTHON) bench/parity/gradients.py --models $(PARITY_MODELS) --json $$(python3 bench/support.py gradients)

parity-loss-curves: build model .cache/parity/installed ## losses of 100 steps on MRPC and SQuAD
	$(PARITY_PYTHON) bench/parity/loss_curves.py --worker $(BUILD)/bin/tilewright-worker --model $(MODEL) --data $(PARITY_DATA)

parity-quality: build model .cache/parity/installed ## metrics of models trained with several seeds
	$(PARITY_PYTHON) bench/parity/quality.py run --worker $(BUILD)/bin/tilewright-worker --model $(MODEL) --data $(PARITY_DATA) $(PARITY_FLAGS)

crd: ## writes the generated CRDs to crds/, which the Helm chart links to
	$(MAKE) build TARGETS=tilewright
	$(BUILD)/bin/tilewright crd > crds/trainjobs.tilewright.dev.yaml.staging
	mv crds/trainjobs.tilewright.dev.yaml.staging crds/trainjobs.tilewright.dev.yaml
	$(BUILD)/bin/tilewright crd --kind PyTorchJob > crds/pytorchjobs.kubeflow.org.yaml.staging
	mv crds/pytorchjobs.kubeflow.org.yaml.staging crds/pytorchjobs.kubeflow.org.yaml

go-module = $$(go mod download -json $(1) | sed -n 's/.*"Dir": "\(.*\)",/\1/p')
KUBEFLOW := github.com/kubeflow/training-operator@v1.9.3
TRAINER := github.com/kubeflow/trainer/v2@v2.0.0
kubeflow-crd: ## tests PyTorchJobs and TrainJobs on an API server with the CRDs of Kubeflow's training operator and Trainer v2
	$(MAKE) build TARGETS=pytorchjob_crd_integration_tests
	TILEWRIGHT_PYTORCHJOB_CRD=$(call go-module,$(KUBEFLOW))/manifests/base/crds/kubeflow.org_pytorchjobs.yaml \
		TILEWRIGHT_TRAINER_CRD=$(call go-module,$(TRAINER))/manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml \
		CI=true $(BUILD)/tests/pytorchjob_crd_integration_tests

install: TARGETS := tilewright tilewright-worker tilewright-launcher
install: build ## installs the programs below /usr/local
	cmake --install $(BUILD)

asan: model ## the unit tests that CI runs under the address and undefined-behavior sanitizers
	.ci/sanitize asan
tsan: model ## the unit tests that CI runs under the thread sanitizer
	.ci/sanitize tsan
sanitize: model ## the unit tests of every module under both (an hour)
	.ci/sanitize asan all
	.ci/sanitize tsan all

fuzz: ## a minute of fuzzing (clang, libFuzzer, sanitizers); tests/fuzz/README.md
	.ci/fuzz 60

docs: build ## writes docs/reference.md from the tables of common/contract
	$(BUILD)/bin/tilewright reference > docs/reference.md

format: ## formats every source file
	git ls-files '*.h' '*.cpp' '*.inl' | xargs clang-format -i
words: ## lists uses of retired words
	.ci/check-words
tidy: build ## lints every source file (40 minutes)
	.ci/tidy $$(git ls-files '*.cpp')

clean:
	rm -rf build
