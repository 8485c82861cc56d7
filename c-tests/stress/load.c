/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * load.c -- large numbers of connections, one after another and at once, of memory regions, and of messages
 * for a slow reader.
 */
#include "stress.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define SIZE 4096
#define WARM_UP 50
/* growth by the C library's allocator while connections are created and deleted */
#define SOME_MAPPINGS 8
#define SOME_KB 4096

/* Connections one after another, each with a write that is checked. */
static void
cycles_target(struct side *side)
{
	const unsigned cycles = WARM_UP + amount(1500, 100000);
	struct census before = {0};
	struct region region;
	struct node node;
	struct link link;

	open_target(&node, side);
	region_new(&node, &region, SIZE, RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_READ_SRC);
	for (unsigned i = 0; i < cycles; i++) {
		if (i == WARM_UP)
			before = take_census();
		accept_link(&node, &link, NULL, &region);
		await_end(&link);
		check_pattern(region.ptr, 64, i, "what a connection has written");
	}
	expect_no_growth("target", &before, SOME_MAPPINGS, SOME_KB);
	region_free(&region);
	close_node(&node);
}

static void
cycles_initiator(struct side *side)
{
	const unsigned cycles = WARM_UP + amount(1500, 100000);
	uint64_t began = now_ms();
	struct census before = {0};
	struct region local;
	struct node node;
	struct link link;

	open_initiator(&node, side);
	region_new(&node, &local, SIZE, RPMA_MR_USAGE_WRITE_SRC);
	for (unsigned i = 0; i < cycles; i++) {
		if (i == WARM_UP)
			before = take_census();
		connect_link(&node, &link, NULL, NULL);
		fill_pattern(local.ptr, 64, i);
		write_part(&link, 0, &local, 0, 64);
		end_link(&link);
	}
	figures("     %u connections set up, used and ended in %llu ms", cycles, (unsigned long long)(now_ms() - began));
	expect_no_growth("initiator", &before, SOME_MAPPINGS, SOME_KB);
	region_free(&local);
	close_node(&node);
}

/*
 * Many connections at once, each of which writes and reads back its own range, several times. All passes do
 * the same: memory that the C library retains after the first half suffices for the second one.
 */
#define PASSES 8
#define ROUNDS 3
/* A connection needs ten times as much, and half of the passes would leak it once each. */
#define FRAGMENTS_KB 32

static unsigned
links_at_once(void)
{
	return amount(150, 1000);
}

static void
at_once_target(struct side *side)
{
	const unsigned n = links_at_once();
	struct link *links = calloc(n, sizeof(*links));
	struct census before = {0};
	struct region region;
	struct node node;

	many_descriptors(4096);
	EXPECT(links != NULL);
	open_target(&node, side);
	region_new(&node, &region, n * 64, RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_READ_SRC);
	for (unsigned pass = 0; pass < PASSES; pass++) {
		for (unsigned i = 0; i < n; i++)
			accept_link(&node, &links[i], NULL, &region);
		for (unsigned i = 0; i < n; i++)
			await_end(&links[i]);
		for (unsigned i = 0; i < n; i++)
			check_pattern(region.ptr + i * 64, 64, ROUNDS * n + i, "what a connection has written last");
		if (pass == PASSES / 2 - 1)
			before = take_census();
	}
	expect_no_growth("target", &before, SOME_MAPPINGS, SOME_KB + n * FRAGMENTS_KB);
	region_free(&region);
	close_node(&node);
	free(links);
}

static void
use_all(struct link *links, unsigned n, struct region *local, unsigned round)
{
	for (unsigned i = 0; i < n; i++) {
		fill_pattern(local->ptr + i * 64, 64, round * n + i);
		OK(rpma_write(links[i].conn, links[i].remote, i * 64, local->mr, i * 64, 64, RPMA_F_COMPLETION_ALWAYS,
			(void *)(uintptr_t)i));
	}
	for (unsigned i = 0; i < n; i++)
		expect_wc(links[i].cq, i, IBV_WC_RDMA_WRITE);
	memset(local->ptr, 0, n * 64);
	for (unsigned i = 0; i < n; i++)
		OK(rpma_read(links[i].conn, local->mr, i * 64, links[i].remote, i * 64, 64, RPMA_F_COMPLETION_ALWAYS,
			(void *)(uintptr_t)i));
	for (unsigned i = 0; i < n; i++) {
		expect_wc(links[i].cq, i, IBV_WC_RDMA_READ);
		check_pattern(local->ptr + i * 64, 64, round * n + i, "what was read back");
	}
}

static void
at_once_initiator(struct side *side)
{
	const unsigned n = links_at_once();
	struct link *links = calloc(n, sizeof(*links));
	struct census before = {0};
	uint64_t began = now_ms();
	struct region local;
	struct node node;

	many_descriptors(4096);
	EXPECT(links != NULL);
	open_initiator(&node, side);
	region_new(&node, &local, n * 64, RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_READ_DST);
	for (unsigned pass = 0; pass < PASSES; pass++) {
		for (unsigned i = 0; i < n; i++)
			connect_link(&node, &links[i], NULL, NULL);
		for (unsigned round = 1; round <= ROUNDS; round++)
			use_all(links, n, &local, round);
		for (unsigned i = 0; i < n; i++)
			end_link(&links[i]);
		if (pass == PASSES / 2 - 1)
			before = take_census();
	}
	figures("     %u times %u connections at once, %u operations checked in %llu ms", PASSES, n, PASSES * 2 * ROUNDS * n,
		(unsigned long long)(now_ms() - began));
	expect_no_growth("initiator", &before, SOME_MAPPINGS, SOME_KB + n * FRAGMENTS_KB);
	region_free(&local);
	close_node(&node);
	free(links);
}

/*
 * Many adjacent regions in one range of memory. The other side writes to some, and no other byte changes. All
 * are registered twice, so that the second time shows whether the first one has leaked something.
 */
#define PIECE 64
#define TRIED 200
#define MARK 0xa5

static void
regions_target(struct side *side)
{
	const unsigned n = amount(20000, 100000);
	const size_t size = (size_t)n * PIECE;
	struct rpma_mr_local **mrs = calloc(n, sizeof(*mrs));
	struct census before = {0};
	struct node node;
	struct link link;
	char *expected;
	char *memory;

	EXPECT(mrs != NULL);
	open_target(&node, side);
	memory = pages(size);
	expected = pages(size);
	accept_link(&node, &link, NULL, NULL);
	for (unsigned round = 0; round < 2; round++) {
		struct rng rng = rng_of("regions", round);

		fill_pattern(memory, size, round);
		fill_pattern(expected, size, round);
		for (unsigned i = 0; i < n; i++)
			OK(rpma_mr_reg(node.peer, memory + (size_t)i * PIECE, PIECE, RPMA_MR_USAGE_WRITE_DST, &mrs[i]));
		for (unsigned i = 0; i < TRIED; i++) {
			size_t which = rng_below(&rng, n);
			char descriptor[DESCRIPTOR_SIZE];

			OK(rpma_mr_get_descriptor(mrs[which], descriptor));
			EXPECT(write(side->sync, descriptor, sizeof(descriptor)) == sizeof(descriptor));
			expected[which * PIECE + round] = (char)MARK;
		}
		await(side, 'w');
		for (unsigned i = 0; i < n; i++)
			OK(rpma_mr_dereg(&mrs[i]));
		EXPECT(memcmp(memory, expected, size) == 0, "bytes have changed that were not written");
		if (round == 0)
			before = take_census();
	}
	expect_no_growth("target", &before, SOME_MAPPINGS, SOME_KB);
	await_end(&link);
	figures("     %u regions registered twice, %u of them written to each time", n, TRIED);
	EXPECT(munmap(memory, size) == 0 && munmap(expected, size) == 0);
	close_node(&node);
	free(mrs);
}

static void
regions_initiator(struct side *side)
{
	struct region local;
	struct node node;
	struct link link;

	open_initiator(&node, side);
	region_new(&node, &local, SIZE, RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_READ_DST);
	local.ptr[0] = (char)MARK;
	connect_link(&node, &link, NULL, NULL);
	for (unsigned round = 0; round < 2; round++) {
		struct rpma_mr_remote *remote = NULL;

		for (unsigned i = 0; i < TRIED; i++) {
			char descriptor[DESCRIPTOR_SIZE];

			EXPECT(recv(side->sync, descriptor, sizeof(descriptor), MSG_WAITALL) == sizeof(descriptor));
			OK(rpma_mr_remote_from_descriptor(descriptor, sizeof(descriptor), &remote));
			OK(rpma_write(link.conn, remote, round, local.mr, 0, 1, RPMA_F_COMPLETION_ALWAYS, NULL));
			expect_wc(link.cq, 0, IBV_WC_RDMA_WRITE);
			if (i + 1 < TRIED)
				OK(rpma_mr_remote_delete(&remote));
		}
		/* an empty read of the last region completes after all writes */
		OK(rpma_read(link.conn, NULL, 0, NULL, 0, 0, RPMA_F_COMPLETION_ALWAYS, (void *)1));
		expect_wc(link.cq, 1, IBV_WC_RDMA_READ);
		OK(rpma_mr_remote_delete(&remote));
		notify(side, 'w');
	}
	end_link(&link);
	region_free(&local);
	close_node(&node);
}

/*
 * A slow reader: receives are posted one by one, with pauses, while the other side sends as fast as its queue
 * takes. Each message arrives, in order; each request completes once; and the memory of neither side grows
 * with the messages that wait.
 */
#define SENDS 64
#define MESSAGE 4096

static void
slow_target(struct side *side)
{
	const unsigned n = amount(600, 20000);
	struct rng rng = rng_of("slow reader", 0);
	struct census before = {0};
	struct region in;
	struct node node;
	struct link link;

	open_target(&node, side);
	region_new(&node, &in, MESSAGE, RPMA_MR_USAGE_RECV);
	accept_link(&node, &link, NULL, NULL);
	for (unsigned i = 0; i < n; i++) {
		if (rng_below(&rng, 4) == 0)
			sleep_ms((unsigned)rng_below(&rng, 10));
		OK(rpma_recv(link.conn, in.mr, 0, MESSAGE, (void *)(uintptr_t)i));
		expect_wc(link.cq, i, IBV_WC_RECV);
		check_pattern(in.ptr, MESSAGE, i, "a message");
		if (i == 20)
			before = take_census();
	}
	expect_no_growth("target", &before, SOME_MAPPINGS, SOME_KB);
	await_end(&link);
	region_free(&in);
	close_node(&node);
}

static void
slow_initiator(struct side *side)
{
	const unsigned n = amount(600, 20000);
	struct rpma_conn_cfg *cfg = sizes(SENDS, SENDS, 0, 0);
	uint64_t began = now_ms();
	struct census before = {0};
	struct region out;
	struct node node;
	struct link link;
	unsigned done = 0;

	open_initiator(&node, side);
	region_new(&node, &out, SENDS * MESSAGE, RPMA_MR_USAGE_SEND);
	connect_link(&node, &link, cfg, NULL);
	OK(rpma_conn_cfg_delete(&cfg));
	for (unsigned i = 0; i < n; i++) {
		if (i >= SENDS)
			expect_wc(link.cq, done++, IBV_WC_SEND);
		if (i == 2 * SENDS)
			before = take_census();
		fill_pattern(out.ptr + i % SENDS * MESSAGE, MESSAGE, i);
		OK(rpma_send(link.conn, out.mr, i % SENDS * MESSAGE, MESSAGE, RPMA_F_COMPLETION_ALWAYS, (void *)(uintptr_t)i));
	}
	while (done < n)
		expect_wc(link.cq, done++, IBV_WC_SEND);
	expect_no_wc(link.cq);
	expect_no_growth("initiator", &before, SOME_MAPPINGS, SOME_KB);
	figures("     %u messages for a slow reader in %llu ms", n, (unsigned long long)(now_ms() - began));
	end_link(&link);
	region_free(&out);
	close_node(&node);
}

const struct test load_tests[] = {
	{"load-connections-one-after-another", cycles_target, cycles_initiator, .seconds = 40},
	{"load-connections-at-once", at_once_target, at_once_initiator, .seconds = 40},
	{"load-regions", regions_target, regions_initiator, .seconds = 40},
	{"load-slow-reader", slow_target, slow_initiator, .seconds = 40},
	{.name = NULL},
};
