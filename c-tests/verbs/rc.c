/* SPDX-License-Identifier: BSD-3-Clause */
/* rc.c -- see rc.h */
#include "rc.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define LIMIT_MS 10000

/* The index of the GID of this side in the table of the device, or -1. */
static int
find_gid(struct ibv_context *device)
{
	struct ibv_gid_entry entries[256];
	ssize_t n = ibv_query_gid_table(device, entries, 256, 0);
	struct in6_addr wanted;

	EXPECT(inet_pton(AF_INET6, getenv("PAIRS_GID"), &wanted) == 1, "%s", getenv("PAIRS_GID"));
	EXPECT(n >= 0, "%zd entries", n);
	for (ssize_t i = 0; i < n; i++) {
		EXPECT(entries[i].gid_type == IBV_GID_TYPE_ROCE_V2 && entries[i].port_num == 1, "entry %zd", i);
		if (memcmp(&entries[i].gid, &wanted, sizeof(wanted)) == 0)
			return (int)entries[i].gid_index;
	}
	return -1;
}

struct ibv_context *
roce_device(void)
{
	struct ibv_context *device = NULL;
	struct ibv_device **list;
	int n;

	setenv("SOFTVERBS_TRANSPORT", "roce", 1);
	list = ibv_get_device_list(&n);
	MADE(list);
	for (int i = 0; i < n && device == NULL; i++) {
		if ((strcmp(ibv_get_device_name(list[i]), "soft0") == 0) == on_device())
			continue;
		device = ibv_open_device(list[i]);
		MADE(device);
		if (find_gid(device) < 0) {
			DONE(ibv_close_device(device));
			device = NULL;
		}
	}
	ibv_free_device_list(list);
	MADE(device);
	return device;
}

uint8_t
gid_index(struct ibv_context *device)
{
	int index = find_gid(device);

	EXPECT(index >= 0, "%s has no GID", getenv("PAIRS_GID"));
	return (uint8_t)index;
}

void
meet(struct rc *rc)
{
	notify(rc->side, 'm');
	await(rc->side, 'm');
}

static void
defaults(struct rc_terms *terms)
{
	if (terms->type == 0)
		terms->type = IBV_QPT_RC;
	if (terms->qps == 0)
		terms->qps = 1;
	if (terms->length == 0)
		terms->length = 4096;
	if (terms->mtu == 0)
		terms->mtu = IBV_MTU_1024;
	if (terms->access == 0)
		terms->access = RC_FULL;
	if (terms->region == 0)
		terms->region = RC_FULL;
	if (terms->timeout == 0)
		terms->timeout = 14;
	if (terms->retries == 0)
		terms->retries = 7;
	if (terms->rnr_retries == 0)
		terms->rnr_retries = 7;
	if (terms->rnr_timer == 0)
		terms->rnr_timer = 1;
}

/* Memory of an unlinked file. */
static void *
file_pages(size_t length)
{
	char path[] = "/tmp/librpma-verbs-XXXXXX";
	int fd = mkstemp(path);
	void *memory;

	EXPECT(fd >= 0 && unlink(path) == 0 && ftruncate(fd, (off_t)length) == 0, "%s", strerror(errno));
	memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	EXPECT(memory != MAP_FAILED, "%s", strerror(errno));
	close(fd);
	return memory;
}

static void *
memory_of(const struct rc_terms *terms, int *sealed)
{
	if (terms->sealed)
		return sealed_pages(terms->length, sealed);
	return terms->file ? file_pages(terms->length) : pages(terms->length);
}

static struct ibv_qp *
create_extended(struct rc *rc, const struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex extended = {.send_cq = attr->send_cq, .recv_cq = attr->recv_cq, .srq = attr->srq, .cap = attr->cap,
		.qp_type = attr->qp_type, .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .pd = rc->pd,
		.send_ops_flags = rc->terms.operations};

	return ibv_create_qp_ex(rc->device, &extended);
}

void
open_rc(struct rc *rc, struct side *side, struct rc_terms terms)
{
	struct ibv_qp_init_attr attr = {.cap = {.max_send_wr = RC_REQUESTS, .max_recv_wr = RC_REQUESTS, .max_send_sge = 4, .max_recv_sge = 4, .max_inline_data = RC_INLINE}};
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = RC_QPS * RC_REQUESTS, .max_sge = 4}};
	int sealed = -1;

	defaults(&terms);
	*rc = (struct rc){.side = side, .terms = terms, .device = roce_device(), .memory = memory_of(&terms, &sealed)};
	rc->pd = ibv_alloc_pd(rc->device);
	MADE(rc->pd);
	rc->channel = ibv_create_comp_channel(rc->device);
	MADE(rc->channel);
	rc->send_cq = ibv_create_cq(rc->device, RC_QPS * RC_REQUESTS, NULL, NULL, 0);
	MADE(rc->send_cq);
	rc->recv_cq = ibv_create_cq(rc->device, RC_QPS * RC_REQUESTS, NULL, rc->channel, 0);
	MADE(rc->recv_cq);
	rc->mr = REG_MR(rc->pd, rc->memory, terms.length, terms.region);
	if (sealed >= 0)
		close(sealed);
	if (terms.shared) {
		rc->srq = ibv_create_srq(rc->pd, &srq);
		MADE(rc->srq);
	}
	attr.qp_type = terms.type;
	attr.send_cq = rc->send_cq;
	attr.recv_cq = rc->recv_cq;
	attr.srq = rc->srq;
	for (int i = 0; i < terms.qps; i++) {
		rc->qps[i] = terms.operations == 0 ? ibv_create_qp(rc->pd, &attr) : create_extended(rc, &attr);
		MADE(rc->qps[i]);
	}
}

/* The data of a queue pair that one side sends to the other. */
struct identity {
	uint32_t number;
	uint32_t psn;
	union ibv_gid gid;
	struct place place;
};

/*
 * The first PSN of a queue pair: PSNs wrap after a few packets. After RESET it is another one, so that late
 * packets of the previous connection are duplicates.
 */
static uint32_t
first_psn(const struct rc *rc, int i)
{
	return (0xfffff0 + rc->connects * 0x100000 + (uint32_t)i) & 0xffffff;
}

static void
connect_datagrams(struct rc *rc, struct ibv_qp *qp, struct ibv_ah_attr *to, uint32_t psn)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = RC_QKEY};

	DONE(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	DONE(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = psn;
	DONE(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
	if (rc->ah == NULL) {
		rc->ah = ibv_create_ah(rc->pd, to);
		MADE(rc->ah);
	}
}

static void
ready_to_receive(struct rc *rc, int i)
{
	struct ibv_qp *qp = rc->qps[i];
	uint32_t psn = first_psn(rc, i);
	struct rc_terms *terms = &rc->terms;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = (unsigned)terms->access};
	uint8_t index = gid_index(rc->device);
	struct identity own = {.number = qp->qp_num, .psn = psn,
		.place = {(uintptr_t)rc->memory, rc->mr->rkey, (uint32_t)terms->length}};
	struct ibv_ah_attr to = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = index, .hop_limit = 64}};
	struct identity other;

	DONE(ibv_query_gid(rc->device, 1, index, &own.gid));
	send_bytes(rc->side, &own, sizeof(own));
	receive_bytes(rc->side, &other, sizeof(other));
	rc->peer = other.place;
	rc->numbers[i] = other.number;
	to.grh.dgid = other.gid;
	if (terms->type == IBV_QPT_UD) {
		connect_datagrams(rc, qp, &to, psn);
		return;
	}
	DONE(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = terms->mtu, .dest_qp_num = other.number, .rq_psn = other.psn,
		.max_dest_rd_atomic = 16, .min_rnr_timer = terms->rnr_timer, .ah_attr = to};
	DONE(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		(terms->type == IBV_QPT_RC ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)));
}

static void
ready_to_send(struct rc *rc, struct ibv_qp *qp, uint32_t psn)
{
	struct rc_terms *terms = &rc->terms;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .sq_psn = psn, .timeout = terms->timeout, .retry_cnt = terms->retries,
		.rnr_retry = terms->rnr_retries, .max_rd_atomic = 16};

	DONE(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN |
		(terms->type == IBV_QPT_RC ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0)));
}

void
receive_rc(struct rc *rc)
{
	for (int i = 0; i < rc->terms.qps; i++)
		ready_to_receive(rc, i);
}

void
send_rc(struct rc *rc)
{
	for (int i = 0; i < rc->terms.qps && rc->terms.type != IBV_QPT_UD; i++)
		ready_to_send(rc, rc->qps[i], first_psn(rc, i));
	rc->connects++;
}

void
connect_rc(struct rc *rc)
{
	receive_rc(rc);
	send_rc(rc);
	meet(rc);
}

void
make_rc(struct rc *rc, struct side *side, struct rc_terms terms)
{
	open_rc(rc, side, terms);
	connect_rc(rc);
}

void
close_rc(struct rc *rc)
{
	for (int i = 0; i < rc->terms.qps; i++)
		DONE(ibv_destroy_qp(rc->qps[i]));
	if (rc->ah != NULL)
		DONE(ibv_destroy_ah(rc->ah));
	if (rc->srq != NULL)
		DONE(ibv_destroy_srq(rc->srq));
	DONE(ibv_dereg_mr(rc->mr));
	DONE(ibv_destroy_cq(rc->send_cq));
	DONE(ibv_destroy_cq(rc->recv_cq));
	DONE(ibv_destroy_comp_channel(rc->channel));
	DONE(ibv_dealloc_pd(rc->pd));
	DONE(ibv_close_device(rc->device));
}

void
set_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};

	DONE(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
}

enum ibv_qp_state
state_of(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	DONE(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	return attr.qp_state;
}

void
address(struct rc *rc, int i, struct ibv_send_wr *wr)
{
	wr->wr.ud.ah = rc->ah;
	wr->wr.ud.remote_qpn = rc->numbers[i];
	wr->wr.ud.remote_qkey = RC_QKEY;
}

struct ibv_send_wr
request(struct ibv_sge *entry, struct rc *rc, enum ibv_wr_opcode opcode, uint64_t wr_id, size_t offset, uint32_t length)
{
	*entry = (struct ibv_sge){(uintptr_t)rc->memory + offset, length, rc->mr->lkey};
	return (struct ibv_send_wr){.wr_id = wr_id, .sg_list = entry, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {rc->peer.addr + offset, rc->peer.rkey}};
}

void
post_wr(struct rc *rc, int i, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	DONE(ibv_post_send(rc->qps[i], wr, &bad));
}

void
post(struct rc *rc, int i, enum ibv_wr_opcode opcode, uint64_t wr_id, size_t offset, uint32_t length)
{
	struct ibv_sge entry;
	struct ibv_send_wr wr = request(&entry, rc, opcode, wr_id, offset, length);

	if (rc->terms.type == IBV_QPT_UD)
		address(rc, i, &wr);
	post_wr(rc, i, &wr);
}

void
post_receive(struct rc *rc, int i, uint64_t wr_id, size_t offset, uint32_t length)
{
	struct ibv_sge entry = {(uintptr_t)rc->memory + offset, length, rc->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &entry, .num_sge = 1};
	struct ibv_recv_wr *bad;

	if (rc->srq != NULL)
		DONE(ibv_post_srq_recv(rc->srq, &wr, &bad));
	else
		DONE(ibv_post_recv(rc->qps[i], &wr, &bad));
}

struct ibv_wc
next_of(struct ibv_cq *cq)
{
	uint64_t limit = now_ms() + LIMIT_MS;
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0) {
		EXPECT(now_ms() < limit, "no completion");
		sched_yield();
	}
	EXPECT(n == 1, "%d", n);
	return wc;
}

static void
expect_next(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status)
{
	struct ibv_wc wc = next_of(cq);

	EXPECT(wc.wr_id == wr_id && wc.status == status, "%#llx: %s instead of %#llx: %s", (unsigned long long)wc.wr_id,
		ibv_wc_status_str(wc.status), (unsigned long long)wr_id, ibv_wc_status_str(status));
}

void
expect_sent(struct rc *rc, uint64_t wr_id, enum ibv_wc_status status)
{
	expect_next(rc->send_cq, wr_id, status);
}

void
expect_received(struct rc *rc, uint64_t wr_id, enum ibv_wc_status status)
{
	expect_next(rc->recv_cq, wr_id, status);
}

void
expect_nothing(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	EXPECT(ibv_poll_cq(cq, 1, &wc) == 0, "%#llx: %s", (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status));
}

void
expect_event(struct rc *rc, enum ibv_event_type type)
{
	struct pollfd fd = {.fd = rc->device->async_fd, .events = POLLIN};
	struct ibv_async_event event;

	EXPECT(poll(&fd, 1, 5000) == 1, "no event");
	DONE(ibv_get_async_event(rc->device, &event));
	EXPECT(event.event_type == type && event.element.qp == rc->qps[0], "%s", ibv_event_type_str(event.event_type));
	ibv_ack_async_event(&event);
}
