/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * held.c -- a process that blocks in the middle of a direct copy to the memory of its peer. Its memory is
 * handled by userfaultfd(2), so the copy blocks at a missing page until the test provides it. The peer must
 * not wait for that on the engine thread, nor deregister the memory before.
 */
#include "link.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE 4096
#define LEN (16 * PAGE)
#define MESSAGES 50
/* the owner does not serve reads of it itself, so writes and reads are direct copies */
#define USAGE_PLAIN (RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_WRITE_DST)

static int
new_userfaultfd(void)
{
	struct uffdio_api api = {.api = UFFD_API};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

	if (fd >= 0 && ioctl(fd, UFFDIO_API, &api) != 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static const char *
cannot_block(void)
{
	int fd;

	if (!direct_copies_are_on())
		return "";
	fd = new_userfaultfd();
	if (fd < 0)
		return "the kernel does not permit userfaultfd(2) for system calls";
	close(fd);
	return NULL;
}

static const char *
cannot_hold(void)
{
	static char here;
	char byte;
	struct iovec to = {&byte, 1}, from = {&here, 1};

	/* of the parent, as of any other process */
	if (direct_copies_are_on() && process_vm_readv(getppid(), &to, 1, &from, 1, 0) != 1 && errno == EPERM)
		return "the kernel does not permit processes to access one another";
	return cannot_block();
}

/* A write from memory whose second page is missing. */
struct held {
	struct region src;
	struct link *link;
	int fault; /* the userfaultfd */
	pthread_t writer;
};

static void *
write_held(void *arg)
{
	struct held *held = arg;

	/* may fail: the peer ends the connection meanwhile */
	(void)rpma_write(held->link->conn, held->link->remote, 0, held->src.mr, 0, LEN, RPMA_F_COMPLETION_ALWAYS, NULL);
	return NULL;
}

/* Returns when a thread of this process is blocked in the middle of a copy to the peer. */
static void
hold(struct held *held, struct node *node, struct link *link)
{
	struct region whole;
	struct uffd_msg message;
	struct uffdio_register missing = {.mode = UFFDIO_REGISTER_MODE_MISSING};

	region_new(node, &whole, LEN, RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_READ_DST);
	await_direct(link, &whole, LEN);
	region_free(&whole);

	held->link = link;
	held->fault = new_userfaultfd();
	EXPECT(held->fault >= 0, "%s", strerror(errno));
	region_reg(node, &held->src, mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), LEN,
		RPMA_MR_USAGE_WRITE_SRC);
	memset(held->src.ptr, 3, PAGE);
	missing.range.start = (uintptr_t)held->src.ptr + PAGE;
	missing.range.len = PAGE;
	EXPECT(ioctl(held->fault, UFFDIO_REGISTER, &missing) == 0, "%s", strerror(errno));
	memset(held->src.ptr + 2 * PAGE, 3, LEN - 2 * PAGE);
	EXPECT(pthread_create(&held->writer, NULL, write_held, held) == 0);
	EXPECT(read(held->fault, &message, sizeof(message)) == sizeof(message), "%s", strerror(errno));
	EXPECT(message.event == UFFD_EVENT_PAGEFAULT, "event %u", message.event);
}

/* The owner: the copy is direct; through the rings nothing would be placed before all bytes are read. */
static void
expect_begun(const struct region *region)
{
	check_bytes(region->ptr, PAGE, 3, "the page before the missing one");
}

static void
let_go(struct held *held)
{
	static char page[PAGE];
	struct uffdio_copy copy = {.dst = (uintptr_t)held->src.ptr + PAGE, .src = (uintptr_t)page, .len = PAGE};

	memset(page, 3, PAGE);
	EXPECT(ioctl(held->fault, UFFDIO_COPY, &copy) == 0, "%s", strerror(errno));
	EXPECT(pthread_join(held->writer, NULL) == 0);
	close(held->fault);
}

/*
 * ---- the owner ends the connection, then deregisters its region ------------------------------------------------------------------------
 */

static void *
release_later(void *side)
{
	sleep_ms(200);
	notify(side, 'r');
	return NULL;
}

static void
ending_target(struct side *side)
{
	struct region region;
	pthread_t thread;
	struct node node;
	struct link link;

	accept_with_region(&node, &link, &region, side, LEN, USAGE_PLAIN, NULL);
	await(side, 'h');
	expect_begun(&region);
	OK(rpma_conn_disconnect(link.conn));
	EXPECT(pthread_create(&thread, NULL, release_later, side) == 0);
	OK(rpma_mr_dereg(&region.mr));
	memset(region.ptr, 0xee, LEN);
	EXPECT(pthread_join(thread, NULL) == 0);
	for (unsigned i = 0; i < 30; i++) {
		check_bytes(region.ptr, LEN, 0xee, "memory after rpma_mr_dereg()");
		sleep_ms(10);
	}
	expect_broken(&link);
	delete_link(&link);
	EXPECT(munmap(region.ptr, LEN) == 0, "%s", strerror(errno));
	close_node(&node);
}

static void
held_initiator(struct side *side)
{
	struct held held;
	struct node node;
	struct link link;

	open_initiator(&node, side);
	connect_link(&node, &link, NULL, NULL);
	hold(&held, &node, &link);
	notify(side, 'h');
	await(side, 'r');
	let_go(&held);
	end_broken(&link);
	delete_link(&link);
	region_free(&held.src);
	close_node(&node);
}

/*
 * ---- the other connections of the owner -----------------------------------------------------------------------------------------------
 */

static void
serving_target(struct side *side)
{
	struct region region, messages;
	struct link link, other;
	struct node node;

	open_target(&node, side);
	region_new(&node, &region, LEN, USAGE_PLAIN);
	region_new(&node, &messages, 64, USAGE_ALL);
	accept_link(&node, &link, NULL, &region);
	accept_link(&node, &other, NULL, &region);
	await(side, 'h');
	expect_begun(&region);
	OK(rpma_conn_disconnect(link.conn));
	expect_broken(&link);
	for (unsigned i = 0; i < MESSAGES; i++) {
		struct ibv_wc wc;

		OK(rpma_recv(other.conn, messages.mr, 0, 8, NULL));
		notify(side, 'm');
		next_wc(other.cq, &wc);
		EXPECT(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV, "status %d, opcode %d", wc.status, wc.opcode);
	}
	notify(side, 'r');
	await_end(&other);
	OK(rpma_mr_dereg(&region.mr));
	EXPECT(munmap(region.ptr, LEN) == 0, "%s", strerror(errno));
	delete_link(&link);
	close_with_region(&node, &messages);
}

static void
serving_initiator(struct side *side)
{
	struct region message;
	struct link link, other;
	struct held held;
	struct node node;

	connect_with_region(&node, &link, &message, side, 64, USAGE_ALL, NULL);
	connect_link(&node, &other, NULL, NULL);
	hold(&held, &node, &link);
	notify(side, 'h');
	for (unsigned i = 0; i < MESSAGES; i++) {
		await(side, 'm');
		OK(rpma_send(other.conn, message.mr, 0, 8, RPMA_F_COMPLETION_ALWAYS, (void *)1));
		expect_wc(other.cq, 1, IBV_WC_SEND);
	}
	await(side, 'r');
	let_go(&held);
	end_broken(&link);
	delete_link(&link);
	end_link(&other);
	region_free(&held.src);
	close_with_region(&node, &message);
}

/*
 * ---- a process that executes another program while it is held --------------------------------------------------------------------------
 */

static void
executing_target(struct side *side)
{
	struct held held;
	struct node node;
	struct link link;

	open_target(&node, side);
	accept_link(&node, &link, NULL, NULL);
	hold(&held, &node, &link);
	notify(side, 'h');
	execl("/bin/sleep", "sleep", "60", (char *)NULL);
	fail(__FILE__, __LINE__, "another program runs", "%s", strerror(errno));
}

static void
deregister_after_exec(struct side *side, void (*new_region)(struct node *node, struct region *region, size_t size, int usage))
{
	struct region region;
	struct node node;
	struct link link;

	open_initiator(&node, side);
	new_region(&node, &region, LEN, USAGE_PLAIN);
	connect_link(&node, &link, NULL, &region);
	await(side, 'h');
	expect_begun(&region);
	/* while the other program runs */
	expect_broken(&link);
	OK(rpma_mr_dereg(&region.mr));
	memset(region.ptr, 0xee, LEN);
	EXPECT(kill(*side->target_pid, SIGKILL) == 0, "%s", strerror(errno));
	sleep_ms(50);
	check_bytes(region.ptr, LEN, 0xee, "memory after rpma_mr_dereg()");
	delete_link(&link);
	EXPECT(munmap(region.ptr, LEN) == 0, "%s", strerror(errno));
	close_node(&node);
}

static void
patient_initiator(struct side *side)
{
	deregister_after_exec(side, region_new);
}

/* Each may access only the memfds of the other one. */
static void
inspecting_executing_target(struct side *side)
{
	forbid_tracing();
	executing_target(side);
}

static void
inspecting_patient_initiator(struct side *side)
{
	forbid_tracing();
	deregister_after_exec(side, region_sealed);
}

const struct test held_tests[] = {
	{"direct-held-at-the-end", ending_target, held_initiator, .missing = cannot_hold},
	{"direct-held-others-go-on", serving_target, serving_initiator, .missing = cannot_hold},
	{"direct-held-and-executed", executing_target, patient_initiator, .target_ends_by = SIGKILL, .missing = cannot_hold},
	{"direct-held-and-executed-inspected", inspecting_executing_target, inspecting_patient_initiator, .target_ends_by = SIGKILL,
		.missing = cannot_block},
	{.name = NULL},
};
