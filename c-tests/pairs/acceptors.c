/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * acceptors.c -- a server with several threads: one takes connection requests from the endpoint, others
 * accept them. Events of an accepted connection must be reported on its own event channel, never on the
 * endpoint's.
 */
#include "link.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define ACCEPTORS 2
#define CLIENTS 4
#define MAX_CONNS 4000

/* the client ends the connection immediately; its end may take this long to arrive */
#define LOST_MS 5000

/* Requests from the thread that fetches them to those that accept them. */
static struct rpma_conn_req *requests[MAX_CONNS];
static unsigned conns, taken, handed_out;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

/*
 * A device on either side may need much longer for a connection, above all an emulated one in a virtual
 * machine.
 */
static unsigned
count_conns(void)
{
	static const char *const sides[] = {"PAIRS_PROVIDER", "PAIRS_TARGET_PROVIDER", "PAIRS_INITIATOR_PROVIDER"};
	unsigned count = MAX_CONNS;

	for (unsigned i = 0; i < sizeof(sides) / sizeof(sides[0]); i++) {
		const char *provider = getenv(sides[i]);

		if (provider != NULL && strcmp(provider, "rdma-core") == 0)
			count = MAX_CONNS / 10;
	}
	return count;
}

/* Connections without ESTABLISHED, and events of the endpoint that are not requests. */
static unsigned unestablished, strays;

static struct rpma_conn_req *
wait_for_request(void)
{
	struct rpma_conn_req *req = NULL;

	pthread_mutex_lock(&lock);
	while (handed_out == taken && taken < conns)
		pthread_cond_wait(&changed, &lock);
	if (handed_out < taken)
		req = requests[handed_out++];
	pthread_mutex_unlock(&lock);
	return req;
}

/*
 * The connection's first event must be ESTABLISHED. If another channel got that, there is only the event of
 * the end, or none.
 */
static void
see_established(struct link *link)
{
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
	struct pollfd poller = {.events = POLLIN};

	OK(rpma_conn_get_event_fd(link->conn, &poller.fd));
	if (poll(&poller, 1, LOST_MS) == 1)
		OK(rpma_conn_next_event(link->conn, &event));
	if (event == RPMA_CONN_ESTABLISHED) {
		await_end(link);
		return;
	}
	__atomic_fetch_add(&unestablished, 1, __ATOMIC_RELAXED);
	delete_link(link);
}

static void *
accept_requests(void *arg)
{
	struct rpma_conn_req *req;

	(void)arg;
	while ((req = wait_for_request()) != NULL) {
		struct link link;

		start_link(&link, &req, NULL);
		see_established(&link);
	}
	return NULL;
}

/* The endpoint's own thread. */
static void
take_requests(struct node *node)
{
	while (taken < conns) {
		struct rpma_conn_req *req = NULL;

		if (rpma_ep_next_conn_req(node->ep, NULL, &req) != 0) {
			__atomic_fetch_add(&strays, 1, __ATOMIC_RELAXED);
			continue;
		}
		pthread_mutex_lock(&lock);
		requests[taken++] = req;
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&lock);
	}
}

static void
acceptors_target(struct side *side)
{
	struct rpma_conn_req *none = NULL;
	pthread_t acceptors[ACCEPTORS];
	struct node node;
	int fd;

	conns = count_conns();
	open_target(&node, side);
	for (unsigned i = 0; i < ACCEPTORS; i++)
		EXPECT(pthread_create(&acceptors[i], NULL, accept_requests, NULL) == 0);
	take_requests(&node);
	for (unsigned i = 0; i < ACCEPTORS; i++)
		EXPECT(pthread_join(acceptors[i], NULL) == 0);

	/* the endpoint has no further event */
	OK(rpma_ep_get_fd(node.ep, &fd));
	EXPECT(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0);
	while (rpma_ep_next_conn_req(node.ep, NULL, &none) != RPMA_E_NO_EVENT)
		strays++;
	EXPECT(none == NULL);
	EXPECT(strays == 0 && unestablished == 0,
		"of %u connections %u have not reported ESTABLISHED; the endpoint has reported %u events that are not requests", conns,
		unestablished, strays);
	close_node(&node);
}

/* Each client has its own peer, so all can request connections at the same time. */
static void *
connect_and_end(void *arg)
{
	struct node node;

	open_peer(&node, arg);
	for (unsigned i = 0; i < conns / CLIENTS; i++) {
		struct link link;

		connect_link(&node, &link, NULL, NULL);
		end_link(&link);
	}
	close_node(&node);
	return NULL;
}

static void
acceptors_initiator(struct side *side)
{
	pthread_t clients[CLIENTS];

	conns = count_conns();
	await(side, 'L');
	for (unsigned i = 0; i < CLIENTS; i++)
		EXPECT(pthread_create(&clients[i], NULL, connect_and_end, side) == 0);
	for (unsigned i = 0; i < CLIENTS; i++)
		EXPECT(pthread_join(clients[i], NULL) == 0);
}

const struct test acceptors_tests[] = {
	{"acceptors-beside-the-endpoint", acceptors_target, acceptors_initiator, .seconds = 60},
	{.name = NULL},
};
