/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * onesided.c -- reads and writes of every size, in bursts and on several connections, while the target's
 * program sleeps. `rpma perf` does not replace it: it signals each request, and has a thread per connection.
 * Here one thread serves all connections, and only the last request of a burst is signalled.
 */
#include "bench.h"

#include <sys/resource.h>
#include <sys/socket.h>

#define SQ 128
#define POLLS 256 /* between two checks of the control socket */

static void
post(struct link *link, unsigned conn, size_t at, bool reads, int flags)
{
	size_t size = link->side->opt.size;

	if (reads)
		CHECK(rpma_read(link->conn[conn], link->out_mr, at, link->remote, at, size, flags, NULL));
	else
		CHECK(rpma_write(link->conn[conn], link->remote, at, link->out_mr, at, size, flags, NULL));
}

static void
open_link(struct link *link, struct side *side, size_t places)
{
	const struct link_sizes sizes = {.in = places * side->opt.size, .out = places * side->opt.size, .sq = SQ, .rq = 1};

	side->opt.signal = 1;
	link_open(link, side, &sizes);
}

/* The target sleeps until the initiator is done. */
static void
close_link(struct link *link)
{
	char done = 1;

	if (link->side->initiator)
		ctl_send(link->side, &done, sizeof(done));
	else
		ctl_recv(link->side, &done, sizeof(done));
	link_close(link);
}

/*
 * A burst of writes to separate slots, the last one signalled, until its completion; the time of one write.
 */
void
write_burst(struct side *side)
{
	unsigned burst = side->opt.signal;
	struct link link;

	open_link(&link, side, burst);
	if (side->initiator) {
		struct timer t;

		for (timer_start(&t, side->opt.ms); timer_next(&t);) {
			for (unsigned i = 0; i < burst; i++)
				post(&link, 0, i * side->opt.size, false,
					i + 1 < burst ? RPMA_F_COMPLETION_ON_ERROR : RPMA_F_COMPLETION_ALWAYS);
			await_completion(link.cq[0]);
		}
		timer_report(&t, burst);
	}
	close_link(&link);
}

/*
 * Keeps --depth signalled requests in flight on each connection. Returns how many have completed in the time.
 */
static uint64_t
keep_in_flight(struct link *link, bool reads, uint64_t *ns)
{
	unsigned depth = link->side->opt.depth;
	size_t size = link->side->opt.size;
	uint64_t began = now_ns(), end = began + link->side->opt.ms * UINT64_C(1000000);
	uint64_t n = 0;

	for (unsigned c = 0; c < link->conns; c++)
		for (unsigned i = 0; i < depth; i++)
			post(link, c, (size_t)(c * depth + i) * size, reads, RPMA_F_COMPLETION_ALWAYS);
	do {
		for (unsigned c = 0; c < link->conns; c++)
			for (unsigned i = 0; i < depth && has_completed(link->cq[c]); i++) {
				post(link, c, (size_t)(c * depth + n % depth) * size, reads, RPMA_F_COMPLETION_ALWAYS);
				n++;
			}
	} while (now_ns() < end);
	*ns = now_ns() - began;
	for (unsigned c = 0; c < link->conns; c++)
		for (unsigned i = 0; i < depth; i++)
			await_completion(link->cq[c]);
	return n;
}

static void
rate(struct side *side, bool reads)
{
	struct link link;
	uint64_t n, ns;

	open_link(&link, side, side->opt.depth);
	if (side->initiator) {
		n = keep_in_flight(&link, reads, &ns);
		printf("value=%.4f rounds=%" PRIu64 "\n", (double)n * 1e3 / (double)ns, n);
	}
	close_link(&link);
}

void
read_rate(struct side *side)
{
	rate(side, true);
}

void
write_depth(struct side *side)
{
	rate(side, false);
}

/* One write at a time until its completion has been polled; the target's program polls its CQ or sleeps. */
void
write_completion(struct side *side)
{
	struct link link;
	struct timer t;
	struct ibv_wc wc;
	char done;

	open_link(&link, side, 1);
	if (side->initiator) {
		for (timer_start(&t, side->opt.ms); timer_next(&t);) {
			post(&link, 0, 0, false, RPMA_F_COMPLETION_ALWAYS);
			await_completion(link.cq[0]);
		}
		timer_report(&t, 1);
	} else if (!side->opt.sleep) {
		while (recv(side->ctl, &done, sizeof(done), MSG_PEEK | MSG_DONTWAIT) < 0)
			for (int i = 0; i < POLLS; i++) {
				/* the end of the connection flushes its receive */
				if (rpma_cq_get_wc(link.cq[0], 1, &wc, NULL) == 0)
					REQUIRE(wc.status == IBV_WC_WR_FLUSH_ERR, "a completion at the target");
			}
	}
	close_link(&link);
}

void
write_streams(struct side *side)
{
	struct link link;
	uint64_t n, ns;

	open_link(&link, side, (size_t)side->opt.conns * side->opt.depth);
	if (side->initiator) {
		n = keep_in_flight(&link, false, &ns);
		printf("value=%.4f rounds=%" PRIu64 "\n", (double)n * (double)side->opt.size / (double)ns, n);
	}
	close_link(&link);
}

static uint64_t
own_cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/*
 * The CPU time of the target's process, of all threads, for reads and writes in which its program takes no
 * part.
 */
void
target_cpu(struct side *side)
{
	struct link link;
	unsigned count = side->opt.count;
	char done = 1;

	open_link(&link, side, 1);
	if (side->initiator) {
		/* work that is done once for a key is not a cost of an operation */
		for (unsigned i = 0; i < 2 * count; i++) {
			if (i == count)
				ctl_barrier(side);
			post(&link, 0, 0, i % 2, RPMA_F_COMPLETION_ALWAYS);
			await_completion(link.cq[0]);
		}
		ctl_send(side, &done, sizeof(done));
	} else {
		uint64_t before;

		ctl_barrier(side);
		before = own_cpu_ns();
		ctl_recv(side, &done, sizeof(done));
		printf("value=%.4f rounds=%u\n", (double)(own_cpu_ns() - before) / count, count);
	}
	close_link(&link);
}

static double
switches_so_far(void)
{
	struct rusage usage;

	REQUIRE(getrusage(RUSAGE_SELF, &usage) == 0, "getrusage: %s", strerror(errno));
	return (double)(usage.ru_nvcsw + usage.ru_nivcsw);
}

/*
 * How often the threads of a process that only polls are scheduled: more often than its engine thread has to
 * check on it, they take the processor from one another.
 */
void
switches(struct side *side)
{
	struct link link;

	open_link(&link, side, 1);
	if (side->initiator) {
		uint64_t began, n = 0;
		double before;

		/* the engine thread trusts a program that polls after a while */
		for (began = now_ns(); now_ns() - began < 50000000u;) {
			post(&link, 0, 0, false, RPMA_F_COMPLETION_ALWAYS);
			await_completion(link.cq[0]);
		}
		before = switches_so_far();
		for (began = now_ns(); now_ns() - began < side->opt.ms * UINT64_C(1000000); n++) {
			post(&link, 0, 0, false, RPMA_F_COMPLETION_ON_ERROR);
			CHECK(rpma_flush(link.conn[0], link.remote, 0, 8, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS, NULL));
			await_completion(link.cq[0]);
		}
		printf("value=%.4f rounds=%" PRIu64 "\n",
			(switches_so_far() - before) * 1e9 / (double)(now_ns() - began), n);
	}
	close_link(&link);
}
