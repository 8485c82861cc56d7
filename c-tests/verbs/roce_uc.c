/* SPDX-License-Identifier: BSD-3-Clause */
/* roce_uc.c -- unreliable connections without rdma_cm, on soft0 as a RoCE device */
#include "rc.h"

#include <arpa/inet.h>

#define UC ((struct rc_terms){.type = IBV_QPT_UC, .length = LARGEST + GUARD})
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* The socket of the receiver can hold one such message: no packet is lost. */
#define LARGEST 32769
#define GUARD 4096

static const uint32_t sizes[] = {0, 1, 3, 4, 5, 255, 256, 257, 1023, 1024, 1025, 4096, 4097, LARGEST};
static const enum ibv_mtu mtus[] = {IBV_MTU_256, IBV_MTU_1024, IBV_MTU_4096};
static const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM};

static bool
has_immediate(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* Message `number` completes the receive with that number. */
static void
expect_message(struct rc *rc, enum ibv_wr_opcode opcode, uint32_t number, uint32_t length)
{
	struct ibv_wc wc = next_of(rc->recv_cq);
	enum ibv_wc_opcode expected = opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;

	EXPECT(wc.status == IBV_WC_SUCCESS && wc.wr_id == number && wc.opcode == expected, "%s", ibv_wc_status_str(wc.status));
	EXPECT(wc.byte_len == length && wc.qp_num == rc->qps[0]->qp_num, "%u bytes instead of %u", wc.byte_len, length);
	EXPECT(wc.wc_flags == (has_immediate(opcode) ? IBV_WC_WITH_IMM : 0), "flags %u", wc.wc_flags);
	if (has_immediate(opcode))
		EXPECT(wc.imm_data == htonl(number), "%u", ntohl(wc.imm_data));
	check_pattern(rc->memory, length, number, "a message");
	check_bytes(rc->memory + length, GUARD, 0, "the bytes after a message");
	memset(rc->memory, 0, length);
}

static void
send_message(struct rc *rc, enum ibv_wr_opcode opcode, uint32_t number, uint32_t length)
{
	struct ibv_sge entry;
	struct ibv_send_wr wr = request(&entry, rc, opcode, number, 0, length);

	fill_pattern(rc->memory, length, number);
	wr.imm_data = htonl(number);
	post_wr(rc, 0, &wr);
	expect_sent(rc, number, IBV_WC_SUCCESS);
}

/* Messages of all operations. A write is followed by a send, which arrives after it. */
static void
transfers(struct side *side, bool receives)
{
	for (size_t i = 0; i < COUNT(mtus); i++) {
		struct rc_terms terms = UC;
		struct rc rc;

		terms.mtu = mtus[i];
		make_rc(&rc, side, terms);
		for (uint32_t number = 0; number < COUNT(sizes) * COUNT(opcodes); number++) {
			enum ibv_wr_opcode opcode = opcodes[number % COUNT(opcodes)];
			uint32_t length = sizes[number / COUNT(opcodes)];

			if (receives) {
				post_receive(&rc, 0, number, 0, opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? 0 : length);
				meet(&rc);
				if (opcode == IBV_WR_RDMA_WRITE) {
					struct ibv_wc wc = next_of(rc.recv_cq);

					EXPECT(wc.status == IBV_WC_SUCCESS && wc.byte_len == 0, "%s", ibv_wc_status_str(wc.status));
					check_pattern(rc.memory, length, number, "a write");
					memset(rc.memory, 0, length);
				} else {
					expect_message(&rc, opcode, number, length);
				}
			} else {
				meet(&rc);
				send_message(&rc, opcode, number, length);
				if (opcode == IBV_WR_RDMA_WRITE)
					send_message(&rc, IBV_WR_SEND, 1000, 0);
			}
			meet(&rc);
		}
		close_rc(&rc);
	}
}

static void
transfers_t(struct side *side)
{
	transfers(side, true);
}

static void
transfers_i(struct side *side)
{
	transfers(side, false);
}

/* Several entries on both sides and inline data, by an extended queue pair. */
static void
extended_t(struct side *side)
{
	struct ibv_recv_wr wr = {.wr_id = 7, .num_sge = 3}, *bad;
	struct ibv_sge entries[3];
	struct rc rc;

	make_rc(&rc, side, UC);
	entries[0] = (struct ibv_sge){(uintptr_t)rc.memory, 30, rc.mr->lkey};
	entries[1] = (struct ibv_sge){(uintptr_t)rc.memory + 30, 1000, rc.mr->lkey};
	entries[2] = (struct ibv_sge){(uintptr_t)rc.memory + 1030, 2000, rc.mr->lkey};
	wr.sg_list = entries;
	DONE(ibv_post_recv(rc.qps[0], &wr, &bad));
	meet(&rc);
	expect_message(&rc, IBV_WR_SEND_WITH_IMM, 7, 3000);
	post_receive(&rc, 0, 8, 0, 0);
	meet(&rc);
	expect_message(&rc, IBV_WR_RDMA_WRITE_WITH_IMM, 8, 100);
	meet(&rc);
	close_rc(&rc);
}

static void
extended_i(struct side *side)
{
	struct rc_terms terms = UC;
	struct ibv_sge entries[2];
	struct ibv_qp_ex *qp;
	struct rc rc;

	terms.operations = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
	make_rc(&rc, side, terms);
	qp = ibv_qp_to_qp_ex(rc.qps[0]);
	fill_pattern(rc.memory, 3000, 7);
	entries[0] = (struct ibv_sge){(uintptr_t)rc.memory, 1001, rc.mr->lkey};
	entries[1] = (struct ibv_sge){(uintptr_t)rc.memory + 1001, 1999, rc.mr->lkey};
	meet(&rc);
	ibv_wr_start(qp);
	qp->wr_id = 7;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send_imm(qp, htonl(7));
	ibv_wr_set_sge_list(qp, 2, entries);
	DONE(ibv_wr_complete(qp));
	expect_sent(&rc, 7, IBV_WC_SUCCESS);
	meet(&rc);
	fill_pattern(rc.memory, 100, 8);
	ibv_wr_start(qp);
	qp->wr_id = 8;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write_imm(qp, rc.peer.rkey, rc.peer.addr, htonl(8));
	ibv_wr_set_inline_data(qp, rc.memory, 100);
	DONE(ibv_wr_complete(qp));
	expect_sent(&rc, 8, IBV_WC_SUCCESS);
	meet(&rc);
	for (uint64_t other = IBV_QP_EX_WITH_RDMA_READ; other <= IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD; other <<= 1)
		EXPECT(ibv_create_qp_ex(rc.device, &(struct ibv_qp_init_attr_ex){.send_cq = rc.send_cq, .recv_cq = rc.recv_cq, .pd = rc.pd,
							   .qp_type = IBV_QPT_UC, .send_ops_flags = terms.operations | other,
							   .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS}) == NULL &&
				errno == EOPNOTSUPP,
			"operation %#lx", (unsigned long)other);
	close_rc(&rc);
}

/* A dropped message is placed nowhere and reported to neither side; the next message uses its receive. */
static void
dropped_t(struct side *side)
{
	struct rc_terms terms = UC;
	struct rc rc;

	terms.access = IBV_ACCESS_REMOTE_WRITE;
	make_rc(&rc, side, terms);
	meet(&rc); /* 1 and 2: no receive */
	meet(&rc);
	post_receive(&rc, 0, 7, 0, 4000);
	/* 3: too long; 4 and 5: a wrong key and a wrong address; 6: the same, with immediate data; 7 */
	meet(&rc);
	expect_message(&rc, IBV_WR_SEND, 7, 4000);
	expect_nothing(rc.recv_cq);
	EXPECT(state_of(rc.qps[0]) == IBV_QPS_RTS, "%d", state_of(rc.qps[0]));
	meet(&rc);
	close_rc(&rc);
}

static void
write_to(struct rc *rc, enum ibv_wr_opcode opcode, uint64_t number, uint64_t offset, uint32_t key)
{
	struct ibv_sge entry;
	struct ibv_send_wr wr = request(&entry, rc, opcode, number, 0, 3000);

	wr.wr.rdma.remote_addr += offset;
	wr.wr.rdma.rkey += key;
	post_wr(rc, 0, &wr);
	expect_sent(rc, number, IBV_WC_SUCCESS);
}

static void
dropped_i(struct side *side)
{
	struct rc rc;

	make_rc(&rc, side, UC);
	meet(&rc);
	send_message(&rc, IBV_WR_SEND, 1, 3000);
	send_message(&rc, IBV_WR_RDMA_WRITE_WITH_IMM, 2, 0);
	sleep_ms(50);
	meet(&rc);
	meet(&rc);
	send_message(&rc, IBV_WR_SEND, 3, 4001);
	write_to(&rc, IBV_WR_RDMA_WRITE, 4, 0, 1);
	write_to(&rc, IBV_WR_RDMA_WRITE, 5, LARGEST + GUARD - 2999, 0);
	write_to(&rc, IBV_WR_RDMA_WRITE_WITH_IMM, 6, 0, 1);
	send_message(&rc, IBV_WR_SEND, 7, 4000);
	EXPECT(state_of(rc.qps[0]) == IBV_QPS_RTS, "%d", state_of(rc.qps[0]));
	meet(&rc);
	close_rc(&rc);
}

/* A receive of a shared queue that is too short completes with an error; the queue pair continues. */
static void
srq_t(struct side *side)
{
	struct rc_terms terms = UC;
	struct ibv_wc wc;
	struct rc rc;

	terms.shared = true;
	make_rc(&rc, side, terms);
	post_receive(&rc, 0, 1, 0, 7);
	post_receive(&rc, 0, 2, 0, 8);
	meet(&rc);
	wc = next_of(rc.recv_cq);
	EXPECT(wc.wr_id == 1 && wc.status == IBV_WC_LOC_LEN_ERR && wc.qp_num == rc.qps[0]->qp_num, "%s", ibv_wc_status_str(wc.status));
	meet(&rc);
	expect_message(&rc, IBV_WR_SEND, 2, 8);
	EXPECT(state_of(rc.qps[0]) == IBV_QPS_RTS, "%d", state_of(rc.qps[0]));
	meet(&rc);
	close_rc(&rc);
}

static void
srq_i(struct side *side)
{
	struct rc rc;

	make_rc(&rc, side, UC);
	meet(&rc);
	send_message(&rc, IBV_WR_SEND, 1, 8);
	meet(&rc);
	send_message(&rc, IBV_WR_SEND, 2, 8);
	meet(&rc);
	close_rc(&rc);
}

/* In RTR messages are received, the first of which raises an event. */
static void
states_t(struct side *side)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct rc rc;

	open_rc(&rc, side, UC);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 1};
	EXPECT(ibv_modify_qp(rc.qps[0], &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT) == EINVAL, "without access flags");
	receive_rc(&rc);
	DONE(ibv_query_qp(rc.qps[0], &attr, IBV_QP_STATE | IBV_QP_DEST_QPN | IBV_QP_PATH_MTU, &init));
	EXPECT(attr.qp_state == IBV_QPS_RTR && attr.dest_qp_num == rc.numbers[0] && attr.path_mtu == IBV_MTU_1024, "");
	EXPECT(init.qp_type == IBV_QPT_UC && attr.max_dest_rd_atomic == 0 && attr.min_rnr_timer == 0, "");
	post_receive(&rc, 0, 1, 0, 100);
	meet(&rc);
	expect_message(&rc, IBV_WR_SEND, 1, 100);
	expect_event(&rc, IBV_EVENT_COMM_EST);
	attr.qp_state = IBV_QPS_RTS;
	EXPECT(ibv_modify_qp(rc.qps[0], &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT) == EINVAL, "a timeout");
	EXPECT(ibv_modify_qp(rc.qps[0], &attr, IBV_QP_STATE) == EINVAL, "without a PSN");
	send_rc(&rc);
	DONE(ibv_query_qp(rc.qps[0], &attr, IBV_QP_STATE, &init));
	EXPECT(attr.qp_state == IBV_QPS_RTS && attr.retry_cnt == 0 && attr.rnr_retry == 0, "");
	EXPECT(ibv_modify_qp(rc.qps[0], &attr, IBV_QP_MIN_RNR_TIMER) == EINVAL, "an RNR timer");
	attr.qp_access_flags = 0;
	DONE(ibv_modify_qp(rc.qps[0], &attr, IBV_QP_ACCESS_FLAGS));
	post_receive(&rc, 0, 3, 0, 100);
	meet(&rc); /* 2: a write, which is no longer permitted; 3 */
	expect_message(&rc, IBV_WR_SEND, 3, 100);
	set_state(rc.qps[0], IBV_QPS_SQD);
	post(&rc, 0, IBV_WR_SEND, 4, 0, 100);
	sleep_ms(20);
	expect_nothing(rc.send_cq);
	set_state(rc.qps[0], IBV_QPS_RTS);
	expect_sent(&rc, 4, IBV_WC_SUCCESS);
	/* In ERR all is flushed; after RESET the queue pair is like a new one. */
	post_receive(&rc, 0, 5, 0, 100);
	set_state(rc.qps[0], IBV_QPS_ERR);
	expect_received(&rc, 5, IBV_WC_WR_FLUSH_ERR);
	post(&rc, 0, IBV_WR_SEND, 6, 0, 8);
	expect_sent(&rc, 6, IBV_WC_WR_FLUSH_ERR);
	set_state(rc.qps[0], IBV_QPS_RESET);
	meet(&rc);
	connect_rc(&rc);
	post_receive(&rc, 0, 7, 0, 100);
	meet(&rc);
	expect_message(&rc, IBV_WR_SEND, 7, 100);
	meet(&rc);
	close_rc(&rc);
}

static void
states_i(struct side *side)
{
	struct rc rc;

	open_rc(&rc, side, UC);
	receive_rc(&rc);
	send_rc(&rc);
	meet(&rc);
	send_message(&rc, IBV_WR_SEND, 1, 100);
	meet(&rc);
	write_to(&rc, IBV_WR_RDMA_WRITE, 2, 0, 0);
	send_message(&rc, IBV_WR_SEND, 3, 100);
	meet(&rc);
	set_state(rc.qps[0], IBV_QPS_RESET);
	connect_rc(&rc);
	meet(&rc);
	send_message(&rc, IBV_WR_SEND, 7, 100);
	meet(&rc);
	close_rc(&rc);
}

/* A failed request moves the queue pair to SQE, from which it can return to RTS; receives continue. */
static void
errors_t(struct side *side)
{
	struct rc rc;

	make_rc(&rc, side, UC);
	post_receive(&rc, 0, 3, 0, 100);
	meet(&rc); /* two have failed */
	send_message(&rc, IBV_WR_SEND, 4, 8);
	memset(rc.memory, 0, 8);
	meet(&rc);
	meet(&rc);
	expect_message(&rc, IBV_WR_SEND, 3, 8);
	close_rc(&rc);
}

static void
errors_i(struct side *side)
{
	static const enum ibv_wr_opcode others[] = {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND_WITH_INV};
	struct ibv_send_wr wr, *bad;
	struct ibv_sge entry;
	struct rc rc;

	make_rc(&rc, side, UC);
	for (size_t i = 0; i < COUNT(others); i++) {
		wr = request(&entry, &rc, others[i], 0, 0, 8);
		EXPECT(ibv_post_send(rc.qps[0], &wr, &bad) == EINVAL && bad == &wr, "opcode %d", others[i]);
	}
	wr = request(&entry, &rc, IBV_WR_SEND, 1, 0, 3000);
	entry.lkey++;
	post_wr(&rc, 0, &wr);
	expect_sent(&rc, 1, IBV_WC_LOC_PROT_ERR);
	post(&rc, 0, IBV_WR_SEND, 2, 0, 8);
	expect_sent(&rc, 2, IBV_WC_WR_FLUSH_ERR);
	EXPECT(state_of(rc.qps[0]) == IBV_QPS_SQE, "%d", state_of(rc.qps[0]));
	post_receive(&rc, 0, 4, 0, 100);
	meet(&rc);
	expect_message(&rc, IBV_WR_SEND, 4, 8);
	EXPECT(state_of(rc.qps[0]) == IBV_QPS_SQE, "%d", state_of(rc.qps[0]));
	set_state(rc.qps[0], IBV_QPS_RTS);
	meet(&rc); /* the memory is cleared */
	send_message(&rc, IBV_WR_SEND, 3, 8);
	meet(&rc);
	close_rc(&rc);
}

const struct test roce_uc[] = {
	{.name = "roce-uc-transfers", .target = transfers_t, .initiator = transfers_i, .missing = not_soft},
	{.name = "roce-uc-extended", .target = extended_t, .initiator = extended_i, .missing = not_soft},
	{.name = "roce-uc-dropped", .target = dropped_t, .initiator = dropped_i, .missing = not_soft},
	{.name = "roce-uc-srq", .target = srq_t, .initiator = srq_i, .missing = not_soft},
	{.name = "roce-uc-states", .target = states_t, .initiator = states_i, .missing = not_soft},
	{.name = "roce-uc-errors", .target = errors_t, .initiator = errors_i, .missing = not_soft},
	{.name = NULL},
};
