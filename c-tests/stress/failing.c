/* SPDX-License-Identifier: BSD-3-Clause */
/* failing.c -- see failing.h */
#include "failing.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <unistd.h>

#define NAMED(name) #name,
const char *const call_names[CALL_COUNT] = {CALLS(NAMED)};

static uintptr_t library_begins;
static uintptr_t library_ends;
static _Atomic unsigned made[CALL_COUNT];
static _Atomic int failing = -1;
static unsigned failing_nth;
static int failing_error;
static bool failing_on;
static _Atomic bool failed;

static int
look_at_object(struct dl_phdr_info *info, size_t size, void *data)
{
	(void)size;
	(void)data;
	if (strstr(info->dlpi_name, "librpma.so") == NULL)
		return 0;
	library_begins = UINTPTR_MAX;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		uintptr_t begins = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;

		if (info->dlpi_phdr[i].p_type != PT_LOAD)
			continue;
		if (begins < library_begins)
			library_begins = begins;
		if (begins + info->dlpi_phdr[i].p_memsz > library_ends)
			library_ends = begins + info->dlpi_phdr[i].p_memsz;
	}
	return 1;
}

__attribute__((constructor)) static void
find_library(void)
{
	if (dl_iterate_phdr(look_at_object, NULL) != 1) {
		fputs("librpma.so is not loaded\n", stderr);
		exit(2);
	}
}

void
start_counting(void)
{
	for (int i = 0; i < CALL_COUNT; i++)
		made[i] = 0;
}

unsigned
calls_made(enum call call)
{
	return made[call];
}

void
let_fail(enum call call, unsigned nth, int error, bool from_there_on)
{
	failed = false;
	failing_nth = nth;
	failing_error = error;
	failing_on = from_there_on;
	start_counting();
	failing = (int)call;
}

void
let_nothing_fail(void)
{
	failing = -1;
}

bool
has_failed(void)
{
	return failed;
}

static bool
fails(enum call call, const void *caller)
{
	uintptr_t from = (uintptr_t)caller;
	unsigned n;

	if (from < library_begins || from >= library_ends)
		return false;
	n = ++made[call];
	if (failing != (int)call || !(n == failing_nth || (failing_on && n > failing_nth)))
		return false;
	failed = true;
	errno = failing_error;
	return true;
}

/* The function that this program overrides. */
static void *
hidden(enum call call)
{
	static void *_Atomic found[CALL_COUNT];

	if (found[call] == NULL)
		found[call] = dlsym(RTLD_NEXT, call_names[call]);
	return found[call];
}

/* Defines a function that fails with `failure`, or calls the overridden one. */
#define FAILING_AS(type, name, failure, parameters, arguments)                                                                   \
	type name parameters                                                                                                      \
	{                                                                                                                         \
		if (fails(CALL_##name, __builtin_return_address(0)))                                                              \
			return failure;                                                                                           \
		return((type(*) parameters)hidden(CALL_##name)) arguments;                                                        \
	}
#define FAILING(type, name, parameters, arguments) FAILING_AS(type, name, -1, parameters, arguments)

FAILING(int, accept4, (int fd, struct sockaddr *addr, socklen_t *len, int flags), (fd, addr, len, flags))
FAILING(int, bind, (int fd, const struct sockaddr *addr, socklen_t len), (fd, addr, len))
FAILING(int, connect, (int fd, const struct sockaddr *addr, socklen_t len), (fd, addr, len))
FAILING(int, epoll_create1, (int flags), (flags))
FAILING(int, epoll_ctl, (int epfd, int op, int fd, struct epoll_event *event), (epfd, op, fd, event))
FAILING(int, epoll_wait, (int epfd, struct epoll_event *events, int most, int timeout), (epfd, events, most, timeout))
FAILING(int, eventfd, (unsigned int count, int flags), (count, flags))
FAILING(int, getpeername, (int fd, struct sockaddr *addr, socklen_t *len), (fd, addr, len))
FAILING(ssize_t, getrandom, (void *buf, size_t len, unsigned int flags), (buf, len, flags))
FAILING(int, getrlimit, (__rlimit_resource_t resource, struct rlimit *limit), (resource, limit))
FAILING(int, getrusage, (__rusage_who_t who, struct rusage *usage), (who, usage))
FAILING(int, getsockname, (int fd, struct sockaddr *addr, socklen_t *len), (fd, addr, len))
FAILING(int, getsockopt, (int fd, int level, int name, void *value, socklen_t *len), (fd, level, name, value, len))
FAILING(int, listen, (int fd, int backlog), (fd, backlog))
FAILING(int, madvise, (void *addr, size_t len, int advice), (addr, len, advice))
FAILING_AS(void *, mmap, MAP_FAILED, (void *addr, size_t len, int prot, int flags, int fd, off_t offset),
	(addr, len, prot, flags, fd, offset))
FAILING_AS(void *, mmap64, MAP_FAILED, (void *addr, size_t len, int prot, int flags, int fd, off64_t offset),
	(addr, len, prot, flags, fd, offset))
FAILING(int, munmap, (void *addr, size_t len), (addr, len))
FAILING(int, poll, (struct pollfd *fds, nfds_t count, int timeout), (fds, count, timeout))
FAILING(ssize_t, preadv2, (int fd, const struct iovec *iov, int count, off_t offset, int flags), (fd, iov, count, offset, flags))
FAILING(ssize_t, process_vm_readv, (pid_t pid, const struct iovec *local, unsigned long locals, const struct iovec *remote,
	unsigned long remotes, unsigned long flags), (pid, local, locals, remote, remotes, flags))
FAILING(ssize_t, process_vm_writev, (pid_t pid, const struct iovec *local, unsigned long locals, const struct iovec *remote,
	unsigned long remotes, unsigned long flags), (pid, local, locals, remote, remotes, flags))
FAILING_AS(int, pthread_create, failing_error, (pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg),
	(thread, attr, start, arg))
FAILING(ssize_t, read, (int fd, void *buf, size_t len), (fd, buf, len))
FAILING(ssize_t, recv, (int fd, void *buf, size_t len, int flags), (fd, buf, len, flags))
FAILING(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags))
FAILING(int, sched_getaffinity, (pid_t pid, size_t size, cpu_set_t *set), (pid, size, set))
FAILING(int, sched_setaffinity, (pid_t pid, size_t size, const cpu_set_t *set), (pid, size, set))
FAILING(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
FAILING(int, setsockopt, (int fd, int level, int name, const void *value, socklen_t len), (fd, level, name, value, len))
FAILING(int, shutdown, (int fd, int how), (fd, how))
FAILING(int, socket, (int domain, int type, int protocol), (domain, type, protocol))
FAILING(int, timerfd_create, (clockid_t clock, int flags), (clock, flags))
FAILING(int, timerfd_settime, (int fd, int flags, const struct itimerspec *value, struct itimerspec *old), (fd, flags, value, old))
FAILING(ssize_t, write, (int fd, const void *buf, size_t len), (fd, buf, len))

/* MS_ASYNC only checks whether memory is mapped; a medium does not make it fail. */
int
msync(void *addr, size_t len, int flags)
{
	if ((flags & MS_SYNC) && fails(CALL_msync, __builtin_return_address(0)))
		return -1;
	return ((int (*)(void *, size_t, int))hidden(CALL_msync))(addr, len, flags);
}

/* Those with a variable number of arguments take at most this many. */
int
fcntl(int fd, int command, ...)
{
	va_list ap;
	long arg;

	va_start(ap, command);
	arg = va_arg(ap, long);
	va_end(ap);
	if (fails(CALL_fcntl, __builtin_return_address(0)))
		return -1;
	return ((int (*)(int, int, ...))hidden(CALL_fcntl))(fd, command, arg);
}

#define OPENING(name)                                                                                                             \
	int name(const char *path, int flags, ...)                                                                                \
	{                                                                                                                         \
		va_list ap;                                                                                                       \
		unsigned mode;                                                                                                    \
                                                                                                                                  \
		va_start(ap, flags);                                                                                              \
		mode = va_arg(ap, unsigned);                                                                                      \
		va_end(ap);                                                                                                       \
		if (fails(CALL_##name, __builtin_return_address(0)))                                                              \
			return -1;                                                                                                \
		return ((int (*)(const char *, int, ...))hidden(CALL_##name))(path, flags, mode);                                 \
	}
OPENING(open)
OPENING(open64)

long
syscall(long number, ...)
{
	va_list ap;
	long a[6];

	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	/*
	 * only calls that wait can be interrupted: not those that wake threads, nor those that get or set a
	 * property of a thread
	 */
	if ((number == SYS_epoll_pwait2 || number == SYS_getrandom ||
		    (number == SYS_futex && ((a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT || (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET))) &&
		fails(CALL_syscall, __builtin_return_address(0)))
		return -1;
	return ((long (*)(long, ...))hidden(CALL_syscall))(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
