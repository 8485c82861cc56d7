/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * loading.c -- loads the library at run time, like a plugin, and uses it.
 *
 * usage: loading unload LIBRARY [namespace]
 *        loading settings LIBRARY
 *        loading device LIBRARY
 *        loading brings LIBRARY
 *
 * unload: loads LIBRARY (librpma.so.0 or libsoftverbs.so), in a separate namespace (dlmopen) if the last
 * argument is given; opens a listener and, with librpma, a connection; closes the library while they are
 * open; sends bytes to the listener, which the thread of the library receives; and repeats all of it once.
 *
 * settings: connects to itself with librpma and prints the connection's event.
 *
 * device: prints the name of the device that serves 127.0.0.1 with librpma, or the reason why there is none.
 *
 * brings: prints whether LIBRARY brings the functions of libibverbs and librdmacm to what is linked with it.
 *
 * Exits with 0, or with 1 and a line with the error.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <librpma.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ADDR "127.0.0.1"
#define LIMIT_S 60

#define EXPECT(condition, ...)                                                                                          \
	do {                                                                                                            \
		if (!(condition)) {                                                                                     \
			printf("line %d: %s: ", __LINE__, #condition);                                                  \
			printf("" __VA_ARGS__);                                                                         \
			printf(" (%s)\n", strerror(errno));                                                             \
			exit(1);                                                                                        \
		}                                                                                                       \
	} while (0)

/* A function of this name in the library, of the type that the header declares. */
static void *library;
#define LIB(name) ((__typeof__(&name))function(#name))

static void *
function(const char *name)
{
	void *found = dlsym(library, name);

	EXPECT(found != NULL, "%s", dlerror());
	return found;
}

static void
load(const char *path, bool namespace)
{
	library = namespace ? dlmopen(LM_ID_NEWLM, path, RTLD_NOW | RTLD_LOCAL) : dlopen(path, RTLD_NOW | RTLD_LOCAL);
	EXPECT(library != NULL, "%s", dlerror());
}

/* A free TCP port. */
static uint16_t
free_port(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	EXPECT(fd >= 0 && bind(fd, (struct sockaddr *)&address, size) == 0);
	EXPECT(getsockname(fd, (struct sockaddr *)&address, &size) == 0);
	close(fd);
	return ntohs(address.sin_port);
}

/*
 * Listens, connects to itself, and returns the first event of the connection at its initiator. All objects
 * stay open.
 */
static enum rpma_conn_event
connect_with_librpma(uint16_t port)
{
	struct ibv_context *dev = NULL;
	struct rpma_peer *peer = NULL;
	struct rpma_ep *ep = NULL;
	struct rpma_conn_req *req = NULL, *incoming = NULL;
	struct rpma_conn *conn = NULL, *accepted = NULL;
	struct pollfd fds[2] = {{.events = POLLIN}, {.events = POLLIN}};
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
	char service[8];

	snprintf(service, sizeof(service), "%u", port);
	EXPECT(LIB(rpma_utils_get_ibv_context)(ADDR, RPMA_UTIL_IBV_CONTEXT_LOCAL, &dev) == 0);
	EXPECT(LIB(rpma_peer_new)(dev, &peer) == 0);
	EXPECT(LIB(rpma_ep_listen)(peer, ADDR, service, &ep) == 0);
	EXPECT(LIB(rpma_conn_req_new)(peer, ADDR, service, NULL, &req) == 0);
	EXPECT(LIB(rpma_conn_req_connect)(&req, NULL, &conn) == 0);
	/* either the request at the listener, or an injected fault instead */
	EXPECT(LIB(rpma_ep_get_fd)(ep, &fds[0].fd) == 0 && LIB(rpma_conn_get_event_fd)(conn, &fds[1].fd) == 0);
	EXPECT(poll(fds, 2, -1) > 0);
	if (fds[0].revents != 0) {
		EXPECT(LIB(rpma_ep_next_conn_req)(ep, NULL, &incoming) == 0);
		EXPECT(LIB(rpma_conn_req_connect)(&incoming, NULL, &accepted) == 0);
	}
	EXPECT(LIB(rpma_conn_next_event)(conn, &event) == 0);
	return event;
}

static void
listen_with_softverbs(uint16_t port)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct rdma_event_channel *channel = LIB(rdma_create_event_channel)();
	struct rdma_cm_id *id = NULL;

	EXPECT(channel != NULL);
	EXPECT(LIB(rdma_create_id)(channel, &id, NULL, RDMA_PS_TCP) == 0);
	EXPECT(LIB(rdma_bind_addr)(id, (struct sockaddr *)&address) == 0);
	EXPECT(LIB(rdma_listen)(id, 4) == 0);
}

/*
 * Sends bytes that are not a request: the thread of the library reads them and closes the socket, which ends
 * this call.
 */
static void
disturb(uint16_t port)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	char bytes[64] = "no MPA request";
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	EXPECT(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	EXPECT(write(fd, bytes, sizeof(bytes)) == sizeof(bytes));
	while (read(fd, bytes, sizeof(bytes)) > 0)
		;
	close(fd);
}

static void
unload(const char *path, bool namespace)
{
	bool is_rpma = strstr(path, "librpma") != NULL;
	int round;

	for (round = 0; round < 2; round++) {
		uint16_t port = free_port();

		load(path, namespace);
		if (is_rpma)
			EXPECT(connect_with_librpma(port) == RPMA_CONN_ESTABLISHED);
		else
			listen_with_softverbs(port);
		EXPECT(dlclose(library) == 0, "%s", dlerror());
		disturb(port);
	}
}

static void
device(const char *path)
{
	struct ibv_context *dev = NULL;

	load(path, false);
	if (LIB(rpma_utils_get_ibv_context)(ADDR, RPMA_UTIL_IBV_CONTEXT_LOCAL, &dev) == 0)
		printf("%s\n", dev->device->name);
	else
		printf("%s\n", LIB(rpma_err_last)());
}

int
main(int argc, char *argv[])
{
	alarm(LIMIT_S);
	if (argc >= 3 && strcmp(argv[1], "unload") == 0) {
		unload(argv[2], argc > 3);
		return 0;
	}
	if (argc == 3 && strcmp(argv[1], "settings") == 0) {
		enum rpma_conn_event event;

		load(argv[2], false);
		event = connect_with_librpma(free_port());
		printf("%s\n", LIB(rpma_utils_conn_event_2str)(event));
		return 0;
	}
	if (argc == 3 && strcmp(argv[1], "device") == 0) {
		device(argv[2]);
		return 0;
	}
	if (argc == 3 && strcmp(argv[1], "brings") == 0) {
		load(argv[2], false);
		printf("libibverbs: %s, librdmacm: %s\n", dlsym(library, "ibv_wc_status_str") == NULL ? "no" : "yes",
			dlsym(library, "rdma_event_str") == NULL ? "no" : "yes");
		return 0;
	}
	fprintf(stderr, "usage: %s unload LIBRARY [namespace] | {settings | device | brings} LIBRARY\n", argv[0]);
	return 2;
}
