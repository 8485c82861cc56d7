/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * program.h -- a program of one release. It is compiled with that release's header, RELEASE is 9 to 14 for
 * 0.9 to 0.14 and 100 for 1.0, and it is linked to a library that has that release's functions and its
 * version node.
 */
#ifndef RELEASES_PROGRAM_H
#define RELEASES_PROGRAM_H 1

#include <librpma.h>

#ifndef RELEASE
#error "which release?"
#endif

/* Every function of the release, with the address that the loader found; and the node of the release. */
struct name {
	const char *name;
	void (*function)(void);
};
extern const struct name release_names[];
extern const char release_node[];

/* Ends the program, with a printf message, unless the condition holds. */
#define EXPECT(condition, ...)                                                                     \
	do {                                                                                       \
		if (!(condition))                                                                  \
			fail(__FILE__, __LINE__, __VA_ARGS__);                                     \
	} while (0)

/* Ends the program unless the call returns 0. */
#define OK(call) expect_ok((call), #call, __FILE__, __LINE__)

void fail(const char *file, int line, const char *format, ...)
	__attribute__((noreturn, format(printf, 3, 4)));
void expect_ok(int ret, const char *call, const char *file, int line);

/* Ends the program unless the next event of the connection is this one. */
void expect_event(struct rpma_conn *conn, enum rpma_conn_event expected);

/* Memory for a page and more: zeroed, starting on a page boundary. */
char *pages(size_t size);

/* Bytes that depend on seed and position. */
void fill_pattern(char *ptr, size_t size, unsigned seed);
void check_pattern(const char *ptr, size_t size, unsigned seed, const char *what);

/* Ends the program unless all these bytes have the value. */
void check_bytes(const void *ptr, size_t size, unsigned char value, const char *what);

/* The two programs; they are started with the name of a struct queue of their release. */
struct queue;
void run_target(const struct queue *queue, const char *addr);
void run_initiator(const struct queue *queue, const char *addr, const char *port);

#endif
