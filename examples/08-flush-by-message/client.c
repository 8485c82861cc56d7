/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 08-flush-by-message, client: writes chunks, and after each one asks the server program to make it
 * durable.
 */
#include "common.h"
#include "protocol.h"

#include <errno.h>

#define CHUNKS 8
#define SEED 800

struct buffers {
	struct flush_request request;
	struct flush_answer answer;
};

static struct rpma_conn *conn;
static struct rpma_cq *cq;
static struct rpma_mr_local *messages_mr;
static struct buffers *messages;

/*
 * sends one request and returns the error in the server's reply; it covers everything written
 * before
 */
static uint64_t
flush_by_message(uint64_t offset, uint64_t length)
{
	int request_sent = 0;
	int answer_here = 0;

	messages->request = (struct flush_request){htole64(offset), htole64(length)};
	CHECK(rpma_recv(conn, messages_mr, offsetof(struct buffers, answer),
		sizeof(messages->answer), &messages->answer));
	CHECK(rpma_send(conn, messages_mr, offsetof(struct buffers, request),
		sizeof(messages->request), RPMA_F_COMPLETION_ALWAYS, &messages->request));

	while (!request_sent || !answer_here) {
		struct ibv_wc wc;

		wait_wc(cq, &wc);
		REQUIRE(wc.status == IBV_WC_SUCCESS, "enum ibv_wc_status %d", wc.status);
		if (wc.wr_id == (uintptr_t)&messages->answer) {
			REQUIRE(wc.byte_len == sizeof(messages->answer), "an answer of %u bytes",
				wc.byte_len);
			answer_here = 1;
		} else {
			request_sent = 1;
		}
	}
	REQUIRE(le64toh(messages->answer.offset) == offset &&
		le64toh(messages->answer.length) == length, "an answer to another request");
	return le64toh(messages->answer.error);
}

int
main(int argc, char *argv[])
{
	struct args args = parse_args(argc, argv, NULL);
	struct rpma_peer *peer = new_peer(args.addr, RPMA_UTIL_IBV_CONTEXT_REMOTE);
	struct rpma_conn_req *req = NULL;
	struct rpma_mr_remote *remote = NULL;
	struct rpma_mr_local *src = NULL;
	uint64_t error;
	size_t size;

	CHECK(rpma_conn_req_new(peer, args.addr, args.port, NULL, &req));
	CHECK(rpma_conn_req_connect(&req, NULL, &conn));
	wait_event(conn, RPMA_CONN_ESTABLISHED);
	CHECK(rpma_conn_get_cq(conn, &cq));
	remote = remote_region(conn);
	CHECK(rpma_mr_remote_get_size(remote, &size));

	char *out = alloc_pages(size);
	fill_pattern(out, size, SEED);
	CHECK(rpma_mr_reg(peer, out, size, RPMA_MR_USAGE_WRITE_SRC, &src));
	messages = alloc_pages(sizeof(*messages));
	CHECK(rpma_mr_reg(peer, messages, sizeof(*messages),
		RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV, &messages_mr));

	/* a server that does not validate the numbers would sync, or access, other memory */
	error = flush_by_message(size - 1, 2);
	REQUIRE(error == EINVAL, "a range past the region: error %" PRIu64, error);

	size_t chunk = size / CHUNKS;
	for (size_t offset = 0; offset < size; offset += chunk) {
		/*
		 * The request is sent after the write on the same connection, so the data are in the
		 * server's memory before it receives the request.
		 */
		CHECK(rpma_write(conn, remote, offset, src, offset, chunk,
			RPMA_F_COMPLETION_ON_ERROR, out));
		error = flush_by_message(offset, chunk);
		REQUIRE(error == 0, "offset %zu: error %" PRIu64, offset, error);
	}

	/* the last message gets no reply */
	messages->request = (struct flush_request){0, 0};
	CHECK(rpma_send(conn, messages_mr, offsetof(struct buffers, request),
		sizeof(messages->request), RPMA_F_COMPLETION_ALWAYS, &messages->request));
	wait_success(cq, &messages->request, IBV_WC_SEND);

	CHECK(rpma_conn_disconnect(conn));
	wait_event(conn, RPMA_CONN_CLOSED);
	CHECK(rpma_mr_remote_delete(&remote));
	CHECK(rpma_conn_delete(&conn));
	CHECK(rpma_mr_dereg(&messages_mr));
	CHECK(rpma_mr_dereg(&src));
	free_pages(messages, sizeof(*messages));
	free_pages(out, size);
	CHECK(rpma_peer_delete(&peer));

	verified("%zu bytes written in %d chunks, each persisted on request", size, CHUNKS);
	return 0;
}
