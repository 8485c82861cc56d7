/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * spoil.c -- connections through a proxy that resets, delays, truncates and splits the stream and, with CRC
 * on, changes bytes of it.
 *
 * Each connection has a separate region. With each fault, each byte of the region has its old value or that
 * written by the initiator, adjacent memory stays unchanged, each request completes once, flushed data have
 * been placed, and messages arrive unchanged and in order. At the same time another connection, without the
 * proxy, transfers and checks data.
 */
#include "proxy.h"
#include "stress.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define GUARD 4096
#define BLOCK 8192
#define BLOCKS 16
#define SIZE (BLOCK * BLOCKS)
#define MESSAGE 512
#define MESSAGES 8
#define RECEIVES (MESSAGES + 2)
#define WARM_UP 10
#define SOME_MAPPINGS 8
#define SOME_KB 4096

#define DONE (1ull << 63)
#define DIRECT UINT64_MAX /* the number of the connection without the proxy */

#define OLD(number) ((uint32_t)(number) * 2)
#define NEW(number) ((uint32_t)(number) * 2 + 1)

static unsigned
connections(void)
{
	return amount(100, 5000);
}

/* The receives of a connection at the target, from the first to the last; those of messages come first. */
static unsigned
take_messages(struct link *link, const struct region *in, uint64_t number)
{
	unsigned arrived = 0;
	bool flushed = false;

	for (unsigned i = 0; i < RECEIVES; i++) {
		struct ibv_wc wc;

		next_wc(link->cq, &wc);
		EXPECT(wc.wr_id == i, "receive %llu, expected %u", (unsigned long long)wc.wr_id, i);
		if (wc.status != IBV_WC_SUCCESS) {
			flushed = true;
			continue;
		}
		EXPECT(!flushed, "a message after the end");
		EXPECT(wc.opcode == IBV_WC_RECV && wc.byte_len == MESSAGE, "opcode %d, %u bytes", wc.opcode, wc.byte_len);
		check_pattern(in->ptr + i * MESSAGE, MESSAGE, (uint32_t)number * 100 + i, "a message");
		arrived++;
	}
	return arrived;
}

static void
serve_spoilt(struct node *node, struct rpma_conn_req *req, struct region *in, char *memory, uint64_t number, const char *old,
	const char *new)
{
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
	uint64_t deadline = now_ms() + 10000;
	struct region region;
	struct ibv_wc wc;
	struct link link;
	uint64_t confirmed;
	unsigned arrived;

	memcpy(memory + GUARD, old, SIZE);
	region_reg(node, &region, memory + GUARD, SIZE, USAGE_ALL);
	for (uintptr_t i = 0; i < RECEIVES; i++)
		OK(rpma_conn_req_recv(req, in->mr, i * MESSAGE, MESSAGE, (void *)i));
	start_link(&link, &req, &region);
	arrived = take_messages(&link, in, number);
	OK(rpma_conn_next_event(link.conn, &event));
	if (event == RPMA_CONN_ESTABLISHED)
		OK(rpma_conn_next_event(link.conn, &event));
	EXPECT(is_end(event), "%s", rpma_utils_conn_event_2str(event));
	RETURNS(RPMA_E_NO_COMPLETION, rpma_cq_get_wc(link.cq, 1, &wc, NULL));
	OK(rpma_conn_disconnect(link.conn));
	delete_link(&link);
	OK(rpma_mr_dereg(&region.mr));

	check_bytes(memory, GUARD, 0x5a, "the memory before the region");
	check_bytes(memory + GUARD + SIZE, GUARD, 0x5a, "the memory after the region");
	while (!((confirmed = shared->slots[number]) & DONE)) {
		EXPECT(now_ms() < deadline, "the initiator has not detected the end");
		sleep_ms(1);
	}
	for (size_t i = 0; i < SIZE; i++) {
		char byte = memory[GUARD + i];

		EXPECT(byte == new[i] || (byte == old[i] && !(confirmed >> (i / BLOCK) & 1)),
			"connection %llu (%s): byte %zu is 0x%02x, was 0x%02x, 0x%02x was written, %s", (unsigned long long)number,
			spoil_names[shared->counts[number % 64]], i, (unsigned char)byte, (unsigned char)old[i], (unsigned char)new[i],
			confirmed >> (i / BLOCK) & 1 ? "and flushed" : "not flushed");
	}
	/* a reply to the last request means that all messages have arrived */
	EXPECT(!(confirmed >> 32 & 1) || arrived == MESSAGES, "%u of %u messages", arrived, MESSAGES);
}

static void
spoilt_target(struct side *side, bool changes)
{
	char *memory = pages(SIZE + 2 * GUARD);
	char *old = pages(SIZE);
	char *new = pages(SIZE);
	struct census before = {0};
	struct region direct;
	struct region in;
	struct node node;
	struct link link;
	unsigned served = 0;

	setenv("SOFTVERBS_CRC", changes ? "1" : "0", 1);
	reset_shared();
	memset(memory, 0x5a, SIZE + 2 * GUARD);
	open_target(&node, side);
	region_new(&node, &direct, SIZE, USAGE_ALL);
	region_new(&node, &in, RECEIVES * MESSAGE, RPMA_MR_USAGE_RECV);
	accept_link(&node, &link, NULL, &direct);
	while (!shared->over || readable(ep_fd(node.ep), 300)) {
		struct rpma_conn_private_data pdata;
		struct rpma_conn_req *req;
		uint64_t number;

		if (!readable(ep_fd(node.ep), 100))
			continue;
		if (served++ == WARM_UP)
			before = take_census();
		req = next_req(&node, NULL);
		OK(rpma_conn_req_get_private_data(req, &pdata));
		/*
		 * without the flag of the enhanced handshake, its four bytes are at the beginning of the
		 * private data
		 */
		EXPECT(pdata.ptr != NULL && pdata.len >= sizeof(number), "private data of %u bytes", pdata.len);
		memcpy(&number, (char *)pdata.ptr + pdata.len - sizeof(number), sizeof(number));
		EXPECT(number < connections());
		EXPECT(pdata.len == sizeof(number) || spoil_of(number, changes) == SPOIL_HANDSHAKE, "private data of %u bytes", pdata.len);
		fill_pattern(old, SIZE, OLD(number));
		fill_pattern(new, SIZE, NEW(number));
		serve_spoilt(&node, req, &in, memory, number, old, new);
	}
	expect_no_growth("target", &before, SOME_MAPPINGS, SOME_KB);
	await_end(&link);
	region_free(&in);
	region_free(&direct);
	close_node(&node);
}

/* The other connection: writes, flushes and reads back until the main thread stops it. */
struct other {
	struct node *node;
	struct link link;
	struct region out;
	struct region back;
	unsigned rounds;
	_Atomic bool stop;
};

static void *
run_other(void *arg)
{
	struct other *other = arg;

	while (!other->stop) {
		fill_pattern(other->out.ptr, SIZE, other->rounds);
		write_part(&other->link, 0, &other->out, 0, SIZE);
		OK(rpma_flush(other->link.conn, other->link.remote, 0, SIZE, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS,
			(void *)5));
		expect_wc(other->link.cq, 5, IBV_WC_RDMA_READ);
		read_part(&other->link, &other->back, 0, 0, SIZE);
		check_pattern(other->back.ptr, SIZE, other->rounds++, "the other connection");
		sleep_ms(5);
	}
	return NULL;
}

enum kind { WRITE, FLUSH, READ, SEND, KINDS };
#define REQUESTS (BLOCKS * 3 + MESSAGES)

/* The requests of a connection; the number of one is its wr_id. */
static int
post(struct link *link, struct region *out, struct region *back, unsigned i)
{
	size_t at = i / 3 * BLOCK;

	if (i >= BLOCKS * 3)
		return rpma_send(link->conn, out->mr, SIZE + (i - BLOCKS * 3) * MESSAGE, MESSAGE, RPMA_F_COMPLETION_ALWAYS,
			(void *)(uintptr_t)i);
	switch (i % 3) {
	case WRITE:
		return rpma_write(link->conn, link->remote, at, out->mr, at, BLOCK, RPMA_F_COMPLETION_ALWAYS, (void *)(uintptr_t)i);
	case FLUSH:
		return rpma_flush(link->conn, link->remote, at, BLOCK, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS,
			(void *)(uintptr_t)i);
	default:
		return rpma_read(link->conn, back->mr, at, link->remote, at, BLOCK, RPMA_F_COMPLETION_ALWAYS, (void *)(uintptr_t)i);
	}
}

/*
 * Uses a connection. Returns which blocks were flushed; bit 32: the target has replied to the last request. A
 * changed flag of the handshake may move the private data, and thus the descriptor in them: then a call may
 * be refused.
 */
static uint64_t
use_spoilt(struct link *link, enum spoil how, struct region *out, struct region *back, unsigned *completed)
{
	bool pending[REQUESTS + 1] = {false};
	uint64_t confirmed = 0;
	unsigned under_way = 0;
	unsigned posted = 0;
	bool broken = false;
	struct ibv_wc wc;

	memset(back->ptr, 0, SIZE);
	while (under_way > 0 || (!broken && posted <= REQUESTS)) {
		if (!broken && posted <= REQUESTS && under_way < 8) {
			/* the last one is a read, which completes after all others */
			int ret = posted < REQUESTS ? post(link, out, back, posted)
						    : rpma_read(link->conn, back->mr, 0, link->remote, 0, BLOCK,
							      RPMA_F_COMPLETION_ALWAYS, (void *)(uintptr_t)posted);

			if (ret == 0) {
				pending[posted++] = true;
				under_way++;
			} else {
				EXPECT(ret == RPMA_E_PROVIDER || (how == SPOIL_HANDSHAKE && ret == RPMA_E_NOSUPP), "%s: %d", spoil_names[how],
					ret);
				broken = true;
			}
			continue;
		}
		next_wc(link->cq, &wc);
		EXPECT(wc.wr_id < posted && pending[wc.wr_id], "request %llu completed twice, or was not posted",
			(unsigned long long)wc.wr_id);
		pending[wc.wr_id] = false;
		under_way--;
		*completed += 1;
		if (wc.status != IBV_WC_SUCCESS) {
			broken = true;
			continue;
		}
		if (wc.wr_id == REQUESTS)
			confirmed |= 1ull << 32;
		else if (wc.wr_id < BLOCKS * 3 && wc.wr_id % 3 == FLUSH)
			confirmed |= 1ull << wc.wr_id / 3;
		else if (wc.wr_id < BLOCKS * 3 && wc.wr_id % 3 == READ)
			EXPECT(memcmp(back->ptr + wc.wr_id / 3 * BLOCK, out->ptr + wc.wr_id / 3 * BLOCK, BLOCK) == 0,
				"block %llu was read successfully, with wrong content", (unsigned long long)wc.wr_id / 3);
	}
	RETURNS(RPMA_E_NO_COMPLETION, rpma_cq_get_wc(link->cq, 1, &wc, NULL));
	return confirmed;
}

static void
spoilt_initiator(struct side *side, bool changes)
{
	struct rpma_conn_cfg *cfg = sizes(64, 32, 0, 0);
	unsigned whole[SPOILS] = {0};
	unsigned all[SPOILS] = {0};
	struct census before = {0};
	struct side through = *side;
	unsigned completed = 0;
	struct other other = {0};
	struct region back;
	struct region out;
	struct node node;
	struct node spoilt;
	pthread_t thread;
	pid_t proxy;
	uint64_t began;

	setenv("SOFTVERBS_CRC", changes ? "1" : "0", 1);
	await(side, 'L');
	proxy = start_proxy(side->port, through.port, changes);
	open_peer(&node, side);
	open_peer(&spoilt, &through);
	other.node = &node;
	region_new(&node, &other.out, SIZE, USAGE_ALL);
	region_new(&node, &other.back, SIZE, USAGE_ALL);
	connect_link(&node, &other.link, NULL, NULL);
	EXPECT(pthread_create(&thread, NULL, run_other, &other) == 0);
	region_new(&spoilt, &out, SIZE + MESSAGES * MESSAGE, USAGE_ALL);
	region_new(&spoilt, &back, SIZE, USAGE_ALL);
	began = now_ms();
	for (uint64_t number = 0; number < connections(); number++) {
		enum spoil how = spoil_of(number, changes);
		uint64_t confirmed = 0;
		struct link link;

		if (number == WARM_UP)
			before = take_census();
		fill_pattern(out.ptr, SIZE, NEW(number));
		for (unsigned i = 0; i < MESSAGES; i++)
			fill_pattern(out.ptr + SIZE + i * MESSAGE, MESSAGE, (uint32_t)number * 100 + i);
		shared->counts[number % 64] = how;
		all[how]++;
		if (try_connect(&spoilt, &link, cfg, &number, sizeof(number))) {
			if (link.remote != NULL)
				confirmed = use_spoilt(&link, how, &out, &back, &completed);
			OK(rpma_conn_disconnect(link.conn));
			expect_broken(&link);
			delete_link(&link);
		}
		whole[how] += confirmed >> 32 & 1;
		/* delays and splits must not end the connection */
		EXPECT(how > SPOIL_DELAY || confirmed >> 32 & 1, "connection %llu (%s) has ended", (unsigned long long)number,
			spoil_names[how]);
		shared->slots[number] = confirmed | DONE;
	}
	shared->over = true;
	other.stop = true;
	pthread_join(thread, NULL);
	/* the stack of the thread is a mapping until the thread has ended */
	figures("     %u connections in %llu ms, %u requests completed exactly once, %u rounds of the other connection", connections(),
		(unsigned long long)(now_ms() - began), completed, other.rounds);
	for (unsigned i = 0; i < SPOILS; i++)
		if (all[i] > 0)
			figures("     %-10s %4u connections, %4u of them have completed all requests", spoil_names[i], all[i], whole[i]);
	expect_no_growth("initiator", &before, SOME_MAPPINGS, SOME_KB);
	EXPECT(kill(proxy, SIGKILL) == 0 && waitpid(proxy, NULL, 0) == proxy);
	end_link(&other.link);
	OK(rpma_conn_cfg_delete(&cfg));
	region_free(&other.out);
	region_free(&other.back);
	region_free(&out);
	region_free(&back);
	close_node(&node);
	close_node(&spoilt);
}

static void
changed_target(struct side *side)
{
	spoilt_target(side, true);
}

static void
changed_initiator(struct side *side)
{
	spoilt_initiator(side, true);
}

static void
broken_target(struct side *side)
{
	spoilt_target(side, false);
}

static void
broken_initiator(struct side *side)
{
	spoilt_initiator(side, false);
}

const struct test spoil_tests[] = {
	{"proxy-breaks-streams", broken_target, broken_initiator, .seconds = 40},
	{"proxy-changes-streams-with-crc", changed_target, changed_initiator, .seconds = 40},
	{.name = NULL},
};
