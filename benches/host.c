/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * host.c -- the references on one host: the performance of the kernel and the memory between two processes,
 * without a library.
 */
#include "bench.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* The address of the memory of the other side. */
struct place {
	pid_t pid;
	char *ptr;
};

static char *
filled_pages(size_t size, int flags)
{
	char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	REQUIRE(p != MAP_FAILED, "mmap of %zu bytes: %s", size, strerror(errno));
	memset(p, 1, size);
	return p;
}

/* The target offers memory and sleeps until the initiator is done. */
static bool
offer(struct side *side, size_t size, struct place *place)
{
	char done;

	if (side->initiator) {
		ctl_recv(side, place, sizeof(*place));
		return true;
	}
	*place = (struct place){getpid(), filled_pages(size, MAP_PRIVATE)};
	/* needed if Yama restricts access to descendants; otherwise EINVAL */
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
	ctl_send(side, place, sizeof(*place));
	ctl_recv(side, &done, sizeof(done));
	return false;
}

static void
copy(const struct place *place, char *own, size_t size, bool reads)
{
	struct iovec near = {own, size}, far = {place->ptr, size};
	ssize_t n = reads ? process_vm_readv(place->pid, &near, 1, &far, 1, 0)
			  : process_vm_writev(place->pid, &near, 1, &far, 1, 0);

	REQUIRE(n == (ssize_t)size, "process_vm_%sv: %s", reads ? "read" : "write", strerror(errno));
}

/* One call after the other, each with all bytes. */
static void
vm(struct side *side, bool reads)
{
	struct place place;
	struct timer t;
	char *own;

	if (!offer(side, side->opt.size, &place))
		return;
	own = filled_pages(side->opt.size, MAP_PRIVATE);
	for (timer_start(&t, side->opt.ms); timer_next(&t);)
		copy(&place, own, side->opt.size, reads);
	timer_report(&t, 1);
	ctl_send(side, "", 1);
}

void
vm_write(struct side *side)
{
	vm(side, false);
}

void
vm_read(struct side *side)
{
	vm(side, true);
}

/*
 * As the library does: the same call first accesses a guard page, which identifies the process. A read reads
 * its number, a write writes a byte behind that.
 */
static void
vm_guarded(struct side *side, bool reads)
{
	size_t size = side->opt.size, page = (size_t)sysconf(_SC_PAGESIZE);
	char number[16] = {0};
	size_t guard = reads ? sizeof(number) : 1;
	struct place place;
	struct timer t;
	char *own;

	if (!offer(side, page + size, &place))
		return;
	own = filled_pages(size, MAP_PRIVATE);
	for (timer_start(&t, side->opt.ms); timer_next(&t);) {
		struct iovec near[] = {{number, guard}, {own, size}}, far[] = {{place.ptr, guard}, {place.ptr + page, size}};
		ssize_t n = reads ? process_vm_readv(place.pid, near, 2, far, 2, 0) : process_vm_writev(place.pid, near, 2, far, 2, 0);

		REQUIRE(n == (ssize_t)(guard + size), "process_vm_%sv: %s", reads ? "read" : "write", strerror(errno));
	}
	timer_report(&t, 1);
	ctl_send(side, "", 1);
}

void
vm_write_guarded(struct side *side)
{
	vm_guarded(side, false);
}

void
vm_read_guarded(struct side *side)
{
	vm_guarded(side, true);
}

/* The same as a bandwidth. */
static void
print_rate(uint64_t began, uint64_t n, size_t size)
{
	printf("value=%.4f rounds=%" PRIu64 "\n", (double)n * (double)size / (double)(now_ns() - began), n);
}

static void
vm_stream(struct side *side, bool reads)
{
	struct place place;
	uint64_t began, end, n = 0;
	char *own;

	if (!offer(side, side->opt.size, &place))
		return;
	own = filled_pages(side->opt.size, MAP_PRIVATE);
	began = now_ns();
	end = began + side->opt.ms * UINT64_C(1000000);
	do {
		for (int i = 0; i < 4; i++, n++)
			copy(&place, own, side->opt.size, reads);
	} while (now_ns() < end);
	print_rate(began, n, side->opt.size);
	ctl_send(side, "", 1);
}

void
vm_write_stream(struct side *side)
{
	vm_stream(side, false);
}

void
vm_read_stream(struct side *side)
{
	vm_stream(side, true);
}

/* Of the same bytes repeatedly, so from the caches. */
void
memcpy_stream(struct side *side)
{
	size_t size = side->opt.size;
	uint64_t began, end, n = 0;
	char *from, *to;

	if (!side->initiator)
		return;
	from = filled_pages(size, MAP_PRIVATE);
	to = filled_pages(size, MAP_PRIVATE);
	began = now_ns();
	end = began + side->opt.ms * UINT64_C(1000000);
	do {
		for (int i = 0; i < 4; i++, n++) {
			memcpy(to, from, size);
			/* the compiler must not remove the copy */
			__asm__ volatile("" : : "r"(to) : "memory");
		}
	} while (now_ns() < end);
	print_rate(began, n, size);
}

static void
send_fd(struct side *side, int fd)
{
	char control[CMSG_SPACE(sizeof(fd))] __attribute__((aligned(8))) = {0};
	struct iovec part = {control, 1};
	struct msghdr msg = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	struct cmsghdr *header = CMSG_FIRSTHDR(&msg);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	REQUIRE(sendmsg(side->ctl, &msg, MSG_NOSIGNAL) == 1, "sendmsg: %s", strerror(errno));
}

static int
recv_fd(struct side *side)
{
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8)));
	char byte;
	struct iovec part = {&byte, 1};
	struct msghdr msg = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	int fd;

	REQUIRE(recvmsg(side->ctl, &msg, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&msg) != NULL, "no descriptor has come: %s",
		strerror(errno));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	return fd;
}

/* A page that both sides have mapped. */
static char *
common_page(struct side *side)
{
	char *p;
	int fd;

	if (side->initiator) {
		fd = recv_fd(side);
	} else {
		fd = memfd_create("bench", MFD_CLOEXEC);
		REQUIRE(fd >= 0 && ftruncate(fd, 4096) == 0, "memfd_create: %s", strerror(errno));
		send_fd(side, fd);
	}
	p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	REQUIRE(p != MAP_FAILED, "mmap: %s", strerror(errno));
	close(fd);
	ctl_barrier(side);
	return p;
}

/* Each side spins on its own word, on separate cache lines. */
void
shm_pingpong(struct side *side)
{
	char *page = common_page(side);
	char *ping = page, *pong = page + 256;
	uint64_t n = 0, seen = 0;

	if (side->initiator) {
		struct timer t;

		for (timer_start(&t, side->opt.ms); timer_next(&t);) {
			poke(ping, ++n);
			while (peek(pong) != n)
				spin_pause();
		}
		poke(ping, STOP);
		timer_report(&t, 1);
	} else {
		while (n != STOP) {
			while ((seen = peek(ping)) == n)
				spin_pause();
			n = seen;
			poke(pong, n);
		}
	}
}

static void
signal_fd(int fd, uint64_t value)
{
	REQUIRE(write(fd, &value, sizeof(value)) == sizeof(value), "write: %s", strerror(errno));
}

static uint64_t
await_fd(int fd)
{
	uint64_t value;

	REQUIRE(read(fd, &value, sizeof(value)) == sizeof(value), "read: %s", strerror(errno));
	return value;
}

/* Both sides asleep in read(2) of an eventfd each. */
void
eventfd_pingpong(struct side *side)
{
	int ping, pong;

	if (!side->initiator) {
		ping = eventfd(0, EFD_CLOEXEC);
		pong = eventfd(0, EFD_CLOEXEC);
		REQUIRE(ping >= 0 && pong >= 0, "eventfd: %s", strerror(errno));
		send_fd(side, ping);
		send_fd(side, pong);
		ctl_barrier(side);
		while (await_fd(ping) == 1)
			signal_fd(pong, 1);
	} else {
		struct timer t;

		ping = recv_fd(side);
		pong = recv_fd(side);
		ctl_barrier(side);
		for (timer_start(&t, side->opt.ms); timer_next(&t);) {
			signal_fd(ping, 1);
			await_fd(pong);
		}
		signal_fd(ping, 2);
		timer_report(&t, 1);
	}
}
