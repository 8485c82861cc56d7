/* SPDX-License-Identifier: BSD-3-Clause */
/* rc_events.c -- asynchronous events of a RoCE device */
#include "rc.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static void
expect_no_event(struct rc *rc)
{
	struct pollfd fd = {.fd = rc->device->async_fd, .events = POLLIN};

	EXPECT(poll(&fd, 1, 0) == 0, "an event");
}

/*
 * The peer's first request in RTR raises IBV_EVENT_COMM_EST: the program may go to RTS. Requests in RTS raise
 * none.
 */
static void
established_t(struct side *side)
{
	struct rc rc;

	open_rc(&rc, side, (struct rc_terms){0});
	receive_rc(&rc);
	post_receive(&rc, 0, 1, 0, 64);
	post_receive(&rc, 0, 2, 0, 64);
	expect_no_event(&rc);
	meet(&rc);
	expect_event(&rc, IBV_EVENT_COMM_EST);
	expect_received(&rc, 1, IBV_WC_SUCCESS);
	send_rc(&rc);
	post(&rc, 0, IBV_WR_SEND, 3, 0, 64);
	expect_sent(&rc, 3, IBV_WC_SUCCESS);
	expect_received(&rc, 2, IBV_WC_SUCCESS);
	meet(&rc);
	expect_no_event(&rc);
	close_rc(&rc);
}

static void
established_i(struct side *side)
{
	struct rc rc;

	open_rc(&rc, side, (struct rc_terms){0});
	receive_rc(&rc);
	send_rc(&rc);
	post_receive(&rc, 0, 1, 0, 64);
	meet(&rc);
	post(&rc, 0, IBV_WR_SEND, 1, 0, 64);
	expect_sent(&rc, 1, IBV_WC_SUCCESS);
	expect_received(&rc, 1, IBV_WC_SUCCESS);
	post(&rc, 0, IBV_WR_SEND, 2, 0, 64);
	expect_sent(&rc, 2, IBV_WC_SUCCESS);
	meet(&rc);
	expect_no_event(&rc);
	close_rc(&rc);
}

/* In ERR a queue pair takes no more receives from its shared receive queue. */
static void
last_receive_i(struct side *side)
{
	struct rc rc;

	make_rc(&rc, side, (struct rc_terms){.shared = true});
	post_receive(&rc, 0, 1, 0, 64);
	expect_no_event(&rc);
	set_state(rc.qps[0], IBV_QPS_ERR);
	expect_event(&rc, IBV_EVENT_QP_LAST_WQE_REACHED);
	meet(&rc);
	expect_no_event(&rc);
	expect_nothing(rc.recv_cq);
	close_rc(&rc);
}

/* Whether the tests run in a virtual machine, where they may change addresses. */
static bool
in_guest(void)
{
	return getenv("PAIRS_INITIATOR_GID") != NULL;
}

/* Why addresses cannot be changed. */
static const char *
no_namespace(void)
{
	if (in_guest())
		return NULL;
	if (not_soft() != NULL)
		return not_soft();
	return system("unshare -rn ip link set lo up >/dev/null 2>&1") == 0 ? NULL : "no network namespace is permitted: unshare -rn";
}

/* As no_namespace(), and not in a virtual machine, whose interfaces other tests need. */
static const char *
not_alone(void)
{
	return in_guest() ? "" : no_namespace();
}

static void
nothing(struct side *side)
{
	(void)side;
}

static void
configure(unsigned long command, struct ifreq *request)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	EXPECT(fd >= 0 && ioctl(fd, command, request) == 0, "%s", strerror(errno));
	close(fd);
}

/* Sets the loopback interface up or down. */
static void
set_loopback(bool up)
{
	struct ifreq request = {.ifr_name = "lo", .ifr_flags = up ? IFF_UP : 0};

	configure(SIOCSIFFLAGS, &request);
}

/* Adds a second address to an interface, or removes it. */
static void
set_second_address(const char *interface, bool present)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x0a2f5c01)};
	struct ifreq request = {0};

	EXPECT(snprintf(request.ifr_name, sizeof(request.ifr_name), "%s:1", interface) < IFNAMSIZ, "%s", interface);
	if (present)
		memcpy(&request.ifr_addr, &address, sizeof(address));
	configure(present ? SIOCSIFADDR : SIOCSIFFLAGS, &request);
}

/* The next event of the port, without GID changes. */
static enum ibv_event_type
next_of_port(struct ibv_context *device)
{
	struct pollfd fd = {.fd = device->async_fd, .events = POLLIN};
	struct ibv_async_event event;

	do {
		EXPECT(poll(&fd, 1, 5000) == 1, "no event");
		DONE(ibv_get_async_event(device, &event));
		EXPECT(event.element.port_num == 1, "%s of port %d", ibv_event_type_str(event.event_type), event.element.port_num);
		ibv_ack_async_event(&event);
	} while (event.event_type == IBV_EVENT_GID_CHANGE);
	return event.event_type;
}

static void
expect_gid_change(struct ibv_context *device)
{
	struct pollfd fd = {.fd = device->async_fd, .events = POLLIN};
	struct ibv_async_event event;

	EXPECT(poll(&fd, 1, 5000) == 1, "no event");
	DONE(ibv_get_async_event(device, &event));
	EXPECT(event.event_type == IBV_EVENT_GID_CHANGE && event.element.port_num == 1, "%s", ibv_event_type_str(event.event_type));
	ibv_ack_async_event(&event);
	EXPECT(poll(&fd, 1, 0) == 0, "another event");
}

/* Adding or removing an address raises an event. The GID table is up to date when it arrives. */
static void
gid_change_i(struct side *side)
{
	struct ibv_gid_entry entries[256];
	struct ibv_context *device;
	char interface[IF_NAMESIZE];
	ssize_t before;

	(void)side;
	if (!in_guest()) {
		EXPECT(unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0, "%s", strerror(errno));
		set_loopback(true);
	}
	device = roce_device();
	DONE(ibv_query_gid_ex(device, 1, gid_index(device), &entries[0], 0));
	EXPECT(if_indextoname(entries[0].ndev_ifindex, interface) != NULL, "%s", strerror(errno));
	before = ibv_query_gid_table(device, entries, 256, 0);
	EXPECT(before > 0, "%zd GIDs", before);
	set_second_address(interface, true);
	expect_gid_change(device);
	EXPECT(ibv_query_gid_table(device, entries, 256, 0) == before + 1, "");
	set_second_address(interface, false);
	expect_gid_change(device);
	EXPECT(ibv_query_gid_table(device, entries, 256, 0) == before, "");
	DONE(ibv_close_device(device));
}

/* The port is down while no interface is up. */
static void
port_i(struct side *side)
{
	struct ibv_context *device;
	struct ibv_port_attr port;

	(void)side;
	EXPECT(unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0, "%s", strerror(errno));
	set_loopback(true);
	device = roce_device();
	DONE(ibv_query_port(device, 1, &port));
	EXPECT(port.state == IBV_PORT_ACTIVE, "%s", ibv_port_state_str(port.state));
	set_loopback(false);
	EXPECT(next_of_port(device) == IBV_EVENT_PORT_ERR, "");
	DONE(ibv_query_port(device, 1, &port));
	EXPECT(port.state == IBV_PORT_DOWN, "%s", ibv_port_state_str(port.state));
	set_loopback(true);
	EXPECT(next_of_port(device) == IBV_EVENT_PORT_ACTIVE, "");
	DONE(ibv_query_port(device, 1, &port));
	EXPECT(port.state == IBV_PORT_ACTIVE, "%s", ibv_port_state_str(port.state));
	DONE(ibv_close_device(device));
}

static void
plain_t(struct side *side)
{
	struct rc rc;

	make_rc(&rc, side, (struct rc_terms){0});
	meet(&rc);
	close_rc(&rc);
}

const struct test rc_events[] = {
	{.name = "roce-established-event", .target = established_t, .initiator = established_i, .missing = not_soft},
	{.name = "roce-last-wqe-event", .target = plain_t, .initiator = last_receive_i, .missing = not_soft},
	{.name = "roce-gid-change-event", .target = nothing, .initiator = gid_change_i, .missing = no_namespace},
	{.name = "roce-port-events", .target = nothing, .initiator = port_i, .missing = not_alone},
	{.name = NULL},
};
