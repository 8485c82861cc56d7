/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * alive.c -- peer liveness: a connection to a slow or stopped peer stays open; it is lost if the peer's
 * process has ended, even if another process holds its sockets, or if its host no longer responds.
 */
#include "link.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TIMEOUT_MS 1000
#define LONGER_MS 5000 /* than any time after which a peer counts as lost with this setting */
#define SIZE (1 << 20)
#define WRITES 64
#define MESSAGES 100
#define MESSAGE (256 * 1024)

static void
short_timeout(void)
{
	/* before the library reads it; the default would be 20 seconds */
	setenv("SOFTVERBS_PEER_TIMEOUT_MS", "1000", 1);
}

static bool
has_event(struct link *link, unsigned ms)
{
	struct pollfd event = {.events = POLLIN};

	OK(rpma_conn_get_event_fd(link->conn, &event.fd));
	return poll(&event, 1, (int)ms) != 0;
}

static void
stopped_target(struct side *side)
{
	struct region region;
	struct node node;
	struct link link;

	short_timeout();
	accept_with_region(&node, &link, &region, side, SIZE, USAGE_ALL, NULL);
	await(side, 'w');
	check_pattern(region.ptr, SIZE, 7, "what was written");
	await_end(&link);
	close_with_region(&node, &region);
}

/* A process is stopped, with more bytes in flight than the sockets hold. */
static void
stopping_initiator(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(2 * WRITES, WRITES + 1, 0, 0);
	struct region local;
	struct node node;
	struct link link;

	short_timeout();
	open_initiator(&node, side);
	region_new(&node, &local, SIZE, USAGE_ALL);
	fill_pattern(local.ptr, SIZE, 7);
	connect_link(&node, &link, cfg, NULL);
	for (int round = 0; round < 2; round++) {
		stop_process(*side->target_pid);
		for (uintptr_t i = 0; i < WRITES; i++)
			OK(rpma_write(link.conn, link.remote, 0, local.mr, 0, SIZE, RPMA_F_COMPLETION_ALWAYS, (void *)i));
		EXPECT(!has_event(&link, LONGER_MS), "the connection has ended");
		EXPECT(kill(*side->target_pid, SIGCONT) == 0);
		for (uint64_t i = 0; i < WRITES; i++)
			expect_wc(link.cq, i, IBV_WC_RDMA_WRITE);
		/* then idle, with the process stopped: its host responds to probes */
		stop_process(*side->target_pid);
		EXPECT(!has_event(&link, LONGER_MS), "the idle connection has ended");
		EXPECT(kill(*side->target_pid, SIGCONT) == 0);
	}
	write_part(&link, 0, &local, 0, SIZE);
	read_part(&link, &local, 0, 0, SIZE);
	notify(side, 'w');
	end_link(&link);
	OK(rpma_conn_cfg_delete(&cfg));
	close_with_region(&node, &local);
}

/* No receive is posted for a long time. */
static void
late_target(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(2 * MESSAGES, 0, MESSAGES, 0);
	struct region in;
	struct node node;
	struct link link;

	short_timeout();
	open_target(&node, side);
	region_new(&node, &in, MESSAGE, USAGE_ALL);
	accept_link(&node, &link, cfg, NULL);
	EXPECT(!has_event(&link, LONGER_MS), "the connection has ended");
	for (uintptr_t i = 0; i < MESSAGES; i++)
		OK(rpma_recv(link.conn, in.mr, 0, MESSAGE, (void *)i));
	for (uint64_t i = 0; i < MESSAGES; i++)
		expect_wc(link.cq, i, IBV_WC_RECV);
	check_pattern(in.ptr, MESSAGE, 3, "the last message");
	await_end(&link);
	OK(rpma_conn_cfg_delete(&cfg));
	close_with_region(&node, &in);
}

static void
early_initiator(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(2 * MESSAGES, MESSAGES, 0, 0);
	struct region out;
	struct node node;
	struct link link;

	short_timeout();
	open_initiator(&node, side);
	region_new(&node, &out, MESSAGE, USAGE_ALL);
	fill_pattern(out.ptr, MESSAGE, 3);
	connect_link(&node, &link, cfg, NULL);
	for (uintptr_t i = 0; i < MESSAGES; i++)
		OK(rpma_send(link.conn, out.mr, 0, MESSAGE, RPMA_F_COMPLETION_ALWAYS, (void *)i));
	for (uint64_t i = 0; i < MESSAGES; i++)
		expect_wc(link.cq, i, IBV_WC_SEND);
	end_link(&link);
	OK(rpma_conn_cfg_delete(&cfg));
	close_with_region(&node, &out);
}

/*
 * A process with a child that does not execute a program is killed. The child keeps none of its connections
 * open.
 */
static void
parent_target(struct side *side)
{
	struct node node;
	struct link link;
	int fd;

	open_target(&node, side);
	accept_link(&node, &link, NULL, NULL);
	OK(rpma_conn_get_event_fd(link.conn, &fd));
	if (fork() == 0) {
		/* the end of a child must not affect the parent */
		if (fork() == 0)
			_exit(0);
		sleep(60);
		_exit(0);
	}
	await(side, 'f');
	notify(side, 'f');
	await(side, 'k');
	kill(getpid(), SIGKILL);
}

static void
orphaned_initiator(struct side *side)
{
	struct node node;
	struct link link;
	uint64_t began;

	open_initiator(&node, side);
	connect_link(&node, &link, NULL, NULL);
	notify(side, 'f');
	await(side, 'f');
	EXPECT(!has_event(&link, 300), "the fork has ended the connection");
	began = now_ms();
	notify(side, 'k');
	EXPECT(has_event(&link, 10000), "the end of the killed process is not reported");
	EXPECT(now_ms() - began < 1000, "reported after %llu ms", (unsigned long long)(now_ms() - began));
	expect_broken(&link);
	delete_link(&link);
	close_node(&node);
}

/* A child uses the library after its parent has; that does not affect the parent's connection. */
static void
child_initiator(struct side *side)
{
	struct region local;
	struct node node;
	struct link link;
	pid_t child;

	connect_with_region(&node, &link, &local, side, 4096, USAGE_ALL, NULL);
	child = fork();
	EXPECT(child >= 0);
	if (child == 0) {
		struct node own;
		struct link second;

		open_peer(&own, side);
		connect_link(&own, &second, NULL, NULL);
		end_link(&second);
		close_node(&own);
		sleep(60);
		_exit(0);
	}
	await(side, 'c');
	read_part(&link, &local, 0, 0, 4096);
	check_pattern(local.ptr, 4096, 5, "what was read");
	end_link(&link);
	close_with_region(&node, &local);
	kill(child, SIGKILL);
}

static void
childs_target(struct side *side)
{
	struct link first, second;
	struct region region;
	struct node node;

	open_target(&node, side);
	region_new(&node, &region, 4096, USAGE_ALL);
	fill_pattern(region.ptr, 4096, 5);
	accept_link(&node, &first, NULL, &region);
	accept_link(&node, &second, NULL, NULL);
	await_end(&second);
	notify(side, 'c');
	await_end(&first);
	close_with_region(&node, &region);
}

/*
 * A host that no longer responds. The command in PAIRS_VANISH cuts it off; c-tests/vanish provides the
 * command, and the two network namespaces that it needs.
 */
static void
cut_off(void)
{
	const char *command = getenv("PAIRS_VANISH");

	EXPECT(command != NULL && system(command) == 0, "PAIRS_VANISH: %s", command != NULL ? command : "not set");
}

static void
expect_lost(struct link *link, uint64_t began, unsigned from_ms, unsigned to_ms)
{
	uint64_t took;

	EXPECT(has_event(link, 20 * to_ms), "a lost host is not detected");
	took = now_ms() - began;
	EXPECT(took >= from_ms && took <= to_ms, "after %llu ms, expected %u to %u", (unsigned long long)took, from_ms, to_ms);
	expect_broken(link);
	delete_link(link);
}

static void
vanishing_target(struct side *side)
{
	struct region region;
	struct node node;
	struct link link;

	accept_with_region(&node, &link, &region, side, SIZE, USAGE_ALL, NULL);
	await(side, 'd');
	_exit(0);
}

static void
set_timeout(unsigned ms)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", ms);
	setenv("SOFTVERBS_PEER_TIMEOUT_MS", text, 1);
}

enum { VANISH_MS = 8000 };

static void
vanished(struct side *side, bool writes, unsigned stopped_ms)
{
	struct rpma_conn_cfg *cfg = sizes(2 * WRITES, WRITES + 1, 0, 0);
	struct region local;
	struct node node;
	struct link link;
	uint64_t began;

	set_timeout(VANISH_MS);
	connect_with_region(&node, &link, &local, side, SIZE, USAGE_ALL, cfg);
	if (stopped_ms != 0) {
		stop_process(*side->target_pid);
		for (uintptr_t i = 0; i < WRITES; i++)
			OK(rpma_write(link.conn, link.remote, 0, local.mr, 0, SIZE, RPMA_F_COMPLETION_ALWAYS, (void *)i));
		EXPECT(!has_event(&link, stopped_ms), "the connection has ended before its host was cut off");
	}
	began = now_ms();
	cut_off();
	if (writes)
		OK(rpma_write(link.conn, link.remote, 0, local.mr, 0, SIZE, RPMA_F_COMPLETION_ALWAYS, (void *)1));
	expect_lost(&link, began, VANISH_MS / 4, VANISH_MS + 3000);
	if (stopped_ms != 0)
		kill(*side->target_pid, SIGCONT);
	notify(side, 'd');
	OK(rpma_conn_cfg_delete(&cfg));
	close_with_region(&node, &local);
}

static void
vanished_idle(struct side *side)
{
	vanished(side, false, 0);
}

static void
vanished_writes(struct side *side)
{
	vanished(side, true, 0);
}

static void
vanished_closed(struct side *side)
{
	vanished(side, false, 4000);
}

const struct test alive_tests[] = {
	{"peer-stopped-for-longer-than-the-timeout", stopped_target, stopping_initiator, .seconds = 60},
	{"no-receives-for-longer-than-the-timeout", late_target, early_initiator, .seconds = 40},
	{"killed-with-a-child-that-lives-on", parent_target, orphaned_initiator, .target_ends_by = SIGKILL},
	{"child-with-connections-of-its-own", childs_target, child_initiator},
	{"host-vanishes-idle", vanishing_target, vanished_idle, .seconds = 60, .needs = "PAIRS_VANISH"},
	{"host-vanishes-under-writes", vanishing_target, vanished_writes, .seconds = 60, .needs = "PAIRS_VANISH"},
	{"host-vanishes-with-its-program-stopped", vanishing_target, vanished_closed, .seconds = 90, .needs = "PAIRS_VANISH"},
	{.name = NULL},
};
