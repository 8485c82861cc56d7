# SPDX-License-Identifier: BSD-3-Clause
#
#   make            builds the library, libsoftverbs.so and rpma, and leaves a prefix to use in build/
#   make demo       builds it, then runs every example over software RDMA: no device, no root
#   make check      builds it, then runs all tests
#   make check-long runs the simulation for 50 million schedules (SIM_SCHEDULES is another number), the stress tests with their long
#                   amounts (STRESS_SEED, STRESS_PERCENT, TESTS), and all of check-threads and check-sanitizers; PARTS="simulation",
#                   "stress", "threads" or "sanitizers" for one of them
#   make bench      builds it, then measures it on the soft provider beside raw TCP; ROWS="a b" for some rows, ROWS=--help says which
#   make fuzz       runs each fuzz target, or those of TARGETS="a b", for SECONDS (20)
#   make mutants    breaks iwarp, conn, memory and the CM's values in one place after the other, and says what no test notices; SHARD=K/N for a part
#   make coverage   prints how much of iwarp and softverbs the Rust tests and the pairs run, by directory
#   make check-threads  builds it, then runs what THREAD_SAFETY.md permits under helgrind, DRD and ThreadSanitizer; SHORT=1 for less of it
#   make check-sanitizers  builds it, then runs tests under AddressSanitizer, memcheck and Miri; SHORT=1 for less of it
#   make check-verbs  builds it, then runs other people's verbs programs on the software device: rping, perftest, the original librpma; TESTS="a b"
#   make check-rdma builds it, then runs examples and pairs on a real verbs device, in a virtual machine
#   make check-rdma-newer  runs examples in a guest of Debian 13, whose device has native flush and native atomic write
#   make check-siw  builds it, then runs software RDMA against the kernel's software iWARP, in a virtual machine
#   make check-upstream UPSTREAM=DIR  builds it, then runs the examples and tests of the original's source trees in DIR on it
#   make check-packaging  builds it, then tests install, the tarball and the packages, as root
#   make install    installs it: prefix (/usr/local), bindir, libdir, includedir, mandir, DESTDIR
#   make uninstall  removes exactly what install put there; give it the same settings
#   make deb        builds the Debian packages librpma0, librpma-dev and softverbs in build/deb/
#   make vendor     copies the crates that a build needs to vendor/; from then on none needs the network
#   make dist       writes a source tarball with these crates to build/dist/
#   make header     makes include/librpma.h anew from the source
#   make clean      removes build/ and what cargo built
#
# demo, check and the other check targets install the Debian packages that they need and that are missing. All others install
# nothing: they name what is missing, with the command that installs it, and stop.

VERSION := 1.4.0
SONAME := librpma.so.0

BUILD_PACKAGES := gcc libc6-dev binutils make pkg-config libclang-dev libibverbs-dev librdmacm-dev
TEST_PACKAGES := $(BUILD_PACKAGES) g++ libcmocka-dev librpma-dev abigail-tools mandoc groff-base
BENCH_PACKAGES := $(BUILD_PACKAGES) python3 strace
VALGRIND_PACKAGES := $(BUILD_PACKAGES) valgrind libc6-dbg
VM_PACKAGES := qemu-system-x86 cpio kmod iproute2 ibverbs-providers
NEWER_PACKAGES := $(VM_PACKAGES) mmdebstrap debian-archive-keyring xz-utils util-linux git
SIW_PACKAGES := make binutils gcc-12 libelf1 xz-utils
VERBS_PACKAGES := $(BUILD_PACKAGES) ibverbs-utils rdmacm-utils perftest librpma0 python3-pyverbs
UPSTREAM_PACKAGES := $(BUILD_PACKAGES) xz-utils libpmem-dev libpmem2-dev libprotobuf-c-dev
DEB_PACKAGES := $(BUILD_PACKAGES) git xz-utils dpkg-dev debhelper
PACKAGING_PACKAGES := $(DEB_PACKAGES) ibverbs-utils lintian cmake rpm mmdebstrap debian-archive-keyring util-linux

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
demo check check-%: ASK :=
# Passed to cargo, for example --no-default-features --features soft
CARGO_FLAGS ?=
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)

# With vendored crates the registry is not asked.
ifneq ($(wildcard vendor/.),)
VENDORED := --offline --config 'source.crates-io.replace-with="vendored"' --config 'source.vendored.directory="vendor"'
endif
CARGO_RUN = $(CARGO) $(VENDORED)

# The same source gives the same bytes wherever it lies and wherever its crates come from. In which directory each crate is,
# cargo has to say: it unpacks them to one whose name has a hash of its own. Left out are the crates of this tree.
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
INSTALL_FILES = DESTDIR='$(DESTDIR)' prefix='$(prefix)' bindir='$(bindir)' libdir='$(libdir)' includedir='$(includedir)' mandir='$(mandir)' \
	VERSION=$(VERSION) STRIP='$(STRIP)' BUILD=build tools/install

# The prefix to use in build/.
STAGE := $(abspath build)
STAGE_LIB := $(STAGE)/lib
STAGE_INCLUDE := $(STAGE)/include
PC_DIR := $(STAGE_LIB)/pkgconfig
CMAKE_DIR := $(STAGE_LIB)/librpma/cmake
TEMPLATE = DESTDIR= prefix='$(STAGE)' libdir='$(STAGE_LIB)' includedir='$(STAGE_INCLUDE)' VERSION=$(VERSION) tools/install template

TARBALL := build/dist/librpma-$(VERSION).tar.xz
CARGO_LIB := $(TARGET_DIR)/release/liblibrpma.a
WHOLE_LIB := build/obj/librpma-whole.a
SOURCES := Cargo.toml Cargo.lock $(shell find src crates -type f)
MAN_SOURCES := $(shell find man tools/man -type f)
LIBRARY := $(STAGE_LIB)/$(SONAME) $(STAGE_LIB)/librpma.so $(STAGE_LIB)/librpma.a $(STAGE_INCLUDE)/librpma.h $(PC_DIR)/librpma.pc \
	$(CMAKE_DIR)/librpma-config.cmake $(CMAKE_DIR)/librpma-config-version.cmake
PRELOAD := $(STAGE_LIB)/libsoftverbs.so
PRELOAD_ARCHIVE := build/obj/softverbs-preload.a
AUDIT := $(STAGE_LIB)/libsoftverbs-dl.so
AUDIT_ARCHIVE := build/obj/softverbs-dl.a
PROGRAM := $(STAGE)/bin/rpma
MAN_PAGES := build/obj/man.made

.PHONY: all demo check check-long check-threads check-sanitizers check-verbs bench check-rdma check-rdma-newer check-siw check-packaging install uninstall header setup-tests vm-programs vendor dist deb examples clean check-upstream setup-deb fuzz coverage mutants

all: $(LIBRARY) $(PRELOAD) $(AUDIT) $(PROGRAM) $(MAN_PAGES)

setup-tests:
	@$(SETUP) $(TEST_PACKAGES)

$(WHOLE_LIB): $(SOURCES)
	@CC="$(CC)" LD="$(LD)" AR="$(AR)" OBJCOPY="$(OBJCOPY)" $(SETUP) $(ASK) $(BUILD_PACKAGES)
	RUSTFLAGS="$(RUSTFLAGS) $(REMAP)" $(CARGO_RUN) build --release --locked -p librpma --lib $(CARGO_FLAGS)
	@mkdir -p $(@D)
	cp $(CARGO_LIB) $@

# A cdylib cannot carry version nodes, so the released library is the static one, linked once more: with the nodes of
# include/librpma.map, the further versions of include/librpma.ld, and nothing else exported.
$(STAGE_LIB)/$(SONAME): $(WHOLE_LIB) include/librpma.map include/librpma.ld Makefile
	@mkdir -p $(@D)
	$(CC) -shared -o $@ include/librpma.ld -Wl,-soname,$(SONAME) -Wl,--version-script,include/librpma.map \
		-Wl,--whole-archive $(WHOLE_LIB) -Wl,--no-whole-archive \
		-Wl,--gc-sections -Wl,--no-undefined -Wl,-z,relro,-z,now -Wl,--as-needed -Wl,--build-id=sha1 \
		$(LDFLAGS) -libverbs -lrdmacm -lgcc_s -lpthread -ldl -lm -lc

# The library to preload: the names of libibverbs and librdmacm with their version nodes, from the tables in its source.
PRELOAD_TABLES := $(addprefix crates/softverbs-preload/,nodes.awk src/verbs.rs src/rdma.rs)
build/obj/softverbs.map: $(PRELOAD_TABLES)
	@mkdir -p $(@D)
	awk -f $^ >$@

build/obj/softverbs.ld: $(PRELOAD_TABLES)
	@mkdir -p $(@D)
	awk -v others=1 -f $^ >$@

$(PRELOAD_ARCHIVE): $(SOURCES)
	@CC="$(CC)" LD="$(LD)" AR="$(AR)" OBJCOPY="$(OBJCOPY)" $(SETUP) $(ASK) $(BUILD_PACKAGES)
	RUSTFLAGS="$(RUSTFLAGS) $(REMAP)" $(CARGO_RUN) build --release --locked -p softverbs-preload --lib
	@mkdir -p $(@D)
	cp $(TARGET_DIR)/release/libsoftverbs_preload.a $@

$(PRELOAD): $(PRELOAD_ARCHIVE) build/obj/softverbs.map build/obj/softverbs.ld
	@mkdir -p $(@D)
	$(CC) -shared -o $@ build/obj/softverbs.ld -Wl,-soname,$(@F) -Wl,--version-script,build/obj/softverbs.map \
		-Wl,--whole-archive $(PRELOAD_ARCHIVE) -Wl,--no-whole-archive \
		-Wl,--gc-sections -Wl,--no-undefined -Wl,-z,relro,-z,now -Wl,--as-needed -Wl,--build-id=sha1 \
		$(LDFLAGS) -lgcc_s -lpthread -ldl -lm -lc

$(AUDIT_ARCHIVE): $(SOURCES)
	@CC="$(CC)" LD="$(LD)" AR="$(AR)" OBJCOPY="$(OBJCOPY)" $(SETUP) $(ASK) $(BUILD_PACKAGES)
	RUSTFLAGS="$(RUSTFLAGS) $(REMAP)" $(CARGO_RUN) build --release --locked -p softverbs-dl --lib
	@mkdir -p $(@D)
	cp $(TARGET_DIR)/release/libsoftverbs_dl.a $@

# It is an audit library: the names of rtld-audit(7), what they need, and nothing else.
$(AUDIT): $(AUDIT_ARCHIVE) crates/softverbs-dl/exports.map
	@mkdir -p $(@D)
	$(CC) -shared -o $@ -Wl,-soname,$(@F) -Wl,--version-script,crates/softverbs-dl/exports.map \
		$$(sed -nE 's/^\t\t(la_[a-z0-9]+);$$/-Wl,-u,\1/p' crates/softverbs-dl/exports.map) $(AUDIT_ARCHIVE) \
		-Wl,--gc-sections -Wl,--no-undefined -Wl,-z,relro,-z,now -Wl,--as-needed -Wl,--build-id=sha1 \
		$(LDFLAGS) -lgcc_s -lpthread -ldl -lm -lc

$(PROGRAM): $(SOURCES)
	@CC="$(CC)" LD="$(LD)" AR="$(AR)" OBJCOPY="$(OBJCOPY)" $(SETUP) $(ASK) $(BUILD_PACKAGES)
	RUSTFLAGS="$(RUSTFLAGS) $(REMAP)" $(CARGO_RUN) build --release --locked -p rpma-tools
	@mkdir -p $(@D)
	cp $(TARGET_DIR)/release/rpma $@

# The static library for others is one object in which only the public names are left: two Rust libraries in one
# program must not meet in the names of Rust's runtime.
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

$(STAGE_INCLUDE)/librpma.h: include/librpma.h
	@mkdir -p $(@D)
	cp $< $@

$(PC_DIR)/%: pkgconfig/%.in tools/install Makefile
	@mkdir -p $(@D)
	$(TEMPLATE) $< > $@

$(CMAKE_DIR)/%: cmake/%.in tools/install Makefile
	@mkdir -p $(@D)
	$(TEMPLATE) $< > $@

build/obj/man.made: $(SOURCES) $(MAN_SOURCES)
	@$(SETUP) $(ASK) $(BUILD_PACKAGES)
	rm -rf build/share/man
	@mkdir -p build/share/man build/obj
	$(CARGO_RUN) run --quiet --locked -p man -- build/share/man
	@touch $@

# Neither asks for anything but the files: what is current is not built again, least of all by root.
install: $(LIBRARY) $(PRELOAD) $(AUDIT) $(PROGRAM) $(MAN_PAGES)
	@$(INSTALL_FILES) install

uninstall:
	@$(INSTALL_FILES) uninstall

examples: all
	@PKG_CONFIG_PATH=$(PC_DIR) $(MAKE) --no-print-directory -s -C examples OUT=$(STAGE)/examples

demo: examples
	@tools/demo $(STAGE)

check: setup-tests examples
	@CARGO="$(CARGO)" CC="$(CC)" tools/check $(STAGE)

check-long: setup-tests all
	@$(SETUP) $(VALGRIND_PACKAGES)
	@CARGO="$(CARGO)" CC="$(CC)" SIM_SCHEDULES="$(SIM_SCHEDULES)" STRESS_SEED="$(STRESS_SEED)" STRESS_PERCENT="$(STRESS_PERCENT)" \
		TESTS="$(TESTS)" PARTS="$(PARTS)" tools/check-long $(STAGE)

check-threads: all
	@$(SETUP) $(VALGRIND_PACKAGES)
	@CARGO="$(CARGO)" CC="$(CC)" tools/check-threads $(if $(SHORT),--short) $(STAGE)

check-sanitizers: all
	@$(SETUP) $(VALGRIND_PACKAGES)
	@CARGO="$(CARGO)" CC="$(CC)" tools/check-sanitizers $(if $(SHORT),--short) $(STAGE)

check-verbs: examples
	@$(SETUP) $(VERBS_PACKAGES)
	@$(MAKE) --no-print-directory -s -C c-tests/verbs loader OUT=$(STAGE)/c-tests-verbs
	@TESTS="$(TESTS)" tools/check-verbs $(STAGE)

# Says what it measured and exits with 0, whatever that is.
bench: all
	@$(SETUP) $(ASK) $(BENCH_PACKAGES)
	@PKG_CONFIG_PATH=$(PC_DIR) $(MAKE) --no-print-directory -s -C benches OUT=$(STAGE)/benches
	@benches/run $(STAGE) $(ROWS)

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
	@$(MAKE) --no-print-directory -s -C c-tests/pairs all PREFIX=$(STAGE) OUT=$(STAGE)/pairs
	@CARGO="$(CARGO)" tools/coverage $(STAGE) build/coverage

mutants:
	@$(SETUP) $(BUILD_PACKAGES)
	@CARGO="$(CARGO)" tools/mutants build/mutants $(SHARD)

check-packaging: all
	@$(SETUP) $(PACKAGING_PACKAGES)
	@tools/check-packaging $(VERSION)

# The programs that run in a virtual machine, besides the examples.
VM_PROGRAMS := $(patsubst c-tests/vm/programs/%.c,--program $(STAGE)/vm-programs/%,$(wildcard c-tests/vm/programs/*.c)) \
	--program $(STAGE)/vm-hard/probe --program $(STAGE)/vm-hard/hard --program $(STAGE)/c-tests-verbs/verbs

vm-programs: examples
	@$(MAKE) --no-print-directory -s -C c-tests/pairs all PREFIX=$(STAGE) OUT=$(STAGE)/pairs
	@$(MAKE) --no-print-directory -s -C c-tests/verbs all PREFIX=$(STAGE) PAIRS=$(STAGE)/pairs OUT=$(STAGE)/c-tests-verbs
	@$(MAKE) --no-print-directory -s -C c-tests/vm/programs all PREFIX=$(STAGE) OUT=$(STAGE)/vm-programs
	@$(MAKE) --no-print-directory -s -C c-tests/vm/hard all PREFIX=$(STAGE) PAIRS=$(STAGE)/pairs OUT=$(STAGE)/vm-hard

check-rdma: vm-programs
	@$(SETUP) $(VM_PACKAGES)
	@c-tests/vm/check $(VM_PROGRAMS) $(STAGE) $(STAGE)/pairs/pairs $(STAGE)/vm $(PARTS)

# What the other kernel and libraries make a difference for; PARTS=pairs runs there, too.
NEWER_PARTS := examples interoperation native registration

check-rdma-newer: vm-programs
	@$(SETUP) $(NEWER_PACKAGES)
	@c-tests/vm/make-root trixie $(STAGE)/vm-newer/cache/trixie
	@c-tests/vm/build-in-root $(STAGE)/vm-newer/cache/trixie $(STAGE)/vm-newer/built
	@c-tests/vm/check --root $(STAGE)/vm-newer/cache/trixie --built $(STAGE)/vm-newer/built/lib/librpma.so.0 $(VM_PROGRAMS) $(STAGE) $(STAGE)/pairs/pairs $(STAGE)/vm-newer $(or $(PARTS),$(NEWER_PARTS))

check-siw: vm-programs
	@$(SETUP) $(VM_PACKAGES) $(SIW_PACKAGES) rdmacm-utils
	@c-tests/vm/check --siw $(VM_PROGRAMS) --program $(PRELOAD) \
		$(foreach program,rping rdma_client rdma_server,--program $(shell command -v $(program) || echo /usr/bin/$(program))) $(STAGE) $(STAGE)/pairs/pairs $(STAGE)/vm siw

header:
	@$(SETUP) $(ASK) $(BUILD_PACKAGES)
	$(CARGO_RUN) run --quiet --locked -p header -- include/librpma.h

vendor:
	@$(SETUP) $(ASK) git
	CARGO="$(CARGO)" tools/vendor vendor

dist:
	@$(SETUP) $(ASK) git xz-utils
	CARGO="$(CARGO)" tools/dist $(VERSION) $(TARBALL)

setup-deb:
	@$(SETUP) $(ASK) $(DEB_PACKAGES)

deb: setup-deb dist
	@tools/deb $(VERSION) $(TARBALL) build/deb

clean:
	rm -rf build
	$(CARGO) clean
