# Thin front of CMake. The README names two targets, `run` and `test`; the rest is for developers.
BUILD ?= build
TYPE ?= Release
SANITIZE ?=
T ?=

.PHONY: build test unit clean

build:
	@tools/install-packages.sh build
	@cmake -S . -B $(BUILD) -G Ninja -DCMAKE_BUILD_TYPE=$(TYPE) -DSANITIZE=$(SANITIZE) > /dev/null
	@cmake --build $(BUILD)

# All tests, or with T=name those whose name contains it.
test:
	@tools/install-packages.sh test
	@T="$(T)" tests/run.sh

unit: build
	@$(BUILD)/unit_tests $(T)

clean:
	rm -rf build build-*
