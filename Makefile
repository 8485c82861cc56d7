# SPDX-License-Identifier: BSD-3-Clause
#
#   make          builds the library and leaves a prefix to use in build/
#   make demo     builds it, then runs every example over software RDMA: no device, no root
#   make check    builds it, then runs all tests
#   make header   makes include/librpma.h anew from the source
#   make clean    removes build/ and what cargo built
#
# Each installs the Debian packages that it needs and that are missing.

VERSION := 1.4.0
SONAME := librpma.so.0

BUILD_PACKAGES := gcc libc6-dev make pkg-config libclang-dev libibverbs-dev librdmacm-dev
TEST_PACKAGES := $(BUILD_PACKAGES) g++ binutils libcmocka-dev librpma-dev abigail-tools mandoc groff-base

CARGO ?= cargo
CC ?= cc
# Passed to cargo, for example --no-default-features --features soft
CARGO_FLAGS ?=
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)

PREFIX := $(abspath build)
LIBDIR := $(PREFIX)/lib
INCLUDEDIR := $(PREFIX)/include
PC_DIR := $(LIBDIR)/pkgconfig

STATIC_LIB := $(TARGET_DIR)/release/librpma.a
SOURCES := Cargo.toml Cargo.lock $(shell find src softverbs/src softverbs/Cargo.toml -type f)

.PHONY: all demo check header setup setup-tests examples clean

all: $(LIBDIR)/$(SONAME) $(LIBDIR)/librpma.so $(LIBDIR)/librpma.a $(INCLUDEDIR)/librpma.h $(PC_DIR)/librpma.pc

setup:
	@tools/setup $(BUILD_PACKAGES)

setup-tests:
	@tools/setup $(TEST_PACKAGES)

# A cdylib cannot carry version nodes, so the released library is the static one, linked once more: with the nodes of
# include/librpma.map, the further versions of include/librpma.ld, and nothing else exported.
$(LIBDIR)/$(SONAME): $(STATIC_LIB) include/librpma.map include/librpma.ld Makefile
	@mkdir -p $(@D)
	$(CC) -shared -o $@ include/librpma.ld -Wl,-soname,$(SONAME) -Wl,--version-script,include/librpma.map \
		-Wl,--whole-archive $(STATIC_LIB) -Wl,--no-whole-archive \
		-Wl,--gc-sections -Wl,--no-undefined -Wl,-z,relro,-z,now -Wl,--as-needed \
		$(LDFLAGS) -libverbs -lrdmacm -lgcc_s -lpthread -ldl -lm -lc

$(STATIC_LIB): $(SOURCES) | setup
	$(CARGO) build --release --locked -p rpma --lib $(CARGO_FLAGS)
	@touch $@

$(LIBDIR)/librpma.so: | $(LIBDIR)/$(SONAME)
	ln -sf $(SONAME) $@

$(LIBDIR)/librpma.a: $(STATIC_LIB)
	@mkdir -p $(@D)
	cp $< $@

$(INCLUDEDIR)/librpma.h: include/librpma.h
	@mkdir -p $(@D)
	cp $< $@

$(PC_DIR)/librpma.pc: pkgconfig/librpma.pc.in Makefile
	@mkdir -p $(@D)
	sed -e 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@INCLUDEDIR@|$(INCLUDEDIR)|; s|@VERSION@|$(VERSION)|' \
		$< > $@

examples: all
	@PKG_CONFIG_PATH=$(PC_DIR) $(MAKE) --no-print-directory -s -C examples OUT=$(PREFIX)/examples

demo: examples
	@tools/demo $(PREFIX)

check: setup-tests examples
	@CARGO="$(CARGO)" CC="$(CC)" tools/check $(PREFIX)

header: | setup
	$(CARGO) run --quiet --locked -p header -- include/librpma.h

clean:
	rm -rf build
	$(CARGO) clean
