/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The installed files: exported and required symbols of the library, the output of pkg-config, and that the
 * header compiles alone in C and C++. Uses nm, readelf and the compilers.
 */

#include <dlfcn.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include <librpma.h>

#include "names.h"

static const char *env(const char *name)
{
	const char *value = getenv(name);

	if (value == NULL)
		fail_msg("%s is not set: run `make check`", name);
	return value;
}

static int is_original(void)
{
	return getenv("RPMA_TEST_ORIGINAL") != NULL;
}

/* The loaded library is that under test, not another librpma of this machine. */
static void the_right_library(void **state)
{
	char want[PATH_MAX], got[PATH_MAX], path[PATH_MAX];
	Dl_info info;

	(void)state;
	snprintf(path, sizeof(path), "%s/librpma.so.0", env("RPMA_TEST_LIBDIR"));
	assert_non_null(realpath(path, want));
	assert_true(dladdr(dlsym(RTLD_DEFAULT, "rpma_peer_new"), &info));
	assert_non_null(realpath(info.dli_fname, got));
	assert_string_equal(got, want);
}

/* Runs a command on the library, whose path replaces "%s", and passes each line to `take`. */
static void each_line(const char *command, void (*take)(char *line))
{
	char path[PATH_MAX], full[PATH_MAX + 256], line[1024];

	snprintf(path, sizeof(path), "%s/librpma.so.0", env("RPMA_TEST_LIBDIR"));
	snprintf(full, sizeof(full), command, path);
	FILE *f = popen(full, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f) != NULL) {
		line[strcspn(line, "\n")] = '\0';
		take(line);
	}
	assert_int_equal(pclose(f), 0);
}

/* ---- exports ---- */

#define NAME(name) #name,
static const char *const names[] = {
	RPMA_OBJECT_FUNCTIONS(NAME) RPMA_CONNECTION_FUNCTIONS(NAME) RPMA_REMOVED_FUNCTIONS(NAME)
	RPMA_ADDED_FUNCTIONS(NAME)
};
enum { NAMES = sizeof(names) / sizeof(names[0]) };
static int seen[NAMES], unexpected;

static void take_symbol(char *line)
{
	char type, symbol[256];

	if (sscanf(line, "%*s %c %255s", &type, symbol) != 2 || type == 'A')
		return; /* the version nodes themselves */
	symbol[strcspn(symbol, "@")] = '\0';
	for (int i = 0; i < NAMES; i++) {
		if (strcmp(names[i], symbol) == 0) {
			seen[i]++;
			if (type != 'T') {
				print_error("%s is of type %c\n", symbol, type);
				unexpected++;
			}
			return;
		}
	}
	print_error("%s is exported\n", symbol);
	unexpected++;
}

static void exports(void **state)
{
	int missing = 0;

	(void)state;
	each_line("nm -D --defined-only '%s'", take_symbol);
	for (int i = 0; i < NAMES; i++) {
		if (seen[i] == 0 && !(is_original() && i >= 84)) {
			print_error("%s is not exported\n", names[i]);
			missing++;
		}
	}
	assert_int_equal(missing, 0);
	assert_int_equal(unexpected, 0);
}

static int unversioned;

static void take_versioned(char *line)
{
	if (strstr(line, " T rpma_") != NULL && strchr(line, '@') == NULL) {
		print_error("no version: %s\n", line);
		unversioned++;
	}
}

static void nothing_unversioned(void **state)
{
	(void)state;
	each_line("nm -D --defined-only --with-symbol-versions '%s'", take_versioned);
	assert_int_equal(unversioned, 0);
}

/* ---- the dynamic section ---- */

static int sonames, bad_needed, n_needed;

static void take_dynamic(char *line)
{
	static const char *const allowed[] = {"libibverbs.so.1", "librdmacm.so.1", "libc.so.6",
		"libgcc_s.so.1", "libm.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux"};
	char *name = strchr(line, '[');

	if (name == NULL)
		return;
	name++;
	name[strcspn(name, "]")] = '\0';
	if (strstr(line, "(SONAME)") != NULL)
		sonames += strcmp(name, "librpma.so.0") == 0 ? 1 : 1000;
	if (strstr(line, "(NEEDED)") == NULL)
		return;
	n_needed++;
	for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++)
		if (strncmp(name, allowed[i], strlen(allowed[i])) == 0)
			return;
	print_error("needs %s\n", name);
	bad_needed++;
}

static void soname_and_needed(void **state)
{
	(void)state;
	each_line("readelf -dW '%s'", take_dynamic);
	assert_int_equal(sonames, 1);
	assert_int_equal(bad_needed, 0);
	assert_true(n_needed >= 3);
}

/* ---- pkg-config ---- */

static void pkg_config_libs(void **state)
{
	const char *libs = env("RPMA_TEST_LIBS");
	const char *rpma = strstr(libs, "-lrpma"), *ibverbs = strstr(libs, "-libverbs"),
		*rdmacm = strstr(libs, "-lrdmacm");

	(void)state;
	assert_non_null(rpma);
	assert_non_null(ibverbs);
	assert_non_null(rdmacm);
	assert_true(rpma < ibverbs && ibverbs < rdmacm);
}

/* ---- the header alone ---- */

static void compiles(const char *compiler, const char *options)
{
	char command[4096];

	snprintf(command, sizeof(command),
			"printf '#include <librpma.h>\\n#include <librpma.h>\\n"
			"int main(void) { return rpma_err_2str(0) == 0; }\\n' | "
			"%s %s -Wall -Wextra -pedantic -Werror %s - -o /dev/null %s", compiler, options,
			env("RPMA_TEST_CFLAGS"), env("RPMA_TEST_LIBS"));
	int status = system(command);
	if (status != 0)
		print_error("failed: %s\n", command);
	assert_int_equal(status, 0);
}

static void header_in_c99(void **state)
{
	(void)state;
	compiles(env("CC"), "-x c -std=c99");
}

static void header_in_c17(void **state)
{
	(void)state;
	compiles(env("CC"), "-x c -std=c17 -Wstrict-prototypes");
}

/* Also links: the names are C names. */
static void header_in_cxx17(void **state)
{
	(void)state;
	compiles(env("CXX"), "-x c++ -std=c++17");
}

/* The headers that old sources expect this one to include. */
static void header_includes(void **state)
{
	char command[4096];

	(void)state;
	snprintf(command, sizeof(command), "printf '#include <librpma.h>\\n"
			"size_t a; uint64_t b; FILE *c; bool d = true; struct ibv_wc e;\\n' | "
			"%s -x c -std=c99 -fsyntax-only -Werror %s -", env("CC"), env("RPMA_TEST_CFLAGS"));
	assert_int_equal(system(command), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_right_library),
		cmocka_unit_test(exports),
		cmocka_unit_test(nothing_unversioned),
		cmocka_unit_test(soname_and_needed),
		cmocka_unit_test(pkg_config_libs),
		cmocka_unit_test(header_in_c99),
		cmocka_unit_test(header_in_c17),
		cmocka_unit_test(header_in_cxx17),
		cmocka_unit_test(header_includes),
	};

	/* keeps the library in DT_NEEDED of this program */
	if (rpma_err_2str(0) == NULL)
		return 1;
	return cmocka_run_group_tests_name("abi-library", tests, NULL, NULL);
}
