/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The version nodes: programs that were linked to any release find their symbols. Releases 0.10 to 0.14 have
 * one node each; 0.9.0 and all of 1.x share LIBRPMA_1.0. LIBRPMA_1.4 has the new symbols.
 */

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <librpma.h>

static const char *const nodes[] = {"LIBRPMA_1.0", "LIBRPMA_0.10", "LIBRPMA_0.11", "LIBRPMA_0.12",
	"LIBRPMA_0.13", "LIBRPMA_0.14"};
enum { NODES = sizeof(nodes) / sizeof(nodes[0]), DEFINITIONS = 433 };

/* '1' if the release, or releases, of the node have the function. */
static const struct {
	const char *name, *in;
} rows[] = {
	{"rpma_atomic_write", "1...11"},
	{"rpma_conn_apply_remote_peer_cfg", "111111"},
	{"rpma_conn_cfg_delete", "111111"},
	{"rpma_conn_cfg_get_compl_channel", "1....."},
	{"rpma_conn_cfg_get_cq_size", "111111"},
	{"rpma_conn_cfg_get_rcq_size", "111111"},
	{"rpma_conn_cfg_get_rq_size", "111111"},
	{"rpma_conn_cfg_get_sq_size", "111111"},
	{"rpma_conn_cfg_get_srq", "1....."},
	{"rpma_conn_cfg_get_timeout", "111111"},
	{"rpma_conn_cfg_new", "111111"},
	{"rpma_conn_cfg_set_compl_channel", "1....."},
	{"rpma_conn_cfg_set_cq_size", "111111"},
	{"rpma_conn_cfg_set_rcq_size", "111111"},
	{"rpma_conn_cfg_set_rq_size", "111111"},
	{"rpma_conn_cfg_set_sq_size", "111111"},
	{"rpma_conn_cfg_set_srq", "1....."},
	{"rpma_conn_cfg_set_timeout", "111111"},
	{"rpma_conn_completion_get", "11...."},
	{"rpma_conn_completion_wait", "11...."},
	{"rpma_conn_delete", "111111"},
	{"rpma_conn_disconnect", "111111"},
	{"rpma_conn_get_compl_fd", "1....."},
	{"rpma_conn_get_completion_fd", "11...."},
	{"rpma_conn_get_cq", "111111"},
	{"rpma_conn_get_event_fd", "111111"},
	{"rpma_conn_get_private_data", "111111"},
	{"rpma_conn_get_qp_num", "111111"},
	{"rpma_conn_get_rcq", "111111"},
	{"rpma_conn_next_event", "111111"},
	{"rpma_conn_req_connect", "111111"},
	{"rpma_conn_req_delete", "111111"},
	{"rpma_conn_req_get_private_data", "111111"},
	{"rpma_conn_req_new", "111111"},
	{"rpma_conn_req_recv", "111111"},
	{"rpma_conn_wait", "1....."},
	{"rpma_cq_get_completion", ".11..."},
	{"rpma_cq_get_fd", "111111"},
	{"rpma_cq_get_wc", "1.1111"},
	{"rpma_cq_wait", "111111"},
	{"rpma_ep_get_fd", "111111"},
	{"rpma_ep_listen", "111111"},
	{"rpma_ep_next_conn_req", "111111"},
	{"rpma_ep_shutdown", "111111"},
	{"rpma_err_2str", "111111"},
	{"rpma_flush", "111111"},
	{"rpma_log_get_threshold", "111111"},
	{"rpma_log_set_function", "111111"},
	{"rpma_log_set_threshold", "111111"},
	{"rpma_mr_advise", "111111"},
	{"rpma_mr_dereg", "111111"},
	{"rpma_mr_get_descriptor", "111111"},
	{"rpma_mr_get_descriptor_size", "111111"},
	{"rpma_mr_get_ptr", "111111"},
	{"rpma_mr_get_size", "111111"},
	{"rpma_mr_reg", "111111"},
	{"rpma_mr_remote_delete", "111111"},
	{"rpma_mr_remote_from_descriptor", "111111"},
	{"rpma_mr_remote_get_flush_type", "111111"},
	{"rpma_mr_remote_get_size", "111111"},
	{"rpma_peer_cfg_delete", "111111"},
	{"rpma_peer_cfg_from_descriptor", "111111"},
	{"rpma_peer_cfg_get_descriptor", "111111"},
	{"rpma_peer_cfg_get_descriptor_size", "111111"},
	{"rpma_peer_cfg_get_direct_write_to_pmem", "111111"},
	{"rpma_peer_cfg_new", "111111"},
	{"rpma_peer_cfg_set_direct_write_to_pmem", "111111"},
	{"rpma_peer_delete", "111111"},
	{"rpma_peer_new", "111111"},
	{"rpma_read", "111111"},
	{"rpma_recv", "111111"},
	{"rpma_send", "111111"},
	{"rpma_send_with_imm", "111111"},
	{"rpma_srq_cfg_delete", "1....."},
	{"rpma_srq_cfg_get_rcq_size", "1....."},
	{"rpma_srq_cfg_get_rq_size", "1....."},
	{"rpma_srq_cfg_new", "1....."},
	{"rpma_srq_cfg_set_rcq_size", "1....."},
	{"rpma_srq_cfg_set_rq_size", "1....."},
	{"rpma_srq_delete", "1....."},
	{"rpma_srq_get_rcq", "1....."},
	{"rpma_srq_new", "1....."},
	{"rpma_srq_recv", "1....."},
	{"rpma_utils_conn_event_2str", "111111"},
	{"rpma_utils_get_ibv_context", "111111"},
	{"rpma_utils_ibv_context_is_odp_capable", "111111"},
	{"rpma_write", "111111"},
	{"rpma_write_atomic", "11111."},
	{"rpma_write_with_imm", "111111"},
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

static void *library;

static int open_library(void **state)
{
	(void)state;
	library = dlopen("librpma.so.0", RTLD_NOW | RTLD_NOLOAD);
	return library == NULL;
}

static void every_definition(void **state)
{
	int found = 0, wrong = 0;

	(void)state;
	assert_int_equal(ROWS, 89);
	for (int i = 0; i < ROWS; i++) {
		for (int n = 0; n < NODES; n++) {
			int is = dlvsym(library, rows[i].name, nodes[n]) != NULL;
			found += is;
			if (is != (rows[i].in[n] == '1')) {
				print_error("%s@%s %s\n", rows[i].name, nodes[n],
						is ? "should not be there" : "is missing");
				wrong++;
			}
		}
	}
	assert_int_equal(wrong, 0);
	assert_int_equal(found, DEFINITIONS);
}

/* Functions that no release had are in a separate node, so that those of releases keep theirs. */
static void additions(void **state)
{
	static const char *const added[] = {"rpma_err_last", "rpma_version"};

	(void)state;
	for (size_t i = 0; i < sizeof(added) / sizeof(added[0]); i++) {
		assert_non_null(dlvsym(library, added[i], "LIBRPMA_1.4"));
		for (int n = 0; n < NODES; n++)
			assert_null(dlvsym(library, added[i], nodes[n]));
	}
	for (int i = 0; i < ROWS; i++)
		assert_null(dlvsym(library, rows[i].name, "LIBRPMA_1.4"));
}

/* The function is the same at each node (each may have a separate entry). */
static void nodes_agree(void **state)
{
	typedef const char *err_2str(int ret);

	(void)state;
	for (int n = 0; n < NODES; n++) {
		err_2str *f = (err_2str *)dlvsym(library, "rpma_err_2str", nodes[n]);
		assert_non_null((void *)f);
		assert_string_equal(f(RPMA_E_NOT_SHARED_CHNL), "Completion channel is not shared");
	}
}

/* New programs get a default version of each function, also of those that the latest releases lack. */
static void defaults(void **state)
{
	(void)state;
	for (int i = 0; i < ROWS; i++)
		assert_non_null(dlsym(library, rows[i].name));
}

/* One name with two functions, each at its own version node. */
static void two_forms_of_completion_get(void **state)
{
	const char *name = "rpma_conn_completion_get";

	(void)state;
	assert_ptr_not_equal(dlvsym(library, name, "LIBRPMA_1.0"), dlvsym(library, name, "LIBRPMA_0.10"));
	assert_ptr_equal(dlsym(library, name), dlvsym(library, name, "LIBRPMA_0.10"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_definition),
		cmocka_unit_test(additions),
		cmocka_unit_test(nodes_agree),
		cmocka_unit_test(defaults),
		cmocka_unit_test(two_forms_of_completion_get),
	};

	/* keeps the library in DT_NEEDED of this program */
	if (rpma_err_2str(0) == NULL)
		return 1;
	return cmocka_run_group_tests_name("abi-versions-ours", tests, open_library, NULL);
}
