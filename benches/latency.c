/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * latency.c -- one write or message of 8 bytes at a time, for which the target's program polls, or to which
 * it replies. `rpma perf` does not replace it: it signals each operation and times it until its completion,
 * so its times end before the target's program has the data.
 */
#include "bench.h"

#define LEN 8
#define SQ 64
#define RQ 8

/*
 * Waits for a receive and returns the index of its buffer; processes completions of sends and writes
 * meanwhile.
 */
static uintptr_t
next_receive(struct link *link, struct rpma_cq *cq, bool sleep)
{
	struct ibv_wc wc;
	int ret;

	for (;;) {
		ret = rpma_cq_get_wc(cq, 1, &wc, NULL);
		if (ret == RPMA_E_NO_COMPLETION) {
			if (sleep)
				CHECK(rpma_cq_wait(cq));
			continue;
		}
		CHECK(ret);
		if (wc.status != IBV_WC_SUCCESS || wc.opcode != IBV_WC_RECV) {
			link_done(link, &wc);
			continue;
		}
		REQUIRE(wc.byte_len == LEN, "a message of %u bytes", wc.byte_len);
		return (uintptr_t)wc.wr_id;
	}
}

/* The source of an operation must not change before it has completed: each has a separate slot. */
static size_t
out_slot(uint64_t n)
{
	return (size_t)(n % SQ) * SLOT;
}

static void
write_value(struct link *link, uint64_t n, uint64_t value)
{
	poke(link->out + out_slot(n), value);
	link_room(link);
	CHECK(rpma_write(link->conn[link->use], link->remote, 0, link->out_mr, out_slot(n), LEN,
		link_flags(link), NULL));
}

static void
send_value(struct link *link, uint64_t n, uint64_t value)
{
	poke(link->out + out_slot(n), value);
	link_room(link);
	CHECK(rpma_send(link->conn[link->use], link->out_mr, out_slot(n), LEN, link_flags(link), NULL));
}

/* Both sides spin on their own memory for the value that the other one writes. */
void
write_pingpong(struct side *side)
{
	const struct link_sizes sizes = {.in = 4096, .out = SQ * SLOT, .sq = SQ, .rq = RQ};
	struct link link;
	uint64_t n = 0, seen;

	link_open(&link, side, &sizes);
	if (side->initiator) {
		struct timer t;

		for (timer_start(&t, side->opt.ms); timer_next(&t);) {
			write_value(&link, n, n + 1);
			n++;
			while ((seen = peek(link.in)) != n)
				spin_pause();
			link_drain(&link);
		}
		write_value(&link, n, STOP);
		timer_report(&t, 2);
	} else {
		while (n != STOP) {
			while ((seen = peek(link.in)) == n)
				spin_pause();
			REQUIRE(seen == n + 1 || seen == STOP, "value %" PRIu64 " after %" PRIu64, seen, n);
			n = seen;
			if (n != STOP)
				write_value(&link, n, n);
			link_drain(&link);
		}
	}
	/* disconnecting may drop unsent bytes, so the target must have received the last value before */
	ctl_barrier(side);
	link_close(&link);
}

/*
 * One write at a time to a target that spins on its memory, while the initiator is blocked in rpma_cq_wait()
 * until the target replies with a message. The value is the time when the initiator posted it, by the clock
 * of both processes, so that only one direction is measured.
 */
void
write_oneway(struct side *side)
{
	const struct link_sizes sizes = {.in = 4096, .out = SQ * SLOT, .sq = SQ, .rq = RQ};
	struct link link;
	struct timer t;
	uint64_t n = 0, seen, last = 0;

	link_open(&link, side, &sizes);
	timer_start(&t, side->opt.ms);
	if (side->initiator) {
		for (; timer_next(&t); n++) {
			uintptr_t slot;

			write_value(&link, n, now_ns());
			slot = next_receive(&link, link.cq[link.use], true);
			CHECK(rpma_recv(link.conn[link.use], link.in_mr, slot * SLOT, SLOT,
				(void *)slot));
		}
		write_value(&link, n, STOP);
		link_drain(&link);
	} else {
		/* the value is the target's first 8 bytes, and the receives of this side are not used */
		for (;; n++) {
			while ((seen = peek(link.in)) == last)
				spin_pause();
			if (seen == STOP)
				break;
			timer_add(&t, now_ns() - seen);
			last = seen;
			send_value(&link, n, n);
			link_drain(&link);
		}
		timer_report(&t, 1);
	}
	ctl_barrier(side);
	link_close(&link);
}

/* The receives of a ping-pong complete in cq; repost() posts a buffer to its queue again. */
static void
repost(struct link *link, uintptr_t slot)
{
	if (link->srq != NULL)
		CHECK(rpma_srq_recv(link->srq, link->in_mr, slot * SLOT, SLOT, (void *)slot));
	else
		CHECK(rpma_recv(link->conn[link->use], link->in_mr, slot * SLOT, SLOT, (void *)slot));
}

void
message_pingpong(struct link *link, struct rpma_cq *cq, double parts)
{
	bool sleep = link->side->opt.sleep;
	uint64_t n = 0, value = 0;
	uintptr_t slot;

	if (link->side->initiator) {
		struct timer t;

		for (timer_start(&t, link->side->opt.ms); timer_next(&t);) {
			send_value(link, n, n);
			slot = next_receive(link, cq, sleep);
			value = peek(link->in + slot * SLOT);
			REQUIRE(value == n, "answer %" PRIu64 " to %" PRIu64, value, n);
			repost(link, slot);
			n++;
		}
		send_value(link, n, STOP);
		next_receive(link, cq, sleep);
		timer_report(&t, parts);
	} else {
		while (value != STOP) {
			slot = next_receive(link, cq, sleep);
			value = peek(link->in + slot * SLOT);
			repost(link, slot);
			send_value(link, n++, value);
			/* with a separate receive CQ, the CQ of the sends is polled only here */
			if (cq != link->cq[link->use])
				link_drain(link);
		}
	}
}

void
send_pingpong(struct side *side)
{
	const struct link_sizes sizes = {.in = 4096, .out = SQ * SLOT, .sq = SQ, .rq = RQ};
	struct link link;

	link_open(&link, side, &sizes);
	message_pingpong(&link, link.cq[link.use], 2);
	link_close(&link);
}

/* The target's connections share one receive queue; one of them is used. */
void
srq_pingpong(struct side *side)
{
	const struct link_sizes sizes = {.in = 4096, .out = SQ * SLOT, .sq = SQ, .rq = RQ, .srq = 128};
	struct link link;
	struct rpma_cq *cq;

	link_open(&link, side, &sizes);
	cq = link.cq[link.use];
	if (link.srq != NULL) {
		CHECK(rpma_srq_get_rcq(link.srq, &cq));
		REQUIRE(cq != NULL, "the shared receive queue has no CQ");
	}
	message_pingpong(&link, cq, 1);
	link_close(&link);
}
