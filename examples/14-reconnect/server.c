/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 14-reconnect, server: offers a journal in a file. It is meant to be killed and restarted, and prepares for
 * that only by keeping the data in a file.
 */
#include "common.h"
#include "journal.h"

int
main(int argc, char *argv[])
{
	struct args args = parse_args(argc, argv, "FILE");
	struct rpma_peer *peer = new_peer(args.addr, RPMA_UTIL_IBV_CONTEXT_LOCAL);
	struct rpma_ep *ep = NULL;
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	struct rpma_mr_local *mr = NULL;
	char descriptor[UINT8_MAX];
	size_t descriptor_size;
	size_t found = 0;

	struct journal *journal = map_file(args.extra, sizeof(*journal));
	while (found < RECORDS && journal->records[found].number == found + 1)
		found++;
	printf("the file has %zu records\n", found);

	CHECK(rpma_mr_reg(peer, journal, sizeof(*journal), RPMA_MR_USAGE_READ_SRC |
		RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY, &mr));
	CHECK(rpma_mr_get_descriptor_size(mr, &descriptor_size));
	REQUIRE(descriptor_size <= sizeof(descriptor), "descriptor of %zu bytes", descriptor_size);
	CHECK(rpma_mr_get_descriptor(mr, descriptor));

	CHECK(rpma_ep_listen(peer, args.addr, args.port, &ep));
	say_listening(&args);

	struct rpma_conn_private_data pdata = {descriptor, (uint8_t)descriptor_size};
	CHECK(rpma_ep_next_conn_req(ep, NULL, &req));
	CHECK(rpma_conn_req_connect(&req, &pdata, &conn));
	wait_event(conn, RPMA_CONN_ESTABLISHED);
	wait_event(conn, RPMA_CONN_CLOSED);

	/* not killed, and the client has disconnected, so the journal must be complete */
	for (size_t i = 0; i < RECORDS; i++) {
		struct record *record = &journal->records[i];

		REQUIRE(record->number == i + 1, "record %zu is missing", i + 1);
		check_pattern(record->body, sizeof(record->body), 1400 + (uint32_t)i, "a record");
	}

	CHECK(rpma_conn_disconnect(conn));
	CHECK(rpma_conn_delete(&conn));
	CHECK(rpma_ep_shutdown(&ep));
	CHECK(rpma_mr_dereg(&mr));
	free_pages(journal, sizeof(*journal));
	CHECK(rpma_peer_delete(&peer));

	verified("%d records in the file, %zu of them from before the restart", RECORDS, found);
	return 0;
}
