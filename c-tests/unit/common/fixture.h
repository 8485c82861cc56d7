/* SPDX-License-Identifier: BSD-3-Clause */

/* Common objects of many tests. Each function leaves both logs empty. */
#ifndef FIXTURE_H
#define FIXTURE_H

#include "mock.h"

/* A pointer value that no function returns, to check that an output was not written. */
#define UNTOUCHED ((void *)(uintptr_t)0xbad0bad0)

/* Memory of a local region: never read or written, only its address is used. */
#define LOCAL_ADDR ((void *)(uintptr_t)0x10000)
#define LOCAL_SIZE 0x8000
/* The content of the descriptor of the remote region. */
#define REMOTE_ADDR 0x7000000
#define REMOTE_SIZE 0x9000
#define REMOTE_RKEY 0x5678u

#define ADDR "192.0.2.7"
#define PORT "7204"

/* Connection parameters as rdma_connect and rdma_accept get them. */
#define PARAMS(pdata) pdata ", resources 255, depth 255, flow 1, retry 7 7, srq 0, qp 0"

/* rdma_create_qp_ex with one CQ of 10 and the defaults; `res` as in the log. */
#define QP_LINE(id, rcq, in_line) "rdma_create_qp_ex(" id ", pd0, mask 0x1, ctx NULL, cq cq0 " \
	rcq ", srq NULL, wr 10 10, sge 1 1, inline " in_line ", RC, sig_all 0)"

/* Rows of struct step: a completion queue with its own channel, or on a shared one. */
#define CQ_STEPS(n, cqe) \
	{"ibv_create_comp_channel(ctx)", "chan" n, "ibv_destroy_comp_channel(chan" n ")", NULL}, \
	CQ_STEPS_ON("chan" n, n, cqe)
#define CQ_STEPS_ON(ch, n, cqe) \
	{"ibv_create_cq(ctx, " cqe ", NULL, " ch ", 0)", "cq" n, "ibv_destroy_cq(cq" n ")", NULL}, \
	{"ibv_req_notify_cq(cq" n ", 0)", NULL, NULL, NULL}
#define QP_STEP(id, rcq) \
	{QP_LINE(id, rcq, "8"), "qp0", "rdma_destroy_qp(" id ")", QP_LINE(id, rcq, "0")}

/*
 * The last calls with which ours fetches a request: the id gets a separate channel. Every release leaves it
 * on the channel of the endpoint until the request is accepted.
 */
#define OWN_CHANNEL(id, ch) \
	original() ? NULL : "rdma_create_event_channel() = " ch, "rdma_migrate_id(" id ", " ch ")"

struct rpma_peer *fx_peer(void);
void fx_peer_delete(struct rpma_peer **peer);

struct rpma_mr_local *fx_mr(struct rpma_peer *peer, int usage);
void fx_mr_dereg(struct rpma_mr_local **mr);
/* 21 bytes of a descriptor. */
void fx_descriptor(unsigned char desc[21], uint64_t addr, uint64_t size, uint32_t rkey,
		uint8_t usage);
struct rpma_mr_remote *fx_remote(int usage);
void fx_remote_delete(struct rpma_mr_remote **mr);

struct rpma_conn_cfg *fx_cfg(uint32_t cq, uint32_t rcq, bool shared, struct rpma_srq *srq);
void fx_cfg_delete(struct rpma_conn_cfg **cfg);

struct rpma_conn_req *fx_req(struct rpma_peer *peer, const struct rpma_conn_cfg *cfg);
struct rpma_conn *fx_conn(struct rpma_peer *peer, const struct rpma_conn_cfg *cfg);
void fx_conn_delete(struct rpma_conn **conn);

struct rpma_ep *fx_ep(struct rpma_peer *peer);
void fx_ep_shutdown(struct rpma_ep **ep);
/* Fetches a request from the endpoint; pdata may be NULL. */
struct rpma_conn_req *fx_incoming(struct rpma_ep *ep, const struct rpma_conn_cfg *cfg,
		const char *pdata);
struct rpma_conn *fx_accepted(struct rpma_ep *ep, const struct rpma_conn_cfg *cfg,
		const char *pdata);

struct rpma_srq *fx_srq(struct rpma_peer *peer, uint32_t rcq_size);
void fx_srq_delete(struct rpma_srq **srq);

/* mock_teardown reports objects that were not destroyed; this empties both logs. */
void fx_forget(void);

#endif /* FIXTURE_H */
