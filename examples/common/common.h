/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * common.h -- the parts of the examples that are not specific to RDMA, and the few steps that all of
 * them repeat. Each such step is shown in full once: connecting in 01-connection, waiting for a
 * completion in 02-read.
 */
#ifndef EXAMPLES_COMMON_H
#define EXAMPLES_COMMON_H 1

#include <inttypes.h>
#include <librpma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Unless the call returns 0, prints the call, its location and the error, and exits. */
#define CHECK(call) check_result((call), #call, __FILE__, __LINE__)

/* Unless the condition holds, prints a message (a printf format and its arguments) and exits. */
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
 * Reads ADDR PORT and, if extra names one, a third argument; prints the usage and exits with 2 if they
 * are missing. Also starts a watchdog timer: no example runs longer than 30 seconds.
 */
struct args parse_args(int argc, char *argv[], const char *extra);

/* Prints the line that announces that clients can connect. */
void say_listening(const struct args *args);

/* Prints the last line of an example: what was transferred and verified. */
void verified(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Zeroed memory that starts on a page boundary; freed with free_pages(). */
void *alloc_pages(size_t size);
void free_pages(void *ptr, size_t size);

/*
 * Creates a shared read-write mapping of a file. The file is created, or extended with zeros, if it is
 * shorter than size. Unmapped with free_pages().
 */
void *map_file(const char *path, size_t size);

/* Reads a file from its beginning through a separate file descriptor, not through a mapping. */
void read_file(const char *path, void *buf, size_t size);

/* Fills memory with bytes that depend on the seed and their position, and verifies them. */
void fill_pattern(void *ptr, size_t size, uint32_t seed);
void check_pattern(const void *ptr, size_t size, uint32_t seed, const char *what);

/* Creates a peer on the device that serves the address: our own (LOCAL) or the remote peer's (REMOTE). */
struct rpma_peer *new_peer(const char *addr, enum rpma_util_ibv_context_type type);

/* Waits for the connection's next event and exits if it is not the expected one. */
void wait_event(struct rpma_conn *conn, enum rpma_conn_event expected);

/* Waits for the next completion, whatever its status. */
void wait_wc(struct rpma_cq *cq, struct ibv_wc *wc);

/* Waits for the next completion and exits unless it reports success of this operation. */
void wait_success(struct rpma_cq *cq, const void *op_context, enum ibv_wc_opcode opcode);

/* Creates the remote memory region whose descriptor is at the start of the private data. */
struct rpma_mr_remote *remote_region(const struct rpma_conn *conn);

#endif /* EXAMPLES_COMMON_H */
