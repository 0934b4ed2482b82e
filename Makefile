# Thin front of CMake. The README names two targets, `run` and `test`; the rest is for developers.
BUILD ?= build
TYPE ?= Release
SANITIZE ?=
T ?=
F ?=

.PHONY: build run test unit tidy bench fuzz asan tsan clean

build:
	@tools/install-packages.sh build
	@cmake -S . -B $(BUILD) -G Ninja -DCMAKE_BUILD_TYPE=$(TYPE) -DSANITIZE=$(SANITIZE) > /dev/null
	@cmake --build $(BUILD)

# A small cluster with a router on 127.0.0.1:27017, its data in ./sherd-data; Ctrl-C stops it.
run: build
	@exec $(BUILD)/sherd up --shards 2 --port 27017 --dir sherd-data

# All tests, or with T=name those whose name contains it.
test:
	@tools/install-packages.sh test
	@T="$(T)" tests/run.sh

unit: build
	@$(BUILD)/unit_tests $(T)

tidy:
	@tools/install-packages.sh test
	@tools/tidy/run.sh

# Workloads and floors in one run, as a table of ratios.
bench: build
	@bench/run.sh

# Runs the fuzzers, or with F=name one of them, for RUNS executions each.
fuzz:
	@tools/install-packages.sh test
	@tools/fuzz.sh $(F)

asan:
	@$(MAKE) --no-print-directory build BUILD=build-asan TYPE=Debug SANITIZE=address

tsan:
	@$(MAKE) --no-print-directory build BUILD=build-tsan TYPE=Debug SANITIZE=thread

clean:
	rm -rf build build-asan build-tsan build-fuzz
