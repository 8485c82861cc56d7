/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Native atomic write and native flush: only if RPMA_NATIVE requests them and device, provider and queue pair
 * support them. Regions are registered as targets of both kinds of native flush if the device supports that.
 */

#include "data.h"

static const char eight[8] = {1, 2, 3, 4, 5, 6, 7, '\x88'};

#define BOTH (RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY)

#define QP_NATIVE(mask, in_line) "rdma_create_qp_ex(id0, pd0, mask " mask ", ctx NULL, cq cq0 cq0, srq NULL, wr 10 10, " \
	"sge 1 1, inline " in_line ", RC, sig_all 0)"

static struct rpma_peer *peer;
static struct rpma_conn *conn;
static struct rpma_mr_remote *remote;

/* The C library never frees the text of a variable. */
static void set(const char *setting)
{
	mock_untracked_begin();
	if (setting != NULL)
		setenv("RPMA_NATIVE", setting, 1);
	else
		unsetenv("RPMA_NATIVE");
	mock_untracked_end();
}

static int setup(void **state)
{
	mock_setup(state);
	set(NULL);
	remote = fx_remote(RPMA_MR_USAGE_WRITE_DST | BOTH);
	return 0;
}

static int teardown(void **state)
{
	set(NULL);
	fx_remote_delete(&remote);
	if (conn != NULL)
		fx_conn_delete(&conn);
	if (peer != NULL)
		fx_peer_delete(&peer);
	return mock_teardown(state);
}

#define NATIVE_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

/* A connection on a device with these capabilities and with this setting; both logs remain. */
static void connect_with(const char *setting, uint64_t capabilities)
{
	struct rpma_peer_cfg *pcfg = NULL;
	struct rpma_conn_req *req = NULL;

	mock_device_caps(capabilities);
	set(setting);
	assert_int_equal(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_LEVEL_NOTICE), 0);
	assert_int_equal(rpma_peer_new(CTX, &peer), 0);
	assert_int_equal(rpma_conn_req_new(peer, ADDR, PORT, NULL, &req), 0);
	assert_int_equal(rpma_conn_req_connect(&req, NULL, &conn), 0);
	assert_int_equal(rpma_peer_cfg_new(&pcfg), 0);
	assert_int_equal(rpma_peer_cfg_set_direct_write_to_pmem(pcfg, true), 0);
	assert_int_equal(rpma_conn_apply_remote_peer_cfg(conn, pcfg), 0);
	assert_int_equal(rpma_peer_cfg_delete(&pcfg), 0);
}

/*
 * Checks that one of the calls since the last check is this one. Returns the number of calls of
 * rdma_create_qp_ex.
 */
static int queue_pairs(const char *which)
{
	int n = 0, found = which == NULL;

	for (int i = 0; mock_call_line(i) != NULL; i++) {
		n += strncmp(mock_call_line(i), "rdma_create_qp_ex(", 18) == 0;
		if (which != NULL)
			found |= strncmp(mock_call_line(i), which, strlen(which)) == 0;
	}
	if (!found)
		fail_msg("no call %s", which);
	return n;
}

static void flushes(enum rpma_flush_type type, const char *call)
{
	assert_int_equal(rpma_flush(conn, remote, 0x40, 256, type, ALWAYS, CONTEXT), 0);
	CALLS(call);
}

static void writes(const char *call)
{
	assert_int_equal(rpma_atomic_write(conn, remote, 0x48, eight, ALWAYS, CONTEXT), 0);
	CALLS(call);
}

#define PLAIN_FLUSH "post_send(qp0, 0xfedcba9876543210, READ, S--, page0+0 8 0x100, remote 0x7000040 0x5678)"
#define PLAIN_WRITE "post_send(qp0, 0xfedcba9876543210, WRITE, SFI, inline 0102030405060788, remote 0x7000048 0x5678)"
#define NATIVE_FLUSH(type) "wr_complete(qp0, 0xfedcba9876543210, S-, FLUSH, remote 0x7000040 0x5678, 256, type " type ", level 0)"
#define NATIVE_WRITE "wr_complete(qp0, 0xfedcba9876543210, SF, ATOMIC_WRITE, remote 0x7000048 0x5678, 0102030405060788)"

static void all_plain(void)
{
	fx_forget();
	flushes(RPMA_FLUSH_TYPE_VISIBILITY, PLAIN_FLUSH);
	flushes(RPMA_FLUSH_TYPE_PERSISTENT, PLAIN_FLUSH);
	writes(PLAIN_WRITE);
	SILENT();
}

/* Without a request, the device's capabilities change neither the queue pair nor an opcode. */
static void not_asked_for(void **state)
{
	(void)state;
	connect_with(NULL, MOCK_DEVICE_ALL_NATIVE);
	assert_int_equal(queue_pairs(QP_NATIVE("0x1", "8")), 1);
	all_plain();
}

static void empty_setting(void **state)
{
	(void)state;
	connect_with("", MOCK_DEVICE_ALL_NATIVE);
	assert_int_equal(queue_pairs(QP_NATIVE("0x1", "8")), 1);
	all_plain();
}

static void all_asked_for(void **state)
{
	(void)state;
	connect_with("flush,atomic-write", MOCK_DEVICE_ALL_NATIVE);
	assert_int_equal(queue_pairs(QP_NATIVE("0x41 ops 0x1800", "8")), 1);
	assert_int_equal(mock_logged(RPMA_LOG_LEVEL_ERROR), 0);
	fx_forget();
	flushes(RPMA_FLUSH_TYPE_VISIBILITY, NATIVE_FLUSH("1"));
	flushes(RPMA_FLUSH_TYPE_PERSISTENT, NATIVE_FLUSH("2"));
	writes(NATIVE_WRITE);
	SILENT();
}

static void one_kind_of_flush(void **state)
{
	(void)state;
	connect_with("flush-visibility", MOCK_DEVICE_ALL_NATIVE);
	assert_int_equal(queue_pairs(QP_NATIVE("0x41 ops 0x800", "8")), 1);
	fx_forget();
	flushes(RPMA_FLUSH_TYPE_VISIBILITY, NATIVE_FLUSH("1"));
	flushes(RPMA_FLUSH_TYPE_PERSISTENT, PLAIN_FLUSH);
	writes(PLAIN_WRITE);
}

static void atomic_write_only(void **state)
{
	(void)state;
	connect_with("atomic-write", MOCK_DEVICE_ALL_NATIVE);
	assert_int_equal(queue_pairs(QP_NATIVE("0x41 ops 0x1000", "8")), 1);
	fx_forget();
	flushes(RPMA_FLUSH_TYPE_VISIBILITY, PLAIN_FLUSH);
	writes(NATIVE_WRITE);
}

/* rpma_write_atomic of old releases remains a write: its source is a region. */
static void write_atomic_stays(void **state)
{
	(void)state;
	connect_with("atomic-write", MOCK_DEVICE_ALL_NATIVE);
	struct rpma_mr_local *mr = fx_mr(peer, RPMA_MR_USAGE_WRITE_SRC);
	assert_int_equal(rpma_write_atomic(conn, remote, 0x48, mr, 0, ALWAYS, CONTEXT), 0);
	CALLS("post_send(qp0, 0xfedcba9876543210, WRITE, SF-, 0x10000 8 0x101, remote 0x7000048 0x5678)");
	fx_mr_dereg(&mr);
}

static void flags_and_failures(void **state)
{
	(void)state;
	connect_with("flush,atomic-write", MOCK_DEVICE_ALL_NATIVE);
	fx_forget();
	assert_int_equal(rpma_flush(conn, remote, 0, 0, RPMA_FLUSH_TYPE_VISIBILITY,
			RPMA_F_COMPLETION_ON_ERROR, NULL), 0);
	CALLS("wr_complete(qp0, 0x0, --, FLUSH, remote 0x7000000 0x5678, 0, type 1, level 0)");
	assert_int_equal(rpma_atomic_write(conn, remote, 0, eight, RPMA_F_COMPLETION_ON_ERROR, NULL), 0);
	CALLS("wr_complete(qp0, 0x0, -F, ATOMIC_WRITE, remote 0x7000000 0x5678, 0102030405060788)");

	assert_int_equal(rpma_flush(conn, remote, 0, PAST_32_BITS, RPMA_FLUSH_TYPE_VISIBILITY, ALWAYS,
			NULL), RPMA_E_INVAL);
	assert_int_equal(rpma_atomic_write(conn, remote, 4, eight, ALWAYS, NULL), RPMA_E_INVAL);
	NO_CALLS();
	SILENT();

	mock_fail("wr_complete", 1, ENOMEM);
	assert_int_equal(rpma_flush(conn, remote, 0, 8, RPMA_FLUSH_TYPE_VISIBILITY, ALWAYS, NULL),
			RPMA_E_PROVIDER);
	ONE_ERROR(strerror(ENOMEM));
	mock_fail("wr_complete", 1, EINVAL);
	assert_int_equal(rpma_atomic_write(conn, remote, 0, eight, ALWAYS, NULL), RPMA_E_PROVIDER);
	ONE_ERROR(strerror(EINVAL));
	mock_forget_calls();
}

/* The device lacks the operations: the queue pair is an ordinary one, and the log names the missing ones. */
static void device_cannot(void **state)
{
	(void)state;
	connect_with("flush,atomic-write", 0);
	assert_int_equal(queue_pairs(QP_NATIVE("0x1", "8")), 1);
	assert_int_equal(mock_logged(RPMA_LOG_LEVEL_NOTICE) >= 1, 1);
	all_plain();
}

static void device_can_do_some(void **state)
{
	(void)state;
	connect_with("flush,atomic-write", MOCK_DEVICE_FLUSH_GLOBAL);
	assert_int_equal(queue_pairs(QP_NATIVE("0x41 ops 0x800", "8")), 1);
	fx_forget();
	flushes(RPMA_FLUSH_TYPE_VISIBILITY, NATIVE_FLUSH("1"));
	flushes(RPMA_FLUSH_TYPE_PERSISTENT, PLAIN_FLUSH);
	writes(PLAIN_WRITE);
}

/* A provider without the flag, on a device with the capability in the kernel. */
static void provider_refuses(void **state)
{
	(void)state;
	for (int i = 1; i <= 4; i++)
		mock_fail("rdma_create_qp_ex", i, EOPNOTSUPP);
	connect_with("flush,atomic-write", MOCK_DEVICE_ALL_NATIVE);
	assert_int_equal(queue_pairs(QP_NATIVE("0x41 ops 0x1800", "8") " ! EOPNOTSUPP"), 5);
	queue_pairs(QP_NATIVE("0x41 ops 0x1800", "0") " ! EOPNOTSUPP");
	queue_pairs(QP_NATIVE("0x41 ops 0x1000", "8") " ! EOPNOTSUPP");
	queue_pairs(QP_NATIVE("0x41 ops 0x1000", "0") " ! EOPNOTSUPP");
	queue_pairs(QP_NATIVE("0x1", "8") " = qp0");
	assert_int_equal(mock_logged(RPMA_LOG_LEVEL_ERROR), 0);
	all_plain();
}

/* A provider of rdma-core 44, which has one of the flags. */
static void provider_refuses_flush(void **state)
{
	(void)state;
	mock_fail("rdma_create_qp_ex", 1, EOPNOTSUPP);
	mock_fail("rdma_create_qp_ex", 2, EOPNOTSUPP);
	connect_with("flush,atomic-write", MOCK_DEVICE_ALL_NATIVE);
	assert_int_equal(queue_pairs(QP_NATIVE("0x41 ops 0x1000", "8") " = qp0"), 3);
	assert_int_equal(mock_logged(RPMA_LOG_LEVEL_ERROR), 0);
	fx_forget();
	flushes(RPMA_FLUSH_TYPE_VISIBILITY, PLAIN_FLUSH);
	writes(NATIVE_WRITE);
}

/* Native, without inline data: an atomic write needs no registered memory of the library. */
static void native_without_inline(void **state)
{
	(void)state;
	mock_fail("rdma_create_qp_ex", 1, EINVAL);
	connect_with("atomic-write", MOCK_DEVICE_ALL_NATIVE);
	assert_int_equal(queue_pairs(QP_NATIVE("0x41 ops 0x1000", "0") " = qp0"), 2);
	fx_forget();
	writes(NATIVE_WRITE);
	flushes(RPMA_FLUSH_TYPE_VISIBILITY, PLAIN_FLUSH);
}

/* The first failure is reported. */
static void provider_refuses_everything(void **state)
{
	struct rpma_conn_req *req = UNTOUCHED;

	(void)state;
	mock_device_caps(MOCK_DEVICE_ALL_NATIVE);
	set("flush");
	peer = fx_peer();
	mock_fail("rdma_create_qp_ex", 1, EPERM);
	for (int i = 2; i <= 4; i++)
		mock_fail("rdma_create_qp_ex", i, EINVAL);
	assert_int_equal(rpma_conn_req_new(peer, ADDR, PORT, NULL, &req), RPMA_E_PROVIDER);
	assert_ptr_equal(req, UNTOUCHED);
	assert_int_equal(queue_pairs(NULL), 4);
	ONE_ERROR(strerror(EPERM));
	mock_forget_calls();
}

static void queue_pair_is_not_extended(void **state)
{
	(void)state;
	mock_fail("ibv_qp_to_qp_ex", 1, EINVAL);
	connect_with("flush,atomic-write", MOCK_DEVICE_ALL_NATIVE);
	all_plain();
}

static void queue_pair_has_no_operation(void **state)
{
	(void)state;
	mock_native_missing();
	connect_with("flush,atomic-write", MOCK_DEVICE_ALL_NATIVE);
	all_plain();
}

static void wrong_setting(void **state)
{
	static const char *const values[] = {"all", "flush,", "flush, atomic-write", "FLUSH", "0"};
	struct rpma_peer *none = UNTOUCHED;

	(void)state;
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		set(values[i]);
		assert_int_equal(rpma_peer_new(CTX, &none), RPMA_E_PROVIDER);
		assert_ptr_equal(none, UNTOUCHED);
		NO_CALLS();
		ONE_ERROR("atomic-write, flush, flush-visibility, flush-persistent");
	}
}

/* ---- regions ---- */

#define REG(access) "ibv_reg_mr(pd0, 0x10000, 32768, " access ")"

static struct rpma_peer *capable_peer(void)
{
	mock_device_caps(MOCK_DEVICE_ALL_NATIVE);
	return fx_peer();
}

/* Targets for both kinds of initiator, whatever this side requests as an initiator. */
static void targets_of_both(void **state)
{
	static const struct { int usage; const char *call; } rows[] = {
		{RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY, REG("RR|FLUSH_GLOBAL") " = mr0"},
		{RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT, REG("RR|FLUSH_PERSISTENT") " = mr1"},
		{BOTH | RPMA_MR_USAGE_WRITE_DST, REG("LW|RW|RR|FLUSH_GLOBAL|FLUSH_PERSISTENT") " = mr2"},
		{RPMA_MR_USAGE_WRITE_DST, REG("LW|RW") " = mr3"},
	};

	(void)state;
	peer = capable_peer();
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rpma_mr_local *mr = NULL;
		assert_int_equal(rpma_mr_reg(peer, LOCAL_ADDR, LOCAL_SIZE, rows[i].usage, &mr), 0);
		CALLS(rows[i].call);
		fx_mr_dereg(&mr);
	}
}

/*
 * Ordinary memory cannot be the target of a native flush to persistence; it can be registered nevertheless.
 */
static void memory_that_is_not_persistent(void **state)
{
	struct rpma_mr_local *mr = NULL;
	unsigned char desc[21];

	(void)state;
	peer = capable_peer();
	mock_fail("ibv_reg_mr", 1, EINVAL);
	assert_int_equal(rpma_mr_reg(peer, LOCAL_ADDR, LOCAL_SIZE, BOTH, &mr), 0);
	CALLS(REG("RR|FLUSH_GLOBAL|FLUSH_PERSISTENT") " ! EINVAL", REG("RR|FLUSH_GLOBAL") " = mr0");
	assert_int_equal(mock_logged(RPMA_LOG_LEVEL_ERROR), 0);
	assert_int_equal(rpma_mr_get_descriptor(mr, desc), 0);
	assert_int_equal(desc[20], BOTH); /* the descriptor contains the requested usage */
	fx_mr_dereg(&mr);

	mock_fail("ibv_reg_mr", 1, EINVAL);
	mock_fail("ibv_reg_mr", 2, EINVAL);
	assert_int_equal(rpma_mr_reg(peer, LOCAL_ADDR, LOCAL_SIZE, BOTH, &mr), 0);
	CALLS(REG("RR|FLUSH_GLOBAL|FLUSH_PERSISTENT") " ! EINVAL", REG("RR|FLUSH_GLOBAL") " ! EINVAL",
		REG("RR") " = mr1");
	fx_mr_dereg(&mr);
}

static void refused_without_the_bits_too(void **state)
{
	struct rpma_mr_local *mr = UNTOUCHED;

	(void)state;
	peer = capable_peer();
	mock_fail_always("ibv_reg_mr", EINVAL);
	assert_int_equal(rpma_mr_reg(peer, LOCAL_ADDR, LOCAL_SIZE, BOTH, &mr), RPMA_E_PROVIDER);
	assert_ptr_equal(mr, UNTOUCHED);
	CALLS(REG("RR|FLUSH_GLOBAL|FLUSH_PERSISTENT") " ! EINVAL", REG("RR|FLUSH_GLOBAL") " ! EINVAL",
		REG("RR") " ! EINVAL");
	ONE_ERROR("access=0x4");
	mock_fail_reset();
}

/* An exceeded limit of locked memory is unrelated to these bits. */
static void no_second_attempt_for_other_reasons(void **state)
{
	struct rpma_mr_local *mr = UNTOUCHED;

	(void)state;
	peer = capable_peer();
	mock_fail("ibv_reg_mr", 1, ENOMEM);
	assert_int_equal(rpma_mr_reg(peer, LOCAL_ADDR, LOCAL_SIZE, BOTH, &mr), RPMA_E_PROVIDER);
	CALLS(REG("RR|FLUSH_GLOBAL|FLUSH_PERSISTENT") " ! ENOMEM");
	ONE_ERROR("; locked memory: ");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		NATIVE_TEST(not_asked_for),
		NATIVE_TEST(empty_setting),
		NATIVE_TEST(all_asked_for),
		NATIVE_TEST(one_kind_of_flush),
		NATIVE_TEST(atomic_write_only),
		NATIVE_TEST(write_atomic_stays),
		NATIVE_TEST(flags_and_failures),
		NATIVE_TEST(device_cannot),
		NATIVE_TEST(device_can_do_some),
		NATIVE_TEST(provider_refuses),
		NATIVE_TEST(provider_refuses_flush),
		NATIVE_TEST(native_without_inline),
		NATIVE_TEST(provider_refuses_everything),
		NATIVE_TEST(queue_pair_is_not_extended),
		NATIVE_TEST(queue_pair_has_no_operation),
		NATIVE_TEST(wrong_setting),
		NATIVE_TEST(targets_of_both),
		NATIVE_TEST(memory_that_is_not_persistent),
		NATIVE_TEST(refused_without_the_bits_too),
		NATIVE_TEST(no_second_attempt_for_other_reasons),
	};

	return cmocka_run_group_tests_name("native-ours", tests, NULL, NULL);
}
