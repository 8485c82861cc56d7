/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stress.h -- the common part of the stress tests besides the harness of the pairs: amounts, seeds,
 * statistics, and the system resources of a process.
 */
#ifndef STRESS_H
#define STRESS_H 1

#include "link.h"

#include <stdatomic.h>

/* A sequence of numbers that its seed determines. */
struct rng {
	uint64_t state;
};

uint64_t rng_next(struct rng *rng);
/* A number below `limit`. */
uint64_t rng_below(struct rng *rng, uint64_t limit);
/* The sequence for a purpose and a number: STRESS_SEED determines all of them. */
struct rng rng_of(const char *purpose, uint64_t number);

/* The amount for `make check`, or for `make check-long` (STRESS_LONG=1); STRESS_PERCENT scales either. */
unsigned amount(unsigned in_short, unsigned in_long);

/*
 * Prints a line to the standard output of the harness: the processes of a test must not write to their own.
 */
void figures(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The resources of this process. */
struct census {
	unsigned fds;
	unsigned threads;
	unsigned mappings;
	unsigned long resident_kb;
};

struct census take_census(void);
/*
 * Checks that the resources have grown by no more than `mappings` and `resident_kb`: waits for sockets that
 * are closing. Prints the growth.
 */
void expect_no_growth(const char *what, const struct census *before, unsigned mappings, unsigned long resident_kb);

/* Whether a descriptor is readable within the time. */
bool readable(int fd, int ms);
int event_fd(struct rpma_conn *conn);
int ep_fd(struct rpma_ep *ep);

/*
 * As connect_link(), but the attempt may fail at any point: then all objects are deleted, and it returns
 * false.
 */
bool try_connect(struct node *node, struct link *link, const struct rpma_conn_cfg *cfg, const void *private_data, uint8_t len);

/* Whether the event reports the end of the connection. */
bool is_end(enum rpma_conn_event event);

/* Lets the process open as many descriptors as the system permits. */
void many_descriptors(unsigned needed);

/*
 * Memory that the two processes of a test share; reset_shared() zeroes it, which the target calls before it
 * listens.
 */
#define SLOTS 65536

struct shared {
	_Atomic bool over;
	_Atomic bool listening;
	_Atomic unsigned number;
	_Atomic unsigned counts[64];
	_Atomic uint64_t slots[SLOTS];
};

extern struct shared *shared;
void reset_shared(void);

#endif /* STRESS_H */
