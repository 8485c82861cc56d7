/* SPDX-License-Identifier: BSD-3-Clause */

/* The functions of librdmacm. */

#include <arpa/inet.h>
#include <inttypes.h>

#include "mock_impl.h"

enum { MAX_EVENTS = 16, EVENT_FD = 2000 };

struct event {
	struct rdma_cm_event cm;
	unsigned char pdata[256];
};

static struct rdma_cm_event *queue[MAX_EVENTS];
static int n_queue;
static bool no_device;
static uint32_t next_qp_num;

void mock_cm_reset(void)
{
	n_queue = 0;
	no_device = false;
	next_qp_num = 0x11;
}

void mock_no_device(void)
{
	no_device = true;
}

static int rdma_result(int err)
{
	mock_done(err);
	return err < 0 ? 0 : -1;
}

/* ---- event channels and ids ---- */

struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct rdma_event_channel *ch = NULL;
	int err = mock_call("rdma_create_event_channel()");

	if (err < 0) {
		struct obj *o = obj_new("evch", sizeof(*ch));
		ch = o->ptr;
		ch->fd = EVENT_FD + atoi(o->name + 4);
		mock_made(o);
	}
	mock_done(err);
	return ch;
}

void rdma_destroy_event_channel(struct rdma_event_channel *ch)
{
	mock_call("rdma_destroy_event_channel(%s)", nm(ch));
	obj_destroy(ch, "evch", true);
	mock_done(-1);
}

struct rdma_cm_id *mock_new_id(struct rdma_event_channel *ch)
{
	struct obj *o = obj_new("id", sizeof(struct rdma_cm_id));
	struct rdma_cm_id *id = o->ptr;

	id->channel = ch;
	id->ps = RDMA_PS_TCP;
	obj_ref(ch);
	return id;
}

int rdma_create_id(struct rdma_event_channel *ch, struct rdma_cm_id **id, void *context,
		enum rdma_port_space ps)
{
	int err = mock_call("rdma_create_id(%s, %s, 0x%x)", nm(ch), nm(context), (unsigned)ps);

	if (ch != NULL)
		obj_use(ch, "evch");
	if (err < 0) {
		*id = mock_new_id(ch);
		(*id)->context = context;
		mock_made(obj_find(*id));
	}
	return rdma_result(err);
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
	int err = mock_call("rdma_destroy_id(%s)", nm(id));

	if (id->qp != NULL)
		mock_misuse("%s is destroyed with its queue pair", nm(id));
	obj_unref(id->channel);
	obj_destroy(id, "id", err < 0);
	return rdma_result(err);
}

int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *ch)
{
	int err = mock_call("rdma_migrate_id(%s, %s)", nm(id), nm(ch));

	obj_use(id, "id");
	if (err < 0) {
		obj_unref(id->channel);
		id->channel = ch;
		obj_ref(ch);
	}
	return rdma_result(err);
}

/* ---- addresses ---- */

int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints,
		struct rdma_addrinfo **res)
{
	struct rdma_addrinfo rest = *hints;

	rest.ai_flags = rest.ai_qp_type = rest.ai_port_space = 0;
	const struct rdma_addrinfo zero = {0};
	if (memcmp(&rest, &zero, sizeof(zero)) != 0)
		mock_misuse("rdma_getaddrinfo: unexpected hints");
	int err = mock_call("rdma_getaddrinfo(%s, %s, %s, %s, 0x%x)", quoted(node), quoted(service),
			hints->ai_flags == RAI_PASSIVE ? "passive" : hints->ai_flags ? "?" : "active",
			hints->ai_qp_type == IBV_QPT_RC ? "RC" : "?", (unsigned)hints->ai_port_space);
	if (err == -1) {
		struct obj *o = obj_new("ai", sizeof(struct rdma_addrinfo) +
				2 * sizeof(struct sockaddr_in));
		struct rdma_addrinfo *ai = o->ptr;
		ai->ai_src_addr = (struct sockaddr *)(ai + 1);
		ai->ai_dst_addr = (struct sockaddr *)((struct sockaddr_in *)(ai + 1) + 1);
		ai->ai_src_len = ai->ai_dst_len = sizeof(struct sockaddr_in);
		ai->ai_src_addr->sa_family = ai->ai_dst_addr->sa_family = AF_INET;
		*res = ai;
		mock_made(o);
	}
	mock_done(err > 0 ? err : -1);
	return err == -1 ? 0 : err > 0 ? -1 : err;
}

void rdma_freeaddrinfo(struct rdma_addrinfo *res)
{
	mock_call("rdma_freeaddrinfo(%s)", nm(res));
	obj_destroy(res, "ai", true);
	mock_done(-1);
}

/* The name of an address of a lookup: "ai0.src", "ai0.dst". */
static const char *addr_name(const struct sockaddr *sa)
{
	static char text[4][32];
	static unsigned next;
	char *out = text[next++ % 4];

	for (int i = 0; i < 64; i++) {
		char name[16];
		snprintf(name, sizeof(name), "ai%d", i);
		struct rdma_addrinfo *ai = mock_named(name);
		if (ai == NULL)
			break;
		if ((const void *)sa == (const void *)(ai + 1)) {
			snprintf(out, sizeof(text[0]), "%.8s.src", name);
			return out;
		}
		if ((const void *)sa == (const void *)((struct sockaddr_in *)(ai + 1) + 1)) {
			snprintf(out, sizeof(text[0]), "%.8s.dst", name);
			return out;
		}
	}
	return nm(sa);
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	int err = mock_call("rdma_bind_addr(%s, %s)", nm(id), addr_name(addr));

	obj_use(id, "id");
	if (err < 0 && !no_device)
		id->verbs = CTX;
	return rdma_result(err);
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst,
		int timeout_ms)
{
	int err = mock_call("rdma_resolve_addr(%s, %s, %s, %d)", nm(id), addr_name(src),
			addr_name(dst), timeout_ms);

	obj_use(id, "id");
	if (err < 0 && !no_device)
		id->verbs = CTX;
	return rdma_result(err);
}

int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	int err = mock_call("rdma_resolve_route(%s, %d)", nm(id), timeout_ms);

	obj_use(id, "id");
	return rdma_result(err);
}

/* ---- connections ---- */

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	int err = mock_call("rdma_listen(%s, %d)", nm(id), backlog);

	obj_use(id, "id");
	return rdma_result(err);
}

static int connect_call(const char *fn, struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	char pdata[300] = "NULL";

	if (p->private_data != NULL)
		snprintf(pdata, sizeof(pdata), "\"%.*s\"", p->private_data_len,
				(const char *)p->private_data);
	int err = mock_call("%s(%s, %s %u, resources %u, depth %u, flow %u, retry %u %u, srq %u, qp %u)",
			fn, nm(id), pdata, p->private_data_len, p->responder_resources, p->initiator_depth,
			p->flow_control, p->retry_count, p->rnr_retry_count, p->srq, p->qp_num);
	obj_use(id, "id");
	if (id->qp == NULL)
		mock_misuse("%s without a queue pair", fn);
	return rdma_result(err);
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	return connect_call("rdma_connect", id, param);
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	return connect_call("rdma_accept", id, param);
}

int rdma_reject(struct rdma_cm_id *id, const void *pdata, uint8_t pdata_len)
{
	int err = mock_call("rdma_reject(%s, %s, %u)", nm(id), nm(pdata), pdata_len);

	obj_use(id, "id");
	return rdma_result(err);
}

int rdma_disconnect(struct rdma_cm_id *id)
{
	int err = mock_call("rdma_disconnect(%s)", nm(id));

	obj_use(id, "id");
	return rdma_result(err);
}

/* ---- queue pairs ---- */

int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *a)
{
	uint64_t ops = a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS ? a->send_ops_flags : 0;
	char ops_text[32] = "";

	if (a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		snprintf(ops_text, sizeof(ops_text), " ops 0x%" PRIx64, ops);
	int err = mock_call("rdma_create_qp_ex(%s, %s, mask 0x%x%s, ctx %s, cq %s %s, srq %s, wr %u %u, "
			"sge %u %u, inline %u, %s, sig_all %d)", nm(id), nm(a->pd), a->comp_mask,
			ops_text, nm(a->qp_context), nm(a->send_cq), nm(a->recv_cq), nm(a->srq), a->cap.max_send_wr,
			a->cap.max_recv_wr, a->cap.max_send_sge, a->cap.max_recv_sge,
			a->cap.max_inline_data, a->qp_type == IBV_QPT_RC ? "RC" : "?", a->sq_sig_all);

	obj_use(id, "id");
	obj_use(a->pd, "pd");
	obj_use(a->send_cq, "cq");
	obj_use(a->recv_cq, "cq");
	if (a->srq != NULL)
		obj_use(a->srq, "srq");
	if (err < 0) {
		struct obj *o = obj_new("qp", mock_qp_size());
		struct ibv_qp *qp = o->ptr;
		*qp = (struct ibv_qp){.context = id->verbs, .pd = a->pd, .send_cq = a->send_cq,
			.recv_cq = a->recv_cq, .srq = a->srq, .qp_num = next_qp_num++,
			.qp_type = a->qp_type};
		if (qp->context == NULL)
			qp->context = CTX;
		if (ops != 0)
			mock_native_qp(qp, ops);
		id->qp = qp;
		obj_ref(qp->pd);
		obj_ref(qp->send_cq);
		obj_ref(qp->recv_cq);
		obj_ref(qp->srq);
		/* a provider reports the granted sizes */
		a->cap.max_send_wr += 6;
		a->cap.max_recv_wr += 6;
		mock_made(o);
	}
	return rdma_result(err);
}

void rdma_destroy_qp(struct rdma_cm_id *id)
{
	struct ibv_qp *qp = id->qp;

	mock_call("rdma_destroy_qp(%s)", nm(id));
	obj_use(id, "id");
	if (qp == NULL) {
		mock_misuse("%s has no queue pair to destroy", nm(id));
	} else {
		obj_unref(qp->pd);
		obj_unref(qp->send_cq);
		obj_unref(qp->recv_cq);
		obj_unref(qp->srq);
		obj_destroy(qp, "qp", true);
		id->qp = NULL;
	}
	mock_done(-1);
}

/* The form without comp_mask, which 1.2.0 and later do not use. */
int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	(void)attr;
	mock_call("rdma_create_qp(%s, %s)", nm(id), nm(pd));
	return rdma_result(ENOSYS);
}

/* ---- events ---- */

/* The id that an unacknowledged event keeps alive: a connect request counts for the listener. */
static struct obj *holder(const struct rdma_cm_event *event)
{
	const struct rdma_cm_id *id = event->listen_id ? event->listen_id : event->id;

	return id != NULL ? obj_find(id) : NULL;
}

struct rdma_cm_event *mock_cm_event(enum rdma_cm_event_type type, struct rdma_cm_id *id,
		const void *pdata, uint8_t pdata_len)
{
	assert_true(n_queue < MAX_EVENTS);
	mock_enter();
	struct obj *o = obj_new("ev", sizeof(struct event));
	struct event *ev = o->ptr;
	ev->cm.event = type;
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST && id != NULL) {
		ev->cm.listen_id = id;
		ev->cm.id = mock_new_id(id->channel);
		ev->cm.id->verbs = CTX;
	} else {
		ev->cm.id = id;
	}
	if (pdata != NULL) {
		memcpy(ev->pdata, pdata, pdata_len);
		ev->cm.param.conn.private_data = ev->pdata;
	}
	ev->cm.param.conn.private_data_len = pdata_len;
	queue[n_queue++] = &ev->cm;
	mock_leave();
	return &ev->cm;
}

int rdma_get_cm_event(struct rdma_event_channel *ch, struct rdma_cm_event **event)
{
	int err = mock_call("rdma_get_cm_event(%s)", nm(ch));

	obj_use(ch, "evch");
	if (err < 0 && n_queue == 0) {
		mock_misuse("rdma_get_cm_event would block");
		err = EINTR;
	}
	if (err < 0) {
		*event = queue[0];
		memmove(queue, queue + 1, sizeof(queue[0]) * (size_t)--n_queue);
		struct obj *id = holder(*event);
		if (id != NULL)
			id->pending++; /* rdma_destroy_id waits for the acknowledgement */
		mock_made(obj_find(*event));
	}
	return rdma_result(err);
}

/* Acknowledging frees the event, and the private data in it. */
int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	int err = mock_call("rdma_ack_cm_event(%s)", nm(event));
	struct obj *id = holder(event);

	if (id != NULL)
		id->pending--;
	obj_destroy(event, "ev", true);
	return rdma_result(err);
}
