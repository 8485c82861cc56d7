/* SPDX-License-Identifier: BSD-3-Clause */
/* 01-connection, client: connects and exchanges private data with the server. */
#include "common.h"

#define GREETING "Hello, this is the client."
#define EXPECTED "Hello, this is the server."

int
main(int argc, char *argv[])
{
	struct args args = parse_args(argc, argv, NULL);
	struct ibv_context *dev = NULL;
	struct rpma_peer *peer = NULL;
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
	struct rpma_conn_private_data pdata;

	/* the device through which the server's address is reached */
	CHECK(rpma_utils_get_ibv_context(args.addr, RPMA_UTIL_IBV_CONTEXT_REMOTE, &dev));
	CHECK(rpma_peer_new(dev, &peer));

	/* creates a connection request; nothing is sent yet */
	CHECK(rpma_conn_req_new(peer, args.addr, args.port, NULL, &req));

	/* sends the request; an event reports the outcome */
	struct rpma_conn_private_data greeting = {GREETING, sizeof(GREETING)};
	CHECK(rpma_conn_req_connect(&req, &greeting, &conn));

	CHECK(rpma_conn_next_event(conn, &event));
	REQUIRE(event == RPMA_CONN_ESTABLISHED, "%s", rpma_utils_conn_event_2str(event));

	/* len may include padding with zeros that the server did not send */
	CHECK(rpma_conn_get_private_data(conn, &pdata));
	REQUIRE(pdata.len >= sizeof(EXPECTED) && memcmp(pdata.ptr, EXPECTED, sizeof(EXPECTED)) == 0,
		"the server sent different data (%u bytes)", pdata.len);
	printf("the server says: %s\n", (const char *)pdata.ptr);

	CHECK(rpma_conn_disconnect(conn));
	CHECK(rpma_conn_next_event(conn, &event));
	REQUIRE(event == RPMA_CONN_CLOSED, "%s", rpma_utils_conn_event_2str(event));

	CHECK(rpma_conn_delete(&conn));
	CHECK(rpma_peer_delete(&peer));

	verified("%zu bytes of private data from the server", sizeof(EXPECTED));
	return 0;
}
