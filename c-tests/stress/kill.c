/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kill.c -- one side is killed in the middle of its work, repeatedly. The other one gets an event, each of
 * its requests completes once, the effects of successful ones are correct, and no resource of the connection
 * leaks.
 */
#include "stress.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE 65536
#define BLOCK 1024
#define WINDOW 16
#define RECEIVES 8
#define WARM_UP 10
#define SOME_MAPPINGS 8
#define SOME_KB 4096

static unsigned
kills(void)
{
	return amount(50, 2000);
}

/* The tally of the side that survives. */
static struct {
	unsigned ended; /* connections whose end was reported */
	unsigned refused; /* attempts that failed */
	unsigned long long posted;
	unsigned long long succeeded;
} tally;

/* Outstanding requests: each may complete once. */
struct pending {
	bool sends[WINDOW];
	bool receives[RECEIVES];
	unsigned sent;
	unsigned received;
};

#define A_RECEIVE 1000

static void
take_one(struct rpma_cq *cq, struct pending *pending)
{
	struct ibv_wc wc;
	bool *which;

	next_wc(cq, &wc);
	if (wc.wr_id >= A_RECEIVE) {
		EXPECT(wc.wr_id < A_RECEIVE + RECEIVES, "%llu", (unsigned long long)wc.wr_id);
		which = &pending->receives[wc.wr_id - A_RECEIVE];
		pending->received--;
	} else {
		EXPECT(wc.wr_id < WINDOW, "%llu", (unsigned long long)wc.wr_id);
		which = &pending->sends[wc.wr_id];
		pending->sent--;
	}
	EXPECT(*which, "request %llu completed twice", (unsigned long long)wc.wr_id);
	*which = false;
	tally.succeeded += wc.status == IBV_WC_SUCCESS;
}

/* A killed process sends nothing here, so only the end of the connection completes the receives. */
static void
post_receives(struct link *link, struct region *in, struct pending *pending)
{
	for (uintptr_t i = 0; i < RECEIVES; i++) {
		OK(rpma_recv(link->conn, in->mr, i * BLOCK, BLOCK, (void *)(A_RECEIVE + i)));
		pending->receives[i] = true;
		pending->received++;
		tally.posted++;
	}
}

/*
 * Writes, reads and flushes memory of the other side until the connection ends; then polls the remaining
 * completions, and no more than these.
 */
static void
work_until_the_end(struct link *link, struct region *local, struct rng *rng)
{
	struct pending pending = {0};
	int events = event_fd(link->conn);

	post_receives(link, local, &pending);
	while (link->remote != NULL && !readable(events, 0)) {
		unsigned i = 0;
		int ret;

		while (pending.sent == WINDOW)
			take_one(link->cq, &pending);
		while (pending.sends[i])
			i++;
		switch (rng_below(rng, 3)) {
		case 0:
			ret = rpma_read(link->conn, local->mr, 0, link->remote, 0, BLOCK, RPMA_F_COMPLETION_ALWAYS,
				(void *)(uintptr_t)i);
			break;
		case 1:
			ret = rpma_flush(link->conn, link->remote, 0, BLOCK, RPMA_FLUSH_TYPE_VISIBILITY,
				RPMA_F_COMPLETION_ALWAYS, (void *)(uintptr_t)i);
			break;
		default:
			ret = rpma_write(link->conn, link->remote, 0, local->mr, 0, rng_below(rng, SIZE),
				RPMA_F_COMPLETION_ALWAYS, (void *)(uintptr_t)i);
		}
		/* a broken connection may refuse requests, which then do not complete */
		EXPECT(ret == 0 || ret == RPMA_E_PROVIDER, "%d", ret);
		if (ret == 0) {
			pending.sends[i] = true;
			pending.sent++;
			tally.posted++;
		}
	}
	expect_broken(link);
	tally.ended++;
	while (pending.sent + pending.received > 0)
		take_one(link->cq, &pending);
	for (int i = 0; i < 3; i++) {
		struct ibv_wc wc;

		RETURNS(RPMA_E_NO_COMPLETION, rpma_cq_get_wc(link->cq, 1, &wc, NULL));
	}
	OK(rpma_conn_disconnect(link->conn));
	delete_link(link);
}

/* The same on the side that is killed. */
static void
work_until_killed(struct link *link, struct region *local, struct rng *rng)
{
	for (;;) {
		size_t size = rng_below(rng, SIZE);

		if (rpma_write(link->conn, link->remote, 0, local->mr, 0, size, RPMA_F_COMPLETION_ALWAYS, NULL) == 0) {
			struct ibv_wc wc;

			next_wc(link->cq, &wc);
		}
	}
}

static void
kill_after(pid_t pid, struct rng *rng)
{
	int status;

	usleep((useconds_t)rng_below(rng, 12000));
	EXPECT(kill(pid, SIGKILL) == 0, "%s", strerror(errno));
	EXPECT(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "%d", status);
}

static void
report(const char *who, uint64_t began)
{
	figures("     %s killed %u times in %llu ms; the end of %u connections was reported, %u attempts failed", who, kills(),
		(unsigned long long)(now_ms() - began), tally.ended, tally.refused);
	figures("     %llu requests completed exactly once, %llu of them with success", tally.posted, tally.succeeded);
	EXPECT(tally.ended >= kills() / 4, "most processes were killed before they had a connection: the test proves nothing");
}

/* The initiator is killed: the target serves the next one. */
static void
surviving_target(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(64, 32, 16, 0);
	struct census before = {0};
	struct region offered;
	struct region local;
	struct node node;
	uint64_t began = now_ms();

	reset_shared();
	open_target(&node, side);
	region_new(&node, &offered, SIZE, USAGE_ALL);
	region_new(&node, &local, SIZE, USAGE_ALL);
	for (unsigned i = 0; !shared->over || readable(ep_fd(node.ep), 100);) {
		enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
		struct rng rng = rng_of("surviving target", i);
		struct rpma_conn_private_data pdata;
		struct rpma_conn_req *req;
		struct link link;

		if (!readable(ep_fd(node.ep), 100))
			continue;
		if (i++ == WARM_UP)
			before = take_census();
		req = next_req(&node, cfg);
		/* the initiator was killed before its request was accepted */
		if (try_link(&link, &req, &offered) != 0) {
			tally.refused++;
			continue;
		}
		OK(rpma_conn_next_event(link.conn, &event));
		if (event != RPMA_CONN_ESTABLISHED) {
			EXPECT(is_end(event), "%s", rpma_utils_conn_event_2str(event));
			tally.refused++;
			delete_link(&link);
			continue;
		}
		OK(rpma_conn_get_private_data(link.conn, &pdata));
		EXPECT(pdata.ptr != NULL && pdata.len >= DESCRIPTOR_SIZE);
		OK(rpma_mr_remote_from_descriptor(pdata.ptr, DESCRIPTOR_SIZE, &link.remote));
		work_until_the_end(&link, &local, &rng);
	}
	report("initiator", began);
	expect_no_growth("target", &before, SOME_MAPPINGS, SOME_KB);
	OK(rpma_conn_cfg_delete(&cfg));
	region_free(&local);
	region_free(&offered);
	close_node(&node);
}

static void
killed_initiator(struct side *side)
{
	await(side, 'L');
	for (unsigned i = 0; i < kills(); i++) {
		struct rng rng = rng_of("killed initiator", i);
		pid_t pid = fork();

		EXPECT(pid >= 0, "%s", strerror(errno));
		if (pid == 0) {
			struct region local;
			struct node node;
			struct link link;

			open_peer(&node, side);
			region_new(&node, &local, SIZE, USAGE_ALL);
			connect_link(&node, &link, NULL, &local);
			work_until_killed(&link, &local, &rng);
		}
		kill_after(pid, &rng);
	}
	shared->over = true;
}

/* The target is killed: the initiator connects to the next one. */
static void
killed_target(struct side *side)
{
	reset_shared();
	notify(side, 'L');
	for (unsigned i = 0; i < kills(); i++) {
		struct rng rng = rng_of("killed target", i);
		pid_t pid = fork();

		EXPECT(pid >= 0, "%s", strerror(errno));
		if (pid == 0) {
			struct node node = {.side = side};
			struct ibv_context *dev = NULL;
			struct region local;
			struct link link;

			OK(rpma_utils_get_ibv_context(side->addr, RPMA_UTIL_IBV_CONTEXT_LOCAL, &dev));
			OK(rpma_peer_new(dev, &node.peer));
			region_new(&node, &local, SIZE, USAGE_ALL);
			OK(rpma_ep_listen(node.peer, side->addr, side->port, &node.ep));
			accept_link(&node, &link, NULL, &local);
			work_until_killed(&link, &local, &rng);
		}
		kill_after(pid, &rng);
	}
	shared->over = true;
}

static void
surviving_initiator(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(64, 32, 16, 0);
	char offer[DESCRIPTOR_SIZE + 1] = {0};
	struct census before = {0};
	struct region offered;
	struct region local;
	struct node node;
	uint64_t began = now_ms();

	open_initiator(&node, side);
	region_new(&node, &offered, SIZE, USAGE_ALL);
	region_new(&node, &local, SIZE, USAGE_ALL);
	OK(rpma_mr_get_descriptor(offered.mr, offer));
	while (!shared->over) {
		struct rng rng = rng_of("surviving initiator", tally.ended);
		struct link link;

		if (tally.ended == WARM_UP)
			before = take_census();
		if (!try_connect(&node, &link, cfg, offer, sizeof(offer))) {
			tally.refused++;
			sleep_ms(1);
			continue;
		}
		work_until_the_end(&link, &local, &rng);
	}
	report("target", began);
	expect_no_growth("initiator", &before, SOME_MAPPINGS, SOME_KB);
	OK(rpma_conn_cfg_delete(&cfg));
	region_free(&local);
	region_free(&offered);
	close_node(&node);
}

const struct test kill_tests[] = {
	{"kill-initiator", surviving_target, killed_initiator, .seconds = 40},
	{"kill-target", killed_target, surviving_initiator, .seconds = 40},
	{.name = NULL},
};
