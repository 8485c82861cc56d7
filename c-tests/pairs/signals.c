/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * signals.c -- signals that arrive while the program waits in a call: SA_RESTART of the handler decides
 * whether the wait continues.
 */
#include "link.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MESSAGE 8
#define SIGNALS 20
#define ROUNDS 5
#define BUSY_ROUNDS 50
#define GIVE_UP_MS 10000

static _Atomic unsigned handled;
static pthread_t waiter;
static pid_t waiter_tid;
static _Atomic bool waiting;

static void
handler(int signal)
{
	(void)signal;
	handled++;
}

static void
handle_with(int flags)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = flags};

	EXPECT(sigaction(SIGUSR1, &action, NULL) == 0, "%s", strerror(errno));
}

/* Returns once the waiting thread sleeps in the call that it has announced. */
static void
await_sleep(void)
{
	char path[64];
	char state = 0;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", waiter_tid);
	for (unsigned ms = 0; state != 'S'; ms++) {
		FILE *stat = fopen(path, "r");

		EXPECT(stat != NULL && fscanf(stat, "%*d (%*[^)]) %c", &state) == 1);
		fclose(stat);
		EXPECT(ms < GIVE_UP_MS, "the call does not wait");
		sleep_ms(1);
	}
}

/*
 * Sends the signal this many times, each after the previous one was handled, or until the call has returned.
 */
static void
disturb(unsigned times)
{
	for (unsigned i = 0; i < times && waiting; i++) {
		unsigned before = handled;

		await_sleep();
		EXPECT(pthread_kill(waiter, SIGUSR1) == 0);
		for (unsigned ms = 0; handled == before; ms++) {
			EXPECT(ms < GIVE_UP_MS, "the signal was not handled");
			sleep_ms(1);
		}
	}
}

struct node_and_link {
	struct node node;
	struct region in;
	struct link link;
	struct side *side;
};

static void
begin(struct node_and_link *n, struct side *side)
{
	struct rpma_conn_req *req;

	n->side = side;
	waiter = pthread_self();
	waiter_tid = (pid_t)syscall(SYS_gettid);
	open_target(&n->node, side);
	region_new(&n->node, &n->in, MESSAGE, RPMA_MR_USAGE_RECV);
	req = next_req(&n->node, NULL);
	OK(rpma_conn_req_recv(req, n->in.mr, 0, MESSAGE, (void *)1));
	start_link(&n->link, &req, NULL);
	finish_link(&n->link);
}

static void
finish(struct node_and_link *n)
{
	await_end(&n->link);
	region_free(&n->in);
	close_node(&n->node);
}

/* The rest of a round: the message has arrived, and the queue works as before. */
static void
take_message(struct node_and_link *n)
{
	expect_wc(n->link.cq, 1, IBV_WC_RECV);
	OK(rpma_recv(n->link.conn, n->in.mr, 0, MESSAGE, (void *)1));
}

static void *
disturb_then_ask(void *arg)
{
	disturb(SIGNALS);
	notify(((struct node_and_link *)arg)->side, 'm');
	return NULL;
}

/*
 * A handler with SA_RESTART: the wait continues until the completion. A handler of SIGSEGV does not matter.
 */
static void
restarting_target(struct side *side)
{
	struct sigaction crash = {.sa_handler = handler, .sa_flags = SA_RESETHAND};
	struct node_and_link n;

	EXPECT(sigaction(SIGSEGV, &crash, NULL) == 0, "%s", strerror(errno));
	handle_with(SA_RESTART);
	begin(&n, side);
	for (unsigned i = 0; i < ROUNDS; i++) {
		pthread_t thread;
		unsigned before = handled;

		waiting = true;
		EXPECT(pthread_create(&thread, NULL, disturb_then_ask, &n) == 0);
		OK(rpma_cq_wait(n.link.cq));
		waiting = false;
		EXPECT(handled == before + SIGNALS, "the wait ended after %u of %u signals", handled - before, SIGNALS);
		EXPECT(pthread_join(thread, NULL) == 0);
		take_message(&n);
	}
	notify(side, 'e');
	finish(&n);
}

static void *
disturb_on_and_on(void *arg)
{
	disturb(SIGNALS * 1000);
	return arg;
}

/*
 * A handler without SA_RESTART: the signal ends the wait each time, as it ends a read(2); the completion is
 * still outstanding.
 */
static void
interrupting_target(struct side *side)
{
	struct node_and_link n;
	struct ibv_wc wc;

	handle_with(0);
	begin(&n, side);
	for (unsigned i = 0; i < ROUNDS; i++) {
		pthread_t thread;

		waiting = true;
		EXPECT(pthread_create(&thread, NULL, disturb_on_and_on, NULL) == 0);
		errno = 0;
		RETURNS(RPMA_E_NO_COMPLETION, rpma_cq_wait(n.link.cq));
		waiting = false;
		EXPECT(pthread_join(thread, NULL) == 0);
		RETURNS(RPMA_E_NO_COMPLETION, rpma_cq_get_wc(n.link.cq, 1, &wc, NULL));
		notify(side, 'm');
		OK(rpma_cq_wait(n.link.cq));
		take_message(&n);
	}
	notify(side, 'e');
	finish(&n);
}

static void *
signal_once(void *arg)
{
	await_sleep();
	EXPECT(pthread_kill(waiter, SIGUSR1) == 0);
	for (unsigned ms = 0; waiting; ms++) {
		EXPECT(ms < GIVE_UP_MS, "the signal did not end the wait");
		sleep_ms(1);
	}
	return arg;
}

/*
 * The peer's writes wake the thread continuously and complete nothing here: a signal ends the wait at any
 * point.
 */
static void
busy_target(struct side *side)
{
	struct node node;
	struct link link;
	struct region in;

	handle_with(0);
	waiter = pthread_self();
	waiter_tid = (pid_t)syscall(SYS_gettid);
	accept_with_region(&node, &link, &in, side, MESSAGE, RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_RECV, NULL);
	OK(rpma_recv(link.conn, in.mr, 0, MESSAGE, (void *)1));
	for (unsigned i = 0; i < BUSY_ROUNDS; i++) {
		pthread_t thread;

		waiting = true;
		EXPECT(pthread_create(&thread, NULL, signal_once, NULL) == 0);
		RETURNS(RPMA_E_NO_COMPLETION, rpma_cq_wait(link.cq));
		waiting = false;
		EXPECT(pthread_join(thread, NULL) == 0);
	}
	notify(side, 'e');
	await_end(&link);
	close_with_region(&node, &in);
}

static void
busy_initiator(struct side *side)
{
	struct pollfd notified = {.fd = side->sync, .events = POLLIN};
	struct region out;
	struct node node;
	struct link link;

	connect_with_region(&node, &link, &out, side, MESSAGE, RPMA_MR_USAGE_WRITE_SRC, NULL);
	while (poll(&notified, 1, 0) == 0)
		write_part(&link, 0, &out, 0, MESSAGE);
	await(side, 'e');
	end_link(&link);
	close_with_region(&node, &out);
}

/* A non-blocking descriptor: the call does not wait, without any signal. */
static void
nonblocking_target(struct side *side)
{
	struct node_and_link n;
	int fd;

	handle_with(SA_RESTART);
	begin(&n, side);
	OK(rpma_cq_get_fd(n.link.cq, &fd));
	for (unsigned i = 0; i < ROUNDS; i++) {
		int flags = fcntl(fd, F_GETFL);

		EXPECT(fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0);
		for (unsigned k = 0; k < 3; k++)
			RETURNS(RPMA_E_NO_COMPLETION, rpma_cq_wait(n.link.cq));
		/* a descriptor that blocks again waits again */
		EXPECT(fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) == 0);
		notify(side, 'm');
		OK(rpma_cq_wait(n.link.cq));
		take_message(&n);
	}
	notify(side, 'e');
	finish(&n);
}

/* Sends a message on each request of the other process. */
static void
asked_initiator(struct side *side)
{
	struct region out;
	struct node node;
	struct link link;

	connect_with_region(&node, &link, &out, side, MESSAGE, RPMA_MR_USAGE_SEND, NULL);
	for (unsigned i = 0; i < ROUNDS; i++) {
		await(side, 'm');
		OK(rpma_send(link.conn, out.mr, 0, MESSAGE, RPMA_F_COMPLETION_ALWAYS, (void *)2));
		expect_wc(link.cq, 2, IBV_WC_SEND);
	}
	await(side, 'e');
	end_link(&link);
	close_with_region(&node, &out);
}

const struct test signals_tests[] = {
	{"wait-goes-on-after-a-signal", restarting_target, asked_initiator},
	{"wait-interrupted-by-a-signal", interrupting_target, asked_initiator},
	{"wait-interrupted-while-writes-arrive", busy_target, busy_initiator},
	{"wait-blocking-and-not", nonblocking_target, asked_initiator},
	{.name = NULL},
};
