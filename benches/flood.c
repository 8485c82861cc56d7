/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * flood.c -- messages on one connection while the initiator floods the others with aligned 8-byte writes, the
 * most expensive ones for the target.
 */
#include "bench.h"

#include <pthread.h>
#include <stdatomic.h>

#define LEN 8
#define SQ 8192
#define RQ 8
#define BATCH 4096 /* writes, the last one signalled; they fill the buffers between the two sides */

struct flood {
	struct link *link;
	atomic_bool over;
	pthread_t thread;
};

static void *
flood(void *arg)
{
	struct flood *f = arg;
	struct link *link = f->link;
	unsigned conns = link->conns - 1;

	while (!f->over) {
		for (unsigned c = 0; c < conns; c++)
			for (unsigned i = 1; i <= BATCH; i++)
				CHECK(rpma_write(link->conn[c], link->remote, RQ * SLOT + c * LEN, link->out_mr, 0, LEN,
					i == BATCH ? RPMA_F_COMPLETION_ALWAYS : RPMA_F_COMPLETION_ON_ERROR, NULL));
		for (unsigned c = 0; c < conns; c++)
			await_completion(link->cq[c]);
	}
	return NULL;
}

/* The receives of the ping-pong are after the memory that the floods write. */
void
flooded_pingpong(struct side *side)
{
	const struct link_sizes sizes = {.in = 4096, .out = 64 * SLOT, .sq = SQ, .rq = RQ};
	struct link link;
	struct flood f = {.link = &link};

	link_open(&link, side, &sizes);
	if (side->initiator && link.conns > 1)
		REQUIRE(pthread_create(&f.thread, NULL, flood, &f) == 0, "no thread");
	message_pingpong(&link, link.cq[link.use], 1);
	if (side->initiator && link.conns > 1) {
		f.over = true;
		REQUIRE(pthread_join(f.thread, NULL) == 0, "no thread");
	}
	/* the target serves until the floods have ended */
	ctl_barrier(side);
	link_close(&link);
}
