/* SPDX-License-Identifier: BSD-3-Clause */

/* The functions of libibverbs that create and destroy objects. */

#include "mock_impl.h"

/* The header replaces these names by inline functions. */
#undef ibv_reg_mr
#undef ibv_get_device_list

enum { MAX_CQ_EVENTS = 16, CHANNEL_FD = 1000 };

static struct ibv_device device;
static struct verbs_context vctx;
struct ibv_context *const CTX = &vctx.context;

static uint64_t odp_general;
static uint32_t odp_rc;
static uint64_t device_caps;
static struct ibv_cq *cq_events[MAX_CQ_EVENTS];
static int n_cq_events;

void mock_ops(struct ibv_context_ops *ops); /* mock_ops.c */
void mock_ops_reset(void);

/* ---- the context ---- */

void mock_transport(enum ibv_transport_type type)
{
	device.transport_type = type;
}

void mock_odp(uint64_t general_caps, uint32_t rc_caps)
{
	odp_general = general_caps;
	odp_rc = rc_caps;
}

void mock_device_caps(uint64_t caps)
{
	device_caps = caps;
}

static int query_device_ex(struct ibv_context *ctx, const struct ibv_query_device_ex_input *input,
		struct ibv_device_attr_ex *attr, size_t attr_size)
{
	int err = mock_call("ibv_query_device_ex(%s, %s)", nm(ctx), nm(input));

	if (attr_size < offsetof(struct ibv_device_attr_ex, odp_caps) + sizeof(attr->odp_caps))
		mock_misuse("ibv_query_device_ex: no room for the ODP capabilities");
	for (size_t i = 0; i < attr_size; i++)
		if (((unsigned char *)attr)[i] != 0) {
			mock_misuse("ibv_query_device_ex: attr is not cleared");
			break;
		}
	if (err < 0) {
		attr->device_cap_flags_ex = device_caps;
		attr->odp_caps.general_caps = odp_general;
		attr->odp_caps.per_transport_caps.rc_odp_caps = odp_rc;
	}
	mock_done(err);
	return err < 0 ? 0 : err;
}

static int advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
		struct ibv_sge *sge, uint32_t num_sge)
{
	int err = mock_call("ibv_advise_mr(%s, %d, 0x%x, {%s, %u, 0x%x}, %u)", nm(pd), (int)advice,
			flags, where(sge->addr), sge->length, sge->lkey, num_sge);

	obj_use(pd, "pd");
	mock_done(err);
	return err < 0 ? 0 : err;
}

void mock_verbs_reset(void)
{
	memset(&device, 0, sizeof(device));
	device.node_type = IBV_NODE_CA;
	device.transport_type = IBV_TRANSPORT_IB;
	strcpy(device.name, "mock0");
	memset(&vctx, 0, sizeof(vctx));
	vctx.sz = sizeof(vctx);
	vctx.query_device_ex = query_device_ex;
	vctx.advise_mr = advise_mr;
	CTX->device = &device;
	CTX->abi_compat = __VERBS_ABI_IS_EXTENDED;
	CTX->num_comp_vectors = 1;
	mock_ops(&CTX->ops);
	mock_ops_reset();
	mock_odp(0, 0);
	mock_device_caps(0);
	mock_native_reset();
	n_cq_events = 0;
}

/* Called only for a context that is not extended. */
int ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
	int err = mock_call("ibv_query_device(%s)", nm(ctx));

	memset(attr, 0, sizeof(*attr));
	mock_done(err);
	return err < 0 ? 0 : err;
}

/* ---- protection domain ---- */

struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx)
{
	struct ibv_pd *pd = NULL;
	int err = mock_call("ibv_alloc_pd(%s)", nm(ctx));

	if (err < 0) {
		struct obj *o = obj_new("pd", sizeof(*pd));
		pd = o->ptr;
		pd->context = ctx;
		mock_made(o);
	}
	mock_done(err);
	return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	int err = mock_call("ibv_dealloc_pd(%s)", nm(pd));

	obj_destroy(pd, "pd", err < 0);
	mock_done(err);
	return err < 0 ? 0 : err;
}

/* ---- memory region ---- */

static void access_names(unsigned access, char *text, size_t size)
{
	static const struct { unsigned bit; const char *name; } names[] = {
		{IBV_ACCESS_LOCAL_WRITE, "LW"}, {IBV_ACCESS_REMOTE_WRITE, "RW"},
		{IBV_ACCESS_REMOTE_READ, "RR"}, {IBV_ACCESS_ON_DEMAND, "ODP"},
		{1 << 8, "FLUSH_GLOBAL"}, {1 << 9, "FLUSH_PERSISTENT"},
	};

	strcpy(text, access ? "" : "0");
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!(access & names[i].bit))
			continue;
		size_t used = strlen(text);
		snprintf(text + used, size - used, used ? "|%s" : "%s", names[i].name);
		access &= ~names[i].bit;
	}
	if (access) {
		size_t used = strlen(text);
		snprintf(text + used, size - used, "|0x%x", access);
	}
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct ibv_mr *mr = NULL;
	char text[64];

	access_names((unsigned)access, text, sizeof(text));
	int err = mock_call("ibv_reg_mr(%s, %s, %zu, %s)", nm(pd), where((uintptr_t)addr), length,
			text);
	obj_use(pd, "pd");
	if (err < 0) {
		struct obj *o = obj_new("mr", sizeof(*mr));
		mr = o->ptr;
		*mr = (struct ibv_mr){.context = CTX, .pd = pd, .addr = addr, .length = length,
			.lkey = 0x100u + (unsigned)atoi(o->name + 2),
			.rkey = 0x200u + (unsigned)atoi(o->name + 2)};
		obj_ref(pd);
		mock_made(o);
	}
	mock_done(err);
	return mr;
}

/* The header calls this one if the access flags are not a constant. */
struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
		unsigned access)
{
	if (iova != (uintptr_t)addr)
		mock_misuse("ibv_reg_mr_iova2: iova is not the address");
	return ibv_reg_mr(pd, addr, length, (int)access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	int err = mock_call("ibv_dereg_mr(%s)", nm(mr));

	obj_unref(mr->pd);
	obj_destroy(mr, "mr", err < 0);
	mock_done(err);
	return err < 0 ? 0 : err;
}

/* ---- completion channel and queue ---- */

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ctx)
{
	struct ibv_comp_channel *ch = NULL;
	int err = mock_call("ibv_create_comp_channel(%s)", nm(ctx));

	if (err < 0) {
		struct obj *o = obj_new("chan", sizeof(*ch));
		ch = o->ptr;
		ch->context = ctx;
		ch->fd = CHANNEL_FD + atoi(o->name + 4);
		mock_made(o);
	}
	mock_done(err);
	return ch;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *ch)
{
	int err = mock_call("ibv_destroy_comp_channel(%s)", nm(ch));

	obj_destroy(ch, "chan", err < 0);
	mock_done(err);
	return err < 0 ? 0 : err;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int cqe, void *cq_context,
		struct ibv_comp_channel *ch, int comp_vector)
{
	struct ibv_cq *cq = NULL;
	int err = mock_call("ibv_create_cq(%s, %d, %s, %s, %d)", nm(ctx), cqe, nm(cq_context),
			nm(ch), comp_vector);

	if (ch != NULL)
		obj_use(ch, "chan");
	if (err < 0) {
		struct obj *o = obj_new("cq", sizeof(*cq));
		cq = o->ptr;
		cq->context = ctx;
		cq->channel = ch;
		cq->cq_context = cq_context;
		cq->cqe = cqe;
		obj_ref(ch);
		mock_made(o);
	}
	mock_done(err);
	return cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	int err = mock_call("ibv_destroy_cq(%s)", nm(cq));

	obj_unref(cq->channel);
	obj_destroy(cq, "cq", err < 0);
	mock_done(err);
	return err < 0 ? 0 : err;
}

void mock_cq_event(struct ibv_cq *cq)
{
	assert_true(n_cq_events < MAX_CQ_EVENTS);
	cq_events[n_cq_events++] = cq;
}

int ibv_get_cq_event(struct ibv_comp_channel *ch, struct ibv_cq **cq, void **cq_context)
{
	int err = mock_call("ibv_get_cq_event(%s)", nm(ch));

	obj_use(ch, "chan");
	if (err < 0 && n_cq_events == 0) {
		mock_misuse("ibv_get_cq_event would block");
		err = EINTR;
	}
	if (err < 0) {
		*cq = cq_events[0];
		*cq_context = (*cq)->cq_context;
		memmove(cq_events, cq_events + 1, sizeof(cq_events[0]) * (size_t)--n_cq_events);
		struct obj *o = obj_use(*cq, "cq");
		o->pending++;
		mock_made(o);
	}
	mock_done(err);
	return err < 0 ? 0 : -1;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned nevents)
{
	mock_call("ibv_ack_cq_events(%s, %u)", nm(cq), nevents);
	struct obj *o = obj_use(cq, "cq");
	o->pending -= (int)nevents;
	if (o->pending < 0)
		mock_misuse("%s: more events acknowledged than taken", o->name);
	mock_done(-1);
}

/* ---- shared receive queue ---- */

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct ibv_srq *srq = NULL;
	int err = mock_call("ibv_create_srq(%s, %s, %u, %u, %u)", nm(pd), nm(attr->srq_context),
			attr->attr.max_wr, attr->attr.max_sge, attr->attr.srq_limit);

	obj_use(pd, "pd");
	if (err < 0) {
		struct obj *o = obj_new("srq", sizeof(*srq));
		srq = o->ptr;
		srq->context = CTX;
		srq->pd = pd;
		obj_ref(pd);
		mock_made(o);
	}
	mock_done(err);
	return srq;
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
	int err = mock_call("ibv_destroy_srq(%s)", nm(srq));

	obj_unref(srq->pd);
	obj_destroy(srq, "srq", err < 0);
	mock_done(err);
	return err < 0 ? 0 : err;
}

/* ---- calls that the library never makes; one of these in a log fails its test ---- */

int ibv_fork_init(void)
{
	mock_call("ibv_fork_init()");
	mock_done(-1);
	return 0;
}

struct ibv_device **ibv_get_device_list(int *num)
{
	mock_call("ibv_get_device_list()");
	mock_done(ENOSYS);
	if (num != NULL)
		*num = 0;
	return NULL;
}
