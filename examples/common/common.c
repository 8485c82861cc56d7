/* SPDX-License-Identifier: BSD-3-Clause */
/* common.c -- see common.h */
#include "common.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define LAST_RESORT_SECONDS 30

void
check_result(int ret, const char *call, const char *file, int line)
{
	if (ret == 0)
		return;
	fprintf(stderr, "%s:%d: %s failed: %s (%d)\n", file, line, call, rpma_err_2str(ret), ret);
	exit(1);
}

void
give_up(const char *file, int line, const char *format, ...)
{
	va_list ap;

	fprintf(stderr, "%s:%d: ", file, line);
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

static void
on_alarm(int sig)
{
	static const char text[] = "the example took too long, giving up\n";
	ssize_t ignored = write(STDERR_FILENO, text, sizeof(text) - 1);

	(void)sig;
	(void)ignored;
	_exit(3);
}

struct args
parse_args(int argc, char *argv[], const char *extra)
{
	struct args args = {NULL, NULL, NULL};
	int wanted = extra != NULL ? 4 : 3;

	if (argc != wanted) {
		fprintf(stderr, "usage: %s ADDR PORT%s%s\n", argv[0], extra != NULL ? " " : "",
			extra != NULL ? extra : "");
		exit(2);
	}
	args.addr = argv[1];
	args.port = argv[2];
	if (extra != NULL)
		args.extra = argv[3];

	/* a reader of the output may wait for a line, possibly through a pipe */
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGALRM, on_alarm);
	alarm(LAST_RESORT_SECONDS);
	return args;
}

void
say_listening(const struct args *args)
{
	printf("listening on %s:%s\n", args->addr, args->port);
}

void
verified(const char *format, ...)
{
	va_list ap;

	fputs("verified: ", stdout);
	va_start(ap, format);
	vprintf(format, ap);
	va_end(ap);
	fputc('\n', stdout);
}

void *
alloc_pages(size_t size)
{
	void *ptr = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	REQUIRE(ptr != MAP_FAILED, "mmap of %zu bytes: %s", size, strerror(errno));
	return ptr;
}

void
free_pages(void *ptr, size_t size)
{
	REQUIRE(munmap(ptr, size) == 0, "munmap: %s", strerror(errno));
}

void *
map_file(const char *path, size_t size)
{
	struct stat st;
	void *ptr;
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	REQUIRE(fd >= 0, "open %s: %s", path, strerror(errno));
	REQUIRE(fstat(fd, &st) == 0, "fstat %s: %s", path, strerror(errno));
	if ((size_t)st.st_size < size)
		REQUIRE(ftruncate(fd, (off_t)size) == 0, "ftruncate %s: %s", path, strerror(errno));
	ptr = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	REQUIRE(ptr != MAP_FAILED, "mmap %s: %s", path, strerror(errno));
	close(fd);
	return ptr;
}

void
read_file(const char *path, void *buf, size_t size)
{
	size_t done = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	REQUIRE(fd >= 0, "open %s: %s", path, strerror(errno));
	while (done < size) {
		ssize_t n = read(fd, (char *)buf + done, size - done);

		REQUIRE(n > 0, "read %s: %s", path, n == 0 ? "file too short" : strerror(errno));
		done += (size_t)n;
	}
	close(fd);
}

static unsigned char
pattern_byte(size_t i, uint32_t seed)
{
	/* a multiplicative hash: neighbours, blocks and seeds all differ */
	uint64_t x = ((uint64_t)i + 1) * 0x9e3779b97f4a7c15ull + (uint64_t)seed * 0xd6e8feb86659fd93ull;

	return (unsigned char)(x >> 56 ^ x >> 24);
}

void
fill_pattern(void *ptr, size_t size, uint32_t seed)
{
	unsigned char *p = ptr;

	for (size_t i = 0; i < size; i++)
		p[i] = pattern_byte(i, seed);
}

void
check_pattern(const void *ptr, size_t size, uint32_t seed, const char *what)
{
	const unsigned char *p = ptr;

	for (size_t i = 0; i < size; i++)
		REQUIRE(p[i] == pattern_byte(i, seed),
			"%s: byte %zu of %zu is 0x%02x, expected 0x%02x", what, i, size, p[i],
			pattern_byte(i, seed));
}

struct rpma_peer *
new_peer(const char *addr, enum rpma_util_ibv_context_type type)
{
	struct ibv_context *dev = NULL;
	struct rpma_peer *peer = NULL;

	CHECK(rpma_utils_get_ibv_context(addr, type, &dev));
	CHECK(rpma_peer_new(dev, &peer));
	return peer;
}

void
wait_event(struct rpma_conn *conn, enum rpma_conn_event expected)
{
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;

	CHECK(rpma_conn_next_event(conn, &event));
	REQUIRE(event == expected, "connection event '%s', expected '%s'",
		rpma_utils_conn_event_2str(event), rpma_utils_conn_event_2str(expected));
}

void
wait_wc(struct rpma_cq *cq, struct ibv_wc *wc)
{
	int ret;

	while ((ret = rpma_cq_get_wc(cq, 1, wc, NULL)) == RPMA_E_NO_COMPLETION)
		CHECK(rpma_cq_wait(cq));
	CHECK(ret);
}

void
wait_success(struct rpma_cq *cq, const void *op_context, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc;

	wait_wc(cq, &wc);
	REQUIRE(wc.wr_id == (uintptr_t)op_context, "completion of operation 0x%" PRIx64
		", expected 0x%" PRIxPTR, wc.wr_id, (uintptr_t)op_context);
	/* the opcode of a failed completion is undefined, so check the status first */
	REQUIRE(wc.status == IBV_WC_SUCCESS, "operation 0x%" PRIx64 ": enum ibv_wc_status %d",
		wc.wr_id, wc.status);
	/* the opcodes of a flush and an atomic write that the device executes natively */
	if ((int)wc.opcode == 8)
		wc.opcode = IBV_WC_RDMA_READ;
	if ((int)wc.opcode == 9)
		wc.opcode = IBV_WC_RDMA_WRITE;
	REQUIRE(wc.opcode == opcode, "operation 0x%" PRIx64 ": opcode %d, expected %d", wc.wr_id,
		wc.opcode, opcode);
}

struct rpma_mr_remote *
remote_region(const struct rpma_conn *conn)
{
	struct rpma_conn_private_data pdata;
	struct rpma_mr_remote *mr = NULL;

	CHECK(rpma_conn_get_private_data(conn, &pdata));
	REQUIRE(pdata.ptr != NULL, "the other side sent no private data");
	/* checks the size; bytes after the descriptor are allowed */
	CHECK(rpma_mr_remote_from_descriptor(pdata.ptr, pdata.len, &mr));
	return mr;
}
