/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * registrations.c -- the system calls of a registration of shared memory: a memfd is searched among the open
 * descriptors, of which there are few; for shared anonymous memory nothing is searched. This program's
 * fcntl() overrides libc's, so the provider calls it.
 */
#include "link.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Atomic unsigned seals;

int
fcntl(int fd, int command, ...)
{
	va_list ap;
	long argument;

	va_start(ap, command);
	argument = va_arg(ap, long);
	va_end(ap);
	seals += command == F_GET_SEALS;
	return (int)syscall(SYS_fcntl, fd, command, argument);
}

#define OPEN_DESCRIPTORS 64

static void
listening_target(struct side *side)
{
	struct node node;

	open_target(&node, side);
	await(side, 'd');
	close_node(&node);
}

static void
register_shared(struct node *node, int flags, int file, unsigned most)
{
	void *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | flags, file, 0);
	unsigned before = seals;
	struct region region;

	EXPECT(shared != MAP_FAILED, "%s", strerror(errno));
	region_reg(node, &region, shared, 4096, USAGE_ALL);
	EXPECT(seals - before <= most, "%u times fcntl, %u permitted", seals - before, most);
	region_free(&region);
}

static void
registering_initiator(struct side *side)
{
	int file = memfd_create("pairs", MFD_CLOEXEC);
	struct node node;

	EXPECT(file >= 0 && ftruncate(file, 4096) == 0, "%s", strerror(errno));
	open_initiator(&node, side);
	register_shared(&node, 0, file, OPEN_DESCRIPTORS);
	EXPECT(seals > 0, "no fcntl was counted, although the memfd was searched");
	EXPECT(close(file) == 0);
	register_shared(&node, MAP_ANONYMOUS, -1, 0);
	close_node(&node);
	notify(side, 'd');
}

const struct test registrations_tests[] = {
	{"calls-of-registrations", listening_target, registering_initiator, .missing = not_soft},
	{.name = NULL},
};
