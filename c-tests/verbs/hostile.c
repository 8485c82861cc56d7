/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hostile.c -- invalid arguments: the errno of the manual page or a failed completion, without other effects
 */
#include "ends.h"

#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>

#define SIZE 4096
#define FULL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

static void
nothing(struct side *side)
{
	(void)side;
}

/* A target with memory that must not change. */
static void
untouched_t(struct side *side)
{
	struct end end;
	char *memory = pages(SIZE);
	struct ibv_mr *mr;

	accept_end(&end, side);
	memset(memory, 't', SIZE);
	mr = offer(&end, side, memory, SIZE, FULL);
	await(side, 'd');
	check_bytes(memory, SIZE, 't', "the target's memory");
	close_with_memory(&end, mr);
}

/*
 * Lists of requests with an invalid one: those before it are posted, bad_wr points to it, and those after it
 * are not posted.
 */
#define MOST 64 /* entries, more than any queue pair here has */

struct lists {
	struct end end;
	struct ibv_qp_cap cap; /* the actual limits */
	struct place place;
	char *memory;
	struct ibv_mr *mr;
	struct ibv_sge one, many[MOST];
	struct ibv_send_wr send[3];
	struct ibv_recv_wr receive[3];
};

static void
reset(struct lists *lists)
{
	for (unsigned i = 0; i < MOST; i++)
		lists->many[i] = lists->one;
	for (unsigned i = 0; i < 3; i++) {
		lists->send[i] = (struct ibv_send_wr){.wr_id = i, .next = i < 2 ? &lists->send[i + 1] : NULL, .sg_list = &lists->one,
			.num_sge = 1, .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = {lists->place.addr, lists->place.rkey}};
		lists->receive[i] = (struct ibv_recv_wr){.wr_id = i, .next = i < 2 ? &lists->receive[i + 1] : NULL,
			.sg_list = &lists->one, .num_sge = 1};
	}
}

static void
open_lists(struct lists *lists, struct side *side)
{
	struct ibv_qp_init_attr attr = end_attributes();

	connect_end_with(&lists->end, side, NULL, &attr);
	lists->cap = attr.cap;
	receive_bytes(side, &lists->place, sizeof(lists->place));
	lists->memory = pages(SIZE);
	lists->mr = REG_MR(lists->end.pd, lists->memory, SIZE, IBV_ACCESS_LOCAL_WRITE);
	lists->one = (struct ibv_sge){(uintptr_t)lists->memory, 8, lists->mr->lkey};
	reset(lists);
}

/* The connection still works, and only the requests that have completed were posted. */
static void
close_lists(struct lists *lists, struct side *side)
{
	struct ibv_wc wc;

	EXPECT(ibv_poll_cq(lists->end.id->send_cq, 1, &wc) == 0, "request %llu was posted", (unsigned long long)wc.wr_id);
	EXPECT(transfer(&lists->end, IBV_WR_RDMA_READ, lists->mr, lists->memory, SIZE, lists->place.addr, lists->place.rkey) ==
		IBV_WC_SUCCESS, "");
	check_bytes(lists->memory, SIZE, 't', "what was read");
	notify(side, 'd');
	DONE(ibv_dereg_mr(lists->mr));
	close_end(&lists->end);
}

/* The second request of the list is refused. */
static void
refused_send(struct lists *lists, int line)
{
	struct ibv_send_wr *bad = NULL;
	int ret = ibv_post_send(lists->end.id->qp, lists->send, &bad);
	struct ibv_wc wc;

	EXPECT(ret == EINVAL && bad == &lists->send[1], "line %d: %d", line, ret);
	wc = next_send(&lists->end);
	EXPECT(wc.status == IBV_WC_SUCCESS && wc.wr_id == 0, "line %d: %s", line, ibv_wc_status_str(wc.status));
	reset(lists);
}

static void
refused_receive(struct lists *lists, int line)
{
	struct ibv_recv_wr *bad = NULL;
	int ret = ibv_post_recv(lists->end.id->qp, lists->receive, &bad);

	EXPECT(ret == EINVAL && bad == &lists->receive[1], "line %d: %d", line, ret);
	reset(lists);
}

static void
limits_i(struct side *side)
{
	struct ibv_recv_wr *bad = NULL;
	struct lists lists;
	unsigned posted = 1;
	int ret;

	open_lists(&lists, side);
	EXPECT(lists.cap.max_send_sge < MOST && lists.cap.max_recv_sge < MOST, "");
	lists.send[1].sg_list = lists.many;
	lists.send[1].num_sge = (int)lists.cap.max_send_sge + 1;
	refused_send(&lists, __LINE__);
	lists.many[0].length = lists.cap.max_inline_data + 1;
	lists.send[1].sg_list = lists.many;
	lists.send[1].opcode = IBV_WR_RDMA_WRITE;
	lists.send[1].send_flags = IBV_SEND_INLINE;
	refused_send(&lists, __LINE__);

	lists.receive[1].sg_list = lists.many;
	lists.receive[1].num_sge = (int)lists.cap.max_recv_sge + 1;
	refused_receive(&lists, __LINE__); /* the first one of which was posted */
	/* the queue has at least the reported size, and is limited */
	while ((ret = ibv_post_recv(lists.end.id->qp, &lists.receive[2], &bad)) == 0)
		EXPECT(posted++ < 2 * lists.cap.max_recv_wr, "");
	EXPECT(ret == ENOMEM && bad == &lists.receive[2] && posted >= lists.cap.max_recv_wr, "%d after %u receives", ret, posted);
	close_lists(&lists, side);
}

/* Requests with invalid opcodes, numbers of entries, pointers and lengths. */
static void
absurd_i(struct side *side)
{
	enum ibv_wr_opcode opcodes[] = {IBV_WR_TSO, (enum ibv_wr_opcode)99, (enum ibv_wr_opcode)-1};
	int counts[] = {-1, INT_MIN, INT_MAX};
	struct lists lists;

	open_lists(&lists, side);
	for (unsigned i = 0; i < 3; i++) {
		lists.send[1].opcode = opcodes[i];
		refused_send(&lists, __LINE__);
		lists.send[1].sg_list = lists.many;
		lists.send[1].num_sge = counts[i];
		refused_send(&lists, __LINE__);
		lists.receive[1].sg_list = lists.many;
		lists.receive[1].num_sge = counts[i];
		refused_receive(&lists, __LINE__);
	}
	lists.send[1].sg_list = NULL;
	refused_send(&lists, __LINE__);
	lists.receive[1].sg_list = NULL;
	refused_receive(&lists, __LINE__);
	/* a wrong length of inline data: the data are not read */
	lists.many[0].length = UINT32_MAX;
	lists.send[1].sg_list = lists.many;
	lists.send[1].opcode = IBV_WR_SEND;
	lists.send[1].send_flags = IBV_SEND_INLINE;
	refused_send(&lists, __LINE__);
	/* the total exceeds the length of a message, and 32 bits */
	for (int i = 0; i < 4; i++)
		lists.many[i].length = UINT32_MAX;
	lists.send[1].sg_list = lists.many;
	lists.send[1].num_sge = 4;
	refused_send(&lists, __LINE__);
	close_lists(&lists, side);
}

/*
 * Invalid local memory of a request. The request fails, the memory of neither side changes, and the
 * connection ends.
 */
enum local { GONE, OTHER_PD, TOO_LONG, WRAPS, BEFORE, NOT_WRITABLE, NO_SUCH_KEY };

static void
local_i(struct side *side, enum local what)
{
	struct end end;
	char *memory = pages(SIZE);
	struct ibv_sge sge = {(uintptr_t)memory, 64, 0};
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED}, *bad;
	struct place place;
	struct ibv_pd *other;
	struct ibv_mr *mr;
	struct ibv_wc wc;

	connect_end(&end, side);
	receive_bytes(side, &place, sizeof(place));
	memset(memory, 'i', SIZE);
	other = ibv_alloc_pd(end.id->verbs);
	MADE(other);
	mr = REG_MR(what == OTHER_PD ? other : end.pd, memory, SIZE / 2, what == NOT_WRITABLE ? 0 : IBV_ACCESS_LOCAL_WRITE);
	sge.lkey = mr->lkey;
	if (what == GONE)
		DONE(ibv_dereg_mr(mr));
	if (what == TOO_LONG)
		sge.length = SIZE / 2 + 1;
	if (what == WRAPS)
		sge = (struct ibv_sge){UINT64_MAX - 8, 64, mr->lkey};
	if (what == BEFORE)
		sge.addr -= 1;
	if (what == NO_SUCH_KEY)
		sge.lkey = ~mr->lkey;
	wr.wr.rdma.remote_addr = place.addr;
	wr.wr.rdma.rkey = place.rkey;
	DONE(ibv_post_send(end.id->qp, &wr, &bad));
	wc = next_send(&end);
	EXPECT(wc.wr_id == 1 && wc.status == IBV_WC_LOC_PROT_ERR, "%s", ibv_wc_status_str(wc.status));
	/* rxe has placed the packets before */
	if (!on_device())
		check_bytes(memory, SIZE / 2, 'i', "the initiator's memory");
	check_bytes(memory + SIZE / 2, SIZE / 2, 'i', "the memory after the region");
	if (what != GONE)
		DONE(ibv_dereg_mr(mr));
	DONE(ibv_dealloc_pd(other));
	notify(side, 'd');
	close_end(&end);
}

static void gone_i(struct side *side) { local_i(side, GONE); }
static void other_pd_i(struct side *side) { local_i(side, OTHER_PD); }
static void too_long_i(struct side *side) { local_i(side, TOO_LONG); }
static void wraps_i(struct side *side) { local_i(side, WRAPS); }
static void before_i(struct side *side) { local_i(side, BEFORE); }
static void not_writable_i(struct side *side) { local_i(side, NOT_WRITABLE); }
static void no_such_key_i(struct side *side) { local_i(side, NO_SUCH_KEY); }

/* Invalid remote memory of a request: a read, so the request itself fails. */
static void
remote_t(struct side *side, enum local what)
{
	struct end end;
	char *memory = pages(SIZE);
	struct place place = {(uintptr_t)memory, 0, 64};
	struct ibv_pd *other;
	struct ibv_mr *mr;

	accept_end(&end, side);
	other = ibv_alloc_pd(end.id->verbs);
	MADE(other);
	mr = REG_MR(what == OTHER_PD ? other : end.pd, memory, SIZE / 2, FULL);
	place.rkey = mr->rkey;
	if (what == GONE)
		DONE(ibv_dereg_mr(mr));
	if (what == TOO_LONG)
		place.length = SIZE / 2 + 1;
	if (what == WRAPS)
		place.addr = UINT64_MAX - 8;
	if (what == BEFORE)
		place.addr -= 1;
	if (what == NO_SUCH_KEY)
		place.rkey = ~mr->rkey;
	send_bytes(side, &place, sizeof(place));
	await(side, 'd');
	if (what != GONE)
		DONE(ibv_dereg_mr(mr));
	DONE(ibv_dealloc_pd(other));
	close_end(&end);
}

static void
remote_i(struct side *side)
{
	struct end end;
	char *memory = pages(SIZE);
	struct place place;
	struct ibv_mr *mr;

	mr = connect_with_memory(&end, side, memory, SIZE);
	receive_bytes(side, &place, sizeof(place));
	memset(memory, 'i', SIZE);
	EXPECT_TRANSFER(IBV_WC_REM_ACCESS_ERR, &end, IBV_WR_RDMA_READ, mr, memory, place.length, place.addr, place.rkey);
	check_bytes(memory, SIZE, 'i', "the initiator's memory");
	notify(side, 'd');
	close_with_memory(&end, mr);
}

static void remote_gone_t(struct side *side) { remote_t(side, GONE); }
static void remote_other_pd_t(struct side *side) { remote_t(side, OTHER_PD); }
static void remote_too_long_t(struct side *side) { remote_t(side, TOO_LONG); }
static void remote_wraps_t(struct side *side) { remote_t(side, WRAPS); }
static void remote_before_t(struct side *side) { remote_t(side, BEFORE); }
static void remote_no_such_key_t(struct side *side) { remote_t(side, NO_SUCH_KEY); }

/* A receive with invalid memory, or with too little: it fails, and so does the message. */
static void
receive_t(struct side *side, bool is_short)
{
	struct end end;
	char *memory = pages(SIZE);
	struct ibv_mr *mr;
	struct ibv_sge sge = {(uintptr_t)memory, is_short ? 8 : 64, 0};
	struct ibv_recv_wr wr = {.wr_id = 6, .sg_list = &sge, .num_sge = 1}, *bad;
	struct ibv_wc wc;

	accept_end(&end, side);
	mr = REG_MR(end.pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE);
	sge.lkey = mr->lkey;
	if (!is_short)
		DONE(ibv_dereg_mr(mr));
	DONE(ibv_post_recv(end.id->qp, &wr, &bad));
	notify(side, 'r');
	wc = next_recv(&end);
	/* rxe reports the same error for both */
	EXPECT(wc.wr_id == 6 && wc.status == (on_device() ? IBV_WC_LOC_QP_OP_ERR : is_short ? IBV_WC_LOC_LEN_ERR : IBV_WC_LOC_PROT_ERR), "%s",
		ibv_wc_status_str(wc.status));
	check_bytes(memory + 8, SIZE - 8, 0, "the memory after the receive");
	if (!is_short) {
		check_bytes(memory, 8, 0, "deregistered memory");
	} else {
		DONE(ibv_dereg_mr(mr));
	}
	await(side, 'd');
	close_end(&end);
}

static void receive_gone_t(struct side *side) { receive_t(side, false); }
static void receive_short_t(struct side *side) { receive_t(side, true); }

static void
message_i(struct side *side)
{
	struct end end;
	char data[64] = "message";
	struct ibv_sge sge = {(uintptr_t)data, sizeof(data), 0};
	struct ibv_send_wr wr = {.wr_id = 2, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE}, *bad;

	connect_end(&end, side);
	await(side, 'r');
	DONE(ibv_post_send(end.id->qp, &wr, &bad));
	next_send(&end); /* it may complete before it fails at the target */
	notify(side, 'd');
	close_end(&end);
}

/* Sizes and numbers above the limits of the objects. */
static void
sizes_i(struct side *side)
{
	struct rdma_cm_id *id;
	struct ibv_context *device = device_of(side, &id);
	struct ibv_pd *pd = ibv_alloc_pd(device);
	struct ibv_cq *cq = ibv_create_cq(device, 8, NULL, NULL, 0);
	struct ibv_device_attr limits;
	struct ibv_qp_init_attr attr;
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_cq_init_attr_ex extended = {.cqe = 0};
	char *memory = pages(SIZE);
	union ibv_gid gid;
	struct ibv_port_attr port;
	__be16 pkey;

	MADE(pd);
	MADE(cq);
	DONE(ibv_query_device(device, &limits));
#define NO_CQ(entries, vector)                                                                     \
	EXPECT(ibv_create_cq(device, (entries), NULL, NULL, (vector)) == NULL && errno == EINVAL, "%s", strerror(errno))
	NO_CQ(0, 0);
	NO_CQ(-1, 0);
	NO_CQ(INT_MIN, 0);
	NO_CQ(INT_MAX, 0);
	NO_CQ(limits.max_cqe + 1, 0);
	NO_CQ(8, -1);
	NO_CQ(8, device->num_comp_vectors);
	NO_CQ(8, INT_MAX);
	EXPECT(ibv_create_cq_ex(device, &extended) == NULL && errno == EINVAL, "%s", strerror(errno));
	extended.cqe = UINT32_MAX;
	EXPECT(ibv_create_cq_ex(device, &extended) == NULL && errno == EINVAL, "%s", strerror(errno));
	EXPECT(ibv_resize_cq(cq, 0) == EINVAL && ibv_resize_cq(cq, -1) == EINVAL && ibv_resize_cq(cq, INT_MAX) == EINVAL, "");

#define NO_QP(field, value)                                                                        \
	do {                                                                                       \
		attr = end_attributes();                                                           \
		attr.send_cq = attr.recv_cq = cq;                                                  \
		attr.field = (value);                                                              \
		EXPECT(ibv_create_qp(pd, &attr) == NULL && errno == EINVAL, "%s", strerror(errno)); \
		EXPECT(rdma_create_qp(id, pd, &attr) == -1 && errno == EINVAL && id->qp == NULL, "%s", strerror(errno)); \
	} while (0)
	NO_QP(cap.max_send_wr, (unsigned)limits.max_qp_wr + 1);
	NO_QP(cap.max_recv_wr, (unsigned)limits.max_qp_wr + 1);
	NO_QP(cap.max_send_wr, UINT32_MAX);
	NO_QP(cap.max_recv_wr, UINT32_MAX);
	NO_QP(cap.max_send_sge, (unsigned)limits.max_sge + 1);
	NO_QP(cap.max_recv_sge, (unsigned)limits.max_sge + 1);
	NO_QP(cap.max_send_sge, UINT32_MAX);
	NO_QP(cap.max_inline_data, UINT32_MAX);

#define NO_SRQ(field, value)                                                                       \
	do {                                                                                       \
		srq.attr = (struct ibv_srq_attr){.max_wr = 8, .max_sge = 1};                       \
		srq.attr.field = (value);                                                          \
		EXPECT(ibv_create_srq(pd, &srq) == NULL && errno == EINVAL, "%s", strerror(errno)); \
	} while (0)
	NO_SRQ(max_wr, (unsigned)limits.max_srq_wr + 1);
	NO_SRQ(max_wr, UINT32_MAX);
	NO_SRQ(max_sge, (unsigned)limits.max_srq_sge + 1);

#define NO_MR(addr, length, access)                                                                \
	EXPECT(ibv_reg_mr(pd, (addr), (length), (access)) == NULL && errno == EINVAL, "%s", strerror(errno))
	NO_MR(memory, SIZE_MAX, FULL);
	NO_MR(memory, SIZE_MAX - (uintptr_t)memory + 1, FULL);
	NO_MR(memory, SIZE, 1 << 15);
	EXPECT(ibv_reg_mr_iova(pd, memory, SIZE, UINT64_MAX - SIZE / 2, FULL) == NULL && errno == EINVAL, "%s", strerror(errno));

	EXPECT(ibv_query_port(device, 0, &port) == EINVAL && ibv_query_port(device, 255, &port) == EINVAL, "");
	EXPECT(ibv_query_gid(device, 1, -1, &gid) == -1 && ibv_query_gid(device, 0, 0, &gid) == -1, "");
	EXPECT(ibv_query_pkey(device, 1, 10000, &pkey) == -1 && ibv_query_pkey(device, 9, 0, &pkey) == -1, "");

	/* the device still creates the smallest of each */
	attr = end_attributes();
	attr.send_cq = attr.recv_cq = cq;
	DONE(rdma_create_qp(id, pd, &attr));
	EXPECT(rdma_create_qp(id, pd, &attr) == -1 && errno == EINVAL, "a second queue pair");
	rdma_destroy_qp(id);
	DONE(ibv_destroy_cq(cq));
	DONE(ibv_dealloc_pd(pd));
	rdma_destroy_id(id);
}

/* An object that others need cannot be destroyed before them. */
static void
order_i(struct side *side)
{
	struct rdma_cm_id *id;
	struct ibv_context *device = device_of(side, &id);
	struct ibv_pd *pd = ibv_alloc_pd(device);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(device);
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_qp_init_attr attr = end_attributes();
	char *memory = pages(SIZE);
	struct ibv_srq *srq;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;

	MADE(pd);
	MADE(channel);
	cq = ibv_create_cq(device, 8, NULL, channel, 0);
	MADE(cq);
	srq = ibv_create_srq(pd, &init);
	MADE(srq);
	mr = REG_MR(pd, memory, SIZE, FULL);
	attr.send_cq = attr.recv_cq = cq;
	attr.srq = srq;
	qp = ibv_create_qp(pd, &attr);
	MADE(qp);
	EXPECT(ibv_destroy_comp_channel(channel) == EBUSY, "a queue uses the channel");
	EXPECT(ibv_destroy_cq(cq) == EBUSY, "a queue pair uses the queue");
	EXPECT(ibv_destroy_srq(srq) == EBUSY, "a queue pair uses the queue");
	EXPECT(ibv_dealloc_pd(pd) == EBUSY, "all use the protection domain");
	DONE(ibv_destroy_qp(qp));
	EXPECT(ibv_dealloc_pd(pd) == EBUSY, "a region and a queue use the protection domain");
	DONE(ibv_destroy_srq(srq));
	EXPECT(ibv_dealloc_pd(pd) == EBUSY, "a region uses the protection domain");
	DONE(ibv_dereg_mr(mr));
	DONE(ibv_dealloc_pd(pd));
	EXPECT(ibv_destroy_comp_channel(channel) == EBUSY, "a queue uses the channel");
	DONE(ibv_destroy_cq(cq));
	DONE(ibv_destroy_comp_channel(channel));
	rdma_destroy_id(id);
}

/* Calls of rdma_cm in the wrong state. */
static void
calls_i(struct side *side)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *found;
	struct sockaddr unknown = {.sa_family = AF_UNIX};
	/* 192.0.2.1 */
	struct sockaddr_in elsewhere = {.sin_family = AF_INET, .sin_addr = {htonl(0xc0000201)}};
	struct rdma_cm_id *id, *idle;
	struct pollfd fd = {.events = POLLIN};
	struct rdma_cm_event *event;
	int one = 1;

	MADE(channel);
#define REFUSES(call) EXPECT((call) == -1 && errno == EINVAL, "%s", strerror(errno))
	REFUSES(rdma_get_cm_event(channel, NULL));
	REFUSES(rdma_ack_cm_event(NULL));
	REFUSES(rdma_getaddrinfo(NULL, NULL, NULL, &found));
	rdma_freeaddrinfo(NULL);
	DONE(rdma_getaddrinfo(side->addr, side->port, &hints, &found));
	DONE(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	DONE(rdma_create_id(channel, &idle, NULL, RDMA_PS_TCP));
	REFUSES(rdma_bind_addr(id, NULL));
	REFUSES(rdma_bind_addr(id, &unknown));
	EXPECT(rdma_bind_addr(id, (struct sockaddr *)&elsewhere) == -1, "the address of another host was bound");
	REFUSES(rdma_resolve_addr(id, NULL, NULL, 1000));
	REFUSES(rdma_resolve_addr(id, NULL, &unknown, 1000));
	REFUSES(rdma_reject(id, NULL, 0));
	EXPECT(rdma_set_option(id, 77, 0, &one, sizeof(one)) == -1 && errno == ENOSYS, "%s", strerror(errno));
	EXPECT(rdma_set_option(id, RDMA_OPTION_ID, 77, &one, sizeof(one)) == -1 && errno == ENOSYS, "%s", strerror(errno));
	REFUSES(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &one, 2));
	EXPECT(rdma_get_src_port(id) == 0 && rdma_get_dst_port(id) == 0, "");

	/* an event that could not be fetched is still pending */
	DONE(rdma_resolve_addr(id, NULL, found->ai_dst_addr, 2000));
	fd.fd = channel->fd;
	EXPECT(poll(&fd, 1, 5000) == 1, "no event");
	REFUSES(rdma_get_cm_event(channel, NULL));
	EXPECT(poll(&fd, 1, 0) == 1, "the event is lost");
	DONE(rdma_get_cm_event(channel, &event));
	EXPECT(event->id == id && event->event == RDMA_CM_EVENT_ADDR_RESOLVED, "%s", rdma_event_str(event->event));
	DONE(rdma_ack_cm_event(event));
	rdma_freeaddrinfo(found);
	DONE(rdma_destroy_id(id));
	DONE(rdma_destroy_id(idle));
	rdma_destroy_event_channel(channel);
}

/*
 * Objects of another device, as a program with an adapter might confuse them. There is no adapter here, so
 * they are imitated: the library may read only their device.
 */
static void
foreign_i(struct side *side)
{
	struct rdma_cm_id *id;
	struct ibv_context *device = device_of(side, &id);
	struct ibv_context *adapter = calloc(1, sizeof(*adapter));
	struct ibv_pd *pd = ibv_alloc_pd(device);
	struct ibv_cq *cq = ibv_create_cq(device, 8, NULL, NULL, 0);
	/* each ends at the end of mapped memory: an access beyond it raises a signal */
#define FOREIGN(type, object)                                                                      \
	struct type *object = (struct type *)(void *)(pages(2 * SIZE) + SIZE - sizeof(struct type)); \
	DONE(mprotect((char *)(void *)object + sizeof(struct type), SIZE, PROT_NONE));             \
	object->context = adapter
	FOREIGN(ibv_pd, foreign_pd);
	FOREIGN(ibv_comp_channel, foreign_channel);
	FOREIGN(ibv_srq, foreign_srq);
	FOREIGN(ibv_cq, foreign_cq);
	FOREIGN(ibv_mr, foreign_mr);
	FOREIGN(ibv_mw, foreign_mw);
	FOREIGN(ibv_qp, foreign_qp);
	struct ibv_cq_init_attr_ex queue = {.cqe = 8, .channel = foreign_channel};
	struct ibv_srq_init_attr shared = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_qp_init_attr attr = end_attributes();
	/* with only the protection domain, the inline function would call that of the adapter */
	struct ibv_qp_init_attr_ex extended = {.cap = attr.cap, .qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .pd = foreign_pd, .send_cq = cq, .recv_cq = cq};
	struct ibv_mw_bind bind = {.bind_info = {.mr = foreign_mr, .addr = 0, .length = 8}};
	struct ibv_send_wr wr = {.opcode = IBV_WR_BIND_MW}, *bad;
	struct rdma_conn_param param = {.responder_resources = 1};
	char *memory = pages(SIZE);
	struct ibv_mr *mr;
	struct ibv_mw *mw;

	MADE(pd);
	MADE(cq);
	mr = REG_MR(pd, memory, SIZE, FULL);
	EXPECT(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, foreign_pd, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT && errno == EINVAL, "%s",
		strerror(errno));
	EXPECT(ibv_create_cq(device, 8, NULL, foreign_channel, 0) == NULL && errno == EINVAL, "%s", strerror(errno));
	EXPECT(ibv_create_cq_ex(device, &queue) == NULL && errno == EINVAL, "%s", strerror(errno));

#define NO_FOREIGN(field, object)                                                                  \
	do {                                                                                       \
		attr = end_attributes();                                                           \
		attr.send_cq = attr.recv_cq = cq;                                                  \
		attr.field = (object);                                                             \
		EXPECT(ibv_create_qp(pd, &attr) == NULL && errno == EINVAL, "%s", strerror(errno)); \
		EXPECT(rdma_create_qp(id, pd, &attr) == -1 && errno == EINVAL && id->qp == NULL, "%s", strerror(errno)); \
	} while (0)
	NO_FOREIGN(send_cq, foreign_cq);
	NO_FOREIGN(recv_cq, foreign_cq);
	NO_FOREIGN(srq, foreign_srq);
	EXPECT(ibv_create_qp_ex(device, &extended) == NULL && errno == EINVAL, "%s", strerror(errno));
	EXPECT(rdma_create_qp_ex(id, &extended) == -1 && errno == EINVAL, "%s", strerror(errno));
	attr = end_attributes();
	EXPECT(rdma_create_qp(id, foreign_pd, &attr) == -1 && errno == EINVAL && id->qp == NULL, "%s", strerror(errno));
	EXPECT(rdma_create_srq(id, foreign_pd, &shared) == -1 && errno == EINVAL && id->srq == NULL, "%s", strerror(errno));
	DONE(rdma_resolve_route(id, 2000));
	id->qp = foreign_qp;
	EXPECT(rdma_connect(id, &param) == -1 && errno == EINVAL, "%s", strerror(errno));
	id->qp = NULL;

	attr = end_attributes();
	DONE(rdma_create_qp(id, pd, &attr));
	mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	MADE(mw);
	EXPECT(ibv_bind_mw(id->qp, mw, &bind) == EPERM, "a region of another device");
	bind.bind_info = (struct ibv_mw_bind_info){.mr = mr, .addr = (uintptr_t)memory, .length = 8};
	EXPECT(ibv_bind_mw(foreign_qp, mw, &bind) == EINVAL, "a queue pair of another device");
	wr.bind_mw.mw = foreign_mw;
	wr.bind_mw.bind_info = bind.bind_info;
	EXPECT(ibv_post_send(id->qp, &wr, &bad) == EINVAL && bad == &wr, "a window of another device");
	DONE(ibv_dealloc_mw(mw));
	rdma_destroy_qp(id);
	DONE(ibv_dereg_mr(mr));
	DONE(ibv_destroy_cq(cq));
	DONE(ibv_dealloc_pd(pd));
	rdma_destroy_id(id);
	free(adapter);
}

/* NULL for required members and arguments, and an identifier without a device. */
static void
null_i(struct side *side)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id, *unresolved, *none = NULL;
	struct ibv_context *device = device_of(side, &id);
	struct ibv_pd *pd = ibv_alloc_pd(device);
	struct ibv_cq *cq = ibv_create_cq(device, 8, NULL, NULL, 0);
	struct ibv_qp_init_attr attr = end_attributes();
	struct ibv_srq_init_attr shared = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *found;
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};

	MADE(channel);
	MADE(pd);
	MADE(cq);
	EXPECT(ibv_create_qp(pd, &attr) == NULL && errno == EINVAL, "a queue pair without completion queues");
	attr.send_cq = cq;
	EXPECT(ibv_create_qp(pd, &attr) == NULL && errno == EINVAL, "a queue pair without a queue for receives");
	attr = end_attributes();
	DONE(rdma_create_id(channel, &unresolved, NULL, RDMA_PS_TCP));
	REFUSES(rdma_create_qp(unresolved, NULL, &attr)); /* which has no device yet */
	REFUSES(rdma_create_srq(unresolved, NULL, &shared));
	REFUSES(rdma_connect(unresolved, &param));
	REFUSES(rdma_accept(unresolved, &param));
	REFUSES(rdma_disconnect(unresolved));
	REFUSES(rdma_resolve_route(unresolved, 1000));
	REFUSES(rdma_connect(id, &param)); /* without a route, and without a queue pair */
	REFUSES(rdma_create_qp(NULL, pd, &attr));
	REFUSES(rdma_create_qp(id, pd, NULL));
	REFUSES(rdma_create_qp_ex(id, NULL));
	DONE(rdma_getaddrinfo(side->addr, side->port, &hints, &found));
	REFUSES(rdma_create_ep(NULL, found, NULL, NULL));
	REFUSES(rdma_create_ep(&none, NULL, NULL, NULL));
	EXPECT(none == NULL, "");
	rdma_freeaddrinfo(found);
	REFUSES(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, NULL, 1));
	REFUSES(rdma_get_request(NULL, &none));
	/* nothing to destroy */
	rdma_destroy_qp(id);
	rdma_destroy_srq(id);
	DONE(rdma_destroy_id(unresolved));
	DONE(ibv_destroy_cq(cq));
	DONE(ibv_dealloc_pd(pd));
	rdma_destroy_id(id);
	rdma_destroy_event_channel(channel);
}

/*
 * A queue pair is destroyed with outstanding requests and receives, while the peer sends: it generates no
 * further completion.
 */
static void
destroyed_t(struct side *side)
{
	offer_until_done(side, SIZE, FULL);
}

static void
destroyed_i(struct side *side)
{
	struct rdma_cm_id *device_id;
	struct ibv_context *device = device_of(side, &device_id);
	struct ibv_qp_init_attr attr = end_attributes();
	char *memory = pages(SIZE);
	struct ibv_sge sge = {(uintptr_t)memory, SIZE, 0};
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED}, *bad;
	struct ibv_recv_wr receive = {.wr_id = 2}, *bad_receive;
	struct place place;
	struct end end;
	struct ibv_pd *pd = ibv_alloc_pd(device);
	struct ibv_cq *cq = ibv_create_cq(device, 128, NULL, NULL, 0);
	struct ibv_mr *mr;
	struct ibv_wc wc;

	MADE(pd);
	MADE(cq);
	attr.send_cq = attr.recv_cq = cq;
	connect_end_with(&end, side, pd, &attr);
	receive_bytes(side, &place, sizeof(place));
	mr = REG_MR(pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE);
	sge.lkey = mr->lkey;
	wr.wr.rdma.remote_addr = place.addr;
	wr.wr.rdma.rkey = place.rkey;
	for (int i = 0; i < 32; i++)
		DONE(ibv_post_recv(end.id->qp, &receive, &bad_receive));
	for (int i = 0; i < 32; i++)
		DONE(ibv_post_send(end.id->qp, &wr, &bad));
	rdma_destroy_qp(end.id);
	EXPECT(end.id->qp == NULL, "");
	/* earlier completions may be in the queue, none of which has failed; later ones do not appear */
	while (ibv_poll_cq(cq, 1, &wc) == 1)
		EXPECT(wc.wr_id == 1 && wc.status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(wc.status));
	DONE(ibv_dereg_mr(mr));
	DONE(munmap(memory, SIZE));
	sleep_ms(20);
	EXPECT(ibv_poll_cq(cq, 1, &wc) == 0, "a completion of a destroyed queue pair");
	DONE(ibv_destroy_cq(cq));
	DONE(ibv_dealloc_pd(pd));
	rdma_disconnect(end.id);
	rdma_destroy_id(end.id);
	rdma_destroy_id(device_id);
	notify(side, 'd');
}

const struct test hostile[] = {
	{.name = "hostile-requests", .target = untouched_t, .initiator = limits_i},
	{.name = "hostile-absurd-requests", .target = untouched_t, .initiator = absurd_i},
	{.name = "hostile-local-region-gone", .target = untouched_t, .initiator = gone_i},
	{.name = "hostile-local-other-pd", .target = untouched_t, .initiator = other_pd_i},
	{.name = "hostile-local-too-long", .target = untouched_t, .initiator = too_long_i},
	{.name = "hostile-local-wraps", .target = untouched_t, .initiator = wraps_i},
	{.name = "hostile-local-before", .target = untouched_t, .initiator = before_i},
	{.name = "hostile-local-not-writable", .target = untouched_t, .initiator = not_writable_i},
	{.name = "hostile-local-no-such-key", .target = untouched_t, .initiator = no_such_key_i},
	{.name = "hostile-remote-region-gone", .target = remote_gone_t, .initiator = remote_i},
	{.name = "hostile-remote-other-pd", .target = remote_other_pd_t, .initiator = remote_i},
	{.name = "hostile-remote-too-long", .target = remote_too_long_t, .initiator = remote_i},
	{.name = "hostile-remote-wraps", .target = remote_wraps_t, .initiator = remote_i},
	{.name = "hostile-remote-before", .target = remote_before_t, .initiator = remote_i},
	{.name = "hostile-remote-no-such-key", .target = remote_no_such_key_t, .initiator = remote_i},
	{.name = "hostile-receive-region-gone", .target = receive_gone_t, .initiator = message_i},
	{.name = "hostile-receive-too-short", .target = receive_short_t, .initiator = message_i},
	{.name = "hostile-sizes", .target = nothing, .initiator = sizes_i},
	{.name = "hostile-order-of-destruction", .target = nothing, .initiator = order_i},
	{.name = "hostile-calls", .target = nothing, .initiator = calls_i},
	{.name = "hostile-objects-of-another-device", .target = nothing, .initiator = foreign_i},
	{.name = "hostile-null", .target = nothing, .initiator = null_i},
	{.name = "hostile-destroyed-while-in-use", .target = destroyed_t, .initiator = destroyed_i},
	{.name = NULL},
};
