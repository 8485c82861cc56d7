/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hard.c -- a device that is removed, a link that goes down, a peer that vanishes. The initiator uses the
 * device rxe0 on v0, the target rxe1 on v1, the other end of the link: guest/parts/hard creates them, and
 * recreates them after each test.
 */
#include "link.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE 4096
#define FLYING 32
#define MESSAGE 64
#define EVENT_MS 15000
#define SILENCE_MS 2000

/* Writes continuously; each write must complete exactly once. */
struct traffic {
	struct node node;
	struct region data;
	struct link link;
	uint64_t posted;
	uint64_t completed;
};

static void
start_traffic(struct traffic *t, struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(FLYING, FLYING, 0, 0);

	memset(t, 0, sizeof(*t));
	open_initiator(&t->node, side);
	region_new(&t->node, &t->data, SIZE, USAGE_ALL);
	memset(t->data.ptr, 0xa5, SIZE);
	connect_link(&t->node, &t->link, cfg, NULL);
	OK(rpma_conn_cfg_delete(&cfg));
}

/* Fills the send queue with writes. */
static void
post_writes(struct traffic *t)
{
	while (t->posted - t->completed < FLYING &&
		rpma_write(t->link.conn, t->link.remote, 0, t->data.mr, 0, SIZE, RPMA_F_COMPLETION_ALWAYS,
			(void *)(uintptr_t)t->posted) == 0)
		t->posted++;
}

/* Polls the next completion; writes complete in the order in which they were posted. */
static enum ibv_wc_status
take_write(struct traffic *t)
{
	struct ibv_wc wc;

	next_wc(t->link.cq, &wc);
	EXPECT(wc.wr_id == t->completed, "operation %llu, expected %llu", (unsigned long long)wc.wr_id,
		(unsigned long long)t->completed);
	t->completed++;
	return wc.status;
}

/* Traffic before the failure. */
static void
warm_up(struct traffic *t)
{
	while (t->completed < 3 * FLYING) {
		enum ibv_wc_status status;

		post_writes(t);
		status = take_write(t);
		EXPECT(status == IBV_WC_SUCCESS, "status %d", status);
	}
	post_writes(t);
}

/* Writes until one fails because the peer is unreachable; later ones are flushed. */
static void
write_until_failure(struct traffic *t)
{
	enum ibv_wc_status status;

	while ((status = take_write(t)) == IBV_WC_SUCCESS)
		post_writes(t);
	EXPECT(status == IBV_WC_LOC_QP_OP_ERR, "status %d", status);
	while (t->completed < t->posted) {
		status = take_write(t);
		EXPECT(status == IBV_WC_WR_FLUSH_ERR, "status %d", status);
	}
	expect_no_wc(t->link.cq);
}

/*
 * Writes until none has completed for a while. rxe treats the retry count of librpma, 7, as infinite, so it
 * never ends a transfer by itself; the program does.
 */
static void
write_until_silence(struct traffic *t)
{
	uint64_t last = now_ms();

	while (now_ms() - last < SILENCE_MS) {
		struct ibv_wc wc;
		int ret = rpma_cq_get_wc(t->link.cq, 1, &wc, NULL);

		if (ret == RPMA_E_NO_COMPLETION) {
			sleep_ms(1);
			continue;
		}
		OK(ret);
		EXPECT(wc.status == IBV_WC_SUCCESS && wc.wr_id == t->completed, "status %d", wc.status);
		t->completed++;
		post_writes(t);
		last = now_ms();
	}
	EXPECT(t->completed < t->posted, "all writes have completed");
}

static void
stop_traffic(struct traffic *t)
{
	delete_link(&t->link);
	region_free(&t->data);
	close_node(&t->node);
}

/* Programs by their path: otherwise busybox's shell would run its own ip. */
static void
run_command(const char *command)
{
	int status = system(command);

	EXPECT(status == 0, "%s: status %d", command, status);
}

/* In a separate session: it ends when the last process has closed the device, which may be after the test. */
static void
delete_device(const char *device)
{
	pid_t pid = fork();

	EXPECT(pid >= 0);
	if (pid == 0) {
		setsid();
		execlp("rdma", "rdma", "link", "delete", device, NULL);
		_exit(127);
	}
}

/* Whether the connection has an event. */
static bool
has_event(struct link *link, int ms)
{
	struct pollfd fd = {.events = POLLIN};

	OK(rpma_conn_get_event_fd(link->conn, &fd.fd));
	return poll(&fd, 1, ms) == 1;
}

/*
 * The other side may have ended the connection already, or the device may have been removed: then there is
 * nothing to disconnect.
 */
static void
try_disconnect(struct link *link)
{
	int ret = rpma_conn_disconnect(link->conn);

	EXPECT(ret == 0 || ret == RPMA_E_PROVIDER, "%d", ret);
}

/* A target with one connection, and its objects. */
struct serving {
	struct node node;
	struct region region;
	struct link link;
};

static void
start_serving(struct serving *s, struct side *side)
{
	open_target(&s->node, side);
	region_new(&s->node, &s->region, SIZE, USAGE_ALL);
	accept_link(&s->node, &s->link, NULL, &s->region);
}

static void
stop_serving(struct serving *s)
{
	delete_link(&s->link);
	region_free(&s->region);
	close_node(&s->node);
}

/* Both devices work for new processes. */
static void
works_target(struct side *side)
{
	serve(side, SIZE, 1, 2);
}

static void
works_initiator(struct side *side)
{
	struct region data;
	struct node node;
	struct link link;

	open_initiator(&node, side);
	region_new(&node, &data, SIZE, USAGE_ALL);
	connect_link(&node, &link, NULL, NULL);
	read_part(&link, &data, 0, 0, SIZE);
	check_pattern(data.ptr, SIZE, 1, "what was read");
	fill_pattern(data.ptr, SIZE, 2);
	write_part(&link, 0, &data, 0, SIZE);
	end_link(&link);
	region_free(&data);
	close_node(&node);
}

/* The initiator's link goes down during its writes. The target receives nothing, and ends its side itself. */
static void
link_down_target(struct side *side)
{
	struct serving s;

	start_serving(&s, side);
	await(side, 'd');
	EXPECT(!has_event(&s.link, 0), "an event, although no packet can have arrived");
	OK(rpma_conn_disconnect(s.link.conn));
	stop_serving(&s);
}

static void
link_down_initiator(struct side *side)
{
	struct traffic t;

	start_traffic(&t, side);
	warm_up(&t);
	run_command("/bin/ip link set v0 down");
	write_until_failure(&t);
	OK(rpma_conn_disconnect(t.link.conn));
	stop_traffic(&t);
	notify(side, 'd');
}

/* Packets of both sides are dropped, as if the other side had lost power; the links stay up. */
static void
vanished_target(struct side *side)
{
	struct region out;
	struct serving s;
	struct ibv_wc wc;

	start_serving(&s, side);
	region_new(&s.node, &out, MESSAGE, RPMA_MR_USAGE_SEND);
	await(side, 'v');
	OK(rpma_send(s.link.conn, out.mr, 0, MESSAGE, RPMA_F_COMPLETION_ALWAYS, (void *)5));
	expect_no_wc(s.link.cq);
	EXPECT(!has_event(&s.link, SILENCE_MS), "an event, although no packet can have arrived");
	OK(rpma_conn_disconnect(s.link.conn));
	next_wc(s.link.cq, &wc);
	EXPECT(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == 5, "status %d", wc.status);
	expect_no_wc(s.link.cq);
	region_free(&out);
	stop_serving(&s);
}

static void
vanished_initiator(struct side *side)
{
	struct traffic t;

	start_traffic(&t, side);
	warm_up(&t);
	run_command("/bin/ip rule add pref 5 iif v0 blackhole && /bin/ip rule add pref 5 iif v1 blackhole");
	notify(side, 'v');
	write_until_silence(&t);
	EXPECT(!has_event(&t.link, 0), "an event, although no packet can have arrived");
	OK(rpma_conn_disconnect(t.link.conn));
	while (t.completed < t.posted) {
		enum ibv_wc_status status = take_write(&t);

		EXPECT(status == IBV_WC_WR_FLUSH_ERR, "status %d", status);
	}
	expect_no_wc(t.link.cq);
	stop_traffic(&t);
}

/*
 * The device is removed during a connection: the event is LOST; the program writes until then, and each write
 * completes once, also after the event; the remote peer is notified.
 */
static void
removed_here_target(struct side *side)
{
	struct serving s;

	start_serving(&s, side);
	expect_broken(&s.link);
	try_disconnect(&s.link);
	stop_serving(&s);
}

static void
removed_here_initiator(struct side *side)
{
	struct traffic t;
	uint64_t give_up = now_ms() + EVENT_MS;

	start_traffic(&t, side);
	warm_up(&t);
	delete_device("rxe0");
	while (!has_event(&t.link, 0)) {
		EXPECT(now_ms() < give_up, "no event");
		post_writes(&t);
		take_write(&t);
	}
	expect_event(&t.link, RPMA_CONN_LOST);
	try_disconnect(&t.link);
	while (t.completed < t.posted)
		take_write(&t);
	expect_no_wc(t.link.cq);
	stop_traffic(&t);
}

/* The same at the target, whose endpoint must be shut down, too. */
static void
removed_there_target(struct side *side)
{
	struct serving s;

	start_serving(&s, side);
	await(side, 'w');
	delete_device("rxe1");
	EXPECT(has_event(&s.link, EVENT_MS), "no event");
	expect_event(&s.link, RPMA_CONN_LOST);
	try_disconnect(&s.link);
	stop_serving(&s);
}

static void
removed_there_initiator(struct side *side)
{
	struct traffic t;

	start_traffic(&t, side);
	warm_up(&t);
	notify(side, 'w');
	EXPECT(has_event(&t.link, EVENT_MS), "no event");
	expect_broken(&t.link);
	try_disconnect(&t.link);
	while (t.completed < t.posted)
		take_write(&t);
	expect_no_wc(t.link.cq);
	stop_traffic(&t);
}

#define TEST(name, id) {name, id##_target, id##_initiator, .seconds = 40}

static const struct test hard_tests[] = {
	TEST("both-devices-work", works),
	TEST("link-down-under-writes", link_down),
	TEST("peer-vanishes-under-writes", vanished),
	TEST("device-removed-at-initiator", removed_here),
	TEST("device-removed-at-target", removed_there),
	{.name = NULL},
};

const struct test *const tables[] = {hard_tests, NULL};
