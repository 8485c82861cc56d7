/* SPDX-License-Identifier: BSD-3-Clause */
/* connect.c -- connection establishment and its failures, and malformed data sent to the port. */
#include "link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_PRIVATE_DATA 251

/* Both directions, every length class, up to the longest. */
static const uint8_t private_lengths[] = {1, 4, 100, 196, 250, MAX_PRIVATE_DATA};
#define PRIVATE_LENGTHS (sizeof(private_lengths) / sizeof(private_lengths[0]))

static void
check_private(const struct rpma_conn_private_data *pdata, uint8_t len, uint32_t seed)
{
	EXPECT(pdata->ptr != NULL && pdata->len >= len, "%u bytes, expected %u", pdata->len, len);
	check_pattern(pdata->ptr, len, seed, "private data");
	/* a transport may only append zeros */
	check_bytes((char *)pdata->ptr + len, pdata->len - len, 0, "after the private data");
}

static void
private_target(struct side *side)
{
	char words[MAX_PRIVATE_DATA];
	struct node node;

	open_target(&node, side);
	for (uint32_t i = 0; i < PRIVATE_LENGTHS; i++) {
		struct rpma_conn_private_data out = {words, private_lengths[PRIVATE_LENGTHS - 1 - i]};
		struct rpma_conn_private_data in = {NULL, 0};
		struct rpma_conn_req *req = next_req(&node, NULL);
		struct link link = {0};

		OK(rpma_conn_req_get_private_data(req, &in));
		check_private(&in, private_lengths[i], 100 + i);
		fill_pattern(words, sizeof(words), 200 + i);
		OK(rpma_conn_req_connect(&req, &out, &link.conn));
		memset(words, 0, sizeof(words));
		expect_event(&link, RPMA_CONN_ESTABLISHED);
		OK(rpma_conn_get_private_data(link.conn, &in));
		check_private(&in, private_lengths[i], 100 + i);
		await_end(&link);
	}
	close_node(&node);
}

static void
private_initiator(struct side *side)
{
	char words[MAX_PRIVATE_DATA];
	struct node node;

	open_initiator(&node, side);
	for (uint32_t i = 0; i < PRIVATE_LENGTHS; i++) {
		struct rpma_conn_private_data out = {words, private_lengths[i]};
		struct rpma_conn_private_data in = {words, 1};
		struct rpma_conn_req *req = new_req(&node, NULL);
		struct link link = {0};

		/* the request of the active side has no private data of the peer */
		OK(rpma_conn_req_get_private_data(req, &in));
		EXPECT(in.ptr == NULL && in.len == 0);
		fill_pattern(words, sizeof(words), 100 + i);
		OK(rpma_conn_req_connect(&req, &out, &link.conn));
		memset(words, 0, sizeof(words));
		expect_event(&link, RPMA_CONN_ESTABLISHED);
		OK(rpma_conn_get_private_data(link.conn, &in));
		check_private(&in, private_lengths[PRIVATE_LENGTHS - 1 - i], 200 + i);
		end_link(&link);
	}
	close_node(&node);
}

static void
no_private_target(struct side *side)
{
	struct rpma_conn_private_data in = {&in, 1};
	struct rpma_conn_req *req;
	struct node node;
	struct link link;

	open_target(&node, side);
	req = next_req(&node, NULL);
	OK(rpma_conn_req_get_private_data(req, &in));
	EXPECT(in.ptr == NULL && in.len == 0, "%u bytes", in.len);
	start_link(&link, &req, NULL);
	expect_event(&link, RPMA_CONN_ESTABLISHED);
	OK(rpma_conn_get_private_data(link.conn, &in));
	EXPECT(in.ptr == NULL && in.len == 0, "%u bytes", in.len);
	await_end(&link);
	close_node(&node);
}

static void
no_private_initiator(struct side *side)
{
	struct rpma_conn_private_data in = {&in, 1};
	struct node node;
	struct link link;

	open_initiator(&node, side);
	connect_link(&node, &link, NULL, NULL);
	OK(rpma_conn_get_private_data(link.conn, &in));
	EXPECT(in.ptr == NULL && in.len == 0, "%u bytes", in.len);
	end_link(&link);
	close_node(&node);
}

static void
idle_target(struct side *side)
{
	await(side, 'd');
}

/* Nothing is listening: an event, not an error of the call; repeated many times. */
static void
refused_initiator(struct side *side)
{
	struct node node;

	open_peer(&node, side);
	for (int i = 0; i < 20; i++) {
		struct rpma_conn_req *req = new_req(&node, NULL);
		struct link link;

		start_link(&link, &req, NULL);
		expect_event(&link, RPMA_CONN_REJECTED);
		delete_link(&link);
	}
	close_node(&node);
	notify(side, 'd');
}

/* The target rejects the request, then accepts it: three times. */
static void
reject_target(struct side *side)
{
	struct node node;

	open_target(&node, side);
	for (int i = 0; i < 3; i++) {
		struct rpma_conn_req *req = next_req(&node, NULL);
		struct link link;

		OK(rpma_conn_req_delete(&req));
		EXPECT(req == NULL);
		accept_link(&node, &link, NULL, NULL);
		await_end(&link);
	}
	close_node(&node);
}

static void
reject_initiator(struct side *side)
{
	struct region out;
	struct node node;

	open_initiator(&node, side);
	region_new(&node, &out, 4096, RPMA_MR_USAGE_RECV);
	for (int i = 0; i < 3; i++) {
		struct rpma_conn_req *req = new_req(&node, NULL);
		struct link link;

		OK(rpma_conn_req_recv(req, out.mr, 0, 4096, (void *)9));
		start_link(&link, &req, NULL);
		expect_event(&link, RPMA_CONN_REJECTED);
		delete_link(&link);
		connect_link(&node, &link, NULL, NULL);
		end_link(&link);
	}
	close_with_region(&node, &out);
}

/* The target shuts its endpoint down before it rejects a request, then before it accepts one. */
static void
shut_down_target(struct side *side)
{
	struct rpma_conn_req *req;
	struct region region;
	struct node node;
	struct link link;

	open_target(&node, side);
	region_new(&node, &region, 4096, USAGE_ALL);
	req = next_req(&node, NULL);
	OK(rpma_ep_shutdown(&node.ep));
	OK(rpma_conn_req_delete(&req));
	OK(rpma_ep_listen(node.peer, side->addr, side->port, &node.ep));
	notify(side, 'L');
	req = next_req(&node, NULL);
	OK(rpma_ep_shutdown(&node.ep));
	start_link(&link, &req, &region);
	finish_link(&link);
	await_end(&link);
	check_pattern(region.ptr, 4096, 3, "what was written");
	close_with_region(&node, &region);
}

static void
shut_down_initiator(struct side *side)
{
	struct rpma_conn_req *req;
	struct region out;
	struct node node;
	struct link link;

	open_initiator(&node, side);
	region_new(&node, &out, 4096, USAGE_ALL);
	fill_pattern(out.ptr, 4096, 3);
	req = new_req(&node, NULL);
	start_link(&link, &req, NULL);
	expect_event(&link, RPMA_CONN_REJECTED);
	delete_link(&link);
	await(side, 'L');
	connect_link(&node, &link, NULL, NULL);
	write_part(&link, 0, &out, 0, 4096);
	end_link(&link);
	close_with_region(&node, &out);
}

/* A TCP socket without the library. */
static int
plain_socket(struct side *side, bool listening)
{
	struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(side->port))};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int one = 1;

	EXPECT(fd >= 0 && inet_pton(AF_INET, side->addr, &addr.sin_addr) == 1);
	if (listening) {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		EXPECT(bind(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0, "%s", strerror(errno));
		EXPECT(listen(fd, 0) == 0, "%s", strerror(errno));
	} else {
		EXPECT(connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0, "%s", strerror(errno));
	}
	return fd;
}

/* The host accepts the TCP connection and never sends anything. */
static void
mute_target(struct side *side)
{
	int fd = plain_socket(side, true);

	notify(side, 'L');
	await(side, 'd');
	close(fd);
}

/* The host does not respond to the SYN: its backlog is full. */
static void
blackhole_target(struct side *side)
{
	int fd = plain_socket(side, true);
	int full = plain_socket(side, false);

	notify(side, 'L');
	await(side, 'd');
	close(full);
	close(fd);
}

static void
unreachable_initiator(struct side *side)
{
	uint64_t begin;
	struct rpma_conn_req *req;
	struct node node;
	struct link link;

	/* before the library reads it; the default would be 10 seconds */
	setenv("SOFTVERBS_REPLY_TIMEOUT_MS", "1500", 1);
	open_initiator(&node, side);
	req = new_req(&node, NULL);
	begin = now_ms();
	start_link(&link, &req, NULL);
	EXPECT(now_ms() - begin < 1000, "the call has blocked");
	expect_event(&link, RPMA_CONN_UNREACHABLE);
	EXPECT(now_ms() - begin >= 900 && now_ms() - begin < 8000, "after %llu ms",
		(unsigned long long)(now_ms() - begin));
	delete_link(&link);
	notify(side, 'd');
	close_node(&node);
}

/* Deleting a connection that is not yet established neither hangs nor leaks descriptors. */
static void
give_up_initiator(struct side *side)
{
	struct node node;
	unsigned fds = 0;

	open_initiator(&node, side);
	for (int i = 0; i < 10; i++) {
		struct rpma_conn_req *req = new_req(&node, NULL);
		struct link link;

		start_link(&link, &req, NULL);
		delete_link(&link);
		sleep_ms(20);
		if (i == 0)
			fds = count_fds();
	}
	EXPECT(count_fds() <= fds, "%u descriptors, %u at first", count_fds(), fds);
	notify(side, 'd');
	close_node(&node);
}

static void
send_raw(struct side *side, const void *bytes, size_t size)
{
	int fd = plain_socket(side, false);
	/* the remote peer may stop reading at any point */
	ssize_t ignored = send(fd, bytes, size, MSG_NOSIGNAL);

	(void)ignored;
	close(fd);
}

/* Data that the port may receive by mistake or from an attacker. */
static void
garbage_initiator(struct side *side)
{
	static const char http[] = "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: curious\r\n\r\n";
	static const char tls[] = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
	unsigned char mpa[20 + 600] = "MPA ID Req Frame";
	char *much = pages(1 << 20);
	struct region local;
	struct node node;
	struct link link;
	int mute;

	await(side, 'L');
	fill_pattern(much, 1 << 20, 77);
	mute = plain_socket(side, false);
	send_raw(side, http, sizeof(http) - 1);
	send_raw(side, tls, sizeof(tls) - 1);
	send_raw(side, "", 0);
	send_raw(side, much, 1 << 20);
	/* the beginning of a request, then nothing more */
	send_raw(side, mpa, 10);
	/* more private data than permitted; less than the header announces */
	mpa[16] = 0x10;
	mpa[17] = 2;
	mpa[18] = 0xff;
	mpa[19] = 0xff;
	send_raw(side, mpa, sizeof(mpa));
	mpa[18] = 0;
	mpa[19] = 200;
	send_raw(side, mpa, 30);
	/* no room for the data that the flags announce; an unknown revision */
	mpa[19] = 2;
	send_raw(side, mpa, 22);
	mpa[17] = 9;
	mpa[19] = 4;
	send_raw(side, mpa, 24);

	/* after all that, and with one of them still connected and silent, a real program is served */
	notify(side, 'L');
	connect_with_region(&node, &link, &local, side, 4096, USAGE_ALL, NULL);
	read_part(&link, &local, 0, 0, 4096);
	check_pattern(local.ptr, 4096, 6, "what was read");
	end_link(&link);
	close_with_region(&node, &local);
	close(mute);
}

static void
garbage_target(struct side *side)
{
	struct region region;
	struct node node;
	struct link link;

	open_target(&node, side);
	region_new(&node, &region, 4096, RPMA_MR_USAGE_READ_SRC);
	fill_pattern(region.ptr, 4096, 6);
	await(side, 'L');
	notify(side, 'L');
	/* the first request that is reported is the real one */
	accept_link(&node, &link, NULL, &region);
	await_end(&link);
	close_with_region(&node, &region);
}

/* One after the other: none may leave descriptors or threads. */
#define MANY 300

static void
many_target(struct side *side)
{
	struct region region;
	struct node node;
	unsigned fds = 0;
	unsigned threads = 0;

	open_target(&node, side);
	region_new(&node, &region, 4096, USAGE_ALL);
	for (int i = 0; i < MANY; i++) {
		struct link link;

		accept_link(&node, &link, NULL, &region);
		/* the kernel may process the DREQ of the peer before its RTU: then ESTABLISHED never comes */
		if (not_soft() != NULL)
			notify(side, 'e');
		await_end(&link);
		if (i == 10) {
			fds = count_fds();
			threads = count_threads();
		}
	}
	/* the last one may still be closing */
	sleep_ms(200);
	EXPECT(count_fds() <= fds + 1, "%u descriptors, %u at first", count_fds(), fds);
	EXPECT(count_threads() <= threads, "%u threads, %u at first", count_threads(), threads);
	close_with_region(&node, &region);
}

static void
many_initiator(struct side *side)
{
	struct region local;
	struct node node;
	unsigned fds = 0;

	open_initiator(&node, side);
	region_new(&node, &local, 4096, USAGE_ALL);
	for (uint32_t i = 0; i < MANY; i++) {
		struct link link;

		connect_link(&node, &link, NULL, NULL);
		if (not_soft() != NULL)
			await(side, 'e');
		fill_pattern(local.ptr, 64, i);
		write_part(&link, 0, &local, 0, 64);
		read_part(&link, &local, 64, 0, 64);
		check_pattern(local.ptr + 64, 64, i, "written and read back");
		end_link(&link);
		if (i == 10)
			fds = count_fds();
	}
	sleep_ms(200);
	EXPECT(count_fds() <= fds + 1, "%u descriptors, %u at first", count_fds(), fds);
	close_with_region(&node, &local);
}

/* All connections at the same time. */
#define AT_ONCE 40

static void
at_once_target(struct side *side)
{
	static struct link links[AT_ONCE];
	struct region region;
	struct node node;

	open_target(&node, side);
	region_new(&node, &region, AT_ONCE * 64, USAGE_ALL);
	for (int i = 0; i < AT_ONCE; i++) {
		struct rpma_conn_req *req = next_req(&node, NULL);

		start_link(&links[i], &req, &region);
	}
	for (int i = 0; i < AT_ONCE; i++)
		finish_link(&links[i]);
	for (int i = 0; i < AT_ONCE; i++)
		await_end(&links[i]);
	for (uint32_t i = 0; i < AT_ONCE; i++)
		check_pattern(region.ptr + i * 64, 64, i, "a connection's bytes");
	close_with_region(&node, &region);
}

static void
at_once_initiator(struct side *side)
{
	static struct link links[AT_ONCE];
	struct region local;
	struct node node;

	open_initiator(&node, side);
	region_new(&node, &local, AT_ONCE * 64, USAGE_ALL);
	for (int i = 0; i < AT_ONCE; i++) {
		struct rpma_conn_req *req = new_req(&node, NULL);

		start_link(&links[i], &req, NULL);
	}
	for (int i = 0; i < AT_ONCE; i++)
		finish_link(&links[i]);
	for (uint32_t i = 0; i < AT_ONCE; i++) {
		fill_pattern(local.ptr + i * 64, 64, i);
		OK(rpma_write(links[i].conn, links[i].remote, i * 64, local.mr, i * 64, 64,
			RPMA_F_COMPLETION_ON_ERROR, NULL));
		OK(rpma_flush(links[i].conn, links[i].remote, 0, 8, RPMA_FLUSH_TYPE_VISIBILITY,
			RPMA_F_COMPLETION_ALWAYS, (void *)1));
	}
	for (int i = 0; i < AT_ONCE; i++)
		expect_wc(links[i].cq, 1, IBV_WC_RDMA_READ);
	/*
	 * all before the first end: a kernel may report requests in another order, and the target awaits the
	 * ends in its order
	 */
	for (int i = 0; i < AT_ONCE; i++)
		OK(rpma_conn_disconnect(links[i].conn));
	for (int i = 0; i < AT_ONCE; i++) {
		expect_event(&links[i], RPMA_CONN_CLOSED);
		delete_link(&links[i]);
	}
	close_with_region(&node, &local);
}

/* The port is in use: the call fails, and succeeds when the port is free again. */
static void
port_taken_initiator(struct side *side)
{
	int fd = plain_socket(side, true);
	struct ibv_context *dev = NULL;
	struct rpma_peer *peer = NULL;
	struct rpma_ep *ep = NULL;

	OK(rpma_utils_get_ibv_context(side->addr, RPMA_UTIL_IBV_CONTEXT_LOCAL, &dev));
	OK(rpma_peer_new(dev, &peer));
	RETURNS(RPMA_E_PROVIDER, rpma_ep_listen(peer, side->addr, side->port, &ep));
	EXPECT(ep == NULL);
	close(fd);
	for (int i = 0; i < 3; i++) {
		OK(rpma_ep_listen(peer, side->addr, side->port, &ep));
		OK(rpma_ep_shutdown(&ep));
	}
	OK(rpma_peer_delete(&peer));
	notify(side, 'd');
}

const struct test connect_tests[] = {
	{"private-data-up-to-251", private_target, private_initiator},
	{"private-data-ipv6", private_target, private_initiator, .addr = "::1"},
	{"private-data-none", no_private_target, no_private_initiator},
	{"nobody-listens", idle_target, refused_initiator},
	{"nobody-listens-ipv6", idle_target, refused_initiator, .addr = "::1"},
	{"rejected-then-accepted", reject_target, reject_initiator},
	{"endpoint-shut-down-before-the-answer", shut_down_target, shut_down_initiator},
	{"peer-never-replies", mute_target, unreachable_initiator},
	{"peer-never-answers", blackhole_target, unreachable_initiator},
	{"given-up-while-connecting", mute_target, give_up_initiator},
	{"garbage-to-the-port", garbage_target, garbage_initiator},
	{"300-connections-in-turn", many_target, many_initiator},
	{"40-connections-at-once", at_once_target, at_once_initiator},
	{"port-taken", idle_target, port_taken_initiator},
	{.name = NULL},
};
