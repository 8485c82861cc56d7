/* SPDX-License-Identifier: BSD-3-Clause */

#include "fixture.h"

void fx_forget(void)
{
	mock_forget_calls();
	mock_forget_log();
}

struct rpma_peer *fx_peer(void)
{
	struct rpma_peer *peer = NULL;

	assert_int_equal(rpma_peer_new(CTX, &peer), 0);
	assert_non_null(peer);
	fx_forget();
	return peer;
}

void fx_peer_delete(struct rpma_peer **peer)
{
	assert_int_equal(rpma_peer_delete(peer), 0);
	assert_null(*peer);
	fx_forget();
}

struct rpma_mr_local *fx_mr(struct rpma_peer *peer, int usage)
{
	struct rpma_mr_local *mr = NULL;

	assert_int_equal(rpma_mr_reg(peer, LOCAL_ADDR, LOCAL_SIZE, usage, &mr), 0);
	assert_non_null(mr);
	fx_forget();
	return mr;
}

void fx_mr_dereg(struct rpma_mr_local **mr)
{
	assert_int_equal(rpma_mr_dereg(mr), 0);
	fx_forget();
}

void fx_descriptor(unsigned char desc[21], uint64_t addr, uint64_t size, uint32_t rkey,
		uint8_t usage)
{
	for (int i = 0; i < 8; i++) {
		desc[i] = (unsigned char)(addr >> (8 * i));
		desc[8 + i] = (unsigned char)(size >> (8 * i));
	}
	for (int i = 0; i < 4; i++)
		desc[16 + i] = (unsigned char)(rkey >> (8 * i));
	desc[20] = usage;
}

struct rpma_mr_remote *fx_remote(int usage)
{
	struct rpma_mr_remote *mr = NULL;
	unsigned char desc[21];

	fx_descriptor(desc, REMOTE_ADDR, REMOTE_SIZE, REMOTE_RKEY, (uint8_t)usage);
	assert_int_equal(rpma_mr_remote_from_descriptor(desc, sizeof(desc), &mr), 0);
	fx_forget();
	return mr;
}

void fx_remote_delete(struct rpma_mr_remote **mr)
{
	assert_int_equal(rpma_mr_remote_delete(mr), 0);
	fx_forget();
}

struct rpma_conn_cfg *fx_cfg(uint32_t cq, uint32_t rcq, bool shared, struct rpma_srq *srq)
{
	struct rpma_conn_cfg *cfg = NULL;

	assert_int_equal(rpma_conn_cfg_new(&cfg), 0);
	assert_int_equal(rpma_conn_cfg_set_cq_size(cfg, cq), 0);
	assert_int_equal(rpma_conn_cfg_set_rcq_size(cfg, rcq), 0);
	assert_int_equal(rpma_conn_cfg_set_compl_channel(cfg, shared), 0);
	if (srq != NULL)
		assert_int_equal(rpma_conn_cfg_set_srq(cfg, srq), 0);
	fx_forget();
	return cfg;
}

void fx_cfg_delete(struct rpma_conn_cfg **cfg)
{
	assert_int_equal(rpma_conn_cfg_delete(cfg), 0);
	fx_forget();
}

struct rpma_conn_req *fx_req(struct rpma_peer *peer, const struct rpma_conn_cfg *cfg)
{
	struct rpma_conn_req *req = NULL;

	assert_int_equal(rpma_conn_req_new(peer, ADDR, PORT, cfg, &req), 0);
	assert_non_null(req);
	fx_forget();
	return req;
}

static struct rpma_conn *connect_req(struct rpma_conn_req *req)
{
	struct rpma_conn *conn = NULL;

	assert_int_equal(rpma_conn_req_connect(&req, NULL, &conn), 0);
	assert_non_null(conn);
	assert_null(req);
	fx_forget();
	return conn;
}

struct rpma_conn *fx_conn(struct rpma_peer *peer, const struct rpma_conn_cfg *cfg)
{
	return connect_req(fx_req(peer, cfg));
}

void fx_conn_delete(struct rpma_conn **conn)
{
	assert_int_equal(rpma_conn_delete(conn), 0);
	assert_null(*conn);
	fx_forget();
}

struct rpma_ep *fx_ep(struct rpma_peer *peer)
{
	struct rpma_ep *ep = NULL;

	assert_int_equal(rpma_ep_listen(peer, ADDR, PORT, &ep), 0);
	fx_forget();
	return ep;
}

void fx_ep_shutdown(struct rpma_ep **ep)
{
	assert_int_equal(rpma_ep_shutdown(ep), 0);
	fx_forget();
}

struct rpma_conn_req *fx_incoming(struct rpma_ep *ep, const struct rpma_conn_cfg *cfg,
		const char *pdata)
{
	struct rpma_conn_req *req = NULL;

	mock_cm_event(RDMA_CM_EVENT_CONNECT_REQUEST, mock_named("id0"), pdata,
			pdata ? (uint8_t)strlen(pdata) : 0);
	assert_int_equal(rpma_ep_next_conn_req(ep, cfg, &req), 0);
	assert_non_null(req);
	fx_forget();
	return req;
}

struct rpma_conn *fx_accepted(struct rpma_ep *ep, const struct rpma_conn_cfg *cfg,
		const char *pdata)
{
	return connect_req(fx_incoming(ep, cfg, pdata));
}

struct rpma_srq *fx_srq(struct rpma_peer *peer, uint32_t rcq_size)
{
	struct rpma_srq_cfg *cfg = NULL;
	struct rpma_srq *srq = NULL;

	assert_int_equal(rpma_srq_cfg_new(&cfg), 0);
	assert_int_equal(rpma_srq_cfg_set_rcq_size(cfg, rcq_size), 0);
	assert_int_equal(rpma_srq_new(peer, cfg, &srq), 0);
	assert_int_equal(rpma_srq_cfg_delete(&cfg), 0);
	fx_forget();
	return srq;
}

void fx_srq_delete(struct rpma_srq **srq)
{
	assert_int_equal(rpma_srq_delete(srq), 0);
	fx_forget();
}
