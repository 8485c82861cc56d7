/* SPDX-License-Identifier: BSD-3-Clause */

/* rpma_err_2str, rpma_utils_conn_event_2str */

#include "fixture.h"

static void errors(void **state)
{
	static const struct { int ret; const char *text; } rows[] = {
		{0, "Success"},
		{RPMA_E_UNKNOWN, "Unknown error"},
		{RPMA_E_NOSUPP, "Not supported"},
		{RPMA_E_PROVIDER, "Provider error occurred"},
		{RPMA_E_NOMEM, "Out of memory"},
		{RPMA_E_INVAL, "Invalid argument"},
		{RPMA_E_NO_COMPLETION, "No next completion available"},
		{RPMA_E_NO_EVENT, "No next event available"},
		{RPMA_E_AGAIN, "Temporary error, try again"},
		{RPMA_E_SHARED_CHANNEL, "Completion channel is shared"},
		{RPMA_E_NOT_SHARED_CHNL, "Completion channel is not shared"},
		{1, "Unknown error"},
		{-1, "Unknown error"},
		{RPMA_E_NOT_SHARED_CHNL - 1, "Unknown error"},
		{RPMA_E_UNKNOWN + 1, "Unknown error"},
		{INT32_MIN, "Unknown error"},
		{INT32_MAX, "Unknown error"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_string_equal(rpma_err_2str(rows[i].ret), rows[i].text);
		/* static storage */
		assert_ptr_equal(rpma_err_2str(rows[i].ret), rpma_err_2str(rows[i].ret));
	}
	SILENT();
}

static void events(void **state)
{
	static const struct { int event; const char *text; } rows[] = {
		{RPMA_CONN_UNDEFINED, "Undefined connection event"},
		{RPMA_CONN_ESTABLISHED, "Connection established"},
		{RPMA_CONN_CLOSED, "Connection closed"},
		{RPMA_CONN_LOST, "Connection lost"},
		{RPMA_CONN_REJECTED, "Connection rejected"},
		{RPMA_CONN_UNREACHABLE, "Connection unreachable"},
		{5, "Unsupported connection event"},
		{-2, "Unsupported connection event"},
		{INT32_MIN, "Unsupported connection event"},
		{INT32_MAX, "Unsupported connection event"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_string_equal(rpma_utils_conn_event_2str((enum rpma_conn_event)rows[i].event),
				rows[i].text);
	SILENT();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		MOCK_TEST(errors),
		MOCK_TEST(events),
	};

	return cmocka_run_group_tests_name("utils-strings", tests, NULL, NULL);
}
