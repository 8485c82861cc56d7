/* SPDX-License-Identifier: BSD-3-Clause */
/* queue.c -- separate receive CQ, shared receive queue, shared completion channel, descriptors, waiting. */
#include "link.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>

#define ROUNDS 50
#define MESSAGE 64

struct setup {
	struct node node;
	struct link link;
	struct region in;
	struct region out;
};

static void
open_setup(struct setup *s, struct side *side, bool is_target)
{
	(is_target ? open_target : open_initiator)(&s->node, side);
	region_new(&s->node, &s->in, 16 * MESSAGE, RPMA_MR_USAGE_RECV);
	region_new(&s->node, &s->out, 16 * MESSAGE, RPMA_MR_USAGE_SEND);
}

static void
close_setup(struct setup *s)
{
	region_free(&s->out);
	region_free(&s->in);
	close_node(&s->node);
}

/* Connects with the target's first receive posted. */
static void
link_up(struct setup *s, bool is_target, const struct rpma_conn_cfg *cfg)
{
	struct rpma_conn_req *req = (is_target ? next_req : new_req)(&s->node, cfg);

	if (is_target)
		OK(rpma_conn_req_recv(req, s->in.mr, 0, MESSAGE, (void *)1));
	start_link(&s->link, &req, NULL);
	finish_link(&s->link);
}

static void
send_round(struct setup *s, uint32_t seed)
{
	fill_pattern(s->out.ptr, MESSAGE, seed);
	OK(rpma_send(s->link.conn, s->out.mr, 0, MESSAGE, RPMA_F_COMPLETION_ALWAYS, (void *)2));
}

static void
recv_round(struct setup *s)
{
	OK(rpma_recv(s->link.conn, s->in.mr, 0, MESSAGE, (void *)1));
}

/* Receives in one queue and sends in the other, on both sides. */
static void
rcq(struct side *side, bool is_target)
{
	struct rpma_conn_cfg *cfg = sizes(0, 0, 0, 10);
	struct rpma_cq *receives = NULL;
	struct ibv_wc wc;
	struct setup s;
	int fds[2];

	open_setup(&s, side, is_target);
	link_up(&s, is_target, cfg);
	OK(rpma_conn_cfg_delete(&cfg));
	OK(rpma_conn_get_rcq(s.link.conn, &receives));
	EXPECT(receives != NULL && receives != s.link.cq);
	OK(rpma_cq_get_fd(s.link.cq, &fds[0]));
	OK(rpma_cq_get_fd(receives, &fds[1]));
	EXPECT(fds[0] != fds[1]);

	for (uint32_t i = 0; i < ROUNDS; i++) {
		if (!is_target) {
			recv_round(&s);
			send_round(&s, 10 + i);
		}
		expect_wc(receives, 1, IBV_WC_RECV);
		check_pattern(s.in.ptr, MESSAGE, (is_target ? 10 : 500) + i, "a message");
		RETURNS(RPMA_E_NO_COMPLETION, rpma_cq_get_wc(receives, 1, &wc, NULL));
		if (is_target) {
			if (i + 1 < ROUNDS)
				recv_round(&s);
			send_round(&s, 500 + i);
		}
		expect_wc(s.link.cq, 2, IBV_WC_SEND);
		RETURNS(RPMA_E_NO_COMPLETION, rpma_cq_get_wc(s.link.cq, 1, &wc, NULL));
	}
	(is_target ? await_end : end_link)(&s.link);
	close_setup(&s);
}

static void
rcq_target(struct side *side)
{
	rcq(side, true);
}

static void
rcq_initiator(struct side *side)
{
	rcq(side, false);
}

/*
 * One channel for both queues. With `blocking`, rpma_conn_wait() waits; otherwise poll() on the descriptor
 * does. While one queue is polled the other one fills: it has room for all rounds.
 */
static void
channel(struct side *side, bool is_target, bool blocking)
{
	struct rpma_conn_cfg *cfg = sizes(ROUNDS, ROUNDS, 0, 10);
	struct rpma_cq *receives = NULL;
	uint32_t received = 0;
	uint32_t sent = 0;
	struct setup s;
	int fd = -1;
	int cq_fd = -1;

	open_setup(&s, side, is_target);
	OK(rpma_conn_cfg_set_compl_channel(cfg, true));
	link_up(&s, is_target, cfg);
	OK(rpma_conn_cfg_delete(&cfg));
	OK(rpma_conn_get_rcq(s.link.conn, &receives));
	OK(rpma_conn_get_compl_fd(s.link.conn, &fd));
	OK(rpma_cq_get_fd(receives, &cq_fd));
	EXPECT(fd == cq_fd);
	RETURNS(RPMA_E_SHARED_CHANNEL, rpma_cq_wait(s.link.cq));
	RETURNS(RPMA_E_SHARED_CHANNEL, rpma_cq_wait(receives));
	if (!blocking)
		EXPECT(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0);

	if (!is_target) {
		recv_round(&s);
		send_round(&s, 10);
	}
	while (received < ROUNDS || sent < ROUNDS) {
		struct pollfd pfd = {.fd = fd, .events = POLLIN};
		struct rpma_cq *cq = NULL;
		bool is_rcq = false;
		struct ibv_wc wc;
		int ret;

		if (!blocking)
			EXPECT(poll(&pfd, 1, 5000) == 1);
		ret = rpma_conn_wait(s.link.conn, 0, &cq, &is_rcq);
		if (!blocking && ret == RPMA_E_NO_COMPLETION)
			continue;
		OK(ret);
		EXPECT(cq == (is_rcq ? receives : s.link.cq));
		while ((ret = rpma_cq_get_wc(cq, 1, &wc, NULL)) == 0) {
			EXPECT(wc.status == IBV_WC_SUCCESS, "status %d", wc.status);
			EXPECT(wc.opcode == (is_rcq ? IBV_WC_RECV : IBV_WC_SEND), "opcode %d", wc.opcode);
			if (!is_rcq) {
				sent++;
				continue;
			}
			check_pattern(s.in.ptr, MESSAGE, (is_target ? 10 : 500) + received, "a message");
			received++;
			if (received < ROUNDS)
				recv_round(&s);
			if (is_target)
				send_round(&s, 500 + received - 1);
			else if (received < ROUNDS)
				send_round(&s, 10 + received);
		}
		EXPECT(ret == RPMA_E_NO_COMPLETION, "%d", ret);
	}
	(is_target ? await_end : end_link)(&s.link);
	close_setup(&s);
}

static void
channel_target(struct side *side)
{
	channel(side, true, true);
}

static void
channel_initiator(struct side *side)
{
	channel(side, false, true);
}

static void
channel_poll_target(struct side *side)
{
	channel(side, true, false);
}

static void
channel_poll_initiator(struct side *side)
{
	channel(side, false, false);
}

/* Three connections with one shared receive queue, which has its own CQ or uses those of the connections. */
#define LINKS 3

static void
srq_target(struct side *side, bool own_cq)
{
	struct rpma_conn_cfg *cfg = sizes(0, 0, 0, 0);
	struct rpma_srq_cfg *srq_cfg = NULL;
	struct rpma_srq *srq = NULL;
	struct rpma_cq *receives = NULL;
	struct link links[LINKS];
	uint32_t qp_num[LINKS];
	struct setup s;

	open_setup(&s, side, true);
	OK(rpma_srq_cfg_new(&srq_cfg));
	OK(rpma_srq_cfg_set_rq_size(srq_cfg, 8));
	OK(rpma_srq_cfg_set_rcq_size(srq_cfg, own_cq ? 16 : 0));
	OK(rpma_srq_new(s.node.peer, srq_cfg, &srq));
	OK(rpma_srq_cfg_delete(&srq_cfg));
	OK(rpma_srq_get_rcq(srq, &receives));
	EXPECT((receives != NULL) == own_cq);
	for (uintptr_t i = 0; i < 8; i++)
		OK(rpma_srq_recv(srq, s.in.mr, i * MESSAGE, MESSAGE, (void *)i));
	OK(rpma_conn_cfg_set_srq(cfg, srq));
	for (int i = 0; i < LINKS; i++) {
		accept_link(&s.node, &links[i], cfg, NULL);
		OK(rpma_conn_get_qp_num(links[i].conn, &qp_num[i]));
		for (int j = 0; j < i; j++)
			EXPECT(qp_num[i] != qp_num[j]);
	}
	OK(rpma_conn_cfg_delete(&cfg));

	for (uint32_t i = 0; i < LINKS * ROUNDS; i++) {
		uint32_t from = i % LINKS;
		struct ibv_wc wc;

		next_wc(own_cq ? receives : links[from].cq, &wc);
		EXPECT(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV, "status %d, opcode %d",
			wc.status, wc.opcode);
		EXPECT(wc.wr_id < 8 && wc.byte_len == MESSAGE, "%u bytes", wc.byte_len);
		EXPECT(wc.qp_num == qp_num[from], "queue pair %u, expected %u", wc.qp_num, qp_num[from]);
		check_pattern(s.in.ptr + wc.wr_id * MESSAGE, MESSAGE, 700 + i, "a message");
		OK(rpma_srq_recv(srq, s.in.mr, wc.wr_id * MESSAGE, MESSAGE, (void *)(uintptr_t)wc.wr_id));
		notify(side, 'n');
	}
	/* the connections end one by one; the queue and its receives remain after each */
	for (int i = 0; i < LINKS; i++)
		await_end(&links[i]);
	if (own_cq)
		expect_no_wc(receives);
	OK(rpma_srq_delete(&srq));
	EXPECT(srq == NULL);
	close_setup(&s);
}

static void
srq_own_cq_target(struct side *side)
{
	srq_target(side, true);
}

static void
srq_conn_cq_target(struct side *side)
{
	srq_target(side, false);
}

static void
srq_initiator(struct side *side)
{
	struct link links[LINKS];
	struct setup s;

	open_setup(&s, side, false);
	for (int i = 0; i < LINKS; i++)
		connect_link(&s.node, &links[i], NULL, NULL);
	for (uint32_t i = 0; i < LINKS * ROUNDS; i++) {
		s.link = links[i % LINKS];
		send_round(&s, 700 + i);
		expect_wc(s.link.cq, 2, IBV_WC_SEND);
		await(side, 'n');
	}
	for (int i = 0; i < LINKS; i++)
		end_link(&links[i]);
	close_setup(&s);
}

/*
 * Non-blocking file descriptors: each call reports that nothing is pending, and poll() returns when something
 * is.
 */
static void
set_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	EXPECT(flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0, "%s", strerror(errno));
}

static void
expect_readable(int fd, bool readable)
{
	struct pollfd pfd = {.fd = fd, .events = POLLIN};

	EXPECT(poll(&pfd, 1, readable ? 5000 : 50) == readable, "descriptor %d: 0x%x", fd, pfd.revents);
}

static void
nonblocking_target(struct side *side)
{
	struct rpma_conn_req *req = NULL;
	enum rpma_conn_event event;
	struct rpma_conn *conn = NULL;
	struct rpma_cq *cq = NULL;
	struct ibv_wc wc;
	struct setup s;
	int ret;
	int fd;

	open_setup(&s, side, true);
	OK(rpma_ep_get_fd(s.node.ep, &fd));
	set_nonblocking(fd);
	RETURNS(RPMA_E_NO_EVENT, rpma_ep_next_conn_req(s.node.ep, NULL, &req));
	EXPECT(req == NULL);
	expect_readable(fd, false);
	notify(side, 'c');
	expect_readable(fd, true);
	OK(rpma_ep_next_conn_req(s.node.ep, NULL, &req));
	expect_readable(fd, false);
	OK(rpma_conn_req_recv(req, s.in.mr, 0, MESSAGE, (void *)1));
	OK(rpma_conn_req_connect(&req, NULL, &conn));

	OK(rpma_conn_get_event_fd(conn, &fd));
	set_nonblocking(fd);
	expect_readable(fd, true);
	OK(rpma_conn_next_event(conn, &event));
	EXPECT(event == RPMA_CONN_ESTABLISHED);
	RETURNS(RPMA_E_NO_EVENT, rpma_conn_next_event(conn, &event));
	expect_readable(fd, false);

	OK(rpma_conn_get_cq(conn, &cq));
	OK(rpma_cq_get_fd(cq, &fd));
	set_nonblocking(fd);
	RETURNS(RPMA_E_NO_COMPLETION, rpma_cq_wait(cq));
	RETURNS(RPMA_E_NO_COMPLETION, rpma_cq_get_wc(cq, 1, &wc, NULL));
	expect_readable(fd, false);
	notify(side, 'm');
	expect_readable(fd, true);
	OK(rpma_cq_wait(cq));
	/* the event has been consumed, the completion has not */
	expect_wc(cq, 1, IBV_WC_RECV);
	check_pattern(s.in.ptr, MESSAGE, 3, "the message");
	ret = rpma_cq_wait(cq);
	EXPECT(ret == RPMA_E_NO_COMPLETION || ret == 0, "%d", ret);

	notify(side, 'e');
	OK(rpma_conn_get_event_fd(conn, &fd));
	expect_readable(fd, true);
	OK(rpma_conn_next_event(conn, &event));
	EXPECT(event == RPMA_CONN_CLOSED);
	OK(rpma_conn_disconnect(conn));
	OK(rpma_conn_delete(&conn));
	close_setup(&s);
}

static void
nonblocking_initiator(struct side *side)
{
	struct setup s;

	open_setup(&s, side, false);
	await(side, 'c');
	connect_link(&s.node, &s.link, NULL, NULL);
	await(side, 'm');
	send_round(&s, 3);
	expect_wc(s.link.cq, 2, IBV_WC_SEND);
	await(side, 'e');
	end_link(&s.link);
	close_setup(&s);
}

/* A wait that began before the completion ends when it arrives, even much later. */
static void
late_target(struct side *side)
{
	struct setup s;

	open_setup(&s, side, true);
	link_up(&s, true, NULL);
	for (uint32_t i = 0; i < 20; i++) {
		/* wait first, then poll: the queue was armed before */
		OK(rpma_cq_wait(s.link.cq));
		expect_wc(s.link.cq, 1, IBV_WC_RECV);
		check_pattern(s.in.ptr, MESSAGE, 900 + i, "a message");
		recv_round(&s);
		notify(side, 'n');
	}
	await_end(&s.link);
	close_setup(&s);
}

static void
late_initiator(struct side *side)
{
	struct setup s;

	open_setup(&s, side, false);
	link_up(&s, false, NULL);
	for (uint32_t i = 0; i < 20; i++) {
		sleep_ms(i * 7);
		send_round(&s, 900 + i);
		expect_wc(s.link.cq, 2, IBV_WC_SEND);
		await(side, 'n');
	}
	end_link(&s.link);
	close_setup(&s);
}

/* Several completions in one call; never more than requested. */
static void
batch_target(struct side *side)
{
	serve(side, 4096, 5, 5);
}

static void
batch_initiator(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(64, 64, 0, 0);
	struct region dst;
	struct node node;
	struct link link;
	struct ibv_wc wc[64];
	int total = 0;
	int got;
	int ret;

	connect_with_region(&node, &link, &dst, side, 4096, RPMA_MR_USAGE_READ_DST, cfg);
	OK(rpma_conn_cfg_delete(&cfg));
	for (uintptr_t i = 0; i < 64; i++)
		OK(rpma_read(link.conn, dst.mr, i * 64, link.remote, i * 64, 64, RPMA_F_COMPLETION_ALWAYS,
			(void *)i));
	while (total < 64) {
		got = -1;
		ret = rpma_cq_get_wc(link.cq, 7, wc, &got);
		if (ret == RPMA_E_NO_COMPLETION) {
			EXPECT(got == -1, "%d", got);
			OK(rpma_cq_wait(link.cq));
			continue;
		}
		OK(ret);
		EXPECT(got >= 1 && got <= 7, "%d", got);
		for (int i = 0; i < got; i++, total++)
			EXPECT(wc[i].wr_id == (uint64_t)total && wc[i].status == IBV_WC_SUCCESS,
				"operation %llu, status %d", (unsigned long long)wc[i].wr_id, wc[i].status);
	}
	check_pattern(dst.ptr, 4096, 5, "what was read");
	RETURNS(RPMA_E_INVAL, rpma_cq_get_wc(link.cq, 2, wc, NULL));
	RETURNS(RPMA_E_INVAL, rpma_cq_get_wc(link.cq, 0, wc, &got));
	end_link(&link);
	close_with_region(&node, &dst);
}

/* Two threads with one connection and one queue: each completion is returned to exactly one of them. */
#define PER_THREAD 2000

static struct link shared_link;
static struct region shared_dst;
static unsigned char seen[2 * PER_THREAD];
static unsigned total_seen;

/* Polls for one completion. */
static void
take_one(void)
{
	struct ibv_wc wc;
	int ret = rpma_cq_get_wc(shared_link.cq, 1, &wc, NULL);

	if (ret == RPMA_E_NO_COMPLETION)
		return;
	OK(ret);
	EXPECT(wc.status == IBV_WC_SUCCESS && wc.wr_id < 2 * PER_THREAD, "status %d", wc.status);
	EXPECT(__atomic_add_fetch(&seen[wc.wr_id], 1, __ATOMIC_RELAXED) == 1, "operation %llu twice",
		(unsigned long long)wc.wr_id);
	__atomic_add_fetch(&total_seen, 1, __ATOMIC_RELAXED);
}

static void *
reader(void *arg)
{
	uintptr_t base = (uintptr_t)arg;

	for (uintptr_t i = 0; i < PER_THREAD; i++) {
		OK(rpma_read(shared_link.conn, shared_dst.mr, base, shared_link.remote, 0, 8,
			RPMA_F_COMPLETION_ALWAYS, (void *)(base + i)));
		/* one completion belongs to this read, whichever thread polls it */
		while (__atomic_load_n(&seen[base + i], __ATOMIC_RELAXED) == 0)
			take_one();
	}
	return NULL;
}

static void
threads_initiator(struct side *side)
{
	pthread_t threads[2];
	struct node node;

	open_initiator(&node, side);
	region_new(&node, &shared_dst, 8192, RPMA_MR_USAGE_READ_DST);
	connect_link(&node, &shared_link, NULL, NULL);
	for (uintptr_t i = 0; i < 2; i++)
		EXPECT(pthread_create(&threads[i], NULL, reader, (void *)(i * PER_THREAD)) == 0);
	for (int i = 0; i < 2; i++)
		EXPECT(pthread_join(threads[i], NULL) == 0);
	EXPECT(total_seen == 2 * PER_THREAD, "%u", total_seen);
	expect_no_wc(shared_link.cq);
	end_link(&shared_link);
	close_with_region(&node, &shared_dst);
}

const struct test queue_tests[] = {
	{"separate-receive-cq", rcq_target, rcq_initiator},
	{"shared-channel", channel_target, channel_initiator},
	{"shared-channel-polled", channel_poll_target, channel_poll_initiator},
	{"srq-with-cq", srq_own_cq_target, srq_initiator},
	{"srq-without-cq", srq_conn_cq_target, srq_initiator},
	{"nonblocking-descriptors", nonblocking_target, nonblocking_initiator},
	{"wait-before-message", late_target, late_initiator},
	{"completions-in-batches", batch_target, batch_initiator},
	{"two-threads-one-cq", batch_target, threads_initiator},
	{.name = NULL},
};
