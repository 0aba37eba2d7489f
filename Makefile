# The commands of the README. Everything else is CMake: `cmake --preset release && cmake --build --preset release`.
SHELL := /bin/bash
PRESET ?= release
BUILD := build/$(PRESET)
MODEL := .cache/models/all-minilm-l6-v2

.PHONY: demo test build deps model cluster-programs cluster cluster-down e2e images bench-controller install asan tsan format tidy clean

demo: build model ## trains a real BERT on the example with two workers
	$(BUILD)/bin/tilewright up examples/trainjob.yaml

test: model ## builds and runs every test; those on a real API server want `make cluster-programs` once
	$(MAKE) build TARGETS=all
	ctest --preset $(PRESET) -LE e2e; code=$$?; .ci/skipped $(BUILD) && exit $$code
	@echo "The tests on a node that runs pods drain it and stop its kubelet, so they are run by their own name: make e2e"

TARGETS ?= tilewright tilewright-worker
build: deps
	cmake --preset $(PRESET) $(CMAKE_FLAGS)
	cmake --build --preset $(PRESET) --target $(TARGETS)

deps: ## installs missing Debian packages (with sudo if not root), or prints the line to type
	@.ci/install-packages .ci/packages.txt

model: $(MODEL)/model.safetensors ## a real pre-trained BERT, pinned by version and hash
$(MODEL)/model.safetensors: .ci/model.txt | deps
	.ci/fetch-model $(MODEL)

cluster-programs: ## etcd, kube-apiserver, kubectl for the tests on a real API server: minutes, once
	.ci/control-plane build

cluster: images ## a one-node Kubernetes on this machine (or the one KUBECONFIG names) with the operator; needs root
	tests/cluster/cluster up build/images/*.tar

cluster-down: ## ends all that `make cluster` started
	tests/cluster/cluster down

images: build ## the images of worker and controller, and what the cluster's tests need beside them
	tests/cluster/packages
	docker/build

e2e: export KUBECONFIG ?= $(wildcard $(shell tests/cluster/cluster folder)/kubeconfig)
e2e: ## the tests on the cluster of KUBECONFIG, by default that of `make cluster`
	$(MAKE) build TARGETS=e2e_tests
	ctest --preset $(PRESET) -L e2e -j 1; code=$$?; .ci/skipped $(BUILD) && exit $$code # one at a time: they stop the kubelet

bench-controller: ## the operator under load: 200 jobs at once, 2,000 in store (wants a quiet machine)
	.ci/control-plane build etcd kube-apiserver kubectl kube-scheduler kwok
	$(MAKE) build TARGETS="tilewright tilewright-controller-bench"
	$(BUILD)/bin/tilewright-controller-bench --out bench/results/controller.json

install: build
	cmake --install $(BUILD)

asan: model ## the sanitizers of CI
	.ci/sanitize asan
tsan: model
	.ci/sanitize tsan

format: ## lays out every source file
	git ls-files '*.h' '*.cpp' '*.inl' | xargs clang-format -i
tidy: build ## lints every source file (long)
	.ci/tidy $$(git ls-files '*.cpp')

clean:
	rm -rf build
