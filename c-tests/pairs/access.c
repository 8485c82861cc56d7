/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * access.c -- accesses that must be denied. Each ends its connection, no byte is transferred, and another
 * connection between the same processes is not affected; the target process survives in every case.
 */
#include "link.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIZE (4 * 4096)
#define GUARD 4096
#define BASE 0x200000000000
#define SEED_G 10 /* the content around the regions */
#define SEED_T 11 /* the content of the target's regions */
#define SEED_I 12 /* data that must never arrive there */

enum operation { READ, WRITE, WRITE_IMM, FLUSH, ATOMIC };

enum damage { NONE, DEREGISTERED, UNMAPPED, UNREADABLE, READ_ONLY, TRUNCATED, OTHER_PEER };

/* The violation: at the target, in key or offset at the initiator, or in the initiator's own memory. */
struct violation {
	enum operation op;
	int usage; /* of the target's region; 0: everything */
	enum damage damage; /* what the target does to its region once connected */
	uint32_t key_xor; /* changes the key in the descriptor */
	int64_t base_add; /* moves the base address in the descriptor */
	uint64_t size; /* replaces the size in the descriptor; 0: as it is */
	size_t offset; /* into the remote region */
	size_t len; /* 0: 64 */
	int local_usage; /* of the initiator's region; 0: everything */
	enum damage local_damage; /* to the initiator's region */
	size_t local_offset;
};

/*
 * Memory at an address where the system maps nothing by itself, so that a hole in it stays one; backed by a
 * file so that it can be truncated. It is surrounded by memory that is never registered: an access outside
 * the region must be rejected as such, not because nothing happens to be mapped there.
 */
static char *
remote_place(int *fd)
{
	char path[] = "/tmp/pairs-XXXXXX";
	char *ptr;

	*fd = mkstemp(path);
	EXPECT(*fd >= 0 && unlink(path) == 0 && ftruncate(*fd, SIZE + 2 * GUARD) == 0, "%s",
		strerror(errno));
	ptr = mmap((void *)BASE, SIZE + 2 * GUARD, PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_FIXED_NOREPLACE, *fd, 0);
	EXPECT(ptr != MAP_FAILED, "%s", strerror(errno));
	fill_pattern(ptr, GUARD, SEED_G);
	fill_pattern(ptr + GUARD + SIZE, GUARD, SEED_G);
	return ptr + GUARD;
}

static void
check_guards(const char *place)
{
	check_pattern(place - GUARD, GUARD, SEED_G, "the memory before the region");
	check_pattern(place + SIZE, GUARD, SEED_G, "the memory after the region");
}

static void
inflict(enum damage damage, struct region *region, int fd)
{
	switch (damage) {
	case DEREGISTERED:
		OK(rpma_mr_dereg(&region->mr));
		break;
	case UNMAPPED:
		EXPECT(munmap(region->ptr, SIZE) == 0);
		break;
	case UNREADABLE:
		EXPECT(mprotect(region->ptr, SIZE, PROT_NONE) == 0);
		break;
	case READ_ONLY:
		EXPECT(mprotect(region->ptr, SIZE, PROT_READ) == 0);
		break;
	case TRUNCATED:
		EXPECT(ftruncate(fd, 0) == 0);
		break;
	case NONE:
	case OTHER_PEER:
		break;
	}
}

/* Checks the memory that is still mapped. */
static void
check_untouched(enum damage damage, struct region *region)
{
	if (damage == TRUNCATED)
		return;
	check_guards(region->ptr);
	if (damage == UNMAPPED)
		return;
	if (damage == UNREADABLE)
		EXPECT(mprotect(region->ptr, SIZE, PROT_READ) == 0);
	check_pattern(region->ptr, SIZE, SEED_T, "the region that must not change");
}

static void
target(struct side *side, const struct violation *v)
{
	struct ibv_context *dev = NULL;
	struct rpma_peer *other_peer = NULL;
	struct node other_node = {0};
	struct region bad;
	struct region good;
	struct node node;
	struct link bad_link;
	struct link good_link;
	int fd;
	char *place = remote_place(&fd);

	open_target(&node, side);
	OK(rpma_utils_get_ibv_context(side->addr, RPMA_UTIL_IBV_CONTEXT_LOCAL, &dev));
	OK(rpma_peer_new(dev, &other_peer));
	other_node.peer = other_peer;

	region_new(&node, &good, SIZE, USAGE_ALL);
	fill_pattern(good.ptr, SIZE, SEED_T);
	fill_pattern(place, SIZE, SEED_T);
	region_reg(v->damage == OTHER_PEER ? &other_node : &node, &bad, place, SIZE,
		v->usage != 0 ? v->usage : USAGE_ALL);
	accept_link(&node, &bad_link, NULL, &bad);
	accept_link(&node, &good_link, NULL, &good);
	inflict(v->damage, &bad, fd);
	notify(side, 'g');

	expect_broken(&bad_link);
	delete_link(&bad_link);
	check_untouched(v->damage, &bad);

	/* the other connection, and a new one */
	await_end(&good_link);
	accept_link(&node, &good_link, NULL, &good);
	await_end(&good_link);
	check_pattern(good.ptr, SIZE, SEED_T, "the region of the good connection");
	if (bad.mr != NULL)
		OK(rpma_mr_dereg(&bad.mr));
	region_free(&good);
	OK(rpma_peer_delete(&other_peer));
	close_node(&node);
}

/* The remote region with a modified key or base address. */
static void
forge(struct link *link, const struct violation *v)
{
	uint64_t base;
	uint32_t key;
	char descriptor[DESCRIPTOR_SIZE];

	memcpy(descriptor, link->descriptor, sizeof(descriptor));
	memcpy(&base, descriptor, sizeof(base));
	memcpy(&key, descriptor + 16, sizeof(key));
	base += (uint64_t)v->base_add;
	key ^= v->key_xor;
	memcpy(descriptor, &base, sizeof(base));
	if (v->size != 0)
		memcpy(descriptor + 8, &v->size, sizeof(v->size));
	memcpy(descriptor + 16, &key, sizeof(key));
	/* the descriptor may also contain a usage that the region does not have */
	descriptor[20] = (char)USAGE_ALL;
	OK(rpma_mr_remote_delete(&link->remote));
	OK(rpma_mr_remote_from_descriptor(descriptor, sizeof(descriptor), &link->remote));
}

static int
post(struct link *link, struct region *local, const struct violation *v, void *context)
{
	size_t len = v->len != 0 ? v->len : 64;

	switch (v->op) {
	case READ:
		return rpma_read(link->conn, local->mr, v->local_offset, link->remote, v->offset, len,
			RPMA_F_COMPLETION_ALWAYS, context);
	case WRITE:
		return rpma_write(link->conn, link->remote, v->offset, local->mr, v->local_offset, len,
			RPMA_F_COMPLETION_ALWAYS, context);
	case WRITE_IMM:
		return rpma_write_with_imm(link->conn, link->remote, v->offset, local->mr, v->local_offset,
			len, RPMA_F_COMPLETION_ALWAYS, 1, context);
	case FLUSH:
		return rpma_flush(link->conn, link->remote, v->offset, len, RPMA_FLUSH_TYPE_PERSISTENT,
			RPMA_F_COMPLETION_ALWAYS, context);
	default:
		return rpma_atomic_write(link->conn, link->remote, v->offset, "no entry",
			RPMA_F_COMPLETION_ALWAYS, context);
	}
}

/*
 * Whether requests posted while the connection ends complete once if posting succeeded, and not if it failed;
 * not so with siw.
 */
static bool
late_posts(void)
{
	return getenv("PAIRS_NO_LATE_POSTS") == NULL;
}

static void
initiator(struct side *side, const struct violation *v)
{
	bool local_fault = v->local_usage != 0 || v->local_damage != NONE || v->local_offset != 0;
	struct region local;
	struct region clean;
	struct node node;
	struct link bad_link;
	struct link good_link;
	struct ibv_wc wc;
	unsigned expected = 1;
	int fd;
	char *place = remote_place(&fd);
	int ret;

	open_initiator(&node, side);
	region_new(&node, &clean, SIZE, USAGE_ALL);
	region_reg(&node, &local, place, SIZE, v->local_usage != 0 ? v->local_usage : USAGE_ALL);
	fill_pattern(place, SIZE, SEED_I);
	connect_link(&node, &bad_link, NULL, NULL);
	connect_link(&node, &good_link, NULL, NULL);
	await(side, 'g');
	forge(&bad_link, v);
	inflict(v->local_damage, &local, fd);

	ret = post(&bad_link, &local, v, (void *)1);
	if (ret != 0) {
		/* only an error of local memory can be detected this early; nothing was transferred then */
		EXPECT(local_fault && ret == RPMA_E_PROVIDER, "%d", ret);
		expected = 0;
		OK(rpma_conn_disconnect(bad_link.conn));
	} else if (late_posts() &&
		rpma_read(bad_link.conn, clean.mr, 0, bad_link.remote, 0, 8, RPMA_F_COMPLETION_ALWAYS, (void *)2) == 0) {
		expected = 2;
	}
	for (unsigned i = 1; i <= expected; i++) {
		next_wc(bad_link.cq, &wc);
		EXPECT(wc.wr_id == i, "operation %llu, expected %u", (unsigned long long)wc.wr_id, i);
		/* a write may complete before it is refused; all other requests must fail */
		if (i == 2 || local_fault || v->op == READ || v->op == FLUSH)
			EXPECT(wc.status != IBV_WC_SUCCESS, "operation %u succeeded", i);
	}
	end_broken(&bad_link);
	expect_no_wc(bad_link.cq);
	delete_link(&bad_link);
	if (v->local_damage != TRUNCATED)
		check_guards(place);
	if (v->local_damage == NONE)
		check_pattern(place, SIZE, SEED_I, "the local region");
	check_bytes(clean.ptr, SIZE, 0, "the other local region");

	for (int i = 0; i < 2; i++) {
		read_part(&good_link, &clean, 0, 0, SIZE);
		check_pattern(clean.ptr, SIZE, SEED_T, "what the good connection read");
		write_part(&good_link, 0, &clean, 0, SIZE);
		end_link(&good_link);
		if (i == 0)
			connect_link(&node, &good_link, NULL, NULL);
	}
	OK(rpma_mr_dereg(&local.mr));
	close_with_region(&node, &clean);
}

/* Defines the two functions of a test from its violation. */
#define VIOLATION(id, ...)                                                                         \
	static const struct violation id = {__VA_ARGS__};                                          \
	static void id##_target(struct side *side)                                                 \
	{                                                                                          \
		target(side, &id);                                                                 \
	}                                                                                          \
	static void id##_initiator(struct side *side)                                              \
	{                                                                                          \
		initiator(side, &id);                                                              \
	}

VIOLATION(read_unknown_key, READ, .key_xor = 0x5a5a5a00)
VIOLATION(write_unknown_key, WRITE, .key_xor = 0x5a5a5a00)
VIOLATION(read_wrong_key, READ, .key_xor = 0x01)
VIOLATION(write_wrong_key, WRITE, .key_xor = 0x01)
VIOLATION(read_past_end, READ, .offset = SIZE - 32)
VIOLATION(write_past_end, WRITE, .offset = SIZE - 32)
VIOLATION(write_imm_past_end, WRITE_IMM, .offset = SIZE - 32)
VIOLATION(atomic_past_end, ATOMIC, .offset = SIZE)
VIOLATION(flush_past_end, FLUSH, .offset = SIZE - 4)
VIOLATION(read_far_away, READ, .offset = (size_t)1 << 46)
VIOLATION(write_before_begin, WRITE, .base_add = -32)
VIOLATION(read_before_begin, READ, .base_add = -32)
VIOLATION(write_one_before_begin, WRITE, .base_add = -1)
VIOLATION(read_one_past_end, READ, .offset = SIZE - 63)
VIOLATION(write_one_past_end, WRITE, .offset = SIZE - 63)
/* an address at the end of the address space: address plus length wraps around */
VIOLATION(read_wraps, READ, .base_add = -BASE - GUARD - 32, .size = 16)
VIOLATION(write_wraps, WRITE, .base_add = -BASE - GUARD - 32, .size = 16)
VIOLATION(read_longer_than_region, READ, .len = SIZE, .offset = 1)
VIOLATION(read_without_right, READ, .usage = RPMA_MR_USAGE_WRITE_DST)
VIOLATION(write_without_right, WRITE, .usage = RPMA_MR_USAGE_READ_SRC)
VIOLATION(write_imm_without_right, WRITE_IMM, .usage = RPMA_MR_USAGE_READ_SRC)
VIOLATION(atomic_without_right, ATOMIC, .usage = RPMA_MR_USAGE_READ_SRC)
VIOLATION(flush_without_right, FLUSH, .usage = RPMA_MR_USAGE_WRITE_DST)
VIOLATION(write_to_receive_buffer, WRITE, .usage = RPMA_MR_USAGE_RECV)
VIOLATION(read_from_send_buffer, READ, .usage = RPMA_MR_USAGE_SEND)
VIOLATION(read_other_peer, READ, .damage = OTHER_PEER)
VIOLATION(write_other_peer, WRITE, .damage = OTHER_PEER)
VIOLATION(read_deregistered, READ, .damage = DEREGISTERED)
VIOLATION(write_deregistered, WRITE, .damage = DEREGISTERED)
VIOLATION(read_unmapped, READ, .damage = UNMAPPED)
VIOLATION(write_unmapped, WRITE, .damage = UNMAPPED)
VIOLATION(atomic_unmapped, ATOMIC, .damage = UNMAPPED)
VIOLATION(flush_unmapped, FLUSH, .damage = UNMAPPED)
VIOLATION(read_unreadable, READ, .damage = UNREADABLE)
VIOLATION(write_read_only, WRITE, .damage = READ_ONLY)
VIOLATION(atomic_read_only, ATOMIC, .damage = READ_ONLY)
VIOLATION(read_truncated, READ, .damage = TRUNCATED)
VIOLATION(write_truncated, WRITE, .damage = TRUNCATED)
VIOLATION(local_sink_without_right, READ, .local_usage = RPMA_MR_USAGE_READ_SRC)
VIOLATION(local_sink_past_end, READ, .local_offset = SIZE - 32)
VIOLATION(local_source_past_end, WRITE, .local_offset = SIZE - 32)
VIOLATION(local_source_unmapped, WRITE, .local_damage = UNMAPPED)
VIOLATION(local_sink_unmapped, READ, .local_damage = UNMAPPED)
VIOLATION(local_sink_read_only, READ, .local_damage = READ_ONLY)
VIOLATION(local_source_truncated, WRITE, .local_damage = TRUNCATED)

/*
 * Memory is unmapped while it is written and read, many times: only that connection fails, at whatever point
 * the library was.
 */
#define ROUNDS 150

static void
vanishing_target(struct side *side)
{
	struct node node;
	int fd;
	char *place = remote_place(&fd);

	open_target(&node, side);
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct region region;
		struct link link;
		uint64_t written = 0;

		EXPECT(mmap(place, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, GUARD) == place);
		memset(place, 0, SIZE);
		region_reg(&node, &region, place, SIZE, USAGE_ALL);
		accept_link(&node, &link, NULL, &region);
		/* after the first write, and each time at another moment */
		while (written == 0)
			written = __atomic_load_n((uint64_t *)place, __ATOMIC_RELAXED);
		for (unsigned n = 0; n < i * 401 % 20000; n++)
			__asm__ volatile("");
		EXPECT(munmap(place, SIZE) == 0);
		expect_broken(&link);
		delete_link(&link);
		OK(rpma_mr_dereg(&region.mr));
	}
	close_node(&node);
}

static void
vanishing_initiator(struct side *side)
{
	struct region local;
	struct node node;

	open_initiator(&node, side);
	region_new(&node, &local, SIZE, USAGE_ALL);
	/* no words from -4095 to -1: the kernel cannot store these, see SECURITY.md */
	memset(local.ptr, 0x5a, SIZE);
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct rpma_conn_cfg *cfg = sizes(64, 64, 0, 0);
		bool gone = false;
		struct link link;

		connect_link(&node, &link, cfg, NULL);
		OK(rpma_conn_cfg_delete(&cfg));
		while (!gone) {
			struct ibv_wc wc;

			/*
			 * a post may fail once the connection has broken; then a completion or the event
			 * reports it
			 */
			for (unsigned n = 0; n < 30 && !gone; n++)
				gone = rpma_write(link.conn, link.remote, n * 96, local.mr, 0, 8 + n,
					RPMA_F_COMPLETION_ON_ERROR, NULL) != 0;
			if (gone || rpma_read(link.conn, local.mr, SIZE / 2, link.remote, 0, 8,
				RPMA_F_COMPLETION_ALWAYS, (void *)1) != 0)
				break;
			next_wc(link.cq, &wc);
			gone = wc.status != IBV_WC_SUCCESS;
		}
		end_broken(&link);
		delete_link(&link);
	}
	close_with_region(&node, &local);
}

#define TEST(name, id) {name, id##_target, id##_initiator}

/* Memory that a driver would not pin is not registered: not only the first page is checked. */
static void
unprotected_initiator(struct side *side)
{
	static const struct {
		int protection;
		int usage;
		bool registered;
	} cases[] = {
		{PROT_NONE, RPMA_MR_USAGE_READ_SRC, false},
		{PROT_NONE, RPMA_MR_USAGE_WRITE_DST, false},
		{PROT_NONE, RPMA_MR_USAGE_SEND, false},
		{PROT_READ, RPMA_MR_USAGE_WRITE_DST, false},
		{PROT_READ, RPMA_MR_USAGE_READ_DST, false},
		{PROT_READ, RPMA_MR_USAGE_RECV, false},
		{PROT_READ, RPMA_MR_USAGE_READ_SRC, true},
		/* registered for local writes, as by the original library */
		{PROT_READ, RPMA_MR_USAGE_WRITE_SRC, false},
		{PROT_READ, RPMA_MR_USAGE_SEND, true},
		{PROT_READ | PROT_WRITE, RPMA_MR_USAGE_WRITE_DST, true},
	};
	struct node node;
	char *ptr;

	open_peer(&node, side);
	ptr = mmap(NULL, 3 * GUARD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	EXPECT(ptr != MAP_FAILED, "%s", strerror(errno));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (size_t page = 0; page < 3; page++) {
			struct rpma_mr_local *mr = NULL;
			int ret;

			EXPECT(mprotect(ptr, 3 * GUARD, PROT_READ | PROT_WRITE) == 0 &&
				mprotect(ptr + page * GUARD, GUARD, cases[i].protection) == 0, "%s", strerror(errno));
			errno = 0;
			ret = rpma_mr_reg(node.peer, ptr, 3 * GUARD, cases[i].usage, &mr);
			if (cases[i].registered)
				EXPECT(ret == 0 && mr != NULL, "case %zu, page %zu: %s", i, page, rpma_err_2str(ret));
			else
				EXPECT(ret == RPMA_E_PROVIDER && mr == NULL, "case %zu, page %zu: %s", i, page,
					ret == 0 ? "registered" : rpma_err_2str(ret));
			if (ret == 0)
				OK(rpma_mr_dereg(&mr));
		}
	}
	EXPECT(munmap(ptr, 3 * GUARD) == 0, "%s", strerror(errno));
	notify(side, 'd');
	close_node(&node);
}

static void
unprotected_target(struct side *side)
{
	await(side, 'd');
}

const struct test access_tests[] = {
	TEST("read-unknown-key", read_unknown_key),
	TEST("write-unknown-key", write_unknown_key),
	TEST("read-wrong-key", read_wrong_key),
	TEST("write-wrong-key", write_wrong_key),
	TEST("read-past-end", read_past_end),
	TEST("write-past-end", write_past_end),
	TEST("write-with-imm-past-end", write_imm_past_end),
	TEST("atomic-write-past-end", atomic_past_end),
	TEST("flush-past-end", flush_past_end),
	TEST("read-far-away", read_far_away),
	TEST("write-before-begin", write_before_begin),
	TEST("read-before-begin", read_before_begin),
	TEST("write-one-before-begin", write_one_before_begin),
	TEST("read-one-past-end", read_one_past_end),
	TEST("write-one-past-end", write_one_past_end),
	TEST("read-wraps", read_wraps),
	TEST("write-wraps", write_wraps),
	TEST("read-longer-than-region", read_longer_than_region),
	TEST("read-without-right", read_without_right),
	TEST("write-without-right", write_without_right),
	TEST("write-with-imm-without-right", write_imm_without_right),
	TEST("atomic-write-without-right", atomic_without_right),
	TEST("flush-without-right", flush_without_right),
	TEST("write-to-receive-buffer", write_to_receive_buffer),
	TEST("read-from-send-buffer", read_from_send_buffer),
	TEST("read-region-of-another-peer", read_other_peer),
	TEST("write-region-of-another-peer", write_other_peer),
	TEST("read-deregistered", read_deregistered),
	TEST("write-deregistered", write_deregistered),
	TEST("memory-of-the-wrong-protection", unprotected),
	TEST("read-unmapped", read_unmapped),
	TEST("write-unmapped", write_unmapped),
	TEST("atomic-write-unmapped", atomic_unmapped),
	TEST("flush-unmapped", flush_unmapped),
	{"unmapped-while-in-use", vanishing_target, vanishing_initiator, .seconds = 40},
	TEST("read-unreadable", read_unreadable),
	TEST("write-read-only", write_read_only),
	TEST("atomic-write-read-only", atomic_read_only),
	TEST("read-truncated-file", read_truncated),
	TEST("write-truncated-file", write_truncated),
	TEST("local-sink-without-right", local_sink_without_right),
	TEST("local-sink-past-end", local_sink_past_end),
	TEST("local-source-past-end", local_source_past_end),
	TEST("local-source-unmapped", local_source_unmapped),
	TEST("local-sink-unmapped", local_sink_unmapped),
	TEST("local-sink-read-only", local_sink_read_only),
	TEST("local-source-truncated", local_source_truncated),
	{.name = NULL},
};
