/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stop.c -- one process is stopped for longer than each timeout, then continued. A connection continues if
 * the peer's host responds; a connection attempt ends after its timeout.
 */
#include "stress.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIZE 65536
#define WINDOW 32
#define MESSAGE 4096
#define PEER_TIMEOUT_MS "1000"
#define REPLY_TIMEOUT_MS "500"
#define SOME_MAPPINGS 8
#define SOME_KB 4096

static void
set_timeouts(void)
{
	setenv("SOFTVERBS_PEER_TIMEOUT_MS", PEER_TIMEOUT_MS, 1);
	setenv("SOFTVERBS_REPLY_TIMEOUT_MS", REPLY_TIMEOUT_MS, 1);
}

/*
 * Beyond all timeouts: those that are set, those for closing and for stalled messages, and four times the
 * peer timeout.
 */
static unsigned
stop_ms(void)
{
	return amount(4500, 25000);
}

static void
stop_for_a_while(pid_t pid)
{
	stop_process(pid);
	sleep_ms(stop_ms());
	EXPECT(kill(pid, SIGCONT) == 0, "%s", strerror(errno));
}

/* The stopped side: two connections, one of which has receives posted; the other one is idle. */
static void
stopped_target(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(0, 0, WINDOW, 0);
	struct rpma_conn_req *req;
	struct region region;
	struct region in;
	struct node node;
	struct link busy;
	struct link idle;

	set_timeouts();
	open_target(&node, side);
	region_new(&node, &region, SIZE, USAGE_ALL);
	region_new(&node, &in, WINDOW * MESSAGE, RPMA_MR_USAGE_RECV);
	req = next_req(&node, cfg);
	for (uintptr_t i = 0; i < WINDOW; i++)
		OK(rpma_conn_req_recv(req, in.mr, i * MESSAGE, MESSAGE, (void *)i));
	start_link(&busy, &req, &region);
	finish_link(&busy);
	accept_link(&node, &idle, NULL, &region);
	notify(side, 's');
	/* here this process is stopped */
	for (uintptr_t i = 0; i < WINDOW; i++) {
		expect_wc(busy.cq, i, IBV_WC_RECV);
		check_pattern(in.ptr + i * MESSAGE, MESSAGE, (uint32_t)i, "a message");
	}
	await_end(&busy);
	await_end(&idle);
	check_pattern(region.ptr, SIZE, 7, "what was written last");
	OK(rpma_conn_cfg_delete(&cfg));
	region_free(&in);
	region_free(&region);
	close_node(&node);
}

/*
 * Posts more than the peer's socket takes, stops the peer, and continues it; then all requests complete, once
 * and in order.
 */
static void
stopping_initiator(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(4 * WINDOW, 4 * WINDOW, 0, 0);
	struct census before;
	struct region out;
	struct region back;
	struct node node;
	struct link busy;
	struct link idle;

	set_timeouts();
	open_initiator(&node, side);
	region_new(&node, &out, SIZE + WINDOW * MESSAGE, USAGE_ALL);
	region_new(&node, &back, SIZE, USAGE_ALL);
	connect_link(&node, &busy, cfg, NULL);
	connect_link(&node, &idle, cfg, NULL);
	await(side, 's');
	before = take_census();
	stop_process(*side->target_pid);
	fill_pattern(out.ptr, SIZE, 7);
	for (uintptr_t i = 0; i < WINDOW; i++) {
		fill_pattern(out.ptr + SIZE + i * MESSAGE, MESSAGE, (uint32_t)i);
		OK(rpma_write(busy.conn, busy.remote, 0, out.mr, 0, SIZE, RPMA_F_COMPLETION_ALWAYS, (void *)i));
		OK(rpma_send(busy.conn, out.mr, SIZE + i * MESSAGE, MESSAGE, RPMA_F_COMPLETION_ALWAYS, (void *)(WINDOW + i)));
	}
	OK(rpma_read(busy.conn, back.mr, 0, busy.remote, 0, SIZE, RPMA_F_COMPLETION_ALWAYS, (void *)(2 * WINDOW)));
	stop_for_a_while(*side->target_pid);
	for (uintptr_t i = 0; i < WINDOW; i++) {
		expect_wc(busy.cq, i, IBV_WC_RDMA_WRITE);
		expect_wc(busy.cq, WINDOW + i, IBV_WC_SEND);
	}
	expect_wc(busy.cq, 2 * WINDOW, IBV_WC_RDMA_READ);
	check_pattern(back.ptr, SIZE, 7, "what was read back");
	expect_no_wc(busy.cq);
	/* the idle connection has not been lost, either */
	EXPECT(!readable(event_fd(idle.conn), 0), "an event of the idle connection");
	memset(back.ptr, 0, SIZE);
	read_part(&idle, &back, 0, 0, SIZE);
	check_pattern(back.ptr, SIZE, 7, "what was read over the idle connection");
	figures("     the target was stopped for %u ms with a peer timeout of %s ms; both connections continued", stop_ms(),
		PEER_TIMEOUT_MS);
	expect_no_growth("initiator", &before, SOME_MAPPINGS, SOME_KB);
	end_link(&busy);
	end_link(&idle);
	OK(rpma_conn_cfg_delete(&cfg));
	region_free(&out);
	region_free(&back);
	close_node(&node);
}

/*
 * A listener that is stopped: the attempt ends after the reply timeout; one made after it was continued
 * succeeds.
 */
static void
stopped_listener(struct side *side)
{
	struct region region;
	struct node node;
	struct link link;

	set_timeouts();
	open_target(&node, side);
	region_new(&node, &region, SIZE, USAGE_ALL);
	accept_link(&node, &link, NULL, &region);
	notify(side, 's');
	await(side, 'c');
	/* abandoned attempts may be pending; they end */
	for (bool used = false; !used;) {
		enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
		struct rpma_conn_req *req = next_req(&node, NULL);
		struct link again;

		int ret = rpma_conn_req_connect(&req, NULL, &again.conn);

		again.remote = NULL;
		/* its end may have been detected already */
		EXPECT(ret == 0 || ret == RPMA_E_PROVIDER, "%d", ret);
		if (ret != 0)
			continue;
		OK(rpma_conn_next_event(again.conn, &event));
		if (event == RPMA_CONN_ESTABLISHED) {
			OK(rpma_conn_next_event(again.conn, &event));
			used = region.ptr[0] == 'u';
		}
		EXPECT(is_end(event), "%s", rpma_utils_conn_event_2str(event));
		OK(rpma_conn_disconnect(again.conn));
		delete_link(&again);
	}
	await_end(&link);
	region_free(&region);
	close_node(&node);
}

static void
attempting_initiator(struct side *side)
{
	struct region local;
	struct node node;
	struct link link;
	struct link again;
	uint64_t began;

	set_timeouts();
	open_initiator(&node, side);
	region_new(&node, &local, SIZE, USAGE_ALL);
	connect_link(&node, &link, NULL, NULL);
	await(side, 's');
	stop_process(*side->target_pid);
	began = now_ms();
	EXPECT(!try_connect(&node, &again, NULL, NULL, 0), "a stopped process has accepted");
	EXPECT(now_ms() - began >= (uint64_t)atoi(REPLY_TIMEOUT_MS) && now_ms() - began < stop_ms(), "abandoned after %llu ms",
		(unsigned long long)(now_ms() - began));
	stop_for_a_while(*side->target_pid);
	notify(side, 'c');
	connect_link(&node, &again, NULL, NULL);
	/* the region is that of the first connection */
	local.ptr[0] = 'u';
	OK(rpma_write(again.conn, link.remote, 0, local.mr, 0, 1, RPMA_F_COMPLETION_ALWAYS, (void *)1));
	expect_wc(again.cq, 1, IBV_WC_RDMA_WRITE);
	OK(rpma_read(again.conn, local.mr, 1, link.remote, 0, 1, RPMA_F_COMPLETION_ALWAYS, (void *)2));
	expect_wc(again.cq, 2, IBV_WC_RDMA_READ);
	EXPECT(local.ptr[1] == 'u');
	read_part(&link, &local, 2, 0, 1);
	EXPECT(local.ptr[2] == 'u');
	figures("     an attempt to connect to a stopped process ended after its timeout; the next one, %u ms later, succeeded", stop_ms());
	end_link(&again);
	end_link(&link);
	region_free(&local);
	close_node(&node);
}

/*
 * A peer that is stopped while the other side ends the connection: that side waits no longer than its
 * timeout.
 */
static void
stopped_at_the_end(struct side *side)
{
	struct region region;
	struct node node;
	struct link link;

	set_timeouts();
	open_target(&node, side);
	region_new(&node, &region, SIZE, USAGE_ALL);
	accept_link(&node, &link, NULL, &region);
	notify(side, 's');
	expect_broken(&link);
	OK(rpma_conn_disconnect(link.conn));
	delete_link(&link);
	region_free(&region);
	close_node(&node);
}

static void
ending_initiator(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(WINDOW, WINDOW, 0, 0);
	struct census before;
	struct region out;
	struct node node;
	struct link link;
	uint64_t began;

	set_timeouts();
	open_initiator(&node, side);
	region_new(&node, &out, 64 * SIZE, USAGE_ALL);
	before = take_census();
	connect_link(&node, &link, cfg, NULL);
	await(side, 's');
	stop_process(*side->target_pid);
	for (uintptr_t i = 0; i < 4; i++)
		OK(rpma_read(link.conn, out.mr, 0, link.remote, 0, SIZE, RPMA_F_COMPLETION_ALWAYS, (void *)i));
	began = now_ms();
	OK(rpma_conn_disconnect(link.conn));
	for (uintptr_t i = 0; i < 4; i++) {
		struct ibv_wc wc;

		next_wc(link.cq, &wc);
		EXPECT(wc.wr_id == i && wc.status == IBV_WC_WR_FLUSH_ERR, "%llu: %d", (unsigned long long)wc.wr_id, wc.status);
	}
	expect_broken(&link);
	delete_link(&link);
	EXPECT(now_ms() - began < stop_ms(), "%llu ms", (unsigned long long)(now_ms() - began));
	stop_for_a_while(*side->target_pid);
	/*
	 * the engine, its thread and the file that proves who may inspect this process have existed since the
	 * first connection
	 */
	before.fds += 4;
	before.threads += 1;
	expect_no_growth("initiator", &before, SOME_MAPPINGS, SOME_KB);
	OK(rpma_conn_cfg_delete(&cfg));
	region_free(&out);
	close_node(&node);
}

const struct test stop_tests[] = {
	{"stopped-and-continued", stopped_target, stopping_initiator, .seconds = 40},
	{"stopped-while-listening", stopped_listener, attempting_initiator, .seconds = 40},
	{"stopped-while-the-connection-ends", stopped_at_the_end, ending_initiator, .seconds = 40},
	{.name = NULL},
};
