/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stream.c -- many operations at once: rates, bandwidths, and their cost for a sleeping target. `rpma perf`
 * does not replace it: it signals and times each operation, which costs more than a small write; here only
 * some are signalled, and the clock is read once in up to 256 operations.
 */
#include "bench.h"

#include <errno.h>
#include <unistd.h>

#define SMALL 64  /* the largest of the small writes */
#define CELLS 512 /* slots for small writes, more than a send queue has entries */
#define SMALL_SQ 256

/*
 * Write n has a separate slot as its source and as its destination, so that the last CELLS writes can be told
 * apart.
 */
static void
post_small(struct link *link, uint64_t n)
{
	size_t len = link->side->opt.size;
	size_t at = (size_t)(n % CELLS) * len;

	poke(link->out + at, n);
	link_room(link);
	CHECK(rpma_write(link->conn[link->use], link->remote, at, link->out_mr, at, len,
		link_flags(link), NULL));
}

/* Waits until everything that was posted is visible in the target's memory. */
static void
flush_all(struct link *link)
{
	link_drain(link);
	/*
	 * the requests after the last signalled one are unsignalled: the completion of the flush covers them,
	 * too
	 */
	CHECK(rpma_flush(link->conn[link->use], link->remote, 0, 8, RPMA_FLUSH_TYPE_VISIBILITY,
		RPMA_F_COMPLETION_ALWAYS, NULL));
	await_completion(link->cq[link->use]);
	link->posted = 0;
	link->since = 0;
}

/* The target: each slot must contain the last of `total` writes to it. */
static void
check_small(struct link *link, uint64_t total)
{
	for (uint64_t n = total < CELLS ? 0 : total - CELLS; n < total; n++) {
		uint64_t seen = peek(link->in + (size_t)(n % CELLS) * link->side->opt.size);

		REQUIRE(seen == n, "place %" PRIu64 " has %" PRIu64 ", written was %" PRIu64, n % CELLS,
			seen, n);
	}
}

/* Small writes for a time, the target's program asleep; the end is when the last one is visible there. */
void
write_rate(struct side *side)
{
	const struct link_sizes sizes = {
		.in = CELLS * SMALL, .out = CELLS * SMALL, .sq = SMALL_SQ, .rq = 1};
	struct link link;
	uint64_t n = 0;

	REQUIRE(side->opt.size >= 8 && side->opt.size <= SMALL, "size is not 8 to %d", SMALL);
	link_open(&link, side, &sizes);
	if (side->initiator) {
		uint64_t began = now_ns();
		uint64_t end = began + side->opt.ms * UINT64_C(1000000);
		uint64_t elapsed;

		do {
			for (int i = 0; i < 256; i++)
				post_small(&link, n++);
		} while (now_ns() < end);
		flush_all(&link);
		elapsed = now_ns() - began;
		printf("value=%.4f rounds=%" PRIu64 "\n", (double)n * 1e3 / (double)elapsed, n);
		ctl_send(side, &n, sizeof(n));
	} else {
		ctl_recv(side, &n, sizeof(n));
		check_small(&link, n);
	}
	link_close(&link);
}

/*
 * opt.count small writes for each line on the standard input, while the target's program sleeps. Prints the
 * process IDs first, so that their system calls can be counted.
 */
void
small_writes(struct side *side)
{
	const struct link_sizes sizes = {
		.in = CELLS * SMALL, .out = CELLS * SMALL, .sq = SMALL_SQ, .rq = 1};
	struct link link;
	uint64_t n = 0;
	pid_t pid = getpid();

	REQUIRE(side->opt.size >= 8 && side->opt.size <= SMALL, "size is not 8 to %d", SMALL);
	link_open(&link, side, &sizes);
	if (side->initiator) {
		pid_t target;
		char line[16];

		ctl_recv(side, &target, sizeof(target));
		printf("initiator=%d target=%d\n", (int)pid, (int)target);
		while (read(STDIN_FILENO, line, sizeof(line)) > 0) {
			for (unsigned i = 0; i < side->opt.count; i++)
				post_small(&link, n++);
			flush_all(&link);
			printf("writes=%u\n", side->opt.count);
		}
		ctl_send(side, &n, sizeof(n));
	} else {
		ctl_send(side, &pid, sizeof(pid));
		ctl_recv(side, &n, sizeof(n));
		check_small(&link, n);
	}
	link_close(&link);
}

static void
fill(char *p, size_t size)
{
	for (size_t i = 0; i < size; i++)
		p[i] = (char)(i * 31 + i / 251 + 7);
}

static void
check_filled(const char *p, size_t size)
{
	for (size_t i = 0; i < size; i++)
		REQUIRE(p[i] == (char)(i * 31 + i / 251 + 7), "byte %zu of %zu is wrong", i, size);
}

/* Large writes or reads for a time, of the same buffers, so from the caches. */
static void
stream(struct side *side, bool reads)
{
	size_t size = side->opt.size;
	const struct link_sizes sizes = {.in = size, .out = size, .sq = 64, .rq = 1};
	struct link link;
	char done = 0;

	link_open(&link, side, &sizes);
	if (side->initiator != reads)
		fill(side->initiator ? link.out : link.in, size);
	ctl_barrier(side);
	if (side->initiator) {
		struct rpma_conn *conn = link.conn[link.use];
		uint64_t began = now_ns();
		uint64_t end = began + side->opt.ms * UINT64_C(1000000);
		uint64_t n = 0, elapsed;

		do {
			for (int i = 0; i < 4; i++, n++) {
				link_room(&link);
				if (reads)
					CHECK(rpma_read(conn, link.out_mr, 0, link.remote, 0, size,
						link_flags(&link), NULL));
				else
					CHECK(rpma_write(conn, link.remote, 0, link.out_mr, 0, size,
						link_flags(&link), NULL));
			}
		} while (now_ns() < end);
		flush_all(&link);
		elapsed = now_ns() - began;
		printf("value=%.4f rounds=%" PRIu64 "\n", (double)n * (double)size / (double)elapsed, n);
		if (reads)
			check_filled(link.out, size);
		ctl_send(side, &done, sizeof(done));
	} else {
		ctl_recv(side, &done, sizeof(done));
		if (!reads)
			check_filled(link.in, size);
	}
	link_close(&link);
}

void
write_stream(struct side *side)
{
	stream(side, false);
}

void
read_stream(struct side *side)
{
	stream(side, true);
}

/* Idle connections, until the standard input ends. */
void
idle(struct side *side)
{
	const struct link_sizes sizes = {.in = 4096, .out = 4096, .sq = 64, .rq = 2};
	struct link link;
	pid_t pid = getpid();
	char line[16];

	link_open(&link, side, &sizes);
	if (side->initiator) {
		pid_t target;

		ctl_recv(side, &target, sizeof(target));
		printf("initiator=%d target=%d\n", (int)pid, (int)target);
		while (read(STDIN_FILENO, line, sizeof(line)) > 0)
			;
		ctl_send(side, line, 1);
	} else {
		ctl_send(side, &pid, sizeof(pid));
		ctl_recv(side, line, 1);
	}
	link_close(&link);
}
