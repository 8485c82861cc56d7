/* SPDX-License-Identifier: BSD-3-Clause */
/* overrun.c -- posting to full queues, and memory that is deregistered while in use. */
#include "link.h"

#include <string.h>
#include <unistd.h>

#define SIZE 4096
#define MESSAGE 64
#define SQ_SIZE 16
#define MOST 4096 /* no provider makes a queue for SQ_SIZE requests that large */
#define WRITES 32
#define ROUNDS 8

/*
 * There is no receive for the sends, so they stay in the send queue until the initiator has reported that it
 * is full.
 */
static void
full_queue_target(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(MOST, 0, MOST, 0);
	struct node node;
	struct region in;
	struct region other;
	struct link link;
	struct link second;
	struct ibv_wc wc;
	unsigned posted = 0;

	open_target(&node, side);
	region_new(&node, &in, MESSAGE, RPMA_MR_USAGE_RECV);
	region_new(&node, &other, SIZE, USAGE_ALL);
	accept_link(&node, &link, cfg, NULL);
	accept_link(&node, &second, NULL, &other);
	OK(rpma_conn_cfg_delete(&cfg));

	await(side, 'f');
	EXPECT(read(side->sync, &posted, sizeof(posted)) == sizeof(posted));
	for (unsigned i = 0; i < posted; i++)
		OK(rpma_recv(link.conn, in.mr, 0, MESSAGE, (void *)(uintptr_t)i));
	for (unsigned i = 0; i < posted; i++) {
		next_wc(link.cq, &wc);
		EXPECT(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.wr_id == i,
			"message %u: status %d of %u", i, wc.status, (unsigned)wc.wr_id);
	}
	expect_no_wc(link.cq);
	notify(side, 'r');
	await_end(&second);
	await_end(&link);
	check_pattern(other.ptr, SIZE, 5, "the other connection's region");
	region_free(&other);
	close_with_region(&node, &in);
}

static void
full_queue_initiator(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(MOST, SQ_SIZE, 0, 0);
	struct node node;
	struct region out;
	struct region data;
	struct link link;
	struct link second;
	char refused[96];
	unsigned posted = 0;
	int ret;

	open_initiator(&node, side);
	region_new(&node, &out, MESSAGE, RPMA_MR_USAGE_SEND);
	region_new(&node, &data, SIZE, USAGE_ALL);
	fill_pattern(data.ptr, SIZE, 5);
	connect_link(&node, &link, cfg, NULL);
	connect_link(&node, &second, NULL, NULL);
	OK(rpma_conn_cfg_delete(&cfg));

	while ((ret = rpma_send(link.conn, out.mr, 0, MESSAGE, RPMA_F_COMPLETION_ALWAYS,
		(void *)(uintptr_t)posted)) == 0)
		EXPECT(++posted < MOST, "the queue is never full");
	EXPECT(ret == RPMA_E_PROVIDER, "%d", ret);
	EXPECT(posted >= SQ_SIZE, "%u", posted);
	snprintf(refused, sizeof(refused), "rpma_send: %s:%s: ibv_post_send(SEND, ", side->addr, side->port);
	EXPECT(strncmp(rpma_err_last(), refused, strlen(refused)) == 0, "not \"%s\": %s", refused, rpma_err_last());
	/* the queue stays full and valid, and another connection is not affected */
	RETURNS(RPMA_E_PROVIDER, rpma_write(link.conn, NULL, 0, NULL, 0, 0, RPMA_F_COMPLETION_ALWAYS, NULL));
	write_part(&second, 0, &data, 0, SIZE);

	notify(side, 'f');
	EXPECT(write(side->sync, &posted, sizeof(posted)) == sizeof(posted));
	for (unsigned i = 0; i < posted; i++)
		expect_wc(link.cq, i, IBV_WC_SEND);
	expect_no_wc(link.cq);
	await(side, 'r');
	end_link(&second);
	end_link(&link);
	region_free(&data);
	close_with_region(&node, &out);
}

/* The target deregisters its region while it is being written: only that connection fails, each time. */
static void
taken_back_target(struct side *side)
{
	struct node node;
	struct region place;
	struct region kept;
	char *memory = pages(SIZE);

	open_target(&node, side);
	region_new(&node, &kept, SIZE, USAGE_ALL);
	fill_pattern(kept.ptr, SIZE, 6);
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct link link;

		memset(memory, 0, SIZE);
		region_reg(&node, &place, memory, SIZE, USAGE_ALL);
		accept_link(&node, &link, NULL, &place);
		while (__atomic_load_n((uint64_t *)memory, __ATOMIC_RELAXED) == 0)
			sleep_ms(1);
		sleep_ms(i);
		OK(rpma_mr_dereg(&place.mr));
		/* nothing is written after deregistration */
		fill_pattern(memory, SIZE, i);
		sleep_ms(5);
		check_pattern(memory, SIZE, i, "deregistered memory");
		expect_broken(&link);
		delete_link(&link);
		check_pattern(memory, SIZE, i, "deregistered memory");
	}
	check_pattern(kept.ptr, SIZE, 6, "another region");
	close_with_region(&node, &kept);
}

static void
taken_back_initiator(struct side *side)
{
	struct node node;
	struct region data;

	open_initiator(&node, side);
	region_new(&node, &data, SIZE, USAGE_ALL);
	memset(data.ptr, 0xa5, SIZE);
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct rpma_conn_cfg *cfg = sizes(WRITES, WRITES, 0, 0);
		unsigned flying = 0;
		bool failed = false;
		struct link link;
		struct ibv_wc wc;

		connect_link(&node, &link, cfg, NULL);
		OK(rpma_conn_cfg_delete(&cfg));
		while (!failed) {
			while (flying < WRITES && rpma_write(link.conn, link.remote, 0, data.mr, 0, SIZE,
				RPMA_F_COMPLETION_ALWAYS, NULL) == 0)
				flying++;
			next_wc(link.cq, &wc);
			flying--;
			failed = wc.status != IBV_WC_SUCCESS;
		}
		/* a write over TCP is complete before it is refused, so only requests after it can fail */
		EXPECT(wc.status == (over_roce() ? IBV_WC_REM_ACCESS_ERR : IBV_WC_WR_FLUSH_ERR) ||
			(!over_roce() && wc.status == IBV_WC_REM_ACCESS_ERR), "status %d", wc.status);
		/* each of the others completes once, too */
		while (flying-- > 0) {
			next_wc(link.cq, &wc);
			EXPECT(wc.status == IBV_WC_WR_FLUSH_ERR, "status %d", wc.status);
		}
		expect_no_wc(link.cq);
		end_broken(&link);
		delete_link(&link);
	}
	close_with_region(&node, &data);
}

const struct test overrun_tests[] = {
	{"send-queue-full", full_queue_target, full_queue_initiator, .seconds = 40},
	{"deregistered-while-in-use", taken_back_target, taken_back_initiator, .seconds = 40},
	{.name = NULL},
};
