/* SPDX-License-Identifier: BSD-3-Clause */
/* The program of a release: prints the symbols to which it is bound, or is one end of a connection. */

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "queue.h"

/* No program runs longer. */
#define LAST_RESORT_SECONDS 25

/* Every function of the release has the address of the library's definition at the node of the release. */
static void
check_names(const char *library)
{
	char want[PATH_MAX], got[PATH_MAX];
	void *handle = dlopen("librpma.so.0", RTLD_NOW | RTLD_NOLOAD);
	unsigned n = 0;
	Dl_info info;

	EXPECT(handle != NULL, "librpma.so.0 is not loaded");
	EXPECT(realpath(library, want) != NULL, "there is no %s", library);
	for (const struct name *name = release_names; name->name != NULL; name++, n++) {
		void *is = (void *)name->function;

		EXPECT(is != NULL && is == dlvsym(handle, name->name, release_node), "%s is not %s@%s", name->name,
				name->name, release_node);
		EXPECT(dladdr(is, &info) != 0 && realpath(info.dli_fname, got) != NULL && strcmp(got, want) == 0,
				"%s is in %s", name->name, got);
	}
	printf("%u functions at %s\n", n, release_node);
}

int
main(int argc, char *argv[])
{
	const struct queue *queue;

	alarm(LAST_RESORT_SECONDS);
	if (argc == 3 && strcmp(argv[1], "names") == 0) {
		check_names(argv[2]);
		return 0;
	}
	if (argc >= 3 && (queue = find_queue(argv[2])) != NULL) {
		if (argc == 4 && strcmp(argv[1], "target") == 0) {
			run_target(queue, argv[3]);
			return 0;
		}
		if (argc == 5 && strcmp(argv[1], "initiator") == 0) {
			run_initiator(queue, argv[3], argv[4]);
			return 0;
		}
	}
	fprintf(stderr, "usage: %s names LIBRARY | target QUEUE ADDR | initiator QUEUE ADDR PORT\n", argv[0]);
	return 2;
}
