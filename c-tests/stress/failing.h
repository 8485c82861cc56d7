/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * failing.h -- a failing C library: this program's functions override libc's, count the calls from
 * librpma.so, and make one of them fail. Calls from elsewhere pass through.
 */
#ifndef STRESS_FAILING_H
#define STRESS_FAILING_H 1

#include <stdbool.h>

#define CALLS(X)                                                                                                                  \
	X(accept4) X(bind) X(connect) X(epoll_create1) X(epoll_ctl) X(epoll_wait) X(eventfd) X(fcntl) X(getpeername) X(getrandom)  \
	X(getrlimit) X(getrusage) X(getsockname) X(getsockopt) X(listen) X(madvise) X(mmap) X(mmap64) X(msync) X(munmap) X(open)   \
	X(open64) X(poll) X(preadv2) X(process_vm_readv) X(process_vm_writev) X(pthread_create) X(read) X(recv) X(recvmsg)         \
	X(sched_getaffinity) X(sched_setaffinity) X(sendmsg) X(setsockopt) X(shutdown) X(socket) X(syscall) X(timerfd_create)      \
	X(timerfd_settime) X(write)

#define ENUMERATED(name) CALL_##name,
enum call { CALLS(ENUMERATED) CALL_COUNT };

extern const char *const call_names[CALL_COUNT];

/* The number of these calls that the library has made since start_counting(). */
void start_counting(void);
unsigned calls_made(enum call call);

/* Makes the Nth call, or each from the Nth on, fail with this errno. Only one function fails at a time. */
void let_fail(enum call call, unsigned nth, int error, bool from_there_on);
void let_nothing_fail(void);
/* Whether a call has failed. */
bool has_failed(void);

#endif /* STRESS_FAILING_H */
