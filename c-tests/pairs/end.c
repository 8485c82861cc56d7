/* SPDX-License-Identifier: BSD-3-Clause */
/* end.c -- the ways in which a connection ends. Outstanding operations complete exactly once. */
#include "link.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE (1 << 20)
#define RECEIVES 8

/* Polls until each of wr_id 0 .. n-1 has completed once, in order. */
static void
take_failed_receives(struct rpma_cq *cq, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct ibv_wc wc;

		next_wc(cq, &wc);
		EXPECT(wc.wr_id == i, "receive %llu, expected %u", (unsigned long long)wc.wr_id, i);
		EXPECT(wc.status == IBV_WC_WR_FLUSH_ERR, "status %d", wc.status);
	}
	expect_no_wc(cq);
}

/* A connection with receives posted, disconnected by the remote peer or by this side. */
static void
with_receives(struct side *side, bool is_target, bool ending)
{
	struct rpma_conn_req *req;
	struct region in;
	struct node node;
	struct link link;

	(is_target ? open_target : open_initiator)(&node, side);
	region_new(&node, &in, 4096, RPMA_MR_USAGE_RECV);
	req = (is_target ? next_req : new_req)(&node, NULL);
	for (uintptr_t i = 0; i < RECEIVES; i++)
		OK(rpma_conn_req_recv(req, in.mr, 0, 4096, (void *)i));
	start_link(&link, &req, NULL);
	finish_link(&link);
	/* both are connected before one of them ends it */
	notify(side, 'e');
	await(side, 'e');
	if (ending)
		OK(rpma_conn_disconnect(link.conn));
	if (on_device()) {
		/* the queue pair of a device leaves RTS only when this side disconnects */
		expect_event(&link, RPMA_CONN_CLOSED);
		if (!ending)
			OK(rpma_conn_disconnect(link.conn));
		take_failed_receives(link.cq, RECEIVES);
	} else {
		take_failed_receives(link.cq, RECEIVES);
		expect_event(&link, RPMA_CONN_CLOSED);
		if (!ending)
			OK(rpma_conn_disconnect(link.conn));
	}
	check_bytes(in.ptr, 4096, 0, "the receive buffer");
	delete_link(&link);
	close_with_region(&node, &in);
}

static void ending_target(struct side *side) { with_receives(side, true, true); }
static void ending_initiator(struct side *side) { with_receives(side, false, true); }
static void waiting_target(struct side *side) { with_receives(side, true, false); }
static void waiting_initiator(struct side *side) { with_receives(side, false, false); }

/* Deleted without disconnecting: the peer must be notified nevertheless. */
static void
deleting_initiator(struct side *side)
{
	struct node node;
	struct link link;

	open_initiator(&node, side);
	connect_link(&node, &link, NULL, NULL);
	notify(side, 'e');
	await(side, 'e');
	delete_link(&link);
	close_node(&node);
}

/* The process ends as any program may, without deleting anything. */
static void
exiting_initiator(struct side *side)
{
	struct node node;
	struct link link;

	open_initiator(&node, side);
	connect_link(&node, &link, NULL, NULL);
	notify(side, 'e');
	await(side, 'e');
}

static void
exited_target(struct side *side)
{
	struct rpma_conn_req *req;
	struct region in;
	struct node node;
	struct link link;

	open_target(&node, side);
	region_new(&node, &in, 4096, RPMA_MR_USAGE_RECV);
	req = next_req(&node, NULL);
	for (uintptr_t i = 0; i < RECEIVES; i++)
		OK(rpma_conn_req_recv(req, in.mr, 0, 4096, (void *)i));
	start_link(&link, &req, NULL);
	finish_link(&link);
	notify(side, 'e');
	await(side, 'e');
	if (on_device()) {
		expect_event(&link, RPMA_CONN_CLOSED);
		OK(rpma_conn_disconnect(link.conn));
		take_failed_receives(link.cq, RECEIVES);
	} else {
		take_failed_receives(link.cq, RECEIVES);
		expect_broken(&link);
	}
	delete_link(&link);
	close_with_region(&node, &in);
}

/* All that was posted before rpma_conn_disconnect(3) arrives at the peer. */
static void
write_then_disconnect_target(struct side *side)
{
	serve(side, SIZE, 1, 2);
}

static void
write_then_disconnect_initiator(struct side *side)
{
	struct region out;
	struct node node;
	struct link link;

	open_initiator(&node, side);
	region_new(&node, &out, SIZE, RPMA_MR_USAGE_WRITE_SRC);
	fill_pattern(out.ptr, SIZE, 2);
	connect_link(&node, &link, NULL, NULL);
	/* complete, so the transport has it and must deliver it */
	write_part(&link, 0, &out, 0, SIZE);
	end_link(&link);
	close_with_region(&node, &out);
}

/* Requests posted after the end fail immediately or complete once as flushed. None is lost, none succeeds. */
static void
late_post_initiator(struct side *side)
{
	struct region local;
	struct node node;
	struct link link;

	connect_with_region(&node, &link, &local, side, 4096, USAGE_ALL, NULL);
	OK(rpma_conn_disconnect(link.conn));
	expect_event(&link, RPMA_CONN_CLOSED);
	for (uintptr_t i = 0; i < 4; i++) {
		struct ibv_wc wc;
		int ret = i % 2 == 0
			? rpma_read(link.conn, local.mr, 0, link.remote, 0, 8, RPMA_F_COMPLETION_ALWAYS, (void *)i)
			: rpma_recv(link.conn, local.mr, 0, 8, (void *)i);

		if (ret != 0) {
			EXPECT(ret == RPMA_E_PROVIDER, "%d", ret);
			continue;
		}
		next_wc(link.cq, &wc);
		EXPECT(wc.wr_id == i && wc.status == IBV_WC_WR_FLUSH_ERR, "operation %llu, status %d",
			(unsigned long long)wc.wr_id, wc.status);
	}
	expect_no_wc(link.cq);
	delete_link(&link);
	close_with_region(&node, &local);
}

static void
late_post_target(struct side *side)
{
	serve(side, 4096, 1, 1);
}

/*
 * Operations of every kind to a stopped process, which cannot respond to any; then it is killed. Receives are
 * posted too. Both the send queue and the receives complete in posting order.
 */
#define OPERATIONS 90

static void
operations_and_death(struct node *node, struct link *link, struct side *side, void (*kill_peer)(struct side *))
{
	struct region local;
	unsigned sends = 0;
	unsigned receives = 0;

	region_new(node, &local, SIZE, USAGE_ALL);
	for (uintptr_t i = 0; i < RECEIVES; i++)
		OK(rpma_recv(link->conn, local.mr, 0, 64, (void *)(1000 + i)));
	for (uintptr_t i = 0; i < OPERATIONS; i++) {
		void *context = (void *)i;

		switch (i % 3) {
		case 0:
			OK(rpma_read(link->conn, local.mr, 0, link->remote, 0, 4096,
				RPMA_F_COMPLETION_ALWAYS, context));
			break;
		case 1:
			/* 30 MiB of these: more than the sockets between the processes hold */
			OK(rpma_write(link->conn, link->remote, 0, local.mr, 0, SIZE,
				RPMA_F_COMPLETION_ALWAYS, context));
			break;
		default:
			OK(rpma_send(link->conn, local.mr, 0, 64, RPMA_F_COMPLETION_ALWAYS, context));
		}
	}
	sleep_ms(50);
	kill_peer(side);

	while (sends < OPERATIONS || receives < RECEIVES) {
		struct ibv_wc wc;

		next_wc(link->cq, &wc);
		if (wc.wr_id >= 1000) {
			EXPECT(wc.wr_id == 1000 + receives, "receive %llu, expected %u",
				(unsigned long long)wc.wr_id, 1000 + receives);
			EXPECT(wc.status == IBV_WC_WR_FLUSH_ERR, "status %d", wc.status);
			receives++;
			continue;
		}
		EXPECT(wc.wr_id == sends, "operation %llu, expected %u", (unsigned long long)wc.wr_id, sends);
		/* the first is a read without a response: nothing after it can have succeeded */
		EXPECT(wc.status != IBV_WC_SUCCESS, "operation %u succeeded", sends);
		sends++;
	}
	expect_no_wc(link->cq);
	expect_broken(link);
	delete_link(link);
	region_free(&local);
}

static void
killed_target(struct side *side)
{
	struct region region;
	struct node node;
	struct link link;

	accept_with_region(&node, &link, &region, side, SIZE, USAGE_ALL, NULL);
	expect_event(&link, RPMA_CONN_UNDEFINED);
}

static void
kill_target(struct side *side)
{
	EXPECT(kill(*side->target_pid, SIGKILL) == 0);
}

static void
killing_initiator(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(256, 128, 128, 0);
	struct node node;
	struct link link;

	open_initiator(&node, side);
	connect_link(&node, &link, cfg, NULL);
	OK(rpma_conn_cfg_delete(&cfg));
	stop_process(*side->target_pid);
	operations_and_death(&node, &link, side, kill_target);
	close_node(&node);
}

/*
 * The reverse: a client dies while the server has outstanding operations to it; another client is served
 * meanwhile and afterwards. The dying client is a child of the initiator.
 */
static void
ask_for_kill(struct side *side)
{
	notify(side, 'k');
	await(side, 'k');
}

static void
surviving_target(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(256, 128, 128, 0);
	struct region region;
	struct node node;
	struct link dying;
	struct link other;

	open_target(&node, side);
	region_new(&node, &region, 4096, USAGE_ALL);
	fill_pattern(region.ptr, 4096, 5);
	accept_link(&node, &dying, cfg, &region);
	OK(rpma_conn_cfg_delete(&cfg));
	notify(side, 'o');
	accept_link(&node, &other, NULL, &region);
	notify(side, 's');
	await(side, 's');
	operations_and_death(&node, &dying, side, ask_for_kill);
	await_end(&other);
	accept_link(&node, &other, NULL, &region);
	await_end(&other);
	check_pattern(region.ptr, 4096, 5, "the server's region");
	close_with_region(&node, &region);
}

static void
surviving_initiator(struct side *side)
{
	struct region local;
	struct node node;
	struct link link;
	pid_t victim;

	await(side, 'L');
	victim = fork();
	EXPECT(victim >= 0);
	if (victim == 0) {
		open_peer(&node, side);
		region_new(&node, &local, SIZE, USAGE_ALL);
		connect_link(&node, &link, NULL, &local);
		pause();
		_exit(1);
	}

	await(side, 'o');
	open_peer(&node, side);
	region_new(&node, &local, 4096, USAGE_ALL);
	connect_link(&node, &link, NULL, NULL);
	await(side, 's');
	stop_process(victim);
	notify(side, 's');
	await(side, 'k');
	EXPECT(kill(victim, SIGKILL) == 0 && waitpid(victim, NULL, 0) == victim);
	notify(side, 'k');
	for (int i = 0; i < 2; i++) {
		memset(local.ptr, 0, 4096);
		read_part(&link, &local, 0, 0, 4096);
		check_pattern(local.ptr, 4096, 5, "what was read");
		end_link(&link);
		if (i == 0)
			connect_link(&node, &link, NULL, NULL);
	}
	close_with_region(&node, &local);
}

/* A client is killed between its request and the acceptance: the server loses only that connection. */
static void
vanished_target(struct side *side)
{
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
	struct rpma_conn_req *req;
	struct node node;
	struct link link = {0};
	int ret;

	open_target(&node, side);
	req = next_req(&node, NULL);
	notify(side, 'k');
	await(side, 'k');
	ret = rpma_conn_req_connect(&req, NULL, &link.conn);
	EXPECT(req == NULL);
	if (ret == 0) {
		OK(rpma_conn_next_event(link.conn, &event));
		if (event == RPMA_CONN_ESTABLISHED)
			OK(rpma_conn_next_event(link.conn, &event));
		/* over RoCE a REJ ends the attempt, not the connection */
		EXPECT(event == RPMA_CONN_CLOSED || event == RPMA_CONN_LOST ||
				(over_roce() && event == RPMA_CONN_REJECTED),
			"%s", rpma_utils_conn_event_2str(event));
		OK(rpma_conn_delete(&link.conn));
	} else {
		EXPECT(ret == RPMA_E_PROVIDER, "%d", ret);
	}
	accept_link(&node, &link, NULL, NULL);
	await_end(&link);
	close_node(&node);
}

static void
vanished_initiator(struct side *side)
{
	struct node node;
	struct link link;
	pid_t victim;

	await(side, 'L');
	victim = fork();
	EXPECT(victim >= 0);
	if (victim == 0) {
		struct rpma_conn_req *req;

		open_peer(&node, side);
		req = new_req(&node, NULL);
		start_link(&link, &req, NULL);
		pause();
		_exit(1);
	}
	await(side, 'k');
	EXPECT(kill(victim, SIGKILL) == 0 && waitpid(victim, NULL, 0) == victim);
	notify(side, 'k');
	open_peer(&node, side);
	connect_link(&node, &link, NULL, NULL);
	end_link(&link);
	close_node(&node);
}

const struct test end_tests[] = {
	{"initiator-disconnects", waiting_target, ending_initiator},
	{"target-disconnects", ending_target, waiting_initiator},
	{"both-disconnect", ending_target, ending_initiator},
	{"deleted-without-disconnect", exited_target, deleting_initiator},
	{"process-exits", exited_target, exiting_initiator},
	{"write-then-disconnect", write_then_disconnect_target, write_then_disconnect_initiator},
	{"post-after-the-end", late_post_target, late_post_initiator},
	{"target-killed", killed_target, killing_initiator, .target_ends_by = SIGKILL},
	{"target-killed-ipv6", killed_target, killing_initiator, .addr = "::1", .target_ends_by = SIGKILL},
	{"initiator-killed", surviving_target, surviving_initiator},
	{"initiator-killed-while-connecting", vanished_target, vanished_initiator},
	{.name = NULL},
};
