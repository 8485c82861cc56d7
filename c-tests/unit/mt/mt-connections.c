/* SPDX-License-Identifier: BSD-3-Clause */

/* Threads post on one connection, poll one queue, and use separate connections. */

#include "mt.h"

enum { POSTS = 5000, CONNS = 12 };

/* A device that checks each request against its wr_id, which contains its kind, thread and number. */
enum kind { READ, WRITE, WRITE_IMM, SEND, SEND_IMM, ATOMIC, FLUSH, KINDS };

static atomic_int posted[KINDS], received, polled;

static void *context_of(enum kind kind, int index, int i)
{
	return (void *)(((uintptr_t)kind << 48) | ((uintptr_t)index << 32) | (uintptr_t)i);
}

static int checking_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	static const enum ibv_wr_opcode opcodes[KINDS] = {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_READ};
	unsigned kind = (unsigned)(wr->wr_id >> 48) % KINDS;
	uint32_t index = (uint32_t)(wr->wr_id >> 32) & 0xffff, i = (uint32_t)wr->wr_id;
	unsigned flags = i & 1 ? IBV_SEND_SIGNALED : 0;

	(void)qp, (void)bad;
	EXPECT(wr->opcode == opcodes[kind] && wr->num_sge == 1 && wr->next == NULL);
	EXPECT(wr->send_flags == (flags | (kind == ATOMIC ? IBV_SEND_INLINE | IBV_SEND_FENCE : 0)));
	if (kind != SEND && kind != SEND_IMM) {
		EXPECT(wr->wr.rdma.rkey == REMOTE_RKEY);
		EXPECT(wr->wr.rdma.remote_addr == REMOTE_ADDR + index * 0x1000 + i % 512 * 8);
	}
	if (kind == SEND_IMM || kind == WRITE_IMM)
		EXPECT(be32toh(wr->imm_data) == i);
	if (kind == ATOMIC) {
		uint64_t value;
		memcpy(&value, (void *)(uintptr_t)wr->sg_list->addr, 8);
		EXPECT(wr->sg_list->length == 8 && value == wr->wr_id);
	} else if (kind == FLUSH) {
		EXPECT(wr->sg_list->length == 8 && wr->sg_list->lkey == 0x100);
	} else {
		EXPECT(wr->sg_list->addr == (uintptr_t)LOCAL_ADDR + i && wr->sg_list->lkey == 0x101);
		EXPECT(wr->sg_list->length == index + 1);
	}
	atomic_fetch_add(&posted[kind], 1);
	return 0;
}

static int checking_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	(void)qp, (void)bad;
	EXPECT(wr->num_sge == 1 && wr->next == NULL);
	EXPECT(wr->sg_list->addr == (uintptr_t)LOCAL_ADDR + (uint32_t)wr->wr_id);
	atomic_fetch_add(&received, 1);
	return 0;
}

/* Returns one completion per call. */
static int checking_poll_cq(struct ibv_cq *cq, int num, struct ibv_wc *wc)
{
	(void)cq;
	EXPECT(num == 1);
	memset(wc, 0, sizeof(*wc));
	wc->wr_id = (uint64_t)atomic_fetch_add(&polled, 1);
	return 1;
}

static void posts_of_a_thread(int index)
{
	size_t len = (size_t)index + 1;
	struct rpma_cq *cq = NULL;

	for (int i = 0; i < POSTS; i++) {
		int flags = i & 1 ? ALWAYS : RPMA_F_COMPLETION_ON_ERROR;
		size_t off = (size_t)index * 0x1000 + (size_t)i % 512 * 8, at = (size_t)i;
		void *context = context_of(READ, index, i);
		EXPECT(rpma_read(d_conn, d_mr, at, d_remote, off, len, flags, context) == 0);
		context = context_of(WRITE, index, i);
		EXPECT(rpma_write(d_conn, d_remote, off, d_mr, at, len, flags, context) == 0);
		context = context_of(WRITE_IMM, index, i);
		EXPECT(rpma_write_with_imm(d_conn, d_remote, off, d_mr, at, len, flags, (uint32_t)i,
				context) == 0);
		context = context_of(SEND, index, i);
		EXPECT(rpma_send(d_conn, d_mr, at, len, flags, context) == 0);
		context = context_of(SEND_IMM, index, i);
		EXPECT(rpma_send_with_imm(d_conn, d_mr, at, len, flags, (uint32_t)i, context) == 0);
		context = context_of(ATOMIC, index, i);
		EXPECT(rpma_atomic_write(d_conn, d_remote, off, (const char *)&context, flags,
				context) == 0);
		context = context_of(FLUSH, index, i);
		EXPECT(rpma_flush(d_conn, d_remote, off, len, RPMA_FLUSH_TYPE_VISIBILITY, flags,
				context) == 0);
		EXPECT(rpma_recv(d_conn, d_mr, at, len, context_of(READ, index, i)) == 0);
		struct ibv_wc wc;
		EXPECT(rpma_conn_get_cq(d_conn, &cq) == 0);
		EXPECT(rpma_cq_get_wc(cq, 1, &wc, NULL) == 0 && wc.wr_id < THREADS * POSTS);
	}
}

static void one_connection(void **state)
{
	(void)state;
	CTX->ops.post_send = checking_post_send;
	CTX->ops.post_recv = checking_post_recv;
	CTX->ops.poll_cq = checking_poll_cq;
	mt_run(posts_of_a_thread);
	for (int kind = 0; kind < KINDS; kind++)
		assert_int_equal(atomic_load(&posted[kind]), THREADS * POSTS);
	assert_int_equal(atomic_load(&received), THREADS * POSTS);
	assert_int_equal(atomic_load(&polled), THREADS * POSTS);
}

/* Each thread has its own requests and connections; the peer and the configuration are shared. */
static struct rpma_conn_cfg *cfg;

static void connections_of_a_thread(int index)
{
	(void)index;
	for (int i = 0; i < CONNS; i++) {
		struct rpma_conn_req *req = NULL;
		struct rpma_conn *conn = NULL;
		uint32_t qp_num = 0;
		EXPECT(rpma_conn_req_new(d_peer, ADDR, PORT, cfg, &req) == 0);
		EXPECT(rpma_conn_req_recv(req, d_mr, 0, 8, NULL) == 0);
		EXPECT(rpma_conn_req_connect(&req, NULL, &conn) == 0 && req == NULL);
		EXPECT(rpma_conn_get_qp_num(conn, &qp_num) == 0 && qp_num != 0);
		EXPECT(rpma_write(conn, d_remote, 0, d_mr, 0, 8, ALWAYS, NULL) == 0);
		EXPECT(rpma_conn_disconnect(conn) == 0);
		EXPECT(rpma_conn_delete(&conn) == 0 && conn == NULL);
	}
}

static void own_connections(void **state)
{
	(void)state;
	cfg = fx_cfg(10, 10, true, NULL);
	mock_quiet();
	mt_run(connections_of_a_thread);
	fx_cfg_delete(&cfg);
	assert_int_equal(mock_called("rdma_disconnect"), THREADS * CONNS);
	assert_int_equal(mock_called("rdma_destroy_qp"), THREADS * CONNS);
	assert_int_equal(mock_called("ibv_destroy_cq"), 2 * THREADS * CONNS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		DATA_TEST(one_connection),
		DATA_TEST(own_connections),
	};

	return cmocka_run_group_tests_name("mt-connections", tests, NULL, NULL);
}
