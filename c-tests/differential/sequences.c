/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Complete object lifetimes, with every provider call that can fail failing in turn. A body continues as an
 * application would: it does not use objects that could not be created, and cleans up the others.
 */

#include "observe.h"

static void peer_life(void)
{
	struct rpma_peer *peer = UNTOUCHED;

	CALL(rpma_peer_new(CTX, &peer), "%s", obj(peer));
	if (live(peer))
		CALL(rpma_peer_delete(&peer), "%s", obj(peer));
}

/* `given` selects the on-demand paging capabilities of the device. */
static void odp(void)
{
	static const struct { uint64_t general; uint32_t rc; } caps[] = {
		{0, 0}, {IBV_ODP_SUPPORT, 0}, {IBV_ODP_SUPPORT, IBV_ODP_SUPPORT_READ}, {IBV_ODP_SUPPORT, IBV_ODP_SUPPORT_WRITE},
		{0, IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_WRITE},
		{IBV_ODP_SUPPORT, IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_WRITE}, {UINT64_MAX, UINT32_MAX},
	};
	int chosen = *(const int *)given, capable = 77;
	struct rpma_peer *peer = UNTOUCHED;
	struct rpma_mr_local *mr = UNTOUCHED;

	mock_odp(caps[chosen].general, caps[chosen].rc);
	CALL(rpma_utils_ibv_context_is_odp_capable(CTX, &capable), "%d", capable);
	CALL(rpma_peer_new(CTX, &peer), "%s", obj(peer));
	if (!live(peer))
		return;
	CALL(rpma_mr_reg(peer, LOCAL_ADDR, LOCAL_SIZE, RPMA_MR_USAGE_WRITE_DST, &mr), "%s", obj(mr));
	if (live(mr))
		CALL(rpma_mr_dereg(&mr), "%s", obj(mr));
	CALL(rpma_peer_delete(&peer), "%s", obj(peer));
}

static void memory_life(void)
{
	struct rpma_mr_local *mr = UNTOUCHED, *other = UNTOUCHED;
	unsigned char desc[21] = {0};

	struct rpma_peer *peer = fx_peer();
	CALL(rpma_mr_reg(peer, LOCAL_ADDR, LOCAL_SIZE, RPMA_MR_USAGE_READ_SRC, &mr), "%s", obj(mr));
	CALL(rpma_mr_reg(peer, LOCAL_ADDR, 1, RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_SEND, &other), "%s", obj(other));
	if (live(mr)) {
		CALL(rpma_mr_get_descriptor(mr, desc), "%s", hex(desc, sizeof(desc)));
		CALL(rpma_mr_advise(mr, 8, 16, IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE, IB_UVERBS_ADVISE_MR_FLAG_FLUSH), "%s", "");
		CALL(rpma_mr_dereg(&mr), "%s", obj(mr));
	}
	if (live(other))
		CALL(rpma_mr_dereg(&other), "%s", obj(other));
	CALL(rpma_peer_delete(&peer), "%s", obj(peer));
}

static void lookups(void)
{
	struct ibv_context *ctx = UNTOUCHED;
	int capable = 77;

	CALL(rpma_utils_get_ibv_context(ADDR, RPMA_UTIL_IBV_CONTEXT_LOCAL, &ctx), "%s", ctx == CTX ? "ctx" : obj(ctx));
	ctx = UNTOUCHED;
	CALL(rpma_utils_get_ibv_context(ADDR, RPMA_UTIL_IBV_CONTEXT_REMOTE, &ctx), "%s", ctx == CTX ? "ctx" : obj(ctx));
	CALL(rpma_utils_ibv_context_is_odp_capable(CTX, &capable), "%d", capable);
}

static void lookups_without_device(void)
{
	mock_no_device();
	lookups();
}

static void endpoint_life(void)
{
	struct rpma_ep *ep = UNTOUCHED;
	int fd = -77;

	struct rpma_peer *peer = fx_peer();
	CALL(rpma_ep_listen(peer, ADDR, PORT, &ep), "%s", obj(ep));
	if (live(ep)) {
		CALL(rpma_ep_get_fd(ep, &fd), "%d", fd);
		CALL(rpma_ep_shutdown(&ep), "%s", obj(ep));
	}
	CALL(rpma_peer_delete(&peer), "%s", obj(peer));
}

/* ---- connections, for each layout of the queues ---- */

static const struct layout {
	const char *name;
	bool no_cfg;
	uint32_t rcq;
	bool shared;
	int srq; /* 0: none, 1: without, 2: with a separate queue */
} layouts[] = {
	{"no configuration", true, 0, false, 0},
	{"one queue", false, 0, false, 0},
	{"two queues", false, 10, false, 0},
	{"shared channel", false, 0, true, 0},
	{"shared channel, two queues", false, 10, true, 0},
	{"srq", false, 0, false, 1},
	{"srq, two queues", false, 10, false, 1},
	{"srq with a queue", false, 0, false, 2},
	{"srq with a queue, two queues", false, 10, false, 2},
	{"srq, shared channel, two queues", false, 10, true, 1},
	{"srq with a queue, shared channel", false, 0, true, 2},
};
enum { LAYOUTS = sizeof(layouts) / sizeof(layouts[0]) };

static struct rpma_peer *peer;
static struct rpma_srq *srq;
static struct rpma_conn_cfg *cfg;

static void begin(void)
{
	const struct layout *l = given;
	struct rpma_srq_cfg *scfg = NULL;

	CALL(rpma_peer_new(CTX, &peer), "%s", obj(peer));
	srq = NULL;
	cfg = NULL;
	if (!live(peer))
		return;
	if (l->srq) {
		rpma_srq_cfg_new(&scfg);
		rpma_srq_cfg_set_rcq_size(scfg, l->srq == 2 ? 20 : 0);
		CALL(rpma_srq_new(peer, scfg, &srq), "%s", obj(srq));
		rpma_srq_cfg_delete(&scfg);
	}
	if (!l->no_cfg)
		cfg = fx_cfg(10, l->rcq, l->shared, live(srq) ? srq : NULL);
}

static void end(void)
{
	if (cfg != NULL)
		CALL(rpma_conn_cfg_delete(&cfg), "%s", obj(cfg));
	if (live(srq))
		CALL(rpma_srq_delete(&srq), "%s", obj(srq));
	CALL(rpma_peer_delete(&peer), "%s", obj(peer));
}

static void use(struct rpma_conn *conn, const char *id)
{
	enum rpma_conn_event event = (enum rpma_conn_event)77;
	struct rpma_conn_private_data pdata = {UNTOUCHED, 77};
	struct rpma_cq *cq = UNTOUCHED, *ready = UNTOUCHED;
	struct rpma_peer_cfg *pcfg = NULL;
	struct rpma_mr_local *mr = UNTOUCHED;
	struct ibv_wc wc = {.wr_id = 9, .opcode = IBV_WC_RDMA_READ};
	uint32_t qp_num = 77;
	bool is_rcq = true;
	int fd = -77, n = 77;

	CALL(rpma_conn_get_event_fd(conn, &fd), "%d", fd);
	mock_cm_event(RDMA_CM_EVENT_ESTABLISHED, mock_named(id), "welcome", 7);
	CALL(rpma_conn_next_event(conn, &event), "%d", (int)event);
	CALL(rpma_conn_get_private_data(conn, &pdata), "%s", pdata_text(&pdata));
	CALL(rpma_conn_get_qp_num(conn, &qp_num), "%u", qp_num);
	rpma_peer_cfg_new(&pcfg);
	rpma_peer_cfg_set_direct_write_to_pmem(pcfg, true);
	CALL(rpma_conn_apply_remote_peer_cfg(conn, pcfg), "%s", "");
	rpma_peer_cfg_delete(&pcfg);
	struct rpma_mr_remote *remote = fx_remote(0x3f);
	CALL(rpma_mr_reg(peer, LOCAL_ADDR, LOCAL_SIZE, RPMA_MR_USAGE_RECV | RPMA_MR_USAGE_SEND, &mr), "%s", obj(mr));
	if (live(mr)) {
		CALL(rpma_write(conn, remote, 0, mr, 0, 8, 1, CONTEXT), "%s", "");
		CALL(rpma_read(conn, mr, 0, remote, 0, 8, ALWAYS, CONTEXT), "%s", "");
		CALL(rpma_send(conn, mr, 0, 8, ALWAYS, CONTEXT), "%s", "");
		CALL(rpma_recv(conn, mr, 0, 8, CONTEXT), "%s", "");
	}
	CALL(rpma_flush(conn, remote, 0, 8, RPMA_FLUSH_TYPE_PERSISTENT, ALWAYS, CONTEXT), "%s", "");
	CALL(rpma_atomic_write(conn, remote, 8, "1234567", ALWAYS, CONTEXT), "%s", "");
	rpma_mr_remote_delete(&remote);
	CALL(rpma_conn_get_cq(conn, &cq), "%s", obj(cq));
	mock_cq_event(((struct ibv_qp *)mock_latest("qp"))->send_cq);
	const struct layout *l = given;
	if (l->shared)
		CALL(rpma_conn_wait(conn, 0, &ready, &is_rcq), "%s %d", ready == cq ? "main" : obj(ready), is_rcq);
	else
		CALL(rpma_cq_wait(cq), "%s", "");
	mock_wc(&wc, 1);
	CALL(rpma_cq_get_wc(cq, 1, &wc, &n), "%d", n);
	if (live(mr))
		CALL(rpma_mr_dereg(&mr), "%s", obj(mr));
	CALL(rpma_conn_disconnect(conn), "%s", "");
	mock_cm_event(RDMA_CM_EVENT_DISCONNECTED, mock_named(id), NULL, 0);
	CALL(rpma_conn_next_event(conn, &event), "%d", (int)event);
}

/* Uses a connection, then deletes it with its objects. */
static void finish(struct rpma_conn *conn, const char *id)
{
	use(conn, id);
	CALL(rpma_conn_delete(&conn), "%s", obj(conn));
}

static void active(void)
{
	char hello[] = "hello";
	struct rpma_conn_private_data pdata = {hello, 5};
	struct rpma_conn_req *req = UNTOUCHED;
	struct rpma_conn *conn = UNTOUCHED;

	begin();
	if (!live(peer))
		return;
	CALL(rpma_conn_req_new(peer, ADDR, PORT, cfg, &req), "%s", obj(req));
	if (live(req)) {
		CALL(rpma_conn_req_connect(&req, &pdata, &conn), "%s %s", obj(req), obj(conn));
		if (live(conn))
			finish(conn, "id0");
	}
	end();
}

static void active_deleted(void)
{
	struct rpma_conn_req *req = UNTOUCHED;

	begin();
	if (!live(peer))
		return;
	CALL(rpma_conn_req_new(peer, ADDR, PORT, cfg, &req), "%s", obj(req));
	if (live(req))
		CALL(rpma_conn_req_delete(&req), "%s", obj(req));
	end();
}

static struct rpma_ep *ep;

static struct rpma_conn_req *incoming(void)
{
	struct rpma_conn_req *req = UNTOUCHED;

	ep = UNTOUCHED;
	begin();
	if (!live(peer))
		return NULL;
	CALL(rpma_ep_listen(peer, ADDR, PORT, &ep), "%s", obj(ep));
	if (!live(ep))
		return NULL;
	mock_cm_event(RDMA_CM_EVENT_CONNECT_REQUEST, mock_named("id0"), "hello", 5);
	CALL(rpma_ep_next_conn_req(ep, cfg, &req), "%s", obj(req));
	return live(req) ? req : NULL;
}

static void incoming_end(void)
{
	if (!live(peer))
		return;
	if (live(ep))
		CALL(rpma_ep_shutdown(&ep), "%s", obj(ep));
	end();
}

static void accepted(void)
{
	char hello[] = "hello";
	struct rpma_conn_private_data pdata = {hello, 5};
	struct rpma_conn_req *req = incoming();
	struct rpma_conn *conn = UNTOUCHED;

	if (req != NULL) {
		CALL(rpma_conn_req_connect(&req, &pdata, &conn), "%s %s", obj(req), obj(conn));
		if (live(conn))
			finish(conn, "id1");
	}
	incoming_end();
}

static void rejected(void)
{
	struct rpma_conn_req *req = incoming();

	if (req != NULL)
		CALL(rpma_conn_req_delete(&req), "%s", obj(req));
	incoming_end();
}

/* A call with invalid private data consumes the request. */
static void bad_private_data(void)
{
	struct rpma_conn_private_data pdata = {NULL, 5};
	struct rpma_conn *conn = UNTOUCHED;
	struct rpma_conn_req *req = incoming();

	if (req != NULL)
		CALL(rpma_conn_req_connect(&req, &pdata, &conn), "%s %s", obj(req), obj(conn));
	if (live(peer)) {
		req = UNTOUCHED;
		CALL(rpma_conn_req_new(peer, ADDR, PORT, cfg, &req), "%s", obj(req));
		if (live(req))
			CALL(rpma_conn_req_connect(&req, &pdata, &conn), "%s %s", obj(req), obj(conn));
	}
	incoming_end();
}

/* A device that refuses the first queue pair only. */
static void queue_pair_once(void)
{
	struct rpma_conn_req *req = UNTOUCHED;

	struct rpma_peer *p = fx_peer();
	mock_fail("rdma_create_qp_ex", 1, EINVAL);
	CALL(rpma_conn_req_new(p, ADDR, PORT, NULL, &req), "%s", obj(req));
	if (live(req))
		rpma_conn_req_delete(&req);
	fx_peer_delete(&p);
}

static void srq_life(void)
{
	struct rpma_cq *rcq = UNTOUCHED;

	begin();
	if (live(srq)) {
		CALL(rpma_srq_get_rcq(srq, &rcq), "%s", obj(rcq));
		CALL(rpma_srq_recv(srq, NULL, 0, 0, CONTEXT), "%s", "");
	}
	if (live(peer))
		end();
}

void observe_sequences(void)
{
	char name[128];

	scenario_failing(NULL, peer_life, "life of a peer");
	for (int i = 0; i < 7; i++) {
		snprintf(name, sizeof(name), "on-demand paging %d", i);
		scenario_failing(&i, odp, name);
	}
	scenario_failing(NULL, memory_life, "life of memory regions");
	scenario_failing(NULL, lookups, "device of an address");
	scenario_failing(NULL, lookups_without_device, "address without a device");
	scenario_failing(NULL, endpoint_life, "life of an endpoint");
	scenario(NULL, queue_pair_once, "the first queue pair fails");
	static const struct { const char *name; void (*body)(void); } bodies[] = {
		{"active", active}, {"active, deleted", active_deleted}, {"accepted", accepted}, {"rejected", rejected},
		{"bad private data", bad_private_data}, {"shared receive queue", srq_life},
	};
	for (size_t b = 0; b < sizeof(bodies) / sizeof(bodies[0]); b++)
		for (int i = 0; i < LAYOUTS; i++) {
			snprintf(name, sizeof(name), "%s, %s", bodies[b].name, layouts[i].name);
			if (bodies[b].body != srq_life || layouts[i].srq)
				scenario_failing(&layouts[i], bodies[b].body, name);
		}
}
