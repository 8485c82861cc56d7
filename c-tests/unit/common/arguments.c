/* SPDX-License-Identifier: BSD-3-Clause */

#include "arguments.h"

void *a_none;
struct rpma_conn *a_shared;
struct rpma_mr_remote *a_plain;
struct rpma_cq *a_cq;
struct rpma_ep *a_ep;
struct rpma_conn_req *a_req, *a_incoming;
struct rpma_conn_cfg *a_cfg;
struct rpma_srq_cfg *a_srq_cfg;
struct rpma_srq *a_srq;
struct rpma_peer_cfg *a_pcfg;
unsigned char a_desc[32];

enum { PATTERN = 0xee, OUTPUT_SIZE = 64 };
static _Alignas(16) unsigned char outputs[MAX_ARGUMENTS][OUTPUT_SIZE];

static const struct row *all_rows;
static size_t n_all_rows;

static void make_objects(void)
{
	static const struct ibv_wc wc = {.wr_id = 77};
	struct rpma_conn_cfg *shared_cfg;

	data_setup(NULL);
	shared_cfg = fx_cfg(10, 0, true, NULL);
	a_shared = fx_conn(d_peer, shared_cfg);
	fx_cfg_delete(&shared_cfg);
	a_plain = fx_remote(RPMA_MR_USAGE_READ_SRC);
	a_ep = fx_ep(d_peer);
	a_req = fx_req(d_peer, NULL);
	a_cfg = fx_cfg(10, 0, false, NULL);
	assert_int_equal(rpma_srq_cfg_new(&a_srq_cfg), 0);
	a_srq = fx_srq(d_peer, 0);
	assert_int_equal(rpma_peer_cfg_new(&a_pcfg), 0);
	assert_int_equal(rpma_conn_get_cq(d_conn, &a_cq), 0);
	fx_descriptor(a_desc, REMOTE_ADDR, REMOTE_SIZE, REMOTE_RKEY, 1);
	mock_wc(&wc, 1);
	memset(outputs, PATTERN, sizeof(outputs));
	fx_forget();
}

/* The original never destroys the id of an incoming request, so only rows about requests create one. */
static void make_incoming(const struct row *row)
{
	for (const struct argument *a = row->arguments; a->kind != LAST; a++) {
		if (a->word == (uintptr_t)&a_incoming) {
			struct rpma_ep *ep = a_ep;
			mock_cm_event(RDMA_CM_EVENT_CONNECT_REQUEST, mock_named("id2"), "hello", 5);
			assert_int_equal(rpma_ep_next_conn_req(ep, NULL, &a_incoming), 0);
			mock_original_leaks("id4");
			fx_forget();
		}
	}
}

static void delete_objects(void)
{
	rpma_log_set_function(mock_log_function); /* a row may have changed it */
	assert_int_equal(rpma_conn_req_delete(&a_incoming), 0);
	assert_int_equal(rpma_conn_req_delete(&a_req), 0);
	assert_int_equal(rpma_peer_cfg_delete(&a_pcfg), 0);
	fx_srq_delete(&a_srq);
	assert_int_equal(rpma_srq_cfg_delete(&a_srq_cfg), 0);
	fx_cfg_delete(&a_cfg);
	fx_ep_shutdown(&a_ep);
	fx_remote_delete(&a_plain);
	fx_conn_delete(&a_shared);
	assert_int_equal(data_teardown(NULL), 0);
}

static uintptr_t word_of(const struct argument *argument, int i)
{
	switch (argument->kind) {
	case WORD:
		return argument->word;
	case OBJECT:
		assert_non_null(*(void **)argument->word);
		return (uintptr_t)*(void **)argument->word;
	case OUTPUT:
		return (uintptr_t)outputs[i];
	default:
		return 0;
	}
}

/* The index of the row in the table, and its call. */
static void fail_row(const struct row *row, const char *what, long ret)
{
	char text[256];
	size_t used = 0;

	for (int i = 0; row->arguments[i].kind != LAST; i++) {
		const struct argument *a = &row->arguments[i];
		if (a->kind == WORD)
			used += (size_t)snprintf(text + used, sizeof(text) - used, ", %#lx", (unsigned long)a->word);
		else
			used += (size_t)snprintf(text + used, sizeof(text) - used, ", %s",
					a->kind == OBJECT ? "object" : "output");
	}
	print_error("row %zu, %s(%s): %s (%ld)\n", (size_t)(row - all_rows), row->function, text + 2, what, ret);
	fail();
}

static void expect_calls_of(const struct row *row)
{
	char text[512] = "";
	const char *want[16];
	int n = 0;

	if (row->calls != NULL)
		snprintf(text, sizeof(text), "%s", row->calls);
	for (char *rest = text, *line; (line = strsep(&rest, "\n")) != NULL && *line != '\0';)
		want[n++] = line;
	want[n] = NULL;
	expect_calls_at(want, row->function, (int)(row - all_rows));
}

typedef uintptr_t generic(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t,
		uintptr_t);

static void check_row(const struct row *row, int added)
{
	enum rpma_log_level before[RPMA_LOG_THRESHOLD_MAX], after;
	uintptr_t a[MAX_ARGUMENTS] = {0}, ret;

	make_objects();
	make_incoming(row);
	for (int i = 0; row->arguments[i].kind != LAST; i++)
		a[i] = word_of(&row->arguments[i], i);
	a[0] += (uintptr_t)added;
	for (int i = 0; i < RPMA_LOG_THRESHOLD_MAX; i++)
		assert_int_equal(rpma_log_get_threshold((enum rpma_log_threshold)i, &before[i]), 0);

	ret = ((generic *)row->call)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8]);

	if (row->expected == TEXT ? ret == 0 : (int)ret != (row->expected == INVAL ? RPMA_E_INVAL : 0))
		fail_row(row, "returned something else", (int)ret);
	for (size_t i = 0; i < sizeof(outputs); i++)
		if (outputs[i / OUTPUT_SIZE][i % OUTPUT_SIZE] != PATTERN)
			fail_row(row, "wrote an output", (long)(i / OUTPUT_SIZE));
	if (a_none != NULL)
		fail_row(row, "wrote a pointer to nothing", 0);
	if (row->consumed != NULL && *row->consumed != NULL)
		fail_row(row, "left the object", 0);
	for (int i = 0; i < RPMA_LOG_THRESHOLD_MAX; i++) {
		assert_int_equal(rpma_log_get_threshold((enum rpma_log_threshold)i, &after), 0);
		if (after != before[i])
			fail_row(row, "changed a threshold", i);
	}
	expect_calls_of(row);
	expect_silence_at(row->function, (int)(row - all_rows));
	delete_objects();
}

static void check_function(void **state)
{
	const char *function = *state;
	int checked = 0;

	for (const struct row *row = all_rows; row < all_rows + n_all_rows; row++) {
		if (strcmp(row->function, function) != 0 || row->library == (original() ? OURS : ORIGINAL))
			continue;
		checked++;
		check_row(row, 0);
		for (int added = 1; row->expected == TEXT && (int)row->arguments[0].word + added <= row->last; added++)
			check_row(row, added);
	}
	if (checked == 0) {
		print_error("%s is not in the table\n", function);
		fail();
	}
}

int run_rows(const char *group, const char *const *functions, size_t n_functions, const struct row *rows, size_t n_rows)
{
	struct CMUnitTest tests[n_functions];

	all_rows = rows;
	n_all_rows = n_rows;
	for (size_t i = 0; i < n_functions; i++)
		tests[i] = (struct CMUnitTest){.name = functions[i], .test_func = check_function,
			.initial_state = (void *)(uintptr_t)functions[i]};
	return _cmocka_run_group_tests(group, tests, n_functions, NULL, NULL);
}
