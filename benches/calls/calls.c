/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Makes each call of librpma many times, for callgrind to count its instructions: a dump for each row of the
 * table below, with the row's name. usage: calls COUNT. benches/calls/run starts it. fake.c replaces
 * everything below the library.
 */

#include <librpma.h>
#include <stdio.h>
#include <stdlib.h>
#include <valgrind/callgrind.h>

#include "fake.h"

enum { WARM_UP = 3, SIZE = 64, BATCH = 16 };

#define MUST(call) \
	do { \
		if ((call) != 0) { \
			fprintf(stderr, "calls: %s failed\n", #call); \
			exit(1); \
		} \
	} while (0)

/* A row: the calls that are repeated. */
#define ROW(name, ...) static void name(void) { __VA_ARGS__; }

static struct ibv_wc wc[BATCH];
static char memory[SIZE], pdata_bytes[8];
static struct rpma_conn_private_data to_send = {pdata_bytes, sizeof(pdata_bytes)};
static struct rpma_peer *peer;
static struct rpma_mr_local *mr;
static struct rpma_mr_remote *remote;
static struct rpma_srq *srq;
static struct rpma_srq_cfg *srq_cfg;
static struct rpma_conn_cfg *cfg, *shared_cfg;
static struct rpma_peer_cfg *peer_cfg;
static struct rpma_ep *ep;
static struct rpma_conn_req *req;
static struct rpma_conn *conn, *shared_conn;
static struct rpma_cq *cq;
static char mr_descriptor[SIZE], peer_descriptor[SIZE];
static size_t mr_descriptor_size, peer_descriptor_size;

/* The outputs of getters. */
static int number, n;
static uint32_t size32;
static size_t size;
static bool yes;
static void *pointer;
static struct ibv_context *context;
static struct rpma_cq *some_cq;
static struct rpma_srq *some_srq;
static enum rpma_conn_event event;
static enum rpma_log_level level;
static struct rpma_conn_private_data pdata;

/* ---- posting ---- */

ROW(write_, MUST(rpma_write(conn, remote, 0, mr, 0, 8, RPMA_F_COMPLETION_ALWAYS, NULL)))
ROW(write_with_imm, MUST(rpma_write_with_imm(conn, remote, 0, mr, 0, 8, RPMA_F_COMPLETION_ALWAYS, 1, NULL)))
ROW(atomic_write, MUST(rpma_atomic_write(conn, remote, 0, pdata_bytes, RPMA_F_COMPLETION_ALWAYS, NULL)))
ROW(read_, MUST(rpma_read(conn, mr, 0, remote, 0, 8, RPMA_F_COMPLETION_ALWAYS, NULL)))
ROW(flush, MUST(rpma_flush(conn, remote, 0, 8, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS, NULL)))
ROW(flush_persistent, MUST(rpma_flush(conn, remote, 0, 8, RPMA_FLUSH_TYPE_PERSISTENT, RPMA_F_COMPLETION_ALWAYS, NULL)))
ROW(send_, MUST(rpma_send(conn, mr, 0, 8, RPMA_F_COMPLETION_ALWAYS, NULL)))
ROW(send_with_imm, MUST(rpma_send_with_imm(conn, mr, 0, 8, RPMA_F_COMPLETION_ALWAYS, 1, NULL)))
ROW(recv_, MUST(rpma_recv(conn, mr, 0, 8, NULL)))
ROW(srq_recv, MUST(rpma_srq_recv(srq, mr, 0, 8, NULL)))
ROW(req_recv, MUST(rpma_conn_req_recv(req, mr, 0, 8, NULL)))

/* ---- completions ---- */

ROW(cq_get_wc, fake_completions = 1; MUST(rpma_cq_get_wc(cq, 1, wc, NULL)))
ROW(cq_get_wc_batch, fake_completions = BATCH; MUST(rpma_cq_get_wc(cq, BATCH, wc, &n)))
ROW(cq_get_wc_empty, fake_completions = 0; MUST(rpma_cq_get_wc(cq, 1, wc, NULL) != RPMA_E_NO_COMPLETION))
ROW(cq_wait, MUST(rpma_cq_wait(cq)))
ROW(conn_wait, MUST(rpma_conn_wait(shared_conn, 0, &some_cq, &yes)))
ROW(cq_get_fd, MUST(rpma_cq_get_fd(cq, &number)))

/* ---- memory ---- */

ROW(mr_reg, struct rpma_mr_local *new_mr; MUST(rpma_mr_reg(peer, memory, SIZE, RPMA_MR_USAGE_WRITE_SRC, &new_mr));
	MUST(rpma_mr_dereg(&new_mr)))
ROW(mr_get_descriptor, MUST(rpma_mr_get_descriptor(mr, mr_descriptor)))
ROW(mr_get_descriptor_size, MUST(rpma_mr_get_descriptor_size(mr, &size)))
ROW(mr_get_ptr, MUST(rpma_mr_get_ptr(mr, &pointer)))
ROW(mr_get_size, MUST(rpma_mr_get_size(mr, &size)))
ROW(mr_advise, MUST(rpma_mr_advise(mr, 0, 8, 0, 0)))
ROW(mr_remote, struct rpma_mr_remote *new_mr; MUST(rpma_mr_remote_from_descriptor(mr_descriptor, mr_descriptor_size, &new_mr));
	MUST(rpma_mr_remote_delete(&new_mr)))
ROW(mr_remote_get_size, MUST(rpma_mr_remote_get_size(remote, &size)))
ROW(mr_remote_get_flush_type, MUST(rpma_mr_remote_get_flush_type(remote, &number)))

/* ---- configurations ---- */

ROW(conn_cfg, struct rpma_conn_cfg *new_cfg; MUST(rpma_conn_cfg_new(&new_cfg)); MUST(rpma_conn_cfg_delete(&new_cfg)))
ROW(conn_cfg_timeout, MUST(rpma_conn_cfg_set_timeout(cfg, 1000)); MUST(rpma_conn_cfg_get_timeout(cfg, &number)))
ROW(conn_cfg_cq_size, MUST(rpma_conn_cfg_set_cq_size(cfg, 10)); MUST(rpma_conn_cfg_get_cq_size(cfg, &size32)))
ROW(conn_cfg_rcq_size, MUST(rpma_conn_cfg_set_rcq_size(cfg, 10)); MUST(rpma_conn_cfg_get_rcq_size(cfg, &size32)))
ROW(conn_cfg_sq_size, MUST(rpma_conn_cfg_set_sq_size(cfg, 10)); MUST(rpma_conn_cfg_get_sq_size(cfg, &size32)))
ROW(conn_cfg_rq_size, MUST(rpma_conn_cfg_set_rq_size(cfg, 10)); MUST(rpma_conn_cfg_get_rq_size(cfg, &size32)))
ROW(conn_cfg_compl_channel, MUST(rpma_conn_cfg_set_compl_channel(cfg, false));
	MUST(rpma_conn_cfg_get_compl_channel(cfg, &yes)))
ROW(conn_cfg_srq, MUST(rpma_conn_cfg_set_srq(cfg, srq)); MUST(rpma_conn_cfg_get_srq(cfg, &some_srq)))
ROW(srq_cfg_, struct rpma_srq_cfg *new_cfg; MUST(rpma_srq_cfg_new(&new_cfg)); MUST(rpma_srq_cfg_delete(&new_cfg)))
ROW(srq_cfg_rq_size, MUST(rpma_srq_cfg_set_rq_size(srq_cfg, 10)); MUST(rpma_srq_cfg_get_rq_size(srq_cfg, &size32)))
ROW(srq_cfg_rcq_size, MUST(rpma_srq_cfg_set_rcq_size(srq_cfg, 10)); MUST(rpma_srq_cfg_get_rcq_size(srq_cfg, &size32)))
ROW(peer_cfg_, struct rpma_peer_cfg *new_cfg; MUST(rpma_peer_cfg_new(&new_cfg)); MUST(rpma_peer_cfg_delete(&new_cfg)))
ROW(peer_cfg_direct_write, MUST(rpma_peer_cfg_set_direct_write_to_pmem(peer_cfg, true));
	MUST(rpma_peer_cfg_get_direct_write_to_pmem(peer_cfg, &yes)))
ROW(peer_cfg_get_descriptor, MUST(rpma_peer_cfg_get_descriptor(peer_cfg, peer_descriptor)))
ROW(peer_cfg_get_descriptor_size, MUST(rpma_peer_cfg_get_descriptor_size(peer_cfg, &size)))
ROW(peer_cfg_from_descriptor, struct rpma_peer_cfg *new_cfg;
	MUST(rpma_peer_cfg_from_descriptor(peer_descriptor, peer_descriptor_size, &new_cfg));
	MUST(rpma_peer_cfg_delete(&new_cfg)))

/* ---- peers, endpoints, connections ---- */

ROW(get_ibv_context, MUST(rpma_utils_get_ibv_context("192.0.2.1", RPMA_UTIL_IBV_CONTEXT_REMOTE, &context)))
ROW(odp_capable, MUST(rpma_utils_ibv_context_is_odp_capable(fake_context, &number)))
ROW(peer_, struct rpma_peer *new_peer; MUST(rpma_peer_new(fake_context, &new_peer)); MUST(rpma_peer_delete(&new_peer)))
ROW(srq_, struct rpma_srq *new_srq; MUST(rpma_srq_new(peer, NULL, &new_srq)); MUST(rpma_srq_delete(&new_srq)))
ROW(srq_get_rcq, MUST(rpma_srq_get_rcq(srq, &some_cq)))
ROW(ep_, struct rpma_ep *new_ep; MUST(rpma_ep_listen(peer, "192.0.2.1", "7204", &new_ep)); MUST(rpma_ep_shutdown(&new_ep)))
ROW(ep_get_fd, MUST(rpma_ep_get_fd(ep, &number)))
ROW(ep_next_conn_req, fake_event = RDMA_CM_EVENT_CONNECT_REQUEST; struct rpma_conn_req *new_req;
	MUST(rpma_ep_next_conn_req(ep, NULL, &new_req)); MUST(rpma_conn_req_delete(&new_req)))
ROW(conn_req, struct rpma_conn_req *new_req; MUST(rpma_conn_req_new(peer, "192.0.2.1", "7204", NULL, &new_req));
	MUST(rpma_conn_req_delete(&new_req)))
ROW(conn_req_get_private_data, MUST(rpma_conn_req_get_private_data(req, &pdata)))
ROW(conn_, struct rpma_conn_req *new_req; struct rpma_conn *new_conn;
	MUST(rpma_conn_req_new(peer, "192.0.2.1", "7204", NULL, &new_req));
	MUST(rpma_conn_req_connect(&new_req, &to_send, &new_conn)); MUST(rpma_conn_delete(&new_conn)))
ROW(conn_accept, fake_event = RDMA_CM_EVENT_CONNECT_REQUEST; struct rpma_conn_req *new_req; struct rpma_conn *new_conn;
	MUST(rpma_ep_next_conn_req(ep, NULL, &new_req)); MUST(rpma_conn_req_connect(&new_req, NULL, &new_conn));
	MUST(rpma_conn_delete(&new_conn)))
ROW(conn_established, fake_event = RDMA_CM_EVENT_ESTABLISHED; MUST(rpma_conn_next_event(conn, &event)))
ROW(conn_closed, fake_event = RDMA_CM_EVENT_DISCONNECTED; MUST(rpma_conn_next_event(conn, &event)))
ROW(conn_disconnect, MUST(rpma_conn_disconnect(conn)))
ROW(conn_get_private_data, MUST(rpma_conn_get_private_data(conn, &pdata)))
ROW(conn_apply_remote_peer_cfg, MUST(rpma_conn_apply_remote_peer_cfg(conn, peer_cfg)))
ROW(conn_get_qp_num, MUST(rpma_conn_get_qp_num(conn, &size32)))
ROW(conn_get_cq, MUST(rpma_conn_get_cq(conn, &some_cq)))
ROW(conn_get_rcq, MUST(rpma_conn_get_rcq(conn, &some_cq)))
ROW(conn_get_event_fd, MUST(rpma_conn_get_event_fd(conn, &number)))
ROW(conn_get_compl_fd, MUST(rpma_conn_get_compl_fd(shared_conn, &number)))

/* ---- strings and the log ---- */

ROW(err_2str, MUST(rpma_err_2str(RPMA_E_PROVIDER) == NULL))
ROW(conn_event_2str, MUST(rpma_utils_conn_event_2str(RPMA_CONN_CLOSED) == NULL))
ROW(log_threshold, MUST(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_LEVEL_WARNING));
	MUST(rpma_log_get_threshold(RPMA_LOG_THRESHOLD, &level)))

static const struct {
	const char *name;
	void (*make)(void);
} rows[] = {
	{"write", write_}, {"write_with_imm", write_with_imm}, {"atomic_write", atomic_write}, {"read", read_}, {"flush", flush},
	{"flush_persistent", flush_persistent}, {"send", send_}, {"send_with_imm", send_with_imm}, {"recv", recv_},
	{"srq_recv", srq_recv}, {"conn_req_recv", req_recv},
	{"cq_get_wc", cq_get_wc}, {"cq_get_wc_16", cq_get_wc_batch}, {"cq_get_wc_empty", cq_get_wc_empty}, {"cq_wait", cq_wait},
	{"conn_wait", conn_wait}, {"cq_get_fd", cq_get_fd},
	{"mr_reg+dereg", mr_reg}, {"mr_get_descriptor", mr_get_descriptor}, {"mr_get_descriptor_size", mr_get_descriptor_size},
	{"mr_get_ptr", mr_get_ptr}, {"mr_get_size", mr_get_size}, {"mr_advise", mr_advise}, {"mr_remote_new+delete", mr_remote},
	{"mr_remote_get_size", mr_remote_get_size}, {"mr_remote_get_flush_type", mr_remote_get_flush_type},
	{"conn_cfg_new+delete", conn_cfg}, {"conn_cfg_timeout", conn_cfg_timeout}, {"conn_cfg_cq_size", conn_cfg_cq_size},
	{"conn_cfg_rcq_size", conn_cfg_rcq_size}, {"conn_cfg_sq_size", conn_cfg_sq_size}, {"conn_cfg_rq_size", conn_cfg_rq_size},
	{"conn_cfg_compl_channel", conn_cfg_compl_channel}, {"conn_cfg_srq", conn_cfg_srq}, {"srq_cfg_new+delete", srq_cfg_},
	{"srq_cfg_rq_size", srq_cfg_rq_size}, {"srq_cfg_rcq_size", srq_cfg_rcq_size}, {"peer_cfg_new+delete", peer_cfg_},
	{"peer_cfg_direct_write", peer_cfg_direct_write}, {"peer_cfg_get_descriptor", peer_cfg_get_descriptor},
	{"peer_cfg_get_descriptor_size", peer_cfg_get_descriptor_size}, {"peer_cfg_from_descr+delete", peer_cfg_from_descriptor},
	{"utils_get_ibv_context", get_ibv_context}, {"utils_is_odp_capable", odp_capable}, {"peer_new+delete", peer_},
	{"srq_new+delete", srq_}, {"srq_get_rcq", srq_get_rcq}, {"ep_listen+shutdown", ep_}, {"ep_get_fd", ep_get_fd},
	{"ep_next_conn_req+delete", ep_next_conn_req}, {"conn_req_new+delete", conn_req},
	{"conn_req_get_private_data", conn_req_get_private_data}, {"conn_new+delete", conn_}, {"conn_accept+delete", conn_accept},
	{"conn_next_event", conn_established}, {"conn_next_event_closed", conn_closed}, {"conn_disconnect", conn_disconnect},
	{"conn_get_private_data", conn_get_private_data}, {"conn_apply_remote_peer_cfg", conn_apply_remote_peer_cfg},
	{"conn_get_qp_num", conn_get_qp_num}, {"conn_get_cq", conn_get_cq}, {"conn_get_rcq", conn_get_rcq},
	{"conn_get_event_fd", conn_get_event_fd}, {"conn_get_compl_fd", conn_get_compl_fd},
	{"err_2str", err_2str}, {"utils_conn_event_2str", conn_event_2str}, {"log_threshold", log_threshold},
};

static struct rpma_conn *connected(const struct rpma_conn_cfg *with)
{
	struct rpma_conn_req *new_req;
	struct rpma_conn *new_conn;

	MUST(rpma_conn_req_new(peer, "192.0.2.1", "7204", with, &new_req));
	MUST(rpma_conn_req_connect(&new_req, NULL, &new_conn));
	MUST(rpma_conn_apply_remote_peer_cfg(new_conn, peer_cfg));
	return new_conn;
}

static void set_up(void)
{
	MUST(rpma_peer_new(fake_context, &peer));
	MUST(rpma_mr_reg(peer, memory, SIZE, 0xff, &mr));
	MUST(rpma_mr_get_descriptor_size(mr, &mr_descriptor_size));
	MUST(mr_descriptor_size > sizeof(mr_descriptor));
	MUST(rpma_mr_get_descriptor(mr, mr_descriptor));
	MUST(rpma_mr_remote_from_descriptor(mr_descriptor, mr_descriptor_size, &remote));
	MUST(rpma_srq_cfg_new(&srq_cfg));
	MUST(rpma_srq_new(peer, srq_cfg, &srq));
	MUST(rpma_peer_cfg_new(&peer_cfg));
	MUST(rpma_peer_cfg_set_direct_write_to_pmem(peer_cfg, true));
	MUST(rpma_peer_cfg_get_descriptor_size(peer_cfg, &peer_descriptor_size));
	MUST(peer_descriptor_size > sizeof(peer_descriptor));
	MUST(rpma_peer_cfg_get_descriptor(peer_cfg, peer_descriptor));
	MUST(rpma_conn_cfg_new(&cfg));
	MUST(rpma_conn_cfg_new(&shared_cfg));
	MUST(rpma_conn_cfg_set_compl_channel(shared_cfg, true));
	MUST(rpma_ep_listen(peer, "192.0.2.1", "7204", &ep));
	MUST(rpma_conn_req_new(peer, "192.0.2.1", "7204", NULL, &req));
	conn = connected(NULL);
	MUST(rpma_conn_get_cq(conn, &cq));
	shared_conn = connected(shared_cfg);
}

int main(int argc, char *argv[])
{
	int count = argc == 2 ? atoi(argv[1]) : 0;

	if (count < 1) {
		fprintf(stderr, "usage: calls COUNT\n");
		return 2;
	}
	set_up();
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		/* work of the first call only, such as binding symbols, is not a cost of a call */
		for (int j = 0; j < WARM_UP; j++)
			rows[i].make();
		CALLGRIND_ZERO_STATS;
		for (int j = 0; j < count; j++)
			rows[i].make();
		CALLGRIND_DUMP_STATS_AT(rows[i].name);
	}
	return 0;
}
