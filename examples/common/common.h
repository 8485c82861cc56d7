/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * common.h -- the parts of the examples that have nothing to do with RDMA, and the few steps that
 * every one of them repeats. What is repeated is shown in full once: connecting in 01-connection,
 * waiting for a completion in 02-read.
 */
#ifndef EXAMPLES_COMMON_H
#define EXAMPLES_COMMON_H 1

#include <inttypes.h>
#include <librpma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program with the call, the place and the meaning of its result unless it returned 0. */
#define CHECK(call) check_result((call), #call, __FILE__, __LINE__)

/* Ends the program with a message (a printf format and its arguments) unless the condition holds. */
#define REQUIRE(condition, ...)                                                                    \
	do {                                                                                       \
		if (!(condition))                                                                  \
			give_up(__FILE__, __LINE__, __VA_ARGS__);                                  \
	} while (0)

void check_result(int ret, const char *call, const char *file, int line);
void give_up(const char *file, int line, const char *format, ...)
	__attribute__((noreturn, format(printf, 3, 4)));

struct args {
	const char *addr;
	const char *port;
	const char *extra; /* the third argument of the examples that have one, else NULL */
};

/*
 * Reads ADDR PORT and, if extra names one, a third argument; prints the usage and exits with 2 when
 * they are not there. Also starts the last-resort timer: no example runs longer than 30 seconds.
 */
struct args parse_args(int argc, char *argv[], const char *extra);

/* Prints the line that says that a client may come now. */
void say_listening(const struct args *args);

/* Prints the last line of an example: what was moved and found to be right. */
void verified(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Zeroed memory that starts on a page boundary; freed with free_pages(). */
void *alloc_pages(size_t size);
void free_pages(void *ptr, size_t size);

/*
 * Maps a file, shared, for reading and writing. The file is made, or grown with zeros, when it is
 * shorter than size. Undone with free_pages().
 */
void *map_file(const char *path, size_t size);

/* Reads a file from its beginning through a descriptor of its own, so not through a mapping. */
void read_file(const char *path, void *buf, size_t size);

/* Bytes that depend on the seed and on their position; and the check that they are all there. */
void fill_pattern(void *ptr, size_t size, uint32_t seed);
void check_pattern(const void *ptr, size_t size, uint32_t seed, const char *what);

/* A peer on the device that serves the address: our own (LOCAL) or the other side's (REMOTE). */
struct rpma_peer *new_peer(const char *addr, enum rpma_util_ibv_context_type type);

/* Waits for the connection's next event and ends the program if it is another one. */
void wait_event(struct rpma_conn *conn, enum rpma_conn_event expected);

/* Waits for the next completion, whatever it says. */
void wait_wc(struct rpma_cq *cq, struct ibv_wc *wc);

/* Waits for the next completion and ends the program unless it is this operation's success. */
void wait_success(struct rpma_cq *cq, const void *op_context, enum ibv_wc_opcode opcode);

/* The region that the other side described in the first bytes of its private data. */
struct rpma_mr_remote *remote_region(const struct rpma_conn *conn);

#endif /* EXAMPLES_COMMON_H */
