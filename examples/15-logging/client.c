/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 15-logging, client: receives the library's messages in its own log function, and evaluates error codes.
 */
#include "common.h"

#include <stdarg.h>

/* message counts by level; the function may be called from any thread that is inside the library */
static unsigned counts[RPMA_LOG_LEVEL_DEBUG + 1];

static unsigned
count(enum rpma_log_level level)
{
	return __atomic_load_n(&counts[level], __ATOMIC_RELAXED);
}

/*
 * the formatted message ends with a newline; if file_name is NULL, line and function are
 * meaningless
 */
static void
my_log(enum rpma_log_level level, const char *file_name, const int line_no,
	const char *function_name, const char *message_format, ...)
{
	static const char *const names[] = {"fatal", "error", "warning", "notice", "info", "debug"};
	char message[1024];
	va_list ap;

	if (level < RPMA_LOG_LEVEL_FATAL || level > RPMA_LOG_LEVEL_DEBUG)
		return;
	__atomic_add_fetch(&counts[level], 1, __ATOMIC_RELAXED);

	va_start(ap, message_format);
	vsnprintf(message, sizeof(message), message_format, ap);
	va_end(ap);
	if (file_name != NULL)
		printf("my log: [%s] %s:%d %s: %s", names[level], file_name, line_no, function_name,
			message);
	else
		printf("my log: [%s] %s", names[level], message);
}

int
main(int argc, char *argv[])
{
	struct args args = parse_args(argc, argv, NULL);
	struct rpma_peer *peer = NULL;
	struct rpma_peer_cfg *pcfg = NULL;
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	const char nothing[1] = {0};
	unsigned before;
	int ret;

	CHECK(rpma_log_set_function(my_log));
	CHECK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_LEVEL_NOTICE));
	peer = new_peer(args.addr, RPMA_UTIL_IBV_CONTEXT_REMOTE);

	/* each connection event is logged at level NOTICE */
	CHECK(rpma_conn_req_new(peer, args.addr, args.port, NULL, &req));
	CHECK(rpma_conn_req_connect(&req, NULL, &conn));
	before = count(RPMA_LOG_LEVEL_NOTICE);
	wait_event(conn, RPMA_CONN_ESTABLISHED);
	REQUIRE(count(RPMA_LOG_LEVEL_NOTICE) > before, "connected without a notice");

	/* a NULL argument: an error code without a message, because the code is sufficient */
	before = count(RPMA_LOG_LEVEL_ERROR);
	ret = rpma_peer_cfg_from_descriptor(NULL, 1, &pcfg);
	REQUIRE(ret == RPMA_E_INVAL, "%s", rpma_err_2str(ret));
	REQUIRE(count(RPMA_LOG_LEVEL_ERROR) == before, "an error was logged");
	printf("no descriptor: %s\n", rpma_err_2str(ret));

	/* invalid content: the same code, and a message that states what is wrong */
	ret = rpma_peer_cfg_from_descriptor(nothing, 0, &pcfg);
	REQUIRE(ret == RPMA_E_INVAL, "%s", rpma_err_2str(ret));
	REQUIRE(count(RPMA_LOG_LEVEL_ERROR) == before + 1, "no error was logged");
	printf("empty descriptor: %s\n", rpma_err_2str(ret));

	/* the function cannot be removed, but all messages can be suppressed */
	CHECK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_DISABLED));
	ret = rpma_peer_cfg_from_descriptor(nothing, 0, &pcfg);
	REQUIRE(ret == RPMA_E_INVAL, "%s", rpma_err_2str(ret));
	REQUIRE(count(RPMA_LOG_LEVEL_ERROR) == before + 1, "logged although disabled");

	CHECK(rpma_conn_disconnect(conn));
	wait_event(conn, RPMA_CONN_CLOSED);
	CHECK(rpma_conn_delete(&conn));
	CHECK(rpma_peer_delete(&peer));
	CHECK(rpma_log_set_function(RPMA_LOG_USE_DEFAULT_FUNCTION));

	verified("%u notices and %u error in our own function, then silence",
		count(RPMA_LOG_LEVEL_NOTICE), count(RPMA_LOG_LEVEL_ERROR));
	return 0;
}
