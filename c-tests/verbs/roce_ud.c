/* SPDX-License-Identifier: BSD-3-Clause */
/* roce_ud.c -- unreliable datagrams without rdma_cm, on soft0 as a RoCE device */
#include "rc.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdlib.h>

#define UD ((struct rc_terms){.type = IBV_QPT_UD, .length = 65536})
#define IMMEDIATE 0x12345678
/* Offsets in the memory for sent and for received data. */
#define OUT 0
#define IN 32768

static void
nothing(struct side *side)
{
	(void)side;
}

static char
pattern(unsigned number, unsigned at)
{
	return (char)(number * 37 + at * 11 + 1);
}

static uint32_t
port_mtu(struct rc *rc)
{
	struct ibv_port_attr port;

	DONE(ibv_query_port(rc->device, 1, &port));
	return 128U << port.active_mtu;
}

/* Sends datagram `number` with this many bytes; the send must succeed. */
static void
send_datagram(struct rc *rc, enum ibv_wr_opcode opcode, unsigned number, uint32_t length, unsigned flags)
{
	struct ibv_sge entry;
	struct ibv_send_wr wr = request(&entry, rc, opcode, number, OUT, length);

	for (unsigned at = 0; at < length; at++)
		rc->memory[OUT + at] = pattern(number, at);
	wr.send_flags |= flags;
	wr.imm_data = htonl(IMMEDIATE + number);
	address(rc, 0, &wr);
	post_wr(rc, 0, &wr);
	if ((flags & IBV_SEND_INLINE) != 0)
		memset(rc->memory + OUT, 0xff, length);
	expect_sent(rc, number, IBV_WC_SUCCESS);
}

/* The next receive contains datagram `number` at IN, after the header of a packet from the other side. */
static struct ibv_wc
expect_datagram(struct rc *rc, enum ibv_wr_opcode opcode, unsigned number, uint32_t length)
{
	struct ibv_wc wc = next_of(rc->recv_cq);
	const unsigned char *header = (unsigned char *)rc->memory + IN;
	unsigned flags = IBV_WC_GRH | (opcode == IBV_WR_SEND_WITH_IMM ? IBV_WC_WITH_IMM : 0);
	struct in6_addr own;

	EXPECT(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV, "%s", ibv_wc_status_str(wc.status));
	EXPECT(wc.byte_len == RC_HEADER + length, "%u bytes instead of %u", wc.byte_len, RC_HEADER + length);
	EXPECT(wc.wc_flags == flags && wc.src_qp == rc->numbers[0] && wc.slid == 0, "flags %u, src_qp %#x", wc.wc_flags, wc.src_qp);
	if (opcode == IBV_WR_SEND_WITH_IMM)
		EXPECT(ntohl(wc.imm_data) == IMMEDIATE + number, "%#x", ntohl(wc.imm_data));
	for (unsigned at = 0; at < length; at++)
		EXPECT(rc->memory[IN + RC_HEADER + at] == pattern(number, at), "byte %u of datagram %u", at, number);
	EXPECT(inet_pton(AF_INET6, getenv("PAIRS_GID"), &own) == 1, "");
	if (IN6_IS_ADDR_V4MAPPED(&own))
		EXPECT(wc.sl == 2 && header[20] == 0x45 && header[29] == 17 && memcmp(header + 36, own.s6_addr + 12, 4) == 0, "no IPv4 header");
	else
		EXPECT(wc.sl == 1 && header[0] >> 4 == 6 && header[6] == 17 && memcmp(header + 24, &own, 16) == 0, "no IPv6 header");
	return wc;
}

static const uint32_t lengths[] = {0, 1, 3, 4, 5, 100, RC_INLINE, 1000, 0};
#define LENGTHS ((unsigned)(sizeof(lengths) / sizeof(lengths[0])))

/* The last length is the largest one. */
static uint32_t
length_of(struct rc *rc, unsigned number)
{
	return number == LENGTHS - 1 ? port_mtu(rc) : lengths[number];
}

/* The target replies to each datagram, with an address handle made from its completion. */
static void
sends_t(struct side *side)
{
	struct rc rc;

	make_rc(&rc, side, UD);
	for (unsigned number = 0; number < LENGTHS; number++) {
		for (enum ibv_wr_opcode opcode = IBV_WR_SEND; opcode <= IBV_WR_SEND_WITH_IMM; opcode++) {
			uint32_t length = length_of(&rc, number);
			struct ibv_ah *before = rc.ah;
			struct ibv_ah_attr attr;
			struct ibv_wc wc;

			memset(rc.memory + IN, 0, IN);
			post_receive(&rc, 0, number, IN, RC_HEADER + length);
			notify(side, 'p');
			wc = expect_datagram(&rc, opcode, number, length);
			DONE(ibv_init_ah_from_wc(rc.device, 1, &wc, (void *)(rc.memory + IN), &attr));
			EXPECT(attr.grh.sgid_index == gid_index(rc.device) && attr.is_global == 1, "");
			rc.ah = ibv_create_ah_from_wc(rc.pd, &wc, (void *)(rc.memory + IN), 1);
			MADE(rc.ah);
			send_datagram(&rc, IBV_WR_SEND, number, 8, 0);
			/* The program may destroy the address handle once the send is complete. */
			DONE(ibv_destroy_ah(rc.ah));
			rc.ah = before;
		}
	}
	meet(&rc);
	close_rc(&rc);
}

static void
sends_i(struct side *side)
{
	struct rc rc;

	make_rc(&rc, side, UD);
	for (unsigned number = 0; number < LENGTHS; number++) {
		for (enum ibv_wr_opcode opcode = IBV_WR_SEND; opcode <= IBV_WR_SEND_WITH_IMM; opcode++) {
			uint32_t length = length_of(&rc, number);

			post_receive(&rc, 0, number, IN, 1024);
			await(side, 'p');
			send_datagram(&rc, opcode, number, length, length > 0 && length <= RC_INLINE ? IBV_SEND_INLINE : 0);
			expect_datagram(&rc, IBV_WR_SEND, number, 8);
		}
	}
	meet(&rc);
	close_rc(&rc);
}

/* The traffic class and the hop limit of the address handle of rc.h, and others. */
static const uint8_t classes[] = {0, 0xb8}, limits[] = {64, 7};

/*
 * The next datagram, number i, has these in its header, and so do the attributes of an address handle for its
 * sender.
 */
static struct ibv_ah_attr
expect_header(struct rc *rc, unsigned i)
{
	const unsigned char *header = (unsigned char *)rc->memory + IN;
	struct ibv_wc wc = expect_datagram(rc, IBV_WR_SEND, i, 4);
	uint8_t class = wc.sl == 2 ? header[21] : (uint8_t)(header[0] << 4 | header[1] >> 4);
	uint8_t limit = wc.sl == 2 ? header[28] : header[7];
	struct ibv_ah_attr attr;

	EXPECT(class == classes[i] && limit == limits[i], "traffic class %#x, hop limit %u", class, limit);
	DONE(ibv_init_ah_from_wc(rc->device, 1, &wc, (void *)(rc->memory + IN), &attr));
	EXPECT(attr.grh.traffic_class == class && attr.grh.hop_limit == limit, "%#x, %u", attr.grh.traffic_class, attr.grh.hop_limit);
	return attr;
}

static void
header_t(struct side *side)
{
	struct rc rc;

	make_rc(&rc, side, UD);
	post_receive(&rc, 0, 1, IN, RC_HEADER + 4);
	meet(&rc);
	send_datagram(&rc, IBV_WR_SEND, 0, 4, 0);
	expect_header(&rc, 1);
	meet(&rc);
	close_rc(&rc);
}

static void
header_i(struct side *side)
{
	struct ibv_ah_attr attr;
	struct ibv_ah *before;
	struct rc rc;

	make_rc(&rc, side, UD);
	post_receive(&rc, 0, 0, IN, RC_HEADER + 4);
	meet(&rc);
	attr = expect_header(&rc, 0);
	attr.grh.traffic_class = classes[1];
	attr.grh.hop_limit = limits[1];
	before = rc.ah;
	rc.ah = ibv_create_ah(rc.pd, &attr);
	MADE(rc.ah);
	send_datagram(&rc, IBV_WR_SEND, 1, 4, 0);
	DONE(ibv_destroy_ah(rc.ah));
	rc.ah = before;
	meet(&rc);
	close_rc(&rc);
}

/* Several entries on both sides, by an extended queue pair. */
static void
extended_t(struct side *side)
{
	struct ibv_sge entries[3];
	struct ibv_recv_wr wr = {.sg_list = entries, .num_sge = 3}, *bad;
	struct rc rc;

	make_rc(&rc, side, UD);
	entries[0] = (struct ibv_sge){(uintptr_t)rc.memory + IN, 30, rc.mr->lkey};
	entries[1] = (struct ibv_sge){(uintptr_t)rc.memory + IN + 30, 20, rc.mr->lkey};
	entries[2] = (struct ibv_sge){(uintptr_t)rc.memory + IN + 50, 1000, rc.mr->lkey};
	DONE(ibv_post_recv(rc.qps[0], &wr, &bad));
	meet(&rc);
	expect_datagram(&rc, IBV_WR_SEND_WITH_IMM, 7, 300);
	post_receive(&rc, 0, 2, IN, 100);
	meet(&rc);
	expect_datagram(&rc, IBV_WR_SEND, 8, 20);
	meet(&rc);
	close_rc(&rc);
}

static void
extended_i(struct side *side)
{
	struct rc_terms terms = UD;
	struct ibv_sge entries[2];
	struct ibv_qp_ex *qp;
	struct rc rc;

	terms.operations = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
	make_rc(&rc, side, terms);
	qp = ibv_qp_to_qp_ex(rc.qps[0]);
	for (unsigned at = 0; at < 300; at++)
		rc.memory[OUT + at] = pattern(7, at);
	entries[0] = (struct ibv_sge){(uintptr_t)rc.memory + OUT, 101, rc.mr->lkey};
	entries[1] = (struct ibv_sge){(uintptr_t)rc.memory + OUT + 101, 199, rc.mr->lkey};
	meet(&rc);
	ibv_wr_start(qp);
	qp->wr_id = 7;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send_imm(qp, htonl(IMMEDIATE + 7));
	ibv_wr_set_ud_addr(qp, rc.ah, rc.numbers[0], RC_QKEY);
	ibv_wr_set_sge_list(qp, 2, entries);
	DONE(ibv_wr_complete(qp));
	expect_sent(&rc, 7, IBV_WC_SUCCESS);
	meet(&rc);
	for (unsigned at = 0; at < 20; at++)
		rc.memory[OUT + at] = pattern(8, at);
	ibv_wr_start(qp);
	qp->wr_id = 8;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(qp);
	ibv_wr_set_ud_addr(qp, rc.ah, rc.numbers[0], RC_QKEY);
	ibv_wr_set_inline_data(qp, rc.memory + OUT, 20);
	DONE(ibv_wr_complete(qp));
	expect_sent(&rc, 8, IBV_WC_SUCCESS);
	/* A send needs an address. */
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	ibv_wr_set_inline_data(qp, rc.memory + OUT, 20);
	EXPECT(ibv_wr_complete(qp) == EINVAL, "a send without an address handle");
	meet(&rc);
	terms.operations |= IBV_QP_EX_WITH_RDMA_WRITE;
	EXPECT(ibv_create_qp_ex(rc.device, &(struct ibv_qp_init_attr_ex){.send_cq = rc.send_cq, .recv_cq = rc.recv_cq, .pd = rc.pd,
						   .qp_type = IBV_QPT_UD, .send_ops_flags = terms.operations,
						   .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS}) == NULL &&
			errno == EOPNOTSUPP,
		"a write by datagrams");
	close_rc(&rc);
}

/* A dropped datagram is placed nowhere, and later ones arrive. */
static void
dropped_t(struct side *side)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .qkey = RC_QKEY + 1};
	struct rc rc;

	make_rc(&rc, side, UD);
	meet(&rc); /* 1: no receive */
	meet(&rc);
	post_receive(&rc, 0, 9, IN, RC_HEADER + 7);
	meet(&rc); /* 2: too long; 3: another Q_Key; 4 */
	expect_datagram(&rc, IBV_WR_SEND, 4, 7);
	expect_nothing(rc.recv_cq);
	DONE(ibv_modify_qp(rc.qps[0], &attr, IBV_QP_STATE | IBV_QP_QKEY));
	post_receive(&rc, 0, 9, IN, RC_HEADER + 7);
	meet(&rc); /* 5: the former Q_Key; 6: that of the sender */
	expect_datagram(&rc, IBV_WR_SEND, 6, 7);
	expect_nothing(rc.recv_cq);
	meet(&rc);
	close_rc(&rc);
}

static void
send_with_key(struct rc *rc, unsigned number, uint32_t qkey)
{
	struct ibv_sge entry;
	struct ibv_send_wr wr = request(&entry, rc, IBV_WR_SEND, number, OUT, 7);

	for (unsigned at = 0; at < 7; at++)
		rc->memory[OUT + at] = pattern(number, at);
	address(rc, 0, &wr);
	wr.wr.ud.remote_qkey = qkey;
	post_wr(rc, 0, &wr);
	expect_sent(rc, number, IBV_WC_SUCCESS);
}

static void
dropped_i(struct side *side)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .qkey = RC_QKEY + 1};
	struct rc rc;

	make_rc(&rc, side, UD);
	meet(&rc);
	send_datagram(&rc, IBV_WR_SEND, 1, 7, 0);
	sleep_ms(50);
	meet(&rc);
	meet(&rc);
	send_datagram(&rc, IBV_WR_SEND, 2, 8, 0);
	send_with_key(&rc, 3, RC_QKEY + 1);
	send_datagram(&rc, IBV_WR_SEND, 4, 7, 0);
	DONE(ibv_modify_qp(rc.qps[0], &attr, IBV_QP_STATE | IBV_QP_QKEY));
	meet(&rc);
	send_with_key(&rc, 5, RC_QKEY);
	send_with_key(&rc, 6, 0x80000000);
	meet(&rc);
	close_rc(&rc);
}

/* A receive of a shared queue that is too short completes with an error; the queue pair continues. */
static void
srq_t(struct side *side)
{
	struct rc_terms terms = UD;
	struct ibv_wc wc;
	struct rc rc;

	terms.shared = true;
	terms.qps = 2;
	make_rc(&rc, side, terms);
	post_receive(&rc, 0, 1, IN, RC_HEADER + 7);
	post_receive(&rc, 0, 2, IN, RC_HEADER + 8);
	meet(&rc);
	wc = next_of(rc.recv_cq);
	EXPECT(wc.wr_id == 1 && wc.status == IBV_WC_LOC_LEN_ERR && wc.qp_num == rc.qps[0]->qp_num, "%s", ibv_wc_status_str(wc.status));
	meet(&rc);
	wc = next_of(rc.recv_cq);
	EXPECT(wc.wr_id == 2 && wc.status == IBV_WC_SUCCESS && wc.qp_num == rc.qps[1]->qp_num && wc.src_qp == rc.numbers[1], "");
	EXPECT(state_of(rc.qps[0]) == IBV_QPS_RTS, "%d", state_of(rc.qps[0]));
	meet(&rc);
	close_rc(&rc);
}

static void
srq_i(struct side *side)
{
	struct rc_terms terms = UD;
	struct rc rc;

	terms.qps = 2;
	make_rc(&rc, side, terms);
	meet(&rc);
	post(&rc, 0, IBV_WR_SEND, 1, OUT, 8);
	expect_sent(&rc, 1, IBV_WC_SUCCESS);
	meet(&rc);
	post(&rc, 1, IBV_WR_SEND, 2, OUT, 8);
	expect_sent(&rc, 2, IBV_WC_SUCCESS);
	meet(&rc);
	close_rc(&rc);
}

static void
events_t(struct side *side)
{
	struct ibv_cq *cq;
	void *context;
	struct rc rc;
	struct pollfd fd;

	make_rc(&rc, side, UD);
	fd = (struct pollfd){.fd = rc.channel->fd, .events = POLLIN};
	post_receive(&rc, 0, 1, IN, 64);
	post_receive(&rc, 0, 2, IN, 64);
	DONE(ibv_req_notify_cq(rc.recv_cq, 1));
	meet(&rc); /* the first, without IBV_SEND_SOLICITED */
	EXPECT(poll(&fd, 1, 100) == 0, "an event that is not solicited");
	meet(&rc);
	DONE(ibv_get_cq_event(rc.channel, &cq, &context));
	EXPECT(cq == rc.recv_cq, "");
	ibv_ack_cq_events(cq, 1);
	expect_datagram(&rc, IBV_WR_SEND, 2, 8);
	expect_received(&rc, 2, IBV_WC_SUCCESS);
	meet(&rc);
	close_rc(&rc);
}

static void
events_i(struct side *side)
{
	struct rc rc;

	make_rc(&rc, side, UD);
	meet(&rc);
	send_datagram(&rc, IBV_WR_SEND, 2, 8, 0);
	meet(&rc);
	send_datagram(&rc, IBV_WR_SEND, 2, 8, IBV_SEND_SOLICITED);
	meet(&rc);
	close_rc(&rc);
}

/* A failed send moves the queue pair to SQE, from which it can return to RTS; receives continue. */
static void
errors_t(struct side *side)
{
	struct rc rc;

	make_rc(&rc, side, UD);
	post_receive(&rc, 0, 1, IN, 2000);
	meet(&rc); /* two have failed */
	send_datagram(&rc, IBV_WR_SEND, 5, 8, 0);
	meet(&rc);
	expect_datagram(&rc, IBV_WR_SEND, 6, 8);
	meet(&rc);
	close_rc(&rc);
}

static void
errors_i(struct side *side)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_SQE};
	struct ibv_send_wr wr, *bad;
	struct ibv_sge entry;
	struct rc rc;

	make_rc(&rc, side, UD);
	wr = request(&entry, &rc, IBV_WR_RDMA_WRITE, 1, OUT, 8);
	EXPECT(ibv_post_send(rc.qps[0], &wr, &bad) == EINVAL && bad == &wr, "a write by datagrams");
	wr = request(&entry, &rc, IBV_WR_SEND, 1, OUT, 8);
	wr.wr.ud.ah = NULL;
	EXPECT(ibv_post_send(rc.qps[0], &wr, &bad) == EINVAL && bad == &wr, "a send without an address handle");
	post(&rc, 0, IBV_WR_SEND, 1, OUT, port_mtu(&rc) + 1);
	expect_sent(&rc, 1, IBV_WC_LOC_LEN_ERR);
	post(&rc, 0, IBV_WR_SEND, 2, OUT, 8);
	expect_sent(&rc, 2, IBV_WC_WR_FLUSH_ERR);
	EXPECT(state_of(rc.qps[0]) == IBV_QPS_SQE, "%d", state_of(rc.qps[0]));
	DONE(ibv_modify_qp(rc.qps[0], &attr, IBV_QP_STATE | IBV_QP_CUR_STATE));
	wr = request(&entry, &rc, IBV_WR_SEND, 3, OUT, 8);
	address(&rc, 0, &wr);
	entry.lkey++;
	post_wr(&rc, 0, &wr);
	expect_sent(&rc, 3, IBV_WC_LOC_PROT_ERR);
	post_receive(&rc, 0, 4, IN, 2000);
	meet(&rc);
	expect_datagram(&rc, IBV_WR_SEND, 5, 8);
	EXPECT(state_of(rc.qps[0]) == IBV_QPS_SQE, "%d", state_of(rc.qps[0]));
	set_state(rc.qps[0], IBV_QPS_RTS);
	meet(&rc);
	send_datagram(&rc, IBV_WR_SEND, 6, 8, 0);
	meet(&rc);
	/* In ERR receives are flushed, too; after RESET the queue pair is like a new one. */
	post_receive(&rc, 0, 7, IN, 2000);
	set_state(rc.qps[0], IBV_QPS_ERR);
	expect_received(&rc, 7, IBV_WC_WR_FLUSH_ERR);
	post(&rc, 0, IBV_WR_SEND, 8, OUT, 8);
	expect_sent(&rc, 8, IBV_WC_WR_FLUSH_ERR);
	set_state(rc.qps[0], IBV_QPS_RESET);
	EXPECT(ibv_post_send(rc.qps[0], &wr, &bad) == EINVAL, "a send in RESET");
	close_rc(&rc);
}

/* In SQD no send begins, and receives continue. */
static void
drained_t(struct side *side)
{
	struct rc rc;

	make_rc(&rc, side, UD);
	post_receive(&rc, 0, 1, IN, 2000);
	meet(&rc);
	send_datagram(&rc, IBV_WR_SEND, 4, 8, 0);
	meet(&rc);
	expect_datagram(&rc, IBV_WR_SEND, 3, 8);
	meet(&rc);
	close_rc(&rc);
}

static void
drained_i(struct side *side)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
	struct ibv_send_wr wr;
	struct ibv_sge entry;
	struct rc rc;

	make_rc(&rc, side, UD);
	DONE(ibv_modify_qp(rc.qps[0], &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
	expect_event(&rc, IBV_EVENT_SQ_DRAINED);
	for (unsigned at = 0; at < 8; at++)
		rc.memory[OUT + at] = pattern(3, at);
	wr = request(&entry, &rc, IBV_WR_SEND, 3, OUT, 8);
	address(&rc, 0, &wr);
	post_wr(&rc, 0, &wr);
	post_receive(&rc, 0, 4, IN, 2000);
	meet(&rc);
	expect_datagram(&rc, IBV_WR_SEND, 4, 8);
	expect_nothing(rc.send_cq);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_SQE};
	EXPECT(ibv_modify_qp(rc.qps[0], &attr, IBV_QP_STATE | IBV_QP_CUR_STATE) == EINVAL, "another current state");
	attr.cur_qp_state = IBV_QPS_SQD;
	DONE(ibv_modify_qp(rc.qps[0], &attr, IBV_QP_STATE | IBV_QP_CUR_STATE));
	expect_sent(&rc, 3, IBV_WC_SUCCESS);
	meet(&rc);
	meet(&rc);
	close_rc(&rc);
}

/* In ERR a queue pair takes no more receives from its shared receive queue. */
static void
last_receive_i(struct side *side)
{
	struct rc_terms terms = UD;
	struct rc rc;

	terms.shared = true;
	make_rc(&rc, side, terms);
	post_receive(&rc, 0, 1, IN, 64);
	set_state(rc.qps[0], IBV_QPS_ERR);
	expect_event(&rc, IBV_EVENT_QP_LAST_WQE_REACHED);
	expect_nothing(rc.recv_cq);
	meet(&rc);
	close_rc(&rc);
}

/*
 * Many small datagrams from a list of requests, few of them signalled, to a queue pair of the same process.
 */
#define MANY 100

static void
loopback_i(struct side *side)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_send_wr wrs[MANY], *bad;
	struct ibv_sge entries[MANY];
	struct rc_terms terms = UD;
	struct rc rc;

	terms.qps = 2;
	open_rc(&rc, side, terms);
	for (int i = 0; i < 2; i++) {
		attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = RC_QKEY};
		DONE(ibv_modify_qp(rc.qps[i], &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
		set_state(rc.qps[i], IBV_QPS_RTR);
		attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .sq_psn = 5};
		DONE(ibv_modify_qp(rc.qps[i], &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
	}
	DONE(ibv_query_qp(rc.qps[0], &attr, IBV_QP_STATE | IBV_QP_QKEY | IBV_QP_SQ_PSN, &init));
	EXPECT(attr.qp_state == IBV_QPS_RTS && attr.qkey == RC_QKEY && attr.sq_psn == 5 && init.qp_type == IBV_QPT_UD, "");
	rc.numbers[0] = rc.qps[1]->qp_num;
	attr.ah_attr = (struct ibv_ah_attr){.is_global = 1, .port_num = 1, .grh = {.sgid_index = gid_index(rc.device), .hop_limit = 64}};
	DONE(ibv_query_gid(rc.device, 1, gid_index(rc.device), &attr.ah_attr.grh.dgid));
	rc.ah = ibv_create_ah(rc.pd, &attr.ah_attr);
	MADE(rc.ah);
	for (unsigned i = 0; i < MANY; i++) {
		rc.memory[OUT + i] = (char)i;
		post_receive(&rc, 1, i, IN + i * 64, 64);
		wrs[i] = request(&entries[i], &rc, IBV_WR_SEND, i, OUT + i, 1);
		wrs[i].send_flags = i % 10 == 9 ? IBV_SEND_SIGNALED : 0;
		address(&rc, 0, &wrs[i]);
		wrs[i].next = i + 1 < MANY ? &wrs[i + 1] : NULL;
	}
	DONE(ibv_post_send(rc.qps[0], wrs, &bad));
	/* The destination is that of the address handle, even if that was destroyed. */
	DONE(ibv_destroy_ah(rc.ah));
	rc.ah = NULL;
	for (unsigned i = 9; i < MANY; i += 10)
		expect_sent(&rc, i, IBV_WC_SUCCESS);
	for (unsigned i = 0; i < MANY; i++) {
		struct ibv_wc wc = next_of(rc.recv_cq);

		EXPECT(wc.wr_id == i && wc.byte_len == RC_HEADER + 1 && wc.src_qp == rc.qps[0]->qp_num, "%u", i);
		EXPECT(rc.memory[IN + i * 64 + RC_HEADER] == (char)i, "byte %u", i);
	}
	close_rc(&rc);
}

const struct test roce_ud[] = {
	{.name = "roce-ud-sends", .target = sends_t, .initiator = sends_i, .missing = not_soft},
	{.name = "roce-ud-header", .target = header_t, .initiator = header_i, .missing = not_soft},
	{.name = "roce-ud-extended", .target = extended_t, .initiator = extended_i, .missing = not_soft},
	{.name = "roce-ud-dropped", .target = dropped_t, .initiator = dropped_i, .missing = not_soft},
	{.name = "roce-ud-srq", .target = srq_t, .initiator = srq_i, .missing = not_soft},
	{.name = "roce-ud-events", .target = events_t, .initiator = events_i, .missing = not_soft},
	{.name = "roce-ud-errors", .target = errors_t, .initiator = errors_i, .missing = not_soft},
	{.name = "roce-ud-drained", .target = drained_t, .initiator = drained_i, .missing = not_soft},
	{.name = "roce-ud-last-receive", .target = last_receive_i, .initiator = last_receive_i, .missing = not_soft},
	{.name = "roce-ud-loopback", .target = nothing, .initiator = loopback_i, .missing = not_soft},
	{.name = NULL},
};
