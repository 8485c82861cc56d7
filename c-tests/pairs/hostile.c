/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hostile.c -- TCP connections to the port from other programs: silent, closed, or many, they neither block
 * other peers nor exhaust the resources of the program.
 */
#include "link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define SILENT 1100
#define NORMAL 10
#define GARBAGE 2000

static void
allow_descriptors(rlim_t wanted)
{
	struct rlimit limit;

	EXPECT(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	EXPECT(wanted <= limit.rlim_max, "the hard limit of descriptors is %llu", (unsigned long long)limit.rlim_max);
	limit.rlim_cur = wanted;
	EXPECT(setrlimit(RLIMIT_NOFILE, &limit) == 0, "%s", strerror(errno));
}

/* Connects a new socket, *fd, to the port of the target. Returns the errno of connect(2), or 0. */
static int
try_connect(struct side *side, int *fd)
{
	struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(side->port))};

	*fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	EXPECT(*fd >= 0 && inet_pton(AF_INET, side->addr, &addr.sin_addr) == 1, "%s", strerror(errno));
	return connect(*fd, (struct sockaddr *)&addr, sizeof(addr)) == 0 ? 0 : errno;
}

static int
raw_connect(struct side *side)
{
	int fd, error = try_connect(side, &fd);

	EXPECT(error == 0, "%s", strerror(error));
	return fd;
}

/* Connects and sends a complete MPA Request. */
static int
request_connection(struct side *side)
{
	unsigned char request[20] = "MPA ID Req Frame";
	int fd = raw_connect(side);

	request[17] = 1; /* the revision */
	EXPECT(send(fd, request, sizeof(request), MSG_NOSIGNAL) == sizeof(request), "%s", strerror(errno));
	return fd;
}

static void
await_sockets(unsigned wanted, bool at_most)
{
	unsigned sockets = 0;

	for (unsigned ms = 0; ms < 4000; ms += 10) {
		sockets = count_sockets();
		if (at_most ? sockets <= wanted : sockets >= wanted)
			return;
		sleep_ms(10);
	}
	EXPECT(false, "%u sockets, expected %s %u", sockets, at_most ? "at most" : "at least", wanted);
}

/* The program can still open files, and each real connection attempt succeeds. */
static void
crowded_target(struct side *side)
{
	struct region region;
	struct node node;

	allow_descriptors(1024);
	open_target(&node, side);
	region_new(&node, &region, 4096, USAGE_ALL);
	await(side, 's');
	for (int i = 0; i < NORMAL; i++) {
		struct link link;
		int own[64];

		for (int k = 0; k < 64; k++) {
			own[k] = open("/dev/null", O_RDONLY | O_CLOEXEC);
			EXPECT(own[k] >= 0, "file %d in round %d: %s", k, i, strerror(errno));
		}
		EXPECT(count_sockets() <= 1024 / 2, "%u sockets", count_sockets());
		accept_link(&node, &link, NULL, &region);
		await_end(&link);
		for (int k = 0; k < 64; k++)
			close(own[k]);
	}
	close_with_region(&node, &region);
}

static void
crowding_initiator(struct side *side)
{
	static int fds[SILENT];
	struct region local;
	struct node node;

	/*
	 * shorter than the 5 s after which incomplete requests are closed, so waiting for that does not
	 * suffice
	 */
	setenv("SOFTVERBS_REPLY_TIMEOUT_MS", "2000", 1);
	allow_descriptors(4096);
	open_initiator(&node, side);
	region_new(&node, &local, 4096, USAGE_ALL);
	for (int i = 0; i < SILENT; i++)
		fds[i] = raw_connect(side);
	sleep_ms(300);
	notify(side, 's');
	for (int i = 0; i < NORMAL; i++) {
		struct link link;

		connect_link(&node, &link, NULL, NULL);
		read_part(&link, &local, 0, 0, 4096);
		end_link(&link);
	}
	for (int i = 0; i < SILENT; i++)
		close(fds[i]);
	close_with_region(&node, &local);
}

#define GONE 40

/*
 * A pending request is discarded when its peer disconnects. One may remain: the program was already notified
 * of it.
 */
static void
unfetched_target(struct side *side)
{
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	unsigned sockets;
	struct node node;
	struct link link;
	int fd;

	open_target(&node, side);
	sockets = count_sockets();
	notify(side, 'b');
	await(side, 'c');
	await_sockets(sockets + GONE, false);
	notify(side, 'g');
	await(side, 'g');
	await_sockets(sockets, true);

	OK(rpma_ep_get_fd(node.ep, &fd));
	OK(rpma_ep_next_conn_req(node.ep, NULL, &req));
	RETURNS(RPMA_E_PROVIDER, rpma_conn_req_connect(&req, NULL, &conn));
	EXPECT(conn == NULL && req == NULL);
	EXPECT(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0);
	RETURNS(RPMA_E_NO_EVENT, rpma_ep_next_conn_req(node.ep, NULL, &req));
	EXPECT(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) == 0);
	notify(side, 'n');
	accept_link(&node, &link, NULL, NULL);
	await_end(&link);
	close_node(&node);
}

static void
gone_initiator(struct side *side)
{
	int fds[GONE];
	struct node node;
	struct link link;

	open_initiator(&node, side);
	await(side, 'b');
	for (int i = 0; i < GONE; i++)
		fds[i] = request_connection(side);
	notify(side, 'c');
	await(side, 'g');
	for (int i = 0; i < GONE; i++)
		close(fds[i]);
	notify(side, 'g');
	await(side, 'n');
	connect_link(&node, &link, NULL, NULL);
	end_link(&link);
	close_node(&node);
}

#define AT_ONCE 1000

/* More simultaneous requests than may be pending: the rest wait in the backlog, and all are served. */
static void
burst_target(struct side *side)
{
	unsigned most = 0;
	struct node node;

	allow_descriptors(1024);
	open_target(&node, side);
	await(side, 's');
	for (int i = 0; i < AT_ONCE; i++) {
		struct rpma_conn_req *req = next_req(&node, NULL);

		if (count_sockets() > most)
			most = count_sockets();
		OK(rpma_conn_req_delete(&req));
	}
	EXPECT(most <= 1024 / 2, "%u sockets", most);
	notify(side, 'd');
	await(side, 'd');
	close_node(&node);
}

static void
burst_initiator(struct side *side)
{
	static int fds[AT_ONCE];

	allow_descriptors(4096);
	await(side, 'L');
	for (int i = 0; i < AT_ONCE; i++)
		fds[i] = request_connection(side);
	notify(side, 's');
	for (int i = 0; i < AT_ONCE; i++) {
		char reply[20];

		/* a rejection is a reply; a connection that was closed at the limit gets none */
		EXPECT(recv(fds[i], reply, sizeof(reply), MSG_WAITALL) == sizeof(reply), "connection %d: %s", i, strerror(errno));
		close(fds[i]);
	}
	await(side, 'd');
	notify(side, 'd');
}

/* The port is free when the endpoint is deleted, although peers are still connected to it. */
static void
port_target(struct side *side)
{
	struct node node;

	open_target(&node, side);
	for (int i = 0; i < 20; i++) {
		unsigned sockets = count_sockets();
		uint64_t began;

		notify(side, 'a');
		await(side, 'a');
		await_sockets(sockets + 1, false);
		began = now_ms();
		OK(rpma_ep_shutdown(&node.ep));
		OK(rpma_ep_listen(node.peer, side->addr, side->port, &node.ep));
		EXPECT(now_ms() - began < 500, "after %llu ms", (unsigned long long)(now_ms() - began));
	}
	notify(side, 'd');
	close_node(&node);
}

static void
port_initiator(struct side *side)
{
	int third, error;

	await(side, 'L');
	for (int i = 0; i < 20; i++) {
		await(side, 'a');
		/*
		 * one sends nothing, one a part of a request; the kernel may have accepted a third one that
		 * the target has not
		 */
		raw_connect(side);
		EXPECT(send(raw_connect(side), "MPA", 3, MSG_NOSIGNAL) == 3);
		notify(side, 'a');
		/* or the listener is being closed, and nothing listens for a moment */
		error = try_connect(side, &third);
		EXPECT(error == 0 || error == ECONNRESET || error == ECONNREFUSED, "%s", strerror(error));
	}
	await(side, 'd');
}

static atomic_uint lines;

static void
count_line(enum rpma_log_level level, const char *file, const int line, const char *function, const char *format, ...)
{
	(void)level;
	(void)file;
	(void)line;
	(void)function;
	(void)format;
	lines++;
}

/* At the default level, log lines are limited, however many connections fail. */
static void
logging_target(struct side *side)
{
	struct node node;
	struct link link;

	OK(rpma_log_set_function(count_line));
	open_target(&node, side);
	accept_link(&node, &link, NULL, NULL);
	EXPECT(lines >= 1 && lines <= 10, "%u lines for %d connections", lines, GARBAGE);
	await_end(&link);
	close_node(&node);
}

static void
noisy_initiator(struct side *side)
{
	struct node node;
	struct link link;

	open_initiator(&node, side);
	for (int i = 0; i < GARBAGE; i++) {
		static const char http[] = "GET / HTTP/1.1\r\n\r\n";
		int fd = raw_connect(side);
		char end;

		EXPECT(send(fd, http, sizeof(http) - 1, MSG_NOSIGNAL) > 0, "%s", strerror(errno));
		EXPECT(recv(fd, &end, 1, 0) <= 0);
		close(fd);
	}
	connect_link(&node, &link, NULL, NULL);
	end_link(&link);
	close_node(&node);
}

static void
waiting_target(struct side *side)
{
	await(side, 'd');
}

/* An invalid port is an error, not another port. */
static void
service_initiator(struct side *side)
{
	static const char *const services[] = {"65536", "99999", "18446744073709551617", "-1", "-65000", "", "1x"};
	struct node node;

	open_peer(&node, side);
	for (size_t i = 0; i < sizeof(services) / sizeof(services[0]); i++) {
		struct rpma_conn_req *req = NULL;

		RETURNS(RPMA_E_PROVIDER, rpma_ep_listen(node.peer, side->addr, services[i], &node.ep));
		EXPECT(node.ep == NULL, "%s", services[i]);
		RETURNS(RPMA_E_PROVIDER, rpma_conn_req_new(node.peer, side->addr, services[i], NULL, &req));
		EXPECT(req == NULL, "%s", services[i]);
	}
	notify(side, 'd');
	close_node(&node);
}

const struct test hostile_tests[] = {
	{"1100-silent-connections", crowded_target, crowding_initiator, .seconds = 60},
	{"unfetched-requests-of-gone-peers", unfetched_target, gone_initiator},
	{"1000-requests-at-once", burst_target, burst_initiator, .seconds = 60},
	{"port-free-after-shutdown", port_target, port_initiator},
	{"garbage-does-not-fill-the-log", logging_target, noisy_initiator},
	{"service-that-is-no-port", waiting_target, service_initiator},
	{.name = NULL},
};
