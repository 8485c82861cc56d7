/* SPDX-License-Identifier: BSD-3-Clause */

/* rpma_conn_next_event, rpma_conn_get_private_data, rpma_conn_get_event_fd */

#include "fixture.h"

static struct rpma_peer *peer;
static struct rpma_conn *conn;

static int setup(void **state)
{
	mock_setup(state);
	peer = fx_peer();
	conn = fx_conn(peer, NULL);
	return 0;
}

static int teardown(void **state)
{
	fx_conn_delete(&conn);
	fx_peer_delete(&peer);
	return mock_teardown(state);
}

#define NO_VALUE ((enum rpma_conn_event)77)

static void event_arrives(enum rdma_cm_event_type type, const char *pdata)
{
	mock_cm_event(type, mock_named("id0"), pdata, pdata ? (uint8_t)strlen(pdata) : 0);
}

static void event_fd(void **state)
{
	int fd = -7;

	(void)state;
	assert_int_equal(rpma_conn_get_event_fd(conn, &fd), 0);
	assert_int_equal(fd, 2000);
	NO_CALLS();
	SILENT();
}

static void no_event(void **state)
{
	enum rpma_conn_event event = NO_VALUE;

	(void)state;
	mock_fail("rdma_get_cm_event", 1, ENODATA);
	assert_int_equal(rpma_conn_next_event(conn, &event), RPMA_E_NO_EVENT);
	assert_int_equal(event, NO_VALUE);
	CALLS("rdma_get_cm_event(evch0) ! ENODATA");
	SILENT();
}

/* EAGAIN of a non-blocking descriptor, for which the manual documents NO_EVENT. */
static void no_event_non_blocking(void **state)
{
	enum rpma_conn_event event = NO_VALUE;

	(void)state;
	mock_fail("rdma_get_cm_event", 1, EAGAIN);
	assert_int_equal(rpma_conn_next_event(conn, &event),
			original() ? RPMA_E_PROVIDER : RPMA_E_NO_EVENT);
	assert_int_equal(event, NO_VALUE);
	CALLS("rdma_get_cm_event(evch0) ! EAGAIN");
	if (original())
		ONE_ERROR(strerror(EAGAIN));
	else
		SILENT();
}

static void get_event_fails(void **state)
{
	enum rpma_conn_event event = NO_VALUE;

	(void)state;
	mock_fail("rdma_get_cm_event", 1, EBADF);
	assert_int_equal(rpma_conn_next_event(conn, &event), RPMA_E_PROVIDER);
	assert_int_equal(event, NO_VALUE);
	CALLS("rdma_get_cm_event(evch0) ! EBADF");
	ONE_ERROR(strerror(EBADF));
}

/* Every CM event: the resulting event, or a WARNING and UNKNOWN. */
static void every_event(void **state)
{
	static const struct { enum rdma_cm_event_type cm; enum rpma_conn_event conn; } known[] = {
		{RDMA_CM_EVENT_ESTABLISHED, RPMA_CONN_ESTABLISHED},
		{RDMA_CM_EVENT_CONNECT_ERROR, RPMA_CONN_LOST},
		{RDMA_CM_EVENT_DEVICE_REMOVAL, RPMA_CONN_LOST},
		{RDMA_CM_EVENT_DISCONNECTED, RPMA_CONN_CLOSED},
		{RDMA_CM_EVENT_TIMEWAIT_EXIT, RPMA_CONN_CLOSED},
		{RDMA_CM_EVENT_REJECTED, RPMA_CONN_REJECTED},
		{RDMA_CM_EVENT_UNREACHABLE, RPMA_CONN_UNREACHABLE},
	};

	(void)state;
	for (int cm = RDMA_CM_EVENT_ADDR_RESOLVED; cm <= RDMA_CM_EVENT_TIMEWAIT_EXIT; cm++) {
		enum rpma_conn_event want = NO_VALUE, event = NO_VALUE;
		char lines[2][48];
		for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
			if ((int)known[i].cm == cm)
				want = known[i].conn;
		/* a connect request would have a new id */
		if (cm == RDMA_CM_EVENT_CONNECT_REQUEST)
			mock_cm_event(RDMA_CM_EVENT_CONNECT_REQUEST, NULL, NULL, 0);
		else
			event_arrives((enum rdma_cm_event_type)cm, NULL);
		assert_int_equal(rpma_conn_next_event(conn, &event),
				want == NO_VALUE ? RPMA_E_UNKNOWN : 0);
		assert_int_equal(event, want);
		snprintf(lines[0], sizeof(lines[0]), "rdma_get_cm_event(evch0) = ev%d", cm);
		snprintf(lines[1], sizeof(lines[1]), "rdma_ack_cm_event(ev%d)", cm);
		CALLS(lines[0], lines[1]);
		enum rpma_log_level level = RPMA_LOG_DISABLED;
		const char *text = mock_last_log(&level);
		assert_non_null(text);
		assert_int_equal(level, want == NO_VALUE ? RPMA_LOG_LEVEL_WARNING : RPMA_LOG_LEVEL_NOTICE);
		assert_int_equal(mock_logged(level), 1);
	}
}

static void acknowledgement_fails(void **state)
{
	enum rpma_conn_event event = NO_VALUE;

	(void)state;
	event_arrives(RDMA_CM_EVENT_DISCONNECTED, NULL);
	mock_fail("rdma_ack_cm_event", 1, EINVAL);
	assert_int_equal(rpma_conn_next_event(conn, &event), RPMA_E_PROVIDER);
	assert_int_equal(event, NO_VALUE);
	CALLS("rdma_get_cm_event(evch0) = ev0", "rdma_ack_cm_event(ev0) ! EINVAL");
	ONE_ERROR(strerror(EINVAL));
}

/* ---- private data that comes with ESTABLISHED ---- */

static void expect_pdata(const char *want)
{
	struct rpma_conn_private_data got = {UNTOUCHED, 77};

	assert_int_equal(rpma_conn_get_private_data(conn, &got), 0);
	if (want == NULL) {
		assert_null(got.ptr);
		assert_int_equal(got.len, 0);
	} else {
		assert_int_equal(got.len, strlen(want));
		assert_memory_equal(got.ptr, want, strlen(want));
	}
}

static void take_event(enum rpma_conn_event want)
{
	enum rpma_conn_event event = NO_VALUE;

	assert_int_equal(rpma_conn_next_event(conn, &event), 0);
	assert_int_equal(event, want);
}

/* Copied before the acknowledgement, which frees the event. */
static void private_data(void **state)
{
	(void)state;
	expect_pdata(NULL);
	event_arrives(RDMA_CM_EVENT_ESTABLISHED, "welcome");
	take_event(RPMA_CONN_ESTABLISHED);
	expect_pdata("welcome");
	event_arrives(RDMA_CM_EVENT_DISCONNECTED, "goodbye");
	take_event(RPMA_CONN_CLOSED);
	expect_pdata("welcome");
}

static void no_private_data(void **state)
{
	(void)state;
	event_arrives(RDMA_CM_EVENT_ESTABLISHED, NULL);
	take_event(RPMA_CONN_ESTABLISHED);
	expect_pdata(NULL);
}

/* A length without data, data without length. */
static void half_private_data(void **state)
{
	(void)state;
	mock_cm_event(RDMA_CM_EVENT_ESTABLISHED, mock_named("id0"), NULL, 9);
	take_event(RPMA_CONN_ESTABLISHED);
	expect_pdata(NULL);
	mock_cm_event(RDMA_CM_EVENT_ESTABLISHED, mock_named("id0"), "ignored", 0);
	take_event(RPMA_CONN_ESTABLISHED);
	expect_pdata(NULL);
}

/* Only the private data of ESTABLISHED are kept; those of a rejection are not. */
static void private_data_of_other_events(void **state)
{
	(void)state;
	event_arrives(RDMA_CM_EVENT_REJECTED, "no");
	take_event(RPMA_CONN_REJECTED);
	expect_pdata(NULL);
}

/* The first private data of a connection remain. */
static void second_established(void **state)
{
	(void)state;
	event_arrives(RDMA_CM_EVENT_ESTABLISHED, "first");
	take_event(RPMA_CONN_ESTABLISHED);
	event_arrives(RDMA_CM_EVENT_ESTABLISHED, "second");
	take_event(RPMA_CONN_ESTABLISHED);
	expect_pdata("first");
}

/* The private data of the event are not kept, either. */
static void acknowledgement_of_established_fails(void **state)
{
	enum rpma_conn_event event = NO_VALUE;

	(void)state;
	event_arrives(RDMA_CM_EVENT_ESTABLISHED, "welcome");
	mock_fail("rdma_ack_cm_event", 1, EINVAL);
	assert_int_equal(rpma_conn_next_event(conn, &event), RPMA_E_PROVIDER);
	assert_int_equal(event, NO_VALUE);
	expect_pdata(NULL);
	mock_forget_log();
}

#define CONN_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CONN_TEST(event_fd),
		CONN_TEST(no_event),
		CONN_TEST(no_event_non_blocking),
		CONN_TEST(get_event_fails),
		CONN_TEST(every_event),
		CONN_TEST(acknowledgement_fails),
		CONN_TEST(private_data),
		CONN_TEST(no_private_data),
		CONN_TEST(half_private_data),
		CONN_TEST(private_data_of_other_events),
		CONN_TEST(second_established),
		CONN_TEST(acknowledgement_of_established_fails),
	};

	return cmocka_run_group_tests_name("conn-next_event", tests, NULL, NULL);
}
