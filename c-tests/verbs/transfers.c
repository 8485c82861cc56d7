/* SPDX-License-Identifier: BSD-3-Clause */
/* transfers.c -- rdma_post_read(3) and its relatives, several entries, inline data */
#include "ends.h"

#include <stdlib.h>

#define SIZE 4096
#define FULL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

/* Memory with a pattern, which is the same when the other side is done. */
static void
patterned_t(struct side *side)
{
	struct end end;
	char *memory = pages(SIZE);
	struct ibv_mr *mr;

	accept_end(&end, side);
	fill_pattern(memory, SIZE, 1);
	mr = offer(&end, side, memory, SIZE, FULL);
	hear(side, 'd');
	DONE(ibv_dereg_mr(mr));
	close_end(&end);
}

/* The functions of rdma_verbs.h: the context comes back as wr_id, and memory of rdma_reg_msgs has no remote rights. */
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
	learn(side, &place, sizeof(place));
	mr = rdma_reg_msgs(end.id, memory, SIZE);
	MADE(mr);
	DONE(rdma_post_read(end.id, &wc, memory, SIZE, mr, IBV_SEND_SIGNALED, place.addr, place.rkey));
	EXPECT(rdma_get_send_comp(end.id, &wc) == 1, "%s", strerror(errno));
	EXPECT(wc.status == IBV_WC_SUCCESS && wc.wr_id == (uintptr_t)&wc && wc.opcode == IBV_WC_RDMA_READ, "%s",
		ibv_wc_status_str(wc.status));
	check_pattern(memory, SIZE, 1, "what was read");

	/* two entries in the other order: the first half goes behind the second one */
	memset(memory, 0, SIZE);
	entries[0] = (struct ibv_sge){(uintptr_t)memory + SIZE / 2, SIZE / 2, mr->lkey};
	entries[1] = (struct ibv_sge){(uintptr_t)memory, SIZE / 2, mr->lkey};
	DONE(rdma_post_readv(end.id, NULL, entries, 2, IBV_SEND_SIGNALED, place.addr, place.rkey));
	EXPECT(rdma_get_send_comp(end.id, &wc) == 1 && wc.status == IBV_WC_SUCCESS, "");
	check_pattern(memory + SIZE / 2, SIZE / 2, 1, "the first half");
	DONE(ibv_dereg_mr(mr));
	say(side, 'd');
	close_end(&end);
}

/* Not before there is a connection. */
static void
nobody(struct side *side)
{
	hear(side, 'd');
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
	say(side, 'd');
}

/* A write gathered from several entries, one of them empty, and one of inline data from several buffers that are reused at once. */
static void
gathered_t(struct side *side)
{
	struct end end;
	char *memory = pages(SIZE);
	struct ibv_mr *mr;

	accept_end(&end, side);
	mr = offer(&end, side, memory, SIZE, FULL);
	hear(side, 'd');
	EXPECT(memcmp(memory, "one,two,three", 13) == 0, "%.13s", memory);
	EXPECT(memcmp(memory + 100, "in,line", 7) == 0, "%.7s", memory + 100);
	DONE(ibv_dereg_mr(mr));
	close_end(&end);
}

static void
gathered_i(struct side *side)
{
	struct end end;
	char *memory = pages(SIZE);
	char in[] = "in,", line[] = "line";
	struct place place;
	struct ibv_mr *mr;
	struct ibv_sge entries[4];
	struct ibv_send_wr wr = {.sg_list = entries, .num_sge = 4, .opcode = IBV_WR_RDMA_WRITE}, *bad;

	connect_end(&end, side);
	learn(side, &place, sizeof(place));
	strcpy(memory, "three");
	strcpy(memory + 50, "two,");
	strcpy(memory + 100, "one,");
	mr = ibv_reg_mr(end.pd, memory, SIZE, 0);
	MADE(mr);
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
	/* behind both writes */
	EXPECT(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE) == 0, "%s", strerror(errno));
	EXPECT(transfer(&end, IBV_WR_RDMA_READ, mr, memory, 1, place.addr, place.rkey) == IBV_WC_SUCCESS, "");

	wr.num_sge = 5;
	EXPECT(ibv_post_send(end.id->qp, &wr, &bad) == EINVAL && bad == &wr, "more entries than the queue pair has");
	say(side, 'd');
	DONE(ibv_dereg_mr(mr));
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
	mr = ibv_reg_mr(end.pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE);
	MADE(mr);
	entries[0] = (struct ibv_sge){(uintptr_t)memory + 200, 3, mr->lkey};
	entries[1] = (struct ibv_sge){(uintptr_t)memory + 100, 1, mr->lkey};
	entries[2] = (struct ibv_sge){(uintptr_t)memory, 100, mr->lkey};
	DONE(ibv_post_recv(end.id->qp, &wr, &bad));
	say(side, 'r');
	wc = next_recv(&end);
	EXPECT(wc.status == IBV_WC_SUCCESS && wc.wr_id == 7 && wc.byte_len == 9, "%s", ibv_wc_status_str(wc.status));
	EXPECT(memcmp(memory + 200, "sca", 3) == 0 && memory[100] == 't' && memcmp(memory, "tered", 5) == 0, "");
	say(side, 'd');
	DONE(ibv_dereg_mr(mr));
	close_end(&end);
}

static void
scattered_i(struct side *side)
{
	struct end end;
	struct ibv_sge entry = {(uintptr_t) "scattered", 9, 0};
	struct ibv_send_wr wr = {.sg_list = &entry, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED}, *bad;

	connect_end(&end, side);
	hear(side, 'r');
	DONE(ibv_post_send(end.id->qp, &wr, &bad));
	EXPECT(next_send(&end).status == IBV_WC_SUCCESS, "");
	hear(side, 'd');
	close_end(&end);
}

const struct test transfers[] = {
	{.name = "post-read", .target = patterned_t, .initiator = post_read_i},
	{.name = "post-read-before-connected", .target = nobody, .initiator = too_early_i},
	{.name = "gathered-and-inline", .target = gathered_t, .initiator = gathered_i},
	{.name = "scattered-receive", .target = scattered_t, .initiator = scattered_i},
	{.name = NULL},
};
