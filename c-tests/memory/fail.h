/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fail.h -- intercepts the allocations and system calls of the program and the library, and makes some of
 * them fail.
 *
 * This program's malloc() and its relatives, and the calls below that need kernel memory, override libc's, so
 * the library calls them.
 */
#ifndef MEMORY_FAIL_H
#define MEMORY_FAIL_H 1

#include <stdatomic.h>
#include <stdbool.h>

/* The calls that count. */
enum fail_kind {
	FAIL_ALLOCATIONS, /* malloc, calloc, realloc, posix_memalign, aligned_alloc, memalign */
	/* mmap, pthread_create, eventfd, timerfd_create, epoll_create1, epoll_ctl, socket, accept4 */
	FAIL_SYSTEM
};

/* Only calls while this is set may fail. */
extern atomic_bool fail_armed;
extern enum fail_kind fail_kind;
/* The number of the first call that fails, from 1, and the number of consecutive failures; 0: none. */
extern unsigned long fail_first;
extern unsigned long fail_count;

/* The number of calls that counted, and of those that failed. */
extern atomic_ulong fail_seen;
extern atomic_ulong fail_failed;
/* Blocks that were allocated and not freed; always counted. */
extern atomic_long fail_blocks;

#endif /* MEMORY_FAIL_H */
