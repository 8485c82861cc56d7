/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * connect.c -- connection set-up: the time until the first byte arrives, and connections per second. `rpma
 * perf` does not replace it: it times operations on established connections only.
 */
#include "bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/mman.h>
#include <unistd.h>

static int
raw_listen(struct side *side)
{
	struct sockaddr_in sin = {.sin_family = AF_INET};
	socklen_t len = sizeof(sin);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	inet_pton(AF_INET, ADDR, &sin.sin_addr);
	REQUIRE(fd >= 0 && bind(fd, (struct sockaddr *)&sin, len) == 0 && listen(fd, 16) == 0, "listen: %s", strerror(errno));
	REQUIRE(getsockname(fd, (struct sockaddr *)&sin, &len) == 0, "getsockname: %s", strerror(errno));
	ctl_send(side, &sin.sin_port, sizeof(sin.sin_port));
	return fd;
}

/*
 * A byte in each direction proves to both ends that the connection is established; a reset leaves no state in
 * the kernel.
 */
static void
raw_visit(in_port_t port)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = port};
	struct linger at_once = {1, 0};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char byte = 1;

	inet_pton(AF_INET, ADDR, &sin.sin_addr);
	REQUIRE(fd >= 0 && connect(fd, (struct sockaddr *)&sin, sizeof(sin)) == 0, "connect: %s", strerror(errno));
	REQUIRE(send(fd, &byte, 1, MSG_NOSIGNAL) == 1 && recv(fd, &byte, 1, 0) == 1, "the byte was not answered: %s",
		strerror(errno));
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	close(fd);
}

/* Connect, accept, a byte each way, close; one connection after the other. */
void
raw_connect(struct side *side)
{
	if (side->initiator) {
		in_port_t port;
		struct timer t;

		ctl_recv(side, &port, sizeof(port));
		for (timer_start(&t, side->opt.ms); timer_next(&t);)
			raw_visit(port);
		shutdown(side->ctl, SHUT_WR);
		timer_report(&t, 1);
	} else {
		int listener = raw_listen(side);
		struct timeval wait = {0, 100000};

		setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
		for (;;) {
			char byte;
			int fd = accept(listener, NULL, NULL);

			if (fd < 0) {
				REQUIRE(errno == EAGAIN, "accept: %s", strerror(errno));
				/* the initiator is done when it has shut the control socket */
				if (recv(side->ctl, &byte, 1, MSG_DONTWAIT) == 0)
					break;
				continue;
			}
			REQUIRE(recv(fd, &byte, 1, 0) == 1 && send(fd, &byte, 1, MSG_NOSIGNAL) == 1, "no byte: %s",
				strerror(errno));
			recv(fd, &byte, 1, 0);
			close(fd);
		}
		close(listener);
	}
}

/* The objects for connections: a peer, a registered page, and at the target an endpoint. */
struct node {
	struct rpma_peer *peer;
	struct rpma_ep *ep;
	struct rpma_mr_local *mr;
	char *page;
	char port[PORT_LEN];
};

static void
node_open(struct node *node, struct side *side)
{
	struct ibv_context *dev = NULL;

	memset(node, 0, sizeof(*node));
	node->page = map_pages(side, 4096);
	CHECK(rpma_utils_get_ibv_context(ADDR, side->initiator ? RPMA_UTIL_IBV_CONTEXT_REMOTE : RPMA_UTIL_IBV_CONTEXT_LOCAL,
		&dev));
	CHECK(rpma_peer_new(dev, &node->peer));
	CHECK(rpma_mr_reg(node->peer, node->page, 4096, RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_WRITE_SRC, &node->mr));
	if (side->initiator) {
		ctl_recv(side, node->port, sizeof(node->port));
	} else {
		node->ep = listen_anywhere(node->peer, node->port);
		ctl_send(side, node->port, sizeof(node->port));
	}
}

static void
node_close(struct node *node)
{
	if (node->ep != NULL)
		CHECK(rpma_ep_shutdown(&node->ep));
	CHECK(rpma_mr_dereg(&node->mr));
	CHECK(rpma_peer_delete(&node->peer));
	munmap(node->page, 4096);
}

static struct rpma_conn *
node_connect(struct node *node)
{
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;

	CHECK(rpma_conn_req_new(node->peer, ADDR, node->port, NULL, &req));
	CHECK(rpma_conn_req_connect(&req, NULL, &conn));
	expect_event(conn, RPMA_CONN_ESTABLISHED);
	return conn;
}

/* The private data is the descriptor of the page. */
static struct rpma_conn *
node_accept(struct node *node)
{
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	char desc[UINT8_MAX];
	struct rpma_conn_private_data data = {desc, 0};
	size_t size;

	CHECK(rpma_mr_get_descriptor_size(node->mr, &size));
	CHECK(rpma_mr_get_descriptor(node->mr, desc));
	data.len = (uint8_t)size;
	CHECK(rpma_ep_next_conn_req(node->ep, NULL, &req));
	CHECK(rpma_conn_req_connect(&req, &data, &conn));
	expect_event(conn, RPMA_CONN_ESTABLISHED);
	return conn;
}

/* Disconnects, or waits until the other side does; then deletes the connection. */
static void
node_end(struct rpma_conn **conn, bool first)
{
	if (first)
		CHECK(rpma_conn_disconnect(*conn));
	expect_event(*conn, RPMA_CONN_CLOSED);
	if (!first)
		CHECK(rpma_conn_disconnect(*conn));
	CHECK(rpma_conn_delete(conn));
}

/* One connection after the other: established at both ends, disconnected, deleted. */
void
connect_cycle(struct side *side)
{
	struct node node;

	node_open(&node, side);
	if (side->initiator) {
		struct timer t;
		char more = 1;

		for (timer_start(&t, side->opt.ms); timer_next(&t);) {
			struct rpma_conn *conn;

			ctl_send(side, &more, 1);
			conn = node_connect(&node);
			node_end(&conn, true);
		}
		more = 0;
		ctl_send(side, &more, 1);
		timer_report(&t, 1);
	} else {
		char more;

		for (ctl_recv(side, &more, 1); more; ctl_recv(side, &more, 1)) {
			struct rpma_conn *conn = node_accept(&node);

			node_end(&conn, false);
		}
	}
	node_close(&node);
}

/*
 * From rpma_conn_req_new() to the completion of the first write; the end of the connection is not measured.
 * The first connection of a process starts threads and so on, so benches/run starts two new processes for
 * each of --count rounds.
 */
void
first_write(struct side *side)
{
	struct node node;
	char done = 1;

	node_open(&node, side);
	if (side->initiator) {
		struct rpma_mr_remote *remote = NULL;
		struct rpma_conn_private_data data;
		struct rpma_conn *conn;
		struct rpma_cq *cq = NULL;
		uint64_t began = now_ns(), ns;

		conn = node_connect(&node);
		CHECK(rpma_conn_get_cq(conn, &cq));
		CHECK(rpma_conn_get_private_data(conn, &data));
		CHECK(rpma_mr_remote_from_descriptor(data.ptr, data.len, &remote));
		CHECK(rpma_write(conn, remote, 0, node.mr, 0, 8, RPMA_F_COMPLETION_ALWAYS, NULL));
		await_completion(cq);
		ns = now_ns() - began;
		printf("value=%.4f rounds=1\n", (double)ns / 1e3);
		ctl_send(side, &done, 1);
		CHECK(rpma_mr_remote_delete(&remote));
		node_end(&conn, true);
	} else {
		struct rpma_conn *conn = node_accept(&node);

		ctl_recv(side, &done, 1);
		node_end(&conn, false);
	}
	node_close(&node);
}
