/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * strict.c -- SOFTVERBS_STRICT: requests that software RDMA permits and an adapter does not are refused with
 * "adapter" and succeed with "warn"; in both cases the log names the remedy, once for each object.
 */
#include "link.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_IN_REQUEST 56
#define MOST_IN_REPLY 196
#define MOST_ON_SOFT 251

static atomic_uint reports; /* lines about strict mode */
static char last_report[512];
/* also lines about disconnecting with requests in flight, as many tests do */
static bool counts_ends;

static void
take_report(enum rpma_log_level level, const char *file, int line, const char *function, const char *format, ...)
{
	char text[sizeof(last_report)];
	va_list ap;

	(void)file, (void)line, (void)function;
	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	if (level > RPMA_LOG_LEVEL_WARNING || strstr(text, "SOFTVERBS_STRICT") == NULL ||
		(!counts_ends && strstr(text, "disconnecting while") != NULL))
		return;
	memcpy(last_report, text, sizeof(text));
	reports++;
}

/* Before the first call of the library. */
static void
be(const char *mode)
{
	setenv("SOFTVERBS_STRICT", mode, 1);
	OK(rpma_log_set_function(take_report));
	OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_LEVEL_WARNING));
}

/* This many reports in total, the last one with both of these texts. */
static void
expect_reports(unsigned count, const char *what, const char *mends)
{
	EXPECT(reports == count, "%u reports, the last one: %s", reports, last_report);
	EXPECT(count == 0 || (strstr(last_report, what) != NULL && strstr(last_report, mends) != NULL),
		"the last report: %s", last_report);
}

/* ---- private data ---- */

static int
try_private(struct link *link, struct rpma_conn_req *req, uint8_t len)
{
	static char bytes[MOST_ON_SOFT];
	struct rpma_conn_private_data pdata = {bytes, len};
	int ret;

	*link = (struct link){0};
	ret = rpma_conn_req_connect(&req, &pdata, &link->conn);
	EXPECT(req == NULL);
	return ret;
}

static void
established(struct link *link, uint8_t len)
{
	struct rpma_conn_private_data pdata;

	expect_event(link, RPMA_CONN_ESTABLISHED);
	OK(rpma_conn_get_private_data(link->conn, &pdata));
	EXPECT(pdata.len == len, "%u", pdata.len);
}

static void
private_target(struct side *side)
{
	struct node node;
	struct link link;

	be("adapter");
	open_target(&node, side);
	RETURNS(RPMA_E_PROVIDER, try_private(&link, next_req(&node, NULL), MOST_IN_REPLY + 1));
	expect_reports(1, "197 bytes of private data", "at most 196 bytes to rdma_accept (rpma_conn_req_connect)");
	OK(try_private(&link, next_req(&node, NULL), MOST_IN_REPLY));
	established(&link, MOST_IN_REQUEST);
	await_end(&link);
	close_node(&node);
	expect_reports(1, "", "");
}

static void
private_initiator(struct side *side)
{
	struct node node;
	struct link link;

	be("adapter");
	open_initiator(&node, side);
	for (unsigned i = 0; i < 3; i++) {
		RETURNS(RPMA_E_PROVIDER, try_private(&link, new_req(&node, NULL), MOST_IN_REQUEST + 1));
		expect_reports(1, "57 bytes of private data", "at most 56 bytes to rdma_connect (rpma_conn_req_connect)");
	}
	OK(try_private(&link, new_req(&node, NULL), MOST_IN_REQUEST));
	expect_event(&link, RPMA_CONN_REJECTED);
	OK(rpma_conn_delete(&link.conn));
	OK(try_private(&link, new_req(&node, NULL), MOST_IN_REQUEST));
	established(&link, MOST_IN_REPLY);
	end_link(&link);
	close_node(&node);
	expect_reports(1, "", "");
}

/* Two connections with more private data than an adapter carries, and `count` lines about it. */
static void
large_target(struct side *side, const char *mode, unsigned count, const char *what, const char *mends)
{
	struct node node;
	struct link link;

	be(mode);
	open_target(&node, side);
	for (unsigned i = 0; i < 2; i++) {
		OK(try_private(&link, next_req(&node, NULL), MOST_ON_SOFT));
		established(&link, MOST_ON_SOFT);
		await_end(&link);
	}
	expect_reports(count, what, mends);
	close_node(&node);
}

static void
large_initiator(struct side *side, const char *mode, unsigned count, const char *what, const char *mends)
{
	struct node node;
	struct link link;

	be(mode);
	open_initiator(&node, side);
	for (unsigned i = 0; i < 2; i++) {
		OK(try_private(&link, new_req(&node, NULL), MOST_ON_SOFT));
		established(&link, MOST_ON_SOFT);
		end_link(&link);
	}
	expect_reports(count, what, mends);
	close_node(&node);
}

static void
warned_target(struct side *side)
{
	large_target(side, "warn", 1, "an adapter would refuse this: 251 bytes", "at most 196");
}

static void
warned_initiator(struct side *side)
{
	large_initiator(side, "warn", 1, "an adapter would refuse this: 251 bytes", "at most 56");
}

static void
lenient_target(struct side *side)
{
	large_target(side, "off", 0, "", "");
}

/* The former value 1 is invalid, as any other value that is not a mode. */
static void
mistaken_initiator(struct side *side)
{
	large_initiator(side, "1", 1, "SOFTVERBS_STRICT=\"1\" is none of off, warn, adapter; using off", "");
}

/* ---- entries of the send queue ---- */

#define SQ_SIZE 16
#define SIZE 4096

/* A region for this many connections, one after the other. */
static void
target_of(struct side *side, unsigned connections)
{
	struct region region;
	struct node node;
	struct link link;

	open_target(&node, side);
	region_new(&node, &region, SIZE, USAGE_ALL);
	for (unsigned i = 0; i < connections; i++) {
		accept_link(&node, &link, NULL, &region);
		await_end(&link);
	}
	close_with_region(&node, &region);
}

static void
two_links_target(struct side *side)
{
	target_of(side, 2);
}

static int
write_word(struct link *link, struct region *src, int flags)
{
	return rpma_write(link->conn, link->remote, 0, src->mr, 0, 8, flags, NULL);
}

static void
places_initiator(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(2 * SQ_SIZE, SQ_SIZE, 0, 0);
	struct region src;
	struct node node;
	struct link link;

	be("adapter");
	open_initiator(&node, side);
	region_new(&node, &src, SIZE, USAGE_ALL);

	/* the last of each SQ_SIZE requests is signalled, and its completion polled: no report */
	connect_link(&node, &link, cfg, NULL);
	for (unsigned i = 0; i < 100 * SQ_SIZE; i++) {
		bool last = i % SQ_SIZE == SQ_SIZE - 1;

		OK(write_word(&link, &src, last ? RPMA_F_COMPLETION_ALWAYS : RPMA_F_COMPLETION_ON_ERROR));
		if (last)
			expect_wc(link.cq, 0, IBV_WC_RDMA_WRITE);
	}
	expect_reports(0, "", "");
	/* a completion that was not polled frees no entries */
	for (unsigned i = 0; i < SQ_SIZE; i++)
		OK(write_word(&link, &src, i == 7 ? RPMA_F_COMPLETION_ALWAYS : RPMA_F_COMPLETION_ON_ERROR));
	OK(rpma_cq_wait(link.cq));
	sleep_ms(20);
	RETURNS(RPMA_E_PROVIDER, write_word(&link, &src, RPMA_F_COMPLETION_ON_ERROR));
	expect_reports(1, "all 16 places of the send queue", "rpma_cq_get_wc");
	/* polling it frees the entries of the eight requests that it covers */
	expect_wc(link.cq, 0, IBV_WC_RDMA_WRITE);
	for (unsigned i = 0; i < 8; i++)
		OK(write_word(&link, &src, RPMA_F_COMPLETION_ON_ERROR));
	RETURNS(RPMA_E_PROVIDER, write_word(&link, &src, RPMA_F_COMPLETION_ALWAYS));
	expect_reports(1, "", "");
	end_link(&link);

	/* another queue pair is reported separately */
	connect_link(&node, &link, cfg, NULL);
	for (unsigned i = 0; i < SQ_SIZE; i++)
		OK(write_word(&link, &src, RPMA_F_COMPLETION_ON_ERROR));
	sleep_ms(20);
	for (unsigned i = 0; i < 3; i++)
		RETURNS(RPMA_E_PROVIDER, write_word(&link, &src, RPMA_F_COMPLETION_ON_ERROR));
	expect_reports(2, "post at least every 16th request", "RPMA_F_COMPLETION_ALWAYS");
	end_link(&link);

	OK(rpma_conn_cfg_delete(&cfg));
	close_with_region(&node, &src);
}

static void
unpolled(struct side *side, const char *mode, unsigned count)
{
	struct rpma_conn_cfg *cfg = sizes(2 * SQ_SIZE, SQ_SIZE, 0, 0);
	struct region src;
	struct node node;
	struct link link;

	be(mode);
	open_initiator(&node, side);
	region_new(&node, &src, SIZE, USAGE_ALL);
	for (unsigned n = 1; n <= 2; n++) {
		connect_link(&node, &link, cfg, NULL);
		for (unsigned i = 0; i < 20 * SQ_SIZE; i++)
			OK(write_word(&link, &src, RPMA_F_COMPLETION_ON_ERROR));
		expect_reports(n * count, "an adapter would refuse this: queue pair", "rpma_cq_get_wc");
		end_link(&link);
	}
	OK(rpma_conn_cfg_delete(&cfg));
	close_with_region(&node, &src);
}

static void
unpolled_warned(struct side *side)
{
	unpolled(side, "warn", 1);
}

static void
unpolled_unnoticed(struct side *side)
{
	unpolled(side, "off", 0);
}

/* ---- entries of a completion queue ---- */

#define CQ_SIZE 4

static void
overrun_target(struct side *side)
{
	struct region region;
	struct node node;
	struct link link;

	accept_with_region(&node, &link, &region, side, SIZE, USAGE_ALL, NULL);
	expect_broken(&link);
	delete_link(&link);
	close_with_region(&node, &region);
}

static void
overrun_initiator(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(CQ_SIZE, SQ_SIZE, 0, 0);
	unsigned good = 0;
	struct region src;
	struct node node;
	struct link link;
	struct ibv_wc wc;

	be("adapter");
	connect_with_region(&node, &link, &src, side, SIZE, USAGE_ALL, cfg);
	/* as many as the queue has entries */
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < CQ_SIZE; i++)
			OK(write_word(&link, &src, RPMA_F_COMPLETION_ALWAYS));
		sleep_ms(20);
		for (unsigned i = 0; i < CQ_SIZE; i++)
			expect_wc(link.cq, 0, IBV_WC_RDMA_WRITE);
	}
	expect_reports(0, "", "");
	/* more than the queue has entries */
	for (unsigned i = 0; i < SQ_SIZE; i++)
		OK(write_word(&link, &src, RPMA_F_COMPLETION_ALWAYS));
	/* over RoCE the program has to disconnect a queue pair that has failed */
	if (over_roce()) {
		while (reports == 0)
			sleep_ms(1);
		OK(rpma_conn_disconnect(link.conn));
	}
	expect_event(&link, RPMA_CONN_CLOSED);
	expect_reports(1, "all 4 entries of its completion queue", "rpma_conn_cfg_set_cq_size");
	for (unsigned i = 0; i < SQ_SIZE; i++) {
		next_wc(link.cq, &wc);
		EXPECT(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_WR_FLUSH_ERR, "status %d", wc.status);
		good += wc.status == IBV_WC_SUCCESS;
	}
	EXPECT(good >= CQ_SIZE, "%u", good);
	expect_no_wc(link.cq);
	delete_link(&link);
	OK(rpma_conn_cfg_delete(&cfg));
	close_with_region(&node, &src);
}

/* ---- messages without receives ---- */

#define MESSAGE 64

static void
post_receive(struct link *link, struct rpma_srq *srq, struct region *in)
{
	if (srq != NULL)
		OK(rpma_srq_recv(srq, in->mr, 0, MESSAGE, NULL));
	else
		OK(rpma_recv(link->conn, in->mr, 0, MESSAGE, NULL));
}

/*
 * Three messages: one with a receive in time, one without, and one like the first. The receive queue is that
 * of the connection, or a shared one.
 */
static void
late_target(struct side *side, const char *mode, bool shared, uint64_t least_ms, uint64_t most_ms)
{
	struct rpma_conn_cfg *cfg = sizes(0, 0, 0, 0);
	struct rpma_srq *srq = NULL;
	struct region in;
	struct node node;
	struct link link;

	be(mode);
	open_target(&node, side);
	region_new(&node, &in, MESSAGE, RPMA_MR_USAGE_RECV);
	if (shared) {
		struct rpma_srq_cfg *srq_cfg = NULL;

		OK(rpma_srq_cfg_new(&srq_cfg));
		OK(rpma_srq_cfg_set_rcq_size(srq_cfg, 0));
		OK(rpma_srq_new(node.peer, srq_cfg, &srq));
		OK(rpma_srq_cfg_delete(&srq_cfg));
		OK(rpma_conn_cfg_set_srq(cfg, srq));
	}
	accept_link(&node, &link, cfg, NULL);
	OK(rpma_conn_cfg_delete(&cfg));
	for (unsigned i = 0; i < 3; i++) {
		bool late = i == 1;
		uint64_t began, took;

		if (!late)
			post_receive(&link, srq, &in);
		notify(side, 'g');
		await(side, 's');
		began = now_ms();
		if (late) {
			sleep_ms(50);
			post_receive(&link, srq, &in);
		}
		expect_wc(link.cq, 0, IBV_WC_RECV);
		took = now_ms() - began;
		check_pattern(in.ptr, MESSAGE, i, "the message");
		/* the timer was started shortly before the notification of the other side */
		EXPECT(!late || (took >= least_ms && took < most_ms), "message %u took %u ms", i, (unsigned)took);
		EXPECT(late || took < 400, "message %u took %u ms", i, (unsigned)took);
		expect_reports(i > 0, "a message found no receive", "rpma_recv");
		notify(side, 'd');
	}
	/* a receive that is delayed when the connection ends completes; a shared one stays in its queue */
	notify(side, 'g');
	await(side, 's');
	sleep_ms(20);
	post_receive(&link, srq, &in);
	OK(rpma_conn_disconnect(link.conn));
	if (srq == NULL) {
		struct ibv_wc wc;

		next_wc(link.cq, &wc);
		EXPECT(wc.opcode == IBV_WC_RECV || wc.status == IBV_WC_WR_FLUSH_ERR, "status %d", wc.status);
		expect_no_wc(link.cq);
	}
	expect_event(&link, RPMA_CONN_CLOSED);
	delete_link(&link);
	OK(rpma_srq_delete(&srq));
	close_with_region(&node, &in);
}

static void
late_adapter_target(struct side *side)
{
	late_target(side, "adapter", false, 500, 5000);
}

static void
late_shared_target(struct side *side)
{
	late_target(side, "adapter", true, 500, 5000);
}

static void
late_warned_target(struct side *side)
{
	late_target(side, "warn", false, 50, 400);
}

static void
late_initiator(struct side *side)
{
	struct region out;
	struct node node;
	struct link link;

	connect_with_region(&node, &link, &out, side, MESSAGE, RPMA_MR_USAGE_SEND, NULL);
	for (unsigned i = 0; i < 4; i++) {
		await(side, 'g');
		fill_pattern(out.ptr, MESSAGE, i);
		OK(rpma_send(link.conn, out.mr, 0, MESSAGE, RPMA_F_COMPLETION_ALWAYS, NULL));
		expect_wc(link.cq, 0, IBV_WC_SEND);
		notify(side, 's');
		if (i < 3)
			await(side, 'd');
	}
	expect_broken(&link);
	delete_link(&link);
	close_with_region(&node, &out);
}

/* ---- memory of requests in flight ---- */

static void
one_link_target(struct side *side)
{
	target_of(side, 1);
}

static void
changed_initiator(struct side *side)
{
	struct region src;
	struct node node;
	struct link link;

	be("adapter");
	connect_with_region(&node, &link, &src, side, SIZE, USAGE_ALL, NULL);
	/* changes after the completion of a later request, and of memory that no request sends */
	for (unsigned i = 0; i < 3; i++) {
		OK(write_word(&link, &src, RPMA_F_COMPLETION_ON_ERROR));
		src.ptr[8]++;
		write_part(&link, 64, &src, 64, 64);
		src.ptr[0]++;
		read_part(&link, &src, 0, 0, 64);
	}
	expect_reports(0, "", "");
	/* the same before that completion */
	for (unsigned i = 0; i < 3; i++) {
		OK(write_word(&link, &src, RPMA_F_COMPLETION_ON_ERROR));
		src.ptr[7]++;
		write_part(&link, 64, &src, 64, 64);
		expect_reports(1, "was changed before the program took its completion", "rpma_cq_get_wc");
	}
	/* requests are no longer in flight when the connection has ended */
	OK(write_word(&link, &src, RPMA_F_COMPLETION_ON_ERROR));
	src.ptr[7]++;
	end_link(&link);
	close_with_region(&node, &src);
	expect_reports(1, "", "");
}

static void
withdrawn_initiator(struct side *side)
{
	struct region src, other;
	struct node node;
	struct link link;

	be("warn");
	connect_with_region(&node, &link, &src, side, SIZE, USAGE_ALL, NULL);
	region_new(&node, &other, SIZE, USAGE_ALL);
	OK(write_word(&link, &other, RPMA_F_COMPLETION_ON_ERROR));
	write_part(&link, 0, &src, 0, 8);
	region_free(&other);
	expect_reports(0, "", "");
	region_new(&node, &other, SIZE, USAGE_ALL);
	OK(write_word(&link, &other, RPMA_F_COMPLETION_ON_ERROR));
	region_free(&other);
	expect_reports(1, "this may fail on an adapter: queue pair", "call ibv_dereg_mr (rpma_mr_dereg) after");
	write_part(&link, 0, &src, 0, 8);
	end_link(&link);
	close_with_region(&node, &src);
	expect_reports(1, "", "");
}

/* ---- the end of a connection with requests in flight ---- */

static void
hasty_initiator(struct side *side)
{
	struct region src;
	struct node node;
	struct link link;

	be("warn");
	counts_ends = true;
	open_initiator(&node, side);
	region_new(&node, &src, SIZE, USAGE_ALL);
	/* after a later signalled request has completed */
	connect_link(&node, &link, NULL, NULL);
	OK(write_word(&link, &src, RPMA_F_COMPLETION_ON_ERROR));
	write_part(&link, 0, &src, 0, 8);
	end_link(&link);
	expect_reports(0, "", "");
	/* without one */
	connect_link(&node, &link, NULL, NULL);
	write_part(&link, 0, &src, 0, 8);
	OK(rpma_write(link.conn, link.remote, 0, src.mr, 0, 8, RPMA_F_COMPLETION_ON_ERROR, (void *)0x77));
	OK(rpma_conn_disconnect(link.conn));
	expect_reports(1, "this may fail on an adapter: queue pair", "before rdma_disconnect (rpma_conn_disconnect)");
	expect_reports(1, "unsignalled work request 0x77", "");
	expect_event(&link, RPMA_CONN_CLOSED);
	delete_link(&link);
	close_with_region(&node, &src);
}

/* ---- waiting for a completion that cannot arrive ---- */

static void *
wait_for_one(void *link)
{
	OK(rpma_cq_wait(((struct link *)link)->cq));
	return NULL;
}

/*
 * An unsignalled request has no completion; a later signalled one ends the wait. stuck.rs tests other waits.
 */
static void
vain_initiator(struct side *side)
{
	struct region src;
	struct node node;
	struct link link;
	pthread_t thread;

	be("warn");
	connect_with_region(&node, &link, &src, side, SIZE, USAGE_ALL, NULL);
	OK(write_word(&link, &src, RPMA_F_COMPLETION_ON_ERROR));
	EXPECT(pthread_create(&thread, NULL, wait_for_one, &link) == 0);
	for (unsigned i = 0; i < 3000 && reports == 0; i++)
		sleep_ms(10);
	expect_reports(1, "this may never return: a thread waits for a completion event", "IBV_SEND_SIGNALED (RPMA_F_COMPLETION_ALWAYS)");
	OK(write_word(&link, &src, RPMA_F_COMPLETION_ALWAYS));
	EXPECT(pthread_join(thread, NULL) == 0);
	expect_wc(link.cq, 0, IBV_WC_RDMA_WRITE);
	end_link(&link);
	close_with_region(&node, &src);
}

const struct test strict_tests[] = {
	{"strict-private-data", private_target, private_initiator, .missing = not_soft},
	{"strict-private-data-warn", warned_target, warned_initiator, .missing = not_soft},
	{"strict-unknown-value", lenient_target, mistaken_initiator, .missing = not_soft},
	{"strict-send-queue", two_links_target, places_initiator, .missing = not_soft},
	{"strict-send-queue-warn", two_links_target, unpolled_warned, .missing = not_soft},
	{"strict-send-queue-off", two_links_target, unpolled_unnoticed, .missing = not_soft},
	{"strict-cq-overrun", overrun_target, overrun_initiator, .missing = not_soft},
	{"strict-late-receive", late_adapter_target, late_initiator, .missing = not_soft},
	{"strict-late-receive-srq", late_shared_target, late_initiator, .missing = not_soft},
	{"strict-late-receive-warn", late_warned_target, late_initiator, .missing = not_soft},
	{"strict-changed-in-flight", one_link_target, changed_initiator, .missing = not_soft},
	{"strict-deregistered-in-flight", one_link_target, withdrawn_initiator, .missing = not_soft},
	{"strict-disconnect-in-flight", two_links_target, hasty_initiator, .missing = not_soft},
	{"strict-wait-in-vain", one_link_target, vain_initiator, .missing = not_soft},
	{.name = NULL},
};
