// SPDX-License-Identifier: BSD-3-Clause
// The examples in C++, each a server and a client; share, read and write are programs in examples/cpp.
#include "harness.hpp"

#include <csignal>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <future>
#include <limits>
#include <string_view>
#include <sys/epoll.h>
#include <thread>

using namespace std::literals;
using rpma::completes;
using rpma::errc;
using rpma::event;
using rpma::usage;

static rpma::conn connect(const place &where, rpma::peer &peer, const rpma::conn_private_data &data = {},
	const rpma::conn_cfg *cfg = nullptr) {
	return peer.connect(where.addr, where.port.c_str(), data, cfg);
}

static std::string_view text(const rpma::local_region &region, std::size_t offset, std::size_t len) {
	return {reinterpret_cast<const char *>(region.data()) + offset, len};
}

static void non_blocking(int fd) {
	REQUIRE(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0);
}

/* The next completion is that of this operation. */
static rpma::completion done(const rpma::cq &cq, const void *context, ibv_wc_opcode opcode) {
	auto it = cq.next().check();
	REQUIRE(it.context() == context && it.opcode == opcode);
	return it;
}

/* ---- 01-connection ---- */

static void connection_server(const place &where) {
	auto peer = rpma::peer::open(where.addr);
	auto endpoint = where.listen(peer);
	auto req = endpoint.next();
	const auto asked = req.private_data();
	REQUIRE(asked.size() >= 5 && std::memcmp(asked.data(), "hello", 5) == 0);
	auto conn = std::move(req).connect("welcome"sv);
	REQUIRE(conn.wait_closed() == event::closed);
	conn.close();
	REQUIRE(!conn);
	/* both requests are rejected: a temporary, and one that is reset */
	endpoint.next();
	endpoint.next().reset();
}

static void connection_client(const place &where) {
	auto peer = rpma::peer::open_to(where.addr);
	auto conn = connect(where, peer, "hello"sv);
	REQUIRE(std::memcmp(conn.private_data().data(), "welcome", 7) == 0 && conn.qp_num() != 0);
	conn.close();
	REQUIRE(thrown([&] { connect(where, peer); }) == errc::rejected);
	std::error_code ec;
	REQUIRE(!peer.connect(where.addr, where.port.c_str(), {}, nullptr, ec) && ec == errc::rejected);
	REQUIRE(ec == std::errc::connection_refused && std::strlen(rpma_err_last()) != 0);
}

/* ---- 02-read, 03-read-write-file, 04-flush-to-persistent, 06-atomic-write ---- */

static const std::string &data_file() {
	static const std::string path = "/tmp/rpma-hpp-" + std::to_string(getppid());
	return path;
}

/* Of librpma, but the range of the last call is known. */
static std::pair<std::size_t, std::size_t> flushed_range;

extern "C" int rpma_flush(rpma_conn *conn, rpma_mr_remote *dst, std::size_t offset, std::size_t len, rpma_flush_type type,
	int flags, const void *context) {
	flushed_range = {offset, len};
	return reinterpret_cast<decltype(&rpma_flush)>(dlsym(RTLD_NEXT, "rpma_flush"))(conn, dst, offset, len, type, flags, context);
}

static void memory_server(const place &where) {
	auto peer = rpma::peer::open(where.addr);
	auto region = peer.reg(rpma::memory::file(data_file().c_str(), 4096), usage::read_src | usage::write_dst |
		usage::flush_visible | usage::flush_persistent);
	region.copy_in(0, "from the server"sv);
	auto endpoint = where.listen(peer);
	auto conn = endpoint.accept(region.offer(true));
	conn.wait_closed();
	REQUIRE(text(region, 100, 15) == "from the client");
	char bytes[15];
	const int fd = open(data_file().c_str(), O_RDONLY);
	REQUIRE(pread(fd, bytes, 15, 100) == 15 && std::memcmp(bytes, "from the client", 15) == 0);
	std::uint64_t word;
	std::memcpy(&word, region.data() + 200, 8);
	REQUIRE(word == 0x0123456789abcdef);
	unlink(data_file().c_str());
}

static void memory_client(const place &where) {
	auto peer = rpma::peer::open_to(where.addr);
	auto conn = connect(where, peer);
	auto cq = conn.cq();
	auto remote = conn.remote();
	auto local = peer.reg(rpma::memory::zeroed(64), usage::read_dst | usage::write_src);
	REQUIRE(remote.size() == 4096);

	conn.read(local.slice(0, 15), remote.slice(0, 15), &local);
	done(cq, &local, IBV_WC_RDMA_READ);
	REQUIRE(text(local, 0, 15) == "from the server");

	local.copy_in(0, "from the client"sv);
	conn.write(remote.slice(100, 15), local.slice(0, 15), {nullptr, completes::on_error});
	conn.flush(remote.slice(100, 15), rpma::flush_type::persistent, &remote);
	done(cq, &remote, IBV_WC_RDMA_READ);
	conn.atomic_write(remote.slice(200, 8), 0x0123456789abcdef, &cq);
	done(cq, &cq, IBV_WC_RDMA_WRITE);
	conn.flush(remote.slice(200), rpma::flush_type::visible);
	done(cq, nullptr, IBV_WC_RDMA_READ);
	for (const std::size_t offset : {4088u, 4089u, 4095u, 4096u}) {
		conn.flush(remote.slice(offset), rpma::flush_type::visible);
		done(cq, nullptr, IBV_WC_RDMA_READ);
		REQUIRE(flushed_range == std::pair(std::size_t(4088), std::size_t(8)));
	}

	/* checked before they are posted, so that the connection stays usable */
	const auto fails = [](errc code, auto call) {
		std::error_code ec;
		call(ec);
		REQUIRE(ec == code && thrown([&] { call(rpma::ec_ref()); }) == code);
	};
	fails(errc::out_of_range, [&](rpma::ec_ref ec) { conn.read(local.slice(0, 8), remote.slice(0, 9), {}, ec); });
	fails(errc::out_of_range, [&](rpma::ec_ref ec) { conn.write(remote.slice(0, 9), local.slice(0, 8), {}, ec); });
	fails(errc::out_of_range, [&](rpma::ec_ref ec) { conn.write_with_imm(remote.slice(0, 9), {}, 1, {}, ec); });
	fails(errc::out_of_range, [&](rpma::ec_ref ec) { conn.atomic_write(remote.slice(0, 9), 0, {}, ec); });
	fails(errc::invalid, [&](rpma::ec_ref ec) { conn.atomic_write(remote.slice(4, 8), 0, {}, ec); });
	auto seven = peer.reg(rpma::memory::zeroed(7), usage::flush_visible);
	rpma::remote_region short_one(seven.offer());
	fails(errc::out_of_range, [&](rpma::ec_ref ec) { conn.flush(short_one.slice(), rpma::flush_type::visible, {}, ec); });
	fails(errc::not_permitted, [&](rpma::ec_ref ec) { conn.send(local.slice(), {}, ec); });
	fails(errc::not_permitted, [&](rpma::ec_ref ec) { conn.send_with_imm(local.slice(), 1, {}, ec); });
	fails(errc::not_permitted, [&](rpma::ec_ref ec) { conn.recv(local.slice(), nullptr, ec); });
	auto source = peer.reg(rpma::memory::zeroed(8), usage::write_src);
	fails(errc::not_permitted, [&](rpma::ec_ref ec) { conn.read(source.slice(), remote.slice(0, 8), {}, ec); });
	rpma::remote_region not_durable(source.offer());
	fails(errc::not_permitted, [&](rpma::ec_ref ec) { conn.read(local.slice(0, 8), not_durable.slice(), {}, ec); });
	fails(errc::not_permitted, [&](rpma::ec_ref ec) { conn.write(not_durable.slice(), source.slice(), {}, ec); });
	fails(errc::not_permitted, [&](rpma::ec_ref ec) { conn.atomic_write(not_durable.slice(), 1, {}, ec); });
	fails(errc::not_supported, [&](rpma::ec_ref ec) { conn.flush(not_durable.slice(), rpma::flush_type::visible, {}, ec); });
	conn.apply(rpma::peer_cfg());
	fails(errc::not_supported, [&](rpma::ec_ref ec) { conn.flush(remote.slice(), rpma::flush_type::persistent, {}, ec); });
	fails(errc::not_shared_channel, [&](rpma::ec_ref ec) { conn.wait(ec); });
	fails(errc::not_shared_channel, [&](rpma::ec_ref ec) { conn.compl_fd(ec); });
	conn.read({}, {}, &conn);
	done(cq, &conn, IBV_WC_RDMA_READ);
	conn.close();
}

/* ---- private data ---- */

/*
 * Of the test of crates/rpma/src/private_data.rs: one offer, 64 bytes at 0x1000 with key 7, read_src,
 * write_dst, durable.
 */
static constexpr auto offer_text = "\0\x10\0\0\0\0\0\0\x40\0\0\0\0\0\0\0\x07\0\0\0\x09\1"sv;
static const auto framed = "\xa7\1\3"s + std::string(offer_text) + "own";
/* invalid offers, of the same test */
static const std::string foreign[] = {"hello", "\xa7"s, "\xa7\1\2"s, "\xa7\xff\0"s, "\xa7\0\xfe"s, "\xa7\1\0"s + std::string(22, '\0')};

static bool begins_with(const void *bytes, std::size_t len, std::string_view text) {
	return std::string_view(static_cast<const char *>(bytes), len).substr(0, text.size()) == text;
}

static void private_data_server(const place &where) {
	auto peer = rpma::peer::open(where.addr);
	auto endpoint = where.listen(peer);
	{
		auto req = endpoint.next();
		rpma_conn_private_data sent{};
		REQUIRE(rpma_conn_req_get_private_data(req.get(), &sent) == 0 && begins_with(sent.ptr, sent.len, framed));
		REQUIRE(req.private_data().size() == 3 && begins_with(req.private_data().data(), 3, "own"));
		auto conn = std::move(req).connect(framed);
		REQUIRE(conn.remote().size() == 64 && conn.remote(0).permitted() == (usage::read_src | usage::write_dst));
		REQUIRE(conn.private_data().size() == 3);
		conn.wait_closed();
	}
	for (const auto &bytes : foreign) {
		auto req = endpoint.next();
		REQUIRE(req.private_data().size() >= bytes.size() && begins_with(req.private_data().data(), bytes.size(), bytes));
		auto conn = std::move(req).connect();
		std::error_code ec;
		REQUIRE(!conn.remote(1, ec) && ec == errc::out_of_range);
		REQUIRE((message([&] { conn.remote(); }) == "rpma::conn::remote: the peer offered no region: Out of range") ==
			(bytes.size() < rpma::descriptor_len));
		conn.wait_closed();
	}
	auto conn = endpoint.accept(std::string(251, 'x'));
	REQUIRE(conn.private_data().size() == 251 && conn.private_data().data()[250] == std::byte('y'));
	conn.wait_closed();
}

static void private_data_client(const place &where) {
	auto peer = rpma::peer::open_to(where.addr);
	rpma::offer_bytes offer;
	std::memcpy(offer.data(), offer_text.data(), offer.size());
	{
		auto conn = connect(where, peer, {offer, "own"sv});
		REQUIRE(conn.remote(0).size() == 64 && conn.private_data().size() == 3);
		REQUIRE(thrown([&] { conn.remote(1); }) == errc::out_of_range);
		REQUIRE(message([&] { conn.remote(1); }) ==
			"rpma::conn::remote: the peer offered 1 region; there is no number 1: Out of range");
		conn.close();
	}
	for (const auto &bytes : foreign) {
		auto conn = connect(where, peer, bytes);
		REQUIRE(message([&] { conn.remote(); }) == "rpma::conn::remote: the peer offered no region: Out of range");
		conn.close();
	}
	std::error_code ec;
	/* 11 offers are 245 bytes */
	const std::vector<rpma::offer_bytes> offers(12, offer);
	for (const auto &data : {rpma::conn_private_data(std::string(256, 'y')), rpma::conn_private_data(offers.data(), 12),
			rpma::conn_private_data(offers.data(), 11, std::string(11, 'y')), rpma::conn_private_data(offer, std::string(500, 'y'))})
		REQUIRE(!peer.connect(where.addr, where.port.c_str(), data, nullptr, ec) && ec == errc::invalid);
	auto conn = connect(where, peer, std::string(251, 'y'));
	REQUIRE(conn.private_data().size() == 251 && conn.private_data().data()[250] == std::byte('x'));
	conn.close();
}

/*
 * Of two regions, one is not declared: it cannot be flushed to persistence, in whichever order the peer gets
 * them.
 */
static void offers_server(const place &where) {
	auto peer = rpma::peer::open(where.addr);
	const auto what = usage::read_src | usage::flush_persistent;
	auto durable = peer.reg(rpma::memory::zeroed(64), what);
	auto other = peer.reg(rpma::memory::zeroed(128), what);
	auto endpoint = where.listen(peer);
	endpoint.accept({durable.offer(true), other.offer()}).wait_closed();
	endpoint.accept({other.offer(), durable.offer(true)}).wait_closed();
	/* in the format that a program in C reads */
	endpoint.accept(rpma::const_bytes(durable.offer(true))).wait_closed();
	endpoint.accept(rpma::const_bytes(durable.offer(false))).wait_closed();
}

static void offers_client(const place &where) {
	auto peer = rpma::peer::open_to(where.addr);
	const auto flush = [](rpma::conn &conn, const rpma::remote_region &remote) {
		std::error_code ec;
		conn.flush(remote.slice(), rpma::flush_type::persistent, {}, ec);
		if (!ec)
			conn.cq().next().check();
		return ec;
	};
	for (int n = 0; n < 2; n++) {
		auto conn = connect(where, peer);
		const auto one = conn.remote(), two = conn.remote(1);
		const auto &durable = n ? two : one, &other = n ? one : two;
		REQUIRE(durable.size() == 64 && other.size() == 128);
		REQUIRE(!flush(conn, durable) && flush(conn, other) == errc::not_supported);
		REQUIRE(message([&] { conn.remote(2); }) ==
			"rpma::conn::remote: the peer offered 2 regions; there is no number 2: Out of range");
		conn.close();
	}
	for (const bool is_declared : {true, false}) {
		auto conn = connect(where, peer);
		rpma_conn_private_data sent{};
		REQUIRE(rpma_conn_get_private_data(conn.get(), &sent) == 0 && sent.len >= rpma::descriptor_len);
		rpma_mr_remote *in_c = nullptr;
		REQUIRE(rpma_mr_remote_from_descriptor(sent.ptr, sent.len, &in_c) == 0 && rpma_mr_remote_delete(&in_c) == 0);
		const auto remote = conn.remote();
		REQUIRE(message([&] { conn.remote(1); }) ==
			"rpma::conn::remote: the peer offered 1 region; there is no number 1: Out of range");
		REQUIRE(remote.size() == 64 && (is_declared || flush(conn, remote) == errc::not_supported));
		/* zeros after a descriptor declare nothing: the program does */
		rpma::peer_cfg cfg;
		cfg.direct_write_to_pmem(true);
		if (!is_declared)
			conn.apply(cfg);
		REQUIRE(!flush(conn, remote));
		conn.close();
	}
}

/* A destructor sends what was posted before, as close() does. */
static void destructor_sends_server(const place &where) {
	auto peer = rpma::peer::open(where.addr);
	auto region = peer.reg(rpma::memory::zeroed(4096), usage::write_dst);
	auto endpoint = where.listen(peer);
	auto conn = endpoint.accept(region.offer());
	conn.wait_closed();
	for (std::size_t i = 0; i < 100; i++)
		REQUIRE(text(region, i * 8, 5) == "words");
}

/* A connection that ends in any way is disconnected once, then deleted. */
static void ends_server(const place &where) {
	auto peer = rpma::peer::open(where.addr);
	auto endpoint = where.listen(peer);
	for (int n = 0; n < 4; n++)
		REQUIRE(endpoint.accept().wait_closed() == event::closed);
	REQUIRE(deletions() == "conn_delete conn_delete conn_delete conn_delete ");
	endpoint.accept().wait_closed();
}

static void ends_client(const place &where) {
	auto peer = rpma::peer::open_to(where.addr);
	auto conn = connect(where, peer);
	auto &same = conn;
	conn = std::move(same);
	REQUIRE(conn && deletions() == "");
	conn = rpma::conn();
	REQUIRE(deletions() == "conn_disconnect conn_delete ");
	conn = connect(where, peer);
	conn.close();
	REQUIRE(!conn && deletions() == "conn_disconnect conn_delete ");
	conn = connect(where, peer);
	conn.disconnect();
	REQUIRE(conn.wait_closed() == event::closed && deletions() == "conn_disconnect ");
	conn.close();
	REQUIRE(deletions() == "conn_delete ");
	conn = connect(where, peer);
	{
		const auto last = std::move(conn);
	}
	REQUIRE(deletions() == "conn_disconnect conn_delete ");
	/* close() waits for the end, but no longer than its limit */
	conn = connect(where, peer);
	std::error_code ec;
	const auto begin = std::chrono::steady_clock::now();
	ignores_disconnect = true;
	conn.close(200ms, ec);
	ignores_disconnect = false;
	REQUIRE(ec == std::errc::timed_out && std::chrono::steady_clock::now() - begin >= 200ms && !conn);
}

/*
 * Each wait returns how the connection ended, whichever thread has fetched the event. The server rejects "no"
 * and, at last, "end".
 */
static void ended_server(const place &where) {
	auto peer = rpma::peer::open(where.addr);
	auto endpoint = where.listen(peer);
	for (;;) {
		auto req = endpoint.next();
		const auto data = req.private_data();
		if (begins_with(data.data(), data.size(), "end"))
			return;
		if (!begins_with(data.data(), data.size(), "no"))
			std::move(req).connect().wait_closed();
	}
}

static test ended(const char *name, void (*client)(const place &, rpma::peer &)) {
	return {name, ended_server, [client](const place &where) {
		auto peer = rpma::peer::open_to(where.addr);
		client(where, peer);
		auto conn = peer.request(where.addr, where.port.c_str()).start("end"sv);
		REQUIRE(thrown([&] { conn.wait_established(); }) == errc::rejected);
	}};
}

static void ended_twice(const place &where, rpma::peer &peer) {
	auto conn = connect(where, peer);
	conn.wait_established();
	conn.disconnect();
	REQUIRE(conn.wait_closed() == event::closed && conn.wait_closed() == event::closed);
	REQUIRE(thrown([&] { conn.wait_established(); }) == errc::closed);
	conn.close();
}

static void ended_by_next_event(const place &where, rpma::peer &peer) {
	auto conn = connect(where, peer);
	conn.disconnect();
	REQUIRE(conn.next_event() == event::closed && conn.wait_closed() == event::closed);
	conn.close();
}

static void ended_before_established(const place &where, rpma::peer &peer) {
	auto conn = peer.request(where.addr, where.port.c_str()).start("no"sv);
	REQUIRE(thrown([&] { conn.wait_established(); }) == errc::rejected);
	REQUIRE(conn.wait_closed() == event::rejected);
	REQUIRE(thrown([&] { conn.wait_established(); }) == errc::rejected);
}

/*
 * Calls librpma's function, and counts the threads in it. While it is slow, a second one has time to enter.
 * The next calls return events that librpma does not define.
 */
static std::atomic<int> in_next_event;
static bool is_slow;
static int undefined_events;

extern "C" int rpma_conn_next_event(rpma_conn *conn, rpma_conn_event *event) {
	static const auto real = reinterpret_cast<decltype(&rpma_conn_next_event)>(dlsym(RTLD_NEXT, "rpma_conn_next_event"));
	const auto end = std::chrono::steady_clock::now() + 50ms;
	if (undefined_events > 0) {
		undefined_events--;
		return RPMA_E_UNKNOWN;
	}
	in_next_event++;
	while (is_slow && in_next_event == 1 && std::chrono::steady_clock::now() < end)
		std::this_thread::yield();
	const int ret = real(conn, event);
	in_next_event--;
	return ret;
}

/*
 * The waits ignore events that librpma does not define, but no longer than the limit; next_event() returns
 * them.
 */
static void ended_after_undefined(const place &where, rpma::peer &peer) {
	auto conn = peer.request(where.addr, where.port.c_str()).start();
	undefined_events = 2;
	conn.wait_established();
	REQUIRE(undefined_events == 0);
	undefined_events = 1;
	REQUIRE(thrown([&] { conn.next_event(); }) == errc::unknown);
	conn.disconnect();
	undefined_events = 2;
	REQUIRE(conn.wait_closed() == event::closed && undefined_events == 0);
	conn = connect(where, peer);
	undefined_events = 1;
	conn.close();
	REQUIRE(undefined_events == 0);
	conn = connect(where, peer);
	std::error_code ec;
	undefined_events = std::numeric_limits<int>::max();
	conn.close(200ms, ec);
	undefined_events = 0;
	REQUIRE(ec == std::errc::timed_out);
}

/* A connection that was disconnected before it was established has no private data. */
static void ended_at_once(const place &where, rpma::peer &peer) {
	auto conn = peer.request(where.addr, where.port.c_str()).start();
	ignores_disconnect = true;
	conn.disconnect();
	ignores_disconnect = false;
	REQUIRE(thrown([&] { conn.wait_established(); }) == errc::closed);
	REQUIRE(conn.next_event() == event::established);
	conn.disconnect();
	REQUIRE(conn.wait_closed() == event::closed);
	REQUIRE(thrown([&] { conn.wait_established(); }) == errc::closed);
}

/* While it is not 0, poll() fails with it on this thread. */
static thread_local int poll_errno;

extern "C" int poll(pollfd *fds, nfds_t count, int limit_ms) {
	if (poll_errno == 0)
		return reinterpret_cast<decltype(&poll)>(dlsym(RTLD_NEXT, "poll"))(fds, count, limit_ms);
	errno = poll_errno;
	return -1;
}

/* A wait that cannot poll() fails. */
static void ended_without_poll(const place &where, rpma::peer &peer) {
	auto conn = connect(where, peer);
	auto endpoint = peer.listen(where.addr, "0");
	auto cq = conn.cq();
	non_blocking(cq.fd());
	std::error_code ec;
	poll_errno = ENOMEM;
	REQUIRE(conn.wait_closed(ec) == event::none && ec == std::errc::not_enough_memory);
	REQUIRE(thrown([&] { conn.wait_closed(); }) == std::errc::not_enough_memory);
	REQUIRE(!cq.next(ec).ok() && ec == std::errc::not_enough_memory);
	REQUIRE(!endpoint.accept({}, nullptr, ec) && ec == std::errc::not_enough_memory);
	poll_errno = 0;
	conn.close();
}

/* Either thread fetches the event: if both called librpma for it, the other one would block. */
static void ended_on_threads(const place &where, rpma::peer &peer) {
	auto conn = connect(where, peer);
	is_slow = true;
	const auto wait = [&] { return conn.wait_closed(); };
	auto one = std::async(std::launch::async, wait), two = std::async(std::launch::async, wait);
	conn.disconnect();
	REQUIRE(one.get() == event::closed && two.get() == event::closed);
	is_slow = false;
}

/* A thread that blocks in next_event() fetches the event, and one in wait_closed() returns nevertheless. */
static void ended_in_next_event(const place &where, rpma::peer &peer) {
	for (int n = 0; n < 10; n++) {
		auto conn = connect(where, peer);
		auto next = std::async(std::launch::async, [&] { return conn.next_event(); });
		while (in_next_event == 0)
			std::this_thread::yield();
		auto wait = std::async(std::launch::async, [&] { return conn.wait_closed(); });
		conn.disconnect();
		REQUIRE(wait.get() == event::closed && next.get() == event::closed);
	}
}

/* The limit of close() also holds if signals interrupt its wait more often. */
static void closed_despite_signals(const place &where, rpma::peer &peer) {
	auto conn = connect(where, peer);
	std::signal(SIGUSR1, [](int) {});
	sigevent by_signal{};
	by_signal.sigev_notify = SIGEV_SIGNAL;
	by_signal.sigev_signo = SIGUSR1;
	timer_t timer;
	REQUIRE(timer_create(CLOCK_MONOTONIC, &by_signal, &timer) == 0);
	const itimerspec each_10_ms = {{0, 10'000'000}, {0, 10'000'000}};
	REQUIRE(timer_settime(timer, 0, &each_10_ms, nullptr) == 0);
	std::error_code ec;
	ignores_disconnect = true;
	conn.close(200ms, ec);
	ignores_disconnect = false;
	timer_delete(timer);
	REQUIRE(ec == std::errc::timed_out);
}

static void destructor_sends_client(const place &where) {
	auto peer = rpma::peer::open_to(where.addr);
	rpma::conn_cfg cfg;
	cfg.sq_size(128);
	cfg.cq_size(128);
	auto local = peer.reg(rpma::memory::zeroed(8), usage::write_src);
	local.copy_in(0, "words"sv);
	auto conn = connect(where, peer, {}, &cfg);
	auto remote = conn.remote();
	for (std::size_t i = 0; i < 100; i++)
		conn.write(remote.slice(i * 8, 8), local.slice(), {nullptr, completes::on_error});
	throw on_purpose();
}

/* ---- 07-message-ping-pong, 09-send-with-imm, 10-write-with-imm ---- */

static void messages_server(const place &where) {
	auto peer = rpma::peer::open(where.addr);
	auto region = peer.reg(rpma::memory::zeroed(4096), usage::recv | usage::send | usage::write_dst);
	auto endpoint = where.listen(peer);
	auto req = endpoint.next();
	req.recv(region.slice(0, 64), &req);
	auto conn = std::move(req).connect(region.offer());
	auto cq = conn.cq();
	for (int n = 0; n < 50; n++) {
		REQUIRE(done(cq, &req, IBV_WC_RECV).byte_len == 8);
		region.copy_in(64, rpma::const_bytes(region.data(), 8));
		conn.recv(region.slice(0, 64), &req);
		conn.send(region.slice(64, 8), {nullptr, completes::always});
		done(cq, nullptr, IBV_WC_SEND);
	}
	auto with = done(cq, &req, IBV_WC_RECV);
	REQUIRE(with.imm() == 0x01020304u && with.byte_len == 0);
	conn.recv({}, &peer);
	conn.send({});
	done(cq, nullptr, IBV_WC_SEND);
	with = done(cq, &peer, IBV_WC_RECV_RDMA_WITH_IMM);
	REQUIRE(with.imm() == 7u && text(region, 1000, 4) == "with");
	conn.wait_closed();
}

static void messages_client(const place &where) {
	auto peer = rpma::peer::open_to(where.addr);
	auto region = peer.reg(rpma::memory::zeroed(4096), usage::recv | usage::send | usage::write_src);
	auto conn = connect(where, peer);
	auto cq = conn.cq();
	for (std::uint64_t n = 0; n < 50; n++) {
		region.copy_in(0, rpma::const_bytes(&n, sizeof(n)));
		conn.recv(region.slice(64, 64), &conn);
		conn.send(region.slice(0, sizeof(n)), {nullptr, completes::on_error});
		REQUIRE(!done(cq, &conn, IBV_WC_RECV).imm());
		std::uint64_t back = 0;
		region.copy_out(64, rpma::bytes(&back, sizeof(back)));
		REQUIRE(back == n);
	}
	conn.recv({}, &region);
	conn.send_with_imm({}, 0x01020304, &peer);
	/* in either order */
	const auto one = cq.next().check(), other = cq.next().check();
	REQUIRE((one.opcode == IBV_WC_SEND && other.opcode == IBV_WC_RECV) || (one.opcode == IBV_WC_RECV && other.opcode == IBV_WC_SEND));
	region.copy_in(0, "with"sv);
	auto remote = conn.remote();
	conn.write_with_imm(remote.slice(1000, 4), region.slice(0, 4), 7);
	done(cq, nullptr, IBV_WC_RDMA_WRITE);
	conn.close();
}

/* ---- 11-separate-receive-cq, 13-shared-completion-channel ---- */

static void two_queues_server(const place &where) {
	auto peer = rpma::peer::open(where.addr);
	auto region = peer.reg(rpma::memory::zeroed(64), usage::recv | usage::send);
	auto endpoint = where.listen(peer);
	for (int n = 0; n < 2; n++) {
		auto req = endpoint.next();
		req.recv(region.slice(0, 8));
		auto conn = std::move(req).connect();
		done(conn.cq(), nullptr, IBV_WC_RECV);
		REQUIRE(!conn.rcq());
		conn.send(region.slice(0, 8));
		done(conn.cq(), nullptr, IBV_WC_SEND);
		conn.wait_closed();
	}
}

static void two_queues_client(const place &where) {
	auto peer = rpma::peer::open_to(where.addr);
	auto region = peer.reg(rpma::memory::zeroed(64), usage::recv | usage::send);
	rpma::conn_cfg cfg;
	cfg.rcq_size(10);
	cfg.timeout_ms(2000);
	{
		auto conn = connect(where, peer, {}, &cfg);
		conn.recv(region.slice(0, 8), &conn);
		conn.send(region.slice(8, 8), &peer);
		done(conn.cq(), &peer, IBV_WC_SEND);
		done(conn.rcq(), &conn, IBV_WC_RECV);
		conn.close();
	}
	cfg.compl_channel(true);
	auto conn = connect(where, peer, {}, &cfg);
	auto cq = conn.cq(), rcq = conn.rcq();
	REQUIRE(thrown([&] { cq.wait(); }) == errc::shared_channel);
	std::error_code ec;
	REQUIRE(!cq.next(ec).ok() && ec == errc::shared_channel);
	conn.recv(region.slice(0, 8), &conn);
	conn.send(region.slice(8, 8), &peer);
	for (int got = 0; got < 2;) {
		const auto ready = conn.wait();
		REQUIRE(ready.get() == cq.get() || ready.get() == rcq.get());
		while (const auto one = ready.poll()) {
			REQUIRE(one->check().context() == (ready.get() == rcq.get() ? static_cast<void *>(&conn) : &peer));
			got++;
		}
	}
	non_blocking(conn.compl_fd());
	while (conn.wait()) {
	}
	conn.close();
}

/* ---- 12-shared-receive-queue ---- */

static constexpr std::size_t clients = 4, messages = 20;

static void srq_server(const place &where) {
	auto peer = rpma::peer::open(where.addr);
	auto region = peer.reg(rpma::memory::zeroed(4096), usage::recv | usage::send);
	rpma::srq_cfg srq_cfg;
	srq_cfg.rq_size(8);
	srq_cfg.rcq_size(8);
	auto srq = peer.srq(&srq_cfg);
	const auto rcq = srq.rcq();
	for (std::size_t i = 0; i < 8; i++)
		srq.recv(region.slice(i * 8, 8), region.data() + i * 8);
	std::error_code ec;
	auto unfit = peer.reg(rpma::memory::zeroed(8), usage::send);
	srq.recv(unfit.slice(), nullptr, ec);
	REQUIRE(ec == errc::not_permitted);
	std::vector<rpma::conn> conns;
	{
		rpma::conn_cfg cfg;
		cfg.srq(srq);
		auto endpoint = where.listen(peer);
		while (conns.size() < clients)
			conns.push_back(endpoint.accept({}, &cfg));
	}
	/* the connections keep it */
	auto *const queue = srq.get();
	for (std::size_t n = 0; n < clients * messages; n++) {
		const auto got = rcq.next().check();
		auto *const at = got.context<std::byte>();
		for (auto &conn : conns)
			if (conn.qp_num() == got.qp_num) {
				conn.send(region.slice(static_cast<std::size_t>(at - region.data()), 8));
				done(conn.cq(), nullptr, IBV_WC_SEND);
			}
		srq.recv(region.slice(static_cast<std::size_t>(at - region.data()), 8), at);
	}
	srq = rpma::srq();
	REQUIRE(rpma_srq_recv(queue, nullptr, 0, 0, nullptr) != RPMA_E_INVAL);
	for (auto &conn : conns)
		conn.wait_closed();
}

static void srq_client(const place &where) {
	auto peer = rpma::peer::open_to(where.addr);
	auto region = peer.reg(rpma::memory::zeroed(64), usage::recv | usage::send);
	std::vector<rpma::conn> conns;
	for (std::size_t i = 0; i < clients; i++)
		conns.push_back(connect(where, peer));
	for (std::uint64_t n = 0; n < messages; n++)
		for (auto &conn : conns) {
			region.copy_in(0, rpma::const_bytes(&n, sizeof(n)));
			conn.recv(region.slice(8, 8), &conn);
			conn.send(region.slice(0, 8), {nullptr, completes::on_error});
			done(conn.cq(), &conn, IBV_WC_RECV);
			REQUIRE(text(region, 0, 8) == text(region, 8, 8));
		}
	while (!conns.empty())
		conns.erase(conns.begin());
}

/* ---- 05-many-connections: one thread, one epoll set, and no call that blocks ---- */

struct served {
	rpma::conn conn;
	rpma::cq cq;
};

static void epoll_server(const place &where) {
	auto peer = rpma::peer::open(where.addr);
	auto region = peer.reg(rpma::memory::zeroed(4096), usage::recv | usage::send);
	auto endpoint = peer.listen(where.addr, where.port.c_str());
	const int set = epoll_create1(EPOLL_CLOEXEC);
	const auto watch = [&](int fd, std::uint64_t what) {
		epoll_event wanted{};
		wanted.events = EPOLLIN;
		wanted.data.u64 = what;
		non_blocking(fd);
		REQUIRE(epoll_ctl(set, EPOLL_CTL_ADD, fd, &wanted) == 0);
	};
	watch(endpoint.fd(), 0);
	REQUIRE(!endpoint.next());
	where.start_client();
	std::vector<served> all;
	all.reserve(clients);
	for (std::size_t closed = 0; closed < clients;) {
		epoll_event ready{};
		if (epoll_wait(set, &ready, 1, -1) != 1)
			continue;
		if (ready.data.u64 == 0) {
			auto req = endpoint.next();
			if (!req)
				continue;
			const auto mine = region.slice(all.size() * 8, 8);
			req.recv(mine);
			all.push_back({std::move(req).start(), {}});
			all.back().cq = all.back().conn.cq();
			watch(all.back().conn.event_fd(), all.size() * 2);
			watch(all.back().cq.fd(), all.size() * 2 + 1);
			continue;
		}
		auto &[conn, cq] = all[ready.data.u64 / 2 - 1];
		if (ready.data.u64 % 2 == 0) {
			const auto what = conn.next_event();
			if (what != event::closed && what != event::lost)
				continue;
			REQUIRE(epoll_ctl(set, EPOLL_CTL_DEL, conn.event_fd(), nullptr) == 0);
			closed++;
			continue;
		}
		cq.wait();
		ibv_wc wc[4];
		while (const int got = cq.poll(wc, 4))
			for (int i = 0; i < got; i++)
				if (wc[i].status == IBV_WC_SUCCESS && wc[i].opcode == IBV_WC_RECV)
					conn.send(region.slice(ready.data.u64 / 2 * 8 - 8, 8));
	}
	close(set);
}

static void epoll_client(const place &where) {
	auto peer = rpma::peer::open_to(where.addr);
	auto region = peer.reg(rpma::memory::zeroed(64), usage::recv | usage::send);
	std::vector<rpma::conn> conns;
	for (std::size_t i = 0; i < clients; i++) {
		conns.push_back(connect(where, peer));
		conns[i].recv(region.slice(i * 8, 8), &conns);
		conns[i].send(region.slice(32, 8), {nullptr, completes::on_error});
	}
	for (auto &conn : conns) {
		/* waits although the descriptors are non-blocking */
		non_blocking(conn.cq().fd());
		non_blocking(conn.event_fd());
		done(conn.cq(), &conns, IBV_WC_RECV);
		REQUIRE(conn.next_event() == event::none && !conn.cq().poll());
		conn.close();
	}
}

/* ---- failures ---- */

/* The owner revokes memory that the peer reads: the status is an error of the completion, in both forms. */
static void revoked_server(const place &where) {
	auto peer = rpma::peer::open(where.addr);
	auto region = peer.reg(rpma::memory::zeroed(4096), usage::read_src);
	auto endpoint = where.listen(peer);
	auto req = endpoint.next();
	const auto offer = region.offer();
	region.revoke();
	std::move(req).connect(offer).wait_closed();
}

static void revoked_client(const place &where) {
	auto peer = rpma::peer::open_to(where.addr);
	auto conn = connect(where, peer);
	auto remote = conn.remote();
	auto local = peer.reg(rpma::memory::zeroed(4096), usage::read_dst);
	conn.read(local.slice(), remote.slice(), &local);
	conn.read(local.slice(), remote.slice(), &remote);
	const auto cq = conn.cq();
	const auto failed = cq.next(), flushed = cq.next();
	REQUIRE(failed.context() == &local && flushed.context() == &remote && flushed.status == IBV_WC_WR_FLUSH_ERR);
	std::error_code ec;
	failed.check(ec);
	REQUIRE(!failed.ok() && ec.category() == rpma::wc_category() && ec.value() == failed.status);
	REQUIRE(ec.message() == "remote access error");
	try {
		failed.check();
		REQUIRE(false);
	} catch (const rpma::error &error) {
		REQUIRE(error.code() == ec && error.reason().find("read") != std::string::npos);
		REQUIRE(error.reason().find("flushed") == std::string::npos);
	}
	/* one of several statuses without a separate text */
	try {
		rpma::completion(static_cast<const ibv_wc &>(failed)).check();
		REQUIRE(false);
	} catch (const rpma::error &error) {
		REQUIRE(error.code() == ec && error.reason().find("vendor error") != std::string::npos);
	}
	conn.wait_closed();
	conn.close();
}

/* A region is destroyed before its operation: the operation fails, and the memory is not accessed. */
static void buffer_gone_server(const place &where) {
	auto peer = rpma::peer::open(where.addr);
	auto region = peer.reg(rpma::memory::zeroed(8), usage::send);
	auto endpoint = where.listen(peer);
	auto conn = endpoint.accept();
	std::error_code ec;
	conn.send(region.slice(), {}, ec);
	conn.wait_closed();
}

static void buffer_gone_client(const place &where) {
	auto peer = rpma::peer::open_to(where.addr);
	auto req = peer.request(where.addr, where.port.c_str());
	{
		auto region = peer.reg(rpma::memory::zeroed(4096), usage::recv);
		req.recv(region.slice(), &where);
	}
	auto conn = std::move(req).connect();
	const auto failed = conn.cq().next();
	REQUIRE(!failed.ok() && failed.context<const place>() == &where);
	conn.wait_closed();
}

/*
 * The program of one side ends by an exception: the other one gets the end of the connection, and flushed
 * completions.
 */
static void exception_server(const place &where) {
	auto peer = rpma::peer::open(where.addr);
	auto region = peer.reg(rpma::memory::zeroed(64), usage::recv);
	auto endpoint = where.listen(peer);
	auto req = endpoint.next();
	req.recv(region.slice(), &req);
	auto conn = std::move(req).connect();
	auto cq = conn.cq();
	const auto how = conn.wait_closed();
	REQUIRE(how == event::closed || how == event::lost);
	conn = rpma::conn();
	const auto flushed = cq.next();
	REQUIRE(flushed.status == IBV_WC_WR_FLUSH_ERR && flushed.context() == &req);
}

static void exception_client(const place &where) {
	auto peer = rpma::peer::open_to(where.addr);
	auto conn = connect(where, peer);
	auto region = peer.reg(rpma::memory::zeroed(64), usage::send);
	throw on_purpose();
}

std::vector<test> pairs() {
	return {{"connection", connection_server, connection_client}, {"memory", memory_server, memory_client},
		{"private-data", private_data_server, private_data_client}, {"offers", offers_server, offers_client},
		{"ends", ends_server, ends_client}, {"destructor-sends-what-was-posted", destructor_sends_server, destructor_sends_client},
		ended("ended-twice", ended_twice), ended("ended-by-next-event", ended_by_next_event),
		ended("ended-before-established", ended_before_established), ended("ended-on-threads", ended_on_threads),
		ended("ended-after-undefined", ended_after_undefined), ended("ended-at-once", ended_at_once),
		ended("ended-without-poll", ended_without_poll),
		ended("ended-in-next-event", ended_in_next_event), ended("closed-despite-signals", closed_despite_signals),
		{"messages", messages_server, messages_client},
		{"two-queues", two_queues_server, two_queues_client}, {"shared-receive-queue", srq_server, srq_client},
		{"many-connections", epoll_server, epoll_client}, {"revoked", revoked_server, revoked_client},
		{"buffer-gone", buffer_gone_server, buffer_gone_client}, {"exception", exception_server, exception_client}};
}
