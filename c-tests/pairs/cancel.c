/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cancel.c -- signals and thread cancellation: they interrupt only calls that wait, and leak neither locks
 * nor memory. SIGPIPE is not raised.
 */
#include "link.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define MESSAGE 64
#define CANCELLATIONS 3000
#define BUSY_CANCELLATIONS 1000

struct waits {
	struct node *node;
	struct link *link;
	int which;
	atomic_bool begun;
};

/* Waits again and again, until it is cancelled: no event ever arrives. */
static void *
wait_forever(void *arg)
{
	struct waits *w = arg;

	w->begun = true;
	for (;;) {
		enum rpma_conn_event event;
		struct rpma_conn_req *req = NULL;

		switch (w->which) {
		case 0:
			rpma_cq_wait(w->link->cq);
			break;
		case 1:
			rpma_conn_next_event(w->link->conn, &event);
			break;
		default:
			rpma_ep_next_conn_req(w->node->ep, NULL, &req);
			break;
		}
	}
	return NULL;
}

/* A thread that waits is cancelled; the connection stays usable, also by other threads. */
static void
waits_target(struct side *side)
{
	struct rpma_conn_req *req;
	struct region in;
	struct node node;
	struct link link;
	unsigned fds;

	open_target(&node, side);
	region_new(&node, &in, MESSAGE, USAGE_ALL);
	req = next_req(&node, NULL);
	start_link(&link, &req, &in);
	finish_link(&link);
	fds = settled_fds();
	for (unsigned i = 0; i < CANCELLATIONS; i++) {
		struct waits w = {.node = &node, .link = &link, .which = (int)(i % 3)};
		pthread_t thread;
		void *result = NULL;

		EXPECT(pthread_create(&thread, NULL, wait_forever, &w) == 0);
		while (!w.begun)
			sched_yield();
		/* mostly while it sleeps, sometimes before */
		if (i % 8 != 0)
			usleep(i % 200);
		EXPECT(pthread_cancel(thread) == 0);
		EXPECT(pthread_join(thread, &result) == 0);
		EXPECT(result == PTHREAD_CANCELED);
		if (i % 50 != 0)
			continue;
		OK(rpma_recv(link.conn, in.mr, 0, MESSAGE, (void *)(uintptr_t)i));
		notify(side, 'm');
		expect_wc(link.cq, i, IBV_WC_RECV);
	}
	EXPECT(count_fds() == fds, "%u descriptors, %u at first", count_fds(), fds);
	notify(side, 'e');
	await_end(&link);
	close_with_region(&node, &in);
}

static void
asked_initiator(struct side *side)
{
	struct region out;
	struct node node;
	struct link link;

	connect_with_region(&node, &link, &out, side, MESSAGE, USAGE_ALL, NULL);
	for (unsigned i = 0; i < CANCELLATIONS; i += 50) {
		await(side, 'm');
		OK(rpma_send(link.conn, out.mr, 0, MESSAGE, RPMA_F_COMPLETION_ALWAYS, (void *)2));
		expect_wc(link.cq, 2, IBV_WC_SEND);
	}
	await(side, 'e');
	end_link(&link);
	close_with_region(&node, &out);
}

struct work {
	struct node *node;
	struct link *link;
	struct region *local;
	atomic_uint done;
};

/* Transfers and control calls. Each must be completed; the thread is cancelled between two of them. */
static void *
work_on(void *arg)
{
	struct work *w = arg;

	for (uintptr_t i = 1;; i++) {
		struct rpma_mr_local *mr = NULL;
		struct rpma_conn_req *req = NULL;
		struct ibv_wc wc;
		int ret;

		OK(rpma_write(w->link->conn, w->link->remote, 0, w->local->mr, 0, 64, RPMA_F_COMPLETION_ON_ERROR, NULL));
		OK(rpma_read(w->link->conn, w->local->mr, 64, w->link->remote, 0, 64, RPMA_F_COMPLETION_ALWAYS, (void *)i));
		while ((ret = rpma_cq_get_wc(w->link->cq, 1, &wc, NULL)) == RPMA_E_NO_COMPLETION)
			;
		OK(ret);
		EXPECT(wc.status == IBV_WC_SUCCESS && wc.wr_id == i, "%u, %llu", wc.status, (unsigned long long)wc.wr_id);
		if (i % 4 == 0) {
			OK(rpma_mr_reg(w->node->peer, w->local->ptr, 64, USAGE_ALL, &mr));
			OK(rpma_conn_req_new(w->node->peer, w->node->side->addr, w->node->side->port, NULL, &req));
			OK(rpma_conn_req_delete(&req));
			OK(rpma_mr_dereg(&mr));
		}
		w->done++;
		pthread_testcancel();
	}
	return NULL;
}

/* Cancelled at any point: no call is left incomplete. */
static void
busy_initiator(struct side *side)
{
	struct region local;
	struct node node;
	struct link link;
	unsigned fds;

	connect_with_region(&node, &link, &local, side, 4096, USAGE_ALL, NULL);
	fds = settled_fds();
	for (unsigned i = 0; i < BUSY_CANCELLATIONS; i++) {
		struct work w = {.node = &node, .link = &link, .local = &local};
		pthread_t thread;
		void *result = NULL;

		EXPECT(pthread_create(&thread, NULL, work_on, &w) == 0);
		while (w.done < 2)
			sched_yield();
		usleep(i % 100);
		EXPECT(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
	}
	EXPECT(count_fds() == fds, "%u descriptors, %u at first", count_fds(), fds);
	write_part(&link, 0, &local, 0, 64);
	end_link(&link);
	close_with_region(&node, &local);
}

static volatile sig_atomic_t alarms;

static void
count_alarm(int signal)
{
	(void)signal;
	alarms++;
}

/* Continuous signals, with a handler without SA_RESTART. Only a wait may report that it was interrupted. */
static void
stormy_initiator(struct side *side)
{
	struct sigaction action = {.sa_handler = count_alarm};
	struct itimerval often = {{0, 100}, {0, 100}};
	struct itimerval never = {{0, 0}, {0, 0}};
	unsigned interrupted = 0;
	struct region local;
	struct node node;

	await(side, 'L');
	EXPECT(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
	open_peer(&node, side);
	region_new(&node, &local, 4096, USAGE_ALL);
	for (unsigned round = 0; round < 100; round++) {
		enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
		struct rpma_conn_private_data pdata;
		struct rpma_conn_req *req = new_req(&node, NULL);
		struct link link;
		int ret;

		start_link(&link, &req, NULL);
		while ((ret = rpma_conn_next_event(link.conn, &event)) == RPMA_E_PROVIDER && errno == EINTR)
			interrupted++;
		OK(ret);
		EXPECT(event == RPMA_CONN_ESTABLISHED, "%s", rpma_utils_conn_event_2str(event));
		OK(rpma_conn_get_private_data(link.conn, &pdata));
		OK(rpma_mr_remote_from_descriptor(pdata.ptr, DESCRIPTOR_SIZE, &link.remote));
		for (uint32_t i = 0; i < 20; i++) {
			struct ibv_wc wc;

			fill_pattern(local.ptr, 64, i);
			OK(rpma_write(link.conn, link.remote, 0, local.mr, 0, 64, RPMA_F_COMPLETION_ON_ERROR, NULL));
			OK(rpma_read(link.conn, local.mr, 64, link.remote, 0, 64, RPMA_F_COMPLETION_ALWAYS, (void *)9));
			while ((ret = rpma_cq_get_wc(link.cq, 1, &wc, NULL)) == RPMA_E_NO_COMPLETION) {
				ret = rpma_cq_wait(link.cq);
				EXPECT(ret == 0 || ret == RPMA_E_NO_COMPLETION, "%d", ret);
				interrupted += ret != 0;
			}
			OK(ret);
			EXPECT(wc.status == IBV_WC_SUCCESS && wc.wr_id == 9, "%u", wc.status);
			check_pattern(local.ptr + 64, 64, i, "what was read back");
		}
		OK(rpma_conn_disconnect(link.conn));
		while ((ret = rpma_conn_next_event(link.conn, &event)) == RPMA_E_PROVIDER && errno == EINTR)
			interrupted++;
		OK(ret);
		EXPECT(event == RPMA_CONN_CLOSED, "%s", rpma_utils_conn_event_2str(event));
		delete_link(&link);
	}
	setitimer(ITIMER_REAL, &never, NULL);
	EXPECT(alarms > 500, "%d alarms", (int)alarms);
	close_with_region(&node, &local);
}

static void
stormy_target(struct side *side)
{
	struct region region;
	struct node node;

	open_target(&node, side);
	region_new(&node, &region, 4096, USAGE_ALL);
	for (unsigned round = 0; round < 100; round++) {
		struct link link;

		accept_link(&node, &link, NULL, &region);
		await_end(&link);
	}
	close_with_region(&node, &region);
}

#define ENDS 50

/* SIGPIPE would end the process, as by default; its peers close while it sends. */
static void
piped_initiator(struct side *side)
{
	struct region local;
	struct node node;

	signal(SIGPIPE, SIG_DFL);
	open_initiator(&node, side);
	region_new(&node, &local, 1 << 20, USAGE_ALL);
	for (unsigned i = 0; i < ENDS; i++) {
		enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
		struct link link;

		connect_link(&node, &link, NULL, NULL);
		notify(side, 'c');
		/* until the queue is full or posting fails; meanwhile the connection is closed */
		for (unsigned n = 0; n < 200; n++) {
			int ret = rpma_write(link.conn, link.remote, 0, local.mr, 0, 1 << 20, RPMA_F_COMPLETION_ON_ERROR, NULL);

			EXPECT(ret == 0 || ret == RPMA_E_PROVIDER, "%d", ret);
		}
		OK(rpma_conn_next_event(link.conn, &event));
		EXPECT(event == RPMA_CONN_CLOSED || event == RPMA_CONN_LOST, "%s", rpma_utils_conn_event_2str(event));
		rpma_write(link.conn, link.remote, 0, local.mr, 0, 8, RPMA_F_COMPLETION_ALWAYS, NULL);
		rpma_conn_disconnect(link.conn);
		delete_link(&link);
	}
	close_with_region(&node, &local);
}

static void
closing_target(struct side *side)
{
	struct region region;
	struct node node;

	open_target(&node, side);
	region_new(&node, &region, 1 << 20, USAGE_ALL);
	for (unsigned i = 0; i < ENDS; i++) {
		struct link link;

		accept_link(&node, &link, NULL, &region);
		await(side, 'c');
		OK(rpma_conn_disconnect(link.conn));
		delete_link(&link);
	}
	close_with_region(&node, &region);
}

const struct test cancel_tests[] = {
	{"cancelled-while-it-waits", waits_target, asked_initiator, .seconds = 60},
	{"cancelled-while-it-works", serve_anything, busy_initiator, .seconds = 60},
	{"signals-all-the-time", stormy_target, stormy_initiator, .seconds = 60},
	{"no-sigpipe", closing_target, piped_initiator, .seconds = 60},
	{.name = NULL},
};
