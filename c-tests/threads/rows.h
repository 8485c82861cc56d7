/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rows.h -- the concurrent calls that THREAD_SAFETY.md permits, in one process over software RDMA. The
 * program itself uses no atomics, so tools that support only the functions of libpthread report no race in
 * it.
 */
#ifndef ROWS_H
#define ROWS_H 1

#include <librpma.h>
#include <stdlib.h>
#include <string.h>

#define ADDR "127.0.0.1"
#define MAX_THREADS 64
#define SIZE 4096
#define DESCRIPTOR_SIZE 21

struct row {
	const char *name;
	void (*setup)(void); /* by one thread, first */
	void (*run)(unsigned thread); /* by all threads concurrently */
	void (*teardown)(void);
};

extern const struct row object_rows[];
extern const struct row connection_rows[];

/* The number of threads, and how often each repeats its calls. */
extern unsigned threads;
extern unsigned rounds;

/* The objects that all rows share. */
extern struct ibv_context *device;
extern struct rpma_peer *peer;
extern char memory[MAX_THREADS][SIZE];
extern struct rpma_mr_local *mr; /* of all the memory, with all usages */
extern struct rpma_mr_remote *remote; /* the same as a remote region */
/* a tool may make a process 100 times slower: connecting may take a minute */
extern struct rpma_conn_cfg *patient;

#define USAGE_ALL                                                                                  \
	(RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_WRITE_SRC |               \
		RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY |                    \
		RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT | RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV)

/* Ends the process unless the condition holds, or the call returns 0. */
#define EXPECT(condition) expect((condition), 0, #condition, __FILE__, __LINE__)
#define OK(call) ok((call), #call, __FILE__, __LINE__)
void expect(int holds, int ret, const char *what, const char *file, int line);
void ok(int ret, const char *call, const char *file, int line);

/* A counter of all threads, under a lock. */
long count(long by);
/* Waits until all threads are here. */
void meet(void);

/* An endpoint at a port that the kernel chose, and that port. */
struct listener {
	struct rpma_ep *ep;
	char port[8];
};
void listen_somewhere(struct listener *listener);

/* Two ends of a connection in this process. */
struct ends {
	struct rpma_conn *active;
	struct rpma_conn *passive;
};
void connect_ends(struct ends *ends, struct listener *listener, const struct rpma_conn_cfg *cfg);
void close_ends(struct ends *ends);
void expect_event(struct rpma_conn *conn, enum rpma_conn_event expected);

#endif /* ROWS_H */
