/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * remote.c -- operations that the descriptor of the remote region does not permit: one warning in every mode;
 * in strict mode the request completes with IBV_WC_REM_ACCESS_ERR, earlier ones as usual, later ones with
 * IBV_WC_WR_FLUSH_ERR, each once.
 */
#include "link.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE 4096

static atomic_uint warnings; /* about remote regions */
static char last_warning[512];

static void
take_warning(enum rpma_log_level level, const char *file, int line, const char *function, const char *format, ...)
{
	char text[sizeof(last_warning)];
	va_list ap;

	(void)file, (void)line, (void)function;
	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	if (level != RPMA_LOG_LEVEL_WARNING || strstr(text, " of a region of ") == NULL)
		return;
	memcpy(last_warning, text, sizeof(text));
	warnings++;
}

/* Before the first call of the library. */
static void
be(const char *mode)
{
	setenv("SOFTVERBS_STRICT", mode, 1);
	OK(rpma_log_set_function(take_warning));
}

enum operation { WRITE, WRITE_IMM, READ, ATOMIC, WRITE_ATOMIC, FLUSH };

/* The operation, the usage of the region, and the text of the log. */
static const struct {
	enum operation operation;
	int usage;
	size_t offset, len;
	const char *text;
} cases[] = {
	{WRITE, RPMA_MR_USAGE_WRITE_DST, SIZE - 8, 64, ": rpma_write: 64 bytes at 4088 of a region of 4096; op_context 0xbad\n"},
	{WRITE, RPMA_MR_USAGE_WRITE_DST, (size_t)-8, 64, ": rpma_write: 64 bytes at 18446744073709551608 of a region of 4096;"},
	{WRITE, RPMA_MR_USAGE_READ_SRC, 0, 8, ": rpma_write: 8 bytes at 0 of a region of 4096 that the remote peer has registered "
		"without RPMA_MR_USAGE_WRITE_DST;"},
	{WRITE_IMM, RPMA_MR_USAGE_WRITE_DST, SIZE, 1, ": rpma_write_with_imm: 1 bytes at 4096 of a region of 4096;"},
	{READ, RPMA_MR_USAGE_READ_SRC, 1, SIZE, ": rpma_read: 4096 bytes at 1 of a region of 4096;"},
	{READ, RPMA_MR_USAGE_WRITE_DST, 0, 1, "without RPMA_MR_USAGE_READ_SRC;"},
	{ATOMIC, RPMA_MR_USAGE_WRITE_DST, SIZE, 8, ": rpma_atomic_write: 8 bytes at 4096 of a region of 4096;"},
	{WRITE_ATOMIC, RPMA_MR_USAGE_READ_SRC, 0, 8, ": rpma_write_atomic: 8 bytes at 0 of a region of 4096 that"},
	{FLUSH, RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY, SIZE - 4, 4, ": rpma_flush: 8 bytes at 4092 of a region of 4096;"},
	{FLUSH, RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY, 0, SIZE + 1, ": rpma_flush: 4097 bytes at 0 of a region of 4096;"},
};

#define CASES (sizeof(cases) / sizeof(cases[0]))

/* A connection and a region for each of the first cases. */
static void
target_of(struct side *side, size_t count)
{
	struct node node;

	open_target(&node, side);
	for (size_t i = 0; i < count; i++) {
		struct region region;
		struct rpma_conn_req *req;
		struct link link;

		region_new(&node, &region, SIZE, cases[i].usage);
		req = next_req(&node, NULL);
		start_link(&link, &req, &region);
		finish_link(&link);
		await(side, 'c');
		expect_broken(&link);
		/* nothing was written */
		for (size_t at = 0; at < SIZE; at++)
			EXPECT(region.ptr[at] == 0, "case %zu: byte %zu is %d", i, at, region.ptr[at]);
		delete_link(&link);
		region_free(&region);
	}
	close_node(&node);
}

static void
strict_target(struct side *side)
{
	target_of(side, CASES);
}

static void
post(struct link *link, struct region *local, size_t i, void *op_context)
{
	const int flags = RPMA_F_COMPLETION_ON_ERROR;
	size_t offset = cases[i].offset, len = cases[i].len;

	switch (cases[i].operation) {
	case WRITE:
		OK(rpma_write(link->conn, link->remote, offset, local->mr, 0, len, flags, op_context));
		break;
	case WRITE_IMM:
		OK(rpma_write_with_imm(link->conn, link->remote, offset, local->mr, 0, len, flags, 1, op_context));
		break;
	case READ:
		OK(rpma_read(link->conn, local->mr, 0, link->remote, offset, len, flags, op_context));
		break;
	case ATOMIC:
		OK(rpma_atomic_write(link->conn, link->remote, offset, local->ptr, flags, op_context));
		break;
	case WRITE_ATOMIC:
		OK(rpma_write_atomic(link->conn, link->remote, offset, local->mr, 0, flags, op_context));
		break;
	case FLUSH:
		OK(rpma_flush(link->conn, link->remote, offset, len, RPMA_FLUSH_TYPE_VISIBILITY, flags, op_context));
		break;
	}
}

static void
try_case(struct node *node, struct side *side, struct region *local, size_t i, bool fails)
{
	static const struct ibv_wc none;
	struct link link;
	struct ibv_wc wc;
	unsigned before = warnings;

	connect_link(node, &link, NULL, NULL);
	OK(rpma_write(link.conn, NULL, 0, NULL, 0, 0, RPMA_F_COMPLETION_ALWAYS, (void *)1));
	post(&link, local, i, (void *)0xbad);
	EXPECT(warnings == before + 1 && strstr(last_warning, cases[i].text) != NULL, "case %zu: %u warnings, the last one: %s", i,
		warnings - before, last_warning);
	EXPECT(strncmp(last_warning, side->addr, strlen(side->addr)) == 0 || last_warning[0] == '[', "%s", last_warning);
	if (fails) {
		OK(rpma_write(link.conn, NULL, 0, NULL, 0, 0, RPMA_F_COMPLETION_ON_ERROR, (void *)2));
		OK(rpma_send(link.conn, NULL, 0, 0, RPMA_F_COMPLETION_ALWAYS, (void *)3));
		expect_wc(link.cq, 1, IBV_WC_RDMA_WRITE);
		for (unsigned n = 0; n < 3; n++) {
			static const uint64_t ids[] = {0xbad, 2, 3};

			wc = none;
			next_wc(link.cq, &wc);
			EXPECT(wc.wr_id == ids[n] && wc.status == (n == 0 ? IBV_WC_REM_ACCESS_ERR : IBV_WC_WR_FLUSH_ERR),
				"case %zu: completion %u is of %llx, status %d", i, n, (unsigned long long)wc.wr_id, wc.status);
		}
		expect_no_wc(link.cq);
	} else if (over_roce()) {
		/* a refused request is reported, as on an adapter */
		expect_wc(link.cq, 1, IBV_WC_RDMA_WRITE);
		next_wc(link.cq, &wc);
		EXPECT(wc.wr_id == 0xbad && wc.status == IBV_WC_REM_ACCESS_ERR, "case %zu: completion of %llx, status %d", i,
			(unsigned long long)wc.wr_id, wc.status);
	}
	notify(side, 'c');
	end_broken(&link);
	delete_link(&link);
}

static void
strict_initiator(struct side *side)
{
	struct region local;
	struct node node;

	be("adapter");
	open_initiator(&node, side);
	region_new(&node, &local, 2 * SIZE, USAGE_ALL);
	memset(local.ptr, 1, local.size);
	for (size_t i = 0; i < CASES; i++)
		try_case(&node, side, &local, i, true);
	close_with_region(&node, &local);
}

/* The last case does not end the connection: the length of a flush is not transmitted. */
static void
lenient_target(struct side *side)
{
	target_of(side, CASES - 1);
}

static void
lenient(struct side *side, const char *mode)
{
	struct region local;
	struct node node;

	be(mode);
	open_initiator(&node, side);
	region_new(&node, &local, 2 * SIZE, USAGE_ALL);
	memset(local.ptr, 1, local.size);
	for (size_t i = 0; i < CASES - 1; i++)
		try_case(&node, side, &local, i, false);
	close_with_region(&node, &local);
}

static void
warned_initiator(struct side *side)
{
	lenient(side, "warn");
}

static void
off_initiator(struct side *side)
{
	lenient(side, "off");
}

const struct test remote_tests[] = {
	{"strict-remote-access", strict_target, strict_initiator, .missing = not_soft},
	{"strict-remote-access-warn", lenient_target, warned_initiator, .missing = not_soft},
	{"strict-remote-access-off", lenient_target, off_initiator, .missing = not_soft},
	{.name = NULL},
};
