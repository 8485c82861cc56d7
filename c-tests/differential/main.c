/* SPDX-License-Identifier: BSD-3-Clause */

/* Prints its observations of the librpma found in the given directory; see ../README.md. */

#include <dlfcn.h>
#include <limits.h>

#include "observe.h"

static bool library_is_in(const char *dir)
{
	char want[PATH_MAX], have[PATH_MAX];
	Dl_info info;

	if (dladdr((void *)(uintptr_t)rpma_peer_new, &info) == 0 || info.dli_fname == NULL)
		return false;
	if (realpath(dir, want) == NULL || realpath(info.dli_fname, have) == NULL)
		return false;
	size_t n = strlen(want);
	return strncmp(want, have, n) == 0 && have[n] == '/' && strchr(have + n + 1, '/') == NULL;
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: observe DIRECTORY\n");
		return 2;
	}
	if (!library_is_in(argv[1])) {
		fprintf(stderr, "observe: librpma.so.0 is not the one in %s\n", argv[1]);
		return 2;
	}
	observe_logging(); /* first, since it reads defaults */
	observe_values();
	observe_descriptors();
	observe_operations();
	observe_events();
	observe_completions();
	observe_sequences();
	observe_arguments(); /* last, since its objects remain */
	return 0;
}
