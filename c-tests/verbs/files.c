/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * files.c -- the files of soft0 as a RoCE device, which open(), stat(), access() and readlink() handle under
 * `rpma run`; all other paths are those of the system
 */
#include "rc.h"

#include <fcntl.h>
#include <net/if.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEVICE "/dev/infiniband/soft0"
#define PORT "/sys/class/infiniband/soft0/ports/1"
#define FAILS(errnum, call) EXPECT((call) == -1 && errno == (errnum), ": %s", strerror(errno))

static void
nothing(struct side *side)
{
	(void)side;
}

/* As UCX does. */
static const char *
content(const char *format, int index)
{
	static char text[64];
	char path[256];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), format, index);
	fd = open(path, O_RDONLY);
	EXPECT(fd >= 0, "%s: %s", path, strerror(errno));
	n = read(fd, text, sizeof(text) - 1);
	EXPECT(n > 0 && text[n - 1] == '\n', "%s: %zd", path, n);
	EXPECT(read(fd, text + n, 1) == 0, "%s is longer than the first read", path);
	DONE(close(fd));
	text[n - 1] = '\0';
	return text;
}

static void
files_i(struct side *side)
{
	struct ibv_context *device = roce_device();
	int index = gid_index(device);
	struct ibv_gid_entry entry;
	unsigned fds = count_fds();
	struct stat found;
	char link[8];
	char byte;
	int fd;

	(void)side;
	DONE(stat(DEVICE, &found));
	EXPECT(S_ISCHR(found.st_mode) && (found.st_mode & 0777) == 0666, "mode %o", found.st_mode);
	DONE(access(DEVICE, R_OK | W_OK));
	FAILS(EACCES, access(DEVICE, X_OK));
	fd = open(DEVICE, O_RDWR | O_CLOEXEC);
	EXPECT(fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC, "%s", strerror(errno));
	DONE(close(fd));

	DONE(ibv_query_gid_ex(device, 1, (uint32_t)index, &entry, 0));
	EXPECT(strcmp(content(PORT "/gid_attrs/types/%d", index), "RoCE v2") == 0, "");
	EXPECT(if_nametoindex(content(PORT "/gid_attrs/ndevs/%d", index)) == entry.ndev_ifindex, "");
	EXPECT(strcmp(content(PORT "/pkeys/%d", 0), "0xffff") == 0, "");
	EXPECT(strcmp(content(PORT "/counters/port_xmit_data", 0), "0") == 0, "");
	DONE(stat(PORT "/pkeys/0", &found));
	EXPECT(S_ISREG(found.st_mode) && (found.st_mode & 0777) == 0444, "mode %o", found.st_mode);
	FAILS(EACCES, open(PORT "/pkeys/0", O_WRONLY));
	FAILS(EINVAL, readlink(PORT "/pkeys/0", link, sizeof(link)));

	/* a file of an empty entry can be opened, but not read */
	fd = open(PORT "/gid_attrs/types/255", O_RDONLY);
	EXPECT(fd >= 0, "%s", strerror(errno));
	FAILS(EINVAL, read(fd, &byte, 1));
	DONE(close(fd));

	FAILS(ENOENT, open(PORT "/gid_attrs/types/256", O_RDONLY));
	FAILS(ENOENT, open(PORT "/pkeys/1", O_RDONLY));
	FAILS(ENOENT, access(PORT "/state", F_OK));
	FAILS(ENOENT, stat(DEVICE "0", &found));
	FAILS(ENOENT, readlink(PORT "/counters", link, sizeof(link)));
	EXPECT(count_fds() == fds, "%u descriptors instead of %u", count_fds(), fds);
	DONE(ibv_close_device(device));
}

static unsigned long
counter(const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), PORT "/counters/%s", name);
	return strtoul(content(path, 0), NULL, 10);
}

/* A write of four packets, and its acknowledgement, over UDP: the counters are those of the port. */
static void
counters_t(struct side *side)
{
	struct rc rc;

	setenv("SOFTVERBS_LOCAL", "0", 1);
	make_rc(&rc, side, (struct rc_terms){.mtu = IBV_MTU_1024});
	await(side, 'w');
	EXPECT(counter("port_rcv_packets") >= 4 && counter("port_rcv_data") >= 1024, "%lu", counter("port_rcv_packets"));
	EXPECT(counter("port_xmit_packets") >= 1, "");
	close_rc(&rc);
}

static void
counters_i(struct side *side)
{
	struct ibv_wc wc;
	struct rc rc;

	setenv("SOFTVERBS_LOCAL", "0", 1);
	make_rc(&rc, side, (struct rc_terms){.mtu = IBV_MTU_1024});
	post(&rc, 0, IBV_WR_RDMA_WRITE, 7, 0, 4096);
	wc = next_of(rc.send_cq);
	EXPECT(wc.status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(wc.status));
	EXPECT(counter("port_xmit_packets") >= 4 && counter("port_xmit_data") >= 1024, "%lu", counter("port_xmit_packets"));
	EXPECT(counter("port_rcv_packets") >= 1 && counter("port_rcv_errors") == 0, "");
	notify(side, 'w');
	close_rc(&rc);
}

static void
iwarp_i(struct side *side)
{
	struct stat found;
	int n;

	(void)side;
	ibv_free_device_list(ibv_get_device_list(&n));
	FAILS(ENOENT, stat(DEVICE, &found));
	FAILS(ENOENT, access(DEVICE, F_OK));
	FAILS(ENOENT, open(PORT "/gid_attrs/types/0", O_RDONLY));
	FAILS(ENOENT, open(PORT "/pkeys/0", O_RDONLY));
}

static void *
open_fifo(void *path)
{
	int fd = open(path, O_RDONLY);

	EXPECT(fd < 0, "there is no writer");
	return NULL;
}

static void
others_i(struct side *side)
{
	char directory[] = "/tmp/files-XXXXXX", file[64], fifo[64], link[64], target[16];
	const char *volatile nowhere = NULL; /* the compiler rejects the literal NULL */
	struct stat found;
	pthread_t thread;
	void *result;
	int fd;

	(void)side;
	umask(0);
	EXPECT(mkdtemp(directory) != NULL, "%s", strerror(errno));
	snprintf(file, sizeof(file), "%s/file", directory);
	snprintf(fifo, sizeof(fifo), "%s/fifo", directory);
	snprintf(link, sizeof(link), "%s/link", directory);

	/* the mode of a new file is passed on */
	fd = open(file, O_CREAT | O_EXCL | O_WRONLY, 0640);
	EXPECT(fd >= 0 && write(fd, "x", 1) == 1, "%s", strerror(errno));
	DONE(close(fd));
	DONE(stat(file, &found));
	EXPECT(found.st_mode == (S_IFREG | 0640) && found.st_size == 1, "mode %o", found.st_mode);
	FAILS(EEXIST, open(file, O_CREAT | O_EXCL | O_WRONLY, 0640));
	DONE(symlink("file", link));
	EXPECT(readlink(link, target, sizeof(target)) == 4 && memcmp(target, "file", 4) == 0, "");
	DONE(access(link, W_OK));
	FAILS(ENOENT, access("/sys/class/infiniband/soft1/ports/1/pkeys/0", F_OK));
	FAILS(EFAULT, open(nowhere, O_RDONLY));

	/* open() is still a cancellation point */
	DONE(mkfifo(fifo, 0600));
	DONE(pthread_create(&thread, NULL, open_fifo, fifo));
	sleep_ms(50);
	DONE(pthread_cancel(thread));
	DONE(pthread_join(thread, &result));
	EXPECT(result == PTHREAD_CANCELED, "the thread was not cancelled");

	DONE(unlink(fifo));
	DONE(unlink(link));
	DONE(unlink(file));
	DONE(rmdir(directory));
}

static void
nonblocking_i(struct side *side)
{
	struct ibv_context *device = roce_device();
	struct ibv_async_event event;
	int flags = fcntl(device->async_fd, F_GETFL);

	(void)side;
	EXPECT(flags >= 0, "%s", strerror(errno));
	DONE(fcntl(device->async_fd, F_SETFL, flags | O_NONBLOCK));
	FAILS(EAGAIN, ibv_get_async_event(device, &event));
	DONE(ibv_close_device(device));
}

const struct test files[] = {
	{.name = "roce-files", .target = nothing, .initiator = files_i, .missing = not_soft},
	{.name = "roce-counters", .target = counters_t, .initiator = counters_i, .missing = not_soft},
	{.name = "roce-async-nonblocking", .target = nothing, .initiator = nonblocking_i, .missing = not_soft},
	{.name = "iwarp-files", .target = nothing, .initiator = iwarp_i, .missing = not_soft},
	{.name = "other-files", .target = nothing, .initiator = others_i},
	{.name = NULL},
};
