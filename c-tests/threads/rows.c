/* SPDX-License-Identifier: BSD-3-Clause */
/* rows.c -- see rows.h and usage() below. */
#include "rows.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

unsigned threads = 4;
unsigned rounds = 20;
struct ibv_context *device;
struct rpma_peer *peer;
char memory[MAX_THREADS][SIZE] __attribute__((aligned(SIZE)));
struct rpma_mr_local *mr;
struct rpma_mr_remote *remote;
struct rpma_conn_cfg *patient;

static const struct row *current;
static pthread_barrier_t line;
static pthread_mutex_t count_lock = PTHREAD_MUTEX_INITIALIZER;
static long counter;

/*
 * Overrides libc's msync(2), also for the library: a flush to persistence has no effect on memory without a
 * file, but valgrind would treat the call as a read of the whole region.
 */
int
msync(void *addr, size_t length, int flags)
{
	(void)addr, (void)length, (void)flags;
	return 0;
}

void
expect(int holds, int ret, const char *what, const char *file, int at)
{
	if (holds)
		return;
	printf("FAIL %s: %s:%d: %s", current == NULL ? "set-up" : current->name, file, at, what);
	if (ret != 0)
		printf(" returned %d, %s", ret, rpma_err_2str(ret));
	printf("\n");
	fflush(stdout);
	_exit(1);
}

void
ok(int ret, const char *call, const char *file, int at)
{
	expect(ret == 0, ret, call, file, at);
}

long
count(long by)
{
	pthread_mutex_lock(&count_lock);
	long now = counter += by;
	pthread_mutex_unlock(&count_lock);
	return now;
}

void
meet(void)
{
	pthread_barrier_wait(&line);
}

void
expect_event(struct rpma_conn *conn, enum rpma_conn_event expected)
{
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;

	OK(rpma_conn_next_event(conn, &event));
	if (event != expected)
		printf("the event is \"%s\"\n", rpma_utils_conn_event_2str(event));
	EXPECT(event == expected);
}

/*
 * rpma_ep_listen does not return a port that the kernel chose, so a socket gets a free one first. If another
 * socket is bound to it meanwhile, the next port is tried.
 */
void
listen_somewhere(struct listener *listener)
{
	int ret = RPMA_E_PROVIDER;

	for (int i = 0; i < 20 && ret != 0; i++) {
		struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		socklen_t len = sizeof(at);
		int one = 1;
		int fd = socket(AF_INET, SOCK_STREAM, 0);

		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		EXPECT(fd >= 0 && bind(fd, (struct sockaddr *)&at, len) == 0);
		EXPECT(getsockname(fd, (struct sockaddr *)&at, &len) == 0);
		snprintf(listener->port, sizeof(listener->port), "%u", ntohs(at.sin_port));
		close(fd);
		ret = rpma_ep_listen(peer, ADDR, listener->port, &listener->ep);
	}
	OK(ret);
}

void
connect_ends(struct ends *ends, struct listener *listener, const struct rpma_conn_cfg *cfg)
{
	struct rpma_conn_req *req = NULL;

	OK(rpma_conn_req_new(peer, ADDR, listener->port, cfg, &req));
	OK(rpma_conn_req_connect(&req, NULL, &ends->active));
	OK(rpma_ep_next_conn_req(listener->ep, cfg, &req));
	OK(rpma_conn_req_connect(&req, NULL, &ends->passive));
	expect_event(ends->active, RPMA_CONN_ESTABLISHED);
	expect_event(ends->passive, RPMA_CONN_ESTABLISHED);
}

void
close_ends(struct ends *ends)
{
	OK(rpma_conn_disconnect(ends->active));
	expect_event(ends->active, RPMA_CONN_CLOSED);
	expect_event(ends->passive, RPMA_CONN_CLOSED);
	OK(rpma_conn_delete(&ends->active));
	OK(rpma_conn_delete(&ends->passive));
}

static void *
entry(void *arg)
{
	meet();
	current->run((unsigned)(size_t)arg);
	return NULL;
}

static void
run(const struct row *row)
{
	pthread_t all[MAX_THREADS];

	current = row;
	counter = 0;
	if (row->setup != NULL)
		row->setup();
	EXPECT(pthread_barrier_init(&line, NULL, threads) == 0);
	for (unsigned i = 0; i < threads; i++)
		EXPECT(pthread_create(&all[i], NULL, entry, (void *)(size_t)i) == 0);
	for (unsigned i = 0; i < threads; i++)
		EXPECT(pthread_join(all[i], NULL) == 0);
	pthread_barrier_destroy(&line);
	if (row->teardown != NULL)
		row->teardown();
	printf("ok   %-18s %2u threads\n", row->name, threads);
	fflush(stdout);
	current = NULL;
}

static void
open_shared(void)
{
	char desc[DESCRIPTOR_SIZE];

	OK(rpma_utils_get_ibv_context(ADDR, RPMA_UTIL_IBV_CONTEXT_LOCAL, &device));
	OK(rpma_peer_new(device, &peer));
	OK(rpma_mr_reg(peer, memory, sizeof(memory), USAGE_ALL, &mr));
	OK(rpma_mr_get_descriptor(mr, desc));
	OK(rpma_mr_remote_from_descriptor(desc, sizeof(desc), &remote));
	OK(rpma_conn_cfg_new(&patient));
	OK(rpma_conn_cfg_set_timeout(patient, 60000));
}

static void
close_shared(void)
{
	OK(rpma_conn_cfg_delete(&patient));
	OK(rpma_mr_remote_delete(&remote));
	OK(rpma_mr_dereg(&mr));
	OK(rpma_peer_delete(&peer));
}

static unsigned
run_table(const struct row *table, int argc, char **argv)
{
	unsigned done = 0;

	for (const struct row *row = table; row->name != NULL; row++) {
		int wanted = argc == 0;
		for (int i = 0; i < argc; i++)
			wanted |= strcmp(argv[i], row->name) == 0;
		if (!wanted)
			continue;
		run(row);
		done++;
	}
	return done;
}

int
main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "--list") == 0) {
		for (const struct row *row = object_rows; row->name != NULL; row++)
			puts(row->name);
		for (const struct row *row = connection_rows; row->name != NULL; row++)
			puts(row->name);
		return 0;
	}
	if (argc < 3 || (threads = (unsigned)atoi(argv[1])) < 2 || threads > MAX_THREADS ||
		(rounds = (unsigned)atoi(argv[2])) < 1) {
		fprintf(stderr, "usage: rows THREADS ROUNDS [ROW...]\n       rows --list\n"
			"Runs the rows of THREAD_SAFETY.md, or those that are named, with THREADS threads (2 to %d),\n"
			"over software RDMA. Prints a line for each row and \"N passed, M failed\"; ends with the\n"
			"first row that fails.\n", MAX_THREADS);
		return 2;
	}
	setenv("RPMA_PROVIDER", "soft", 1);
	/* before any other call of the library */
	unsigned done = run_table(object_rows, argc - 3, argv + 3);
	open_shared();
	done += run_table(connection_rows, argc - 3, argv + 3);
	close_shared();
	/*
	 * the library's thread is closing the last connections, and must not be ended while it holds a lock
	 */
	usleep(200000);
	printf("%u passed, %d failed\n", done, done == 0);
	return done == 0;
}
