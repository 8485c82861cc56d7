/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * probe.c -- a single call or connection attempt: prints its result on stdout; the library's log goes to
 * stderr.
 *
 *     probe context ADDR local|remote   the provider of the context that serves the address, or the error
 *     probe listen ADDR PORT prints "listening", then accepts a connection and waits for its end probe
 *     connect ADDR PORT the event that ends the connection request, or the error
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <librpma.h>

static int
outcome(const char *what)
{
	puts(what);
	fflush(stdout);
	return 0;
}

static int
context(const char *addr, enum rpma_util_ibv_context_type type, struct ibv_context **dev)
{
	int ret;

	*dev = (struct ibv_context *)dev;
	ret = rpma_utils_get_ibv_context(addr, type, dev);
	if (ret == RPMA_E_PROVIDER && *dev == (struct ibv_context *)dev)
		return outcome("RPMA_E_PROVIDER");
	if (ret != 0 || *dev == NULL) {
		printf("returned %d, context %p\n", ret, (void *)*dev);
		return 0;
	}
	return 1;
}

static int
listen_on(struct rpma_peer *peer, const char *addr, const char *port)
{
	struct rpma_ep *ep = NULL;

	if (rpma_ep_listen(peer, addr, port, &ep) != 0)
		return outcome("cannot listen");
	outcome("listening");
	for (;;) {
		enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
		struct rpma_conn_req *req = NULL;
		struct rpma_conn *conn = NULL;

		if (rpma_ep_next_conn_req(ep, NULL, &req) != 0 || rpma_conn_req_connect(&req, NULL, &conn) != 0)
			continue;
		while (rpma_conn_next_event(conn, &event) == 0 && event == RPMA_CONN_ESTABLISHED)
			;
		rpma_conn_disconnect(conn);
		rpma_conn_delete(&conn);
	}
}

static int
connect_to(struct rpma_peer *peer, const char *addr, const char *port)
{
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	int ret = rpma_conn_req_new(peer, addr, port, NULL, &req);

	if (ret != 0)
		return outcome(rpma_err_2str(ret));
	ret = rpma_conn_req_connect(&req, NULL, &conn);
	if (ret != 0)
		return outcome(rpma_err_2str(ret));
	ret = rpma_conn_next_event(conn, &event);
	outcome(ret != 0 ? rpma_err_2str(ret) : rpma_utils_conn_event_2str(event));
	if (event == RPMA_CONN_ESTABLISHED && rpma_conn_disconnect(conn) == 0)
		rpma_conn_next_event(conn, &event);
	return rpma_conn_delete(&conn);
}

int
main(int argc, char *argv[])
{
	bool to_remote = argc == 4 && (strcmp(argv[1], "connect") == 0 || strcmp(argv[3], "remote") == 0);
	struct ibv_context *dev = NULL;
	struct rpma_peer *peer = NULL;
	int ret;

	if (argc != 4) {
		fprintf(stderr, "usage: %s context ADDR local|remote | listen ADDR PORT | connect ADDR PORT\n", argv[0]);
		return 2;
	}
	rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_LEVEL_NOTICE);
	rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_LEVEL_NOTICE);
	if (!context(argv[2], to_remote ? RPMA_UTIL_IBV_CONTEXT_REMOTE : RPMA_UTIL_IBV_CONTEXT_LOCAL, &dev))
		return 0;
	/* the device of soft is soft0; the kernel's devices are named by their drivers */
	if (strcmp(argv[1], "context") == 0)
		return outcome(strncmp(dev->device->name, "soft", 4) == 0 ? "soft" : "rdma-core");
	if (rpma_peer_new(dev, &peer) != 0)
		return outcome("no peer");
	ret = strcmp(argv[1], "listen") == 0 ? listen_on(peer, argv[2], argv[3]) : connect_to(peer, argv[2], argv[3]);
	rpma_peer_delete(&peer);
	return ret != 0;
}
