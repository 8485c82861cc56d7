/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * direct.c -- direct copies: one-sided operations between two processes of a host that the initiator carries
 * out itself, if the kernel permits it: without the target, in order with all other operations, and never to
 * deregistered memory.
 */
#include "link.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define KIB 1024
#define LEN (64 * KIB)
#define SIZE (16 * LEN)
#define ROUNDS 25

/*
 * Whether this process may access the other one, and direct copies are on. Otherwise the target takes part in
 * all operations.
 */
static bool
copies_directly(pid_t other)
{
	static char here;
	char byte;
	struct iovec to = {&byte, 1}, from = {&here, 1};

	return direct_copies_are_on() && process_vm_readv(other, &to, 1, &from, 1, 0) == 1;
}

/*
 * ---- without the target --------------------------------------------------------------------------------------------------------------
 */

/* The owner itself serves reads of a region that can be flushed to persistence, so this one cannot. */
#define USAGE_PLAIN (RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_WRITE_DST)

static void
idle_target(struct side *side)
{
	struct region region;
	struct node node;
	struct link link;

	accept_with_region(&node, &link, &region, side, SIZE, USAGE_PLAIN, NULL);
	await_end(&link);
	check_pattern(region.ptr, SIZE, 2, "the target's region at the end");
	close_with_region(&node, &region);
}

static void
busy_initiator(struct side *side)
{
	struct region src, dst;
	struct node node;
	struct link link;
	bool stop = copies_directly(*side->target_pid);

	open_initiator(&node, side);
	region_new(&node, &src, SIZE, USAGE_ALL);
	region_new(&node, &dst, SIZE, USAGE_ALL);
	connect_link(&node, &link, NULL, NULL);
	fill_pattern(src.ptr, SIZE, 1);
	if (stop)
		await_direct(&link, &src, LEN);
	fill_pattern(src.ptr, SIZE, 2);
	if (stop)
		stop_process(*side->target_pid);
	for (unsigned i = 0; i < 5000; i++) {
		size_t at = i * 7919 % (SIZE / 64) * 64, len = 64 + i % 8 * 1000;

		if (at + len > SIZE)
			at = SIZE - len;
		memset(dst.ptr + at, 0, len);
		write_part(&link, at, &src, at, len);
		read_part(&link, &dst, at, at, len);
		EXPECT(memcmp(src.ptr + at, dst.ptr + at, len) == 0, "round %u", i);
	}
	/* in pieces, and all at once */
	write_part(&link, 0, &src, 0, SIZE);
	memset(dst.ptr, 0, SIZE);
	read_part(&link, &dst, 0, 0, SIZE);
	check_pattern(dst.ptr, SIZE, 2, "what was read");
	if (stop)
		EXPECT(kill(*side->target_pid, SIGCONT) == 0, "%s", strerror(errno));
	end_link(&link);
	region_free(&src);
	close_with_region(&node, &dst);
}

static const char *
no_direct_copies(void)
{
	return direct_copies_are_on() ? NULL : "there are no direct copies";
}

/* Only small requests wait for the next one: to copy a large read takes longer than a call. */
static void
reading_initiator(struct side *side)
{
	struct region src, dst;
	struct node node;
	struct link link;
	unsigned late = 0;
	bool direct = copies_directly(*side->target_pid);

	open_initiator(&node, side);
	region_new(&node, &src, SIZE, USAGE_ALL);
	region_new(&node, &dst, SIZE, USAGE_ALL);
	connect_link(&node, &link, NULL, NULL);
	fill_pattern(src.ptr, SIZE, 2);
	if (direct)
		await_direct(&link, &src, LEN);
	write_part(&link, 0, &src, 0, SIZE);
	for (unsigned i = 0; i < (direct ? 1000 : 0); i++) {
		dst.ptr[LEN - 1] = (char)~src.ptr[LEN - 1];
		OK(rpma_read(link.conn, dst.mr, 0, link.remote, 0, LEN, RPMA_F_COMPLETION_ON_ERROR, NULL));
		late += dst.ptr[LEN - 1] != src.ptr[LEN - 1];
	}
	read_part(&link, &dst, 0, 0, SIZE);
	check_pattern(dst.ptr, SIZE, 2, "what was read");
	/* a few may find that the engine thread drives the connection */
	EXPECT(late < 50, "%u of 1000 reads waited", late);
	end_link(&link);
	region_free(&src);
	close_with_region(&node, &dst);
}

/*
 * Atomic writes to memory that both map: a single store of the initiator, after the write before it. Without
 * the permission to map it, the target takes part.
 */
#define WORDS 3000

static bool
maps_memory_of(pid_t other)
{
	int process = (int)syscall(SYS_pidfd_open, other, 0);
	/* each process has one with this number */
	int copy = process < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, process, STDERR_FILENO, 0);

	if (process >= 0)
		close(process);
	if (copy >= 0)
		close(copy);
	return copy >= 0 && copies_directly(other);
}

static void
words_target(struct side *side)
{
	struct region region;
	struct node node;
	struct link link;
	uint64_t *ptr;

	open_target(&node, side);
	region_sealed(&node, &region, LEN, USAGE_PLAIN);
	ptr = (uint64_t *)region.ptr;
	accept_link(&node, &link, NULL, &region);
	await_end(&link);
	EXPECT(ptr[0] == WORDS && ptr[1] == WORDS, "%llu, %llu", (unsigned long long)ptr[0], (unsigned long long)ptr[1]);
	close_with_region(&node, &region);
}

static void
store_words(struct side *side, bool (*maps)(pid_t other))
{
	struct region region;
	struct node node;
	struct link link;
	uint64_t *words;
	bool stop;

	open_initiator(&node, side);
	region_new(&node, &region, LEN, USAGE_ALL);
	connect_link(&node, &link, NULL, NULL);
	words = (uint64_t *)region.ptr;
	stop = maps(*side->target_pid);
	if (stop) {
		EXPECT(await_shared(1) == 1, "%u mappings", count_shared());
		await_direct(&link, &region, LEN);
		stop_process(*side->target_pid);
	}
	for (uint64_t i = 1; i <= WORDS; i++) {
		words[0] = i;
		OK(rpma_write(link.conn, link.remote, 0, region.mr, 0, 8, RPMA_F_COMPLETION_ON_ERROR, NULL));
		OK(rpma_atomic_write(link.conn, link.remote, 8, (const char *)&i, RPMA_F_COMPLETION_ALWAYS, (void *)(uintptr_t)i));
		expect_wc(link.cq, i, IBV_WC_RDMA_WRITE);
		if (i % 100 != 0)
			continue;
		read_part(&link, &region, 16, 0, 16);
		EXPECT(words[2] == i && words[3] == i, "%llu, %llu", (unsigned long long)words[2], (unsigned long long)words[3]);
	}
	if (stop)
		EXPECT(kill(*side->target_pid, SIGCONT) == 0, "%s", strerror(errno));
	end_link(&link);
	close_with_region(&node, &region);
}

static void
words_initiator(struct side *side)
{
	store_words(side, maps_memory_of);
}

/* Whether this process may open the files of the other one, and direct copies are on. */
static bool
inspects(pid_t other)
{
	char path[64], name[64];

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", other, STDERR_FILENO);
	return direct_copies_are_on() && readlink(path, name, sizeof(name)) > 0;
}

static void
inspected_words_target(struct side *side)
{
	forbid_tracing();
	words_target(side);
}

/* The initiator's own memory is not in a memfd, unless PAIRS_MEMORY=memfd, so the kernel copies it. */
static void
inspecting_words_initiator(struct side *side)
{
	forbid_tracing();
	store_words(side, inspects);
}

/*
 * ---- memory that is withdrawn --------------------------------------------------------------------------------------------------------
 */

static void
withdraw(struct side *side, void (*new_region)(struct node *node, struct region *region, size_t size, int usage))
{
	struct node node;

	open_target(&node, side);
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct region region;
		struct link link;
		uint64_t until;

		new_region(&node, &region, SIZE, RPMA_MR_USAGE_WRITE_DST);
		accept_link(&node, &link, NULL, &region);
		await(side, 'w');
		until = now_ms() + i % 5;
		while (now_ms() < until)
			;
		OK(rpma_mr_dereg(&region.mr));
		memset(region.ptr, 0xee, SIZE);
		for (unsigned n = 0; n < 5; n++) {
			sleep_ms(2);
			check_bytes(region.ptr, SIZE, 0xee, "memory after rpma_mr_dereg()");
		}
		expect_broken(&link);
		check_bytes(region.ptr, SIZE, 0xee, "memory after the end");
		delete_link(&link);
		EXPECT(munmap(region.ptr, SIZE) == 0, "%s", strerror(errno));
	}
	close_node(&node);
}

static void
withdrawing_target(struct side *side)
{
	withdraw(side, region_new);
}

static void
withdrawing_words_target(struct side *side)
{
	withdraw(side, region_sealed);
}

static void
inspecting_withdrawing_words_target(struct side *side)
{
	forbid_tracing();
	withdraw(side, region_sealed);
}

/* One thread disconnects while another one deregisters the region. */
static void *
disconnect(void *link)
{
	OK(rpma_conn_disconnect(((struct link *)link)->conn));
	return NULL;
}

static void
ending_target(struct side *side)
{
	struct node node;

	open_target(&node, side);
	for (unsigned i = 0; i < 4 * ROUNDS; i++) {
		struct region region;
		pthread_t thread;
		struct link link;

		region_new(&node, &region, SIZE, RPMA_MR_USAGE_WRITE_DST);
		accept_link(&node, &link, NULL, &region);
		await(side, 'w');
		EXPECT(pthread_create(&thread, NULL, disconnect, &link) == 0);
		for (volatile unsigned spin = 0; spin < i % 10 * 2000; spin++)
			;
		OK(rpma_mr_dereg(&region.mr));
		memset(region.ptr, 0xee, SIZE);
		sleep_ms(1);
		check_bytes(region.ptr, SIZE, 0xee, "memory after rpma_mr_dereg()");
		EXPECT(pthread_join(thread, NULL) == 0);
		expect_broken(&link);
		check_bytes(region.ptr, SIZE, 0xee, "memory after the end");
		delete_link(&link);
		EXPECT(munmap(region.ptr, SIZE) == 0, "%s", strerror(errno));
	}
	close_node(&node);
}

/* Writes until one fails. */
static void
write_on(struct side *side, struct link *link, struct region *src, char point)
{
	for (unsigned n = 0;; n++) {
		struct ibv_wc wc;

		if (rpma_write(link->conn, link->remote, n % (SIZE / LEN) * LEN, src->mr, 0, LEN,
			    RPMA_F_COMPLETION_ALWAYS, NULL) != 0)
			return;
		next_wc(link->cq, &wc);
		if (wc.status != IBV_WC_SUCCESS)
			return;
		if (n == 100)
			notify(side, point);
	}
}

/*
 * Posts a write, so that the target exports the key, and then atomic writes until one fails. Calls `then`
 * after MANY of them.
 */
#define MANY 2000

static void
store_on(struct link *link, struct region *src, void (*then)(struct side *side), struct side *side)
{
	struct ibv_wc wc = {.status = IBV_WC_SUCCESS};

	write_part(link, 0, src, 0, LEN);
	for (uint64_t n = 0; wc.status == IBV_WC_SUCCESS; n++) {
		if (rpma_atomic_write(link->conn, link->remote, n % (SIZE / 8) * 8, (const char *)&n,
			    RPMA_F_COMPLETION_ALWAYS, (void *)(uintptr_t)n) != 0)
			return;
		next_wc(link->cq, &wc);
		EXPECT(wc.wr_id == n, "operation %u instead of %u", (unsigned)wc.wr_id, (unsigned)n);
		if (n == MANY)
			then(side);
	}
}

static void
say_w(struct side *side)
{
	notify(side, 'w');
}

static void
kill_target(struct side *side)
{
	EXPECT(kill(*side->target_pid, SIGKILL) == 0, "%s", strerror(errno));
}

static void
writing_initiator(struct side *side, unsigned rounds)
{
	struct region src;
	struct node node;

	open_initiator(&node, side);
	region_new(&node, &src, SIZE, RPMA_MR_USAGE_WRITE_SRC);
	fill_pattern(src.ptr, SIZE, 3);
	for (unsigned i = 0; i < rounds; i++) {
		struct link link;

		connect_link(&node, &link, NULL, NULL);
		write_on(side, &link, &src, 'w');
		end_broken(&link);
		delete_link(&link);
	}
	close_with_region(&node, &src);
}

static void
withdrawn_initiator(struct side *side)
{
	writing_initiator(side, ROUNDS);
}

static void
withdrawn_words_initiator(struct side *side)
{
	struct region src;
	struct node node;

	open_initiator(&node, side);
	region_new(&node, &src, SIZE, RPMA_MR_USAGE_WRITE_SRC);
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct ibv_wc wc;
		struct link link;

		connect_link(&node, &link, NULL, NULL);
		store_on(&link, &src, say_w, side);
		end_broken(&link);
		RETURNS(RPMA_E_NO_COMPLETION, rpma_cq_get_wc(link.cq, 1, &wc, NULL));
		delete_link(&link);
	}
	close_with_region(&node, &src);
}

static void
inspecting_withdrawn_words_initiator(struct side *side)
{
	forbid_tracing();
	withdrawn_words_initiator(side);
}

static void
ended_initiator(struct side *side)
{
	writing_initiator(side, 4 * ROUNDS);
}

/*
 * ---- a process that is killed while it copies ----------------------------------------------------------------------------------------
 */

/* Here the target writes. */
static void
killed_target(struct side *side)
{
	struct region src;
	struct node node;
	struct link link;

	open_target(&node, side);
	region_new(&node, &src, SIZE, RPMA_MR_USAGE_WRITE_SRC);
	accept_link(&node, &link, NULL, NULL);
	write_on(side, &link, &src, 'w');
	fail(__FILE__, __LINE__, "the process is killed", "it was not");
}

static void
killing_initiator(struct side *side)
{
	struct region region;
	struct node node;
	struct link link;

	open_initiator(&node, side);
	region_new(&node, &region, SIZE, RPMA_MR_USAGE_WRITE_DST);
	connect_link(&node, &link, NULL, &region);
	await(side, 'w');
	sleep_ms(5);
	EXPECT(kill(*side->target_pid, SIGKILL) == 0, "%s", strerror(errno));
	OK(rpma_mr_dereg(&region.mr));
	memset(region.ptr, 0xee, SIZE);
	expect_broken(&link);
	check_bytes(region.ptr, SIZE, 0xee, "memory after rpma_mr_dereg()");
	delete_link(&link);
	EXPECT(munmap(region.ptr, SIZE) == 0, "%s", strerror(errno));
	close_node(&node);
}

/* The memory that the initiator has mapped stays, but the connection ends. */
static void
killed_words_target(struct side *side)
{
	struct region region;
	struct node node;
	struct link link;

	open_target(&node, side);
	region_sealed(&node, &region, SIZE, RPMA_MR_USAGE_WRITE_DST);
	accept_link(&node, &link, NULL, &region);
	await_end(&link);
	fail(__FILE__, __LINE__, "the process is killed", "it was not");
}

static void
killing_words_initiator(struct side *side)
{
	struct region src;
	struct node node;
	struct link link;

	connect_with_region(&node, &link, &src, side, SIZE, RPMA_MR_USAGE_WRITE_SRC, NULL);
	store_on(&link, &src, kill_target, side);
	end_broken(&link);
	expect_no_wc(link.cq);
	delete_link(&link);
	close_with_region(&node, &src);
}

/*
 * ---- where the kernel does not permit it ---------------------------------------------------------------------------------------------
 */

static void
unaware_initiator(struct side *side)
{
	struct region region;
	struct node node;
	struct link link;

	connect_with_region(&node, &link, &region, side, SIZE, USAGE_ALL, NULL);
	for (unsigned i = 0; i < 50; i++) {
		fill_pattern(region.ptr, SIZE, 2);
		write_part(&link, 0, &region, 0, SIZE);
		memset(region.ptr, 0, SIZE);
		read_part(&link, &region, 0, 0, SIZE);
		check_pattern(region.ptr, SIZE, 2, "what was read");
	}
	end_link(&link);
	close_with_region(&node, &region);
}

static void
forbidden_initiator(struct side *side)
{
	forbid_call(SYS_process_vm_readv);
	forbid_call(SYS_process_vm_writev);
	unaware_initiator(side);
}

/* Only root may access the process that is written to. */
static void
secretive_target(struct side *side)
{
	EXPECT(prctl(PR_SET_DUMPABLE, 0) == 0, "%s", strerror(errno));
	serve(side, SIZE, 1, 2);
}

/*
 * ---- order ---------------------------------------------------------------------------------------------------------------------------
 */

static void
await_message(struct link *link)
{
	struct ibv_wc wc;

	next_wc(link->cq, &wc);
	EXPECT(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV, "status %d, opcode %d", wc.status, wc.opcode);
}

static void
receiving_target(struct side *side)
{
	struct region region, messages;
	struct node node;
	struct link link;

	open_target(&node, side);
	region_new(&node, &region, LEN, USAGE_PLAIN);
	region_new(&node, &messages, 64, USAGE_ALL);
	accept_link(&node, &link, NULL, &region);
	await(side, 'i');
	for (unsigned i = 0; i < 200; i++) {
		OK(rpma_recv(link.conn, messages.mr, 0, 8, NULL));
		OK(rpma_recv(link.conn, messages.mr, 8, 8, NULL));
		notify(side, 'r');
		await_message(&link);
		await_message(&link);
		check_pattern(region.ptr, LEN, 100 + i, "what was written before the second message");
	}
	/* a write does not overtake a message without a receive */
	fill_pattern(region.ptr, LEN, 5);
	notify(side, 'r');
	await(side, 'p');
	for (unsigned i = 0; i < 10; i++) {
		check_pattern(region.ptr, LEN, 5, "memory of a write after a message without a receive");
		sleep_ms(10);
	}
	OK(rpma_recv(link.conn, messages.mr, 0, 8, NULL));
	await_message(&link);
	await(side, 'd');
	check_pattern(region.ptr, LEN, 6, "memory of a write after a message");
	await_end(&link);
	region_free(&region);
	close_with_region(&node, &messages);
}

static void
ordering_initiator(struct side *side)
{
	struct region src, message;
	struct node node;
	struct link link;

	open_initiator(&node, side);
	region_new(&node, &src, LEN, USAGE_ALL);
	region_new(&node, &message, 64, USAGE_ALL);
	connect_link(&node, &link, NULL, NULL);
	if (copies_directly(*side->target_pid))
		await_direct(&link, &src, LEN);
	notify(side, 'i');
	for (unsigned i = 0; i < 200; i++) {
		await(side, 'r');
		fill_pattern(src.ptr, LEN, 100 + i);
		OK(rpma_send(link.conn, message.mr, 0, 8, RPMA_F_COMPLETION_ON_ERROR, NULL));
		if (i % 2 == 0)
			sleep_ms(1);
		OK(rpma_write(link.conn, link.remote, 0, src.mr, 0, LEN, RPMA_F_COMPLETION_ON_ERROR, NULL));
		OK(rpma_send(link.conn, message.mr, 0, 8, RPMA_F_COMPLETION_ALWAYS, (void *)1));
		expect_wc(link.cq, 1, IBV_WC_SEND);
	}
	await(side, 'r');
	fill_pattern(src.ptr, LEN, 6);
	OK(rpma_send(link.conn, message.mr, 0, 8, RPMA_F_COMPLETION_ON_ERROR, NULL));
	sleep_ms(20);
	OK(rpma_write(link.conn, link.remote, 0, src.mr, 0, LEN, RPMA_F_COMPLETION_ALWAYS, (void *)2));
	notify(side, 'p');
	expect_wc(link.cq, 2, IBV_WC_RDMA_WRITE);
	/* its response means that the write has been placed */
	read_part(&link, &src, 0, 0, LEN);
	check_pattern(src.ptr, LEN, 6, "what was read after a delayed message");
	notify(side, 'd');
	end_link(&link);
	region_free(&src);
	close_with_region(&node, &message);
}

const struct test direct_tests[] = {
	{"direct-stopped-target", idle_target, busy_initiator, .seconds = 60},
	{"direct-copies-at-once", idle_target, reading_initiator, .missing = no_direct_copies},
	{"direct-words-stopped-target", words_target, words_initiator, .seconds = 60},
	{"direct-words-inspected-target", inspected_words_target, inspecting_words_initiator, .seconds = 60},
	{"direct-withdrawn-memory", withdrawing_target, withdrawn_initiator, .seconds = 60},
	{"direct-withdrawn-words", withdrawing_words_target, withdrawn_words_initiator, .seconds = 60, .missing = not_soft},
	{"direct-withdrawn-words-inspected", inspecting_withdrawing_words_target, inspecting_withdrawn_words_initiator, .seconds = 60,
		.missing = not_soft},
	{"direct-withdrawn-at-the-end", ending_target, ended_initiator, .seconds = 60, .missing = not_soft},
	{"direct-killed-writer", killed_target, killing_initiator, .target_ends_by = SIGKILL},
	{"direct-killed-words", killed_words_target, killing_words_initiator, .target_ends_by = SIGKILL, .missing = not_soft},
	{"direct-forbidden", idle_target, forbidden_initiator},
	{"direct-not-dumpable", secretive_target, unaware_initiator},
	{"direct-order", receiving_target, ordering_initiator, .seconds = 60},
	{.name = NULL},
};
