/* SPDX-License-Identifier: BSD-3-Clause */
/* flush.c -- flushes of both types, atomic writes. */
#include "link.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#define SIZE 65536
#define TMPFS 0x01021994

/* The opcodes of the completions of a flush and of an atomic write; RPMA_NATIVE changes both. */
static enum ibv_wc_opcode flushed = IBV_WC_RDMA_READ;
static enum ibv_wc_opcode stored = IBV_WC_RDMA_WRITE;

/* An unlinked file in the directory of this program, which is on a disk more often than /tmp. */
static char *
map_new_file(void)
{
	char path[4096];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 20);
	struct statfs fs;
	char *ptr;
	int fd;

	EXPECT(n > 0, "%s", strerror(errno));
	strcpy(path + n, ".data-XXXXXX");
	fd = mkstemp(path);
	EXPECT(fd >= 0, "%s: %s", path, strerror(errno));
	unlink(path);
	EXPECT(fstatfs(fd, &fs) == 0 && fs.f_type != TMPFS,
		"the tests must be built on a disk: a file in memory is never clean");
	EXPECT(ftruncate(fd, SIZE) == 0, "%s", strerror(errno));
	ptr = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	EXPECT(ptr != MAP_FAILED, "%s", strerror(errno));
	close(fd);
	return ptr;
}

/* KiB of the mapping that have not been written to the disk. */
static unsigned
dirty_kib(const void *ptr)
{
	FILE *smaps = fopen("/proc/self/smaps", "r");
	unsigned total = 0;
	bool inside = false;
	bool found = false;
	char line[512];

	EXPECT(smaps != NULL, "%s", strerror(errno));
	while (fgets(line, sizeof(line), smaps) != NULL) {
		unsigned long begin;
		unsigned long end;
		unsigned kib;

		if (sscanf(line, "%lx-%lx ", &begin, &end) == 2) {
			inside = begin <= (uintptr_t)ptr && (uintptr_t)ptr < end;
			found |= inside;
		} else if (inside && (sscanf(line, "Shared_Dirty: %u kB", &kib) == 1 ||
			sscanf(line, "Private_Dirty: %u kB", &kib) == 1)) {
			total += kib;
		}
	}
	fclose(smaps);
	EXPECT(found);
	return total;
}

/* A file mapping; between the flush and the target's check only the library has synced anything. */
static void
persistent_target(struct side *side)
{
	struct region region;
	struct node node;
	struct link link;
	char *file = map_new_file();

	open_target(&node, side);
	memset(file, 0xff, SIZE);
	EXPECT(dirty_kib(file) == SIZE / 1024, "%u KiB are dirty: the check proves nothing", dirty_kib(file));
	EXPECT(msync(file, SIZE, MS_SYNC) == 0);
	EXPECT(dirty_kib(file) == 0, "%u KiB", dirty_kib(file));

	region_reg(&node, &region, file, SIZE, RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT);
	accept_link(&node, &link, NULL, &region);
	for (uint32_t i = 0; i < 10; i++) {
		await(side, 'f');
		check_pattern(file, SIZE, 60 + i, "the file");
		EXPECT(dirty_kib(file) == 0, "%u KiB are dirty after flush %u", dirty_kib(file), i);
		notify(side, 'f');
	}
	await_end(&link);
	close_with_region(&node, &region);
}

static void
persistent_initiator(struct side *side)
{
	struct region local;
	struct node node;
	struct link link;
	int type = 0;

	connect_with_region(&node, &link, &local, side, SIZE, RPMA_MR_USAGE_WRITE_SRC, NULL);
	OK(rpma_mr_remote_get_flush_type(link.remote, &type));
	EXPECT(type == RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT, "0x%x", type);
	RETURNS(RPMA_E_NOSUPP, rpma_flush(link.conn, link.remote, 0, SIZE, RPMA_FLUSH_TYPE_VISIBILITY,
		RPMA_F_COMPLETION_ALWAYS, NULL));
	for (uint32_t i = 0; i < 10; i++) {
		fill_pattern(local.ptr, SIZE, 60 + i);
		OK(rpma_write(link.conn, link.remote, 0, local.mr, 0, SIZE, RPMA_F_COMPLETION_ON_ERROR, NULL));
		OK(rpma_flush(link.conn, link.remote, 0, SIZE, RPMA_FLUSH_TYPE_PERSISTENT,
			RPMA_F_COMPLETION_ALWAYS, (void *)5));
		expect_wc(link.cq, 5, flushed);
		notify(side, 'f');
		await(side, 'f');
	}
	end_link(&link);
	close_with_region(&node, &local);
}

/*
 * Memory that cannot be made durable: the flush is permitted, and its completion means that the data are
 * placed.
 */
static void
anonymous_target(struct side *side)
{
	struct region region;
	struct node node;
	struct link link;

	open_target(&node, side);
	region_new(&node, &region, SIZE,
		RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT |
		RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY);
	accept_link(&node, &link, NULL, &region);
	for (uint32_t i = 0; i < 40; i++) {
		await(side, 'f');
		check_pattern(region.ptr + i, SIZE / 2, 80 + i, "what was flushed");
		notify(side, 'f');
	}
	await_end(&link);
	close_with_region(&node, &region);
}

static void
anonymous_initiator(struct side *side)
{
	struct region local;
	struct node node;
	struct link link;

	connect_with_region(&node, &link, &local, side, SIZE, RPMA_MR_USAGE_WRITE_SRC, NULL);
	for (uint32_t i = 0; i < 40; i++) {
		fill_pattern(local.ptr, SIZE, 80 + i);
		OK(rpma_write(link.conn, link.remote, i, local.mr, 0, SIZE / 2, RPMA_F_COMPLETION_ON_ERROR,
			NULL));
		OK(rpma_flush(link.conn, link.remote, i, SIZE / 2,
			i % 2 == 0 ? RPMA_FLUSH_TYPE_PERSISTENT : RPMA_FLUSH_TYPE_VISIBILITY,
			RPMA_F_COMPLETION_ALWAYS, (void *)5));
		expect_wc(link.cq, 5, flushed);
		notify(side, 'f');
		await(side, 'f');
	}
	/* unsignalled flushes have no completion; that of the signalled one after them covers all */
	for (int i = 0; i < 5; i++)
		OK(rpma_flush(link.conn, link.remote, 0, 8, RPMA_FLUSH_TYPE_VISIBILITY,
			RPMA_F_COMPLETION_ON_ERROR, (void *)6));
	OK(rpma_flush(link.conn, link.remote, 0, 8, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS,
		(void *)7));
	expect_wc(link.cq, 7, flushed);
	expect_no_wc(link.cq);
	end_link(&link);
	close_with_region(&node, &local);
}

/* The peer configuration was not applied, and a region lacks the usage. */
static void
refused_target(struct side *side)
{
	struct region region;
	struct node node;
	struct link link;

	accept_with_region(&node, &link, &region, side, SIZE, RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY, NULL);
	await_end(&link);
	close_with_region(&node, &region);
}

static void
refused_initiator(struct side *side)
{
	struct rpma_peer_cfg *pcfg = NULL;
	struct node node;
	struct link link;

	open_initiator(&node, side);
	connect_link(&node, &link, NULL, NULL);
	/* the region is not registered for it */
	RETURNS(RPMA_E_NOSUPP, rpma_flush(link.conn, link.remote, 0, 8, RPMA_FLUSH_TYPE_PERSISTENT,
		RPMA_F_COMPLETION_ALWAYS, NULL));
	OK(rpma_peer_cfg_new(&pcfg));
	OK(rpma_conn_apply_remote_peer_cfg(link.conn, pcfg));
	OK(rpma_peer_cfg_delete(&pcfg));
	RETURNS(RPMA_E_NOSUPP, rpma_flush(link.conn, link.remote, 0, 8, RPMA_FLUSH_TYPE_PERSISTENT,
		RPMA_F_COMPLETION_ALWAYS, NULL));
	RETURNS(RPMA_E_INVAL, rpma_flush(link.conn, link.remote, 0, 8, RPMA_FLUSH_TYPE_VISIBILITY, 0, NULL));
	/* and the connection still works */
	OK(rpma_flush(link.conn, link.remote, 0, 8, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS,
		(void *)5));
	expect_wc(link.cq, 5, flushed);
	end_link(&link);
	close_node(&node);
}

/*
 * The target reads 8 bytes continuously; all bytes of each value must be equal. The compiler must not merge
 * or split the loads.
 */
static void
atomic_target(struct side *side)
{
	struct region region;
	struct node node;
	struct link link;
	uint64_t *word;
	uint64_t value = 0;
	bool is_reading = false;

	open_target(&node, side);
	region_new(&node, &region, 4096, USAGE_ALL);
	word = (uint64_t *)(region.ptr + 1024);
	accept_link(&node, &link, NULL, &region);
	notify(side, 'r');
	while (value != 0xffffffffffffffffull) {
		uint64_t now = __atomic_load_n(word, __ATOMIC_RELAXED);

		EXPECT(now == (now & 0xff) * 0x0101010101010101ull, "0x%llx", (unsigned long long)now);
		if (now != value && !is_reading) {
			is_reading = true;
			notify(side, 's');
		}
		value = now;
	}
	check_bytes(region.ptr, 1024, 0, "before the word");
	check_bytes(region.ptr + 1032, 4096 - 1032, 0, "after the word");
	await_end(&link);
	close_with_region(&node, &region);
}

static void
atomic_values(struct side *side, struct link *link, struct region *src)
{
	await(side, 'r');
	for (uint32_t i = 0; i < 20000; i++) {
		char bytes[8];

		/* the target has read a value of the first half by now, and reads during the second half */
		if (i == 10000)
			await(side, 's');
		memset(bytes, i < 19999 ? (int)(i % 251) : 0xff, sizeof(bytes));
		if (src == NULL) {
			OK(rpma_atomic_write(link->conn, link->remote, 1024, bytes, RPMA_F_COMPLETION_ALWAYS,
				(void *)6));
			/* the value has been copied */
			memset(bytes, 0x5a, 4);
		} else {
			memcpy(src->ptr + 3, bytes, sizeof(bytes));
			OK(rpma_write_atomic(link->conn, link->remote, 1024, src->mr, 3,
				RPMA_F_COMPLETION_ALWAYS, (void *)6));
		}
		expect_wc(link->cq, 6, src == NULL ? stored : IBV_WC_RDMA_WRITE);
	}
}

static void
atomic_initiator(struct side *side, bool from_region)
{
	struct region src;
	struct node node;
	struct link link;

	connect_with_region(&node, &link, &src, side, 4096, RPMA_MR_USAGE_WRITE_SRC, NULL);
	RETURNS(RPMA_E_INVAL, rpma_atomic_write(link.conn, link.remote, 1025, "eight by",
		RPMA_F_COMPLETION_ALWAYS, NULL));
	RETURNS(RPMA_E_INVAL, rpma_write_atomic(link.conn, link.remote, 1025, src.mr, 0,
		RPMA_F_COMPLETION_ALWAYS, NULL));
	atomic_values(side, &link, from_region ? &src : NULL);
	end_link(&link);
	close_with_region(&node, &src);
}

static void
atomic_write_initiator(struct side *side)
{
	atomic_initiator(side, false);
}

static void
write_atomic_initiator(struct side *side)
{
	atomic_initiator(side, true);
}

/* This process uses native operations if the transport has them. */
static void
natively(const char *transport)
{
	setenv("SOFTVERBS_TRANSPORT", transport, 1);
	setenv("RPMA_NATIVE", "flush,atomic-write", 1);
	if (strcmp(transport, "roce") == 0) {
		/* IBV_WC_FLUSH and IBV_WC_ATOMIC_WRITE, which the headers of rdma-core 44 do not define */
		flushed = (enum ibv_wc_opcode)8;
		stored = (enum ibv_wc_opcode)9;
	}
}

/*
 * Both sides of a test with native operations, and with the same target without RPMA_NATIVE: it needs no
 * setting.
 */
#define NATIVE(name, transport, the_target, the_initiator) \
	static void name##_target(struct side *side) \
	{ \
		setenv("SOFTVERBS_TRANSPORT", transport, 1); \
		the_target(side); \
	} \
	static void name##_initiator(struct side *side) \
	{ \
		natively(transport); \
		the_initiator(side); \
	}

NATIVE(native_persistent, "roce", persistent_target, persistent_initiator)
NATIVE(native_anonymous, "roce", anonymous_target, anonymous_initiator)
NATIVE(native_refused, "roce", refused_target, refused_initiator)
NATIVE(native_atomic_write, "roce", atomic_target, atomic_write_initiator)
NATIVE(iwarp_anonymous, "iwarp", anonymous_target, anonymous_initiator)
NATIVE(iwarp_atomic_write, "iwarp", atomic_target, atomic_write_initiator)

/* A native flush of a deregistered region is refused, as a read is. */
static void
gone_target(struct side *side)
{
	struct region region;
	struct node node;
	struct link link;

	accept_with_region(&node, &link, &region, side, SIZE, USAGE_ALL, NULL);
	region_free(&region);
	notify(side, 'g');
	await_end(&link);
	close_node(&node);
}

static void
gone_initiator(struct side *side)
{
	struct node node;
	struct link link;
	struct ibv_wc wc;

	open_initiator(&node, side);
	connect_link(&node, &link, NULL, NULL);
	await(side, 'g');
	OK(rpma_flush(link.conn, link.remote, 0, SIZE, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ON_ERROR, (void *)8));
	next_wc(link.cq, &wc);
	EXPECT(wc.wr_id == 8 && wc.status == IBV_WC_REM_ACCESS_ERR, "status %d", wc.status);
	end_broken(&link);
	delete_link(&link);
	close_node(&node);
}

NATIVE(native_gone, "roce", gone_target, gone_initiator)

const struct test flush_tests[] = {
	{"flush-persistent-file-is-synced", persistent_target, persistent_initiator},
	{"flush-both-types-plain-memory", anonymous_target, anonymous_initiator},
	{"flush-refused", refused_target, refused_initiator},
	{"atomic-write", atomic_target, atomic_write_initiator},
	{"write-atomic", atomic_target, write_atomic_initiator},
	{"native-flush-persistent", native_persistent_target, native_persistent_initiator, .missing = not_soft},
	{"native-flush-both-types", native_anonymous_target, native_anonymous_initiator, .missing = not_soft},
	{"native-flush-refused", native_refused_target, native_refused_initiator, .missing = not_soft},
	{"native-flush-of-nothing", native_gone_target, native_gone_initiator, .missing = not_soft},
	{"native-atomic-write", native_atomic_write_target, native_atomic_write_initiator, .missing = not_soft},
	{"native-flush-iwarp", iwarp_anonymous_target, iwarp_anonymous_initiator, .missing = not_soft},
	{"native-atomic-write-iwarp", iwarp_atomic_write_target, iwarp_atomic_write_initiator, .missing = not_soft},
	{.name = NULL},
};
