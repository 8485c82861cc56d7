/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * harness.h -- tests with two processes. A test is a pair of functions; the harness forks a process for each
 * before any call of the library, so both start like a program. A pair passes if both processes end in time
 * as the test expects, and neither prints anything: the library writes nothing to stderr.
 */
#ifndef PAIRS_HARNESS_H
#define PAIRS_HARNESS_H 1

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The data of one of the two processes. */
struct side {
	const char *addr;
	char port[8]; /* free when the test started */
	int sync; /* a socket to the other process, for notify() and await() */
	volatile pid_t *target_pid;
	volatile pid_t *initiator_pid;
};

struct test {
	const char *name;
	void (*target)(struct side *side);
	void (*initiator)(struct side *side);
	const char *addr; /* NULL: 127.0.0.1 */
	unsigned seconds; /* 0: 20 */
	int target_ends_by; /* the signal that must end the target; 0: it exits */
	const char *needs; /* runs only if this variable is set, as a part of another test */
	bool raw_env; /* leave RPMA_PROVIDER as it was given to the harness */
	/* returns why this machine cannot run it; NULL: it can; "": not part of this run */
	const char *(*missing)(void);
};

/* The tables of tests, up to NULL; each ends with an entry that has no name. */
extern const struct test *const tables[];

/* Ends this process and fails the test unless the condition holds; a printf format may follow. */
#define EXPECT(condition, ...)                                                                     \
	do {                                                                                       \
		if (!(condition))                                                                  \
			fail(__FILE__, __LINE__, #condition, "" __VA_ARGS__);                      \
	} while (0)

/* The same for a call that must return 0, or a certain error. */
#define OK(call) expect_ret((call), 0, #call, __FILE__, __LINE__)
#define RETURNS(expected, call) expect_ret((call), (expected), #call, __FILE__, __LINE__)

void fail(const char *file, int line, const char *condition, const char *format, ...)
	__attribute__((noreturn, format(printf, 4, 5)));
void expect_ret(int ret, int expected, const char *call, const char *file, int line);

/* Notifies the other process that a point has been reached; waits until it has been reached there. */
void notify(struct side *side, char point);
void await(struct side *side, char point);

/* Zeroed memory, page-aligned, at least one page. */
void *pages(size_t size);
/* A memfd that cannot shrink; its descriptor. */
void *sealed_pages(size_t size, int *file);

/* Bytes that depend on seed and position. */
void fill_pattern(void *ptr, size_t size, uint32_t seed);
void check_pattern(const void *ptr, size_t size, uint32_t seed, const char *what);
void check_bytes(const void *ptr, size_t size, unsigned char value, const char *what);

void sleep_ms(unsigned ms);
uint64_t now_ms(void);

/* Number of open descriptors, of open sockets and of threads of this process. */
unsigned count_fds(void);
unsigned count_sockets(void);
unsigned count_threads(void);

/* Open descriptors once their number stays: over RoCE the sides share memory a moment after connecting. */
unsigned settled_fds(void);

/*
 * Mappings of this process that it shares with the peer of a connection: none if all connections use TCP.
 */
unsigned count_shared(void);
/* The same once it is this number: over RoCE the sides share memory a moment after the connection. */
unsigned await_shared(unsigned wanted);

/* From now on this system call fails in this process with an errno that containers use. */
void forbid_call(long number);

/* As root in a container: the same user, without the capability to inspect processes that have more. */
void drop_capabilities(void);

/*
 * From now on this process may only inspect others (PTRACE_MODE_READ), not access their memory or copy their
 * descriptors: by Yama, if its ptrace_scope is not 0, otherwise by a filter in its place. With Yama both
 * sides must call it, as a process may not inspect one with more capabilities.
 */
void forbid_tracing(void);

/* Stops a process, and waits until it has stopped: the signal takes effect after kill(2) has returned. */
void stop_process(pid_t pid);

#endif /* PAIRS_HARNESS_H */
