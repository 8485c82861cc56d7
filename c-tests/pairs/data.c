/* SPDX-License-Identifier: BSD-3-Clause */
/* data.c -- one-sided reads and writes: content, offsets, lengths, order. The target never calls. */
#include "link.h"

#include <stdlib.h>
#include <string.h>

#define SIZE 65536
#define LARGE (64u << 20)
#define SEED_T 1 /* initial content of the target's region */
#define SEED_I 2 /* what the initiator writes */

/* lengths around each limit of a wire format or of a copy */
static const size_t lengths[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 63, 64, 65, 1000, 1459, 1460, 1461,
	4095, 4096, 4097, 16383, 16384, 16385, 32768};
#define LENGTHS (sizeof(lengths) / sizeof(lengths[0]))

static void serve_unchanged(struct side *side) { serve(side, SIZE, SEED_T, SEED_T); }
static void serve_rewritten(struct side *side) { serve(side, SIZE, SEED_T, SEED_I); }
static void serve_large_unchanged(struct side *side) { serve(side, LARGE, SEED_T, SEED_T); }
static void serve_large_rewritten(struct side *side) { serve(side, LARGE, SEED_T, SEED_I); }

struct setup {
	struct node node;
	struct link link;
	struct region local;
};

static void
begin(struct setup *s, struct side *side, size_t size, const struct rpma_conn_cfg *cfg)
{
	connect_with_region(&s->node, &s->link, &s->local, side, size, USAGE_ALL, cfg);
	EXPECT(s->link.remote != NULL && s->link.remote_size == size);
}

static void
end(struct setup *s)
{
	end_link(&s->link);
	close_with_region(&s->node, &s->local);
}

static void
read_whole(struct side *side, size_t size)
{
	struct setup s;

	begin(&s, side, size, NULL);
	read_part(&s.link, &s.local, 0, 0, size);
	check_pattern(s.local.ptr, size, SEED_T, "what was read");
	end(&s);
}

static void
write_whole(struct side *side, size_t size)
{
	struct setup s;

	begin(&s, side, size, NULL);
	fill_pattern(s.local.ptr, size, SEED_I);
	write_part(&s.link, 0, &s.local, 0, size);
	/*
	 * a write may complete before its data are placed; the completion of a later read shows that they are
	 * placed
	 */
	memset(s.local.ptr, 0, size);
	read_part(&s.link, &s.local, 0, 0, size);
	check_pattern(s.local.ptr, size, SEED_I, "what was written and read back");
	end(&s);
}

static void read_all(struct side *side) { read_whole(side, SIZE); }
static void write_all(struct side *side) { write_whole(side, SIZE); }
static void read_large(struct side *side) { read_whole(side, LARGE); }
static void write_large(struct side *side) { write_whole(side, LARGE); }

/* Every length at unaligned addresses on both sides; adjacent bytes stay unchanged. */
static void
read_unaligned(struct side *side)
{
	char *whole = malloc(SIZE);
	struct setup s;

	fill_pattern(whole, SIZE, SEED_T);
	begin(&s, side, SIZE, NULL);
	for (size_t i = 0; i < LENGTHS; i++) {
		size_t from = 3 * i + 1;
		size_t to = 5 * i + 2;

		memset(s.local.ptr, 0xee, SIZE);
		read_part(&s.link, &s.local, to, from, lengths[i]);
		EXPECT(memcmp(s.local.ptr + to, whole + from, lengths[i]) == 0, "length %zu", lengths[i]);
		check_bytes(s.local.ptr, to, 0xee, "before what was read");
		check_bytes(s.local.ptr + to + lengths[i], SIZE - to - lengths[i], 0xee,
			"after what was read");
	}
	free(whole);
	end(&s);
}

static void
write_unaligned(struct side *side)
{
	char *expected = malloc(SIZE);
	struct setup s;

	fill_pattern(expected, SIZE, SEED_T);
	begin(&s, side, SIZE, NULL);
	for (size_t i = 0; i < LENGTHS; i++) {
		size_t from = 3 * i + 1;
		size_t to = 5 * i + 2;

		fill_pattern(s.local.ptr, SIZE, 100 + (uint32_t)i);
		memcpy(expected + to, s.local.ptr + from, lengths[i]);
		write_part(&s.link, to, &s.local, from, lengths[i]);
		/* the whole region: adjacent bytes must not have changed */
		read_part(&s.link, &s.local, 0, 0, SIZE);
		EXPECT(memcmp(s.local.ptr, expected, SIZE) == 0, "length %zu", lengths[i]);
	}
	fill_pattern(s.local.ptr, SIZE, SEED_T);
	write_part(&s.link, 0, &s.local, 0, SIZE);
	read_part(&s.link, &s.local, 0, 0, SIZE);
	free(expected);
	end(&s);
}

static void
zero_length(struct side *side)
{
	struct setup s;

	begin(&s, side, SIZE, NULL);
	memset(s.local.ptr, 0xee, SIZE);
	read_part(&s.link, &s.local, 8, 16, 0);
	write_part(&s.link, 8, &s.local, 16, 0);
	/* also at the very end of a region */
	read_part(&s.link, &s.local, SIZE, SIZE, 0);
	write_part(&s.link, SIZE, &s.local, SIZE, 0);

	OK(rpma_read(s.link.conn, NULL, 0, NULL, 0, 0, RPMA_F_COMPLETION_ALWAYS, (void *)1));
	expect_wc(s.link.cq, 1, IBV_WC_RDMA_READ);
	OK(rpma_write(s.link.conn, NULL, 0, NULL, 0, 0, RPMA_F_COMPLETION_ALWAYS, (void *)2));
	expect_wc(s.link.cq, 2, IBV_WC_RDMA_WRITE);
	check_bytes(s.local.ptr, SIZE, 0xee, "the local region");

	/* a zero-length request has both regions or neither; a longer one has both */
	RETURNS(RPMA_E_INVAL, rpma_read(s.link.conn, NULL, 0, s.link.remote, 0, 0,
		RPMA_F_COMPLETION_ALWAYS, NULL));
	RETURNS(RPMA_E_INVAL, rpma_write(s.link.conn, s.link.remote, 0, NULL, 0, 0,
		RPMA_F_COMPLETION_ALWAYS, NULL));
	RETURNS(RPMA_E_INVAL, rpma_read(s.link.conn, NULL, 0, NULL, 0, 1, RPMA_F_COMPLETION_ALWAYS, NULL));
	expect_no_wc(s.link.cq);
	end(&s);
}

/*
 * Many small writes, none of which crosses a multiple of `unit`; one in ten is signalled, and completes the
 * nine before it, too.
 */
static void
write_pieces(struct side *side, size_t unit)
{
	struct rpma_conn_cfg *cfg = sizes(16, 64, 0, 0);
	unsigned posted = 0;
	unsigned taken = 0;
	struct setup s;

	begin(&s, side, SIZE, cfg);
	OK(rpma_conn_cfg_delete(&cfg));
	fill_pattern(s.local.ptr, SIZE, SEED_I);
	for (size_t at = 0, len; at < SIZE; at += len) {
		bool last;

		len = 1 + posted % 61;
		if (len > unit - at % unit)
			len = unit - at % unit;
		last = at + len == SIZE;
		OK(rpma_write(s.link.conn, s.link.remote, at, s.local.mr, at, len,
			posted % 10 == 9 || last ? RPMA_F_COMPLETION_ALWAYS : RPMA_F_COMPLETION_ON_ERROR,
			(void *)(uintptr_t)posted));
		posted++;
		if (posted % 40 == 0)
			for (; taken < posted / 10; taken++)
				expect_wc(s.link.cq, taken * 10 + 9, IBV_WC_RDMA_WRITE);
	}
	for (; taken < posted / 10; taken++)
		expect_wc(s.link.cq, taken * 10 + 9, IBV_WC_RDMA_WRITE);
	if (posted % 10 != 0)
		expect_wc(s.link.cq, posted - 1, IBV_WC_RDMA_WRITE);
	expect_no_wc(s.link.cq);
	read_part(&s.link, &s.local, 0, 0, SIZE);
	check_pattern(s.local.ptr, SIZE, SEED_I, "what many writes wrote");
	end(&s);
}

static void
write_small(struct side *side)
{
	write_pieces(side, 4096);
}

static void
write_small_across_pages(struct side *side)
{
	write_pieces(side, SIZE);
}

/*
 * A read posted after a write returns its data, without waiting in between; completions arrive in posting
 * order.
 */
static void
order(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(64, 64, 0, 0);
	struct setup s;

	begin(&s, side, SIZE, cfg);
	OK(rpma_conn_cfg_delete(&cfg));
	for (uint32_t i = 0; i < 500; i++) {
		size_t len = 1 + i * 37 % 16000;

		fill_pattern(s.local.ptr, len, 300 + i);
		OK(rpma_write(s.link.conn, s.link.remote, i, s.local.mr, 0, len,
			RPMA_F_COMPLETION_ALWAYS, (void *)(uintptr_t)(2 * i)));
		OK(rpma_read(s.link.conn, s.local.mr, SIZE / 2, s.link.remote, i, len,
			RPMA_F_COMPLETION_ALWAYS, (void *)(uintptr_t)(2 * i + 1)));
		expect_wc(s.link.cq, 2 * i, IBV_WC_RDMA_WRITE);
		expect_wc(s.link.cq, 2 * i + 1, IBV_WC_RDMA_READ);
		check_pattern(s.local.ptr + SIZE / 2, len, 300 + i, "a read after a write");
	}
	fill_pattern(s.local.ptr, SIZE, SEED_T);
	write_part(&s.link, 0, &s.local, 0, SIZE);
	read_part(&s.link, &s.local, 0, 0, SIZE);
	end(&s);
}

/* More outstanding reads than any responder accepts at a time, and writes in between. */
static void
outstanding_reads(struct side *side)
{
	enum { N = 512 };
	struct rpma_conn_cfg *cfg = sizes(2 * N, 2 * N, 0, 0);
	const size_t len = SIZE / N;
	struct region sink;
	struct setup s;

	begin(&s, side, SIZE, cfg);
	OK(rpma_conn_cfg_delete(&cfg));
	region_new(&s.node, &sink, SIZE, RPMA_MR_USAGE_READ_DST);
	/* the writes do not change the data, so the reads return the same in any order */
	fill_pattern(s.local.ptr, SIZE, SEED_T);
	for (size_t i = 0; i < N; i++) {
		OK(rpma_read(s.link.conn, sink.mr, i * len, s.link.remote, i * len, len,
			RPMA_F_COMPLETION_ALWAYS, (void *)(2 * i)));
		OK(rpma_write(s.link.conn, s.link.remote, i * len, s.local.mr, i * len, len,
			RPMA_F_COMPLETION_ALWAYS, (void *)(2 * i + 1)));
	}
	for (size_t i = 0; i < N; i++) {
		expect_wc(s.link.cq, 2 * i, IBV_WC_RDMA_READ);
		expect_wc(s.link.cq, 2 * i + 1, IBV_WC_RDMA_WRITE);
	}
	check_pattern(sink.ptr, SIZE, SEED_T, "what many reads read");
	region_free(&sink);
	end(&s);
}

/* Both sides read and write the other's memory at the same time. */
static void
both_ways(struct side *side, bool is_target)
{
	uint32_t mine = is_target ? 50 : 60;
	uint32_t theirs = is_target ? 60 : 50;
	struct region local;
	struct region shared;
	struct node node;
	struct link link;

	(is_target ? open_target : open_initiator)(&node, side);
	region_new(&node, &shared, SIZE, USAGE_ALL);
	region_new(&node, &local, SIZE, USAGE_ALL);
	(is_target ? accept_link : connect_link)(&node, &link, NULL, &shared);
	EXPECT(link.remote != NULL);

	for (uint32_t i = 0; i < 200; i++) {
		fill_pattern(local.ptr, SIZE / 2, mine + i);
		OK(rpma_write(link.conn, link.remote, 0, local.mr, 0, SIZE / 2,
			RPMA_F_COMPLETION_ON_ERROR, NULL));
		read_part(&link, &local, SIZE / 2, 0, SIZE / 2);
		check_pattern(local.ptr + SIZE / 2, SIZE / 2, mine + i, "read back from the other side");
	}
	notify(side, 'w');
	await(side, 'w');
	check_pattern(shared.ptr, SIZE / 2, theirs + 199, "written by the other side");
	if (is_target)
		await_end(&link);
	else
		end_link(&link);
	region_free(&local);
	close_with_region(&node, &shared);
}

static void
both_ways_target(struct side *side)
{
	both_ways(side, true);
}

static void
both_ways_initiator(struct side *side)
{
	both_ways(side, false);
}

const struct test data_tests[] = {
	{"read", serve_unchanged, read_all},
	{"write", serve_rewritten, write_all},
	{"read-unaligned", serve_unchanged, read_unaligned},
	{"write-unaligned", serve_unchanged, write_unaligned},
	{"read-write-zero-length", serve_unchanged, zero_length},
	{"read-64-mib", serve_large_unchanged, read_large, .seconds = 40},
	{"write-64-mib", serve_large_rewritten, write_large, .seconds = 40},
	{"write-small-unsignalled", serve_rewritten, write_small},
	{"write-small-across-pages", serve_rewritten, write_small_across_pages},
	{"read-behind-write", serve_unchanged, order},
	{"reads-512-outstanding", serve_unchanged, outstanding_reads},
	{"both-ways", both_ways_target, both_ways_initiator},
	{"read-ipv6", serve_unchanged, read_all, .addr = "::1"},
	{"write-ipv6", serve_rewritten, write_all, .addr = "::1"},
	{"write-by-name", serve_rewritten, write_all, .addr = "localhost"},
	{.name = NULL},
};
