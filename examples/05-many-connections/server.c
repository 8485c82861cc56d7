/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 05-many-connections, server: one thread, one epoll loop, any number of connections. The descriptors of the
 * endpoint, of every connection's event channel and of every completion queue are polled together; all are
 * non-blocking, so calls return an error instead of waiting.
 */
#include "common.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#define CLIENTS 8
#define SLOT_SIZE 4096

/* the private data that the server sends when it accepts */
struct invitation {
	uint64_t slot_offset;
	char descriptor[32];
};

/* the client's message after it has written its slot, and the reply */
struct message {
	uint32_t seed;
	uint32_t accepted;
};

struct client;

/* a polled file descriptor: its client and the handler to call when it is readable */
struct watch {
	void (*ready)(struct client *client);
	struct client *client;
};

struct client {
	struct rpma_conn *conn;
	struct rpma_cq *cq;
	int slot;
	int answered;
	struct watch events;
	struct watch completions;
};

static struct rpma_peer *peer;
static struct rpma_ep *ep;
static struct rpma_mr_local *slots_mr;
static struct rpma_mr_local *recv_mr;
static struct rpma_mr_local *send_mr;
static char *slots;
static struct message *inbox;
static struct message *outbox;
static struct client clients[CLIENTS];
static int epoll_fd;
static int accepted;
static int closed;

static void
watch_fd(int fd, struct watch *watch)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = watch};
	int flags = fcntl(fd, F_GETFL);

	REQUIRE(flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0, "fcntl: %s",
		strerror(errno));
	REQUIRE(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl: %s",
		strerror(errno));
}

static void
unwatch_fd(int fd)
{
	REQUIRE(epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, NULL) == 0, "epoll_ctl: %s",
		strerror(errno));
}

static void
on_completion(struct client *client, const struct ibv_wc *wc)
{
	struct message *in = &inbox[client->slot];
	struct message *out = &outbox[client->slot];

	/* after a disconnect, outstanding work requests complete as flushed: nothing to do */
	if (wc->status == IBV_WC_WR_FLUSH_ERR && client->answered)
		return;
	REQUIRE(wc->status == IBV_WC_SUCCESS, "client %d: enum ibv_wc_status %d", client->slot,
		wc->status);

	if (wc->opcode == IBV_WC_SEND)
		return;
	REQUIRE(wc->opcode == IBV_WC_RECV && wc->byte_len == sizeof(*in),
		"client %d: unexpected completion", client->slot);

	/* the message was sent after the write on the same connection: the data are in place */
	check_pattern(slots + client->slot * SLOT_SIZE, SLOT_SIZE, in->seed, "a client's slot");
	out->seed = in->seed;
	out->accepted = 1;
	client->answered = 1;
	CHECK(rpma_send(client->conn, send_mr, (size_t)client->slot * sizeof(*out), sizeof(*out),
		RPMA_F_COMPLETION_ALWAYS, out));
}

static void
completions_ready(struct client *client)
{
	struct ibv_wc wc[4];
	int got;
	int ret;

	/* consumes the event and rearms the queue; then drain the queue */
	ret = rpma_cq_wait(client->cq);
	if (ret != RPMA_E_NO_COMPLETION)
		CHECK(ret);
	while ((ret = rpma_cq_get_wc(client->cq, 4, wc, &got)) == 0)
		for (int i = 0; i < got; i++)
			on_completion(client, &wc[i]);
	REQUIRE(ret == RPMA_E_NO_COMPLETION, "rpma_cq_get_wc: %s", rpma_err_2str(ret));
}

static void
events_ready(struct client *client)
{
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
	int ret = rpma_conn_next_event(client->conn, &event);
	int fd;

	if (ret == RPMA_E_NO_EVENT)
		return;
	CHECK(ret);
	if (event == RPMA_CONN_ESTABLISHED)
		return;
	REQUIRE(event == RPMA_CONN_CLOSED, "client %d: %s", client->slot,
		rpma_utils_conn_event_2str(event));

	/* completions from before the disconnect may still be in the queue */
	completions_ready(client);
	REQUIRE(client->answered, "client %d left without a message", client->slot);

	CHECK(rpma_conn_get_event_fd(client->conn, &fd));
	unwatch_fd(fd);
	CHECK(rpma_cq_get_fd(client->cq, &fd));
	unwatch_fd(fd);
	CHECK(rpma_conn_disconnect(client->conn));
	CHECK(rpma_conn_delete(&client->conn));
	closed++;
}

static void
endpoint_ready(struct client *unused)
{
	struct rpma_conn_req *req = NULL;
	struct invitation invitation = {0};
	struct rpma_conn_private_data pdata = {&invitation, sizeof(invitation)};
	struct client *client;
	size_t descriptor_size;
	int ret = rpma_ep_next_conn_req(ep, NULL, &req);
	int fd;

	(void)unused;
	if (ret == RPMA_E_NO_EVENT)
		return;
	CHECK(ret);
	REQUIRE(accepted < CLIENTS, "more than %d clients", CLIENTS);
	client = &clients[accepted];
	client->slot = accepted++;

	invitation.slot_offset = (uint64_t)client->slot * SLOT_SIZE;
	CHECK(rpma_mr_get_descriptor_size(slots_mr, &descriptor_size));
	REQUIRE(descriptor_size <= sizeof(invitation.descriptor), "descriptor too large");
	CHECK(rpma_mr_get_descriptor(slots_mr, invitation.descriptor));

	/* post the receive before the client can learn that it is connected */
	CHECK(rpma_conn_req_recv(req, recv_mr, (size_t)client->slot * sizeof(*inbox),
		sizeof(*inbox), &inbox[client->slot]));
	CHECK(rpma_conn_req_connect(&req, &pdata, &client->conn));

	CHECK(rpma_conn_get_event_fd(client->conn, &fd));
	client->events = (struct watch){events_ready, client};
	watch_fd(fd, &client->events);
	CHECK(rpma_conn_get_cq(client->conn, &client->cq));
	CHECK(rpma_cq_get_fd(client->cq, &fd));
	client->completions = (struct watch){completions_ready, client};
	watch_fd(fd, &client->completions);
}

int
main(int argc, char *argv[])
{
	struct args args = parse_args(argc, argv, NULL);
	struct watch endpoint = {endpoint_ready, NULL};
	int fd;

	peer = new_peer(args.addr, RPMA_UTIL_IBV_CONTEXT_LOCAL);
	slots = alloc_pages(CLIENTS * SLOT_SIZE);
	inbox = alloc_pages(CLIENTS * sizeof(*inbox));
	outbox = alloc_pages(CLIENTS * sizeof(*outbox));
	CHECK(rpma_mr_reg(peer, slots, CLIENTS * SLOT_SIZE, RPMA_MR_USAGE_WRITE_DST, &slots_mr));
	CHECK(rpma_mr_reg(peer, inbox, CLIENTS * sizeof(*inbox), RPMA_MR_USAGE_RECV, &recv_mr));
	CHECK(rpma_mr_reg(peer, outbox, CLIENTS * sizeof(*outbox), RPMA_MR_USAGE_SEND, &send_mr));

	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	REQUIRE(epoll_fd >= 0, "epoll_create1: %s", strerror(errno));
	CHECK(rpma_ep_listen(peer, args.addr, args.port, &ep));
	CHECK(rpma_ep_get_fd(ep, &fd));
	watch_fd(fd, &endpoint);
	say_listening(&args);

	while (closed < CLIENTS) {
		struct epoll_event event;
		int n = epoll_wait(epoll_fd, &event, 1, -1);

		REQUIRE(n >= 0 || errno == EINTR, "epoll_wait: %s", strerror(errno));
		if (n == 1) {
			struct watch *watch = event.data.ptr;

			watch->ready(watch->client);
		}
	}

	unwatch_fd(fd);
	CHECK(rpma_ep_shutdown(&ep));
	close(epoll_fd);
	CHECK(rpma_mr_dereg(&send_mr));
	CHECK(rpma_mr_dereg(&recv_mr));
	CHECK(rpma_mr_dereg(&slots_mr));
	free_pages(outbox, CLIENTS * sizeof(*outbox));
	free_pages(inbox, CLIENTS * sizeof(*inbox));
	free_pages(slots, CLIENTS * SLOT_SIZE);
	CHECK(rpma_peer_delete(&peer));

	verified("%d connections on one epoll loop, %d bytes from each", CLIENTS, SLOT_SIZE);
	return 0;
}
