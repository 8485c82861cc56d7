/* SPDX-License-Identifier: BSD-3-Clause */
/* ends.c -- see ends.h */
#include "ends.h"

#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REQUESTS 64
#define ENTRIES 4
#define INLINE 128
#define LIMIT_MS 10000

void
send_bytes(struct side *side, const void *what, size_t size)
{
	EXPECT(write(side->sync, what, size) == (ssize_t)size, "%s", strerror(errno));
}

void
receive_bytes(struct side *side, void *what, size_t size)
{
	for (size_t got = 0; got < size;) {
		ssize_t n = read(side->sync, (char *)what + got, size - got);

		EXPECT(n > 0, "the other process ended");
		got += (size_t)n;
	}
}

static struct rdma_addrinfo *
find(struct side *side, int flags)
{
	struct rdma_addrinfo hints = {.ai_flags = flags, .ai_port_space = RDMA_PS_TCP};
	struct rdma_addrinfo *found = NULL;

	DONE(rdma_getaddrinfo(side->addr, side->port, &hints, &found));
	return found;
}

bool
on_device(void)
{
	const char *provider = getenv("PAIRS_PROVIDER");

	return provider != NULL && strcmp(provider, "soft") != 0;
}

bool
maps_memory_of(pid_t other)
{
	const char *local = getenv("SOFTVERBS_LOCAL");
	int process, copy;

	if (on_device() || (local != NULL && strcmp(local, "1") != 0 && strcmp(local, "auto") != 0))
		return false;
	process = (int)syscall(SYS_pidfd_open, other, 0);
	/* each process has one with this number */
	copy = process < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, process, STDERR_FILENO, 0);
	if (process >= 0)
		close(process);
	if (copy >= 0)
		close(copy);
	return copy >= 0;
}

const char *
not_soft(void)
{
	return on_device() ? "" : NULL;
}

struct ibv_context *
device_of(struct side *side, struct rdma_cm_id **id)
{
	struct rdma_addrinfo *found = find(side, 0);

	DONE(rdma_create_id(NULL, id, NULL, RDMA_PS_TCP));
	DONE(rdma_resolve_addr(*id, NULL, found->ai_dst_addr, 2000));
	rdma_freeaddrinfo(found);
	MADE((*id)->verbs);
	return (*id)->verbs;
}

struct ibv_qp_init_attr
end_attributes(void)
{
	return (struct ibv_qp_init_attr){
		.cap = {.max_send_wr = REQUESTS, .max_recv_wr = REQUESTS, .max_send_sge = ENTRIES, .max_recv_sge = ENTRIES,
			.max_inline_data = INLINE},
		.qp_type = IBV_QPT_RC,
	};
}

void
accept_end_with(struct end *end, struct side *side, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct rdma_addrinfo *found = find(side, RAI_PASSIVE);
	struct rdma_conn_param param = {.responder_resources = 4, .initiator_depth = 4, .rnr_retry_count = 7};

	memset(end, 0, sizeof(*end));
	DONE(rdma_create_ep(&end->listener, found, pd, attr));
	rdma_freeaddrinfo(found);
	DONE(rdma_listen(end->listener, 8));
	notify(side, 'L');
	DONE(rdma_get_request(end->listener, &end->id));
	DONE(rdma_accept(end->id, &param));
	end->pd = end->id->pd;
	notify(side, 'A');
	await(side, 'C');
}

void
accept_end(struct end *end, struct side *side)
{
	struct ibv_qp_init_attr attr = end_attributes();

	accept_end_with(end, side, NULL, &attr);
}

static void
ask(struct end *end, struct side *side)
{
	struct rdma_conn_param param = {.responder_resources = 4, .initiator_depth = 4, .retry_count = 7, .rnr_retry_count = 7};

	DONE(rdma_connect(end->id, &param));
	end->pd = end->id->qp->pd;
	await(side, 'A');
	notify(side, 'C');
}

void
connect_end_with(struct end *end, struct side *side, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct rdma_addrinfo *found = find(side, 0);

	memset(end, 0, sizeof(*end));
	await(side, 'L');
	DONE(rdma_create_ep(&end->id, found, pd, attr));
	rdma_freeaddrinfo(found);
	ask(end, side);
}

void
connect_end(struct end *end, struct side *side)
{
	struct ibv_qp_init_attr attr = end_attributes();

	connect_end_with(end, side, NULL, &attr);
}

void
connect_end_extended(struct end *end, struct side *side, uint64_t send_ops_flags)
{
	struct ibv_qp_init_attr_ex attr = {.cap = end_attributes().cap, .qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = send_ops_flags};

	memset(end, 0, sizeof(*end));
	attr.pd = ibv_alloc_pd(device_of(side, &end->id));
	MADE(attr.pd);
	await(side, 'L');
	DONE(rdma_resolve_route(end->id, 2000));
	DONE(rdma_create_qp_ex(end->id, &attr));
	ask(end, side);
}

void
close_end(struct end *end)
{
	rdma_disconnect(end->id);
	rdma_destroy_ep(end->id);
	if (end->listener != NULL)
		rdma_destroy_ep(end->listener);
}

struct ibv_mr *
offer(struct end *end, struct side *side, void *memory, size_t length, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(end->pd, memory, length, access);
	struct place place;

	MADE(mr);
	place = (struct place){(uintptr_t)memory, mr->rkey, (uint32_t)length};
	send_bytes(side, &place, sizeof(place));
	return mr;
}

static struct ibv_wc
next(struct ibv_cq *cq)
{
	uint64_t until = now_ms() + LIMIT_MS;
	struct ibv_wc wc;
	int got;

	while ((got = ibv_poll_cq(cq, 1, &wc)) == 0)
		EXPECT(now_ms() < until, "no completion");
	EXPECT(got == 1, "%d completions", got);
	return wc;
}

struct ibv_wc
next_send(struct end *end)
{
	return next(end->id->qp->send_cq);
}

struct ibv_wc
next_recv(struct end *end)
{
	return next(end->id->qp->recv_cq);
}

struct ibv_mr *
connect_with_memory(struct end *end, struct side *side, void *memory, size_t length)
{
	connect_end(end, side);
	return REG_MR(end->pd, memory, length, IBV_ACCESS_LOCAL_WRITE);
}

struct ibv_mr *
accept_with_memory(struct end *end, struct side *side, void *memory, size_t length, int access)
{
	accept_end(end, side);
	return offer(end, side, memory, length, access);
}

void
close_with_memory(struct end *end, struct ibv_mr *mr)
{
	DONE(ibv_dereg_mr(mr));
	close_end(end);
}

void
offer_until_done(struct side *side, size_t length, int access)
{
	struct end end;
	struct ibv_mr *mr = accept_with_memory(&end, side, pages(length), length, access);

	await(side, 'd');
	close_with_memory(&end, mr);
}

enum ibv_wc_status
transfer(struct end *end, enum ibv_wr_opcode opcode, struct ibv_mr *mr, void *local, uint32_t length, uint64_t remote_addr,
	uint32_t rkey)
{
	struct ibv_sge sge = {(uintptr_t)local, length, mr->lkey};
	struct ibv_send_wr wr = {.wr_id = remote_addr, .sg_list = &sge, .num_sge = 1, .opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED, .wr.rdma = {remote_addr, rkey}};
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	DONE(ibv_post_send(end->id->qp, &wr, &bad));
	wc = next_send(end);
	EXPECT(wc.wr_id == remote_addr, "another completion");
	return wc.status;
}
