/* SPDX-License-Identifier: BSD-3-Clause */
/* 01-connection, server: takes one connection and exchanges private data with the client. */
#include "common.h"

#define GREETING "Hello, this is the server."
#define EXPECTED "Hello, this is the client."

int
main(int argc, char *argv[])
{
	struct args args = parse_args(argc, argv, NULL);
	struct ibv_context *dev = NULL;
	struct rpma_peer *peer = NULL;
	struct rpma_ep *ep = NULL;
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
	struct rpma_conn_private_data pdata;

	/*
	 * the device that serves our own address, and a peer on it, from which all other objects are created
	 */
	CHECK(rpma_utils_get_ibv_context(args.addr, RPMA_UTIL_IBV_CONTEXT_LOCAL, &dev));
	CHECK(rpma_peer_new(dev, &peer));

	CHECK(rpma_ep_listen(peer, args.addr, args.port, &ep));
	say_listening(&args);

	/* blocks until a client connects; NULL means the default connection configuration */
	CHECK(rpma_ep_next_conn_req(ep, NULL, &req));

	/* the client's private data are available before deciding whether to accept */
	CHECK(rpma_conn_req_get_private_data(req, &pdata));
	REQUIRE(pdata.len >= sizeof(EXPECTED) && memcmp(pdata.ptr, EXPECTED, sizeof(EXPECTED)) == 0,
		"the client sent different data (%u bytes)", pdata.len);
	printf("the client says: %s\n", (const char *)pdata.ptr);

	/* accepts; the request is consumed and becomes a connection */
	struct rpma_conn_private_data greeting = {GREETING, sizeof(GREETING)};
	CHECK(rpma_conn_req_connect(&req, &greeting, &conn));

	CHECK(rpma_conn_next_event(conn, &event));
	REQUIRE(event == RPMA_CONN_ESTABLISHED, "%s", rpma_utils_conn_event_2str(event));

	/* the connection owns a copy of the private data until it is deleted */
	CHECK(rpma_conn_get_private_data(conn, &pdata));
	REQUIRE(pdata.len >= sizeof(EXPECTED) && memcmp(pdata.ptr, EXPECTED, sizeof(EXPECTED)) == 0,
		"the private data changed while connecting");

	/* the client disconnects first; then so do we */
	CHECK(rpma_conn_next_event(conn, &event));
	REQUIRE(event == RPMA_CONN_CLOSED, "%s", rpma_utils_conn_event_2str(event));
	CHECK(rpma_conn_disconnect(conn));

	CHECK(rpma_conn_delete(&conn));
	CHECK(rpma_ep_shutdown(&ep));
	CHECK(rpma_peer_delete(&peer));

	verified("%zu bytes of private data from the client", sizeof(EXPECTED));
	return 0;
}
