/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * udp.c -- the references of RoCE: packets of the same lengths over plain UDP sockets, with acknowledgements,
 * and for a stream with the ICRC of each packet. There are no retransmissions: the window fits in the buffer
 * of the receiver's socket, and a lost packet ends the measurement.
 */
#include "bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define BTH 12
#define ICRC 4
#define MTU 4096
#define PACKET (BTH + MTU + ICRC)
#define BATCH 15 /* packets of this length in a datagram of at most 65,507 bytes */
/* An 8-byte RDMA WRITE ONLY with its RETH of 16 bytes, and an acknowledgement with its AETH of 4 bytes. */
#define WRITE_OF_8 (BTH + 16 + 8 + ICRC)
#define ACK (BTH + 4 + ICRC)
#define BUFFER (4 << 20)
#define IN_FLIGHT 64
#define ACKNOWLEDGED 16

/* The polynomial of Ethernet, bit-reflected. */
static uint32_t crc_table[256];

static void
crc_init(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t crc = i;

		for (int bit = 0; bit < 8; bit++)
			crc = (crc >> 1) ^ (crc & 1 ? 0xedb88320 : 0);
		crc_table[i] = crc;
	}
}

static uint32_t
crc_by_bytes(uint32_t crc, const uint8_t *p, size_t len)
{
	for (; len > 0; len--)
		crc = (crc >> 8) ^ crc_table[(crc ^ *p++) & 0xff];
	return crc;
}

#if defined(__x86_64__)
#define FOLD(x, k, next)                                                                           \
	_mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), _mm_clmulepi64_si128(x, k, 0x11)), next)

/*
 * Folds 64 bytes at a time; the last 16 bytes of the result are divided by the table. The constants are
 * x^(512+32), x^(512-32), x^(128+32) and x^(128-32) modulo the polynomial, reflected.
 */
__attribute__((target("pclmul,sse4.1"))) static uint32_t
crc_by_folding(uint32_t crc, const uint8_t *p, size_t len)
{
	const __m128i by_512 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
	const __m128i by_128 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
	__m128i x[4];
	uint8_t rest[16];

	for (int i = 0; i < 4; i++)
		x[i] = _mm_loadu_si128((const __m128i *)(const void *)(p + 16 * i));
	x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128((int)crc));
	for (p += 64, len -= 64; len >= 64; p += 64, len -= 64)
		for (int i = 0; i < 4; i++)
			x[i] = FOLD(x[i], by_512, _mm_loadu_si128((const __m128i *)(const void *)(p + 16 * i)));
	for (int i = 1; i < 4; i++)
		x[0] = FOLD(x[0], by_128, x[i]);
	_mm_storeu_si128((__m128i *)(void *)rest, x[0]);
	return crc_by_bytes(crc_by_bytes(0, rest, sizeof(rest)), p, len);
}
#endif

static uint32_t
crc_update(uint32_t crc, const void *p, size_t len)
{
#if defined(__x86_64__)
	if (len >= 64 && __builtin_cpu_supports("pclmul"))
		return crc_by_folding(crc, p, len);
#endif
	return crc_by_bytes(crc, p, len);
}

/* An unconnected socket would look up its route in each call. */
static int
udp_open(struct side *side, int *buffer)
{
	struct sockaddr_in own = {.sin_family = AF_INET}, other = {.sin_family = AF_INET};
	socklen_t len = sizeof(own);
	int size = BUFFER;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	REQUIRE(fd >= 0, "socket: %s", strerror(errno));
	inet_pton(AF_INET, ADDR, &own.sin_addr);
	inet_pton(AF_INET, ADDR, &other.sin_addr);
	REQUIRE(bind(fd, (struct sockaddr *)&own, len) == 0, "bind: %s", strerror(errno));
	REQUIRE(getsockname(fd, (struct sockaddr *)&own, &len) == 0, "getsockname: %s", strerror(errno));
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	len = sizeof(*buffer);
	REQUIRE(getsockopt(fd, SOL_SOCKET, SO_RCVBUF, buffer, &len) == 0, "SO_RCVBUF: %s", strerror(errno));
	ctl_send(side, &own.sin_port, sizeof(own.sin_port));
	ctl_recv(side, &other.sin_port, sizeof(other.sin_port));
	REQUIRE(connect(fd, (struct sockaddr *)&other, sizeof(other)) == 0, "connect: %s", strerror(errno));
	return fd;
}

static void
udp_send(int fd, const void *data, size_t size)
{
	REQUIRE(send(fd, data, size, 0) == (ssize_t)size, "send: %s", strerror(errno));
}

/* Receives a datagram; spins, unless it may sleep. */
static void
udp_recv(int fd, void *data, size_t size, bool sleep)
{
	ssize_t n;

	do
		n = recv(fd, data, size, sleep ? 0 : MSG_DONTWAIT);
	while (n < 0 && errno == EAGAIN);
	REQUIRE(n == (ssize_t)size, "recv: %s", n < 0 ? strerror(errno) : "another length");
}

/* The initiator spins; the target spins or sleeps in recv(). */
void
udp_pingpong(struct side *side)
{
	char request[WRITE_OF_8] = {0}, answer[ACK] = {0};
	int buffer;
	int fd = udp_open(side, &buffer);
	uint64_t value = 0;

	ctl_barrier(side);
	if (!side->initiator) {
		do {
			udp_recv(fd, request, sizeof(request), side->opt.sleep);
			memcpy(answer, request, sizeof(value));
			udp_send(fd, answer, sizeof(answer));
		} while (peek(request) != STOP);
	} else {
		struct timer t;

		for (timer_start(&t, side->opt.ms); timer_next(&t);) {
			value++;
			memcpy(request, &value, sizeof(value));
			udp_send(fd, request, sizeof(request));
			udp_recv(fd, answer, sizeof(answer), false);
			REQUIRE(memcmp(answer, &value, sizeof(value)) == 0, "another answer than to %" PRIu64, value);
		}
		memset(request, 0xff, sizeof(value));
		udp_send(fd, request, sizeof(request));
		udp_recv(fd, answer, sizeof(answer), false);
		timer_report(&t, 1);
	}
	close(fd);
}

/* The number of packets that the other side has acknowledged so far. */
static void
take_acks(int fd, uint64_t *acked, bool wait)
{
	char ack[ACK];
	ssize_t n;

	do {
		n = recv(fd, ack, sizeof(ack), MSG_DONTWAIT);
		REQUIRE(n == sizeof(ack) || (n < 0 && errno == EAGAIN), "recv: %s", strerror(errno));
		if (n > 0) {
			memcpy(acked, ack, sizeof(*acked));
			wait = false;
		}
	} while (n > 0 || wait);
}

static void
acknowledge(int fd, uint64_t total)
{
	char ack[ACK] = {0};

	memcpy(ack, &total, sizeof(total));
	udp_send(fd, ack, sizeof(ack));
}

/* One send() for each packet of an 8-byte write; the target sleeps in recv() and acknowledges one in 16. */
void
udp_rate(struct side *side)
{
	char request[WRITE_OF_8] = {0};
	int buffer;
	int fd = udp_open(side, &buffer);
	uint64_t n = 0, acked = 0;

	ctl_barrier(side);
	if (!side->initiator) {
		do {
			udp_recv(fd, request, sizeof(request), true);
			if (++n % ACKNOWLEDGED == 0)
				acknowledge(fd, n);
		} while (peek(request) != STOP);
	} else {
		uint64_t began = now_ns();
		uint64_t end = began + side->opt.ms * UINT64_C(1000000);
		uint64_t elapsed;
		bool is_over;

		do {
			is_over = now_ns() >= end;
			for (int i = 1; i <= 256; i++, n++) {
				while (n - acked >= IN_FLIGHT)
					take_acks(fd, &acked, true);
				if (is_over && i == 256)
					memset(request, 0xff, sizeof(uint64_t));
				udp_send(fd, request, sizeof(request));
			}
		} while (!is_over);
		while (acked < n)
			take_acks(fd, &acked, true);
		elapsed = now_ns() - began;
		printf("value=%.4f rounds=%" PRIu64 "\n", (double)n * 1e3 / (double)elapsed, n);
	}
	close(fd);
}

struct packet {
	uint8_t bth[BTH], icrc[ICRC];
};

/* Sends packets in one call with UDP_SEGMENT. Their payload is not copied in user space. */
static void
send_batch(int fd, uint8_t *payload, unsigned packets, uint64_t psn)
{
	struct packet packet[BATCH] = {0};
	struct iovec iov[3 * BATCH];
	union {
		char bytes[CMSG_SPACE(sizeof(uint16_t))];
		struct cmsghdr align;
	} control = {0};
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 3 * packets, .msg_control = &control,
		.msg_controllen = sizeof(control.bytes)};
	struct cmsghdr *header = CMSG_FIRSTHDR(&msg);
	uint16_t segment = PACKET;

	for (unsigned i = 0; i < packets; i++, psn++) {
		struct iovec *part = iov + 3 * i;
		uint32_t crc;

		memcpy(packet[i].bth, &psn, sizeof(psn));
		part[0] = (struct iovec){packet[i].bth, BTH};
		part[1] = (struct iovec){payload + (size_t)i * MTU, MTU};
		part[2] = (struct iovec){packet[i].icrc, ICRC};
		crc = ~crc_update(crc_update(~UINT32_C(0), part[0].iov_base, BTH), part[1].iov_base, MTU);
		memcpy(packet[i].icrc, &crc, ICRC);
	}
	header->cmsg_level = SOL_UDP;
	header->cmsg_type = UDP_SEGMENT;
	header->cmsg_len = CMSG_LEN(sizeof(segment));
	memcpy(CMSG_DATA(header), &segment, sizeof(segment));
	REQUIRE(sendmsg(fd, &msg, 0) == (ssize_t)packets * PACKET, "sendmsg with UDP_SEGMENT: %s", strerror(errno));
}

/* Checks and acknowledges packets until the last one, which has the PSN STOP. */
static void
receive_stream(int fd)
{
	static uint8_t buf[1 << 16];
	uint64_t expected = 0, psn = 0;
	int one = 1;

	REQUIRE(setsockopt(fd, SOL_UDP, UDP_GRO, &one, sizeof(one)) == 0, "UDP_GRO: %s", strerror(errno));
	while (psn != STOP) {
		ssize_t n = recv(fd, buf, sizeof(buf), 0);

		REQUIRE(n > 0 && n % PACKET == 0, "recv: %s", n < 0 ? strerror(errno) : "another length");
		for (uint8_t *p = buf; p < buf + n; p += PACKET) {
			uint32_t crc = ~crc_update(crc_update(~UINT32_C(0), p, BTH), p + BTH, MTU);

			memcpy(&psn, p, sizeof(psn));
			REQUIRE(psn == expected || psn == STOP, "packet %" PRIu64 " was lost", expected);
			REQUIRE(memcmp(p + BTH + MTU, &crc, ICRC) == 0, "packet %" PRIu64 " has another ICRC", psn);
			expected++;
		}
		acknowledge(fd, expected);
	}
}

/*
 * Messages of opt.size in packets of MTU, repeatedly the same buffer; both sides compute the ICRCs. The
 * target acknowledges each batch that it receives, and does not copy it elsewhere.
 */
void
udp_stream(struct side *side)
{
	size_t size = side->opt.size;
	uint64_t packets = size / MTU;
	int buffer;
	int fd = udp_open(side, &buffer);

	REQUIRE(size % MTU == 0 && size > 0, "size is not a multiple of %d", MTU);
	crc_init();
	ctl_send(side, &buffer, sizeof(buffer));
	ctl_recv(side, &buffer, sizeof(buffer));
	ctl_barrier(side);
	if (!side->initiator) {
		receive_stream(fd);
	} else {
		uint8_t *payload = malloc(size);
		/* the kernel counts more than the bytes of a packet */
		uint64_t window = (uint64_t)buffer / 3 / PACKET + 1;
		uint64_t began = now_ns();
		uint64_t end = began + side->opt.ms * UINT64_C(1000000);
		uint64_t n = 0, psn = 0, acked = 0, elapsed;

		REQUIRE(payload != NULL, "no memory");
		memset(payload, 1, size);
		do {
			for (uint64_t at = 0; at < packets;) {
				unsigned batch = packets - at < BATCH ? (unsigned)(packets - at) : BATCH;

				take_acks(fd, &acked, false);
				while (psn > acked && psn + batch - acked > window)
					take_acks(fd, &acked, true);
				send_batch(fd, payload + at * MTU, batch, psn);
				at += batch;
				psn += batch;
			}
			n++;
		} while (now_ns() < end);
		while (acked < psn)
			take_acks(fd, &acked, true);
		elapsed = now_ns() - began;
		send_batch(fd, payload, 1, STOP);
		printf("value=%.4f rounds=%" PRIu64 "\n", (double)n * (double)size / (double)elapsed, n);
		free(payload);
	}
	close(fd);
}
