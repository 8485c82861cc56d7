/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * rpma_err_last: the last call of this thread that failed, and the reason; rpma_version and LIBRPMA_VERSION.
 */

#include <pthread.h>

#include "fixture.h"

#define STARTS(text, begin) \
	assert_true(strncmp((text), (begin), strlen(begin)) == 0 || (print_error("%s\n", (text)), false))

/* First of all: nothing has failed. */
static void nothing_has_failed(void **state)
{
	struct rpma_mr_remote *mr = fx_remote(1);
	size_t size;

	(void)state;
	assert_int_equal(rpma_mr_remote_get_size(mr, &size), 0);
	fx_remote_delete(&mr);
	assert_string_equal(rpma_err_last(), "");
}

static void an_argument(void **state)
{
	(void)state;
	assert_int_equal(rpma_peer_new(NULL, NULL), RPMA_E_INVAL);
	assert_string_equal(rpma_err_last(), "rpma_peer_new: ibv_ctx is NULL");
}

/* The text names the invalid argument, with its value if that is short; it is not logged. */
static void each_argument(void **state)
{
	struct rpma_peer *peer = fx_peer();
	struct rpma_conn *conn = fx_conn(peer, NULL);
	struct rpma_mr_local *mr = fx_mr(peer, RPMA_MR_USAGE_WRITE_SRC), *new_mr = NULL;
	struct rpma_mr_remote *remote = fx_remote(RPMA_MR_USAGE_WRITE_DST);
	struct rpma_conn_cfg *cfg = fx_cfg(10, 0, false, NULL);
	struct rpma_conn_req *req = NULL;
	struct ibv_context *ctx = NULL;
	struct ibv_wc wc[2];
	struct rpma_cq *cq = NULL;
	char byte = 0, word[8] = {0};

	(void)state;
#define INVAL(call, text) \
	do { \
		assert_int_equal(call, RPMA_E_INVAL); \
		assert_string_equal(rpma_err_last(), text); \
	} while (0)
	INVAL(rpma_mr_reg(peer, &byte, 1, 0, &new_mr), "rpma_mr_reg: usage is 0");
	INVAL(rpma_mr_reg(peer, &byte, 1, 0x100, &new_mr), "rpma_mr_reg: usage is 0x100: only the bits 0xff are defined");
	INVAL(rpma_mr_reg(peer, &byte, 0, 1, &new_mr), "rpma_mr_reg: size is 0");
	INVAL(rpma_mr_reg(peer, NULL, 1, 1, &new_mr), "rpma_mr_reg: ptr is NULL");
	INVAL(rpma_mr_reg(peer, &byte, 1, 1, NULL), "rpma_mr_reg: mr_ptr is NULL");
	INVAL(rpma_mr_advise(mr, 0, (size_t)1 << 32, 0, 0), "rpma_mr_advise: len is 4294967296, more than UINT32_MAX");
	INVAL(rpma_mr_dereg(NULL), "rpma_mr_dereg: mr_ptr is NULL");
	INVAL(rpma_write(NULL, remote, 0, mr, 0, 1, 2, NULL), "rpma_write: conn is NULL");
	INVAL(rpma_write(conn, remote, 0, mr, 0, 1, 0, NULL), "rpma_write: flags is 0");
	INVAL(rpma_write(conn, remote, 0, mr, 0, (size_t)1 << 32, 2, NULL), "rpma_write: len is more than UINT32_MAX");
	INVAL(rpma_write(conn, NULL, 0, mr, 0, 1, 2, NULL), "rpma_write: the remote memory region is NULL, but not the local one");
	INVAL(rpma_read(conn, NULL, 0, remote, 0, 1, 2, NULL), "rpma_read: the local memory region is NULL, but not the remote one");
	INVAL(rpma_read(conn, NULL, 0, NULL, 1, 0, 2, NULL), "rpma_read: dst and src are NULL, but the offsets and len are not all 0");
	INVAL(rpma_atomic_write(conn, remote, 4, word, 2, NULL), "rpma_atomic_write: dst_offset is not a multiple of 8");
	INVAL(rpma_flush(conn, NULL, 0, 8, RPMA_FLUSH_TYPE_VISIBILITY, 2, NULL), "rpma_flush: dst is NULL");
	INVAL(rpma_send(conn, NULL, 1, 0, 2, NULL), "rpma_send: the memory region is NULL, but offset and len are not both 0");
	INVAL(rpma_recv(conn, NULL, 0, 1, NULL), "rpma_recv: the memory region is NULL, but offset and len are not both 0");
	INVAL(rpma_conn_cfg_set_timeout(cfg, -1), "rpma_conn_cfg_set_timeout: timeout_ms is less than 0");
	INVAL(rpma_conn_req_connect(&req, NULL, &conn), "rpma_conn_req_connect: *req_ptr is NULL");
	INVAL(rpma_conn_req_new(peer, NULL, "7204", NULL, &req), "rpma_conn_req_new: addr is NULL");
	INVAL(rpma_utils_get_ibv_context("127.0.0.1", (enum rpma_util_ibv_context_type)7, &ctx),
		"rpma_utils_get_ibv_context: type is 7, which is no enum rpma_util_ibv_context_type");
	INVAL(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, (enum rpma_log_level)9),
		"rpma_log_set_threshold: level is no enum rpma_log_level");
	INVAL(rpma_log_set_threshold((enum rpma_log_threshold)2, RPMA_LOG_LEVEL_INFO),
		"rpma_log_set_threshold: threshold is no enum rpma_log_threshold");
	assert_int_equal(rpma_conn_get_cq(conn, &cq), 0);
	INVAL(rpma_cq_get_wc(cq, 0, wc, NULL), "rpma_cq_get_wc: num_entries_got is NULL");
	INVAL(rpma_cq_get_wc(cq, 0, wc, &(int){0}), "rpma_cq_get_wc: num_entries is less than 1");
	INVAL(rpma_cq_get_wc(cq, 1, NULL, NULL), "rpma_cq_get_wc: wc is NULL");
	/* the next failed call replaces the reason */
	INVAL(rpma_conn_delete(NULL), "rpma_conn_delete: conn_ptr is NULL");
	assert_int_equal(mock_logged(RPMA_LOG_LEVEL_ERROR), 0);
	fx_cfg_delete(&cfg);
	fx_remote_delete(&remote);
	fx_mr_dereg(&mr);
	fx_conn_delete(&conn);
	fx_peer_delete(&peer);
}

/* The text does not depend on the thresholds. */
static void a_call_of_the_provider(void **state)
{
	struct rpma_peer *peer = NULL;

	(void)state;
	rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_DISABLED);
	mock_fail("ibv_alloc_pd", 1, ENOMEM);
	assert_int_not_equal(rpma_peer_new(CTX, &peer), 0);
	STARTS(rpma_err_last(), "rpma_peer_new: ");
	mock_fail("ibv_alloc_pd", 1, EPERM);
	assert_int_equal(rpma_peer_new(CTX, &peer), RPMA_E_PROVIDER);
	STARTS(rpma_err_last(), "rpma_peer_new: ibv_alloc_pd(");
	assert_non_null(strstr(rpma_err_last(), "(errno 1)"));
	rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_LEVEL_DEBUG);
	mock_forget_calls();
	mock_forget_log();
	/* a call that succeeds does not change it */
	peer = fx_peer();
	STARTS(rpma_err_last(), "rpma_peer_new: ibv_alloc_pd(");
	fx_peer_delete(&peer);
}

/* The text of a failed post names the operation and the queue. */
static void a_post(void **state)
{
	struct rpma_peer *peer = fx_peer();
	struct rpma_conn *conn = fx_conn(peer, NULL);
	struct rpma_mr_local *mr = fx_mr(peer, RPMA_MR_USAGE_WRITE_SRC);
	struct rpma_mr_remote *remote = fx_remote(RPMA_MR_USAGE_WRITE_DST);
	struct ibv_wc wc;
	struct rpma_cq *cq = NULL;

	(void)state;
	mock_fail("post_send", 1, ENOMEM);
	assert_int_equal(rpma_write(conn, remote, 16, mr, 8, 24, RPMA_F_COMPLETION_ALWAYS, (void *)0x77), RPMA_E_PROVIDER);
	STARTS(rpma_err_last(), "rpma_write: ibv_post_send(RDMA_WRITE, local=0x");
	assert_non_null(strstr(rpma_err_last(), ", len=24, "));
	assert_non_null(strstr(rpma_err_last(), "remote=0x"));
	assert_non_null(strstr(rpma_err_last(), "wr_id=0x77)"));
	assert_non_null(strstr(rpma_err_last(), "the send queue is full"));
	assert_int_equal(mock_logged(RPMA_LOG_LEVEL_ERROR), 1);
	mock_fail("post_recv", 1, EINVAL);
	assert_int_equal(rpma_recv(conn, NULL, 0, 0, NULL), RPMA_E_PROVIDER);
	STARTS(rpma_err_last(), "rpma_recv: ibv_post_recv(len=0, wr_id=0x0) failed: ");
	mock_forget_calls();
	mock_forget_log();
	/* an empty queue is no failure */
	assert_int_equal(rpma_conn_get_cq(conn, &cq), 0);
	assert_int_equal(rpma_cq_get_wc(cq, 1, &wc, NULL), RPMA_E_NO_COMPLETION);
	STARTS(rpma_err_last(), "rpma_recv: ");
	mock_forget_calls();
	mock_forget_log();
	fx_remote_delete(&remote);
	fx_mr_dereg(&mr);
	fx_conn_delete(&conn);
	fx_peer_delete(&peer);
}

static void *another_thread(void *before)
{
	const char *text = rpma_err_last();

	snprintf(before, 64, "%s", text);
	rpma_peer_delete(NULL);
	return strcmp(rpma_err_last(), "rpma_peer_delete: peer_ptr is NULL") == 0 ? before : NULL;
}

static void each_thread_has_its_own(void **state)
{
	char before[64] = "untouched";
	pthread_t thread;
	void *done = NULL;

	(void)state;
	/* the C library allocates for a thread, and keeps that */
	mock_ignore_memory();
	assert_int_equal(rpma_peer_new(NULL, NULL), RPMA_E_INVAL);
	assert_int_equal(pthread_create(&thread, NULL, another_thread, before), 0);
	assert_int_equal(pthread_join(thread, &done), 0);
	assert_string_equal(before, "");
	assert_non_null(done);
	assert_string_equal(rpma_err_last(), "rpma_peer_new: ibv_ctx is NULL");
	mock_forget_log();
}

static void version(void **state)
{
	char numbers[32];

	(void)state;
	snprintf(numbers, sizeof(numbers), "%d.%d.%d", LIBRPMA_VERSION_MAJOR, LIBRPMA_VERSION_MINOR, LIBRPMA_VERSION_PATCH);
	assert_string_equal(numbers, LIBRPMA_VERSION);
	assert_string_equal(rpma_version(), LIBRPMA_VERSION);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		MOCK_TEST(nothing_has_failed),
		MOCK_TEST(an_argument),
		MOCK_TEST(each_argument),
		MOCK_TEST(a_call_of_the_provider),
		MOCK_TEST(a_post),
		MOCK_TEST(each_thread_has_its_own),
		MOCK_TEST(version),
	};

	return cmocka_run_group_tests_name("utils-last-ours", tests, NULL, NULL);
}
