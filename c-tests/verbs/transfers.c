/* SPDX-License-Identifier: BSD-3-Clause */
/* transfers.c -- rdma_post_read(3) and similar functions, several entries, inline data */
#include "ends.h"

#include <stdlib.h>

#define SIZE 4096
#define FULL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

/* Memory with a pattern, which must be unchanged when the other side is done. */
static void
patterned_t(struct side *side)
{
	struct end end;
	char *memory = pages(SIZE);
	struct ibv_mr *mr;

	accept_end(&end, side);
	fill_pattern(memory, SIZE, 1);
	mr = offer(&end, side, memory, SIZE, FULL);
	await(side, 'd');
	close_with_memory(&end, mr);
}

/*
 * The functions of rdma_verbs.h: the context is returned as wr_id, and memory of rdma_reg_msgs has no remote
 * rights.
 */
static void
post_read_i(struct side *side)
{
	struct end end;
	char *memory = pages(SIZE);
	struct ibv_sge entries[2];
	struct place place;
	struct ibv_mr *mr;
	struct ibv_wc wc;

	connect_end(&end, side);
	receive_bytes(side, &place, sizeof(place));
	mr = rdma_reg_msgs(end.id, memory, SIZE);
	MADE(mr);
	DONE(rdma_post_read(end.id, &wc, memory, SIZE, mr, IBV_SEND_SIGNALED, place.addr, place.rkey));
	EXPECT(rdma_get_send_comp(end.id, &wc) == 1, "%s", strerror(errno));
	EXPECT(wc.status == IBV_WC_SUCCESS && wc.wr_id == (uintptr_t)&wc && wc.opcode == IBV_WC_RDMA_READ, "%s",
		ibv_wc_status_str(wc.status));
	check_pattern(memory, SIZE, 1, "what was read");

	/* two entries in reverse order: the first half is placed after the second one */
	memset(memory, 0, SIZE);
	entries[0] = (struct ibv_sge){(uintptr_t)memory + SIZE / 2, SIZE / 2, mr->lkey};
	entries[1] = (struct ibv_sge){(uintptr_t)memory, SIZE / 2, mr->lkey};
	DONE(rdma_post_readv(end.id, NULL, entries, 2, IBV_SEND_SIGNALED, place.addr, place.rkey));
	EXPECT(rdma_get_send_comp(end.id, &wc) == 1 && wc.status == IBV_WC_SUCCESS, "");
	check_pattern(memory + SIZE / 2, SIZE / 2, 1, "the first half");
	DONE(ibv_dereg_mr(mr));
	notify(side, 'd');
	close_end(&end);
}

/*
 * IBV_SEND_INLINE is for sends and writes. An adapter refuses it for operations that return data; soft0 does
 * so in strict mode.
 */
static void
read_inline(struct side *side, const char *mode, bool refused)
{
	struct ibv_sge word = {.length = 8};
	struct ibv_send_wr wr = {.sg_list = &word, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE}, *bad;
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP};
	char *memory = pages(SIZE);
	struct place place;
	struct ibv_mr *mr;
	struct end end;

	setenv("SOFTVERBS_STRICT", mode, 1);
	connect_end(&end, side);
	receive_bytes(side, &place, sizeof(place));
	mr = rdma_reg_msgs(end.id, memory, SIZE);
	MADE(mr);
	word.addr = (uintptr_t)memory;
	word.lkey = mr->lkey;
	for (unsigned i = 0; refused && i < sizeof(opcodes) / sizeof(*opcodes); i++) {
		wr.opcode = opcodes[i];
		EXPECT(ibv_post_send(end.id->qp, &wr, &bad) == EINVAL && bad == &wr, "opcode %d", opcodes[i]);
	}
	if (refused)
		EXPECT(rdma_post_read(end.id, NULL, memory, SIZE, mr, IBV_SEND_SIGNALED | IBV_SEND_INLINE, place.addr, place.rkey) == -1
			&& errno == EINVAL, "%s", strerror(errno));
	DONE(rdma_post_read(end.id, NULL, memory, SIZE, mr, IBV_SEND_SIGNALED | (refused ? 0 : IBV_SEND_INLINE), place.addr,
		place.rkey));
	EXPECT(next_send(&end).status == IBV_WC_SUCCESS, "");
	check_pattern(memory, SIZE, 1, "what was read");
	DONE(ibv_dereg_mr(mr));
	notify(side, 'd');
	close_end(&end);
}

static void read_inline_strict_i(struct side *side) { read_inline(side, "adapter", true); }
static void read_inline_warn_i(struct side *side) { read_inline(side, "warn", false); }
static void read_inline_i(struct side *side) { read_inline(side, "off", false); }

/* Posting fails before there is a connection. */
static void
nobody(struct side *side)
{
	await(side, 'd');
}

static void
too_early_i(struct side *side)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *found;
	struct ibv_qp_init_attr attr = {.cap = {8, 8, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	char *memory = pages(SIZE);
	struct rdma_cm_id *id;
	struct ibv_mr *mr;

	DONE(rdma_getaddrinfo(side->addr, side->port, &hints, &found));
	DONE(rdma_create_ep(&id, found, NULL, &attr));
	rdma_freeaddrinfo(found);
	mr = rdma_reg_msgs(id, memory, SIZE);
	MADE(mr);
	EXPECT(rdma_post_read(id, NULL, memory, SIZE, mr, IBV_SEND_SIGNALED, 0, 0) == -1 && errno == EINVAL, "%s", strerror(errno));
	DONE(ibv_dereg_mr(mr));
	rdma_destroy_ep(id);
	notify(side, 'd');
}

/*
 * A write gathered from several entries, one of them empty, and one of inline data from several buffers that
 * are reused immediately.
 */
static void
gathered_t(struct side *side)
{
	struct end end;
	char *memory = pages(SIZE);
	struct ibv_mr *mr;

	mr = accept_with_memory(&end, side, memory, SIZE, FULL);
	await(side, 'd');
	EXPECT(memcmp(memory, "one,two,three", 13) == 0, "%.13s", memory);
	EXPECT(memcmp(memory + 100, "in,line", 7) == 0, "%.7s", memory + 100);
	close_with_memory(&end, mr);
}

static void
gathered_i(struct side *side)
{
	struct end end;
	char *memory = pages(SIZE);
	char in[] = "in,", line[] = "line";
	struct place place;
	struct ibv_mr *mr, *sink;
	struct ibv_sge entries[4];
	struct ibv_send_wr wr = {.sg_list = entries, .num_sge = 4, .opcode = IBV_WR_RDMA_WRITE}, *bad;

	connect_end(&end, side);
	receive_bytes(side, &place, sizeof(place));
	strcpy(memory, "three");
	strcpy(memory + 50, "two,");
	strcpy(memory + 100, "one,");
	mr = REG_MR(end.pd, memory, SIZE, 0);
	sink = REG_MR(end.pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE);
	entries[0] = (struct ibv_sge){(uintptr_t)memory + 100, 4, mr->lkey};
	entries[1] = (struct ibv_sge){(uintptr_t)memory + 50, 4, mr->lkey};
	entries[2] = (struct ibv_sge){(uintptr_t)memory, 0, mr->lkey};
	entries[3] = (struct ibv_sge){(uintptr_t)memory, 5, mr->lkey};
	wr.wr.rdma.remote_addr = place.addr;
	wr.wr.rdma.rkey = place.rkey;
	DONE(ibv_post_send(end.id->qp, &wr, &bad));

	entries[0] = (struct ibv_sge){(uintptr_t)in, 3, 0};
	entries[1] = (struct ibv_sge){(uintptr_t)line, 4, 0};
	wr.num_sge = 2;
	wr.send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
	wr.wr.rdma.remote_addr = place.addr + 100;
	DONE(ibv_post_send(end.id->qp, &wr, &bad));
	memset(in, 'x', sizeof(in));
	memset(line, 'x', sizeof(line));
	EXPECT(next_send(&end).status == IBV_WC_SUCCESS, "");
	/* after both writes */
	EXPECT_TRANSFER(IBV_WC_SUCCESS, &end, IBV_WR_RDMA_READ, sink, memory, 1, place.addr, place.rkey);
	notify(side, 'd');
	DONE(ibv_dereg_mr(mr));
	DONE(ibv_dereg_mr(sink));
	close_end(&end);
}

/* A message scattered into the entries of a receive. */
static void
scattered_t(struct side *side)
{
	struct end end;
	char *memory = pages(SIZE);
	struct ibv_mr *mr;
	struct ibv_sge entries[3];
	struct ibv_recv_wr wr = {.wr_id = 7, .sg_list = entries, .num_sge = 3}, *bad;
	struct ibv_wc wc;

	accept_end(&end, side);
	mr = REG_MR(end.pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE);
	entries[0] = (struct ibv_sge){(uintptr_t)memory + 200, 3, mr->lkey};
	entries[1] = (struct ibv_sge){(uintptr_t)memory + 100, 1, mr->lkey};
	entries[2] = (struct ibv_sge){(uintptr_t)memory, 100, mr->lkey};
	DONE(ibv_post_recv(end.id->qp, &wr, &bad));
	notify(side, 'r');
	wc = next_recv(&end);
	EXPECT(wc.status == IBV_WC_SUCCESS && wc.wr_id == 7 && wc.byte_len == 9, "%s", ibv_wc_status_str(wc.status));
	EXPECT(memcmp(memory + 200, "sca", 3) == 0 && memory[100] == 't' && memcmp(memory, "tered", 5) == 0, "");
	notify(side, 'd');
	close_with_memory(&end, mr);
}

static void
scattered_i(struct side *side)
{
	struct end end;
	struct ibv_sge entry = {(uintptr_t) "scattered", 9, 0};
	struct ibv_send_wr wr = {.sg_list = &entry, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED}, *bad;

	connect_end(&end, side);
	await(side, 'r');
	DONE(ibv_post_send(end.id->qp, &wr, &bad));
	EXPECT(next_send(&end).status == IBV_WC_SUCCESS, "");
	await(side, 'd');
	close_end(&end);
}

/*
 * The maximum of entries and of inline data of the device: 16 and 220. At the local side, each byte is in a
 * separate entry.
 */
#define WIDE 16
#define INLINE 220

static struct ibv_qp_init_attr
wide(void)
{
	struct ibv_qp_init_attr attr = end_attributes();

	attr.cap.max_send_sge = attr.cap.max_recv_sge = WIDE;
	attr.cap.max_inline_data = INLINE;
	return attr;
}

static void
spread(struct ibv_sge *entries, char *memory, struct ibv_mr *mr)
{
	for (unsigned i = 0; i < WIDE; i++)
		entries[i] = (struct ibv_sge){(uintptr_t)memory + 64 * (WIDE - i), i + 1, mr->lkey};
}

/* Entry i has i + 1 bytes, all of which are 'a' + i. */
static void
check_spread(const char *memory)
{
	for (unsigned i = 0; i < WIDE; i++) {
		check_bytes(memory + 64 * (WIDE - i), i + 1, (unsigned char)('a' + i), "an entry");
		check_bytes(memory + 64 * (WIDE - i) + i + 1, 64 - i - 1, 0, "the memory after an entry");
	}
}

static void
check_gathered(const char *memory)
{
	for (unsigned i = 0, at = 0; i < WIDE; at += ++i)
		check_bytes(memory + at, i + 1, (unsigned char)('a' + i), "the content of an entry");
}

static void
wide_t(struct side *side)
{
	struct ibv_qp_init_attr attr = wide();
	struct ibv_sge entries[WIDE];
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = entries, .num_sge = WIDE}, *bad;
	char *memory = pages(SIZE), *received = pages(SIZE);
	struct ibv_mr *mr, *sink;
	struct ibv_wc wc;
	struct end end;

	accept_end_with(&end, side, NULL, &attr);
	sink = REG_MR(end.pd, received, SIZE, IBV_ACCESS_LOCAL_WRITE);
	spread(entries, received, sink);
	DONE(ibv_post_recv(end.id->qp, &wr, &bad));
	/* and one for the inline message */
	entries[0] = (struct ibv_sge){(uintptr_t)received + SIZE / 2, SIZE / 2, sink->lkey};
	wr.num_sge = 1;
	DONE(ibv_post_recv(end.id->qp, &wr, &bad));
	mr = offer(&end, side, memory, SIZE, FULL);
	wc = next_recv(&end);
	EXPECT(wc.status == IBV_WC_SUCCESS && wc.byte_len == WIDE * (WIDE + 1) / 2, "%s", ibv_wc_status_str(wc.status));
	check_spread(received);
	wc = next_recv(&end);
	EXPECT(wc.status == IBV_WC_SUCCESS && wc.byte_len == INLINE, "%s", ibv_wc_status_str(wc.status));
	check_pattern(received + SIZE / 2, INLINE, 6, "the inline message");
	await(side, 'w');
	check_gathered(memory);
	check_pattern(memory + SIZE / 2, INLINE, 5, "the inline write");
	check_bytes(memory + SIZE / 2 + INLINE, 64, 0, "the memory after the inline write");
	DONE(ibv_dereg_mr(mr));
	DONE(ibv_dereg_mr(sink));
	notify(side, 'd');
	close_end(&end);
}

static void
wide_i(struct side *side)
{
	struct ibv_qp_init_attr attr = wide(), queried;
	struct ibv_sge entries[WIDE], one;
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = entries, .num_sge = WIDE, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED}, *bad;
	char *memory = pages(SIZE), *read_to = pages(SIZE);
	char *data = pages(SIZE); /* not registered */
	struct ibv_qp_attr state;
	struct place place;
	struct ibv_mr *mr, *sink;
	struct end end;

	connect_end_with(&end, side, NULL, &attr);
	EXPECT(attr.cap.max_send_sge >= WIDE && attr.cap.max_recv_sge >= WIDE && attr.cap.max_inline_data >= INLINE, "");
	DONE(ibv_query_qp(end.id->qp, &state, IBV_QP_CAP, &queried));
	EXPECT(queried.cap.max_send_sge >= WIDE && queried.cap.max_recv_sge >= WIDE && queried.cap.max_inline_data >= INLINE, "");
	receive_bytes(side, &place, sizeof(place));
	mr = REG_MR(end.pd, memory, SIZE, 0);
	sink = REG_MR(end.pd, read_to, SIZE, IBV_ACCESS_LOCAL_WRITE);
	for (unsigned i = 0; i < WIDE; i++)
		memset(memory + 64 * (WIDE - i), (int)('a' + i), i + 1);
	spread(entries, memory, mr);
	DONE(ibv_post_send(end.id->qp, &wr, &bad));
	EXPECT(next_send(&end).status == IBV_WC_SUCCESS, "");

	fill_pattern(data, INLINE, 6);
	one = (struct ibv_sge){(uintptr_t)data, INLINE, 0};
	wr.sg_list = &one;
	wr.num_sge = 1;
	wr.send_flags |= IBV_SEND_INLINE;
	DONE(ibv_post_send(end.id->qp, &wr, &bad));
	fill_pattern(data, INLINE, 5);
	EXPECT(next_send(&end).status == IBV_WC_SUCCESS, "");

	wr.opcode = IBV_WR_RDMA_WRITE;
	wr.wr.rdma.remote_addr = place.addr + SIZE / 2;
	wr.wr.rdma.rkey = place.rkey;
	DONE(ibv_post_send(end.id->qp, &wr, &bad));
	memset(data, 'x', INLINE);
	EXPECT(next_send(&end).status == IBV_WC_SUCCESS, "");

	wr.sg_list = entries;
	wr.num_sge = WIDE;
	wr.send_flags = IBV_SEND_SIGNALED;
	wr.wr.rdma.remote_addr = place.addr;
	DONE(ibv_post_send(end.id->qp, &wr, &bad));
	EXPECT(next_send(&end).status == IBV_WC_SUCCESS, "");
	/* the gathered bytes are scattered again */
	spread(entries, read_to, sink);
	DONE(rdma_post_readv(end.id, NULL, entries, WIDE, IBV_SEND_SIGNALED, place.addr, place.rkey));
	EXPECT(next_send(&end).status == IBV_WC_SUCCESS, "");
	check_spread(read_to);
	notify(side, 'w');
	await(side, 'd');
	DONE(ibv_dereg_mr(mr));
	DONE(ibv_dereg_mr(sink));
	close_end(&end);
}

/*
 * rdma_create_ep with completion queues, a channel and a protection domain of the program: they are used, and
 * remain after the endpoint.
 */
struct own {
	struct rdma_cm_id *id;
	struct ibv_comp_channel *channel;
	struct ibv_cq *send, *recv;
	struct ibv_pd *pd;
	struct ibv_qp_init_attr attr;
};

static void
make_own(struct own *own, struct side *side)
{
	struct ibv_context *device = device_of(side, &own->id);

	own->channel = ibv_create_comp_channel(device);
	MADE(own->channel);
	own->send = ibv_create_cq(device, 64, own, own->channel, 0);
	MADE(own->send);
	own->recv = ibv_create_cq(device, 64, NULL, NULL, 0);
	MADE(own->recv);
	own->pd = ibv_alloc_pd(device);
	MADE(own->pd);
	own->attr = end_attributes();
	own->attr.send_cq = own->send;
	own->attr.recv_cq = own->recv;
}

static void
check_own(struct own *own, struct end *end)
{
	EXPECT(end->id->qp->send_cq == own->send && end->id->qp->recv_cq == own->recv && end->id->qp->pd == own->pd, "");
	EXPECT(end->id->send_cq == NULL && end->id->recv_cq == NULL && end->id->send_cq_channel == NULL, "queues were created");
	EXPECT(ibv_destroy_cq(own->send) == EBUSY && ibv_dealloc_pd(own->pd) == EBUSY, "a queue pair uses them");
	EXPECT(ibv_destroy_comp_channel(own->channel) == EBUSY, "a completion queue uses it");
}

static void
destroy_own(struct own *own)
{
	DONE(ibv_destroy_cq(own->send));
	DONE(ibv_destroy_cq(own->recv));
	DONE(ibv_destroy_comp_channel(own->channel));
	DONE(ibv_dealloc_pd(own->pd));
	rdma_destroy_id(own->id);
}

static void
own_queues_t(struct side *side)
{
	struct ibv_recv_wr wr = {.wr_id = 4}, *bad;
	char *memory = pages(SIZE);
	struct end end;
	struct own own;
	struct ibv_mr *mr;

	make_own(&own, side);
	accept_end_with(&end, side, own.pd, &own.attr);
	check_own(&own, &end);
	DONE(ibv_post_recv(end.id->qp, &wr, &bad));
	fill_pattern(memory, SIZE, 1);
	end.pd = own.pd;
	mr = offer(&end, side, memory, SIZE, FULL);
	EXPECT(next_recv(&end).wr_id == 4, "");
	DONE(ibv_dereg_mr(mr));
	notify(side, 'd');
	close_end(&end);
	destroy_own(&own);
}

static void
own_queues_i(struct side *side)
{
	struct ibv_send_wr wr = {.wr_id = 3, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
	char *memory = pages(SIZE);
	struct place place;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct end end;
	struct own own;
	void *context;

	make_own(&own, side);
	connect_end_with(&end, side, own.pd, &own.attr);
	check_own(&own, &end);
	receive_bytes(side, &place, sizeof(place));
	mr = REG_MR(own.pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE);
	DONE(ibv_req_notify_cq(own.send, 0));
	DONE(rdma_post_read(end.id, NULL, memory, SIZE, mr, IBV_SEND_SIGNALED, place.addr, place.rkey));
	DONE(ibv_get_cq_event(own.channel, &cq, &context));
	EXPECT(cq == own.send && context == &own, "another queue");
	ibv_ack_cq_events(cq, 1);
	EXPECT(next_send(&end).status == IBV_WC_SUCCESS, "");
	check_pattern(memory, SIZE, 1, "what was read");
	DONE(ibv_post_send(end.id->qp, &wr, &bad));
	EXPECT(next_send(&end).wr_id == 3, "");
	await(side, 'd');
	close_with_memory(&end, mr);
	destroy_own(&own);
}

const struct test transfers[] = {
	{.name = "post-read", .target = patterned_t, .initiator = post_read_i},
	{.name = "post-read-inline", .target = patterned_t, .initiator = read_inline_i, .missing = not_soft},
	{.name = "post-read-inline-warn", .target = patterned_t, .initiator = read_inline_warn_i, .missing = not_soft},
	{.name = "post-read-inline-strict", .target = patterned_t, .initiator = read_inline_strict_i, .missing = not_soft},
	{.name = "post-read-before-connected", .target = nobody, .initiator = too_early_i},
	{.name = "gathered-and-inline", .target = gathered_t, .initiator = gathered_i},
	{.name = "16-entries-and-220-bytes-inline", .target = wide_t, .initiator = wide_i},
	{.name = "create-ep-own-queues", .target = own_queues_t, .initiator = own_queues_i},
	{.name = "scattered-receive", .target = scattered_t, .initiator = scattered_i},
	{.name = NULL},
};
