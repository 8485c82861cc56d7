# SPDX-License-Identifier: BSD-3-Clause
#
#   make            builds the library, libsoftverbs.so and rpma, and leaves a prefix to use in build/
#   make demo       builds it, then runs every example over software RDMA: no device, no root
#   make check-quick  builds it, then runs a first part of the tests, in two to three minutes
#   make check      builds it, then runs all tests
#   make check-long  runs the simulation for 50 million schedules (SIM_SCHEDULES is another number), the stress tests with their long
#                   amounts (STRESS_SEED, STRESS_PERCENT, TESTS), the pairs in every mode of the heuristics (POLICY_SEED), tools/check-crate, and all of
#                   check-threads and check-sanitizers; PARTS="simulation", "stress", "policies", "threads" or "sanitizers" for one
#   make bench      builds it, then measures it on the soft provider beside raw TCP; ROWS="a b" for some rows, ROWS=--help says which
#   make bench-rxe  measures soft0 as a RoCE device beside the kernel's software RoCE, in two virtual machines
#   make bench-peers  installs UCX and libfabric, then measures beside their programs; from then on make bench does so, too
#   make bench-svg  draws what make bench has left in build/bench.json as docs/bench.svg
#   make bench-calls  builds it, then counts the instructions of its calls beside those of Debian's librpma, by callgrind
#   make fuzz       runs each fuzz target, or those of TARGETS="a b", for SECONDS (20)
#   make mutants    changes transport, memory and the CM's values in one place after the other, and lists the changes that no test detects;
#                   SHARD=K/N for a part
#   make coverage   prints how much of transport and softverbs the Rust tests and the pairs run, by directory
#   make check-threads  builds it, then runs what THREAD_SAFETY.md permits under ThreadSanitizer, and with locks that check their order; SHORT=1 for less of it
#   make check-sanitizers  builds it, then runs tests under AddressSanitizer, memcheck and Miri; SHORT=1 for less of it
#   make check-cpp  builds it, then tests rpma.hpp with GCC and Clang; TESTS="a b"
#   make check-verbs  builds it, then runs other people's verbs programs on the software device: rping, perftest, the original librpma; TESTS="a b"
#   make wheel      builds the Python package with the library in it, as a wheel, in build/wheel
#   make check-python  builds the wheel, installs it into an empty environment of each version of Python, and tests it there; PYTHONS="3.11 3.13"
#   make check-probes  builds it, then traces the examples with bpftrace, as root
#   make fio FIO=DIR  builds the engines in fio/ with the headers of the configured fio source tree in DIR
#   make check-fio  builds these with the Debian package's source, or that in FIO=DIR, and runs fio with them on software RDMA
#   make check-rdma  builds it, then runs examples and pairs on a real verbs device, in a virtual machine
#   make check-rdma-newer  runs examples in a guest of Debian 13, whose device has native flush and native atomic write
#   make check-device DEVICE=mlx5_0  builds it, then runs pairs and `rpma selftest` on an RDMA device of this host
#   make check-siw  builds it, then runs software RDMA against the kernel's software iWARP, in a virtual machine
#   make check-roce  builds it, then runs soft0 as a RoCE device against the kernel's software RoCE, in a virtual machine;
#                   check-roce-newer with that of Debian 13
#   make check-ready  installs and builds what all of these targets need, so that several of them can run at a time;
#                   check-newer-ready what check-rdma-newer needs besides, check-variants-ready what check-threads and check-sanitizers do
#   make check-upstream UPSTREAM=DIR  builds it, then runs the examples and tests of the original's source trees in DIR on it
#   make check-packaging  builds it, then tests install, the tarball and the packages, as root; TESTS="a b"
#   make install    installs it: prefix (/usr/local), bindir, libdir, includedir, mandir, docdir, datadir, zshdir, DESTDIR
#   make uninstall  removes exactly what install put there; give it the same settings
#   make deb        builds the Debian packages librpma0, librpma-dev and softverbs in build/deb/
#   make vendor     copies the crates that a build needs to vendor/; from then on none needs the network
#   make dist       writes a source tarball with the crates that are linked, and the manual pages, to build/dist/
#   make release    makes what a release consists of in build/release/, each artefact twice to compare, as root; ARTEFACTS="a b" for some,
#                   ONCE=1 for no comparison; make check-release installs each in an empty root and uses it there
#   make header     makes include/librpma.h anew from the source
#   make bindings   makes the Rust declarations of libibverbs and librdmacm anew from the installed headers, with libclang
#   make clean      removes build/ and what cargo built
#
# demo, check, the other check targets, bench-calls, bench-peers and bench-rxe install the Debian packages
# that they need and that are missing. All others install nothing: they name what is missing, with the command
# that installs it, and stop.

VERSION := 1.4.0
SONAME := librpma.so.0

BUILD_PACKAGES := gcc libc6-dev binutils make pkg-config libibverbs-dev librdmacm-dev
QUICK_PACKAGES := $(BUILD_PACKAGES) g++ libcmocka-dev iproute2 rdmacm-utils ibverbs-utils codespell python3
CPP_PACKAGES := g++ clang libclang-rt-dev
TEST_PACKAGES := $(QUICK_PACKAGES) $(filter-out g++,$(CPP_PACKAGES)) libclang-dev librpma-dev abigail-tools mandoc groff-base flake8 shellcheck valgrind
ARM64_PACKAGES := $(BUILD_PACKAGES) gcc-aarch64-linux-gnu qemu-user-static qemu-system-arm mmdebstrap debian-archive-keyring cpio file
BENCH_PACKAGES := $(BUILD_PACKAGES) python3 strace
VALGRIND_PACKAGES := $(BUILD_PACKAGES) valgrind libc6-dbg
PEERS_PACKAGES := $(BENCH_PACKAGES) ucx-utils libfabric-bin
CALLS_PACKAGES := $(BUILD_PACKAGES) python3 valgrind librpma0
VM_PACKAGES := qemu-system-x86 cpio kmod iproute2 ibverbs-providers
NEWER_PACKAGES := $(VM_PACKAGES) mmdebstrap debian-archive-keyring xz-utils util-linux git python3
ROCE_PACKAGES := perftest ibverbs-utils rdmacm-utils qperf
SIW_PACKAGES := make binutils gcc-12 libelf1 xz-utils
VERBS_PACKAGES := $(BUILD_PACKAGES) libclang-dev ibverbs-utils rdmacm-utils perftest ucx-utils mpich libmpich-dev openmpi-bin libopenmpi-dev libfabric-bin librpma0 python3-pyverbs qperf dapl2-utils qemu-system-x86
FIO_PACKAGES := $(BUILD_PACKAGES) fio dpkg-dev iproute2
PROBES_PACKAGES := $(BUILD_PACKAGES) bpftrace
UPSTREAM_PACKAGES := $(BUILD_PACKAGES) xz-utils libpmem-dev libpmem2-dev libprotobuf-c-dev
DEB_PACKAGES := $(BUILD_PACKAGES) git xz-utils python3 dpkg-dev debhelper
RELEASE_PACKAGES := $(BUILD_PACKAGES) git xz-utils python3 mmdebstrap debian-archive-keyring util-linux iproute2
CHECK_RELEASE_PACKAGES := $(RELEASE_PACKAGES) umoci skopeo rpm cpio qemu-system-arm
PACKAGING_PACKAGES := $(DEB_PACKAGES) g++ ibverbs-utils lintian blhc cmake rpm rpmlint mmdebstrap debian-archive-keyring util-linux

CARGO ?= cargo
CC ?= cc
LD ?= ld
AR ?= ar
OBJCOPY ?= objcopy
STRIP ?= strip
# What looks for packages and tools; : to look for nothing. With $(ASK), it installs nothing.
SETUP ?= tools/setup
ASK := --ask
# a target's own variables are those of what it depends on, too
demo check check-% bench-calls: ASK :=
# Passed to cargo, for example --no-default-features --features soft
CARGO_FLAGS ?=
# Whether librpma.so.0 needs libibverbs and librdmacm to start: needed, as the original, or optional; see
# docs/install.md. Without the provider rdma-core nothing looks for them.
RDMA_CORE ?= $(if $(findstring --no-default-features,$(CARGO_FLAGS)),$(if $(findstring rdma-core,$(CARGO_FLAGS)),needed,optional),needed)
RDMA_CORE_needed := -Wl,--no-as-needed -libverbs -lrdmacm -Wl,--as-needed
RDMA_CORE_optional :=
ifeq ($(filter needed optional,$(RDMA_CORE)),)
$(error RDMA_CORE is "$(RDMA_CORE)"; it must be needed or optional)
endif
# Incremental compilation inlines less: with it, a posted write of the released library costs 16 % more
# instructions.
unexport CARGO_INCREMENTAL
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
# For another architecture: the name that Rust has for it, with CC, LD, AR, OBJCOPY, STRIP and PKG_CONFIG of
# that architecture in the environment. What runs during the build is still for this one.
RUST_TARGET ?=
ifneq ($(RUST_TARGET),)
FOR_TARGET := --target $(RUST_TARGET)
export CARGO_TARGET_$(shell echo '$(RUST_TARGET)' | tr a-z- A-Z_)_LINKER := $(CC)
endif
BUILT := $(TARGET_DIR)/$(if $(RUST_TARGET),$(RUST_TARGET)/)release

# With vendored crates the registry is not asked.
ifneq ($(wildcard vendor/.),)
VENDORED := --offline --config 'source.crates-io.replace-with="vendored"' --config 'source.vendored.directory="vendor"'
endif
CARGO_RUN = $(CARGO) $(VENDORED)

# The same source gives the same bytes wherever it lies and wherever its crates come from. In which directory
# each crate is, cargo has to say: it unpacks them to one whose name has a hash of its own. Left out are the
# crates of this tree.
CRATES = $(CARGO_RUN) metadata --quiet --locked --format-version 1 $(filter --offline --frozen,$(CARGO_FLAGS)) \
	--filter-platform "$$($(CARGO) -vV | sed -n 's/^host: //p')" | grep -o '"manifest_path":"[^"]*"' | \
	sed -e 's/^"manifest_path":"//' -e '\,^$(CURDIR)/Cargo.toml,d' -e '\,^$(CURDIR)/crates/,d' -e '\,^$(CURDIR)/tools/,d' \
	-e 's,/[^/]*/[^/]*$$,,' | sort -u
REMAP = --remap-path-prefix=$(CURDIR)=/usr/src/librpma-$(VERSION) \
	--remap-path-prefix=$(abspath $(TARGET_DIR))=/usr/src/librpma-$(VERSION)/target \
	$$($(CRATES) | sed 's,.*,--remap-path-prefix=&=/usr/src/crates,' | tr '\n' ' ')

# Where install puts things.
prefix ?= $(or $(PREFIX),/usr/local)
bindir ?= $(prefix)/bin
libdir ?= $(prefix)/lib
includedir ?= $(prefix)/include
mandir ?= $(prefix)/share/man
docdir ?= $(prefix)/share/doc/librpma
datadir ?= $(prefix)/share
zshdir ?= $(datadir)/zsh/site-functions
INSTALL_FILES = DESTDIR='$(DESTDIR)' prefix='$(prefix)' bindir='$(bindir)' libdir='$(libdir)' includedir='$(includedir)' mandir='$(mandir)' docdir='$(docdir)' \
	datadir='$(datadir)' zshdir='$(zshdir)' \
	VERSION=$(VERSION) STRIP='$(STRIP)' BUILD=build tools/install

# The prefix to use in build/.
STAGE := $(abspath build)
STAGE_LIB := $(STAGE)/lib
STAGE_INCLUDE := $(STAGE)/include
PC_DIR := $(STAGE_LIB)/pkgconfig
CMAKE_DIR := $(STAGE_LIB)/librpma/cmake
TEMPLATE = DESTDIR= prefix='$(STAGE)' libdir='$(STAGE_LIB)' includedir='$(STAGE_INCLUDE)' VERSION=$(VERSION) tools/install template

TARBALL := build/dist/librpma-$(VERSION).tar.xz
CARGO_LIB := $(BUILT)/liblibrpma.a
WHOLE_LIB := build/obj/librpma-whole.a
SOURCES := Cargo.toml Cargo.lock $(shell find src crates -type f)
MAN_SOURCES := $(shell find man tools/man examples -type f)
LIBRARY := $(STAGE_LIB)/$(SONAME) $(STAGE_LIB)/librpma.so $(STAGE_LIB)/librpma.a $(STAGE_INCLUDE)/librpma.h $(STAGE_INCLUDE)/rpma.hpp $(PC_DIR)/librpma.pc \
	$(CMAKE_DIR)/librpma-config.cmake $(CMAKE_DIR)/librpma-config-version.cmake
OPTIONAL_LIBRARY := $(STAGE)/optional/lib/$(SONAME)
PRELOAD := $(STAGE_LIB)/libsoftverbs.so
PRELOAD_ARCHIVE := build/obj/softverbs-preload.a
AUDIT := $(STAGE_LIB)/libsoftverbs-dl.so
AUDIT_ARCHIVE := build/obj/softverbs-dl.a
PROGRAM := $(STAGE)/bin/rpma
MAN_PAGES := build/obj/man.made
COMPLETIONS := build/obj/completions.made

.PHONY: all demo check check-quick check-long check-threads check-sanitizers check-verbs check-probes fio check-fio bench check-rdma check-rdma-newer check-device check-siw check-roce check-roce-newer check-packaging check-ready check-newer-ready check-variants-ready install uninstall header setup-tests setup-ready vm-programs vendor dist deb examples clean check-upstream setup-deb fuzz coverage mutants bench-svg bench-calls bench-peers bench-rxe bindings check-arm64 release check-release wheel check-python check-cpp

all: $(LIBRARY) $(PRELOAD) $(AUDIT) $(PROGRAM) $(MAN_PAGES) $(COMPLETIONS)

setup-tests:
	@$(SETUP) $(TEST_PACKAGES)

$(WHOLE_LIB): $(SOURCES)
	@CC="$(CC)" LD="$(LD)" AR="$(AR)" OBJCOPY="$(OBJCOPY)" $(SETUP) $(ASK) $(BUILD_PACKAGES)
	RUSTFLAGS="$(RUSTFLAGS) $(REMAP)" $(CARGO_RUN) build --release --locked $(FOR_TARGET) -p librpma --lib $(CARGO_FLAGS)
	@mkdir -p $(@D)
	cp $(CARGO_LIB) $@

# A cdylib cannot carry version nodes, so the released library is the static one, linked once more: with the
# nodes of include/librpma.map, the further versions of include/librpma.ld, and nothing else exported. It
# starts threads, which run until the process ends, so it must stay mapped after dlclose(3): -z nodelete.
LINK_LIBRARY = $(CC) -shared -o $@ include/librpma.ld -Wl,-soname,$(SONAME) -Wl,--version-script,include/librpma.map \
		-Wl,--whole-archive $(WHOLE_LIB) -Wl,--no-whole-archive \
		-Wl,--gc-sections -Wl,--no-undefined -Wl,-z,relro -Wl,-z,now -Wl,-z,nodelete -Wl,--as-needed -Wl,--build-id=sha1 \
		$(LDFLAGS) $(RDMA_CORE_$1) -lgcc_s -lpthread -ldl -lm -lc

$(STAGE_LIB)/$(SONAME): $(WHOLE_LIB) include/librpma.map include/librpma.ld Makefile
	@mkdir -p $(@D)
	$(call LINK_LIBRARY,$(RDMA_CORE))

# The one that starts without rdma-core, for tests.
$(OPTIONAL_LIBRARY): $(WHOLE_LIB) include/librpma.map include/librpma.ld Makefile
	@mkdir -p $(@D)
	$(call LINK_LIBRARY,optional)

# The library to preload: the names of libibverbs, librdmacm and the C library with their version nodes, from
# the tables in its source.
PRELOAD_TABLES := $(addprefix crates/softverbs-preload/,nodes.awk src/verbs.rs src/rdma.rs src/c_library.rs)
PRELOAD_NODES := awk -v arch=$(firstword $(subst -, ,$(or $(RUST_TARGET),$(shell uname -m))))
build/obj/softverbs.map: $(PRELOAD_TABLES)
	@mkdir -p $(@D)
	$(PRELOAD_NODES) -f $^ >$@

build/obj/softverbs.ld: $(PRELOAD_TABLES)
	@mkdir -p $(@D)
	$(PRELOAD_NODES) -v others=1 -f $^ >$@

$(PRELOAD_ARCHIVE): $(SOURCES)
	@CC="$(CC)" LD="$(LD)" AR="$(AR)" OBJCOPY="$(OBJCOPY)" $(SETUP) $(ASK) $(BUILD_PACKAGES)
	RUSTFLAGS="$(RUSTFLAGS) $(REMAP)" $(CARGO_RUN) build --release --locked $(FOR_TARGET) -p softverbs-preload --lib
	@mkdir -p $(@D)
	cp $(BUILT)/libsoftverbs_preload.a $@

$(PRELOAD): $(PRELOAD_ARCHIVE) build/obj/softverbs.map build/obj/softverbs.ld
	@mkdir -p $(@D)
	$(CC) -shared -o $@ build/obj/softverbs.ld -Wl,-soname,$(@F) -Wl,--version-script,build/obj/softverbs.map \
		-Wl,--whole-archive $(PRELOAD_ARCHIVE) -Wl,--no-whole-archive \
		-Wl,--gc-sections -Wl,--no-undefined -Wl,-z,relro -Wl,-z,now -Wl,-z,nodelete -Wl,--as-needed -Wl,--build-id=sha1 \
		$(LDFLAGS) -lgcc_s -lpthread -ldl -lm -lc

$(AUDIT_ARCHIVE): $(SOURCES)
	@CC="$(CC)" LD="$(LD)" AR="$(AR)" OBJCOPY="$(OBJCOPY)" $(SETUP) $(ASK) $(BUILD_PACKAGES)
	RUSTFLAGS="$(RUSTFLAGS) $(REMAP)" $(CARGO_RUN) build --release --locked $(FOR_TARGET) -p softverbs-dl --lib
	@mkdir -p $(@D)
	cp $(BUILT)/libsoftverbs_dl.a $@

# It is an audit library: the names of rtld-audit(7), what they need, and nothing else.
$(AUDIT): $(AUDIT_ARCHIVE) crates/softverbs-dl/exports.map
	@mkdir -p $(@D)
	$(CC) -shared -o $@ -Wl,-soname,$(@F) -Wl,--version-script,crates/softverbs-dl/exports.map \
		$$(sed -nE 's/^\t\t(la_[a-z0-9]+);$$/-Wl,-u,\1/p' crates/softverbs-dl/exports.map) $(AUDIT_ARCHIVE) \
		-Wl,--gc-sections -Wl,--no-undefined -Wl,-z,relro -Wl,-z,now -Wl,--as-needed -Wl,--build-id=sha1 \
		$(LDFLAGS) -lgcc_s -lpthread -ldl -lm -lc

$(PROGRAM): $(SOURCES)
	@CC="$(CC)" LD="$(LD)" AR="$(AR)" OBJCOPY="$(OBJCOPY)" $(SETUP) $(ASK) $(BUILD_PACKAGES)
	RUSTFLAGS="$(RUSTFLAGS) $(REMAP)" $(CARGO_RUN) build --release --locked $(FOR_TARGET) -p rpma-tools
	@mkdir -p $(@D)
	cp $(BUILT)/rpma $@

# The static library for others is one object in which only the public names are left: two Rust libraries in
# one program must not meet in the names of Rust's runtime.
$(STAGE_LIB)/librpma.a: $(WHOLE_LIB) include/librpma.map Makefile
	@mkdir -p $(@D)
	sed -nE 's/^\t\t(rpma_[a-z0-9_]+);$$/\1/p' include/librpma.map | sort -u > build/obj/names
	$(LD) -r --gc-sections --force-group-allocation $$(sed 's/^/-u /' build/obj/names) -o build/obj/librpma.o \
		--whole-archive $(WHOLE_LIB)
	$(OBJCOPY) --keep-global-symbols=build/obj/names --strip-debug -R .llvmbc -R .llvmcmd build/obj/librpma.o
	rm -f $@
	$(AR) rcsD $@ build/obj/librpma.o

$(STAGE_LIB)/librpma.so: | $(STAGE_LIB)/$(SONAME)
	ln -sf $(SONAME) $@

$(STAGE_INCLUDE)/%: include/%
	@mkdir -p $(@D)
	cp $< $@

$(PC_DIR)/%: pkgconfig/%.in tools/install packaging/identity Makefile
	@mkdir -p $(@D)
	$(TEMPLATE) $< > $@

$(CMAKE_DIR)/%: cmake/%.in tools/install Makefile
	@mkdir -p $(@D)
	$(TEMPLATE) $< > $@

# A source tarball has the pages, so that a build of it needs nothing that makes them.
ifneq ($(wildcard man/made/.),)
build/obj/man.made: $(shell find man/made -type f)
	rm -rf build/share/man
	@mkdir -p build/share build/obj
	cp -r man/made build/share/man
	@touch $@
else
# Of the crates of the libraries, as they are built for these; it runs too shortly for its own code to be
# optimised.
build/obj/man.made: $(SOURCES) $(MAN_SOURCES)
	@$(SETUP) $(ASK) $(BUILD_PACKAGES)
	rm -rf build/share/man
	@mkdir -p build/share/man build/obj
	RUSTFLAGS="$(RUSTFLAGS) $(REMAP)" $(CARGO_RUN) rustc --release --locked -p man -- -C opt-level=0
	$(TARGET_DIR)/release/man build/share/man
	@touch $@
endif

# Likewise the completions.
ifneq ($(wildcard completions/.),)
$(COMPLETIONS): $(shell find completions -type f)
	rm -rf build/share/completions
	@mkdir -p build/share build/obj
	cp -r completions build/share/completions
	@touch $@
else
# For the host, on which it runs, whatever the target is.
$(COMPLETIONS): $(SOURCES) $(shell find tools/completions -type f)
	@$(SETUP) $(ASK) $(BUILD_PACKAGES)
	rm -rf build/share/completions
	@mkdir -p build/share/completions build/obj
	RUSTFLAGS="$(RUSTFLAGS) $(REMAP)" $(CARGO_RUN) rustc --release --locked -p completions -- -C opt-level=0
	$(TARGET_DIR)/release/completions build/share/completions
	@touch $@
endif

# Neither asks for anything but the files: what is current is not built again, least of all by root.
install: $(LIBRARY) $(PRELOAD) $(AUDIT) $(PROGRAM) $(MAN_PAGES) $(COMPLETIONS)
	@$(INSTALL_FILES) install

uninstall:
	@$(INSTALL_FILES) uninstall

examples: all
	@PKG_CONFIG_PATH=$(PC_DIR) $(MAKE) --no-print-directory -s -C examples OUT=$(STAGE)/examples

demo: examples
	@tools/demo $(STAGE)

check: setup-tests examples $(OPTIONAL_LIBRARY)
	@CARGO="$(CARGO)" CC="$(CC)" tools/check $(STAGE)

check-quick: examples $(OPTIONAL_LIBRARY)
	@$(SETUP) $(QUICK_PACKAGES)
	@CARGO="$(CARGO)" CC="$(CC)" tools/check --quick $(STAGE)

check-long: setup-tests all
	@$(SETUP) $(VALGRIND_PACKAGES)
	@CARGO="$(CARGO)" CC="$(CC)" SIM_SCHEDULES="$(SIM_SCHEDULES)" STRESS_SEED="$(STRESS_SEED)" STRESS_PERCENT="$(STRESS_PERCENT)" \
		POLICY_SEED="$(POLICY_SEED)" TESTS="$(TESTS)" PARTS="$(PARTS)" tools/check-long $(STAGE)

check-cpp: all
	@$(SETUP) $(BUILD_PACKAGES) $(CPP_PACKAGES)
	@$(MAKE) --no-print-directory -C c-tests/cpp check PREFIX=$(STAGE) OUT=$(STAGE)/c-tests-cpp TESTS="$(TESTS)"

check-threads: all
	@$(SETUP) $(BUILD_PACKAGES)
	@CARGO="$(CARGO)" CC="$(CC)" tools/check-threads $(if $(SHORT),--short) $(STAGE)

# What is missing for one of them, its check says.
check-variants-ready:
	@$(SETUP) $(BUILD_PACKAGES)
	-@tools/variant order $(STAGE)/threads/order
	-@tools/variant thread $(STAGE)/threads/thread
	-@tools/variant address $(STAGE)/sanitizers/address

check-sanitizers: all
	@$(SETUP) $(VALGRIND_PACKAGES)
	@CARGO="$(CARGO)" CC="$(CC)" tools/check-sanitizers $(if $(SHORT),--short) $(STAGE)

check-verbs: examples
	@$(SETUP) $(VERBS_PACKAGES)
	@$(MAKE) --no-print-directory -s -C c-tests/verbs loader OUT=$(STAGE)/c-tests-verbs
	@TESTS="$(TESTS)" tools/check-verbs $(STAGE)

check-probes: examples
	-@$(SETUP) $(PROBES_PACKAGES)
	@tools/check-probes $(STAGE)

# The tag in its name says which C library it needs: the release has one for an older one.
wheel: $(OPTIONAL_LIBRARY)
	@STRIP='$(STRIP)' tools/wheel $(VERSION) $< $(STAGE)/wheel

check-python: wheel
	@tools/check-python $(STAGE)/wheel/rpma-*.whl $(STAGE)/check-python

fio: all
	@PKG_CONFIG_PATH=$(PC_DIR) $(MAKE) --no-print-directory -s -C fio FIO="$(abspath $(FIO))" OUT=$(STAGE)/fio

check-fio: all
	-@$(SETUP) $(FIO_PACKAGES)
	@tools/check-fio $(STAGE) $(FIO)

# Says what it measured and exits with 0, whatever that is.
bench: all
	@$(SETUP) $(ASK) $(BENCH_PACKAGES)
	@PKG_CONFIG_PATH=$(PC_DIR) $(MAKE) --no-print-directory -s -C benches OUT=$(STAGE)/benches
	@benches/run $(STAGE) $(ROWS)

# Of its own, as the picture is part of the sources: a run on a busy machine, or of some rows, is not to
# replace it.
PEERS_ROWS := $(foreach row,write-spin send-poll write-64KiB read-64KiB,ucx-$(row) ucx-tcp-$(row)) fabric-send-poll fabric-tcp-send-poll
bench-peers: ASK :=
bench-peers: all
	@$(SETUP) $(PEERS_PACKAGES)
	@$(MAKE) --no-print-directory bench ROWS="$(PEERS_ROWS)"

bench-rxe: ASK :=
bench-rxe: all examples
	@$(SETUP) $(VM_PACKAGES) $(ROCE_PACKAGES) python3
	@benches/rxe $(STAGE) $(STAGE)/vm

bench-svg:
	@[ -f $(STAGE)/bench.json ] || { echo "make bench-svg: there is no build/bench.json; make bench leaves it" >&2; exit 2; }
	@$(CARGO_RUN) run --quiet --locked -p bench-svg -- $(STAGE)/bench.json docs/bench.svg

# Says what it counted and exits with 0, whatever that is.
bench-calls: $(LIBRARY)
	@$(SETUP) $(CALLS_PACKAGES)
	@PKG_CONFIG_PATH=$(PC_DIR) $(MAKE) --no-print-directory -s -C benches/calls OUT=$(STAGE)/benches
	@benches/calls/run $(STAGE)

check-upstream: all
	@[ -n "$(UPSTREAM)" ] || { echo "make check-upstream: UPSTREAM must be a directory with source trees of librpma" >&2; exit 2; }
	@$(SETUP) $(UPSTREAM_PACKAGES)
	@CC="$(CC)" AR="$(AR)" tools/check-upstream $(STAGE) "$(UPSTREAM)"

# libFuzzer, which comes with its crate, is C++.
FUZZ_SECONDS = $(or $(SECONDS),20)

fuzz:
	@$(SETUP) $(BUILD_PACKAGES) g++
	@CARGO="$(CARGO)" tools/fuzz $(FUZZ_SECONDS) build/fuzz

coverage: all
	@$(SETUP) python3
	@$(MAKE) --no-print-directory -s -C c-tests/pairs all PREFIX=$(STAGE) OUT=$(STAGE)/pairs
	@CARGO="$(CARGO)" tools/coverage $(STAGE) build/coverage

mutants:
	@$(SETUP) $(BUILD_PACKAGES)
	@CARGO="$(CARGO)" tools/mutants build/mutants $(SHARD)

check-packaging: all
	@$(SETUP) $(PACKAGING_PACKAGES)
	@TESTS="$(TESTS)" tools/check-packaging $(VERSION)

check-arm64:
	@$(SETUP) $(ARM64_PACKAGES)
	@CARGO="$(CARGO)" tools/check-arm64 $(STAGE)/arm64 $(PARTS)

# The programs that run in a virtual machine, besides the examples.
VM_PROGRAMS := $(patsubst c-tests/vm/programs/%.c,--program $(STAGE)/vm-programs/%,$(wildcard c-tests/vm/programs/*.c)) \
	--program $(STAGE)/vm-programs/pair --program $(STAGE)/vm-hard/probe --program $(STAGE)/vm-hard/hard --program $(STAGE)/c-tests-verbs/verbs --program $(PROGRAM) --program $(PRELOAD)

vm-programs: examples
	@$(MAKE) --no-print-directory -s -C c-tests/pairs all PREFIX=$(STAGE) OUT=$(STAGE)/pairs
	@$(MAKE) --no-print-directory -s -C c-tests/verbs all PREFIX=$(STAGE) PAIRS=$(STAGE)/pairs OUT=$(STAGE)/c-tests-verbs
	@$(MAKE) --no-print-directory -s -C c-tests/vm/programs all PREFIX=$(STAGE) OUT=$(STAGE)/vm-programs
	@strip -o $(STAGE)/vm-programs/pair "$$($(CARGO_RUN) test --quiet --locked --workspace --test pair --no-run --message-format=json | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')"
	@$(MAKE) --no-print-directory -s -C c-tests/vm/hard all PREFIX=$(STAGE) PAIRS=$(STAGE)/pairs OUT=$(STAGE)/vm-hard

setup-ready:
	@$(SETUP) $(sort $(TEST_PACKAGES) $(VALGRIND_PACKAGES) $(CALLS_PACKAGES) $(VERBS_PACKAGES) \
		$(PACKAGING_PACKAGES) $(NEWER_PACKAGES) $(SIW_PACKAGES) $(ROCE_PACKAGES))
	-@$(SETUP) $(PROBES_PACKAGES)
	-@$(SETUP) $(FIO_PACKAGES)

check-ready: setup-ready vm-programs

check-rdma: vm-programs
	@$(SETUP) $(VM_PACKAGES)
	@c-tests/vm/check $(VM_PROGRAMS) $(STAGE) $(STAGE)/pairs/pairs $(STAGE)/vm $(PARTS)

# What the other kernel and libraries make a difference for; PARTS=pairs runs there, too.
NEWER_PARTS := examples interoperation native registration

NEWER_ROOT := $(STAGE)/vm-newer/cache/trixie
NEWER_LIBRARY := $(STAGE)/vm-newer/built/lib/$(SONAME)

$(NEWER_LIBRARY): $(SOURCES) include/librpma.map include/librpma.ld Makefile
	@$(SETUP) $(NEWER_PACKAGES)
	@c-tests/vm/make-root trixie $(NEWER_ROOT)
	@c-tests/vm/build-in-root $(NEWER_ROOT) $(STAGE)/vm-newer/built

check-newer-ready: $(NEWER_LIBRARY)

check-rdma-newer: vm-programs $(NEWER_LIBRARY)
	@c-tests/vm/make-root trixie $(NEWER_ROOT)
	@c-tests/vm/check --root $(NEWER_ROOT) --built $(NEWER_LIBRARY) $(VM_PROGRAMS) $(STAGE) $(STAGE)/pairs/pairs $(STAGE)/vm-newer $(or $(PARTS),$(NEWER_PARTS))

# DEVICE is an RDMA device of this host; for another host as the peer, see rpma-selftest(1).
check-device: vm-programs
	@TESTS="$(TESTS)" tools/check-device $(STAGE) $(STAGE)/pairs/pairs "$(DEVICE)"

check-siw: vm-programs
	@$(SETUP) $(VM_PACKAGES) $(SIW_PACKAGES) rdmacm-utils
	@c-tests/vm/check --siw $(VM_PROGRAMS) \
		$(foreach program,rping rdma_client rdma_server,--program $(shell command -v $(program) || echo /usr/bin/$(program))) $(STAGE) $(STAGE)/pairs/pairs $(STAGE)/vm $(or $(PARTS),siw)

# Programs that connect their queue pairs by hand or by rdma_cm, and ibv_devinfo, which prints the GIDs.
ROCE_PROGRAMS := ib_write_bw ib_read_bw ib_send_bw ib_atomic_bw ib_write_lat ib_send_lat ibv_rc_pingpong ibv_uc_pingpong ibv_ud_pingpong \
	ibv_devinfo rping ucmatose udaddy mckey rdma_client rdma_server rdma_xclient rdma_xserver qperf
ROCE_PARTS := roce roce-cm
ROCE_OPTIONS = --roce $(VM_PROGRAMS) $(foreach program,$(ROCE_PROGRAMS),--program $(shell command -v $(program) || echo /usr/bin/$(program)))

check-roce: vm-programs
	@$(SETUP) $(VM_PACKAGES) $(ROCE_PACKAGES)
	@c-tests/vm/check $(ROCE_OPTIONS) $(STAGE) $(STAGE)/pairs/pairs $(STAGE)/vm $(or $(PARTS),$(ROCE_PARTS))

check-roce-newer: vm-programs
	@$(SETUP) $(NEWER_PACKAGES) $(ROCE_PACKAGES)
	@c-tests/vm/make-root trixie $(NEWER_ROOT)
	@c-tests/vm/check --root $(NEWER_ROOT) $(ROCE_OPTIONS) $(STAGE) $(STAGE)/pairs/pairs $(STAGE)/vm-newer $(or $(PARTS),$(ROCE_PARTS))

header:
	@$(SETUP) $(ASK) $(BUILD_PACKAGES)
	$(CARGO_RUN) run --quiet --locked -p header -- include/librpma.h

bindings:
	@$(SETUP) $(ASK) $(BUILD_PACKAGES) libclang-dev
	CARGO="$(CARGO)" tools/bindings crates/rdma-sys/bindings/verbs.rs

vendor:
	@$(SETUP) $(ASK) git python3
	CARGO="$(CARGO)" tools/vendor vendor

dist:
	@$(SETUP) $(ASK) git xz-utils python3
	@$(MAKE) --no-print-directory $(MAN_PAGES) $(COMPLETIONS)
	CARGO="$(CARGO)" tools/dist $(VERSION) build/share/man build/share/completions $(TARBALL)

release: $(MAN_PAGES) $(COMPLETIONS)
	@$(SETUP) $(ASK) $(RELEASE_PACKAGES)
	@CARGO="$(CARGO)" tools/release $(if $(ONCE),--once) $(VERSION) build/release $(ARTEFACTS)

check-release:
	@$(SETUP) $(CHECK_RELEASE_PACKAGES)
	@TESTS="$(TESTS)" tools/check-release $(VERSION) build/release

setup-deb:
	@$(SETUP) $(ASK) $(DEB_PACKAGES)

deb: setup-deb dist
	@tools/deb $(VERSION) $(TARBALL) build/deb

clean:
	rm -rf build
	$(CARGO) clean
