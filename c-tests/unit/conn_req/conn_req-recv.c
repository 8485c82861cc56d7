/* SPDX-License-Identifier: BSD-3-Clause */

/* rpma_conn_req_recv */

#include "fixture.h"

static struct rpma_peer *peer;
static struct rpma_mr_local *mr;
static struct rpma_conn_req *req;

static int setup(void **state)
{
	mock_setup(state);
	peer = fx_peer();
	mr = fx_mr(peer, RPMA_MR_USAGE_RECV);
	req = fx_req(peer, NULL);
	return 0;
}

static int teardown(void **state)
{
	assert_int_equal(rpma_conn_req_delete(&req), 0);
	fx_mr_dereg(&mr);
	fx_peer_delete(&peer);
	return mock_teardown(state);
}

static void success(void **state)
{
	(void)state;
	assert_int_equal(rpma_conn_req_recv(req, mr, 0x40, 100, (void *)(uintptr_t)0xc0ffee), 0);
	CALLS("post_recv(qp0, 0xc0ffee, 0x10040 100 0x100)");
	assert_int_equal(rpma_conn_req_recv(req, mr, 0, 0, NULL), 0);
	CALLS("post_recv(qp0, 0x0, 0x10000 0 0x100)");
	SILENT();
}

static void fails(void **state)
{
	(void)state;
	mock_fail("post_recv", 1, ENOMEM);
	assert_int_equal(rpma_conn_req_recv(req, mr, 0, 8, NULL), RPMA_E_PROVIDER);
	CALLS("post_recv(qp0, 0x0, 0x10000 8 0x100) ! ENOMEM");
	ONE_ERROR(strerror(ENOMEM));
}

/* Latent bug of the original, fixed here: the length is truncated to 32 bits. */
static void length_past_32_bits(void **state)
{
	size_t len = ((size_t)1 << 32) + 8;

	(void)state;
	if (original()) {
		assert_int_equal(rpma_conn_req_recv(req, mr, 0, len, NULL), 0);
		CALLS("post_recv(qp0, 0x0, 0x10000 8 0x100)");
	} else {
		assert_int_equal(rpma_conn_req_recv(req, mr, 0, len, NULL), RPMA_E_INVAL);
		NO_CALLS();
	}
}

#define REQ_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		REQ_TEST(success),
		REQ_TEST(fails),
		REQ_TEST(length_past_32_bits),
	};

	return cmocka_run_group_tests_name("conn_req-recv", tests, NULL, NULL);
}
