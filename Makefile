# The commands of the README; everything else is CMake: `cmake --preset release && cmake --build --preset release`.
SHELL := /bin/bash
PRESET ?= release
BUILD := build/$(PRESET)
MODEL := .cache/models/all-minilm-l6-v2

.PHONY: demo crd docs test unit build deps test-deps model cluster-programs cluster cluster-down e2e images \
  bench-controller parity parity-gradients parity-quality install asan tsan sanitize fuzz format tidy words clean

demo: build model ## trains a pre-trained BERT on the example data with two workers
	$(BUILD)/bin/tilewright up examples/trainjob.yaml

# The end-to-end tests drain the node and stop its kubelet, so only `make e2e` runs them.
test: test-deps model ## builds and runs every test but the end-to-end tests; `make cluster-programs` enables those that need an API server
	$(MAKE) build TARGETS=all
	ctest --preset $(PRESET) -LE e2e; code=$$?; .ci/skipped $(BUILD) && exit $$code

unit: ## builds and runs the unit tests alone
	$(MAKE) build TARGETS=all
	ctest --preset $(PRESET) -L unit

TARGETS ?= tilewright tilewright-worker
build: deps
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

e2e: export KUBECONFIG ?= $(wildcard $(shell tests/cluster/cluster folder)/kubeconfig)
e2e: test-deps model ## the end-to-end tests on the cluster of KUBECONFIG, by default that of `make cluster`
	$(MAKE) build TARGETS=e2e_tests
	ctest --preset $(PRESET) -L e2e -j 1; code=$$?; .ci/skipped $(BUILD) && exit $$code # one at a time: some tests stop the kubelet

bench-controller: ## the operator under load: 200 jobs at once, 2,000 stored (needs an idle machine)
	.ci/control-plane build etcd kube-apiserver kubectl kube-scheduler kwok
	$(MAKE) build TARGETS="tilewright tilewright-controller-bench"
	$(BUILD)/bin/tilewright-controller-bench --out bench/results/controller.json

PARITY_PYTHON := .cache/parity/bin/python
PARITY_DATA ?= ../shared/data
PARITY_MODELS ?= bert-small distilbert-small bert-base distilbert bert-large
parity: parity-gradients parity-quality ## compares gradients with PyTorch's and trained models with Hugging Face's Trainer (hours; resumes; PARITY_FLAGS="--tasks mrpc --minutes 60")

.cache/parity/installed: bench/parity/requirements.txt
	python3 -m venv $(@D)
	$(PARITY_PYTHON) -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

parity-gradients: .cache/parity/installed ## gradients of the models PARITY_MODELS, with random weights
	$(MAKE) build TARGETS=tilewright-parity-gradients
	$(PARITY_PYTHON) bench/parity/gradients.py --models $(PARITY_MODELS) --json bench/results/gradients.json

parity-quality: build model .cache/parity/installed ## metrics of models trained with several seeds
	$(PARITY_PYTHON) bench/parity/quality.py run --worker $(BUILD)/bin/tilewright-worker --model $(MODEL) --data $(PARITY_DATA) $(PARITY_FLAGS)

CRD := trainjobs.tilewright.dev.yaml
crd: ## writes the generated CRD to crds/, which the Helm chart links to
	$(MAKE) build TARGETS=tilewright
	$(BUILD)/bin/tilewright crd > crds/$(CRD).staging
	mv crds/$(CRD).staging crds/$(CRD)

install: build
	cmake --install $(BUILD)

asan: model ## the unit tests that CI runs under the address and undefined-behavior sanitizers
	.ci/sanitize asan
tsan: model ## the unit tests that CI runs under the thread sanitizer
	.ci/sanitize tsan
sanitize: model ## the unit tests of every module under both (an hour); tests/README.md has the results
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
