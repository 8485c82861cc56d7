/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * deliver.c -- the meaning of a send completion: the message arrives even if the sender then ends, and the
 * completion precedes any reply.
 */
#include "link.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define MESSAGES 100
#define RECEIVES 4
#define CONNECTIONS 10
#define SMALL 64
#define LARGE (8 * 1024)

/* How the messages are sent and received. */
struct form {
	size_t len;
	bool srq;
	bool killed;
};

static struct rpma_srq *
new_srq(struct node *node, struct region *in, size_t len)
{
	struct rpma_srq_cfg *cfg = NULL;
	struct rpma_srq *srq = NULL;

	OK(rpma_srq_cfg_new(&cfg));
	OK(rpma_srq_cfg_set_rq_size(cfg, RECEIVES));
	OK(rpma_srq_cfg_set_rcq_size(cfg, 0));
	OK(rpma_srq_new(node->peer, cfg, &srq));
	OK(rpma_srq_cfg_delete(&cfg));
	for (uintptr_t i = 0; i < RECEIVES; i++)
		OK(rpma_srq_recv(srq, in->mr, i * len, len, (void *)i));
	return srq;
}

/*
 * Receives all messages of one connection, each with one of four receives, which is posted again immediately.
 */
static void
take_messages(struct side *side, struct link *link, struct region *in, const struct form *form, struct rpma_srq *srq,
	unsigned connection)
{
	for (uint32_t i = 0; i < MESSAGES; i++) {
		struct ibv_wc wc;

		next_wc(link->cq, &wc);
		EXPECT(wc.status == IBV_WC_SUCCESS, "message %u of connection %u: status %d", i, connection, wc.status);
		EXPECT(wc.opcode == IBV_WC_RECV && wc.byte_len == form->len, "%u bytes", wc.byte_len);
		EXPECT(wc.wr_id == i % RECEIVES, "receive %u", (unsigned)wc.wr_id);
		check_pattern(in->ptr + wc.wr_id * form->len, form->len, i, "a message");
		if (srq != NULL)
			OK(rpma_srq_recv(srq, in->mr, wc.wr_id * form->len, form->len, (void *)(uintptr_t)wc.wr_id));
		else
			OK(rpma_recv(link->conn, in->mr, wc.wr_id * form->len, form->len, (void *)(uintptr_t)wc.wr_id));
		/*
		 * It has used a receive that was posted again, so the first FPDU of this side has been sent;
		 * the other messages are received after the sender was killed.
		 */
		if (form->killed && i == RECEIVES + 1) {
			notify(side, 'b');
			await(side, 'k');
		}
	}
}

static void
expect_closed(struct link *link)
{
	expect_event(link, RPMA_CONN_CLOSED);
}

static void
receiver(struct side *side, const struct form *form)
{
	struct rpma_conn_cfg *cfg = sizes(2 * RECEIVES, 0, RECEIVES, 0);
	struct rpma_srq *srq = NULL;
	struct region in;
	struct node node;

	open_target(&node, side);
	region_new(&node, &in, RECEIVES * form->len, RPMA_MR_USAGE_RECV);
	if (form->srq) {
		srq = new_srq(&node, &in, form->len);
		OK(rpma_conn_cfg_set_srq(cfg, srq));
	}
	for (unsigned c = 0; c < CONNECTIONS; c++) {
		struct rpma_conn_req *req = next_req(&node, cfg);
		struct link link;

		for (uintptr_t i = 0; i < RECEIVES && !form->srq; i++)
			OK(rpma_conn_req_recv(req, in.mr, i * form->len, form->len, (void *)i));
		start_link(&link, &req, NULL);
		finish_link(&link);
		take_messages(side, &link, &in, form, srq, c);
		/* only TCP reports the end of a killed process */
		(form->killed ? expect_broken : expect_closed)(&link);
		/* the unused receives */
		for (unsigned i = 0; i < RECEIVES && !form->srq; i++) {
			struct ibv_wc wc;

			next_wc(link.cq, &wc);
			EXPECT(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == i, "status %d of receive %u", wc.status,
				(unsigned)wc.wr_id);
		}
		OK(rpma_conn_disconnect(link.conn));
		delete_link(&link);
	}
	OK(rpma_conn_cfg_delete(&cfg));
	OK(rpma_srq_delete(&srq));
	close_with_region(&node, &in);
}

/* Sends all, polls all completions, and ends. */
static void
send_and_go(struct side *side, struct node *node, const struct region *out, const struct form *form)
{
	struct rpma_conn_cfg *cfg = sizes(MESSAGES, MESSAGES, 0, 0);
	struct link link;

	connect_link(node, &link, cfg, NULL);
	OK(rpma_conn_cfg_delete(&cfg));
	for (uintptr_t i = 0; i < MESSAGES; i++)
		OK(rpma_send(link.conn, out->mr, i * form->len, form->len, RPMA_F_COMPLETION_ALWAYS, (void *)i));
	for (unsigned i = 0; i < MESSAGES; i++)
		expect_wc(link.cq, i, IBV_WC_SEND);
	if (form->killed) {
		struct ibv_wc wc;

		/*
		 * If a process is killed with unread bytes in its socket, the kernel resets the connection
		 * and drops unsent bytes. So it reads the first FPDU of the peer.
		 */
		await(side, 'b');
		RETURNS(RPMA_E_NO_COMPLETION, rpma_cq_get_wc(link.cq, 1, &wc, NULL));
		kill(getpid(), SIGKILL);
	}
	end_link(&link);
}

static void
open_sender(struct node *node, struct side *side, struct region *out, const struct form *form)
{
	open_peer(node, side);
	region_new(node, out, MESSAGES * form->len, RPMA_MR_USAGE_SEND);
	for (uint32_t i = 0; i < MESSAGES; i++)
		fill_pattern(out->ptr + i * form->len, form->len, i);
}

static void
sender(struct side *side, const struct form *form)
{
	struct region out;
	struct node node;

	await(side, 'L');
	for (unsigned c = 0; c < CONNECTIONS && form->killed; c++) {
		pid_t child = fork();
		int status;

		EXPECT(child >= 0);
		if (child == 0) {
			open_sender(&node, side, &out, form);
			send_and_go(side, &node, &out, form);
			_exit(1);
		}
		EXPECT(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "%d", status);
		notify(side, 'k');
	}
	if (form->killed)
		return;
	open_sender(&node, side, &out, form);
	for (unsigned c = 0; c < CONNECTIONS; c++)
		send_and_go(side, &node, &out, form);
	close_with_region(&node, &out);
}

/*
 * Ping-pong with both completions in one queue. The other side replies to each message, so if the completion
 * of the reply precedes that of the send, an effect precedes its cause.
 */
struct rally {
	unsigned rounds;
	/* sleeps for each completion (1), for one in this many, or for none (0); polls for the others */
	unsigned sleeps;
	bool busy; /* another thread of each process always uses a processor */
	/* how long the library's thread polls for more work; NULL: the default */
	const char *spin_us;
};

static volatile bool rally_over;

static void *
keep_busy(void *arg)
{
	while (!rally_over)
		;
	return arg;
}

static void
take_wc(struct rpma_cq *cq, struct ibv_wc *wc, const struct rally *rally)
{
	static unsigned taken;
	int ret;

	if (rally->sleeps != 0 && ++taken % rally->sleeps == 0) {
		next_wc(cq, wc);
	} else {
		while ((ret = rpma_cq_get_wc(cq, 1, wc, NULL)) == RPMA_E_NO_COMPLETION)
			;
		OK(ret);
	}
	EXPECT(wc->status == IBV_WC_SUCCESS, "status %d", wc->status);
}

static void
play(struct side *side, bool is_target, const struct rally *rally)
{
	struct rpma_conn_req *req;
	unsigned overtaken = 0;
	struct region in;
	struct region out;
	struct node node;
	struct link link;
	struct ibv_wc wc;
	pthread_t thread;

	if (rally->spin_us != NULL)
		setenv("SOFTVERBS_SPIN_US", rally->spin_us, 1);
	(is_target ? open_target : open_initiator)(&node, side);
	region_new(&node, &in, SMALL, RPMA_MR_USAGE_RECV);
	region_new(&node, &out, SMALL, RPMA_MR_USAGE_SEND);
	req = (is_target ? next_req : new_req)(&node, NULL);
	OK(rpma_conn_req_recv(req, in.mr, 0, SMALL, (void *)1));
	start_link(&link, &req, NULL);
	finish_link(&link);
	if (rally->busy)
		EXPECT(pthread_create(&thread, NULL, keep_busy, NULL) == 0);

	if (is_target)
		take_wc(link.cq, &wc, rally);
	for (unsigned i = 0; i < rally->rounds; i++) {
		bool last = i + 1 == rally->rounds;

		/* the receives of the first message and of the first reply are already posted */
		if (is_target ? !last : i > 0)
			OK(rpma_recv(link.conn, in.mr, 0, SMALL, (void *)1));
		OK(rpma_send(link.conn, out.mr, 0, SMALL, RPMA_F_COMPLETION_ALWAYS, (void *)2));
		take_wc(link.cq, &wc, rally);
		overtaken += wc.opcode != IBV_WC_SEND;
		if (is_target && last)
			break;
		/* the reply, or the next message; or the completion that it has overtaken */
		take_wc(link.cq, &wc, rally);
	}
	rally_over = true;
	if (rally->busy)
		EXPECT(pthread_join(thread, NULL) == 0);
	notify(side, 'o');
	await(side, 'o');
	(is_target ? await_end : end_link)(&link);
	EXPECT(overtaken == 0, "%u of %u replies completed before the send that they reply to", overtaken, rally->rounds);
	region_free(&out);
	close_with_region(&node, &in);
}

/* Defines the two functions of a test from what both take. */
#define TEST_OF(id, type, target_runs, initiator_runs, ...)                                        \
	static const struct type id = {__VA_ARGS__};                                               \
	static void id##_target(struct side *side)                                                 \
	{                                                                                          \
		target_runs;                                                                       \
	}                                                                                          \
	static void id##_initiator(struct side *side)                                              \
	{                                                                                          \
		initiator_runs;                                                                    \
	}
#define FORM(id, ...) TEST_OF(id, form, receiver(side, &id), sender(side, &id), __VA_ARGS__)
#define RALLY(id, ...) TEST_OF(id, rally, play(side, true, &id), play(side, false, &id), __VA_ARGS__)

FORM(small, .len = SMALL)
FORM(large, .len = LARGE)
FORM(small_srq, .len = SMALL, .srq = true)
FORM(large_srq, .len = LARGE, .srq = true)
FORM(small_killed, .len = SMALL, .killed = true)
FORM(large_killed, .len = LARGE, .killed = true)
FORM(srq_killed, .len = SMALL, .srq = true, .killed = true)
RALLY(polling, .rounds = 4000)
RALLY(sleeping, .rounds = 20000, .sleeps = 1)
RALLY(both, .rounds = 4000, .sleeps = 7)
RALLY(sleeping_engine, .rounds = 10000, .sleeps = 1, .spin_us = "0")
RALLY(busy, .rounds = 4000, .sleeps = 1, .busy = true)

#define TEST(name, id) {name, id##_target, id##_initiator}
/* two polling processes on busy processors are descheduled for milliseconds per message */
#define SLOW_TEST(name, id) {name, id##_target, id##_initiator, .seconds = 60}

const struct test deliver_tests[] = {
	TEST("sent-then-disconnected", small),
	TEST("sent-then-disconnected-8-kib", large),
	TEST("sent-then-disconnected-srq", small_srq),
	TEST("sent-then-disconnected-srq-8-kib", large_srq),
	TEST("sent-then-killed", small_killed),
	TEST("sent-then-killed-8-kib", large_killed),
	TEST("sent-then-killed-srq", srq_killed),
	SLOW_TEST("answer-behind-send-polling", polling),
	SLOW_TEST("answer-behind-send-sleeping", sleeping),
	SLOW_TEST("answer-behind-send-sleeping-no-spin", sleeping_engine),
	SLOW_TEST("answer-behind-send-both", both),
	SLOW_TEST("answer-behind-send-busy", busy),
	{.name = NULL},
};
