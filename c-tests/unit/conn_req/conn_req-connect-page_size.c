/* SPDX-License-Identifier: BSD-3-Clause */

/* rpma_conn_req_connect if the page size is not available */

#include <sys/syscall.h>
#include <unistd.h>

#include "fixture.h"

static bool broken;

/* The library calls this function, and so does the mock, for which it must work. */
long sysconf(int name)
{
	if (name == _SC_PAGESIZE && broken) {
		errno = EINVAL;
		return -1;
	}
	return name == _SC_PAGESIZE ? 4096 : -1;
}

static void page_size_unknown(void **state)
{
	struct rpma_peer *peer = fx_peer();
	struct rpma_conn_req *req = fx_req(peer, NULL);
	struct rpma_conn *conn = UNTOUCHED;

	(void)state;
	broken = true;
	int ret = rpma_conn_req_connect(&req, NULL, &conn);
	broken = false;
	assert_int_equal(ret, RPMA_E_PROVIDER);
	assert_null(req);
	assert_ptr_equal(conn, UNTOUCHED);
	CALLS("rdma_create_event_channel() = evch0", "rdma_migrate_id(id0, evch0)",
		"rdma_migrate_id(id0, NULL)", "rdma_destroy_event_channel(evch0)",
		"rdma_destroy_qp(id0)", "ibv_destroy_cq(cq0)", "ibv_destroy_comp_channel(chan0)",
		"rdma_destroy_id(id0)");
	/* the only line at that level */
	assert_int_equal(mock_logged(RPMA_LOG_LEVEL_FATAL), 1);
	fx_peer_delete(&peer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		MOCK_TEST(page_size_unknown),
	};

	return cmocka_run_group_tests_name("conn_req-connect-page_size", tests, NULL, NULL);
}
