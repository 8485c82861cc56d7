/* SPDX-License-Identifier: BSD-3-Clause */
/* fail.c -- see fail.h */
#include "fail.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

atomic_bool fail_armed;
enum fail_kind fail_kind;
unsigned long fail_first;
unsigned long fail_count;
atomic_ulong fail_seen;
atomic_ulong fail_failed;
atomic_long fail_blocks;

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void *__libc_memalign(size_t align, size_t size);
extern void __libc_free(void *block);
void *memalign(size_t align, size_t size);

static bool
fails(enum fail_kind kind)
{
	unsigned long n;

	if (!fail_armed || kind != fail_kind)
		return false;
	n = ++fail_seen;
	if (fail_first == 0 || n < fail_first || n - fail_first >= fail_count)
		return false;
	fail_failed++;
	return true;
}

static void *
counted(void *block)
{
	if (block != NULL)
		fail_blocks++;
	return block;
}

static void *
no_memory(void)
{
	errno = ENOMEM;
	return NULL;
}

void *
malloc(size_t size)
{
	return fails(FAIL_ALLOCATIONS) ? no_memory() : counted(__libc_malloc(size));
}

void *
calloc(size_t count, size_t size)
{
	return fails(FAIL_ALLOCATIONS) ? no_memory() : counted(__libc_calloc(count, size));
}

void *
realloc(void *old, size_t size)
{
	void *block;

	if (fails(FAIL_ALLOCATIONS))
		return no_memory();
	block = __libc_realloc(old, size);
	if (old == NULL)
		counted(block);
	return block;
}

void *
memalign(size_t align, size_t size)
{
	return fails(FAIL_ALLOCATIONS) ? no_memory() : counted(__libc_memalign(align, size));
}

void *
aligned_alloc(size_t align, size_t size)
{
	return memalign(align, size);
}

int
posix_memalign(void **block, size_t align, size_t size)
{
	void *got = memalign(align, size);

	if (got == NULL)
		return ENOMEM;
	*block = got;
	return 0;
}

void
free(void *block)
{
	if (block != NULL)
		fail_blocks--;
	__libc_free(block);
}

/* By number, since these functions override those of libc. */
static long
kernel(long number, long a, long b, long c, long d, long e, long f, int error)
{
	if (fails(FAIL_SYSTEM)) {
		errno = error;
		return -1;
	}
	return syscall(number, a, b, c, d, e, f);
}

void *
mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
	return (void *)kernel(SYS_mmap, (long)addr, (long)len, prot, flags, fd, offset, ENOMEM);
}

int
eventfd(unsigned value, int flags)
{
	return (int)kernel(SYS_eventfd2, value, flags, 0, 0, 0, 0, EMFILE);
}

int
timerfd_create(clockid_t clock, int flags)
{
	return (int)kernel(SYS_timerfd_create, clock, flags, 0, 0, 0, 0, ENFILE);
}

int
epoll_create1(int flags)
{
	return (int)kernel(SYS_epoll_create1, flags, 0, 0, 0, 0, 0, EMFILE);
}

/* Only EPOLL_CTL_ADD needs memory. */
int
epoll_ctl(int set, int op, int fd, struct epoll_event *event)
{
	if (op != EPOLL_CTL_ADD)
		return (int)syscall(SYS_epoll_ctl, set, op, fd, event);
	return (int)kernel(SYS_epoll_ctl, set, op, fd, (long)event, 0, 0, ENOMEM);
}

int
socket(int domain, int type, int protocol)
{
	return (int)kernel(SYS_socket, domain, type, protocol, 0, 0, 0, ENOMEM);
}

int
accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	return (int)kernel(SYS_accept4, fd, (long)addr, (long)len, flags, 0, 0, ENFILE);
}

int
pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg)
{
	static int (*_Atomic next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

	if (fails(FAIL_SYSTEM))
		return EAGAIN;
	if (next == NULL)
		next = (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))dlsym(RTLD_NEXT, "pthread_create");
	return next(thread, attr, start, arg);
}
