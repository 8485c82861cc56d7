/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Flush and atomic write on a device: the opcodes of their completions, and whether the target accepts them.
 * Each process is one side of a connection; the sides may use different libraries.
 *
 *   native capabilities ADDR           prints the native operations of the device of the address
 *   native register ADDR KINDS         registers ordinary memory as the target of these kinds of flush
 *   native server ADDR PORT KINDS      a region for these kinds of flush, for one client; checks what was written
 *   native client ADDR PORT KIND       writes, flushes, writes 8 bytes atomically; prints how each completed
 *
 * KINDS are the letters v (visibility) and p (persistent), and r if the region may be read, too. Regions are
 * in ordinary memory; those for flush are at the beginning of the file or device NATIVE_MEMORY, if set.
 */

#include <fcntl.h>
#include <librpma.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SIZE = 4096, WRITTEN = 1024, COUNTER = 2048, LIMIT_SECONDS = 20, HUGE_PAGE = 2 << 20 };

#define CHECK(call) check((call), #call, __LINE__)

static void check(int ret, const char *call, int line)
{
	if (ret == 0)
		return;
	printf("native.c:%d: %s: %s\n", line, call, rpma_err_2str(ret));
	exit(1);
}

static void *pages(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	return memory;
}

/* The memory of a region for flush. A device of persistent memory is mapped in huge pages. */
static void *target_pages(size_t size)
{
	const char *name = getenv("NATIVE_MEMORY");

	if (name == NULL || *name == 0)
		return pages(size);
	int fd = open(name, O_RDWR);
	void *memory = fd < 0 ? MAP_FAILED : mmap(NULL, HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED) {
		perror(name);
		exit(1);
	}
	memset(memory, 0, size);
	return memory;
}

static int usage_of(const char *kinds)
{
	return (strchr(kinds, 'v') ? RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY : 0) |
		(strchr(kinds, 'p') ? RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT : 0) |
		(strchr(kinds, 'r') ? RPMA_MR_USAGE_READ_SRC : 0);
}

static struct ibv_context *device_of(const char *addr, enum rpma_util_ibv_context_type type)
{
	struct ibv_context *ctx = NULL;

	CHECK(rpma_utils_get_ibv_context(addr, type, &ctx));
	return ctx;
}

static struct rpma_peer *peer_of(const char *addr, enum rpma_util_ibv_context_type type)
{
	struct rpma_peer *peer = NULL;

	CHECK(rpma_peer_new(device_of(addr, type), &peer));
	return peer;
}

static void expect_event(struct rpma_conn *conn, enum rpma_conn_event expected)
{
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;

	CHECK(rpma_conn_next_event(conn, &event));
	if (event != expected) {
		printf("%s instead of %s\n", rpma_utils_conn_event_2str(event),
				rpma_utils_conn_event_2str(expected));
		exit(1);
	}
}

static unsigned char pattern(size_t i)
{
	return (unsigned char)(i * 7 + 1);
}

static const uint64_t counted = 0x1122334455667788;

static int capabilities(const char *addr)
{
	static const struct { int bit; const char *name; } names[] = {
		{38, " flush-visibility"}, {39, " flush-persistent"}, {40, " atomic-write"},
	};
	struct ibv_device_attr_ex attr;
	int none = 1;

	if (ibv_query_device_ex(device_of(addr, RPMA_UTIL_IBV_CONTEXT_LOCAL), NULL, &attr) != 0)
		return 1;
	printf("capabilities:");
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (attr.device_cap_flags_ex >> names[i].bit & 1)
			none = !printf("%s", names[i].name);
	printf("%s\n", none ? " none" : "");
	return 0;
}

static int do_register(const char *addr, const char *kinds)
{
	struct rpma_peer *peer = peer_of(addr, RPMA_UTIL_IBV_CONTEXT_LOCAL);
	struct rpma_mr_local *mr = NULL;
	int ret = rpma_mr_reg(peer, target_pages(SIZE), SIZE, usage_of(kinds), &mr);

	printf("%s\n", ret == 0 ? "registered" : rpma_err_2str(ret));
	if (ret == 0)
		CHECK(rpma_mr_dereg(&mr));
	CHECK(rpma_peer_delete(&peer));
	return 0;
}

static int server(const char *addr, const char *port, const char *kinds)
{
	struct rpma_peer *peer = peer_of(addr, RPMA_UTIL_IBV_CONTEXT_LOCAL);
	struct rpma_mr_local *mr = NULL;
	struct rpma_ep *ep = NULL;
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	unsigned char descriptor[21];
	struct rpma_conn_private_data pdata = {descriptor, sizeof(descriptor)};
	unsigned char *memory = target_pages(SIZE);
	size_t right = 0;

	CHECK(rpma_mr_reg(peer, memory, SIZE, RPMA_MR_USAGE_WRITE_DST | usage_of(kinds), &mr));
	CHECK(rpma_mr_get_descriptor(mr, descriptor));
	CHECK(rpma_ep_listen(peer, addr, port, &ep));
	printf("listening\n");
	fflush(stdout);
	CHECK(rpma_ep_next_conn_req(ep, NULL, &req));
	CHECK(rpma_conn_req_connect(&req, &pdata, &conn));
	expect_event(conn, RPMA_CONN_ESTABLISHED);
	expect_event(conn, RPMA_CONN_CLOSED);
	CHECK(rpma_conn_delete(&conn));
	CHECK(rpma_ep_shutdown(&ep));
	CHECK(rpma_mr_dereg(&mr));
	CHECK(rpma_peer_delete(&peer));

	while (right < WRITTEN && memory[right] == pattern(right))
		right++;
	printf("%s written, counter %s\n", right == WRITTEN ? "all" : "not all",
			memcmp(memory + COUNTER, &counted, sizeof(counted)) == 0 ? "right" : "untouched");
	return 0;
}

/* Prints the completion of an operation. Returns 0 if it succeeded. */
static int completed(struct rpma_conn *conn, const char *operation)
{
	struct rpma_cq *cq = NULL;
	struct ibv_wc wc;
	int ret;

	CHECK(rpma_conn_get_cq(conn, &cq));
	while ((ret = rpma_cq_get_wc(cq, 1, &wc, NULL)) == RPMA_E_NO_COMPLETION)
		CHECK(rpma_cq_wait(cq));
	CHECK(ret);
	if (wc.status != IBV_WC_SUCCESS) {
		printf("%s: %s\n", operation, ibv_wc_status_str(wc.status));
		return 1;
	}
	printf("%s: opcode %d\n", operation, (int)wc.opcode);
	return 0;
}

static int client(const char *addr, const char *port, const char *kind)
{
	struct rpma_peer *peer = peer_of(addr, RPMA_UTIL_IBV_CONTEXT_REMOTE);
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	struct rpma_conn_private_data pdata;
	struct rpma_peer_cfg *cfg = NULL;
	struct rpma_mr_local *src = NULL;
	struct rpma_mr_remote *dst = NULL;
	unsigned char *memory = pages(SIZE);
	enum rpma_flush_type type = *kind == 'p' ? RPMA_FLUSH_TYPE_PERSISTENT : RPMA_FLUSH_TYPE_VISIBILITY;

	for (size_t i = 0; i < WRITTEN; i++)
		memory[i] = pattern(i);
	CHECK(rpma_mr_reg(peer, memory, SIZE, RPMA_MR_USAGE_WRITE_SRC, &src));
	CHECK(rpma_conn_req_new(peer, addr, port, NULL, &req));
	CHECK(rpma_conn_req_connect(&req, NULL, &conn));
	expect_event(conn, RPMA_CONN_ESTABLISHED);
	CHECK(rpma_conn_get_private_data(conn, &pdata));
	CHECK(rpma_mr_remote_from_descriptor(pdata.ptr, pdata.len, &dst));
	CHECK(rpma_peer_cfg_new(&cfg));
	CHECK(rpma_peer_cfg_set_direct_write_to_pmem(cfg, true));
	CHECK(rpma_conn_apply_remote_peer_cfg(conn, cfg));
	CHECK(rpma_peer_cfg_delete(&cfg));

	CHECK(rpma_write(conn, dst, 0, src, 0, WRITTEN, RPMA_F_COMPLETION_ON_ERROR, NULL));
	CHECK(rpma_flush(conn, dst, 0, WRITTEN, type, RPMA_F_COMPLETION_ALWAYS, NULL));
	if (completed(conn, "flush") == 0) {
		CHECK(rpma_atomic_write(conn, dst, COUNTER, (const char *)&counted, RPMA_F_COMPLETION_ALWAYS, NULL));
		completed(conn, "atomic write");
	}
	CHECK(rpma_conn_disconnect(conn));
	CHECK(rpma_mr_remote_delete(&dst));
	CHECK(rpma_conn_delete(&conn));
	CHECK(rpma_mr_dereg(&src));
	CHECK(rpma_peer_delete(&peer));
	return 0;
}

int main(int argc, char *argv[])
{
	const char *what = argc > 1 ? argv[1] : "";

	alarm(LIMIT_SECONDS);
	if (argc == 3 && strcmp(what, "capabilities") == 0)
		return capabilities(argv[2]);
	if (argc == 4 && strcmp(what, "register") == 0)
		return do_register(argv[2], argv[3]);
	if (argc == 5 && strcmp(what, "server") == 0)
		return server(argv[2], argv[3], argv[4]);
	if (argc == 5 && strcmp(what, "client") == 0)
		return client(argv[2], argv[3], argv[4]);
	fprintf(stderr, "usage: native capabilities ADDR | register ADDR KINDS | "
			"server ADDR PORT KINDS | client ADDR PORT KIND\n");
	return 2;
}
