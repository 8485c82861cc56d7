/* SPDX-License-Identifier: BSD-3-Clause */

/* rpma_err_last: which call failed last in this thread, and why; rpma_version and LIBRPMA_VERSION. */

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
	assert_string_equal(rpma_err_last(), "rpma_peer_new: Invalid argument");
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
	/* what succeeds leaves it as it is */
	peer = fx_peer();
	STARTS(rpma_err_last(), "rpma_peer_new: ibv_alloc_pd(");
	fx_peer_delete(&peer);
}

/* A post that is refused names the operation and the queue. */
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
	assert_int_equal(rpma_write(conn, remote, 16, mr, 8, 24, RPMA_F_COMPLETION_ALWAYS, NULL), RPMA_E_PROVIDER);
	STARTS(rpma_err_last(), "rpma_write: ibv_post_send(RDMA_WRITE, local=0x");
	assert_non_null(strstr(rpma_err_last(), ", len=24, "));
	assert_non_null(strstr(rpma_err_last(), "remote=0x"));
	assert_non_null(strstr(rpma_err_last(), "the send queue is full"));
	assert_int_equal(mock_logged(RPMA_LOG_LEVEL_ERROR), 1);
	mock_fail("post_recv", 1, EINVAL);
	assert_int_equal(rpma_recv(conn, NULL, 0, 0, NULL), RPMA_E_PROVIDER);
	STARTS(rpma_err_last(), "rpma_recv: ibv_post_recv(len=0) failed: ");
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
	return strcmp(rpma_err_last(), "rpma_peer_delete: Invalid argument") == 0 ? before : NULL;
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
	assert_string_equal(rpma_err_last(), "rpma_peer_new: Invalid argument");
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
		MOCK_TEST(a_call_of_the_provider),
		MOCK_TEST(a_post),
		MOCK_TEST(each_thread_has_its_own),
		MOCK_TEST(version),
	};

	return cmocka_run_group_tests_name("utils-last-ours", tests, NULL, NULL);
}
