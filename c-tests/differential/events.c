/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Events of connections and endpoints: every number, private data of every length, errors of the calls that
 * fetch them.
 */

#include "observe.h"

enum { LAST_EVENT = 24 };
static char bytes[256];

static void fill_bytes(void)
{
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (char)(i + 1);
}

/* `given` is the number of the event. */
static void connection_event(void)
{
	int number = *(const int *)given;
	enum rpma_conn_event event = (enum rpma_conn_event)77;
	struct rpma_conn_private_data pdata = {UNTOUCHED, 77};

	data_begin();
	mock_cm_event((enum rdma_cm_event_type)number, NULL, "data", 4);
	CALL(rpma_conn_next_event(d_conn, &event), "%d", (int)event);
	CALL(rpma_conn_get_private_data(d_conn, &pdata), "%s", pdata_text(&pdata));
	/* after any event, ESTABLISHED with other data follows */
	mock_cm_event(RDMA_CM_EVENT_ESTABLISHED, mock_named("id0"), "others", 6);
	CALL(rpma_conn_next_event(d_conn, &event), "%d", (int)event);
	CALL(rpma_conn_get_private_data(d_conn, &pdata), "%s", pdata_text(&pdata));
	data_end();
}

static void endpoint_event(void)
{
	int number = *(const int *)given;
	struct rpma_conn_req *req = UNTOUCHED;

	struct rpma_peer *peer = fx_peer();
	struct rpma_ep *ep = fx_ep(peer);
	mock_cm_event((enum rdma_cm_event_type)number, mock_named("id0"), "data", 4);
	CALL(rpma_ep_next_conn_req(ep, NULL, &req), "%s", obj(req));
	if (live(req))
		CALL(rpma_conn_req_delete(&req), "%s", obj(req));
	CALL(rpma_ep_shutdown(&ep), "%s", obj(ep));
	CALL(rpma_peer_delete(&peer), "%s", obj(peer));
}

/* `given` is the length, for the private data of both sides. */
static void private_data(void)
{
	int length = *(const int *)given;
	struct rpma_conn_private_data own = {bytes, (uint8_t)length}, pdata = {UNTOUCHED, 77};
	enum rpma_conn_event event = (enum rpma_conn_event)77;
	struct rpma_conn *conn = UNTOUCHED;

	fill_bytes();
	struct rpma_peer *peer = fx_peer();
	struct rpma_conn_req *req = fx_req(peer, NULL);
	CALL(rpma_conn_req_get_private_data(req, &pdata), "%s", pdata_text(&pdata));
	/* text, which is readable in the log of calls */
	memset(bytes, 'x', (size_t)length);
	CALL(rpma_conn_req_connect(&req, &own, &conn), "%s %s", obj(req), obj(conn));
	if (live(conn)) {
		fill_bytes();
		mock_cm_event(RDMA_CM_EVENT_ESTABLISHED, mock_named("id0"), bytes, (uint8_t)length);
		CALL(rpma_conn_next_event(conn, &event), "%d", (int)event);
		CALL(rpma_conn_get_private_data(conn, &pdata), "%s", pdata_text(&pdata));
		CALL(rpma_conn_delete(&conn), "%s", obj(conn));
	}
	CALL(rpma_peer_delete(&peer), "%s", obj(peer));
}

static void incoming_private_data(void)
{
	int length = *(const int *)given;
	struct rpma_conn_private_data pdata = {UNTOUCHED, 77};
	struct rpma_conn_req *req = UNTOUCHED;
	struct rpma_conn *conn = UNTOUCHED;
	enum rpma_conn_event event = (enum rpma_conn_event)77;

	fill_bytes();
	struct rpma_peer *peer = fx_peer();
	struct rpma_ep *ep = fx_ep(peer);
	mock_cm_event(RDMA_CM_EVENT_CONNECT_REQUEST, mock_named("id0"), bytes, (uint8_t)length);
	CALL(rpma_ep_next_conn_req(ep, NULL, &req), "%s", obj(req));
	CALL(rpma_conn_req_get_private_data(req, &pdata), "%s", pdata_text(&pdata));
	CALL(rpma_conn_req_connect(&req, NULL, &conn), "%s %s", obj(req), obj(conn));
	CALL(rpma_conn_get_private_data(conn, &pdata), "%s", pdata_text(&pdata));
	/* the private data of the request remain */
	mock_cm_event(RDMA_CM_EVENT_ESTABLISHED, mock_named("id1"), "others", 6);
	CALL(rpma_conn_next_event(conn, &event), "%d", (int)event);
	CALL(rpma_conn_get_private_data(conn, &pdata), "%s", pdata_text(&pdata));
	CALL(rpma_conn_delete(&conn), "%s", obj(conn));
	CALL(rpma_ep_shutdown(&ep), "%s", obj(ep));
	CALL(rpma_peer_delete(&peer), "%s", obj(peer));
}

/* Each errno of fetching an event, by number: those of the headers of both platforms. */
static void fetching(void)
{
	enum rpma_conn_event event = (enum rpma_conn_event)77;
	struct rpma_conn_req *req = UNTOUCHED;
	char name[64];

	data_begin();
	struct rpma_ep *ep = fx_ep(d_peer);
	for (int err = 1; err <= 133; err++) {
		if (strerrorname_np(err) == NULL)
			continue;
		mock_fail_reset();
		mock_fail("rdma_get_cm_event", 1, err);
		snprintf(name, sizeof(name), "connection, %s", strerrorname_np(err));
		CALL_AS(name, rpma_conn_next_event(d_conn, &event), "%d", (int)event);
		mock_fail("rdma_get_cm_event", 1, err);
		snprintf(name, sizeof(name), "endpoint, %s", strerrorname_np(err));
		CALL_AS(name, rpma_ep_next_conn_req(ep, NULL, &req), "%s", obj(req));
	}
	fx_ep_shutdown(&ep);
	data_end();
}

void observe_events(void)
{
	static const int lengths[] = {0, 1, 2, 55, 56, 57, 196, 255};

	for (int number = -1; number <= LAST_EVENT; number++) {
		scenario(&number, connection_event, "connection event %d", number);
		scenario(&number, endpoint_event, "endpoint event %d", number);
	}
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		scenario(&lengths[i], private_data, "private data of %d bytes", lengths[i]);
		scenario(&lengths[i], incoming_private_data, "incoming private data of %d bytes", lengths[i]);
	}
	scenario(NULL, fetching, "fetching an event");
}
