/* SPDX-License-Identifier: BSD-3-Clause */
/* The side that connects, reads, writes, flushes and sends. */

#include <string.h>

#include "plan.h"
#include "queue.h"

/* The sources of the data; for rpma_read, the destination. */
enum { LOCAL_READ_AT = REGION_SIZE, LOCAL_SIZE = REGION_SIZE + SOURCE_SIZE };

static void
fill(char *local)
{
	fill_pattern(local + DATA_AT, DATA_SIZE, DATA_SEED);
	fill_pattern(local + IMM_AT, IMM_SIZE, IMM_SEED);
	memcpy(local + OLD_ATOMIC_AT, OLD_ATOMIC_TEXT, 8);
}

/* Half of it with a completion for each step, half as in most programs: only the flush is signalled. */
static void
write_and_flush(struct rpma_conn *conn, struct rpma_mr_remote *remote, struct rpma_mr_local *mr)
{
	static const char first, second, flush;
	size_t half = DATA_SIZE / 2;

	OK(rpma_write(conn, remote, DATA_AT, mr, DATA_AT, half, RPMA_F_COMPLETION_ALWAYS, &first));
	expect_done(SENDS, WRITE, &first);
	OK(rpma_flush(conn, remote, DATA_AT, half, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS, &flush));
	expect_done(SENDS, READ, &flush);

	OK(rpma_write(conn, remote, DATA_AT + half, mr, DATA_AT + half, DATA_SIZE - half,
			RPMA_F_COMPLETION_ON_ERROR, &second));
	OK(rpma_flush(conn, remote, DATA_AT, DATA_SIZE, RPMA_FLUSH_TYPE_PERSISTENT, RPMA_F_COMPLETION_ALWAYS,
			&flush));
	expect_done(SENDS, READ, &flush);
	expect_nothing(SENDS);
}

static void
write_atomically(struct rpma_conn *conn, struct rpma_mr_remote *remote, struct rpma_mr_local *mr)
{
#if RELEASE <= 13
	static const char old;

	OK(rpma_write_atomic(conn, remote, OLD_ATOMIC_AT, mr, OLD_ATOMIC_AT, RPMA_F_COMPLETION_ALWAYS, &old));
	expect_done(SENDS, WRITE, &old);
#endif
#if RELEASE >= 13
	static const char now;

	OK(rpma_atomic_write(conn, remote, ATOMIC_AT, ATOMIC_TEXT, RPMA_F_COMPLETION_ALWAYS, &now));
	expect_done(SENDS, WRITE, &now);
#endif
	(void)conn, (void)remote, (void)mr;
}

static void
read_back(struct rpma_conn *conn, struct rpma_mr_remote *remote, struct rpma_mr_local *mr, const char *local)
{
	static const char context;

	OK(rpma_read(conn, mr, LOCAL_READ_AT, remote, SOURCE_AT, SOURCE_SIZE, RPMA_F_COMPLETION_ALWAYS, &context));
	expect_done(SENDS, READ, &context);
	check_pattern(local + LOCAL_READ_AT, SOURCE_SIZE, SOURCE_SEED, "data that was read");
}

static void
send_both(struct rpma_conn *conn, struct rpma_mr_remote *remote, struct rpma_mr_local *mr,
		struct rpma_mr_local *message_mr)
{
	static const char first, second;

#if RELEASE >= 10
	OK(rpma_send_with_imm(conn, message_mr, 0, MESSAGE_SIZE, RPMA_F_COMPLETION_ALWAYS, FIRST_IMM, &first));
	expect_done(SENDS, SEND, &first);
	OK(rpma_write_with_imm(conn, remote, IMM_AT, mr, IMM_AT, IMM_SIZE, RPMA_F_COMPLETION_ALWAYS, SECOND_IMM,
			&second));
	expect_done(SENDS, WRITE, &second);
#else
	OK(rpma_send(conn, message_mr, 0, MESSAGE_SIZE, RPMA_F_COMPLETION_ALWAYS, &first));
	expect_done(SENDS, SEND, &first);
	OK(rpma_send(conn, message_mr, MESSAGE_SIZE, MESSAGE_SIZE, RPMA_F_COMPLETION_ALWAYS, &second));
	expect_done(SENDS, SEND, &second);
	(void)remote, (void)mr;
#endif
}

/* The target's region, from the private data of the connection. */
static struct rpma_mr_remote *
remote_of(struct rpma_conn *conn)
{
	struct rpma_conn_private_data theirs = {0};
	struct rpma_peer_cfg *pcfg = NULL;
	struct rpma_mr_remote *remote = NULL;
	struct hello hello;
	bool direct = false;
	size_t size = 0;
	int flush_type = 0;

	OK(rpma_conn_get_private_data(conn, &theirs));
	EXPECT(theirs.ptr != NULL && theirs.len >= sizeof(hello), "%u bytes of private data", theirs.len);
	memcpy(&hello, theirs.ptr, sizeof(hello));
	OK(rpma_peer_cfg_from_descriptor(hello.descs + hello.mr_desc_size, hello.pcfg_desc_size, &pcfg));
	OK(rpma_peer_cfg_get_direct_write_to_pmem(pcfg, &direct));
	EXPECT(direct, "the peer's configuration was lost");
	OK(rpma_conn_apply_remote_peer_cfg(conn, pcfg));
	OK(rpma_peer_cfg_delete(&pcfg));
	OK(rpma_mr_remote_from_descriptor(hello.descs, hello.mr_desc_size, &remote));
	OK(rpma_mr_remote_get_size(remote, &size));
	EXPECT(size == REGION_SIZE, "a remote region of %zu bytes", size);
	OK(rpma_mr_remote_get_flush_type(remote, &flush_type));
	EXPECT(flush_type == (RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT),
			"flush type %d", flush_type);
	return remote;
}

void
run_initiator(const struct queue *queue, const char *addr, const char *port)
{
	struct ibv_context *device = NULL;
	struct rpma_peer *peer = NULL;
	struct rpma_conn_cfg *cfg = NULL;
	struct rpma_mr_local *mr = NULL;
	struct rpma_mr_local *message_mr = NULL;
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	struct hello hello = {.release = RELEASE};
	struct rpma_conn_private_data ours = {.ptr = &hello, .len = sizeof(hello)};
	struct done done;
	int odp = -1;

	OK(rpma_utils_get_ibv_context(addr, RPMA_UTIL_IBV_CONTEXT_REMOTE, &device));
	OK(rpma_utils_ibv_context_is_odp_capable(device, &odp));
	OK(rpma_peer_new(device, &peer));

	char *local = pages(LOCAL_SIZE);
	char *messages = pages(3 * MESSAGE_SIZE);
	char *answer = messages + 2 * MESSAGE_SIZE;
	fill(local);
	fill_pattern(messages, MESSAGE_SIZE, FIRST_SEED);
	fill_pattern(messages + MESSAGE_SIZE, MESSAGE_SIZE, SECOND_SEED);
	OK(rpma_mr_reg(peer, local, LOCAL_SIZE, RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_READ_DST, &mr));
	OK(rpma_mr_reg(peer, messages, 3 * MESSAGE_SIZE, RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV, &message_mr));

	OK(rpma_conn_cfg_new(&cfg));
	queue->configure(cfg);
	OK(rpma_conn_req_new(peer, addr, port, cfg, &req));
	OK(rpma_conn_cfg_delete(&cfg));
	OK(rpma_conn_req_recv(req, message_mr, 2 * MESSAGE_SIZE, MESSAGE_SIZE, answer));
	OK(rpma_conn_req_connect(&req, &ours, &conn));
	EXPECT(req == NULL, "the request was not consumed");
	expect_event(conn, RPMA_CONN_ESTABLISHED);
	struct rpma_mr_remote *remote = remote_of(conn);

	open_queue(queue, conn);
	expect_nothing(SENDS);
	expect_nothing(RECEIVES);
	write_and_flush(conn, remote, mr);
	write_atomically(conn, remote, mr);
	read_back(conn, remote, mr, local);
	send_both(conn, remote, mr, message_mr);
	done = expect_done(RECEIVES, RECV, answer);
	EXPECT(done.byte_len == MESSAGE_SIZE && !done.has_imm, "a reply of %u bytes", done.byte_len);
	check_pattern(answer, MESSAGE_SIZE, ANSWER_SEED, "answer");

	OK(rpma_conn_disconnect(conn));
	expect_event(conn, RPMA_CONN_CLOSED);
	OK(rpma_conn_delete(&conn));
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_mr_dereg(&message_mr));
	OK(rpma_mr_dereg(&mr));
	OK(rpma_peer_delete(&peer));
	printf("verified: what was read and received by %d\n", RELEASE);
}
