/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 15-logging, server: keeps the built-in log function and shows where its messages go: to syslog, and also to
 * stderr if the auxiliary threshold permits.
 */
#include "common.h"

#include <errno.h>
#include <unistd.h>

/* returns what was written to stderr since capture_stderr(), and restores stderr */
static int saved_stderr;
static FILE *captured;

static void
capture_stderr(void)
{
	captured = tmpfile();
	REQUIRE(captured != NULL, "tmpfile: %s", strerror(errno));
	saved_stderr = dup(STDERR_FILENO);
	REQUIRE(saved_stderr >= 0 && dup2(fileno(captured), STDERR_FILENO) >= 0, "dup: %s",
		strerror(errno));
}

static size_t
captured_stderr(char *text, size_t size)
{
	size_t length;

	dup2(saved_stderr, STDERR_FILENO);
	close(saved_stderr);
	rewind(captured);
	length = fread(text, 1, size - 1, captured);
	text[length] = '\0';
	fclose(captured);
	return length;
}

int
main(int argc, char *argv[])
{
	struct args args = parse_args(argc, argv, NULL);
	struct rpma_peer *peer = new_peer(args.addr, RPMA_UTIL_IBV_CONTEXT_LOCAL);
	struct rpma_ep *ep = NULL;
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	enum rpma_log_level level;
	char text[4096];

	/* the defaults: warnings and more severe messages, nothing to stderr */
	CHECK(rpma_log_get_threshold(RPMA_LOG_THRESHOLD, &level));
	REQUIRE(level == RPMA_LOG_LEVEL_WARNING, "the main threshold is %d", level);
	CHECK(rpma_log_get_threshold(RPMA_LOG_THRESHOLD_AUX, &level));
	REQUIRE(level == RPMA_LOG_DISABLED, "the auxiliary threshold is %d", level);

	/* the main threshold selects what is logged at all; the auxiliary one, what also goes to stderr */
	CHECK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_LEVEL_NOTICE));
	CHECK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_LEVEL_NOTICE));
	capture_stderr();
	CHECK(rpma_ep_listen(peer, args.addr, args.port, &ep));
	REQUIRE(captured_stderr(text, sizeof(text)) > 0, "nothing was written to stderr");
	REQUIRE(strstr(text, "*NOTE*") != NULL, "no notice in: %s", text);
	printf("logged to stderr: %s", text);

	/* still logged, to syslog, but no longer to stderr */
	CHECK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_DISABLED));
	say_listening(&args);
	capture_stderr();
	CHECK(rpma_ep_next_conn_req(ep, NULL, &req));
	CHECK(rpma_conn_req_connect(&req, NULL, &conn));
	wait_event(conn, RPMA_CONN_ESTABLISHED);
	wait_event(conn, RPMA_CONN_CLOSED);
	CHECK(rpma_conn_disconnect(conn));
	REQUIRE(captured_stderr(text, sizeof(text)) == 0, "written to stderr: %s", text);

	CHECK(rpma_conn_delete(&conn));
	CHECK(rpma_ep_shutdown(&ep));
	CHECK(rpma_peer_delete(&peer));

	verified("a notice on stderr when enabled, none when not");
	return 0;
}
