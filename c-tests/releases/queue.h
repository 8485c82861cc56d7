/* SPDX-License-Identifier: BSD-3-Clause */
/* queue.h -- the ways in which a program of a release gets completions */
#ifndef RELEASES_QUEUE_H
#define RELEASES_QUEUE_H 1

#include "program.h"

enum kind { READ, WRITE, SEND, RECV, RECV_WRITE_WITH_IMM };

/* The content of a completion, in either form. */
struct done {
	const void *context;
	enum kind kind;
	enum ibv_wc_status status;
	uint32_t byte_len;
	bool has_imm;
	uint32_t imm; /* in host byte order */
};

enum side { SENDS, RECEIVES };

struct queue {
	const char *name;
	/* before the connection is created, and afterwards */
	void (*configure)(struct rpma_conn_cfg *cfg);
	void (*open)(struct rpma_conn *conn);
	/* waits until there may be a completion; polls one and returns 0 or an error */
	void (*wait)(enum side side);
	int (*take)(enum side side, struct done *done);
};

/* Releases 0.9 and 0.10: rpma_conn_completion_wait and rpma_conn_completion_get. */
extern const struct queue conn_queue;
/* Releases 0.10 and 0.11: rpma_cq_wait and rpma_cq_get_completion. */
extern const struct queue cq_queue;
/* From 0.11 on: rpma_cq_wait and rpma_cq_get_wc. */
extern const struct queue wc_queue;
/* From 1.0 on: rpma_conn_wait and rpma_cq_get_wc, with one channel for both queues. */
extern const struct queue channel_queue;

/* NULL if this release has no queue of that name. */
const struct queue *find_queue(const char *name);

/* Makes the queue the one that the functions below use. */
void open_queue(const struct queue *queue, struct rpma_conn *conn);

/* Ends the program unless the queue is empty. */
void expect_nothing(enum side side);

/* Waits for the next completion of that side. Returns the result of the poll. */
int take_next(enum side side, struct done *done);

/* Ends the program unless the next completion is that of this operation, and successful. */
struct done expect_done(enum side side, enum kind kind, const void *context);

/* Waits until the descriptor is readable, or ends the program after a timeout. */
void wait_readable(int fd);

#if RELEASE <= 11
/*
 * A completion in the form of the release, and memory after it that the library must not write. It must not
 * write after the last field, either, which may be padding of the struct: 0.9 ends at byte 20.
 */
struct guarded {
	struct rpma_completion completion;
	unsigned char behind[40];
};

void guard(struct guarded *guarded);
void check_guard(const struct guarded *guarded, int ret);
struct done done_from(const struct rpma_completion *completion);
#endif

#if RELEASE >= 11
struct done done_from_wc(const struct ibv_wc *wc);
int take_wc(struct rpma_cq *cq, struct done *done);
#endif

#endif
