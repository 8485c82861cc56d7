/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * words.c -- aligned writes of 8 bytes to memory that is unmapped meanwhile: the provider stores the bytes
 * itself, so the fault must end the connection and not the process.
 */
#include "link.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ROUNDS 80
#define PAGE 4096
#define PAGES 16
#define SIZE (PAGES * PAGE)
/* fewer than the default send queue holds */
#define SIGNALLED 5

enum damage { UNMAPPED, READ_ONLY, INACCESSIBLE, TRUNCATED, WAYS };

static void
take_away(char *ptr, int fd, enum damage damage)
{
	switch (damage) {
	case UNMAPPED:
		EXPECT(munmap(ptr, SIZE) == 0, "%s", strerror(errno));
		break;
	case READ_ONLY:
		EXPECT(mprotect(ptr, SIZE, PROT_READ) == 0, "%s", strerror(errno));
		break;
	case INACCESSIBLE:
		EXPECT(mprotect(ptr, SIZE, PROT_NONE) == 0, "%s", strerror(errno));
		break;
	default:
		EXPECT(ftruncate(fd, 0) == 0, "%s", strerror(errno));
	}
}

static void
losing_target(struct side *side)
{
	struct node node;

	open_target(&node, side);
	for (unsigned i = 0; i < ROUNDS; i++) {
		enum damage damage = i % WAYS;
		int fd = memfd_create("words", MFD_CLOEXEC);
		struct region region;
		struct link link;
		uint64_t at_least;
		char *ptr;

		EXPECT(fd >= 0 && ftruncate(fd, SIZE) == 0, "%s", strerror(errno));
		ptr = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		EXPECT(ptr != MAP_FAILED, "%s", strerror(errno));
		region_reg(&node, &region, ptr, SIZE, RPMA_MR_USAGE_WRITE_DST);
		accept_link(&node, &link, NULL, &region);
		/* in the middle of the stream, each time at another write */
		at_least = 100 + i * 37;
		while (__atomic_load_n((uint64_t *)ptr, __ATOMIC_RELAXED) < at_least)
			;
		take_away(ptr, fd, damage);
		expect_broken(&link);
		delete_link(&link);
		OK(rpma_mr_dereg(&region.mr));
		if (damage != UNMAPPED)
			EXPECT(munmap(ptr, SIZE) == 0, "%s", strerror(errno));
		close(fd);
	}
	close_node(&node);
}

/* Numbered writes to all pages in turn, until one fails. */
static void
streaming_initiator(struct side *side)
{
	struct region source;
	struct node node;

	open_initiator(&node, side);
	region_new(&node, &source, PAGE, RPMA_MR_USAGE_WRITE_SRC);
	for (unsigned i = 0; i < ROUNDS; i++) {
		bool broken = false;
		struct link link;

		connect_link(&node, &link, NULL, NULL);
		for (uint64_t n = 1; !broken; n++) {
			bool signalled = n % SIGNALLED == 0;
			struct ibv_wc wc;

			*(uint64_t *)source.ptr = n;
			if (rpma_write(link.conn, link.remote, n % PAGES * PAGE, source.mr, 0, 8,
				    signalled ? RPMA_F_COMPLETION_ALWAYS : RPMA_F_COMPLETION_ON_ERROR, NULL) != 0)
				break;
			if (signalled) {
				next_wc(link.cq, &wc);
				broken = wc.status != IBV_WC_SUCCESS;
			}
		}
		end_broken(&link);
		delete_link(&link);
	}
	close_with_region(&node, &source);
}

const struct test words_tests[] = {
	{"words-while-memory-goes", losing_target, streaming_initiator, .seconds = 60},
	{.name = NULL},
};
