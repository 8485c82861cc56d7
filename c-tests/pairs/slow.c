/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * slow.c -- a slow storage medium: which operations wait for it, and which do not.
 *
 * This program's msync() overrides libc's, so the tests determine how long it takes.
 */
#include "link.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SIZE 4096
#define GIVE_UP_MS 10000

enum medium { QUICK, SLOW, HELD };
static _Atomic enum medium medium = QUICK;
static _Atomic unsigned synced;
static _Atomic unsigned holding;
static const char *_Atomic watched; /* an address, and how often msync() covered it */
static _Atomic unsigned watched_synced;

int
msync(void *addr, size_t len, int flags)
{
	if (flags & MS_SYNC) {
		if (medium == SLOW)
			sleep_ms(5);
		holding++;
		for (unsigned ms = 0; medium == HELD && ms < GIVE_UP_MS; ms++)
			sleep_ms(1);
		holding--;
		synced++;
		if ((char *)addr <= watched && watched < (char *)addr + len)
			watched_synced++;
	}
	return (int)syscall(SYS_msync, addr, len, flags);
}

static void
await_hold(void)
{
	for (unsigned ms = 0; holding == 0; ms++) {
		EXPECT(ms < GIVE_UP_MS, "msync() was not called");
		sleep_ms(1);
	}
}

/* Two connections: one to memory on the slow medium, the other one to ordinary memory. */
struct links {
	struct node node;
	struct region durable;
	struct region plain;
	struct link to_durable;
	struct link to_plain;
};

static void
accept_both(struct links *links, struct side *side)
{
	open_target(&links->node, side);
	region_new(&links->node, &links->durable, SIZE, RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT);
	region_new(&links->node, &links->plain, SIZE, RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_READ_SRC);
	accept_link(&links->node, &links->to_durable, NULL, &links->durable);
	accept_link(&links->node, &links->to_plain, NULL, &links->plain);
	/* one flush to show that the medium is slow */
	medium = SLOW;
	notify(side, 's');
	await(side, 's');
	EXPECT(synced == 1, "%u", synced);
	medium = HELD;
	notify(side, 'h');
}

static void
flush_write(struct links *links, uint32_t seed)
{
	fill_pattern(links->durable.ptr, SIZE, seed);
	OK(rpma_write(links->to_durable.conn, links->to_durable.remote, 0, links->durable.mr, 0, SIZE,
		RPMA_F_COMPLETION_ON_ERROR, NULL));
	OK(rpma_flush(links->to_durable.conn, links->to_durable.remote, 0, SIZE, RPMA_FLUSH_TYPE_PERSISTENT,
		RPMA_F_COMPLETION_ALWAYS, (void *)(uintptr_t)seed));
}

static void
connect_both(struct links *links, struct side *side)
{
	open_initiator(&links->node, side);
	region_new(&links->node, &links->durable, SIZE, RPMA_MR_USAGE_WRITE_SRC);
	region_new(&links->node, &links->plain, SIZE, RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_READ_DST);
	connect_link(&links->node, &links->to_durable, NULL, NULL);
	connect_link(&links->node, &links->to_plain, NULL, NULL);
	await(side, 's');
	flush_write(links, 1);
	expect_wc(links->to_durable.cq, 1, IBV_WC_RDMA_READ);
	notify(side, 's');
	await(side, 'h');
}

static void
close_both(struct links *links)
{
	region_free(&links->durable);
	region_free(&links->plain);
	close_node(&links->node);
}

/* While the medium delays the flush of one connection, the other connection makes progress. */
static void
others_target(struct side *side)
{
	struct links links;

	accept_both(&links, side);
	await(side, 'd');
	await_hold();
	notify(side, 'd');
	await(side, 'o');
	check_pattern(links.durable.ptr, SIZE, 2, "the memory whose flush is outstanding");
	EXPECT(holding == 1 && synced == 1, "%u held, %u synced", holding, synced);
	medium = QUICK;
	await_end(&links.to_durable);
	await_end(&links.to_plain);
	/* the third flush arrived during the msync() of the second one, which therefore did not cover it */
	EXPECT(synced == 3, "%u", synced);
	close_both(&links);
}

static void
others_initiator(struct side *side)
{
	struct links links;

	connect_both(&links, side);
	flush_write(&links, 2);
	notify(side, 'd');
	await(side, 'd');
	for (uint32_t i = 0; i < 20; i++) {
		fill_pattern(links.plain.ptr, SIZE, 100 + i);
		write_part(&links.to_plain, 0, &links.plain, 0, SIZE);
		read_part(&links.to_plain, &links.plain, 0, 0, SIZE);
		check_pattern(links.plain.ptr, SIZE, 100 + i, "what was read back");
	}
	expect_no_wc(links.to_durable.cq);
	/* a flush after the delayed one is executed after it */
	OK(rpma_flush(links.to_durable.conn, links.to_durable.remote, 0, SIZE, RPMA_FLUSH_TYPE_PERSISTENT,
		RPMA_F_COMPLETION_ALWAYS, (void *)3));
	expect_no_wc(links.to_durable.cq);
	notify(side, 'o');
	expect_wc(links.to_durable.cq, 2, IBV_WC_RDMA_READ);
	expect_wc(links.to_durable.cq, 3, IBV_WC_RDMA_READ);
	end_link(&links.to_durable);
	end_link(&links.to_plain);
	close_both(&links);
}

/* The connection ends, and all its objects are deleted, while its flush is delayed. */
static void
ended_target(struct side *side)
{
	struct links links;

	accept_both(&links, side);
	await(side, 'd');
	await_hold();
	notify(side, 'd');
	await_end(&links.to_durable);
	region_free(&links.durable);
	EXPECT(holding == 1, "%u", holding);
	notify(side, 'e');
	await(side, 'o');
	medium = QUICK;
	await_end(&links.to_plain);
	region_free(&links.plain);
	close_node(&links.node);
}

static void
ended_initiator(struct side *side)
{
	struct links links;
	struct ibv_wc wc;

	connect_both(&links, side);
	flush_write(&links, 2);
	notify(side, 'd');
	await(side, 'd');
	OK(rpma_conn_disconnect(links.to_durable.conn));
	next_wc(links.to_durable.cq, &wc);
	/* over UDP, the acknowledgement of the write may not have arrived yet */
	if (wc.wr_id == 0 && wc.status == IBV_WC_WR_FLUSH_ERR)
		next_wc(links.to_durable.cq, &wc);
	EXPECT(wc.wr_id == 2 && wc.status == IBV_WC_WR_FLUSH_ERR, "%u", wc.status);
	expect_event(&links.to_durable, RPMA_CONN_CLOSED);
	delete_link(&links.to_durable);
	await(side, 'e');
	read_part(&links.to_plain, &links.plain, 0, 0, SIZE);
	notify(side, 'o');
	end_link(&links.to_plain);
	close_both(&links);
}

/* Offers a second region to the other side, besides the one in the private data. */
static void
offer_region(struct side *side, const struct region *region)
{
	char descriptor[DESCRIPTOR_SIZE];

	OK(rpma_mr_get_descriptor(region->mr, descriptor));
	EXPECT(write(side->sync, descriptor, sizeof(descriptor)) == sizeof(descriptor));
}

static struct rpma_mr_remote *
take_region(struct side *side)
{
	char descriptor[DESCRIPTOR_SIZE];
	struct rpma_mr_remote *remote = NULL;

	EXPECT(read(side->sync, descriptor, sizeof(descriptor)) == sizeof(descriptor));
	OK(rpma_mr_remote_from_descriptor(descriptor, sizeof(descriptor), &remote));
	return remote;
}

/*
 * A flush makes its region durable, whatever has changed it: a write through another region of the same
 * memory, one over another connection, or the program itself. The calls of this program's msync() show it,
 * without a medium.
 */
#define LAST (SIZE - 8)
#define FLUSHES 5

static void
whoever_target(struct side *side)
{
	char *memory = pages(SIZE);
	struct region whole;
	struct region part;
	struct node node;
	struct link first;
	struct link second;
	unsigned covered[3] = {0};

	open_target(&node, side);
	region_reg(&node, &whole, memory, SIZE, RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT);
	region_reg(&node, &part, memory, SIZE, RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_READ_SRC);
	watched = memory + LAST;
	accept_link(&node, &first, NULL, &whole);
	accept_link(&node, &second, NULL, &whole);
	offer_region(side, &part);
	for (unsigned i = 1; i <= 3 * FLUSHES; i++) {
		await(side, 'w');
		/* every third time the program itself writes */
		if (i % 3 == 0)
			memory[LAST] = (char)i;
		EXPECT(memory[LAST] == (char)i, "write %u has not arrived", i);
		watched_synced = 0;
		notify(side, 'w');
		await(side, 'f');
		covered[i % 3] += watched_synced == 1;
		notify(side, 'f');
	}
	EXPECT(covered[1] == FLUSHES && covered[2] == FLUSHES && covered[0] == FLUSHES,
		"of %d flushes each %u covered a write through another region, %u one over another connection, %u one of the program",
		FLUSHES, covered[1], covered[2], covered[0]);
	await_end(&first);
	await_end(&second);
	OK(rpma_mr_dereg(&part.mr));
	close_with_region(&node, &whole);
}

static void
whoever_initiator(struct side *side)
{
	struct rpma_mr_remote *part;
	struct region local;
	struct node node;
	struct link first;
	struct link second;

	open_initiator(&node, side);
	region_new(&node, &local, SIZE, RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_READ_DST);
	connect_link(&node, &first, NULL, NULL);
	connect_link(&node, &second, NULL, NULL);
	part = take_region(side);
	for (uintptr_t i = 1; i <= 3 * FLUSHES; i++) {
		struct link *link = i % 3 == 1 ? &first : &second;

		local.ptr[0] = (char)i;
		if (i % 3 != 0) {
			OK(rpma_write(link->conn, i % 3 == 1 ? part : first.remote, LAST, local.mr, 0, 1,
				RPMA_F_COMPLETION_ON_ERROR, NULL));
			/* the read is executed after the write, in a region without flushes */
			OK(rpma_read(link->conn, local.mr, 1, part, LAST, 1, RPMA_F_COMPLETION_ALWAYS, (void *)i));
			expect_wc(link->cq, i, IBV_WC_RDMA_READ);
			EXPECT(local.ptr[1] == (char)i, "%u", local.ptr[1]);
		}
		notify(side, 'w');
		await(side, 'w');
		OK(rpma_flush(first.conn, first.remote, 0, SIZE, RPMA_FLUSH_TYPE_PERSISTENT, RPMA_F_COMPLETION_ALWAYS, (void *)i));
		expect_wc(first.cq, i, IBV_WC_RDMA_READ);
		notify(side, 'f');
		await(side, 'f');
	}
	OK(rpma_mr_remote_delete(&part));
	end_link(&first);
	end_link(&second);
	close_with_region(&node, &local);
}

/*
 * The provider has not measured the medium when the first flush of a connection arrives; that flush does not
 * delay other connections, each time.
 */
#define FIRSTS 3

static void
first_target(struct side *side)
{
	struct region durable;
	struct region plain;
	struct node node;
	struct link to_durable;
	struct link to_plain;

	open_target(&node, side);
	region_new(&node, &durable, SIZE, RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT);
	region_new(&node, &plain, SIZE, RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_READ_SRC);
	accept_link(&node, &to_plain, NULL, &plain);
	for (unsigned i = 0; i < FIRSTS; i++) {
		medium = HELD;
		accept_link(&node, &to_durable, NULL, &durable);
		await_hold();
		notify(side, 'h');
		await(side, 'o');
		EXPECT(holding == 1 && synced == i, "%u held, %u synced", holding, synced);
		medium = QUICK;
		await_end(&to_durable);
		EXPECT(synced == i + 1, "%u", synced);
	}
	await_end(&to_plain);
	region_free(&plain);
	close_with_region(&node, &durable);
}

static void
first_initiator(struct side *side)
{
	struct links links;

	open_initiator(&links.node, side);
	region_new(&links.node, &links.durable, SIZE, RPMA_MR_USAGE_WRITE_SRC);
	region_new(&links.node, &links.plain, SIZE, RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_READ_DST);
	connect_link(&links.node, &links.to_plain, NULL, NULL);
	for (uint32_t i = 0; i < FIRSTS; i++) {
		connect_link(&links.node, &links.to_durable, NULL, NULL);
		flush_write(&links, i);
		await(side, 'h');
		for (uint32_t k = 0; k < 10; k++) {
			fill_pattern(links.plain.ptr, SIZE, 100 + k);
			write_part(&links.to_plain, 0, &links.plain, 0, SIZE);
			read_part(&links.to_plain, &links.plain, 0, 0, SIZE);
			check_pattern(links.plain.ptr, SIZE, 100 + k, "what was read back");
		}
		expect_no_wc(links.to_durable.cq);
		notify(side, 'o');
		expect_wc(links.to_durable.cq, i, IBV_WC_RDMA_READ);
		end_link(&links.to_durable);
	}
	end_link(&links.to_plain);
	close_both(&links);
}

const struct test slow_tests[] = {
	{"flush-held-back-delays-nobody-else", others_target, others_initiator},
	{"flush-held-back-when-the-connection-ends", ended_target, ended_initiator},
	{"flush-covers-whoever-has-written", whoever_target, whoever_initiator},
	{"flush-first-of-a-connection-held-back", first_target, first_initiator, .seconds = 40},
	{.name = NULL},
};
