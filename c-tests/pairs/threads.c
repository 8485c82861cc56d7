/* SPDX-License-Identifier: BSD-3-Clause */
/* threads.c -- concurrent use as permitted by THREAD_SAFETY.md, in both processes. */
#include "link.h"

#include <pthread.h>
#include <stdlib.h>

#define THREADS 4
#define SIZE 4096
#define ROUNDS 60
#define POSTS 300
#define MESSAGES 100
#define MESSAGE 64

/* The objects that the threads of a process share, and those of one thread. */
struct crew {
	struct node node;
	struct region shared;
	struct link link;
	struct rpma_srq *srq;
};

struct member {
	struct crew *crew;
	unsigned index;
	struct region region;
	struct link link;
	void (*run)(struct member *member);
	pthread_t thread;
};

static pthread_barrier_t start_line;

static void *
run_member(void *arg)
{
	struct member *member = arg;

	pthread_barrier_wait(&start_line);
	member->run(member);
	return NULL;
}

static void
run_all(struct member *members, struct crew *crew, void (*run)(struct member *member))
{
	EXPECT(pthread_barrier_init(&start_line, NULL, THREADS) == 0);
	for (unsigned i = 0; i < THREADS; i++) {
		members[i].crew = crew;
		members[i].index = i;
		members[i].run = run;
		EXPECT(pthread_create(&members[i].thread, NULL, run_member, &members[i]) == 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		EXPECT(pthread_join(members[i].thread, NULL) == 0);
	pthread_barrier_destroy(&start_line);
}

/*
 * Requests are not thread-safe for one peer, so the connections are established one after the other; all else
 * is concurrent.
 */
static void
accept_members(struct member *members, struct crew *crew, const struct rpma_conn_cfg *cfg)
{
	for (unsigned i = 0; i < THREADS; i++) {
		region_new(&crew->node, &members[i].region, SIZE, USAGE_ALL);
		accept_link(&crew->node, &members[i].link, cfg, &members[i].region);
	}
}

static void
connect_members(struct member *members, struct crew *crew, const struct rpma_conn_cfg *cfg)
{
	for (unsigned i = 0; i < THREADS; i++) {
		region_new(&crew->node, &members[i].region, SIZE, USAGE_ALL);
		connect_link(&crew->node, &members[i].link, cfg, NULL);
	}
}

/* Each thread has a connection of the same peer, and ends it. */
static void
await_own_end(struct member *member)
{
	await_end(&member->link);
	check_pattern(member->region.ptr, SIZE, ROUNDS * 10 + member->index, "a thread's region");
	region_free(&member->region);
}

static void
own_target(struct side *side)
{
	struct member members[THREADS];
	struct crew crew;

	open_target(&crew.node, side);
	accept_members(members, &crew, NULL);
	run_all(members, &crew, await_own_end);
	close_node(&crew.node);
}

static void
write_and_read_back(struct member *member)
{
	struct region back;

	region_new(&member->crew->node, &back, SIZE, USAGE_ALL);
	for (unsigned i = 1; i <= ROUNDS; i++) {
		fill_pattern(member->region.ptr, SIZE, i * 10 + member->index);
		write_part(&member->link, 0, &member->region, 0, SIZE);
		read_part(&member->link, &back, 0, 0, SIZE);
		check_pattern(back.ptr, SIZE, i * 10 + member->index, "what a thread has read back");
	}
	end_link(&member->link);
	region_free(&back);
	region_free(&member->region);
}

static void
own_initiator(struct side *side)
{
	struct member members[THREADS];
	struct crew crew;

	open_initiator(&crew.node, side);
	connect_members(members, &crew, NULL);
	run_all(members, &crew, write_and_read_back);
	close_node(&crew.node);
}

/* All register and deregister memory of one peer, during transfers from and to their own regions. */
static void
register_and_use(struct member *member)
{
	char *memory = pages(2 * SIZE);

	for (unsigned i = 1; i <= ROUNDS; i++) {
		struct region source;
		struct region back;

		region_reg(&member->crew->node, &source, memory, SIZE, RPMA_MR_USAGE_WRITE_SRC);
		region_reg(&member->crew->node, &back, memory + SIZE, SIZE, RPMA_MR_USAGE_READ_DST);
		fill_pattern(memory, SIZE, i * 10 + member->index);
		write_part(&member->link, 0, &source, 0, SIZE);
		OK(rpma_mr_dereg(&source.mr));
		read_part(&member->link, &back, 0, 0, SIZE);
		OK(rpma_mr_dereg(&back.mr));
		check_pattern(memory + SIZE, SIZE, i * 10 + member->index, "what a thread has read back");
	}
	end_link(&member->link);
	region_free(&member->region);
}

static void
registering_initiator(struct side *side)
{
	struct member members[THREADS];
	struct crew crew;

	open_initiator(&crew.node, side);
	connect_members(members, &crew, NULL);
	run_all(members, &crew, register_and_use);
	close_node(&crew.node);
}

/*
 * All post on one connection and poll its queue for requests of any thread: each completion is returned once.
 */
static unsigned char taken[THREADS][POSTS];
static unsigned left;

static void
one_connection_target(struct side *side)
{
	struct region region;
	struct node node;
	struct link link;

	accept_with_region(&node, &link, &region, side, THREADS * SIZE, USAGE_ALL, NULL);
	await_end(&link);
	for (unsigned i = 0; i < THREADS; i++)
		check_pattern(region.ptr + i * SIZE, SIZE, i, "what a thread has written");
	close_with_region(&node, &region);
}

static void
take_one(struct crew *crew)
{
	struct ibv_wc wc;
	int ret = rpma_cq_get_wc(crew->link.cq, 1, &wc, NULL);

	if (ret == RPMA_E_NO_COMPLETION)
		return;
	OK(ret);
	EXPECT(wc.status == IBV_WC_SUCCESS, "status %d", wc.status);
	EXPECT(wc.wr_id / POSTS < THREADS);
	EXPECT(__atomic_fetch_add(&taken[wc.wr_id / POSTS][wc.wr_id % POSTS], 1, __ATOMIC_RELAXED) == 0,
		"operation %u has completed twice", (unsigned)wc.wr_id);
	__atomic_fetch_sub(&left, 1, __ATOMIC_RELAXED);
}

static void
post_and_take(struct member *member)
{
	struct crew *crew = member->crew;
	size_t at = member->index * SIZE;

	for (unsigned i = 0; i < POSTS; i++) {
		size_t part = i * 64 % SIZE;
		int ret;

		/* completions are polled when the queue is full */
		while ((ret = rpma_write(crew->link.conn, crew->link.remote, at + part, crew->shared.mr, at + part, 64,
				RPMA_F_COMPLETION_ALWAYS, (void *)(uintptr_t)(member->index * POSTS + i))) ==
			RPMA_E_PROVIDER)
			take_one(crew);
		OK(ret);
		take_one(crew);
	}
	while (__atomic_load_n(&left, __ATOMIC_RELAXED) > 0)
		take_one(crew);
}

static void
one_connection_initiator(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(THREADS * POSTS, 64, 0, 0);
	struct member members[THREADS];
	struct crew crew;

	open_initiator(&crew.node, side);
	region_new(&crew.node, &crew.shared, THREADS * SIZE, USAGE_ALL);
	for (unsigned i = 0; i < THREADS; i++)
		fill_pattern(crew.shared.ptr + i * SIZE, SIZE, i);
	connect_link(&crew.node, &crew.link, cfg, NULL);
	OK(rpma_conn_cfg_delete(&cfg));
	left = THREADS * POSTS;
	run_all(members, &crew, post_and_take);
	expect_no_wc(crew.link.cq);
	end_link(&crew.link);
	region_free(&crew.shared);
	close_node(&crew.node);
}

/*
 * One shared receive queue, one connection per thread; the thread that polls a completion posts the receive
 * again and counts it.
 */
static unsigned counted[THREADS];

static void
take_receives(struct member *member)
{
	struct crew *crew = member->crew;
	struct rpma_cq *receives = NULL;

	OK(rpma_srq_get_rcq(crew->srq, &receives));
	while (__atomic_load_n(&left, __ATOMIC_RELAXED) > 0) {
		struct ibv_wc wc;
		int ret = rpma_cq_get_wc(receives, 1, &wc, NULL);

		if (ret == RPMA_E_NO_COMPLETION)
			continue;
		OK(ret);
		EXPECT(wc.status == IBV_WC_SUCCESS && wc.byte_len == MESSAGE, "status %d, %u bytes", wc.status,
			wc.byte_len);
		const char *message = crew->shared.ptr + wc.wr_id * MESSAGE;
		unsigned from = (unsigned char)message[0];
		EXPECT(from < THREADS, "from %u", from);
		check_bytes(message, MESSAGE, (unsigned char)from, "a message");
		__atomic_fetch_add(&counted[from], 1, __ATOMIC_RELAXED);
		OK(rpma_srq_recv(crew->srq, crew->shared.mr, wc.wr_id * MESSAGE, MESSAGE,
			(void *)(uintptr_t)wc.wr_id));
		__atomic_fetch_sub(&left, 1, __ATOMIC_RELAXED);
	}
}

static void
srq_target(struct side *side)
{
	struct rpma_conn_cfg *cfg = NULL;
	struct rpma_srq_cfg *srq_cfg = NULL;
	struct member members[THREADS];
	struct crew crew;
	const unsigned buffers = 2 * THREADS;

	open_target(&crew.node, side);
	region_new(&crew.node, &crew.shared, SIZE, RPMA_MR_USAGE_RECV);
	OK(rpma_srq_cfg_new(&srq_cfg));
	OK(rpma_srq_cfg_set_rq_size(srq_cfg, buffers));
	OK(rpma_srq_cfg_set_rcq_size(srq_cfg, 2 * buffers));
	OK(rpma_srq_new(crew.node.peer, srq_cfg, &crew.srq));
	OK(rpma_srq_cfg_delete(&srq_cfg));
	for (uintptr_t i = 0; i < buffers; i++)
		OK(rpma_srq_recv(crew.srq, crew.shared.mr, i * MESSAGE, MESSAGE, (void *)i));
	OK(rpma_conn_cfg_new(&cfg));
	OK(rpma_conn_cfg_set_srq(cfg, crew.srq));
	accept_members(members, &crew, cfg);
	OK(rpma_conn_cfg_delete(&cfg));
	left = THREADS * MESSAGES;
	run_all(members, &crew, take_receives);
	notify(side, 'a');
	for (unsigned i = 0; i < THREADS; i++) {
		EXPECT(counted[i] == MESSAGES, "%u messages of thread %u", counted[i], i);
		await_end(&members[i].link);
		region_free(&members[i].region);
	}
	OK(rpma_srq_delete(&crew.srq));
	region_free(&crew.shared);
	close_node(&crew.node);
}

static void
send_messages(struct member *member)
{
	for (unsigned i = 0; i < MESSAGE; i++)
		member->region.ptr[i] = (char)member->index;
	for (uintptr_t i = 0; i < MESSAGES; i++) {
		OK(rpma_send(member->link.conn, member->region.mr, 0, MESSAGE, RPMA_F_COMPLETION_ALWAYS, (void *)i));
		expect_wc(member->link.cq, i, IBV_WC_SEND);
	}
}

static void
srq_initiator(struct side *side)
{
	struct member members[THREADS];
	struct crew crew;

	open_initiator(&crew.node, side);
	connect_members(members, &crew, NULL);
	run_all(members, &crew, send_messages);
	/* over TCP a send completes before the message has arrived */
	await(side, 'a');
	for (unsigned i = 0; i < THREADS; i++) {
		end_link(&members[i].link);
		region_free(&members[i].region);
	}
	close_node(&crew.node);
}

const struct test threads_tests[] = {
	{"threads-own-connections", own_target, own_initiator, .seconds = 40},
	{"threads-registering-at-one-peer", own_target, registering_initiator, .seconds = 40},
	{"threads-one-connection", one_connection_target, one_connection_initiator, .seconds = 40},
	{"threads-one-srq", srq_target, srq_initiator, .seconds = 40},
	{.name = NULL},
};
