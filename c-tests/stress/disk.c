/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * disk.c -- a medium that fails or is full during a flush to persistence. The kernel reports lost pages only
 * once, to the first caller. So after a failed flush all later flushes of the region fail, too, until the
 * program registers the memory again.
 */
#include "failing.h"
#include "stress.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <unistd.h>

#define SIZE 65536
#define USAGE (RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY)

/* A second region, besides the one of the private data. */
static void
send_region(struct side *side, const struct region *region)
{
	char descriptor[DESCRIPTOR_SIZE];

	OK(rpma_mr_get_descriptor(region->mr, descriptor));
	EXPECT(write(side->sync, descriptor, sizeof(descriptor)) == sizeof(descriptor));
}

static struct rpma_mr_remote *
receive_region(struct side *side)
{
	char descriptor[DESCRIPTOR_SIZE];
	struct rpma_mr_remote *remote = NULL;

	EXPECT(read(side->sync, descriptor, sizeof(descriptor)) == sizeof(descriptor));
	OK(rpma_mr_remote_from_descriptor(descriptor, sizeof(descriptor), &remote));
	return remote;
}

/* Writes and flushes. Returns whether the flush has succeeded. */
static bool
write_and_flush(struct link *link, struct rpma_mr_remote *remote, struct region *out, enum rpma_flush_type type)
{
	struct ibv_wc wc;

	OK(rpma_write(link->conn, remote, 0, out->mr, 0, 64, RPMA_F_COMPLETION_ALWAYS, (void *)1));
	OK(rpma_flush(link->conn, remote, 0, SIZE, type, RPMA_F_COMPLETION_ALWAYS, (void *)2));
	next_wc(link->cq, &wc);
	EXPECT(wc.wr_id == 1, "%llu", (unsigned long long)wc.wr_id);
	next_wc(link->cq, &wc);
	EXPECT(wc.wr_id == 2, "%llu", (unsigned long long)wc.wr_id);
	return wc.status == IBV_WC_SUCCESS;
}

static void
end_failed(struct link *link)
{
	struct ibv_wc wc;

	expect_broken(link);
	RETURNS(RPMA_E_NO_COMPLETION, rpma_cq_get_wc(link->cq, 1, &wc, NULL));
	OK(rpma_conn_disconnect(link->conn));
	delete_link(link);
}

static const int disk_errors[] = {EIO, ENOSPC};
#define DISK_ERRORS (sizeof(disk_errors) / sizeof(disk_errors[0]))

/*
 * The medium fails once. Two regions contain the memory whose writes are lost; a third one does not: its
 * flush covers another medium and succeeds.
 */
static void
failing_target(struct side *side)
{
	char *memory = pages(2 * SIZE);
	struct region first;
	struct region same;
	struct region other;
	struct node node;
	struct link link;

	open_target(&node, side);
	for (size_t i = 0; i < DISK_ERRORS; i++) {
		region_reg(&node, &first, memory, SIZE, USAGE);
		region_reg(&node, &same, memory, SIZE, USAGE);
		region_reg(&node, &other, memory + SIZE, SIZE, USAGE);
		/* the first flush succeeds, the second one fails, later ones would succeed */
		let_fail(CALL_msync, 2, disk_errors[i], false);
		accept_link(&node, &link, NULL, &first);
		send_region(side, &same);
		send_region(side, &other);
		expect_broken(&link);
		OK(rpma_conn_disconnect(link.conn));
		delete_link(&link);
		EXPECT(has_failed(), "msync was not called a second time");
		for (int k = 0; k < 2; k++) {
			accept_link(&node, &link, NULL, k == 0 ? &first : &same);
			expect_broken(&link);
			OK(rpma_conn_disconnect(link.conn));
			delete_link(&link);
		}
		accept_link(&node, &link, NULL, &first);
		await_end(&link);
		accept_link(&node, &link, NULL, &other);
		await_end(&link);
		/* after a new registration the lost writes are no longer known */
		OK(rpma_mr_dereg(&first.mr));
		region_reg(&node, &first, memory, SIZE, USAGE);
		accept_link(&node, &link, NULL, &first);
		await_end(&link);
		OK(rpma_mr_dereg(&first.mr));
		OK(rpma_mr_dereg(&same.mr));
		OK(rpma_mr_dereg(&other.mr));
	}
	close_node(&node);
}

static void
failing_initiator(struct side *side)
{
	struct region out;
	struct node node;
	struct link link;

	open_initiator(&node, side);
	region_new(&node, &out, SIZE, USAGE_ALL);
	fill_pattern(out.ptr, SIZE, 1);
	for (size_t i = 0; i < DISK_ERRORS; i++) {
		struct rpma_mr_remote *same;
		struct rpma_mr_remote *other;

		connect_link(&node, &link, NULL, NULL);
		same = receive_region(side);
		other = receive_region(side);
		EXPECT(write_and_flush(&link, link.remote, &out, RPMA_FLUSH_TYPE_PERSISTENT));
		EXPECT(!write_and_flush(&link, link.remote, &out, RPMA_FLUSH_TYPE_PERSISTENT), "the medium failed with %s",
			strerror(disk_errors[i]));
		end_failed(&link);
		for (int k = 0; k < 2; k++) {
			connect_link(&node, &link, NULL, NULL);
			EXPECT(!write_and_flush(&link, link.remote, &out, RPMA_FLUSH_TYPE_PERSISTENT),
				"after %s, a flush of %s succeeds", strerror(disk_errors[i]),
				k == 0 ? "the same region" : "another region of the same memory");
			end_failed(&link);
		}
		/* a read may be a flush, so it is refused; a write succeeds */
		connect_link(&node, &link, NULL, NULL);
		write_part(&link, 0, &out, 0, 64);
		end_link(&link);
		connect_link(&node, &link, NULL, NULL);
		EXPECT(write_and_flush(&link, link.remote, &out, RPMA_FLUSH_TYPE_PERSISTENT), "adjacent memory");
		end_link(&link);
		connect_link(&node, &link, NULL, NULL);
		EXPECT(write_and_flush(&link, link.remote, &out, RPMA_FLUSH_TYPE_PERSISTENT), "registered anew");
		end_link(&link);
		OK(rpma_mr_remote_delete(&same));
		OK(rpma_mr_remote_delete(&other));
	}
	region_free(&out);
	close_node(&node);
}

/*
 * A full file system: the kernel has no page for a write to a hole of the file, and raises SIGBUS in the
 * thread that accesses it. The write ends its connection; the process continues, and so do connections that
 * write to allocated pages. PAIRS_SKIP omits this test where mount(2) is not permitted.
 */
#define FULL_SIZE (1 << 20)

static void
write_file(const char *path, const char *format, unsigned id)
{
	char text[32];
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int len = snprintf(text, sizeof(text), format, id);

	EXPECT(fd >= 0 && write(fd, text, (size_t)len) == len, "%s: %s", path, strerror(errno));
	close(fd);
}

/* A separate mount namespace for this process; without root, in a user namespace. */
static void
may_mount(void)
{
	unsigned uid = geteuid();
	unsigned gid = getegid();

	if (uid == 0) {
		EXPECT(unshare(CLONE_NEWNS) == 0, "%s", strerror(errno));
	} else {
		EXPECT(unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0, "%s", strerror(errno));
		write_file("/proc/self/setgroups", "deny", 0);
		write_file("/proc/self/uid_map", "0 %u 1", uid);
		write_file("/proc/self/gid_map", "0 %u 1", gid);
	}
	EXPECT(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0, "%s", strerror(errno));
}

static char *
map_full_disk(void)
{
	char dir[] = "/tmp/stress-XXXXXX";
	char path[64];
	char *ptr;
	int fd;

	EXPECT(mkdtemp(dir) != NULL, "%s", strerror(errno));
	may_mount();
	EXPECT(mount("tmpfs", dir, "tmpfs", 0, "size=128k") == 0, "%s", strerror(errno));
	snprintf(path, sizeof(path), "%s/file", dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	EXPECT(fd >= 0 && ftruncate(fd, FULL_SIZE) == 0, "%s", strerror(errno));
	ptr = mmap(NULL, FULL_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	EXPECT(ptr != MAP_FAILED, "%s", strerror(errno));
	close(fd);
	umount2(dir, MNT_DETACH);
	rmdir(dir);
	return ptr;
}

static void
full_target(struct side *side)
{
	struct region region;
	struct node node;
	struct link link;
	char *file = map_full_disk();

	open_target(&node, side);
	region_reg(&node, &region, file, FULL_SIZE, USAGE);
	accept_link(&node, &link, NULL, &region);
	expect_broken(&link);
	OK(rpma_conn_disconnect(link.conn));
	delete_link(&link);
	accept_link(&node, &link, NULL, &region);
	await_end(&link);
	check_pattern(file, 4096, 5, "what was written to allocated pages");
	region_free(&region);
	close_node(&node);
}

static void
full_initiator(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(1024, 1024, 0, 0);
	unsigned succeeded = 0;
	struct region out;
	struct node node;
	struct link link;
	unsigned n;

	open_initiator(&node, side);
	region_new(&node, &out, FULL_SIZE, USAGE_ALL);
	fill_pattern(out.ptr, 4096, 5);
	connect_link(&node, &link, cfg, NULL);
	for (n = 0; n < FULL_SIZE / 4096; n++) {
		struct ibv_wc wc;

		OK(rpma_write(link.conn, link.remote, n * 4096, out.mr, 0, 4096, RPMA_F_COMPLETION_ALWAYS, (void *)1));
		OK(rpma_flush(link.conn, link.remote, n * 4096, 4096, RPMA_FLUSH_TYPE_PERSISTENT, RPMA_F_COMPLETION_ALWAYS, (void *)2));
		next_wc(link.cq, &wc);
		next_wc(link.cq, &wc);
		if (wc.status != IBV_WC_SUCCESS)
			break;
		succeeded++;
	}
	EXPECT(succeeded > 0 && succeeded <= 128 / 4, "%u pages were flushed to a file system of 32", succeeded);
	end_failed(&link);
	/* allocated pages can be written and flushed as before */
	connect_link(&node, &link, NULL, NULL);
	write_part(&link, 0, &out, 0, 4096);
	OK(rpma_flush(link.conn, link.remote, 0, 4096, RPMA_FLUSH_TYPE_PERSISTENT, RPMA_F_COMPLETION_ALWAYS, (void *)2));
	expect_wc(link.cq, 2, IBV_WC_RDMA_READ);
	figures("     a full file system had %u pages; the write of another one ended its connection", succeeded);
	end_link(&link);
	OK(rpma_conn_cfg_delete(&cfg));
	region_free(&out);
	close_node(&node);
}

const struct test disk_tests[] = {
	{"disk-fails-once", failing_target, failing_initiator},
	{"disk-full", full_target, full_initiator},
	{.name = NULL},
};
