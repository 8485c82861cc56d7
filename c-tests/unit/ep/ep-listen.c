/* SPDX-License-Identifier: BSD-3-Clause */

/* rpma_ep_listen, rpma_ep_get_fd, rpma_ep_shutdown */

#include "fixture.h"

static const struct step listen_steps[] = {
	{"rdma_create_event_channel()", "evch0", "rdma_destroy_event_channel(evch0)", NULL},
	{"rdma_create_id(evch0, NULL, 0x106)", "id0", "rdma_destroy_id(id0)", NULL},
	{"rdma_getaddrinfo(\"192.0.2.7\", \"7204\", passive, RC, 0x106)", "ai0",
		"rdma_freeaddrinfo(ai0)", NULL},
	{"rdma_bind_addr(id0, ai0.src)", NULL, NULL, NULL},
	{"rdma_listen(id0, 0)", NULL, NULL, NULL},
};

enum { STEPS = sizeof(listen_steps) / sizeof(listen_steps[0]), LOOKUP = 2 };

static void success(void **state)
{
	struct rpma_peer *peer = fx_peer();
	struct rpma_ep *ep = NULL;

	(void)state;
	assert_int_equal(rpma_ep_listen(peer, ADDR, PORT, &ep), 0);
	assert_non_null(ep);
	CALLS("rdma_create_event_channel() = evch0",
		"rdma_create_id(evch0, NULL, 0x106) = id0",
		"rdma_getaddrinfo(\"192.0.2.7\", \"7204\", passive, RC, 0x106) = ai0",
		"rdma_bind_addr(id0, ai0.src)",
		"rdma_listen(id0, 0)",
		"rdma_freeaddrinfo(ai0)");

	assert_int_equal(rpma_ep_shutdown(&ep), 0);
	assert_null(ep);
	CALLS("rdma_destroy_id(id0)",
		"rdma_destroy_event_channel(evch0)");
	fx_peer_delete(&peer);
}

/* Logs the address and port at NOTICE. */
static void success_is_logged(void **state)
{
	struct rpma_peer *peer = fx_peer();
	struct rpma_ep *ep = NULL;
	enum rpma_log_level level;

	(void)state;
	assert_int_equal(rpma_ep_listen(peer, ADDR, PORT, &ep), 0);
	const char *text = mock_last_log(&level);
	assert_non_null(text);
	assert_int_equal(level, RPMA_LOG_LEVEL_NOTICE);
	assert_non_null(strstr(text, ADDR ":" PORT));
	assert_int_equal(mock_logged(RPMA_LOG_LEVEL_NOTICE), 1);
	fx_ep_shutdown(&ep);
	fx_peer_delete(&peer);
}

static void each_call_fails(void **state)
{
	static const int errs[] = {EMFILE, ENOMEM, EADDRINUSE, EAGAIN, ENODATA};

	(void)state;
	for (size_t e = 0; e < sizeof(errs) / sizeof(errs[0]); e++) {
		for (int failing = 0; failing < STEPS; failing++) {
			mock_setup(NULL);
			struct rpma_peer *peer = fx_peer();
			struct rpma_ep *ep = UNTOUCHED;
			fail_step(listen_steps, failing, errs[e]);
			assert_int_equal(rpma_ep_listen(peer, ADDR, PORT, &ep), RPMA_E_PROVIDER);
			assert_ptr_equal(ep, UNTOUCHED);
			UNWOUND(listen_steps, failing, errs[e]);
			ONE_ERROR(strerror(errs[e]));
			fx_peer_delete(&peer);
			assert_int_equal(mock_teardown(NULL), 0);
		}
	}
}

/* The lookup has its own error numbers, which the log translates. */
static void lookup_fails(void **state)
{
	struct rpma_peer *peer = fx_peer();
	struct rpma_ep *ep = UNTOUCHED;

	(void)state;
	mock_fail("rdma_getaddrinfo", 1, -2); /* EAI_NONAME */
	assert_int_equal(rpma_ep_listen(peer, ADDR, PORT, &ep), RPMA_E_PROVIDER);
	assert_ptr_equal(ep, UNTOUCHED);
	UNWOUND(listen_steps, LOOKUP, -2);
	ONE_ERROR("Name or service not known");
	fx_peer_delete(&peer);
}

static void get_fd(void **state)
{
	struct rpma_peer *peer = fx_peer();
	struct rpma_ep *a = fx_ep(peer), *b = fx_ep(peer);
	int fd = -7;

	(void)state;
	assert_int_equal(rpma_ep_get_fd(NULL, &fd), RPMA_E_INVAL);
	assert_int_equal(rpma_ep_get_fd(a, NULL), RPMA_E_INVAL);
	assert_int_equal(fd, -7);
	assert_int_equal(rpma_ep_get_fd(a, &fd), 0);
	assert_int_equal(fd, 2000);
	assert_int_equal(rpma_ep_get_fd(b, &fd), 0);
	assert_int_equal(fd, 2001);
	NO_CALLS();
	SILENT();
	fx_ep_shutdown(&a);
	fx_ep_shutdown(&b);
	fx_peer_delete(&peer);
}

/* The endpoint is deleted nevertheless. */
static void shutdown_fails(void **state)
{
	struct rpma_peer *peer = fx_peer();
	struct rpma_ep *ep = fx_ep(peer);

	(void)state;
	mock_fail("rdma_destroy_id", 1, EIO);
	assert_int_equal(rpma_ep_shutdown(&ep), RPMA_E_PROVIDER);
	assert_null(ep);
	CALLS("rdma_destroy_id(id0) ! EIO",
		"rdma_destroy_event_channel(evch0)");
	ONE_ERROR(strerror(EIO));
	fx_peer_delete(&peer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		MOCK_TEST(success),
		MOCK_TEST(success_is_logged),
		cmocka_unit_test(each_call_fails),
		MOCK_TEST(lookup_fails),
		MOCK_TEST(get_fd),
		MOCK_TEST(shutdown_fails),
	};

	return cmocka_run_group_tests_name("ep-listen", tests, NULL, NULL);
}
