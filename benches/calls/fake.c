/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Stubs of the functions of libibverbs and librdmacm that librpma calls: every call succeeds at once, with
 * only its visible effects. The program exports these names, so that the dynamic linker binds either librpma
 * to them and only the library is counted. Nothing is allocated: objects are in arrays that are used like
 * stacks, which suffices since all objects that a row creates are destroyed at its end.
 */

#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <stddef.h>
#include <stdlib.h>

#include "fake.h"

/* The header replaces this name by inline functions. */
#undef ibv_reg_mr

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access);

enum { ALIVE = 16 };

/* An array of objects, and how many of them are alive. */
#define OBJECTS(type, array) \
	static type array[ALIVE]; \
	static unsigned alive_##array

OBJECTS(struct ibv_mr, regions);
OBJECTS(struct ibv_cq, queues);
OBJECTS(struct ibv_srq, shared);
OBJECTS(struct ibv_qp, pairs);
OBJECTS(struct rdma_cm_id, ids);
OBJECTS(struct rdma_event_channel, events);

/* A channel and the queue that was created with it last, whose events it returns. */
struct channel {
	struct ibv_comp_channel verbs;
	struct ibv_cq *cq;
};
OBJECTS(struct channel, channels);

#define MAKE(array) (alive_##array < ALIVE ? &(array)[alive_##array++] : (abort(), NULL))
#define DESTROY(array) (alive_##array--)

static struct ibv_device device = {.node_type = IBV_NODE_CA, .transport_type = IBV_TRANSPORT_IB, .name = "fake0"};
static struct verbs_context extended;
struct ibv_context *const fake_context = &extended.context;
int fake_completions;
enum rdma_cm_event_type fake_event;

/* ---- the operations of the context ---- */

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	(void)qp, (void)wr, (void)bad_wr;
	return 0;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	(void)qp, (void)wr, (void)bad_wr;
	return 0;
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	(void)srq, (void)wr, (void)bad_wr;
	return 0;
}

static int poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc)
{
	int n = num_entries < fake_completions ? num_entries : fake_completions;

	(void)cq;
	for (int i = 0; i < n; i++) {
		wc[i].wr_id = 0;
		wc[i].status = IBV_WC_SUCCESS;
		wc[i].opcode = IBV_WC_RDMA_WRITE;
		wc[i].byte_len = 8;
		wc[i].wc_flags = 0;
	}
	return n;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	(void)cq, (void)solicited_only;
	return 0;
}

static int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
		struct ibv_device_attr_ex *attr, size_t attr_size)
{
	(void)context, (void)input, (void)attr, (void)attr_size;
	return 0;
}

static int advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags, struct ibv_sge *sg_list, uint32_t num_sge)
{
	(void)pd, (void)advice, (void)flags, (void)sg_list, (void)num_sge;
	return 0;
}

__attribute__((constructor)) static void make_context(void)
{
	extended.sz = sizeof(extended);
	extended.query_device_ex = query_device_ex;
	extended.advise_mr = advise_mr;
	fake_context->device = &device;
	fake_context->abi_compat = __VERBS_ABI_IS_EXTENDED;
	fake_context->num_comp_vectors = 1;
	fake_context->ops.post_send = post_send;
	fake_context->ops.post_recv = post_recv;
	fake_context->ops.post_srq_recv = post_srq_recv;
	fake_context->ops.poll_cq = poll_cq;
	fake_context->ops.req_notify_cq = req_notify_cq;
}

/* ---- libibverbs ---- */

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	(void)context, (void)attr;
	return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	static struct ibv_pd pd;

	pd.context = context;
	return &pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	(void)pd;
	return 0;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct ibv_mr *mr = MAKE(regions);

	(void)access;
	mr->context = pd->context;
	mr->pd = pd;
	mr->addr = addr;
	mr->length = length;
	mr->lkey = 1;
	mr->rkey = 2;
	return mr;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	(void)iova;
	return ibv_reg_mr(pd, addr, length, (int)access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	(void)mr;
	DESTROY(regions);
	return 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct channel *channel = MAKE(channels);

	channel->verbs.context = context;
	channel->verbs.fd = -1;
	return &channel->verbs;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	(void)channel;
	DESTROY(channels);
	return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel,
		int comp_vector)
{
	struct ibv_cq *cq = MAKE(queues);

	(void)comp_vector;
	cq->context = context;
	cq->channel = channel;
	cq->cq_context = cq_context;
	cq->cqe = cqe;
	((struct channel *)channel)->cq = cq;
	return cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	(void)cq;
	DESTROY(queues);
	return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	*cq = ((struct channel *)channel)->cq;
	*cq_context = (*cq)->cq_context;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
	(void)cq, (void)nevents;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct ibv_srq *srq = MAKE(shared);

	(void)attr;
	srq->context = pd->context;
	srq->pd = pd;
	return srq;
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
	(void)srq;
	DESTROY(shared);
	return 0;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	(void)qp;
	return NULL;
}

/* ---- librdmacm ---- */

/* The id of all connection requests. It is not in the array: librpma 1.2.0 does not destroy it. */
static struct rdma_cm_id requested;

struct rdma_event_channel *rdma_create_event_channel(void)
{
	return MAKE(events);
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	(void)channel;
	DESTROY(events);
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context, enum rdma_port_space ps)
{
	*id = MAKE(ids);
	(*id)->verbs = NULL;
	(*id)->channel = channel;
	(*id)->context = context;
	(*id)->ps = ps;
	return 0;
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
	if (id != &requested)
		DESTROY(ids);
	return 0;
}

int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel)
{
	id->channel = channel;
	return 0;
}

int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints, struct rdma_addrinfo **res)
{
	static struct sockaddr_in from = {.sin_family = AF_INET}, to = {.sin_family = AF_INET};
	static struct rdma_addrinfo info = {.ai_src_addr = (struct sockaddr *)&from, .ai_dst_addr = (struct sockaddr *)&to};

	(void)node, (void)service, (void)hints;
	*res = &info;
	return 0;
}

void rdma_freeaddrinfo(struct rdma_addrinfo *res)
{
	(void)res;
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	(void)addr;
	id->verbs = fake_context;
	return 0;
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src_addr, struct sockaddr *dst_addr, int timeout_ms)
{
	(void)src_addr, (void)dst_addr, (void)timeout_ms;
	id->verbs = fake_context;
	return 0;
}

int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	(void)id, (void)timeout_ms;
	return 0;
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	(void)id, (void)backlog;
	return 0;
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *conn_param)
{
	(void)id, (void)conn_param;
	return 0;
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *conn_param)
{
	(void)id, (void)conn_param;
	return 0;
}

int rdma_reject(struct rdma_cm_id *id, const void *private_data, uint8_t private_data_len)
{
	(void)id, (void)private_data, (void)private_data_len;
	return 0;
}

int rdma_disconnect(struct rdma_cm_id *id)
{
	(void)id;
	return 0;
}

int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp *qp = MAKE(pairs);

	qp->context = fake_context;
	qp->pd = attr->pd;
	qp->send_cq = attr->send_cq;
	qp->recv_cq = attr->recv_cq;
	qp->srq = attr->srq;
	qp->qp_num = 1;
	id->qp = qp;
	return 0;
}

void rdma_destroy_qp(struct rdma_cm_id *id)
{
	id->qp = NULL;
	DESTROY(pairs);
}

int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	static struct rdma_cm_event next;

	(void)channel;
	next.event = fake_event;
	if (fake_event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		requested.verbs = fake_context;
		next.id = &requested;
	}
	*event = &next;
	return 0;
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	(void)event;
	return 0;
}

const char *rdma_event_str(enum rdma_cm_event_type event)
{
	(void)event;
	return "";
}
