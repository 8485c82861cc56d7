/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * count.c -- for LD_PRELOAD: counts the system calls that move bytes, wait or wake, and the bytes that they
 * have moved, and prints both at the end of each process: those of its first thread (program), and those of
 * all others (engine). A tracer would slow down the process, and a connection with a slow peer uses other
 * code paths.
 *
 * With COUNT_NO_PIDFD set, pidfd_open(2) returns an eventfd(2) that never becomes readable, as if the process
 * never ended: valgrind 3.19 lacks that call, and without it there are no direct copies.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

/* The system call that stores an aligned word of eight bytes (memory/word.rs of softverbs). */
#ifdef SYS_arch_prctl
#define IS_OF_WORD(number) (number == SYS_get_robust_list || number == SYS_set_robust_list || number == SYS_arch_prctl)
#else
#define IS_OF_WORD(number) (number == SYS_get_robust_list || number == SYS_set_robust_list)
#endif

/* <unistd.h> and others declare these functions with other types. */
extern int getpid(void);
extern int gettid(void);

/*
 * All of them take at most six arguments, which are passed on as they are. Those of MOVE return the number of
 * bytes that they have moved.
 */
#define MOVE(X) X(process_vm_writev) X(process_vm_readv) X(pwritev) X(preadv) X(sendmsg) X(send) X(recv) X(recvmsg) X(write) X(read)
#define DO_NOT(X) X(epoll_wait) X(epoll_ctl) X(poll) X(timerfd_settime) X(sched_yield) X(getrusage)

#define NUMBER(name) N_##name,
#define NAME(name) #name,

enum number { MOVE(NUMBER) N_moving, N_word = N_moving, DO_NOT(NUMBER) NUMBERS };

static const char *const names[] = {MOVE(NAME) "store of a word", DO_NOT(NAME)};

/* Concurrent increments of several threads may be lost occasionally, which does not affect an average. */
static unsigned long calls[2][NUMBERS];
static unsigned long bytes[2][NUMBERS];
static __thread int side = -1;

static void
count(enum number number, long moved)
{
	if (side < 0)
		side = gettid() != getpid();
	calls[side][number]++;
	if (number < N_moving && moved > 0)
		bytes[side][number] += (unsigned long)moved;
}

#define COUNTED(type, name)                                                                        \
	type name(long a, long b, long c, long d, long e, long f);                                 \
	type name(long a, long b, long c, long d, long e, long f)                                  \
	{                                                                                          \
		static type (*real)(long, long, long, long, long, long);                           \
		type ret;                                                                          \
                                                                                                   \
		if (real == NULL)                                                                  \
			*(void **)&real = dlsym(RTLD_NEXT, #name);                                 \
		ret = real(a, b, c, d, e, f);                                                      \
		count(N_##name, ret);                                                              \
		return ret;                                                                        \
	}
#define COUNTED_LONG(name) COUNTED(long, name)
#define COUNTED_INT(name) COUNTED(int, name)

MOVE(COUNTED_LONG)
DO_NOT(COUNTED_INT)

long syscall(long number, long a, long b, long c, long d, long e, long f);

long
syscall(long number, long a, long b, long c, long d, long e, long f)
{
	static long (*real)(long, long, long, long, long, long, long);

	if (real == NULL)
		*(void **)&real = dlsym(RTLD_NEXT, "syscall");
	if (IS_OF_WORD(number))
		count(N_word, 0);
	if (number == SYS_pidfd_open && getenv("COUNT_NO_PIDFD") != NULL)
		return eventfd(0, EFD_CLOEXEC);
	return real(number, a, b, c, d, e, f);
}

__attribute__((destructor)) static void
print(void)
{
	for (int i = 0; i < 2; i++) {
		char line[1024];
		size_t n = (size_t)snprintf(line, sizeof(line), "%d %s:", getpid(), i == 0 ? "program" : "engine");
		size_t empty = n;

		for (int k = 0; k < NUMBERS && n < sizeof(line); k++) {
			if (calls[i][k] == 0)
				continue;
			n += (size_t)snprintf(line + n, sizeof(line) - n, " %s %lu", names[k], calls[i][k]);
			if (bytes[i][k] >= 1 << 20 && n < sizeof(line))
				n += (size_t)snprintf(line + n, sizeof(line) - n, " (%lu MiB)", bytes[i][k] >> 20);
		}
		if (n > empty)
			fprintf(stderr, "%s\n", line);
	}
}
