/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * batch.c -- small writes that the target's provider places in batches, when the memory of one of them is
 * unmapped: earlier ones are placed, later ones are not, the connection ends, and another one continues.
 */
#include "link.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIZE 4096
#define FRONT 20
#define BEHIND 20
#define ALL (FRONT + 1 + BEHIND)

enum damage { UNMAPPED, READ_ONLY, DEREGISTERED };

struct loss {
	enum damage damage;
	size_t len;
};

/* At the target: memory that stays, memory that is unmapped, and that of the other connection. */
struct regions {
	struct region kept;
	struct region lost;
	struct region other;
};

static void
lose(struct regions *regions, enum damage damage)
{
	struct region *lost = &regions->lost;

	if (damage == UNMAPPED)
		EXPECT(munmap(lost->ptr, lost->size) == 0, "%s", strerror(errno));
	else if (damage == READ_ONLY)
		EXPECT(mprotect(lost->ptr, lost->size, PROT_READ) == 0, "%s", strerror(errno));
	else
		OK(rpma_mr_dereg(&lost->mr));
}

static void
new_lost(struct node *node, struct regions *regions)
{
	char descriptor[DESCRIPTOR_SIZE];

	region_new(node, &regions->lost, SIZE, USAGE_ALL);
	OK(rpma_mr_get_descriptor(regions->lost.mr, descriptor));
	EXPECT(write(node->side->sync, descriptor, sizeof(descriptor)) == sizeof(descriptor));
}

static void
free_lost(struct regions *regions, enum damage damage)
{
	if (damage != DEREGISTERED)
		OK(rpma_mr_dereg(&regions->lost.mr));
	if (damage != UNMAPPED)
		EXPECT(munmap(regions->lost.ptr, SIZE) == 0, "%s", strerror(errno));
}

static struct rpma_mr_remote *
take_lost(struct side *side)
{
	char descriptor[DESCRIPTOR_SIZE];
	struct rpma_mr_remote *remote = NULL;

	EXPECT(read(side->sync, descriptor, sizeof(descriptor)) == sizeof(descriptor));
	OK(rpma_mr_remote_from_descriptor(descriptor, sizeof(descriptor), &remote));
	return remote;
}

/* The target is stopped while all writes are sent, so that it finds them together. */
static void
loss_target(struct side *side, const struct loss *loss)
{
	struct regions regions;
	struct link other;
	struct link link;
	struct node node;

	open_target(&node, side);
	region_new(&node, &regions.kept, SIZE, USAGE_ALL);
	region_new(&node, &regions.other, SIZE, USAGE_ALL);
	accept_link(&node, &link, NULL, &regions.kept);
	accept_link(&node, &other, NULL, &regions.other);
	new_lost(&node, &regions);
	lose(&regions, loss->damage);
	notify(side, 'g');
	expect_broken(&link);
	for (size_t i = 0; i < ALL; i++) {
		char *slot = regions.kept.ptr + i * loss->len;

		if (i < FRONT)
			check_pattern(slot, loss->len, (uint32_t)i, "a write before it");
		else
			check_bytes(slot, loss->len, 0, "a write after it");
	}
	delete_link(&link);
	await_end(&other);
	check_pattern(regions.other.ptr, SIZE, 99, "the other connection's region");
	free_lost(&regions, loss->damage);
	region_free(&regions.kept);
	region_free(&regions.other);
	close_node(&node);
}

static void
loss_initiator(struct side *side, const struct loss *loss)
{
	struct rpma_conn_cfg *cfg = sizes(2 * ALL, 2 * ALL, 0, 0);
	struct rpma_mr_remote *lost;
	struct region source;
	struct region back;
	struct link other;
	struct link link;
	struct node node;
	pid_t target;

	open_initiator(&node, side);
	region_new(&node, &source, SIZE, RPMA_MR_USAGE_WRITE_SRC);
	region_new(&node, &back, SIZE, USAGE_ALL);
	fill_pattern(back.ptr, SIZE, 99);
	for (uint32_t i = 0; i < ALL; i++)
		fill_pattern(source.ptr + i * loss->len, loss->len, i);
	connect_link(&node, &link, cfg, NULL);
	connect_link(&node, &other, NULL, NULL);
	OK(rpma_conn_cfg_delete(&cfg));
	lost = take_lost(side);
	await(side, 'g');

	target = *side->target_pid;
	stop_process(target);
	for (uintptr_t i = 0; i < ALL; i++)
		OK(rpma_write(link.conn, i == FRONT ? lost : link.remote, i == FRONT ? 0 : i * loss->len, source.mr,
			i * loss->len, loss->len, i + 1 == ALL ? RPMA_F_COMPLETION_ALWAYS : RPMA_F_COMPLETION_ON_ERROR,
			(void *)i));
	expect_wc(link.cq, ALL - 1, IBV_WC_RDMA_WRITE);
	write_part(&other, 0, &back, 0, SIZE);
	EXPECT(kill(target, SIGCONT) == 0, "%s", strerror(errno));

	expect_broken(&link);
	expect_no_wc(link.cq);
	delete_link(&link);
	memset(back.ptr, 0, SIZE);
	read_part(&other, &back, 0, 0, SIZE);
	check_pattern(back.ptr, SIZE, 99, "what the other connection has read back");
	end_link(&other);
	OK(rpma_mr_remote_delete(&lost));
	region_free(&source);
	close_with_region(&node, &back);
}

/*
 * The same with memory that is unmapped during an endless sequence of numbered writes, each time at another
 * moment. Every eighth write goes to that memory, the others to slots in turn, so the content of the slots
 * shows which write has failed.
 */
#define ROUNDS 40
#define SLOTS 32
#define LEN 64
#define EVERY 8
#define BURST 256
#define SOURCES (2 * BURST)

/* All writes before one to the lost memory have been placed, and none after it. */
static void
check_slots(const char *slots)
{
	uint64_t last = 0;

	for (unsigned s = 0; s < SLOTS; s++) {
		uint64_t words[LEN / 8];

		memcpy(words, slots + s * LEN, LEN);
		for (unsigned w = 1; w < LEN / 8; w++)
			EXPECT(words[w] == words[0], "slot %u: write %llu and write %llu", s, (unsigned long long)words[0],
				(unsigned long long)words[w]);
		EXPECT(words[0] == 0 || (words[0] % SLOTS == s && words[0] % EVERY != 0), "slot %u: %llu", s,
			(unsigned long long)words[0]);
		if (words[0] > last)
			last = words[0];
	}
	EXPECT(last % EVERY == EVERY - 1, "the last write is %llu", (unsigned long long)last);
	for (uint64_t i = last; i > 0 && i + SLOTS > last; i--) {
		uint64_t word;

		memcpy(&word, slots + i % SLOTS * LEN, 8);
		EXPECT(i % EVERY == 0 || word == i, "write %llu is missing before %llu", (unsigned long long)i,
			(unsigned long long)last);
	}
}

static void
race_target(struct side *side)
{
	struct regions regions;
	struct link other;
	struct node node;

	open_target(&node, side);
	region_new(&node, &regions.other, SIZE, USAGE_ALL);
	accept_link(&node, &other, NULL, &regions.other);
	for (unsigned i = 0; i < ROUNDS; i++) {
		enum damage damage = i % 3;
		struct link link;

		region_new(&node, &regions.kept, SIZE, USAGE_ALL);
		accept_link(&node, &link, NULL, &regions.kept);
		new_lost(&node, &regions);
		while (__atomic_load_n((uint64_t *)(regions.kept.ptr + LEN), __ATOMIC_RELAXED) == 0)
			;
		for (unsigned n = 0; n < i * 401 % 20000; n++)
			__asm__ volatile("");
		lose(&regions, damage);
		expect_broken(&link);
		check_slots(regions.kept.ptr);
		check_bytes(regions.kept.ptr + SLOTS * LEN, SIZE - SLOTS * LEN, 0, "after the slots");
		delete_link(&link);
		check_slots(regions.kept.ptr);
		free_lost(&regions, damage);
		region_free(&regions.kept);
	}
	await_end(&other);
	check_pattern(regions.other.ptr, SIZE, ROUNDS - 1, "the other connection's region");
	region_free(&regions.other);
	close_node(&node);
}

/*
 * Posts until the connection has broken; a source is not changed before the last write posted from it has
 * completed.
 */
static void
write_on_and_on(struct link *link, struct region *source, struct rpma_mr_remote *lost)
{
	for (uint64_t i = 1;; i++) {
		size_t at = i % SOURCES * LEN;
		bool signalled = i % BURST == 0;
		bool to_lost = i % EVERY == 0;
		struct ibv_wc wc;

		for (unsigned w = 0; w < LEN; w += 8)
			memcpy(source->ptr + at + w, &i, 8);
		if (rpma_write(link->conn, to_lost ? lost : link->remote, to_lost ? 0 : i % SLOTS * LEN, source->mr, at, LEN,
			signalled ? RPMA_F_COMPLETION_ALWAYS : RPMA_F_COMPLETION_ON_ERROR, NULL) != 0)
			return;
		if (!signalled)
			continue;
		next_wc(link->cq, &wc);
		if (wc.status != IBV_WC_SUCCESS)
			return;
	}
}

static void
race_initiator(struct side *side)
{
	struct region source;
	struct region data;
	struct link other;
	struct node node;

	open_initiator(&node, side);
	region_new(&node, &source, SOURCES * LEN, RPMA_MR_USAGE_WRITE_SRC);
	region_new(&node, &data, SIZE, USAGE_ALL);
	connect_link(&node, &other, NULL, NULL);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		struct rpma_conn_cfg *cfg = sizes(2 * BURST, 2 * BURST, 0, 0);
		struct rpma_mr_remote *lost;
		struct link link;

		connect_link(&node, &link, cfg, NULL);
		OK(rpma_conn_cfg_delete(&cfg));
		lost = take_lost(side);
		write_on_and_on(&link, &source, lost);
		end_broken(&link);
		delete_link(&link);
		OK(rpma_mr_remote_delete(&lost));
		fill_pattern(data.ptr, SIZE, i);
		write_part(&other, 0, &data, 0, SIZE);
		memset(data.ptr, 0, SIZE);
		read_part(&other, &data, 0, 0, SIZE);
		check_pattern(data.ptr, SIZE, i, "what the other connection has read back");
	}
	end_link(&other);
	region_free(&source);
	close_with_region(&node, &data);
}

/* Defines the two functions of a test from the lost memory. */
#define LOSS(id, ...)                                                                              \
	static const struct loss id = {__VA_ARGS__};                                               \
	static void id##_target(struct side *side)                                                 \
	{                                                                                          \
		loss_target(side, &id);                                                            \
	}                                                                                          \
	static void id##_initiator(struct side *side)                                              \
	{                                                                                          \
		loss_initiator(side, &id);                                                         \
	}

LOSS(unmapped, UNMAPPED, 64)
LOSS(unmapped_word, UNMAPPED, 8)
LOSS(read_only, READ_ONLY, 64)
LOSS(read_only_word, READ_ONLY, 8)
LOSS(deregistered, DEREGISTERED, 64)
LOSS(deregistered_word, DEREGISTERED, 8)

#define TEST(name, id) {name, id##_target, id##_initiator}

const struct test batch_tests[] = {
	TEST("burst-into-unmapped", unmapped),
	TEST("burst-into-unmapped-8-bytes", unmapped_word),
	TEST("burst-into-read-only", read_only),
	TEST("burst-into-read-only-8-bytes", read_only_word),
	TEST("burst-into-deregistered", deregistered),
	TEST("burst-into-deregistered-8-bytes", deregistered_word),
	{"burst-while-memory-is-taken-back", race_target, race_initiator, .seconds = 40},
	{.name = NULL},
};
