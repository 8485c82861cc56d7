/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * faults.c -- SOFTVERBS_FAULTS: a rule injects its fault into the counted operation and into no other, each
 * request completes once and in order, and the log has a line for each fault.
 */
#include "link.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE 4096
#define MOST_LINES 256

static const char *about = "SOFTVERBS_FAULTS";
static char lines[MOST_LINES][256]; /* about faults, in order */
static atomic_uint count;

static void
take_line(enum rpma_log_level level, const char *file, int line, const char *function, const char *format, ...)
{
	char text[sizeof(lines[0])];
	unsigned at;
	va_list ap;

	(void)file, (void)line, (void)function;
	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	if (level > RPMA_LOG_LEVEL_WARNING || strstr(text, about) == NULL)
		return;
	at = count++;
	if (at < MOST_LINES)
		strcpy(lines[at], text);
}

static void
listen_to_log(void)
{
	OK(rpma_log_set_function(take_line));
	OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_LEVEL_WARNING));
}

/* Before the first call of the library. */
static void
inject(const char *rules)
{
	setenv("SOFTVERBS_FAULTS", rules, 1);
	listen_to_log();
}

/* This many lines in total, the last one with both of these texts. */
static void
expect_lines(unsigned expected, const char *rule, const char *object)
{
	const char *last = count > 0 && count <= MOST_LINES ? lines[count - 1] : "";

	EXPECT(count == expected, "%u lines, the last one: %s", count, last);
	EXPECT(expected == 0 || (strstr(last, rule) != NULL && strstr(last, object) != NULL), "the last line: %s", last);
}

/* The next completion is of this request and has this status. */
static void
expect_status(struct link *link, uint64_t wr_id, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	next_wc(link->cq, &wc);
	EXPECT(wc.wr_id == wr_id && wc.status == status, "operation %u has status %d, expected %u with %d", (unsigned)wc.wr_id,
		wc.status, (unsigned)wr_id, status);
}

static int
post_write(struct link *link, struct region *src, size_t at, int flags, uint64_t wr_id)
{
	return rpma_write(link->conn, link->remote, at, src->mr, at, 8, flags, (void *)wr_id);
}

/*
 * A region for this many connections, one after the other, each of which may end in any way; all its bytes
 * are zero at the end.
 */
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
		expect_broken(&link);
		delete_link(&link);
	}
	/* the destination of requests that must not be executed */
	check_bytes(region.ptr + SIZE / 2, SIZE / 2, 0, "what no request has written");
	close_with_region(&node, &region);
}

static void
one_link_target(struct side *side)
{
	target_of(side, 1);
}

static void
two_links_target(struct side *side)
{
	target_of(side, 2);
}

static void
open_both(struct side *side, struct node *node, struct region *region)
{
	open_initiator(node, side);
	region_new(node, region, SIZE, USAGE_ALL);
	memset(region->ptr, 0x55, SIZE);
}

static void
close_both(struct node *node, struct region *region)
{
	region_free(region);
	close_node(node);
}

/* ---- connect requests ---- */

static void
expect_no_link(struct node *node, enum rpma_conn_event expected)
{
	struct rpma_conn_req *req = new_req(node, NULL);
	struct link link;

	OK(try_link(&link, &req, NULL));
	expect_event(&link, expected);
	OK(rpma_conn_delete(&link.conn));
}

static void
connect_initiator(struct side *side)
{
	struct region src;
	struct node node;
	struct link link;

	about = "connect"; /* in every warning about a failed attempt, injected or not */
	inject("connect:reject@n=1; connect:timeout@n=2; connect:unreachable@n=4");
	open_both(side, &node, &src);
	expect_no_link(&node, RPMA_CONN_REJECTED);
	EXPECT(strstr(rpma_err_last(), "by an injected fault") != NULL, "%s", rpma_err_last());
	expect_lines(1, "connect:reject@n=1: fault 1, at event 1: connection to 127.0.0.1:", side->port);
	expect_no_link(&node, RPMA_CONN_UNREACHABLE);
	expect_lines(2, "connect:timeout@n=2: fault 1, at event 2: connection to 127.0.0.1:", side->port);
	for (unsigned i = 0; i < 2; i++) {
		connect_link(&node, &link, NULL, NULL);
		write_part(&link, 0, &src, 0, 8);
		end_link(&link);
		if (i == 0)
			expect_no_link(&node, RPMA_CONN_UNREACHABLE);
		expect_lines(3, "connect:unreachable@n=4: fault 1, at event 4: connection to", side->port);
	}
	close_both(&node, &src);
}

/* The request is not reported to the program at the target. */
static void
accept_target(struct side *side)
{
	inject("accept:reject@op=2");
	target_of(side, 2);
	expect_lines(1, "accept:reject@op=2: fault 1, at event 2", "connect request of 127.0.0.1");
}

static void
accept_initiator(struct side *side)
{
	struct region src;
	struct node node;
	struct link link;

	open_both(side, &node, &src);
	connect_link(&node, &link, NULL, NULL);
	end_link(&link);
	expect_no_link(&node, RPMA_CONN_REJECTED);
	connect_link(&node, &link, NULL, NULL);
	write_part(&link, 0, &src, 0, 8);
	end_link(&link);
	close_both(&node, &src);
}

/* ---- late operations ---- */

#define DELAY_MS 150

/* The third write and every second read are delayed, with the requests after them. */
static void
delay_initiator(struct side *side)
{
	struct region src;
	struct node node;
	struct link link;
	uint64_t began, took;

	inject("write:delay=150ms@n=3; read:delay=150ms@every=2");
	open_both(side, &node, &src);
	connect_link(&node, &link, NULL, NULL);
	for (uint64_t i = 1; i <= 6; i++) {
		began = now_ms();
		OK(post_write(&link, &src, 0, RPMA_F_COMPLETION_ALWAYS, i));
		expect_wc(link.cq, i, IBV_WC_RDMA_WRITE);
		took = now_ms() - began;
		EXPECT(i == 3 ? took >= DELAY_MS - 1 : took < DELAY_MS, "write %u took %u ms", (unsigned)i, (unsigned)took);
	}
	expect_lines(1, "write:delay=150ms@n=3: fault 1, at event 3", "queue pair ");
	for (uint64_t i = 1; i <= 4; i++) {
		began = now_ms();
		OK(rpma_read(link.conn, src.mr, 0, link.remote, 0, 8, RPMA_F_COMPLETION_ALWAYS, (void *)i));
		OK(post_write(&link, &src, 8, RPMA_F_COMPLETION_ALWAYS, i));
		expect_wc(link.cq, i, IBV_WC_RDMA_READ);
		expect_wc(link.cq, i, IBV_WC_RDMA_WRITE);
		took = now_ms() - began;
		EXPECT(i % 2 == 0 ? took >= DELAY_MS - 1 : took < DELAY_MS, "read %u took %u ms", (unsigned)i, (unsigned)took);
		expect_lines(1 + i / 2, i > 1 ? "read:delay=150ms@every=2: fault " : "", "queue pair ");
	}
	/* requests that are delayed when the connection ends complete nevertheless */
	OK(rpma_read(link.conn, src.mr, 0, link.remote, 0, 8, RPMA_F_COMPLETION_ALWAYS, (void *)5));
	OK(rpma_read(link.conn, src.mr, 0, link.remote, 0, 8, RPMA_F_COMPLETION_ALWAYS, (void *)6));
	OK(post_write(&link, &src, SIZE / 2, RPMA_F_COMPLETION_ON_ERROR, 7));
	expect_status(&link, 5, IBV_WC_SUCCESS);
	began = now_ms();
	OK(rpma_conn_disconnect(link.conn));
	expect_status(&link, 6, IBV_WC_WR_FLUSH_ERR);
	expect_status(&link, 7, IBV_WC_WR_FLUSH_ERR);
	EXPECT(now_ms() - began < DELAY_MS);
	expect_event(&link, RPMA_CONN_CLOSED);
	expect_no_wc(link.cq);
	delete_link(&link);
	close_both(&node, &src);
}

/* The fault does not happen again, not to the next connection either; closes the node. */
static void
expect_no_more(struct node *node, struct region *src)
{
	struct link link;

	connect_link(node, &link, NULL, NULL);
	for (uint64_t i = 0; i < 20; i++)
		write_part(&link, 0, src, 0, 8);
	end_link(&link);
	expect_lines(1, "", "");
	close_both(node, src);
}

/* ---- connections that are cut ---- */

static void
kill_initiator(struct side *side)
{
	struct region src;
	struct node node;
	struct link link;

	inject("peer:kill@op=5");
	open_both(side, &node, &src);
	connect_link(&node, &link, NULL, NULL);
	for (uint64_t i = 1; i <= 4; i++) {
		OK(post_write(&link, &src, 0, RPMA_F_COMPLETION_ALWAYS, i));
		expect_status(&link, i, IBV_WC_SUCCESS);
	}
	expect_lines(0, "", "");
	OK(post_write(&link, &src, SIZE / 2, RPMA_F_COMPLETION_ON_ERROR, 5));
	OK(post_write(&link, &src, SIZE / 2, RPMA_F_COMPLETION_ALWAYS, 6));
	OK(rpma_read(link.conn, src.mr, 0, link.remote, 0, 8, RPMA_F_COMPLETION_ALWAYS, (void *)7));
	for (uint64_t i = 5; i <= 7; i++)
		expect_status(&link, i, IBV_WC_WR_FLUSH_ERR);
	expect_broken(&link);
	expect_no_wc(link.cq);
	delete_link(&link);
	expect_lines(1, "peer:kill@op=5: fault 1, at event 5", "queue pair ");
	expect_no_more(&node, &src);
}

/* The peer of the side whose connection is cut: the events are those of a process that was killed. */
static void
killed_target(struct side *side)
{
	struct region in;
	struct node node;
	struct link link;

	about = "connection lost";
	listen_to_log();
	open_target(&node, side);
	region_new(&node, &in, SIZE, USAGE_ALL);
	for (unsigned i = 0; i < 2; i++) {
		accept_link(&node, &link, NULL, &in);
		OK(rpma_recv(link.conn, in.mr, 0, 64, (void *)1));
		OK(rpma_recv(link.conn, in.mr, 64, 64, (void *)2));
		notify(side, 'r');
		expect_status(&link, 1, IBV_WC_SUCCESS);
		expect_status(&link, 2, i == 0 ? IBV_WC_WR_FLUSH_ERR : IBV_WC_SUCCESS);
		expect_broken(&link);
		expect_no_wc(link.cq);
		delete_link(&link);
		/* over RoCE it gets a DREQ, as of a program that disconnects */
		expect_lines(over_roce() ? 0 : 1, "queue pair ", "Connection reset by peer");
	}
	close_with_region(&node, &in);
}

static void
kill_send_initiator(struct side *side)
{
	struct region out;
	struct node node;
	struct link link;

	inject("send:delay=20ms@n=2; peer:kill@n=2");
	open_both(side, &node, &out);
	for (unsigned i = 0; i < 2; i++) {
		connect_link(&node, &link, NULL, NULL);
		await(side, 'r');
		OK(rpma_send(link.conn, out.mr, 0, 64, RPMA_F_COMPLETION_ALWAYS, (void *)1));
		expect_status(&link, 1, IBV_WC_SUCCESS);
		OK(rpma_send(link.conn, out.mr, 0, 64, RPMA_F_COMPLETION_ALWAYS, (void *)2));
		expect_status(&link, 2, i == 0 ? IBV_WC_WR_FLUSH_ERR : IBV_WC_SUCCESS);
		if (i == 0) {
			expect_broken(&link);
			delete_link(&link);
			/* two faults can apply to one request */
			EXPECT(strstr(lines[0], "send:delay=20ms@n=2: fault 1, at event 2: queue pair ") != NULL, "%s", lines[0]);
			expect_lines(2, "peer:kill@n=2: fault 1, at event 2", "queue pair ");
		} else {
			end_link(&link);
		}
	}
	expect_lines(2, "", "");
	close_both(&node, &out);
}

/* ---- failed completions ---- */

/*
 * The third signalled request fails; those before it succeed, and all after it are flushed, signalled or not.
 */
static void
fail_third(struct side *side)
{
	struct region src;
	struct node node;
	struct link link;

	inject("wc:RETRY_EXC@op=3");
	open_both(side, &node, &src);
	connect_link(&node, &link, NULL, NULL);
	OK(post_write(&link, &src, 0, RPMA_F_COMPLETION_ON_ERROR, 1));
	OK(post_write(&link, &src, 8, RPMA_F_COMPLETION_ALWAYS, 2));
	OK(rpma_read(link.conn, src.mr, 0, link.remote, 0, 1024, RPMA_F_COMPLETION_ALWAYS, (void *)3));
	OK(post_write(&link, &src, 16, RPMA_F_COMPLETION_ON_ERROR, 4));
	OK(post_write(&link, &src, SIZE / 2, RPMA_F_COMPLETION_ALWAYS, 5));
	OK(post_write(&link, &src, SIZE / 2, RPMA_F_COMPLETION_ON_ERROR, 6));
	OK(rpma_read(link.conn, src.mr, 0, link.remote, 0, 8, RPMA_F_COMPLETION_ALWAYS, (void *)7));
	expect_status(&link, 2, IBV_WC_SUCCESS);
	expect_status(&link, 3, IBV_WC_SUCCESS);
	expect_status(&link, 5, IBV_WC_RETRY_EXC_ERR);
	expect_status(&link, 6, IBV_WC_WR_FLUSH_ERR);
	expect_status(&link, 7, IBV_WC_WR_FLUSH_ERR);
	end_broken(&link);
	/* the queue pair is in the error state */
	OK(post_write(&link, &src, SIZE / 2, RPMA_F_COMPLETION_ALWAYS, 8));
	expect_status(&link, 8, IBV_WC_WR_FLUSH_ERR);
	expect_no_wc(link.cq);
	delete_link(&link);
	expect_lines(1, "wc:RETRY_EXC@op=3: fault 1, at event 3", "queue pair ");
	expect_no_more(&node, &src);
}

static void
wc_strict_initiator(struct side *side)
{
	setenv("SOFTVERBS_STRICT", "adapter", 1);
	fail_third(side);
}

/* ---- flushes to persistence ---- */

static void
accept_flushes(struct node *node, struct region *region)
{
	struct link link;

	accept_link(node, &link, NULL, region);
	expect_broken(&link);
	delete_link(&link);
}

static void
msync_target(struct side *side)
{
	struct region region;
	struct node node;

	inject("msync:EIO@n=3; msync:delay=150ms@n=2");
	open_target(&node, side);
	region_new(&node, &region, SIZE, USAGE_ALL);
	accept_flushes(&node, &region);
	expect_lines(2, "msync:EIO@n=3: fault 1, at event 3", "flush of 4096 bytes");
	/* writes whose msync(2) failed are lost */
	accept_flushes(&node, &region);
	region_free(&region);
	region_new(&node, &region, SIZE, USAGE_ALL);
	accept_flushes(&node, &region);
	expect_lines(2, "", "");
	close_with_region(&node, &region);
}

/* Flushes once. Returns the duration in milliseconds. */
static unsigned
flush(struct link *link, struct region *src, enum ibv_wc_status status)
{
	uint64_t began = now_ms();

	OK(post_write(link, src, 0, RPMA_F_COMPLETION_ON_ERROR, 1));
	OK(rpma_flush(link->conn, link->remote, 0, 8, RPMA_FLUSH_TYPE_PERSISTENT, RPMA_F_COMPLETION_ALWAYS, (void *)2));
	expect_status(link, 2, status);
	return (unsigned)(now_ms() - began);
}

static void
msync_initiator(struct side *side)
{
	struct region src;
	struct node node;
	struct link link;

	open_both(side, &node, &src);
	connect_link(&node, &link, NULL, NULL);
	EXPECT(flush(&link, &src, IBV_WC_SUCCESS) < DELAY_MS);
	EXPECT(flush(&link, &src, IBV_WC_SUCCESS) >= DELAY_MS);
	for (unsigned i = 0; i < 2; i++) {
		/* iWARP has no response for a read that fails in this way */
		flush(&link, &src, over_roce() ? IBV_WC_REM_OP_ERR : IBV_WC_WR_FLUSH_ERR);
		end_broken(&link);
		expect_no_wc(link.cq);
		delete_link(&link);
		connect_link(&node, &link, NULL, NULL);
	}
	for (unsigned i = 0; i < 5; i++)
		EXPECT(flush(&link, &src, IBV_WC_SUCCESS) < DELAY_MS);
	end_link(&link);
	close_both(&node, &src);
}

/* ---- seeds ---- */

#define RUNS 3
#define WRITES 300

/* A separate process: does the same as the others, and reports the faults. */
static void
run(struct side *side, const char *rules, int to)
{
	struct region src;
	struct node node;
	struct link link;

	inject(rules);
	open_peer(&node, side);
	region_new(&node, &src, SIZE, USAGE_ALL);
	connect_link(&node, &link, NULL, NULL);
	for (uint64_t i = 0; i < WRITES; i++) {
		bool last = i % 10 == 9;

		OK(post_write(&link, &src, 0, last ? RPMA_F_COMPLETION_ALWAYS : RPMA_F_COMPLETION_ON_ERROR, i));
		if (last)
			expect_wc(link.cq, i, IBV_WC_RDMA_WRITE);
	}
	end_link(&link);
	close_both(&node, &src);
	EXPECT(count > WRITES / 40 && count < WRITES / 4, "%u faults of %u writes with p=0.1", count, WRITES);
	/* the number of the queue pair, which may differ, is the last word */
	for (unsigned i = 0; i < count; i++) {
		char *pair = strstr(lines[i], ": queue pair ");

		EXPECT(pair != NULL, "%s", lines[i]);
		memset(pair, 0, (size_t)(lines[i] + sizeof(lines[i]) - pair));
	}
	EXPECT(write(to, lines, sizeof(lines)) == sizeof(lines), "%s", strerror(errno));
	_exit(0);
}

static void
seed_initiator(struct side *side)
{
	static const char *const rules[RUNS] = {
		"seed=7; write:delay=1us@p=0.1", "seed=7; write:delay=1us@p=0.1", "seed=8; write:delay=1us@p=0.1"};
	static char met[RUNS][sizeof(lines)];

	await(side, 'L');
	for (unsigned i = 0; i < RUNS; i++) {
		int ends[2], status;
		size_t have = 0;
		ssize_t n;
		pid_t pid;

		EXPECT(pipe(ends) == 0 && (pid = fork()) >= 0, "%s", strerror(errno));
		if (pid == 0)
			run(side, rules[i], ends[1]);
		close(ends[1]);
		while ((n = read(ends[0], met[i] + have, sizeof(met[i]) - have)) > 0)
			have += (size_t)n;
		EXPECT(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0, "status 0x%x", status);
		EXPECT(have == sizeof(lines), "%zu bytes", have);
		close(ends[0]);
	}
	EXPECT(strstr(met[0], "write:delay=1us@p=0.1: fault 1, at event ") != NULL, "%s", met[0]);
	EXPECT(memcmp(met[0], met[1], sizeof(met[0])) == 0, "one seed: %s and %s", met[0], met[1]);
	EXPECT(memcmp(met[0], met[2], sizeof(met[0])) != 0, "two seeds");
}

static void
seed_target(struct side *side)
{
	target_of(side, RUNS);
}

/* ---- invalid rules ---- */

static void
wrong_initiator(struct side *side)
{
	struct region src;
	struct node node;
	struct link link;

	inject("peer:kill@n=1; wirte:delay=2ms@p=0.01");
	open_both(side, &node, &src);
	for (unsigned i = 0; i < 2; i++) {
		connect_link(&node, &link, NULL, NULL);
		write_part(&link, 0, &src, 0, 8);
		end_link(&link);
	}
	expect_lines(1, "\"wirte\" at character 16 is not one of seed=NUMBER, connect, accept, write,", "; no fault is injected");
	close_both(&node, &src);
}

const struct test faults_tests[] = {
	{"faults-connect", two_links_target, connect_initiator, .missing = not_soft},
	{"faults-accept", accept_target, accept_initiator, .missing = not_soft},
	{"faults-delay", one_link_target, delay_initiator, .missing = not_soft},
	{"faults-kill", two_links_target, kill_initiator, .missing = not_soft},
	{"faults-kill-send", killed_target, kill_send_initiator, .missing = not_soft},
	{"faults-wc", two_links_target, fail_third, .missing = not_soft},
	{"faults-wc-strict", two_links_target, wc_strict_initiator, .missing = not_soft},
	{"faults-msync", msync_target, msync_initiator, .missing = not_soft},
	{"faults-same-seed", seed_target, seed_initiator, .missing = not_soft},
	{"faults-wrong-rules", two_links_target, wrong_initiator, .missing = not_soft},
	{.name = NULL},
};
