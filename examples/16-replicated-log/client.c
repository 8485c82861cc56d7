/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 16-replicated-log, client: the primary, a storage engine that commits transactions. A transaction is
 * committed when its records are durable in the engine's own log and in that of the replica. Without a
 * replica it waits.
 */
#include "common.h"
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

#define MAX_BODY 900
#define GROUP 8 /* transactions that are made durable together, at most */

static struct rpma_peer *peer;
static struct rpma_mr_local *mr;
static char *log_memory; /* registered: its records are sent from where they are */
static char *check; /* behind it: what was read back */
static int file;

static struct rpma_conn *conn;
static struct rpma_cq *cq;
static struct rpma_mr_remote *remote;
static uint32_t replicated; /* bytes of the log that are durable at the replica */

static void
pause_ms(long ms)
{
	struct timespec ts = {ms / 1000, ms % 1000 * 1000000};

	nanosleep(&ts, NULL);
}

/* the body of a transaction, which only depends on its number here */
static size_t
transaction(uint64_t number, char *body)
{
	size_t length = 1 + number * 7919 % MAX_BODY;

	fill_pattern(body, length, (uint32_t)number);
	return length;
}

/* what the replica says of itself: its region, its configuration, and the end of its log */
static struct position
accept_replica(void)
{
	struct rpma_conn_private_data pdata;
	struct rpma_peer_cfg *pcfg = NULL;
	struct position end;
	size_t mr_size;
	size_t pcfg_size;

	CHECK(rpma_conn_get_cq(conn, &cq));
	remote = remote_region(conn);
	CHECK(rpma_conn_get_private_data(conn, &pdata));
	CHECK(rpma_mr_get_descriptor_size(mr, &mr_size));
	REQUIRE(pdata.len > mr_size, "private data of %u bytes", pdata.len);
	CHECK(rpma_peer_cfg_from_descriptor((char *)pdata.ptr + mr_size, pdata.len - mr_size, &pcfg));
	CHECK(rpma_conn_apply_remote_peer_cfg(conn, pcfg));
	CHECK(rpma_peer_cfg_get_descriptor_size(pcfg, &pcfg_size));
	CHECK(rpma_peer_cfg_delete(&pcfg));
	REQUIRE(pdata.len >= mr_size + pcfg_size + sizeof(end), "private data of %u bytes", pdata.len);
	memcpy(&end, (char *)pdata.ptr + mr_size + pcfg_size, sizeof(end));
	return end;
}

/* makes a part of the own log durable */
static void
save(uint32_t from, uint32_t to)
{
	REQUIRE(pwrite(file, log_memory + from, to - from, from) == (ssize_t)(to - from) &&
		fdatasync(file) == 0, "the own log: %s", strerror(errno));
}

/* reads the log of the replica, up to there */
static void
read_replica(uint32_t to)
{
	CHECK(rpma_read(conn, mr, LOG_SIZE, remote, 0, to, RPMA_F_COMPLETION_ALWAYS, check));
	wait_success(cq, check, IBV_WC_RDMA_READ);
}

/*
 * Tries until a replica accepts the connection. A replica that was away has the beginning of this log. One
 * that continues it, because this engine died or has lost its file, was sent every transaction that was ever
 * committed: this engine takes over what it has. Any other log is not changed.
 */
static void
connect_to_replica(const struct args *args, struct position *end)
{
	struct position theirs;

	for (;;) {
		struct rpma_conn_req *req = NULL;
		enum rpma_conn_event event = RPMA_CONN_UNDEFINED;

		CHECK(rpma_conn_req_new(peer, args->addr, args->port, NULL, &req));
		CHECK(rpma_conn_req_connect(&req, NULL, &conn));
		CHECK(rpma_conn_next_event(conn, &event));
		if (event == RPMA_CONN_ESTABLISHED)
			break;
		/* not there, no answer, or died while connecting */
		REQUIRE(event == RPMA_CONN_REJECTED || event == RPMA_CONN_UNREACHABLE ||
			event == RPMA_CONN_LOST, "%s", rpma_utils_conn_event_2str(event));
		CHECK(rpma_conn_delete(&conn));
		pause_ms(50);
	}
	theirs = accept_replica();
	printf("connected, the replica has %" PRIu64 " records\n", theirs.number);
	replicated = theirs.offset;
	if (log_has(log_memory, &theirs))
		return;

	REQUIRE(replicated <= LOG_SIZE, "the replica's log is too long");
	read_replica(replicated);
	REQUIRE(log_has(check, end) && log_has(check, &theirs), "the replica has another log");
	memcpy(log_memory + end->offset, check + end->offset, replicated - end->offset);
	save(end->offset, replicated);
	printf("%" PRIu64 " records taken from the replica\n", theirs.number - end->number);
	*end = theirs;
}

static void
replica_is_gone(void)
{
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;

	/* a failed operation does not end the connection on every device */
	(void)rpma_conn_disconnect(conn);
	CHECK(rpma_conn_next_event(conn, &event));
	REQUIRE(event == RPMA_CONN_CLOSED || event == RPMA_CONN_LOST, "%s",
		rpma_utils_conn_event_2str(event));
	printf("the replica has gone: %s\n", rpma_utils_conn_event_2str(event));
	CHECK(rpma_mr_remote_delete(&remote));
	CHECK(rpma_conn_delete(&conn));
}

/* posts what the replica is missing, and a flush behind it; 0 if the connection has ended */
static int
send_log(uint32_t end)
{
	size_t length = end - replicated;

	if (length == 0)
		return 1;
	return rpma_write(conn, remote, replicated, mr, replicated, length, RPMA_F_COMPLETION_ON_ERROR,
		log_memory) == 0 &&
		rpma_flush(conn, remote, replicated, length, RPMA_FLUSH_TYPE_PERSISTENT,
			RPMA_F_COMPLETION_ALWAYS, log_memory) == 0;
}

/*
 * Waits for the flush: all that was sent is durable at the replica. 0 if the connection has ended: a device
 * may try to reach a peer that has gone for ever, so the event of the connection ends the wait, too.
 */
static int
log_is_there(uint32_t end)
{
	struct pollfd fds[] = {{-1, POLLIN, 0}, {-1, POLLIN, 0}};
	struct ibv_wc wc;
	int ret;

	if (replicated == end)
		return 1;
	CHECK(rpma_cq_get_fd(cq, &fds[0].fd));
	CHECK(rpma_conn_get_event_fd(conn, &fds[1].fd));
	while ((ret = rpma_cq_get_wc(cq, 1, &wc, NULL)) == RPMA_E_NO_COMPLETION) {
		REQUIRE(poll(fds, 2, -1) > 0, "poll: %s", strerror(errno));
		if (fds[0].revents != 0)
			CHECK(rpma_cq_wait(cq));
		else
			return 0;
	}
	CHECK(ret);
	if (wc.status != IBV_WC_SUCCESS)
		return 0;
	replicated = end;
	return 1;
}

/* makes the log durable on both sides, which write it at the same time */
static void
commit(const struct args *args, uint32_t from, struct position *end)
{
	int sent = send_log(end->offset);

	save(from, end->offset);
	/* records that the replica has already may be sent to it again: they are the same */
	while (!sent || !log_is_there(end->offset)) {
		replica_is_gone();
		connect_to_replica(args, end);
		sent = send_log(end->offset);
	}
}

int
main(int argc, char *argv[])
{
	struct args args = parse_args(argc, argv, "FILE");
	struct position end;
	char body[MAX_BODY];

	/* recovery: the records in the file whose checksums are right */
	log_memory = alloc_pages(2 * LOG_SIZE);
	check = log_memory + LOG_SIZE;
	file = open(args.extra, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	REQUIRE(file >= 0, "open %s: %s", args.extra, strerror(errno));
	REQUIRE(pread(file, log_memory, LOG_SIZE, 0) >= 0, "read %s: %s", args.extra, strerror(errno));
	end = log_recover(log_memory);
	printf("%s has %" PRIu64 " records\n", args.extra, end.number);

	peer = new_peer(args.addr, RPMA_UTIL_IBV_CONTEXT_REMOTE);
	CHECK(rpma_mr_reg(peer, log_memory, 2 * LOG_SIZE,
		RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_READ_DST, &mr));
	connect_to_replica(&args, &end);
	/* what the last process has written may not be durable yet, or not be at the replica */
	commit(&args, end.offset, &end);

	while (end.number < RECORDS) {
		uint32_t from = end.offset;
		uint64_t group = 1 + end.number / 2 % GROUP;

		while (group-- > 0 && end.number < RECORDS) {
			size_t length = transaction(end.number + 1, body);

			REQUIRE(log_append(log_memory, &end, body, length), "the log is full");
		}
		commit(&args, from, &end);
		printf("committed %" PRIu64 "\n", end.number);
		/* so that there is time to kill either side */
		pause_ms(15);
	}

	read_replica(end.offset);
	REQUIRE(memcmp(check, log_memory, end.offset) == 0, "the two logs differ");

	CHECK(rpma_conn_disconnect(conn));
	wait_event(conn, RPMA_CONN_CLOSED);
	CHECK(rpma_mr_remote_delete(&remote));
	CHECK(rpma_conn_delete(&conn));
	CHECK(rpma_mr_dereg(&mr));
	CHECK(rpma_peer_delete(&peer));
	free_pages(log_memory, 2 * LOG_SIZE);
	close(file);

	verified("%" PRIu64 " transactions in both logs", end.number);
	return 0;
}
