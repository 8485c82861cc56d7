/* SPDX-License-Identifier: BSD-3-Clause */
/* queues.c -- completion queues, shared receive queues, the extended interfaces, asynchronous events */
#include "ends.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>

#define SIZE 4096
#define FULL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

static void
nothing(struct side *side)
{
	(void)side;
}

static void
attributes_i(struct side *side)
{
	struct rdma_cm_id *id;
	struct ibv_context *device = device_of(side, &id);
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	struct ibv_device_attr_ex extended;
	struct ibv_gid_entry first;
	union ibv_gid gid;
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);

	MADE(list);
	EXPECT(n >= 1 && list[n] == NULL, "%d devices", n);
	ibv_free_device_list(list);
	DONE(ibv_query_device(device, &attr));
	DONE(ibv_query_device_ex(device, NULL, &extended));
	EXPECT(attr.max_sge >= 4 && attr.max_cqe > 0 && memcmp(&attr, &extended.orig_attr, sizeof(attr)) == 0, "");
	DONE(ibv_query_port(device, 1, &port));
	EXPECT(port.state == IBV_PORT_ACTIVE && port.gid_tbl_len > 0, "");
	EXPECT(ibv_query_port(device, 2, &port) == EINVAL, "");
	DONE(ibv_query_gid(device, 1, 0, &gid));
	EXPECT(ibv_query_gid(device, 1, port.gid_tbl_len + 10000, &gid) == -1, "");
	EXPECT(extended.phys_port_cnt_ex == 1, "%u ports", extended.phys_port_cnt_ex);
	EXPECT(on_device() || (attr.vendor_id == 0x02736f && attr.vendor_part_id == 1), "%#x %#x", attr.vendor_id, attr.vendor_part_id);
	EXPECT(ibv_query_gid_table(device, &first, 0, 0) == -EINVAL, "a table without room for the first entry");
	rdma_destroy_id(id);
}

static void
limit_i(struct side *side)
{
	struct rdma_cm_id *id;
	struct ibv_context *device = device_of(side, &id);
	struct ibv_pd *pd = ibv_alloc_pd(device);
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 16, .max_sge = 2}};
	struct ibv_srq_attr attr = {.srq_limit = 4};
	struct ibv_async_event event;
	struct ibv_srq *srq;
	struct pollfd fd = {.fd = device->async_fd, .events = POLLIN};

	MADE(pd);
	srq = ibv_create_srq(pd, &init);
	MADE(srq);
	DONE(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT)); /* there are no receives, which is below the limit */
	EXPECT(poll(&fd, 1, 5000) == 1, "no event");
	DONE(ibv_get_async_event(device, &event));
	EXPECT(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq == srq, "event %d", event.event_type);
	ibv_ack_async_event(&event);
	DONE(ibv_query_srq(srq, &attr));
	EXPECT(attr.srq_limit == 0 && attr.max_wr >= 16, "");
	EXPECT(poll(&fd, 1, 0) == 0, "a second event");
	EXPECT(ibv_dealloc_pd(pd) == EBUSY, "");
	DONE(ibv_destroy_srq(srq));
	DONE(ibv_dealloc_pd(pd));
	rdma_destroy_id(id);
}

/* The next event must be this one, of this queue pair. */
static void
expect_event(struct ibv_context *device, enum ibv_event_type type, struct ibv_qp *qp)
{
	struct pollfd fd = {.fd = device->async_fd, .events = POLLIN};
	struct ibv_async_event event;

	EXPECT(poll(&fd, 1, 5000) == 1, "no event");
	DONE(ibv_get_async_event(device, &event));
	EXPECT(event.event_type == type && event.element.qp == qp, "%s", ibv_event_type_str(event.event_type));
	ibv_ack_async_event(&event);
}

/* A connection that fails raises an event on both sides: the initiator reads memory without the right. */
static void
fatal_t(struct side *side)
{
	struct end end;
	struct place place = {0};

	accept_end(&end, side);
	place.addr = (uintptr_t)pages(SIZE);
	send_bytes(side, &place, sizeof(place));
	expect_event(end.id->verbs, IBV_EVENT_QP_FATAL, end.id->qp);
	await(side, 'd');
	close_end(&end);
}

static void
fatal_i(struct side *side)
{
	struct end end;
	char *memory = pages(SIZE);
	struct pollfd fd = {.events = POLLIN};
	struct place place;
	struct ibv_mr *mr;

	connect_end(&end, side);
	fd.fd = end.id->verbs->async_fd;
	receive_bytes(side, &place, sizeof(place));
	mr = REG_MR(end.pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE);
	EXPECT(poll(&fd, 1, 0) == 0, "an event of a connection that works");
	EXPECT_TRANSFER(IBV_WC_REM_ACCESS_ERR, &end, IBV_WR_RDMA_READ, mr, memory, SIZE, place.addr, 0x12345);
	expect_event(end.id->verbs, IBV_EVENT_QP_FATAL, end.id->qp);
	notify(side, 'd');
	close_with_memory(&end, mr);
}

/*
 * In strict mode an overrun completion queue enters the error state once, with its queue pair, and the
 * connection ends at the other side.
 */
#define ENTRIES 4
#define WRITES 16

static void
overrun_t(struct side *side)
{
	offer_until_done(side, SIZE, FULL);
}

/*
 * Posts more writes than the completion queue has entries, without polling. Returns the number of successful
 * completions.
 */
static unsigned
overrun(struct side *side, bool ignored, struct end *end, struct ibv_cq **cq)
{
	struct ibv_cq_init_attr_ex asked = {.cqe = ENTRIES, .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
		.flags = ignored ? IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN : 0};
	struct ibv_qp_init_attr attr = {.cap = {WRITES, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
	char *memory = pages(SIZE);
	struct rdma_cm_id *id;
	struct ibv_cq_ex *queue;
	struct place place;
	struct ibv_mr *mr;
	unsigned good = 0;

	queue = ibv_create_cq_ex(device_of(side, &id), &asked);
	MADE(queue);
	*cq = ibv_cq_ex_to_cq(queue);
	attr.send_cq = attr.recv_cq = *cq;
	connect_end_with(end, side, NULL, &attr);
	receive_bytes(side, &place, sizeof(place));
	mr = REG_MR(end->pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE);
	for (unsigned i = 0; i < WRITES; i++) {
		struct ibv_sge sge = {(uintptr_t)memory, 8, mr->lkey};
		struct ibv_send_wr *bad, wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
			.wr.rdma = {place.addr, place.rkey}};

		DONE(ibv_post_send(end->id->qp, &wr, &bad));
	}
	sleep_ms(50);
	for (unsigned i = 0; i < WRITES;) {
		struct ibv_wc wc;
		int n = ibv_poll_cq(*cq, 1, &wc);

		EXPECT(n >= 0 && (n == 0 || wc.wr_id == i), "%d", n);
		good += n == 1 && wc.status == IBV_WC_SUCCESS;
		EXPECT(n == 0 || wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_WR_FLUSH_ERR, "status %d", wc.status);
		i += (unsigned)n;
	}
	rdma_destroy_id(id);
	DONE(ibv_dereg_mr(mr));
	return good;
}

static void
overrun_i(struct side *side)
{
	struct ibv_async_event event;
	struct ibv_cq *cq;
	struct end end;
	struct pollfd fd = {.events = POLLIN};

	setenv("SOFTVERBS_STRICT", "adapter", 1);
	EXPECT(overrun(side, false, &end, &cq) >= ENTRIES, "");
	fd.fd = end.id->verbs->async_fd;
	EXPECT(poll(&fd, 1, 5000) == 1, "no event");
	DONE(ibv_get_async_event(end.id->verbs, &event));
	EXPECT(event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == cq, "%s", ibv_event_type_str(event.event_type));
	ibv_ack_async_event(&event);
	expect_event(end.id->verbs, IBV_EVENT_QP_FATAL, end.id->qp);
	EXPECT(poll(&fd, 1, 0) == 0, "a third event");
	notify(side, 'd');
	close_end(&end);
	DONE(ibv_destroy_cq(cq));
}

/*
 * Without strict mode, and with IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN, each completion is added once the queue
 * has room.
 */
static void
roomy(struct side *side, bool ignored)
{
	struct ibv_cq *cq;
	struct end end;
	struct pollfd fd = {.events = POLLIN};

	EXPECT(overrun(side, ignored, &end, &cq) == WRITES, "");
	fd.fd = end.id->verbs->async_fd;
	EXPECT(poll(&fd, 1, 0) == 0, "an event");
	notify(side, 'd');
	close_end(&end);
	DONE(ibv_destroy_cq(cq));
}

static void
warned_overrun_i(struct side *side)
{
	setenv("SOFTVERBS_STRICT", "warn", 1);
	roomy(side, false);
}

static void
ignored_overrun_i(struct side *side)
{
	setenv("SOFTVERBS_STRICT", "adapter", 1);
	roomy(side, true);
}

/*
 * A message without a receive is repeated as often as the connection permits, here once; in strict mode with
 * the delay of the queue pair.
 */
static void
unreceived_t(struct side *side)
{
	struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP}, *found;
	struct ibv_qp_init_attr attr = {.cap = {8, 8, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1, .rnr_retry_count = 1};
	struct rdma_cm_id *listener, *id;
	struct pollfd fd = {.events = POLLIN};

	setenv("SOFTVERBS_STRICT", "adapter", 1);
	DONE(rdma_getaddrinfo(side->addr, side->port, &hints, &found));
	DONE(rdma_create_ep(&listener, found, NULL, &attr));
	rdma_freeaddrinfo(found);
	DONE(rdma_listen(listener, 1));
	notify(side, 'L');
	DONE(rdma_get_request(listener, &id));
	DONE(rdma_accept(id, &param));
	fd.fd = id->verbs->async_fd;
	notify(side, 'A');
	await(side, 'C');
	await(side, 's');
	EXPECT(poll(&fd, 1, 400) == 0, "it was not repeated");
	expect_event(id->verbs, IBV_EVENT_QP_FATAL, id->qp);
	rdma_disconnect(id);
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
}

static void
unreceived_i(struct side *side)
{
	struct end end;
	char *memory = pages(SIZE);
	struct ibv_mr *mr;

	mr = connect_with_memory(&end, side, memory, SIZE);
	EXPECT_TRANSFER(IBV_WC_SUCCESS, &end, IBV_WR_SEND, mr, memory, 8, 0, 0);
	notify(side, 's');
	expect_event(end.id->verbs, IBV_EVENT_QP_FATAL, end.id->qp);
	close_with_memory(&end, mr);
}

/*
 * An event reports that a queue pair takes no more receives from its shared receive queue; here after the
 * other side has disconnected.
 */
static void
last_wqe_t(struct side *side)
{
	struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP}, *found;
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 16, .max_sge = 1}};
	struct ibv_qp_init_attr attr = {.cap = {8, 8, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
	struct rdma_cm_id *listener, *id;

	DONE(rdma_getaddrinfo(side->addr, side->port, &hints, &found));
	DONE(rdma_create_ep(&listener, found, NULL, NULL));
	rdma_freeaddrinfo(found);
	DONE(rdma_listen(listener, 1));
	notify(side, 'L');
	DONE(rdma_get_request(listener, &id));
	DONE(rdma_create_srq(id, NULL, &init));
	attr.srq = id->srq;
	DONE(rdma_create_qp(id, NULL, &attr));
	DONE(rdma_accept(id, &param));
	notify(side, 'A');
	await(side, 'C');
	expect_event(id->verbs, IBV_EVENT_QP_LAST_WQE_REACHED, id->qp);
	rdma_disconnect(id);
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
}

static void
last_wqe_i(struct side *side)
{
	struct end end;

	connect_end(&end, side);
	close_end(&end);
}

/* Requests and completions with the functions of extended queue pairs and completion queues. */
static void
extended_t(struct side *side)
{
	struct end end;
	char *memory = pages(SIZE);
	struct ibv_mr *mr;

	mr = accept_with_memory(&end, side, memory, SIZE, FULL);
	await(side, 'd');
	EXPECT(memcmp(memory, "inline data", 11) == 0, "%.11s", memory);
	EXPECT(memcmp(memory + 64, "from memory", 11) == 0, "%.11s", memory + 64);
	close_with_memory(&end, mr);
}

static void
extended_i(struct side *side)
{
	struct rdma_cm_id *id;
	struct ibv_context *device = device_of(side, &id);
	struct ibv_cq_init_attr_ex cq_attr = {.cqe = 16, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_QP_NUM};
	struct ibv_poll_cq_attr poll_attr = {0};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(device, &cq_attr);
	struct ibv_pd *pd = ibv_alloc_pd(device);
	struct ibv_qp_init_attr_ex attr = {.cap = {16, 16, 2, 2, 64}, .qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ};
	struct rdma_conn_param param = {.responder_resources = 4, .initiator_depth = 4, .retry_count = 7, .rnr_retry_count = 7};
	char *memory = pages(SIZE);
	char data[] = "inline data";
	uint64_t until = now_ms() + 10000;
	struct place place;
	struct ibv_qp_ex *qp;
	struct ibv_mr *mr;

	MADE(cq);
	MADE(pd);
	attr.pd = pd;
	attr.send_cq = attr.recv_cq = ibv_cq_ex_to_cq(cq);
	await(side, 'L');
	DONE(rdma_resolve_route(id, 2000));
	DONE(rdma_create_qp_ex(id, &attr));
	DONE(rdma_connect(id, &param));
	await(side, 'A');
	notify(side, 'C');
	receive_bytes(side, &place, sizeof(place));
	mr = REG_MR(pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE);
	strcpy(memory, "from memory");
	qp = ibv_qp_to_qp_ex(id->qp);
	MADE(qp);

	/* an aborted request is not posted */
	ibv_wr_start(qp);
	qp->wr_id = 99;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(qp, place.rkey, place.addr + 128);
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)memory, 8);
	ibv_wr_abort(qp);

	ibv_wr_start(qp);
	qp->wr_id = 1;
	/*
	 * no manual page requires the flag, but without it rxe treats the addresses of the data as those of a
	 * region
	 */
	qp->wr_flags = on_device() ? IBV_SEND_INLINE : 0;
	ibv_wr_rdma_write(qp, place.rkey, place.addr);
	ibv_wr_set_inline_data(qp, data, strlen(data));
	qp->wr_id = 2;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(qp, place.rkey, place.addr + 64);
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)memory, 11);
	qp->wr_id = 3;
	ibv_wr_rdma_read(qp, place.rkey, place.addr);
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)memory + 200, 11);
	DONE(ibv_wr_complete(qp));
	memset(data, 'x', sizeof(data));

	/* the last call returns the first error */
	ibv_wr_start(qp);
	ibv_wr_rdma_write(qp, place.rkey, place.addr);
	ibv_wr_set_inline_data(qp, memory, 1000);
	/* no manual page specifies the error */
	EXPECT(ibv_wr_complete(qp) == (on_device() ? ENOSPC : EINVAL), "1000 bytes of inline data");

	for (uint64_t expected = 2; expected <= 3;) {
		int ret = ibv_start_poll(cq, &poll_attr);

		EXPECT(now_ms() < until, "no completion");
		if (ret == ENOENT)
			continue;
		for (; ret == 0; ret = ibv_next_poll(cq)) {
			EXPECT(cq->wr_id == expected && cq->status == IBV_WC_SUCCESS, "request %llu: %s", (unsigned long long)cq->wr_id,
				ibv_wc_status_str(cq->status));
			EXPECT(ibv_wc_read_opcode(cq) == (expected == 2 ? IBV_WC_RDMA_WRITE : IBV_WC_RDMA_READ), "");
			EXPECT(ibv_wc_read_qp_num(cq) == id->qp->qp_num, "");
			expected++;
		}
		ibv_end_poll(cq);
	}
	EXPECT(memcmp(memory + 200, "inline data", 11) == 0, "%.11s", memory + 200);
	notify(side, 'd');
	rdma_disconnect(id);
	rdma_destroy_qp(id);
	DONE(ibv_dereg_mr(mr));
	DONE(ibv_dealloc_pd(pd));
	DONE(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	rdma_destroy_id(id);
}

/* The time of the device clock. */
static uint64_t
device_time(struct ibv_context *device)
{
	struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};

	DONE(ibv_query_rt_values_ex(device, &values));
	EXPECT(values.comp_mask == IBV_VALUES_MASK_RAW_CLOCK && values.raw_clock.tv_sec == 0, "%#x", values.comp_mask);
	return (uint64_t)values.raw_clock.tv_nsec;
}

static uint64_t
wall_time(void)
{
	struct timespec now;

	DONE(clock_gettime(CLOCK_REALTIME, &now));
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

#define WALL_SLACK 1000000 /* in nanoseconds: both clocks are read one after the other */

/* The time of a completion is that when it was added to the queue, not when it was polled. */
static void
times_i(struct side *side)
{
	struct rdma_cm_id *id;
	struct ibv_context *device = device_of(side, &id);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(device);
	struct ibv_cq_init_attr_ex cq_attr = {.cqe = 16, .channel = channel,
		.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK};
	struct ibv_poll_cq_attr poll_attr = {0};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(device, &cq_attr);
	struct ibv_pd *pd = ibv_alloc_pd(device);
	struct ibv_qp_init_attr attr = end_attributes();
	struct rdma_conn_param param = {.responder_resources = 4, .initiator_depth = 4, .retry_count = 7, .rnr_retry_count = 7};
	struct ibv_device_attr_ex device_attr;
	char *memory = pages(SIZE);
	struct place place;
	uint64_t last = 0;
	struct ibv_mr *mr;

	DONE(ibv_query_device_ex(device, NULL, &device_attr));
	EXPECT(device_attr.completion_timestamp_mask == UINT64_MAX && device_attr.hca_core_clock == 1000000, "no clock");
	MADE(cq);
	MADE(pd);
	attr.send_cq = attr.recv_cq = ibv_cq_ex_to_cq(cq);
	await(side, 'L');
	DONE(rdma_resolve_route(id, 2000));
	DONE(rdma_create_qp(id, pd, &attr));
	DONE(rdma_connect(id, &param));
	await(side, 'A');
	notify(side, 'C');
	receive_bytes(side, &place, sizeof(place));
	mr = REG_MR(pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE);
	for (int i = 0; i < 3; i++) {
		uint64_t before = device_time(device), wall_before = wall_time(), after, wall_after, time, wall;
		struct ibv_cq *source;
		void *context;

		DONE(ibv_req_notify_cq(ibv_cq_ex_to_cq(cq), 0));
		DONE(rdma_post_write(id, NULL, memory, 8, mr, IBV_SEND_SIGNALED, place.addr, place.rkey));
		DONE(ibv_get_cq_event(channel, &source, &context));
		ibv_ack_cq_events(source, 1);
		after = device_time(device);
		wall_after = wall_time();
		sleep_ms(5);
		DONE(ibv_start_poll(cq, &poll_attr));
		EXPECT(cq->status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(cq->status));
		time = ibv_wc_read_completion_ts(cq);
		wall = ibv_wc_read_completion_wallclock_ns(cq);
		ibv_end_poll(cq);
		EXPECT(before <= time && time <= after, "%llu is not from %llu to %llu", (unsigned long long)time,
			(unsigned long long)before, (unsigned long long)after);
		EXPECT(wall_before <= wall + WALL_SLACK && wall <= wall_after + WALL_SLACK, "%llu is not from %llu to %llu",
			(unsigned long long)wall, (unsigned long long)wall_before, (unsigned long long)wall_after);
		EXPECT(last < time, "not in order");
		last = time;
	}
	notify(side, 'd');
	rdma_disconnect(id);
	rdma_destroy_qp(id);
	DONE(ibv_dereg_mr(mr));
	DONE(ibv_dealloc_pd(pd));
	DONE(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	DONE(ibv_destroy_comp_channel(channel));
	rdma_destroy_id(id);
}

#define ROUNDS 40
#define AT_ONCE 8

/*
 * Simultaneous connection requests of a peer are reported in the order of its calls: programs depend on it.
 */
static void
order_t(struct side *side)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP}, *found;
	struct rdma_cm_id *listener;

	MADE(channel);
	DONE(rdma_getaddrinfo(side->addr, side->port, &hints, &found));
	DONE(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP));
	DONE(rdma_bind_addr(listener, found->ai_src_addr));
	rdma_freeaddrinfo(found);
	DONE(rdma_listen(listener, AT_ONCE));
	for (int round = 0; round < ROUNDS; round++) {
		notify(side, 'L');
		for (unsigned i = 0; i < AT_ONCE; i++) {
			struct rdma_cm_event *event;
			struct rdma_cm_id *id;

			DONE(rdma_get_cm_event(channel, &event));
			EXPECT(event->event == RDMA_CM_EVENT_CONNECT_REQUEST, "%s", rdma_event_str(event->event));
			EXPECT(*(const unsigned char *)event->param.conn.private_data == i, "request %u was reported as number %u of round %d",
				*(const unsigned char *)event->param.conn.private_data, i, round);
			id = event->id;
			rdma_ack_cm_event(event);
			DONE(rdma_reject(id, NULL, 0));
			rdma_destroy_id(id);
		}
	}
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(channel);
}

static void
order_i(struct side *side)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *found;
	struct ibv_qp_init_attr attr = {.cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	struct rdma_cm_id *ids[AT_ONCE];
	struct rdma_cm_event *event;

	MADE(channel);
	DONE(rdma_getaddrinfo(side->addr, side->port, &hints, &found));
	for (int round = 0; round < ROUNDS; round++) {
		await(side, 'L');
		for (unsigned i = 0; i < AT_ONCE; i++) {
			DONE(rdma_create_id(channel, &ids[i], NULL, RDMA_PS_TCP));
			DONE(rdma_resolve_addr(ids[i], NULL, found->ai_dst_addr, 2000));
			DONE(rdma_get_cm_event(channel, &event));
			rdma_ack_cm_event(event);
			DONE(rdma_resolve_route(ids[i], 2000));
			DONE(rdma_get_cm_event(channel, &event));
			rdma_ack_cm_event(event);
			DONE(rdma_create_qp(ids[i], NULL, &attr));
		}
		for (unsigned i = 0; i < AT_ONCE; i++) {
			unsigned char number = (unsigned char)i;
			struct rdma_conn_param param = {.private_data = &number, .private_data_len = 1, .responder_resources = 1,
				.initiator_depth = 1};

			DONE(rdma_connect(ids[i], &param));
		}
		for (unsigned i = 0; i < AT_ONCE; i++) {
			DONE(rdma_get_cm_event(channel, &event));
			EXPECT(event->event == RDMA_CM_EVENT_REJECTED, "%s", rdma_event_str(event->event));
			rdma_ack_cm_event(event);
		}
		for (unsigned i = 0; i < AT_ONCE; i++) {
			rdma_destroy_qp(ids[i]);
			rdma_destroy_id(ids[i]);
		}
	}
	rdma_freeaddrinfo(found);
	rdma_destroy_event_channel(channel);
}

/* The states of a queue pair. */
static void
states_i(struct side *side)
{
	struct end end;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_wc wc;
	struct ibv_recv_wr receive = {.wr_id = 5}, *bad;

	connect_end(&end, side);
	DONE(ibv_query_qp(end.id->qp, &attr, IBV_QP_STATE | IBV_QP_CAP, &init));
	EXPECT(attr.qp_state == IBV_QPS_RTS && attr.cap.max_send_wr >= 64 && attr.cap.max_inline_data >= 128, "state %d", attr.qp_state);
	EXPECT(init.send_cq == end.id->send_cq && init.recv_cq == end.id->recv_cq, "");
	DONE(ibv_post_recv(end.id->qp, &receive, &bad));
	DONE(ibv_resize_cq(end.id->recv_cq, 200));
	attr.qp_state = IBV_QPS_ERR;
	DONE(ibv_modify_qp(end.id->qp, &attr, IBV_QP_STATE));
	wc = next_recv(&end);
	EXPECT(wc.wr_id == 5 && wc.status == IBV_WC_WR_FLUSH_ERR, "%s", ibv_wc_status_str(wc.status));
	DONE(ibv_query_qp(end.id->qp, &attr, IBV_QP_STATE, &init));
	EXPECT(attr.qp_state == IBV_QPS_ERR, "state %d", attr.qp_state);
	notify(side, 'd');
	close_end(&end);
}

/*
 * A queue pair of ibv_create_qp is in RESET, in which no receives can be posted, and one of rdma_create_qp in
 * INIT, in which they can.
 */
static void
created_i(struct side *side)
{
	struct rdma_cm_id *id;
	struct ibv_context *device = device_of(side, &id);
	struct ibv_pd *pd = ibv_alloc_pd(device);
	struct ibv_cq *cq = ibv_create_cq(device, 8, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_recv_wr receive = {.wr_id = 1}, *bad = NULL;
	struct ibv_qp *qp;
	unsigned room = 0;

	MADE(pd);
	MADE(cq);
	qp = ibv_create_qp(pd, &init);
	MADE(qp);
	EXPECT(qp->state == IBV_QPS_RESET, "state %d", qp->state);
	/* the user-space driver of rxe does not set bad_wr */
	EXPECT(ibv_post_recv(qp, &receive, &bad) == EINVAL && (on_device() || bad == &receive), "a receive in RESET");
	DONE(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	EXPECT(qp->state == IBV_QPS_INIT, "state %d", qp->state);
	while (ibv_post_recv(qp, &receive, &bad) == 0)
		room++;
	DONE(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	EXPECT(attr.qp_state == IBV_QPS_INIT, "state %d", attr.qp_state);
	attr.qp_state = IBV_QPS_RESET;
	DONE(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	EXPECT(ibv_post_recv(qp, &receive, &bad) == EINVAL, "a receive in RESET");
	/* RESET drops the posted receives */
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 1};
	DONE(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	for (unsigned i = 0; i < room; i++)
		DONE(ibv_post_recv(qp, &receive, &bad));
	DONE(ibv_destroy_qp(qp));

	init.qp_type = IBV_QPT_RC;
	DONE(rdma_create_qp(id, NULL, &init));
	EXPECT(id->qp->state == IBV_QPS_INIT, "state %d", id->qp->state);
	DONE(ibv_query_qp(id->qp, &attr, IBV_QP_STATE, &init));
	EXPECT(attr.qp_state == IBV_QPS_INIT, "state %d", attr.qp_state);
	DONE(ibv_post_recv(id->qp, &receive, &bad));
	rdma_destroy_qp(id);
	DONE(ibv_destroy_cq(cq));
	DONE(ibv_dealloc_pd(pd));
	rdma_destroy_id(id);
}

/* RDMA_OPTION_ID_ACK_TIMEOUT is an attribute of the queue pair. */
static void
ack_timeout_i(struct side *side)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *found;
	struct ibv_qp_init_attr init = end_attributes();
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
	struct ibv_qp_attr attr;
	struct rdma_cm_id *id;
	uint8_t timeout = 17;

	await(side, 'L');
	DONE(rdma_getaddrinfo(side->addr, side->port, &hints, &found));
	DONE(rdma_create_ep(&id, found, NULL, &init));
	rdma_freeaddrinfo(found);
	DONE(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof(timeout)));
	DONE(rdma_connect(id, &param));
	DONE(ibv_query_qp(id->qp, &attr, IBV_QP_TIMEOUT, &init));
	EXPECT(attr.timeout == timeout, "%u", attr.timeout);
	await(side, 'A');
	notify(side, 'C');
	notify(side, 'd');
	rdma_disconnect(id);
	rdma_destroy_ep(id);
}

static void
states_t(struct side *side)
{
	struct end end;

	accept_end(&end, side);
	await(side, 'd');
	close_end(&end);
}

/* Features that the transport lacks are refused, without other effects. */
static void
refused_i(struct side *side)
{
	struct rdma_cm_id *id;
	struct ibv_context *device = device_of(side, &id);
	struct ibv_pd *pd = ibv_alloc_pd(device);
	struct ibv_cq *cq = ibv_create_cq(device, 8, NULL, NULL, 0);
	struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .cap = {4, 4, 1, 1, 0}};
	static const enum ibv_qp_type types[] = {IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV,
		IBV_QPT_DRIVER};
	struct ibv_cq_init_attr_ex tagged = {.cqe = 8, .wc_flags = IBV_WC_EX_WITH_CVLAN};
	struct ibv_ah_attr ah = {.port_num = 1};
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT}, ready = {.qp_state = IBV_QPS_RTR};
	struct ibv_qp *qp;

	MADE(pd);
	MADE(cq);
	for (unsigned i = 0; i < sizeof(types) / sizeof(*types); i++) {
		attr.qp_type = types[i];
		EXPECT(ibv_create_qp(pd, &attr) == NULL && errno == EOPNOTSUPP, "type %d: %s", types[i], strerror(errno));
	}
	attr.qp_type = 77;
	EXPECT(ibv_create_qp(pd, &attr) == NULL && errno == EINVAL, "%s", strerror(errno));
	EXPECT(ibv_create_ah(pd, &ah) == NULL && errno == EOPNOTSUPP, "%s", strerror(errno));
	EXPECT(ibv_create_cq_ex(device, &tagged) == NULL && errno == EOPNOTSUPP, "%s", strerror(errno));
	attr.qp_type = IBV_QPT_RC;
	attr.cap.max_send_sge = 1000;
	EXPECT(ibv_create_qp(pd, &attr) == NULL && errno == EINVAL, "%s", strerror(errno));
	attr.cap.max_send_sge = 1;
	qp = ibv_create_qp(pd, &attr);
	MADE(qp);
	EXPECT(ibv_modify_qp(qp, &ready, IBV_QP_STATE) == EINVAL, "not from RESET");
	DONE(ibv_modify_qp(qp, &init, IBV_QP_STATE));
	EXPECT(ibv_modify_qp(qp, &ready, IBV_QP_STATE) == EOPNOTSUPP, "only rdma_cm connects");
	EXPECT(ibv_destroy_cq(cq) == EBUSY && ibv_dealloc_pd(pd) == EBUSY, "");
	DONE(ibv_destroy_qp(qp));
	DONE(ibv_destroy_cq(cq));
	DONE(ibv_dealloc_pd(pd));
	rdma_destroy_id(id);
}

const struct test queues[] = {
	{.name = "device-and-port", .target = nothing, .initiator = attributes_i},
	{.name = "srq-limit-event", .target = nothing, .initiator = limit_i},
	{.name = "qp-fatal-event", .target = fatal_t, .initiator = fatal_i},
	{.name = "cq-overrun-strict", .target = overrun_t, .initiator = overrun_i, .missing = not_soft},
	{.name = "cq-overrun-warn", .target = overrun_t, .initiator = warned_overrun_i, .missing = not_soft},
	{.name = "cq-overrun-ignored", .target = overrun_t, .initiator = ignored_overrun_i, .missing = not_soft},
	{.name = "rnr-retries-strict", .target = unreceived_t, .initiator = unreceived_i, .missing = not_soft},
	{.name = "last-wqe-reached-event", .target = last_wqe_t, .initiator = last_wqe_i},
	{.name = "extended-queues", .target = extended_t, .initiator = extended_i},
	{.name = "completion-times", .target = overrun_t, .initiator = times_i, .missing = not_soft},
	{.name = "requests-in-order", .target = order_t, .initiator = order_i},
	{.name = "queue-pair-created", .target = nothing, .initiator = created_i},
	{.name = "queue-pair-ack-timeout", .target = states_t, .initiator = ack_timeout_i},
	{.name = "queue-pair-states", .target = states_t, .initiator = states_i},
	{.name = "what-iwarp-has-not", .target = nothing, .initiator = refused_i},
	{.name = NULL},
};
