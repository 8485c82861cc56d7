/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 14-reconnect, client: writes a journal to the server's file and continues after the server has died. After
 * the first half it waits for the connection to break, to demonstrate the recovery.
 */
#include "common.h"
#include "journal.h"

#include <time.h>

static struct rpma_peer *peer;
static struct rpma_mr_local *mr;
static struct journal *copy; /* the registered source of writes */
static struct journal *check; /* the registered destination of reads, after it */

static struct rpma_conn *conn;
static struct rpma_cq *cq;
static struct rpma_mr_remote *remote;
static int breaks;
static int rejections;

static void
pause_ms(long ms)
{
	struct timespec ts = {ms / 1000, ms % 1000 * 1000000};

	nanosleep(&ts, NULL);
}

/*
 * retries until a server accepts the connection; the outcomes of a dead or starting server are not
 * errors here
 */
static void
connect_again(const struct args *args)
{
	for (;;) {
		struct rpma_conn_req *req = NULL;
		enum rpma_conn_event event = RPMA_CONN_UNDEFINED;

		CHECK(rpma_conn_req_new(peer, args->addr, args->port, NULL, &req));
		CHECK(rpma_conn_req_connect(&req, NULL, &conn));
		CHECK(rpma_conn_next_event(conn, &event));
		if (event == RPMA_CONN_ESTABLISHED)
			break;

		/* not listening (REJECTED), no response (UNREACHABLE), died while connecting (LOST) */
		REQUIRE(event == RPMA_CONN_REJECTED || event == RPMA_CONN_UNREACHABLE ||
			event == RPMA_CONN_LOST, "%s", rpma_utils_conn_event_2str(event));
		if (event == RPMA_CONN_REJECTED && rejections++ == 0)
			printf("rejected, trying again\n");
		CHECK(rpma_conn_delete(&conn));
		pause_ms(100);
	}
	CHECK(rpma_conn_get_cq(conn, &cq));
	remote = remote_region(conn);
}

/*
 * the connection has ended: get its last event and delete it and its objects, but keep everything
 * else
 */
static void
connection_is_gone(void)
{
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;

	CHECK(rpma_conn_next_event(conn, &event));
	REQUIRE(event == RPMA_CONN_CLOSED || event == RPMA_CONN_LOST, "%s",
		rpma_utils_conn_event_2str(event));
	printf("%s\n", rpma_utils_conn_event_2str(event));
	CHECK(rpma_mr_remote_delete(&remote));
	CHECK(rpma_conn_delete(&conn));
	breaks++;
}

/* waits for the operation's completion; 0 if the operation failed because the connection ended */
static int
completed(const void *op_context)
{
	struct ibv_wc wc;

	/*
	 * every operation that requested a completion gets exactly one, also after the remote peer has died
	 */
	wait_wc(cq, &wc);
	if (wc.status == IBV_WC_SUCCESS)
		REQUIRE(wc.wr_id == (uintptr_t)op_context, "a completion of another operation");
	return wc.status == IBV_WC_SUCCESS;
}

/* 1 if the record is in the server's memory, 0 if the connection broke before that was confirmed */
static int
write_record(size_t i)
{
	struct record *record = &copy->records[i];
	size_t offset = i * sizeof(*record);

	/* posting may also fail once the connection has broken; then there is no completion to wait for */
	if (rpma_write(conn, remote, offset, mr, offset, sizeof(*record),
		RPMA_F_COMPLETION_ON_ERROR, record) != 0)
		return 0;
	if (rpma_flush(conn, remote, offset, sizeof(*record), RPMA_FLUSH_TYPE_VISIBILITY,
		RPMA_F_COMPLETION_ALWAYS, record) != 0)
		return 0;
	return completed(record);
}

int
main(int argc, char *argv[])
{
	struct args args = parse_args(argc, argv, NULL);
	size_t i = 0;

	peer = new_peer(args.addr, RPMA_UTIL_IBV_CONTEXT_REMOTE);
	copy = alloc_pages(2 * sizeof(*copy));
	check = copy + 1;
	CHECK(rpma_mr_reg(peer, copy, 2 * sizeof(*copy),
		RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_READ_DST, &mr));
	for (size_t n = 0; n < RECORDS; n++) {
		copy->records[n].number = n + 1;
		fill_pattern(copy->records[n].body, sizeof(copy->records[n].body), 1400 + (uint32_t)n);
	}

	connect_again(&args);
	while (i < RECORDS) {
		if (!write_record(i)) {
			/* write the same record again: writing it twice does no harm */
			connection_is_gone();
			connect_again(&args);
			continue;
		}
		i++;
		if (i == RECORDS / 2 && breaks == 0) {
			printf("half of the records are written: kill the server now, then start it again\n");
			connection_is_gone();
			connect_again(&args);
		}
	}

	/* all confirmed records must be there, whichever server they were written to */
	CHECK(rpma_read(conn, mr, sizeof(*copy), remote, 0, sizeof(*check),
		RPMA_F_COMPLETION_ALWAYS, check));
	REQUIRE(completed(check), "the connection broke once more, while the journal was read back");
	for (size_t n = 0; n < RECORDS; n++) {
		REQUIRE(check->records[n].number == n + 1, "record %zu is missing", n + 1);
		check_pattern(check->records[n].body, sizeof(check->records[n].body),
			1400 + (uint32_t)n, "a record");
	}
	REQUIRE(breaks > 0, "the connection never broke");

	CHECK(rpma_conn_disconnect(conn));
	wait_event(conn, RPMA_CONN_CLOSED);
	CHECK(rpma_mr_remote_delete(&remote));
	CHECK(rpma_conn_delete(&conn));
	CHECK(rpma_mr_dereg(&mr));
	free_pages(copy, 2 * sizeof(*copy));
	CHECK(rpma_peer_delete(&peer));

	verified("%d records read back after %d lost connection%s and %s", RECORDS, breaks,
		breaks == 1 ? "" : "s", rejections > 0 ? "rejected attempts" : "no rejected attempt");
	return 0;
}
