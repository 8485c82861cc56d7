/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bench.h -- the common part of the measurements. A measurement is two processes, the initiator and the
 * target, forked by main() before either has called the library. A control socket between them carries the
 * port number and barriers, never measured data.
 */
#ifndef BENCH_H
#define BENCH_H 1

#include <inttypes.h>
#include <librpma.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ADDR "127.0.0.1"

/* Ends the process with the call, the place and the meaning of its result unless it returned 0. */
#define CHECK(call) check_result((call), #call, __FILE__, __LINE__)

/* Ends the process with a message (a printf format and its arguments) unless the condition holds. */
#define REQUIRE(condition, ...)                                                                    \
	do {                                                                                       \
		if (!(condition))                                                                  \
			give_up(__FILE__, __LINE__, __VA_ARGS__);                                  \
	} while (0)

void check_result(int ret, const char *call, const char *file, int line);
void give_up(const char *file, int line, const char *format, ...)
	__attribute__((noreturn, format(printf, 3, 4)));

struct options {
	int cpu;	  /* this side's CPU; -1: not pinned */
	bool free;	  /* pin only the application's thread and leave the library's threads free */
	bool sleep;	  /* wait in rpma_cq_wait() instead of polling */
	unsigned ms;	  /* how long to measure */
	unsigned signal;  /* one write in this many is signalled */
	unsigned count;	  /* operations of a measurement that has a fixed number of them */
	unsigned conns;	  /* connections */
	size_t size;	  /* bytes of an operation */
	bool memfd; /* all memory is that of memfds that cannot shrink */
	unsigned depth;	  /* operations in flight */
	const char *preload; /* a library for start-up */
};

/* One side of a measurement. */
struct side {
	struct options opt;
	bool initiator;
	int ctl; /* the control socket */
};

/* Sends and receives of fixed size on the control socket; a barrier is one byte each way. */
void ctl_send(struct side *side, const void *data, size_t size);
void ctl_recv(struct side *side, void *data, size_t size);
void ctl_barrier(struct side *side);

/* Pins the calling thread, and the threads that it will start, to the side's CPU. */
void pin_here(const struct side *side);

static inline uint64_t
now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline void
spin_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/*
 * Times of single rounds. The first tenth of the time is warming up and does not count.
 * 	for (timer_start(&t, ms); timer_next(&t);) { a round }
 * After timer_next() has returned false, the caller may make another round, which ends the other side.
 */
struct timer {
	uint64_t end, counted_from, last;
	uint64_t rounds, total; /* of the rounds that count; ns */
	bool started;
	uint32_t *sample;
	size_t samples, room;
};

void timer_start(struct timer *t, unsigned ms);
bool timer_next(struct timer *t);
void timer_add(struct timer *t, uint64_t ns);

/* Prints "value=... p50=... p99=... rounds=..." in microseconds, divided by parts (2 for half a round). */
void timer_report(struct timer *t, double parts);

/* The buffers of an operation, and one or several connections of one peer. */
struct link {
	struct side *side;
	struct rpma_peer *peer;
	struct rpma_ep *ep;
	struct rpma_srq *srq;
	struct rpma_conn **conn;
	struct rpma_cq **cq;
	unsigned conns;
	unsigned use; /* the index of the connection that carries the traffic */
	struct rpma_mr_remote *remote; /* the region of the other side: all of `in` */

	char *in;  /* memory that the other side reads and writes, and of the receives */
	char *out; /* source of writes and sends, destination of reads */
	size_t in_size, out_size;
	struct rpma_mr_local *in_mr, *out_mr;

	/* the send queue of conn[use]: see link_flags() */
	unsigned sq_size, posted, since, signalled;
};

struct link_sizes {
	size_t in, out;
	uint32_t sq, rq; /* queue sizes; the CQ has room for both */
	uint32_t srq;	 /* the target's shared receive queue; 0: none */
};

/*
 * Connects the sides with side->opt.conns connections, of which the last one is used. All receive queues are
 * filled before, receive i with SLOT bytes at i * SLOT of `in` and with i as its context.
 */
#define SLOT 64
void link_open(struct link *link, struct side *side, const struct link_sizes *sizes);

/* The initiator disconnects; the target sleeps until then. Frees all objects. */
void link_close(struct link *link);

/*
 * The program must count the entries of the send queue in use: the entry of an unsignalled request is free
 * only when the completion of a later, signalled one has been polled. So one in opt.signal is signalled, and
 * its completion polled before the queue is full. Call link_flags() before each request on conn[use], for its
 * flags, and link_done() for each completion; link_reap() polls for one.
 */
int link_flags(struct link *link);
void link_done(struct link *link, const struct ibv_wc *wc);
bool link_reap(struct link *link);
/* Polls until another request fits, or until no signalled request is outstanding. */
void link_room(struct link *link);
void link_drain(struct link *link);

/*
 * Polls for a completion, which must be successful: once, or until there is one. For measurements without the
 * accounting above.
 */
bool has_completed(struct rpma_cq *cq);
void await_completion(struct rpma_cq *cq);

/* The 64-bit value at the start of memory that another process writes. */
static inline uint64_t
peek(const char *p)
{
	return __atomic_load_n((const uint64_t *)(const void *)p, __ATOMIC_ACQUIRE);
}

static inline void
poke(char *p, uint64_t value)
{
	__atomic_store_n((uint64_t *)(void *)p, value, __ATOMIC_RELEASE);
}

/* The value that ends a measurement; all others are the number of a round or a time. */
#define STOP UINT64_MAX

/*
 * Messages in both directions on conn[use], whose completions are in cq; the initiator reports the time of a
 * round divided by parts.
 */
void message_pingpong(struct link *link, struct rpma_cq *cq, double parts);

/* A connected TCP socket between the sides. */
int raw_open(struct side *side);

/* Listens at a port that was not used before, and returns it. */
#define PORT_LEN 8
struct rpma_ep *listen_anywhere(struct rpma_peer *peer, char port[PORT_LEN]);
void expect_event(struct rpma_conn *conn, enum rpma_conn_event expected);
/* Zeroed memory with its pages allocated; with --memfd that of a memfd. */
char *map_pages(const struct side *side, size_t size);

/* The measurements; the side that measures prints the line. */
void raw_pingpong(struct side *side);
void raw_rate(struct side *side);
void raw_stream(struct side *side);
void udp_pingpong(struct side *side);
void udp_rate(struct side *side);
void udp_stream(struct side *side);
void write_pingpong(struct side *side);
void write_oneway(struct side *side);
void send_pingpong(struct side *side);
void write_rate(struct side *side);
void write_stream(struct side *side);
void read_stream(struct side *side);
void small_writes(struct side *side);
void srq_pingpong(struct side *side);
void flooded_pingpong(struct side *side);
void idle(struct side *side);
void start_up(struct side *side);
void write_burst(struct side *side);
void write_streams(struct side *side);
void read_rate(struct side *side);
void write_depth(struct side *side);
void write_completion(struct side *side);
void target_cpu(struct side *side);
void switches(struct side *side);
void connect_cycle(struct side *side);
void first_write(struct side *side);
void raw_connect(struct side *side);
void vm_write(struct side *side);
void vm_read(struct side *side);
void vm_write_guarded(struct side *side);
void vm_read_guarded(struct side *side);
void vm_write_stream(struct side *side);
void vm_read_stream(struct side *side);
void memcpy_stream(struct side *side);
void shm_pingpong(struct side *side);
void eventfd_pingpong(struct side *side);

#endif /* BENCH_H */
