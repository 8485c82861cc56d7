/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stacks.c -- threads with a stack 1 KiB smaller than the smallest that the manual permits, which is
 * sysconf(_SC_THREAD_STACK_MIN) plus 8 KiB: other compilers need some more. Such a thread makes all calls of
 * both processes.
 */
#include "link.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define OWN_STACK 7168
#define SIZE (1 << 20)
#define BURST 64
#define MESSAGE 64

struct small {
	struct side *side;
	void (*run)(struct side *side);
};

static void *
run_small(void *arg)
{
	struct small *small = arg;

	small->run(small->side);
	return NULL;
}

static void
in_small_thread(struct side *side, void (*run)(struct side *side))
{
	struct small small = {side, run};
	pthread_attr_t attr;
	pthread_t thread;

	EXPECT(pthread_attr_init(&attr) == 0);
	EXPECT(pthread_attr_setstacksize(&attr, (size_t)sysconf(_SC_THREAD_STACK_MIN) + OWN_STACK) == 0);
	EXPECT(pthread_create(&thread, &attr, run_small, &small) == 0);
	pthread_attr_destroy(&attr);
	EXPECT(pthread_join(thread, NULL) == 0);
}

/* A message in each direction, whose receive is posted before the connection is established. */
static struct rpma_conn_req *
with_receive(struct node *node, struct region *in, struct rpma_conn_cfg *cfg, bool accepts)
{
	struct rpma_conn_req *req = accepts ? next_req(node, cfg) : new_req(node, cfg);

	region_new(node, in, MESSAGE, RPMA_MR_USAGE_RECV);
	OK(rpma_conn_req_recv(req, in->mr, 0, MESSAGE, (void *)1));
	return req;
}

static void
send_one(struct link *link, struct region *out)
{
	OK(rpma_send(link->conn, out->mr, 0, MESSAGE, RPMA_F_COMPLETION_ALWAYS, (void *)2));
}

/* The completions of a send and of the answer: over RoCE either may come first. */
static void
expect_both(struct link *link)
{
	unsigned seen = 0;

	for (unsigned i = 0; i < 2; i++) {
		struct ibv_wc wc;

		next_wc(link->cq, &wc);
		EXPECT(wc.status == IBV_WC_SUCCESS && (wc.wr_id == 1 || wc.wr_id == 2), "operation %u has status %d",
			(unsigned)wc.wr_id, wc.status);
		EXPECT(wc.opcode == (wc.wr_id == 1 ? IBV_WC_RECV : IBV_WC_SEND), "%d", wc.opcode);
		seen |= (unsigned)wc.wr_id;
	}
	EXPECT(seen == 3, "the same completion twice");
}

static void
small_target_thread(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(2 * BURST, 2 * BURST, 4, 0);
	struct rpma_conn_req *req;
	struct region region;
	struct region in;
	struct node node;
	struct link link;

	open_target(&node, side);
	region_new(&node, &region, SIZE, USAGE_ALL);
	req = with_receive(&node, &in, cfg, true);
	start_link(&link, &req, &region);
	finish_link(&link);
	expect_wc(link.cq, 1, IBV_WC_RECV);
	send_one(&link, &region);
	expect_wc(link.cq, 2, IBV_WC_SEND);
	await_end(&link);
	check_pattern(region.ptr, SIZE, 2, "the target's region");
	region_free(&in);
	region_free(&region);
	OK(rpma_conn_cfg_delete(&cfg));
	close_node(&node);
}

static void
transfer(struct link *link, struct region *region)
{
	fill_pattern(region->ptr, SIZE, 2);
	write_part(link, 0, region, 0, SIZE);
	for (unsigned i = 0; i < BURST; i++)
		OK(rpma_write(link->conn, link->remote, i * 8, region->mr, i * 8, 8, RPMA_F_COMPLETION_ON_ERROR, NULL));
	OK(rpma_atomic_write(link->conn, link->remote, 0, region->ptr, RPMA_F_COMPLETION_ALWAYS, (void *)3));
	next_wc(link->cq, &(struct ibv_wc){0});
	OK(rpma_flush(link->conn, link->remote, 0, SIZE, RPMA_FLUSH_TYPE_PERSISTENT, RPMA_F_COMPLETION_ALWAYS, (void *)4));
	next_wc(link->cq, &(struct ibv_wc){0});
	fill_pattern(region->ptr, SIZE, 3);
	read_part(link, region, 0, 0, SIZE);
	check_pattern(region->ptr, SIZE, 2, "what was read back");
}

/* Each of these writes a message to the log. */
static void
fail_calls(struct node *node)
{
	struct rpma_conn_req *req = NULL;
	struct rpma_mr_local *mr = NULL;
	struct link link = {0};

	RETURNS(RPMA_E_PROVIDER, rpma_mr_reg(node->peer, NULL + 4096, SIZE, RPMA_MR_USAGE_READ_DST, &mr));
	OK(rpma_conn_req_new(node->peer, node->side->addr, "1", NULL, &req));
	OK(rpma_conn_req_connect(&req, NULL, &link.conn));
	expect_event(&link, RPMA_CONN_REJECTED);
	OK(rpma_conn_delete(&link.conn));
}

static void
small_initiator_thread(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(2 * BURST, 2 * BURST, 4, 0);
	struct rpma_conn_req *req;
	struct region region;
	struct region in;
	struct node node;
	struct link link;

	open_initiator(&node, side);
	region_new(&node, &region, SIZE, USAGE_ALL);
	req = with_receive(&node, &in, cfg, false);
	start_link(&link, &req, NULL);
	finish_link(&link);
	send_one(&link, &region);
	expect_both(&link);
	transfer(&link, &region);
	fail_calls(&node);
	end_link(&link);
	region_free(&in);
	region_free(&region);
	OK(rpma_conn_cfg_delete(&cfg));
	close_node(&node);
}

static void
small_target(struct side *side)
{
	in_small_thread(side, small_target_thread);
}

static void
small_initiator(struct side *side)
{
	in_small_thread(side, small_initiator_thread);
}

const struct test stacks_tests[] = {
	{"stacks-smallest", small_target, small_initiator, .missing = not_soft},
	{.name = NULL},
};
