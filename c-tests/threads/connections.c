/* SPDX-License-Identifier: BSD-3-Clause */
/* connections.c -- endpoints, requests and connections of one peer. */
#include "rows.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>

static struct listener listener;
static struct rpma_conn_req *request;
static struct rpma_conn_cfg *cfg;
static struct ends ends;
static struct rpma_srq *srq;

/* The queues of the connection that all threads use. */
enum { POSTED = 8, RECEIVED = 3 };
static struct rpma_cq *cq;
static struct rpma_cq *rcq;

static void
one_listener(void)
{
	listen_somewhere(&listener);
}

static void
no_listener(void)
{
	OK(rpma_ep_shutdown(&listener.ep));
}

static void
set_nonblocking(int fd)
{
	EXPECT(fd >= 0 && fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0);
}

/* Own endpoints of one peer, and calls on a shared one. */
static void
own_endpoints(unsigned thread)
{
	(void)thread;
	for (unsigned i = 0; i < rounds; i++) {
		struct listener own = {0};
		int fd = -1;

		listen_somewhere(&own);
		OK(rpma_ep_get_fd(listener.ep, &fd));
		EXPECT(fd >= 0);
		OK(rpma_ep_shutdown(&own.ep));
	}
}

/* Requests of one peer, and receives for a request that all share. */
static void
one_request(void)
{
	one_listener();
	OK(rpma_conn_cfg_new(&cfg));
	OK(rpma_conn_cfg_set_rq_size(cfg, threads * rounds));
	OK(rpma_conn_req_new(peer, ADDR, listener.port, cfg, &request));
}

static void
requests(unsigned thread)
{
	for (unsigned i = 0; i < rounds; i++) {
		struct rpma_conn_req *own = NULL;
		struct rpma_conn_private_data pdata;

		OK(rpma_conn_req_new(peer, ADDR, listener.port, patient, &own));
		OK(rpma_conn_req_recv(own, mr, thread * SIZE, 64, NULL));
		OK(rpma_conn_req_recv(request, mr, thread * SIZE, 64, NULL));
		OK(rpma_conn_req_get_private_data(request, &pdata));
		OK(rpma_conn_req_delete(&own));
	}
}

static void
no_request(void)
{
	OK(rpma_conn_req_delete(&request));
	OK(rpma_conn_cfg_delete(&cfg));
	no_listener();
}

/*
 * All threads connect to one endpoint and fetch any thread's requests from it. Every third request is
 * deleted, which rejects it. No thread waits for a later action of another.
 */
static void
one_endpoint(unsigned thread)
{
	for (unsigned i = 0; i < rounds; i++) {
		struct rpma_conn_req *req = NULL;
		struct rpma_conn *active = NULL, *passive = NULL;
		enum rpma_conn_event event = RPMA_CONN_UNDEFINED;

		OK(rpma_conn_req_new(peer, ADDR, listener.port, patient, &req));
		OK(rpma_conn_req_connect(&req, NULL, &active));
		OK(rpma_ep_next_conn_req(listener.ep, NULL, &req));
		if ((thread + i) % 3 == 0) {
			OK(rpma_conn_req_delete(&req));
			count(1);
		} else {
			OK(rpma_conn_req_connect(&req, NULL, &passive));
			expect_event(passive, RPMA_CONN_ESTABLISHED);
		}
		OK(rpma_conn_next_event(active, &event));
		EXPECT(event == RPMA_CONN_ESTABLISHED || event == RPMA_CONN_REJECTED);
		if (event == RPMA_CONN_REJECTED) {
			count(-1);
		} else {
			OK(rpma_conn_disconnect(active));
			expect_event(active, RPMA_CONN_CLOSED);
		}
		if (passive != NULL)
			expect_event(passive, RPMA_CONN_CLOSED);
		OK(rpma_conn_delete(&active));
		OK(rpma_conn_delete(&passive));
	}
	meet();
	EXPECT(count(0) == 0);
}

static void
await(struct rpma_cq *of, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc;
	int ret;

	while ((ret = rpma_cq_get_wc(of, 1, &wc, NULL)) == RPMA_E_NO_COMPLETION)
		OK(rpma_cq_wait(of));
	OK(ret);
	EXPECT(wc.status == IBV_WC_SUCCESS && wc.opcode == opcode);
}

/* The whole life of connections of one peer. */
static void
own_connections(unsigned thread)
{
	struct listener own = {0};

	listen_somewhere(&own);
	for (unsigned i = 0; i < rounds; i++) {
		struct ends mine = {NULL, NULL};
		struct rpma_cq *completions = NULL;
		char *at = memory[thread];

		memset(at, (int)(i + thread), SIZE / 2);
		memset(at + SIZE / 2, 0, SIZE / 2);
		connect_ends(&mine, &own, patient);
		OK(rpma_conn_get_cq(mine.active, &completions));
		OK(rpma_write(mine.active, remote, thread * SIZE + SIZE / 2, mr, thread * SIZE, SIZE / 4, RPMA_F_COMPLETION_ALWAYS,
			NULL));
		await(completions, IBV_WC_RDMA_WRITE);
		OK(rpma_flush(mine.active, remote, thread * SIZE, SIZE, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS,
			NULL));
		await(completions, IBV_WC_RDMA_READ);
		OK(rpma_read(mine.active, mr, thread * SIZE + SIZE * 3 / 4, remote, thread * SIZE, SIZE / 4,
			RPMA_F_COMPLETION_ALWAYS, NULL));
		await(completions, IBV_WC_RDMA_READ);
		close_ends(&mine);
		EXPECT(memcmp(at, at + SIZE / 2, SIZE / 4) == 0);
		EXPECT(memcmp(at, at + SIZE * 3 / 4, SIZE / 4) == 0);
	}
	OK(rpma_ep_shutdown(&own.ep));
}

static void
one_connection(void)
{
	struct rpma_peer_cfg *pcfg = NULL;
	int fd = -1;

	one_listener();
	OK(rpma_conn_cfg_new(&cfg));
	OK(rpma_conn_cfg_set_timeout(cfg, 60000));
	OK(rpma_conn_cfg_set_sq_size(cfg, threads * rounds * POSTED));
	OK(rpma_conn_cfg_set_cq_size(cfg, threads * rounds * POSTED));
	OK(rpma_conn_cfg_set_rq_size(cfg, threads * rounds * RECEIVED));
	OK(rpma_conn_cfg_set_rcq_size(cfg, threads * rounds * RECEIVED));
	OK(rpma_conn_cfg_set_compl_channel(cfg, true));
	connect_ends(&ends, &listener, cfg);
	OK(rpma_peer_cfg_new(&pcfg));
	OK(rpma_peer_cfg_set_direct_write_to_pmem(pcfg, true));
	OK(rpma_conn_apply_remote_peer_cfg(ends.active, pcfg));
	OK(rpma_peer_cfg_delete(&pcfg));
	OK(rpma_conn_get_cq(ends.active, &cq));
	OK(rpma_conn_get_rcq(ends.passive, &rcq));
	OK(rpma_conn_get_compl_fd(ends.passive, &fd));
	set_nonblocking(fd);
	OK(rpma_conn_get_compl_fd(ends.active, &fd));
	set_nonblocking(fd);
	count(threads * rounds * (POSTED + RECEIVED));
}

static void
disconnect(void)
{
	close_ends(&ends);
	OK(rpma_conn_cfg_delete(&cfg));
	no_listener();
}

/* Polls for a completion, every other time with the call of earlier releases. */
static void
take(struct rpma_cq *from, unsigned how)
{
	struct rpma_completion completion = {.op_status = IBV_WC_SUCCESS};
	struct ibv_wc wc = {.status = IBV_WC_SUCCESS};
	int ret;

	if (how % 2)
		ret = rpma_cq_get_completion(from, &completion);
	else
		ret = rpma_cq_get_wc(from, 1, &wc, NULL);
	if (ret == RPMA_E_NO_COMPLETION)
		return;
	OK(ret);
	EXPECT(wc.status == IBV_WC_SUCCESS && completion.op_status == IBV_WC_SUCCESS);
	count(-1);
}

/* Waits briefly for a completion: another thread may poll it. */
static void
wait_a_moment(struct rpma_conn *conn)
{
	struct pollfd fd = {.events = POLLIN};
	struct rpma_cq *of = NULL;
	bool is_rcq;

	OK(rpma_conn_get_compl_fd(conn, &fd.fd));
	if (poll(&fd, 1, 5) == 1) {
		int ret = rpma_conn_wait(conn, 0, &of, &is_rcq);
		EXPECT(ret == 0 || ret == RPMA_E_NO_COMPLETION);
	}
}

/* All threads post all operations, and poll the completions of all threads. */
static void
operations(unsigned thread)
{
	const int always = RPMA_F_COMPLETION_ALWAYS;
	const size_t at = thread * SIZE;
	static const char eight[8] = "8 bytes";

	for (unsigned i = 0; i < rounds; i++) {
		for (unsigned r = 0; r < RECEIVED; r++)
			OK(rpma_recv(ends.passive, mr, at + 1024, 64, NULL));
		OK(rpma_write(ends.active, remote, at + 2048, mr, at, 64, always, NULL));
		OK(rpma_write_with_imm(ends.active, remote, at + 2048, mr, at, 64, always, i, NULL));
		OK(rpma_atomic_write(ends.active, remote, at + 3072, eight, always, NULL));
		OK(rpma_write_atomic(ends.active, remote, at + 3080, mr, at, always, NULL));
		OK(rpma_flush(ends.active, remote, at, SIZE, i % 2 ? RPMA_FLUSH_TYPE_VISIBILITY : RPMA_FLUSH_TYPE_PERSISTENT, always,
			NULL));
		OK(rpma_send(ends.active, mr, at, 64, always, NULL));
		OK(rpma_send_with_imm(ends.active, mr, at, 64, always, i, NULL));
		OK(rpma_read(ends.active, mr, at + 3584, remote, at, 64, always, NULL));
		take(cq, i);
		take(rcq, i);
	}
	while (count(0) > 0) {
		wait_a_moment(thread % 2 ? ends.passive : ends.active);
		take(cq, thread);
		take(rcq, thread);
		sched_yield();
	}
	meet();
	EXPECT(count(0) == 0);
}

/* A completion queue with a separate channel, and the calls of earlier releases that take a connection. */
static void
plain_connection(void)
{
	int fd = -1;

	one_listener();
	OK(rpma_conn_cfg_new(&cfg));
	OK(rpma_conn_cfg_set_timeout(cfg, 60000));
	OK(rpma_conn_cfg_set_sq_size(cfg, threads * rounds));
	OK(rpma_conn_cfg_set_cq_size(cfg, threads * rounds));
	connect_ends(&ends, &listener, cfg);
	OK(rpma_conn_get_cq(ends.active, &cq));
	OK(rpma_cq_get_fd(cq, &fd));
	set_nonblocking(fd);
	count(threads * rounds);
}

static void
waits(unsigned thread)
{
	for (unsigned i = 0; i < rounds; i++)
		OK(rpma_read(ends.active, mr, thread * SIZE, remote, thread * SIZE + 2048, 64, RPMA_F_COMPLETION_ALWAYS, NULL));
	while (count(0) > 0) {
		struct pollfd fd = {.events = POLLIN};
		struct rpma_completion completion;
		int ret;

		OK(rpma_conn_get_completion_fd(ends.active, &fd.fd));
		if (poll(&fd, 1, 5) == 1) {
			ret = thread % 2 ? rpma_cq_wait(cq) : rpma_conn_completion_wait(ends.active);
			EXPECT(ret == 0 || ret == RPMA_E_NO_COMPLETION);
		}
		ret = rpma_conn_completion_get(ends.active, &completion);
		if (ret == RPMA_E_NO_COMPLETION)
			continue;
		OK(ret);
		EXPECT(completion.op_status == IBV_WC_SUCCESS);
		count(-1);
	}
}

/* Queries of one connection by all threads, which then all disconnect it; each event is returned once. */
static void
quiet_connection(void)
{
	int fd = -1;

	one_listener();
	OK(rpma_conn_cfg_new(&cfg));
	OK(rpma_conn_cfg_set_timeout(cfg, 60000));
	connect_ends(&ends, &listener, cfg);
	OK(rpma_conn_get_event_fd(ends.active, &fd));
	set_nonblocking(fd);
	OK(rpma_conn_get_event_fd(ends.passive, &fd));
	set_nonblocking(fd);
}

static void
questions(unsigned thread)
{
	struct rpma_peer_cfg *pcfg = NULL;

	OK(rpma_peer_cfg_new(&pcfg));
	for (unsigned i = 0; i < rounds; i++) {
		struct rpma_conn_private_data pdata;
		struct rpma_cq *of = NULL;
		uint32_t number = 0;
		int fd = -1;

		OK(rpma_conn_get_event_fd(ends.active, &fd));
		OK(rpma_conn_get_private_data(ends.passive, &pdata));
		OK(rpma_conn_get_qp_num(ends.active, &number));
		OK(rpma_conn_get_rcq(ends.active, &of));
		OK(rpma_conn_get_cq(ends.active, &of));
		OK(rpma_cq_get_fd(of, &fd));
		OK(rpma_peer_cfg_set_direct_write_to_pmem(pcfg, (i + thread) % 2));
		OK(rpma_conn_apply_remote_peer_cfg(ends.active, pcfg));
	}
	OK(rpma_peer_cfg_delete(&pcfg));
	OK(rpma_conn_disconnect(thread % 2 ? ends.active : ends.passive));
	while (count(0) < 2) {
		enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
		int ret = rpma_conn_next_event(thread % 2 ? ends.passive : ends.active, &event);

		if (ret == RPMA_E_NO_EVENT) {
			sched_yield();
			continue;
		}
		OK(ret);
		EXPECT(event == RPMA_CONN_CLOSED);
		count(1);
	}
	meet();
	EXPECT(count(0) == 2);
}

static void
delete_connection(void)
{
	OK(rpma_conn_delete(&ends.active));
	OK(rpma_conn_delete(&ends.passive));
	OK(rpma_conn_cfg_delete(&cfg));
	no_listener();
}

/*
 * Connections of all threads with one shared receive queue; the thread that polls a message posts its receive
 * again.
 */
static void
shared_receives(void)
{
	struct rpma_srq_cfg *srq_cfg = NULL;
	int fd = -1;

	OK(rpma_srq_cfg_new(&srq_cfg));
	OK(rpma_srq_cfg_set_rq_size(srq_cfg, 2 * threads));
	OK(rpma_srq_cfg_set_rcq_size(srq_cfg, 4 * threads));
	OK(rpma_srq_new(peer, srq_cfg, &srq));
	OK(rpma_srq_cfg_delete(&srq_cfg));
	OK(rpma_conn_cfg_new(&cfg));
	OK(rpma_conn_cfg_set_srq(cfg, srq));
	OK(rpma_srq_get_rcq(srq, &rcq));
	OK(rpma_cq_get_fd(rcq, &fd));
	for (unsigned i = 0; i < 2 * threads; i++)
		OK(rpma_srq_recv(srq, mr, i * 64, 64, (void *)(size_t)i));
	count(threads * rounds);
}

static void
messages(unsigned thread)
{
	struct listener own = {0};
	struct ends mine = {NULL, NULL};
	struct rpma_conn_req *req = NULL;
	struct rpma_cq *completions = NULL;
	struct ibv_wc wc;

	listen_somewhere(&own);
	OK(rpma_conn_req_new(peer, ADDR, own.port, patient, &req));
	OK(rpma_conn_req_connect(&req, NULL, &mine.active));
	OK(rpma_ep_next_conn_req(own.ep, cfg, &req));
	OK(rpma_conn_req_connect(&req, NULL, &mine.passive));
	expect_event(mine.active, RPMA_CONN_ESTABLISHED);
	expect_event(mine.passive, RPMA_CONN_ESTABLISHED);
	OK(rpma_conn_get_cq(mine.active, &completions));
	for (unsigned i = 0; i < rounds; i++) {
		OK(rpma_send(mine.active, mr, (MAX_THREADS - 1 - thread % 8) * SIZE, 64, RPMA_F_COMPLETION_ALWAYS, NULL));
		await(completions, IBV_WC_SEND);
	}
	while (count(0) > 0) {
		int ret = rpma_cq_get_wc(rcq, 1, &wc, NULL);

		if (ret == RPMA_E_NO_COMPLETION) {
			sched_yield();
			continue;
		}
		OK(ret);
		EXPECT(wc.status == IBV_WC_SUCCESS && wc.byte_len == 64);
		OK(rpma_srq_recv(srq, mr, wc.wr_id * 64, 64, (void *)(size_t)wc.wr_id));
		count(-1);
	}
	meet();
	EXPECT(count(0) == 0);
	close_ends(&mine);
	OK(rpma_ep_shutdown(&own.ep));
}

static void
no_shared_receives(void)
{
	OK(rpma_conn_cfg_delete(&cfg));
	OK(rpma_srq_delete(&srq));
}

const struct row connection_rows[] = {
	{"endpoints", one_listener, own_endpoints, no_listener},
	{"requests", one_request, requests, no_request},
	{"one-endpoint", one_listener, one_endpoint, no_listener},
	{"own-connections", NULL, own_connections, NULL},
	{"one-connection", one_connection, operations, disconnect},
	{"waits", plain_connection, waits, disconnect},
	{"questions", quiet_connection, questions, delete_connection},
	{"shared-receives", shared_receives, messages, no_shared_receives},
	{NULL, NULL, NULL, NULL},
};
