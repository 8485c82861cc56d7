/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mixed.c -- operations of all kinds, in random order, over several short-lived connections, for a set time.
 * A copy of the remote memory contains the expected results.
 */
#include "stress.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINKS 6
#define SIZE (256 << 10)
#define SLOT 16384
#define WINDOW 16
#define MESSAGE 2048
#define RECEIVES 16
#define SOME_MAPPINGS 8
#define SOME_KB 8192

/* The target: a thread for each connection sends back each message. */
struct echo {
	struct node *node;
	struct rpma_conn_req *req;
	struct region *region;
	struct region *buffers;
};

#define A_SEND 1000

static void *
run_echo(void *arg)
{
	struct echo *echo = arg;
	unsigned receives = RECEIVES;
	unsigned sends = 0;
	struct link link;

	for (uintptr_t i = 0; i < RECEIVES; i++)
		OK(rpma_conn_req_recv(echo->req, echo->buffers->mr, i * MESSAGE, MESSAGE, (void *)i));
	start_link(&link, &echo->req, echo->region);
	/*
	 * not finish_link(): the initiator offers no region; its private data are the number of the
	 * connection
	 */
	expect_event(&link, RPMA_CONN_ESTABLISHED);
	while (receives + sends > 0) {
		struct ibv_wc wc;

		next_wc(link.cq, &wc);
		*(wc.wr_id >= A_SEND ? &sends : &receives) -= 1;
		if (wc.status != IBV_WC_SUCCESS)
			continue;
		if (wc.wr_id >= A_SEND) {
			if (rpma_recv(link.conn, echo->buffers->mr, (wc.wr_id - A_SEND) * MESSAGE, MESSAGE,
				    (void *)(uintptr_t)(wc.wr_id - A_SEND)) == 0)
				receives++;
		} else if (rpma_send(link.conn, echo->buffers->mr, wc.wr_id * MESSAGE, wc.byte_len, RPMA_F_COMPLETION_ALWAYS,
				   (void *)(uintptr_t)(A_SEND + wc.wr_id)) == 0)
			sends++;
	}
	await_end(&link);
	return NULL;
}

static void
mixed_target(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(4 * RECEIVES, RECEIVES, RECEIVES, 0);
	struct region regions[LINKS];
	struct region buffers[LINKS];
	struct echo echoes[LINKS] = {{0}};
	pthread_t threads[LINKS];
	struct census before = {0};
	struct node node;
	unsigned served = 0;

	reset_shared();
	open_target(&node, side);
	for (unsigned i = 0; i < LINKS; i++) {
		region_new(&node, &regions[i], SIZE, USAGE_ALL);
		region_new(&node, &buffers[i], RECEIVES * MESSAGE, RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV);
	}
	while (!shared->over) {
		struct rpma_conn_private_data pdata;
		struct rpma_conn_req *req;
		unsigned i;

		if (!readable(ep_fd(node.ep), 100))
			continue;
		req = next_req(&node, cfg);
		OK(rpma_conn_req_get_private_data(req, &pdata));
		EXPECT(pdata.len == 1);
		i = *(unsigned char *)pdata.ptr;
		/* the previous connection has ended at the other side, so it is about to end here */
		if (echoes[i].node != NULL)
			pthread_join(threads[i], NULL);
		if (++served == 3 * LINKS)
			before = take_census();
		echoes[i] = (struct echo){&node, req, &regions[i], &buffers[i]};
		EXPECT(pthread_create(&threads[i], NULL, run_echo, &echoes[i]) == 0);
	}
	for (unsigned i = 0; i < LINKS; i++)
		pthread_join(threads[i], NULL);
	EXPECT(served > 3 * LINKS, "%u", served);
	expect_no_growth("target", &before, SOME_MAPPINGS, SOME_KB);
	OK(rpma_conn_cfg_delete(&cfg));
	for (unsigned i = 0; i < LINKS; i++) {
		region_free(&regions[i]);
		region_free(&buffers[i]);
	}
	close_node(&node);
}

enum kind { WRITE, WRITE_UNSIGNALLED, READ, ATOMIC_WRITE, FLUSH_VISIBILITY, FLUSH_PERSISTENT, SEND, KINDS };

struct request {
	enum kind kind;
	size_t at;
	size_t len;
	char expected[SLOT]; /* by a read, or in the message that is sent back */
	bool pending;
	bool answered;
};

/* A connection of the initiator, and the expected content of the memory of its peer. */
struct user {
	struct link link;
	struct region slots; /* WINDOW slots for requests, then as many for messages that are sent back */
	char *copy;
	struct request *requests;
	bool up;
};

static unsigned long long done[KINDS];

static void
fill_random(struct rng *rng, char *to, size_t len)
{
	for (size_t i = 0; i < len; i++)
		to[i] = (char)(i % 8 == 0 ? rng_next(rng) >> 20 : (uint64_t)to[i - 1] * 31 + 7);
}

/* A later write may overtake the response to a read, so memory that is being read is not written. */
static bool
being_read(const struct user *user, unsigned n, size_t at, size_t len)
{
	for (unsigned i = 0; i < n; i++) {
		const struct request *other = &user->requests[i];

		if (other->kind == READ && at < other->at + other->len && other->at < at + len)
			return true;
	}
	return false;
}

static bool
post_one(struct user *user, struct rng *rng, unsigned i)
{
	struct request *request = &user->requests[i];
	struct link *link = &user->link;
	char *slot = user->slots.ptr + i * SLOT;
	void *id = (void *)(uintptr_t)i;
	size_t len = 1 + rng_below(rng, rng_below(rng, 3) == 0 ? SLOT : 256);
	size_t at = rng_below(rng, SIZE - len + 1);

	request->kind = (enum kind)rng_below(rng, KINDS);
	if (request->kind == ATOMIC_WRITE) {
		at = at / 8 * 8;
		len = 8;
	}
	/* a flush reads eight bytes, whatever its length */
	if ((request->kind == FLUSH_VISIBILITY || request->kind == FLUSH_PERSISTENT) && at > SIZE - 8)
		at = SIZE - 8;
	if ((request->kind == WRITE || request->kind == WRITE_UNSIGNALLED || request->kind == ATOMIC_WRITE) &&
		being_read(user, i, at, len)) {
		request->kind = FLUSH_VISIBILITY;
		at = at > SIZE - 8 ? SIZE - 8 : at;
	}
	request->pending = request->kind != WRITE_UNSIGNALLED;
	request->answered = request->kind != SEND;
	switch (request->kind) {
	case WRITE:
	case WRITE_UNSIGNALLED:
		fill_random(rng, slot, len);
		memcpy(user->copy + at, slot, len);
		OK(rpma_write(link->conn, link->remote, at, user->slots.mr, i * SLOT, len,
			request->pending ? RPMA_F_COMPLETION_ALWAYS : RPMA_F_COMPLETION_ON_ERROR, id));
		break;
	case READ:
		memcpy(request->expected, user->copy + at, len);
		OK(rpma_read(link->conn, user->slots.mr, i * SLOT, link->remote, at, len, RPMA_F_COMPLETION_ALWAYS, id));
		break;
	case ATOMIC_WRITE:
		fill_random(rng, slot, 8);
		memcpy(user->copy + at, slot, 8);
		OK(rpma_atomic_write(link->conn, link->remote, at, slot, RPMA_F_COMPLETION_ALWAYS, id));
		break;
	case FLUSH_VISIBILITY:
		OK(rpma_flush(link->conn, link->remote, at, len, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS, id));
		break;
	case FLUSH_PERSISTENT:
		OK(rpma_flush(link->conn, link->remote, at, len, RPMA_FLUSH_TYPE_PERSISTENT, RPMA_F_COMPLETION_ALWAYS, id));
		break;
	default:
		len = 1 + len % MESSAGE;
		fill_random(rng, slot, len);
		memcpy(request->expected, slot, len);
		/*
		 * messages are sent back in the order of their arrival: the receives are numbered in that
		 * order
		 */
		OK(rpma_recv(link->conn, user->slots.mr, (WINDOW + i) * SLOT, MESSAGE, (void *)(uintptr_t)(WINDOW + i)));
		OK(rpma_send(link->conn, user->slots.mr, i * SLOT, len, RPMA_F_COMPLETION_ALWAYS, id));
	}
	request->at = at;
	request->len = len;
	return request->pending;
}

static void
check_one(struct user *user, const struct ibv_wc *wc)
{
	unsigned i = (unsigned)wc->wr_id % WINDOW;
	struct request *request = &user->requests[i];

	EXPECT(wc->status == IBV_WC_SUCCESS && wc->wr_id < 2 * WINDOW, "status %d of request %llu", wc->status,
		(unsigned long long)wc->wr_id);
	if (wc->wr_id >= WINDOW) {
		EXPECT(request->kind == SEND && !request->answered && wc->byte_len == request->len, "a message of %u bytes",
			wc->byte_len);
		EXPECT(memcmp(user->slots.ptr + (WINDOW + i) * SLOT, request->expected, request->len) == 0, "the content of a message is wrong");
		request->answered = true;
		return;
	}
	EXPECT(request->pending, "request %u completed twice", i);
	request->pending = false;
	if (request->kind == READ)
		EXPECT(memcmp(user->slots.ptr + i * SLOT, request->expected, request->len) == 0, "%zu bytes were read, with wrong content",
			request->len);
}

/* Posts some requests at once, and waits until all have completed. */
static void
use_some(struct user *user, struct rng *rng)
{
	unsigned n = 1 + (unsigned)rng_below(rng, WINDOW);
	unsigned expected = 0;

	for (unsigned i = 0; i < n; i++) {
		expected += post_one(user, rng, i);
		expected += user->requests[i].kind == SEND;
		done[user->requests[i].kind]++;
	}
	while (expected-- > 0) {
		struct ibv_wc wc;

		next_wc(user->link.cq, &wc);
		check_one(user, &wc);
	}
	/* the slots of unsignalled requests are in use until a later request has completed */
	read_part(&user->link, &user->slots, WINDOW * SLOT, 0, 1);
}

static void
mixed_initiator(struct side *side)
{
	const unsigned seconds = amount(5, 600);
	struct rpma_conn_cfg *cfg = sizes(4 * WINDOW, 2 * WINDOW, WINDOW, 0);
	uint64_t deadline = now_ms() + 1000ull * seconds;
	struct rng rng = rng_of("mixed", 0);
	struct user users[LINKS] = {{{0}}};
	struct census before = {0};
	unsigned connected = 0;
	unsigned rounds = 0;
	struct node node;

	open_initiator(&node, side);
	for (unsigned i = 0; i < LINKS; i++) {
		region_new(&node, &users[i].slots, 2 * WINDOW * SLOT, USAGE_ALL);
		users[i].copy = pages(SIZE);
		users[i].requests = pages(WINDOW * sizeof(struct request));
	}
	for (; now_ms() < deadline || connected <= 4 * LINKS; rounds++) {
		unsigned char i = (unsigned char)rng_below(&rng, LINKS);

		if (!users[i].up) {
			EXPECT(try_connect(&node, &users[i].link, cfg, &i, 1), "connection %u", i);
			users[i].up = true;
			if (++connected == 3 * LINKS)
				before = take_census();
		}
		use_some(&users[i], &rng);
		if (rng_below(&rng, 40) == 0) {
			end_link(&users[i].link);
			users[i].up = false;
		}
	}
	for (unsigned char i = 0; i < LINKS; i++) {
		if (!users[i].up)
			EXPECT(try_connect(&node, &users[i].link, cfg, &i, 1), "connection %u", i);
		for (size_t at = 0; at < SIZE; at += SLOT) {
			read_part(&users[i].link, &users[i].slots, 0, at, SLOT);
			EXPECT(memcmp(users[i].slots.ptr, users[i].copy + at, SLOT) == 0, "the memory at the end, from %zu", at);
		}
		end_link(&users[i].link);
	}
	shared->over = true;
	figures("     %u s: %u rounds over %u connections: %llu writes, %llu unsignalled writes, %llu reads, %llu atomic writes, "
		"%llu and %llu flushes, %llu messages to and fro", seconds, rounds, connected, done[WRITE], done[WRITE_UNSIGNALLED],
		done[READ], done[ATOMIC_WRITE], done[FLUSH_VISIBILITY], done[FLUSH_PERSISTENT], done[SEND]);
	expect_no_growth("initiator", &before, SOME_MAPPINGS, SOME_KB);
	OK(rpma_conn_cfg_delete(&cfg));
	for (unsigned i = 0; i < LINKS; i++)
		region_free(&users[i].slots);
	close_node(&node);
}

const struct test mixed_tests[] = {
	{"load-mixed", mixed_target, mixed_initiator, .seconds = 40},
	{.name = NULL},
};
