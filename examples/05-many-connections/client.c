/* SPDX-License-Identifier: BSD-3-Clause */
/* 05-many-connections, client: opens several connections and uses all of them at the same time. */
#include "common.h"

#define CONNECTIONS 8
#define SLOT_SIZE 4096

struct invitation {
	uint64_t slot_offset;
	char descriptor[32];
};

struct message {
	uint32_t seed;
	uint32_t accepted;
};

/* one registered buffer per connection: the data to write and both messages */
struct area {
	char data[SLOT_SIZE];
	struct message out;
	struct message in;
};

int
main(int argc, char *argv[])
{
	struct args args = parse_args(argc, argv, NULL);
	struct rpma_peer *peer = new_peer(args.addr, RPMA_UTIL_IBV_CONTEXT_REMOTE);
	struct rpma_conn *conn[CONNECTIONS] = {NULL};
	struct rpma_mr_remote *remote[CONNECTIONS] = {NULL};
	struct invitation invitation[CONNECTIONS];
	struct rpma_mr_local *mr = NULL;
	struct area *areas = alloc_pages(CONNECTIONS * sizeof(*areas));

	CHECK(rpma_mr_reg(peer, areas, CONNECTIONS * sizeof(*areas),
		RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV, &mr));

	/* send all connection requests before waiting for the first event */
	for (int i = 0; i < CONNECTIONS; i++) {
		struct rpma_conn_req *req = NULL;
		size_t in = (size_t)i * sizeof(*areas) + offsetof(struct area, in);

		CHECK(rpma_conn_req_new(peer, args.addr, args.port, NULL, &req));
		CHECK(rpma_conn_req_recv(req, mr, in, sizeof(struct message), &areas[i].in));
		CHECK(rpma_conn_req_connect(&req, NULL, &conn[i]));
	}
	for (int i = 0; i < CONNECTIONS; i++) {
		struct rpma_conn_private_data pdata;

		wait_event(conn[i], RPMA_CONN_ESTABLISHED);
		CHECK(rpma_conn_get_private_data(conn[i], &pdata));
		REQUIRE(pdata.len >= sizeof(invitation[i]), "private data of %u bytes", pdata.len);
		memcpy(&invitation[i], pdata.ptr, sizeof(invitation[i]));
		CHECK(rpma_mr_remote_from_descriptor(invitation[i].descriptor,
			sizeof(invitation[i].descriptor), &remote[i]));
	}

	/* write to every slot; the message sent after the write announces that it is complete */
	for (int i = 0; i < CONNECTIONS; i++) {
		size_t base = (size_t)i * sizeof(*areas);

		areas[i].out.seed = 500 + (uint32_t)i;
		fill_pattern(areas[i].data, SLOT_SIZE, areas[i].out.seed);
		CHECK(rpma_write(conn[i], remote[i], invitation[i].slot_offset, mr, base, SLOT_SIZE,
			RPMA_F_COMPLETION_ON_ERROR, areas[i].data));
		CHECK(rpma_send(conn[i], mr, base + offsetof(struct area, out),
			sizeof(struct message), RPMA_F_COMPLETION_ON_ERROR, &areas[i].out));
	}
	for (int i = 0; i < CONNECTIONS; i++) {
		struct rpma_cq *cq = NULL;

		CHECK(rpma_conn_get_cq(conn[i], &cq));
		wait_success(cq, &areas[i].in, IBV_WC_RECV);
		REQUIRE(areas[i].in.accepted == 1 && areas[i].in.seed == areas[i].out.seed,
			"connection %d got another connection's answer", i);
	}

	for (int i = 0; i < CONNECTIONS; i++) {
		CHECK(rpma_conn_disconnect(conn[i]));
		wait_event(conn[i], RPMA_CONN_CLOSED);
		CHECK(rpma_mr_remote_delete(&remote[i]));
		CHECK(rpma_conn_delete(&conn[i]));
	}
	CHECK(rpma_mr_dereg(&mr));
	free_pages(areas, CONNECTIONS * sizeof(*areas));
	CHECK(rpma_peer_delete(&peer));

	verified("%d connections at a time, each with a write and its own answer", CONNECTIONS);
	return 0;
}
