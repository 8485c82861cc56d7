/* SPDX-License-Identifier: BSD-3-Clause */

/* Completion queues and channels: waiting, polling, descriptors, connections that share a channel. */

#include <limits.h>

#include "mock_impl.h"
#include "observe.h"

enum { ENTRIES = 4 };

/* Only these: entries that an earlier call did not fetch are discarded. */
static void report_entries(const struct ibv_wc *wc, int n)
{
	mock_verbs_reset();
	mock_wc(wc, n);
}

static void report_event(struct ibv_cq *cq)
{
	mock_verbs_reset();
	mock_cq_event(cq);
}

/* The result of rpma_cq_get_wc for each return value of the provider. */
static void polling(void)
{
	static const int wanted[] = {INT_MIN, -1, 0, 1, 2, 3, 4};
	static const int answers[] = {INT_MIN, -EIO, -1, 0, 1, 2, 3, 4, 5, 1000, INT_MAX};
	struct ibv_wc made[ENTRIES], got[ENTRIES + 1];
	struct rpma_cq *cq = NULL;
	char name[64];

	data_begin();
	rpma_conn_get_cq(d_conn, &cq);
	for (int i = 0; i < ENTRIES; i++)
		memset(&made[i], 0x10 * (i + 1), sizeof(made[i]));
	for (size_t w = 0; w < sizeof(wanted) / sizeof(wanted[0]); w++) {
		for (size_t a = 0; a < sizeof(answers) / sizeof(answers[0]); a++) {
			int n = 77;
			report_entries(made, ENTRIES);
			mock_poll_returns(answers[a]);
			memset(got, 0xee, sizeof(got));
			snprintf(name, sizeof(name), "%d wanted, %d polled", wanted[w], answers[a]);
			CALL_AS(name, rpma_cq_get_wc(cq, wanted[w], got, &n), "%d, %s %s", n, hex(&got[0], sizeof(got[0])),
					hex(&got[wanted[w] > 1 ? wanted[w] - 1 : 1], sizeof(got[0])));
			report_entries(made, ENTRIES);
			mock_poll_returns(answers[a]);
			snprintf(name, sizeof(name), "%d wanted, %d polled, nothing for the number", wanted[w], answers[a]);
			CALL_AS(name, rpma_cq_get_wc(cq, wanted[w], got, NULL), "%s", hex(&got[0], sizeof(got[0])));
		}
	}
	data_end();
}

/* Entries with every status and opcode are returned unchanged. */
static void entries(void)
{
	struct rpma_cq *cq = NULL;
	char name[64];

	data_begin();
	rpma_conn_get_cq(d_conn, &cq);
	for (int status = 0; status <= 24; status++) {
		for (int opcode = 0; opcode <= 136; opcode += opcode == 9 ? 119 : 1) {
			struct ibv_wc wc, got;
			int n = 77;
			memset(&wc, 0, sizeof(wc));
			wc.status = (enum ibv_wc_status)status;
			wc.opcode = (enum ibv_wc_opcode)opcode;
			wc.wr_id = 0x0123456789abcdef;
			wc.byte_len = 4096;
			wc.imm_data = 0x01020304;
			report_entries(&wc, 1);
			memset(&got, 0xee, sizeof(got));
			snprintf(name, sizeof(name), "status %d, opcode %d", status, opcode);
			CALL_AS(name, rpma_cq_get_wc(cq, 1, &got, &n), "%d, %s", n, hex(&got, sizeof(got)));
		}
	}
	data_end();
}

/* A connection with the layout that `given` describes. */
static const struct layout {
	const char *name;
	uint32_t rcq;
	bool shared;
	int srq; /* 0: none, 1: without, 2: with a separate queue */
} layouts[] = {
	{"one queue", 0, false, 0}, {"two queues", 10, false, 0}, {"shared channel, one queue", 0, true, 0},
	{"shared channel, two queues", 10, true, 0}, {"shared receive queue", 0, false, 1},
	{"shared receive queue, two queues", 10, false, 1}, {"shared receive queue with its own", 0, false, 2},
	{"shared receive queue with its own, two queues", 10, false, 2},
	{"shared receive queue, shared channel", 10, true, 1},
};

static struct rpma_srq *l_srq;

static struct rpma_conn *conn_with(struct rpma_peer *peer, const struct layout *l)
{
	l_srq = l->srq ? fx_srq(peer, l->srq == 2 ? 20 : 0) : NULL;
	struct rpma_conn_cfg *cfg = fx_cfg(10, l->rcq, l->shared, l_srq);
	struct rpma_conn *conn = fx_conn(peer, cfg);
	fx_cfg_delete(&cfg);
	return conn;
}

static void queues(void)
{
	struct rpma_peer *peer = fx_peer();
	struct rpma_conn *conn = conn_with(peer, given);
	struct rpma_cq *cq[3] = {UNTOUCHED, UNTOUCHED, UNTOUCHED}, *ready = UNTOUCHED;
	bool is_rcq = true;
	int fd = -77;
	struct ibv_wc wc = {.wr_id = 5}, got;
	char name[96];

	CALL(rpma_conn_get_compl_fd(conn, &fd), "%d", fd);
	CALL(rpma_conn_get_cq(conn, &cq[0]), "%s", obj(cq[0]));
	CALL(rpma_conn_get_rcq(conn, &cq[1]), "%s, %s", obj(cq[1]), cq[0] == cq[1] ? "the same" : "another");
	if (l_srq != NULL)
		CALL(rpma_srq_get_rcq(l_srq, &cq[2]), "%s", obj(cq[2]));
	for (int i = 0; i < 3; i++) {
		if (!live(cq[i]))
			continue;
		fd = -77;
		CALL(rpma_cq_get_fd(cq[i], &fd), "%d", fd);
		snprintf(name, sizeof(name), "queue %d: get_wc", i);
		mock_wc(&wc, 1);
		CALL_AS(name, rpma_cq_get_wc(cq[i], 1, &got, NULL), "%lu", (unsigned long)got.wr_id);
		snprintf(name, sizeof(name), "queue %d: empty", i);
		CALL_AS(name, rpma_cq_get_wc(cq[i], 1, &got, NULL), "%s", "");
	}
	/* Events of each queue, waited for through each queue and through the connection. */
	for (int event = 0; event < 4; event++) {
		snprintf(name, sizeof(name), "cq%d", event);
		struct ibv_cq *of = mock_named(name);
		if (of == NULL)
			break;
		for (int i = 0; i < 3; i++) {
			struct rpma_cq *at = cq[i];
			snprintf(name, sizeof(name), "event of cq%d, queue %d: wait", event, i);
			if (!live(at) || of->channel->fd != (rpma_cq_get_fd(at, &fd), fd))
				continue;
			report_event(of);
			CALL_AS(name, rpma_cq_wait(at), "%s", "");
		}
		snprintf(name, sizeof(name), "event of cq%d, connection: wait", event);
		report_event(of);
		CALL_AS(name, rpma_conn_wait(conn, 0, &ready, &is_rcq), "%s %d", ready == cq[0] ? "main" : ready == cq[1] ?
				"receive" : obj(ready), is_rcq);
		snprintf(name, sizeof(name), "event of cq%d, connection: wait, no place for is_rcq", event);
		report_event(of);
		CALL_AS(name, rpma_conn_wait(conn, -1, &ready, NULL), "%s", ready == cq[0] ? "main" : ready == cq[1] ? "receive" :
				obj(ready));
		ready = UNTOUCHED;
		is_rcq = true;
	}
	CALL(rpma_conn_delete(&conn), "%s", obj(conn));
	if (l_srq != NULL)
		CALL(rpma_srq_delete(&l_srq), "%s", obj(l_srq));
	CALL(rpma_peer_delete(&peer), "%s", obj(peer));
}

/* An event of a queue of another connection. */
static void foreign_event(void)
{
	struct rpma_peer *peer = fx_peer();
	struct rpma_conn *conn = conn_with(peer, &layouts[3]), *other = conn_with(peer, &layouts[0]);
	struct rpma_cq *ready = UNTOUCHED;
	bool is_rcq = true;

	report_event(mock_named("cq2"));
	CALL(rpma_conn_wait(conn, 0, &ready, &is_rcq), "%s %d", obj(ready), is_rcq);
	CALL(rpma_conn_delete(&conn), "%s", obj(conn));
	CALL(rpma_conn_delete(&other), "%s", obj(other));
	CALL(rpma_peer_delete(&peer), "%s", obj(peer));
}

/* Waiting fails at each of its steps. */
static void waiting_fails(void)
{
	static const char *const fns[] = {"ibv_get_cq_event", "ibv_req_notify_cq"};
	static const int errors[] = {EAGAIN, EINTR, EBADF, EIO, EINVAL, ENOMEM};
	const struct layout *l = given;
	struct rpma_peer *peer = fx_peer();
	struct rpma_conn *conn = conn_with(peer, l);
	struct rpma_cq *cq[2] = {NULL, NULL}, *ready;
	char name[96];

	rpma_conn_get_cq(conn, &cq[0]);
	rpma_conn_get_rcq(conn, &cq[1]);
	for (size_t f = 0; f < 2; f++) {
		for (size_t e = 0; e < sizeof(errors) / sizeof(errors[0]); e++) {
			for (int i = 0; i < 2 && cq[i] != NULL; i++) {
				bool is_rcq = i == 0;
				ready = UNTOUCHED;
				mock_fail_reset();
				report_event(mock_named(i == 0 ? "cq0" : "cq1"));
				if (l->shared)
					mock_fail(fns[f], 1, errors[e]);
				snprintf(name, sizeof(name), "connection, cq%d, %s: %s", i, fns[f], strerrorname_np(errors[e]));
				CALL_AS(name, rpma_conn_wait(conn, 0, &ready, &is_rcq), "%s %d", ready == cq[i] ? "the queue" : obj(ready),
						is_rcq);
				mock_fail_reset();
				report_event(mock_named(i == 0 ? "cq0" : "cq1"));
				mock_fail(fns[f], 1, errors[e]);
				snprintf(name, sizeof(name), "queue %d, %s: %s", i, fns[f], strerrorname_np(errors[e]));
				CALL_AS(name, rpma_cq_wait(cq[i]), "%s", "");
			}
		}
	}
	mock_fail_reset();
	CALL(rpma_conn_delete(&conn), "%s", obj(conn));
	if (l_srq != NULL)
		CALL(rpma_srq_delete(&l_srq), "%s", obj(l_srq));
	CALL(rpma_peer_delete(&peer), "%s", obj(peer));
}

void observe_completions(void)
{
	scenario(NULL, polling, "polling");
	scenario(NULL, entries, "entries");
	for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
		scenario(&layouts[i], queues, "queues, %s", layouts[i].name);
		scenario(&layouts[i], waiting_fails, "waiting fails, %s", layouts[i].name);
	}
	scenario(NULL, foreign_event, "event of a foreign queue");
}
