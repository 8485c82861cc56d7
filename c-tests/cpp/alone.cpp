// SPDX-License-Identifier: BSD-3-Clause
// What one process can see: errors, moved-from objects, ranges, and deletions that fail.
#include "harness.hpp"

#include <array>
#include <dlfcn.h>
#include <filesystem>
#include <string_view>

using namespace std::literals;
using rpma::errc;
using rpma::usage;

/* Override functions of librpma, with failures on request: the header calls these. */
static int cfg_new_returns, dereg_returns;
static std::string called;
bool ignores_disconnect;

std::string deletions() { return std::exchange(called, {}); }

template <class Object, class Real>
static int noted(const char *name, Object object, Real *) {
	called += std::string(name + 5) + ' ';
	return reinterpret_cast<Real *>(dlsym(RTLD_NEXT, name))(object);
}

extern "C" int rpma_peer_delete(rpma_peer **it) { return noted(__func__, it, rpma_peer_delete); }
extern "C" int rpma_srq_delete(rpma_srq **it) { return noted(__func__, it, rpma_srq_delete); }
extern "C" int rpma_conn_delete(rpma_conn **it) { return noted(__func__, it, rpma_conn_delete); }
extern "C" int rpma_conn_req_delete(rpma_conn_req **it) { return noted(__func__, it, rpma_conn_req_delete); }
extern "C" int rpma_ep_shutdown(rpma_ep **it) { return noted(__func__, it, rpma_ep_shutdown); }
extern "C" int rpma_conn_disconnect(rpma_conn *it) {
	return ignores_disconnect ? 0 : noted(__func__, it, rpma_conn_disconnect);
}

extern "C" int rpma_peer_cfg_new(rpma_peer_cfg **cfg) {
	static const auto real = reinterpret_cast<decltype(&rpma_peer_cfg_new)>(dlsym(RTLD_NEXT, "rpma_peer_cfg_new"));
	return cfg_new_returns ? cfg_new_returns : real(cfg);
}

extern "C" int rpma_mr_dereg(rpma_mr_local **mr) {
	const int ret = noted(__func__, mr, rpma_mr_dereg);
	return dereg_returns ? dereg_returns : ret;
}

/* While true, nothing can be mapped. */
static bool maps_nothing;

extern "C" void *mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset) noexcept {
	/* the headers rename it if only off_t has 64 bits */
	const auto name = sizeof(off_t) > sizeof(long) ? "mmap64" : "mmap";
	if (!maps_nothing)
		return reinterpret_cast<decltype(&mmap)>(dlsym(RTLD_NEXT, name))(at, len, prot, flags, fd, offset);
	errno = ENOMEM;
	return MAP_FAILED;
}

/* The largest size that was to be allocated at once. What the host cannot have is never allocated. */
static off_t allocated;

extern "C" int posix_fallocate(int fd, off_t offset, off_t len) {
	constexpr off_t too_much = off_t(1) << 40;
	const auto name = sizeof(off_t) > sizeof(long) ? "posix_fallocate64" : "posix_fallocate";
	allocated = std::max(allocated, len);
	return len >= too_much ? ENOSPC : reinterpret_cast<decltype(&posix_fallocate)>(dlsym(RTLD_NEXT, name))(fd, offset, len);
}

static auto descriptors() {
	return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
}

/* Both forms of a call fail with this code. */
template <class Call>
static void fails(std::error_code code, Call call) {
	std::error_code ec;
	call(ec);
	REQUIRE(ec == code);
	REQUIRE(thrown([&] { call(rpma::ec_ref()); }) == code);
}

static void codes(const place &) {
	const std::pair<errc, std::error_condition> all[] = {
		{errc::unknown, {RPMA_E_UNKNOWN, rpma::category()}},
		{errc::not_supported, std::errc::not_supported},
		{errc::provider, {RPMA_E_PROVIDER, rpma::category()}},
		{errc::out_of_memory, std::errc::not_enough_memory},
		{errc::invalid, std::errc::invalid_argument},
		{errc::no_completion, std::errc::resource_unavailable_try_again},
		{errc::no_event, std::errc::resource_unavailable_try_again},
		{errc::again, std::errc::resource_unavailable_try_again},
		{errc::shared_channel, {RPMA_E_SHARED_CHANNEL, rpma::category()}},
		{errc::not_shared_channel, {RPMA_E_NOT_SHARED_CHNL, rpma::category()}},
	};
	for (const auto &[code, condition] : all) {
		cfg_new_returns = static_cast<int>(code);
		fails(code, [](rpma::ec_ref ec) { REQUIRE(!rpma::peer_cfg(ec)); });
		REQUIRE(std::error_code(code).message() == rpma_err_2str(static_cast<int>(code)));
		REQUIRE(std::error_code(code) == condition);
	}
	cfg_new_returns = 0;
	std::error_code ec = errc::provider;
	REQUIRE(rpma::peer_cfg(ec) && !ec);
	REQUIRE(std::error_code(errc::out_of_range) == std::errc::invalid_argument);
	REQUIRE(std::error_code(errc::not_permitted) == std::errc::permission_denied);
	REQUIRE(std::error_code(errc::rejected) == std::errc::connection_refused);
	REQUIRE(std::error_code(errc::unreachable) == std::errc::host_unreachable);
	REQUIRE(std::error_code(errc::closed) == std::errc::not_connected);
	REQUIRE(std::error_code(errc::lost) == std::errc::connection_reset);
	for (const errc code : {errc::out_of_range, errc::not_permitted, errc::rejected, errc::unreachable, errc::closed, errc::lost})
		REQUIRE(std::error_code(code).message() != rpma_err_2str(RPMA_E_UNKNOWN));
	for (int status = 0; status < 30; status++)
		REQUIRE(!rpma::wc_category().message(status).empty());
	REQUIRE(rpma::wc_category().message(IBV_WC_REM_ACCESS_ERR) == "remote access error");
	REQUIRE(rpma::wc_category().message(IBV_WC_RNR_RETRY_EXC_ERR) == "RNR retry counter exceeded");
	REQUIRE(rpma::wc_category().message(-1) == "enum ibv_wc_status -1");
}

static void reasons(const place &where) {
	try {
		rpma::peer::open("no.such.host.invalid");
		REQUIRE(false);
	} catch (const rpma::error &error) {
		REQUIRE(error.code() == errc::provider && error.call() == "rpma_utils_get_ibv_context"sv);
		REQUIRE(error.reason().find("no.such.host.invalid") != std::string::npos);
		const auto copy = error;
		REQUIRE(copy.what() == std::string_view(error.what()) && &copy.reason() == &error.reason());
	}
	auto peer = rpma::peer::open(where.addr);
	fails(errc::invalid, [&](rpma::ec_ref ec) { peer.reg(rpma::bytes(), usage::send, ec); });
	fails(errc::invalid, [&](rpma::ec_ref ec) { peer.reg(rpma::memory::zeroed(64), usage::none, ec); });
	fails(errc::provider, [&](rpma::ec_ref ec) { peer.listen("192.0.2.1", "7204", ec); });
	fails(errc::rejected, [&](rpma::ec_ref ec) { peer.connect(where.addr, where.port.c_str(), {}, nullptr, ec); });
	fails(errc::invalid, [&](rpma::ec_ref ec) { rpma::remote_region("short"sv, ec); });
	fails(errc::invalid, [&](rpma::ec_ref ec) { rpma::conn_cfg().timeout_ms(-1, ec); });
	fails(std::make_error_code(std::errc::no_such_file_or_directory),
		[&](rpma::ec_ref ec) { rpma::memory::file("/nowhere/at/all", 64, ec); });
	fails(std::make_error_code(std::errc::invalid_argument), [&](rpma::ec_ref ec) { rpma::memory::zeroed(0, ec); });
	REQUIRE(message([] { rpma::memory::zeroed(0); }) == "rpma::memory::zeroed: a size of 0 bytes: Invalid argument");
	REQUIRE(message([] { rpma::memory::file("/nowhere/at/all", 64); }) ==
		"rpma::memory::file: /nowhere/at/all, a size of 64 bytes: No such file or directory");
	for (const char *port : {"65536", "99999", "-1", "99999999999999999999"}) {
		fails(errc::invalid, [&](rpma::ec_ref ec) { REQUIRE(!peer.listen(where.addr, port, ec)); });
		fails(errc::invalid, [&](rpma::ec_ref ec) { REQUIRE(!peer.connect(where.addr, port, {}, nullptr, ec)); });
		REQUIRE(message([&] { peer.request(where.addr, port); }) ==
			"rpma_conn_req_new: port "s + port + " is not in 0..65535: Invalid argument");
	}
	REQUIRE(message([&] { peer.listen(where.addr, "99999"); }) ==
		"rpma_ep_listen: port 99999 is not in 0..65535: Invalid argument");
	fails(errc::provider, [&](rpma::ec_ref ec) { peer.listen(where.addr, "no-such-service", ec); });
	fails(errc::invalid, [&](rpma::ec_ref ec) { peer.listen(where.addr, nullptr, ec); });
	const std::string long_data(256, 'x');
	fails(errc::invalid, [&](rpma::ec_ref ec) { peer.connect(where.addr, where.port.c_str(), long_data, nullptr, ec); });
}

static void unmappable_memory(const place &) {
	const auto before = descriptors();
	maps_nothing = true;
	fails(std::make_error_code(std::errc::not_enough_memory),
		[](rpma::ec_ref ec) { REQUIRE(!rpma::memory::zeroed(4096, ec)); });
	maps_nothing = false;
	REQUIRE(descriptors() == before);
}

/* What the host does not have is not allocated at once, because the kernel would end processes for it. */
static void too_much_memory(const place &) {
	const auto before = descriptors();
	for (const std::size_t size : {std::size_t(1) << 45, SIZE_MAX / 2})
		fails(std::make_error_code(std::errc::not_enough_memory),
			[size](rpma::ec_ref ec) { REQUIRE(!rpma::memory::zeroed(size, ec) && allocated == 0); });
	REQUIRE(message([] { rpma::memory::zeroed(std::size_t(1) << 45); }) ==
		"rpma::memory::zeroed: a size of 35184372088832 bytes: Cannot allocate memory");
	REQUIRE(descriptors() == before);
	/* what it has is: a small size without a look at what is available, and a larger one */
	for (const std::size_t size : {std::size_t(4096), std::size_t(2) << 20})
		REQUIRE(rpma::memory::zeroed(size).size() == size && allocated == static_cast<off_t>(size));
}

static void moved_from(const place &where) {
	auto peer = rpma::peer::open(where.addr);
	auto region = peer.reg(rpma::memory::zeroed(4096), usage::read_src | usage::send | usage::recv);
	auto remote = rpma::remote_region(region.offer());
	auto srq = peer.srq();
	auto request = [&] { return peer.request(where.addr, where.port.c_str()); };
	auto conn = request().start();
	auto cq = conn.cq();
	rpma::conn_cfg cfg;
	rpma::srq_cfg srq_cfg;
	rpma::peer_cfg peer_cfg;
	auto endpoint = peer.listen(where.addr, where.port.c_str());
	auto req = request();

	/* each object is used after it was moved from, and the one that it was moved to still works */
	auto region2 = std::move(region);
	auto remote2 = std::move(remote);
	auto cfg2 = std::move(cfg);
	auto srq_cfg2 = std::move(srq_cfg);
	auto peer_cfg2 = std::move(peer_cfg);
	auto srq2 = std::move(srq);
	auto conn2 = std::move(conn);
	auto cq2 = std::move(cq);
	auto endpoint2 = std::move(endpoint);
	auto req2 = std::move(req);
	REQUIRE(!region && !remote && !cfg && !srq_cfg && !peer_cfg && !srq && !conn && !cq && !endpoint && !req);
	REQUIRE(region2 && remote2 && cfg2 && srq_cfg2 && peer_cfg2 && srq2 && conn2 && cq2 && endpoint2 && req2);
	REQUIRE(region.size() == 0 && region.data() == nullptr && region.bytes().size() == 0 && remote.size() == 0);

	const auto invalid = [](auto call) { fails(errc::invalid, call); };
	invalid([&](rpma::ec_ref ec) { region.slice(0, rpma::to_end, ec); });
	invalid([&](rpma::ec_ref ec) { region.copy_in(0, "x"sv, ec); });
	invalid([&](rpma::ec_ref ec) { region.offer(false, ec); });
	invalid([&](rpma::ec_ref ec) { remote.slice(0, rpma::to_end, ec); });
	invalid([&](rpma::ec_ref ec) { cfg.sq_size(1, ec); });
	invalid([&](rpma::ec_ref ec) { peer.request(where.addr, where.port.c_str(), &cfg, ec); });
	invalid([&](rpma::ec_ref ec) { endpoint2.next(&cfg, ec); });
	invalid([&](rpma::ec_ref ec) { peer.srq(&srq_cfg, ec); });
	invalid([&](rpma::ec_ref ec) { cfg2.srq(srq, ec); });
	invalid([&](rpma::ec_ref ec) { srq_cfg.rq_size(1, ec); });
	invalid([&](rpma::ec_ref ec) { peer_cfg.direct_write_to_pmem(true, ec); });
	invalid([&](rpma::ec_ref ec) { conn2.apply(peer_cfg, ec); });
	invalid([&](rpma::ec_ref ec) { srq.recv({}, nullptr, ec); });
	invalid([&](rpma::ec_ref ec) { srq.rcq(ec); });
	invalid([&](rpma::ec_ref ec) { cq.poll(ec); });
	invalid([&](rpma::ec_ref ec) { REQUIRE(!cq.next(ec).ok()); });
	invalid([&](rpma::ec_ref ec) { cq.wait(ec); });
	invalid([&](rpma::ec_ref ec) { conn.next_event(ec); });
	invalid([&](rpma::ec_ref ec) { conn.wait_established(ec); });
	invalid([&](rpma::ec_ref ec) { conn.wait_closed(ec); });
	invalid([&](rpma::ec_ref ec) { conn.close(1s, ec); });
	invalid([&](rpma::ec_ref ec) { conn.disconnect(ec); });
	invalid([&](rpma::ec_ref ec) { conn.remote(ec); });
	invalid([&](rpma::ec_ref ec) { conn.cq(ec); });
	invalid([&](rpma::ec_ref ec) { conn.wait(ec); });
	invalid([&](rpma::ec_ref ec) { conn.read({}, {}, {}, ec); });
	invalid([&](rpma::ec_ref ec) { conn.write({}, {}, {}, ec); });
	invalid([&](rpma::ec_ref ec) { conn.send(region2.slice(), {}, ec); });
	invalid([&](rpma::ec_ref ec) { conn.recv(region2.slice(), nullptr, ec); });
	const auto gone = ": the connection was closed or moved from: Invalid argument"s;
	const auto slice = region2.slice();
	REQUIRE(message([&] { conn.read({}, {}); }) == "rpma_read" + gone);
	REQUIRE(message([&] { conn.send(slice); }) == "rpma_send" + gone);
	REQUIRE(message([&] { conn.cq(); }) == "rpma_conn_get_cq" + gone);
	REQUIRE(message([&] { conn.remote(); }) == "rpma_conn_get_private_data" + gone);
	REQUIRE(message([&] { conn.next_event(); }) == "rpma_conn_next_event" + gone);
	REQUIRE(message([&] { conn.wait(); }) == "rpma_conn_wait" + gone);
	REQUIRE(message([&] { conn.close(); }) == "rpma_conn_disconnect" + gone);
	/* what fails on a connection that is there says why */
	REQUIRE(message([&] { conn2.apply(peer_cfg); }).find("moved from") == std::string::npos);
	invalid([&](rpma::ec_ref ec) { req.recv(region2.slice(), nullptr, ec); });
	invalid([&](rpma::ec_ref ec) { std::move(req).start({}, ec); });
	invalid([&](rpma::ec_ref ec) { endpoint.accept({}, nullptr, ec); });
	auto peer2 = std::move(peer);
	invalid([&](rpma::ec_ref ec) { peer.reg(rpma::memory::zeroed(64), usage::send, ec); });
	invalid([&](rpma::ec_ref ec) { peer.listen(where.addr, where.port.c_str(), ec); });
	invalid([&](rpma::ec_ref ec) { peer.srq(nullptr, ec); });
	region2.revoke();
	REQUIRE(!region2);
	invalid([&](rpma::ec_ref ec) { region2.revoke(ec); });
	invalid([&](rpma::ec_ref ec) { region2.slice(0, 1, ec); });
	/* self-assignment leaves the object valid */
	auto &same = remote2;
	remote2 = std::move(same);
	auto &conn_same = conn2;
	conn2 = std::move(conn_same);
}

static void ranges(const place &where) {
	auto peer = rpma::peer::open(where.addr);
	auto local = peer.reg(rpma::memory::zeroed(100), usage::read_src);
	rpma::remote_region remote(local.offer());
	REQUIRE(remote.size() == 100 && remote.permitted() == usage::read_src);
	for (const auto &[offset, len] : {std::pair<std::size_t, std::size_t>{0, 101}, {100, 1}, {101, 0}, {SIZE_MAX, 1},
			{1, SIZE_MAX - 1}, {101, rpma::to_end}, {SIZE_MAX, SIZE_MAX}}) {
		fails(errc::out_of_range, [&, o = offset, l = len](rpma::ec_ref ec) { REQUIRE(local.slice(o, l, ec).len == 0); });
		fails(errc::out_of_range, [&, o = offset, l = len](rpma::ec_ref ec) { REQUIRE(remote.slice(o, l, ec).mr == nullptr); });
	}
	REQUIRE(remote.slice(100, 0).len == 0 && remote.slice(40).len == 60 && remote.slice(40, 60).rest == 60);
	REQUIRE(local.slice().len == 100);

	std::array<char, 4> four{};
	local.copy_in(96, "tail"sv);
	local.copy_out(96, four);
	REQUIRE(std::string_view(four.data(), 4) == "tail");
	fails(errc::out_of_range, [&](rpma::ec_ref ec) { local.copy_in(97, "tail"sv, ec); });
	fails(errc::out_of_range, [&](rpma::ec_ref ec) { local.copy_out(97, four, ec); });
	local.copy_in(100, {});
	std::vector<std::uint32_t> words(3);
	REQUIRE(rpma::const_bytes(words).size() == 12 && rpma::bytes(words).data() == reinterpret_cast<std::byte *>(words.data()));
#if defined(__cpp_lib_span)
	std::span<std::byte> all = local.bytes();
	const std::span<const std::byte> seen = rpma::const_bytes(all.first(3));
	REQUIRE(all.size() == 100 && seen.size() == 3 && seen.data() == local.data());
	local.copy_out(0, std::span(words));
	auto region = peer.reg(std::span(words), usage::send);
	REQUIRE(region.size() == 12);
#endif
}

static void failing_deletion(const place &where) {
	auto peer = rpma::peer::open(where.addr);
	auto region = peer.reg(rpma::memory::zeroed(4096), usage::write_dst);
	auto *const bytes = region.data();
	dereg_returns = RPMA_E_PROVIDER;
	region.reset();
	/* a peer may still write to it, so it is still mapped */
	*bytes = std::byte(1);
	std::error_code ec;
	region = peer.reg(rpma::memory::zeroed(64), usage::write_dst);
	region.revoke(ec);
	REQUIRE(ec == errc::provider && !region);
	region = peer.reg(rpma::memory::zeroed(64), usage::write_dst);
	REQUIRE(thrown([&] { region.revoke(); }) == errc::provider && !region);
	/* memory that remains on purpose is not a leak */
	std::fflush(nullptr);
	std::_Exit(0);
}

static void order(const place &where) {
	rpma::local_region region;
	rpma::srq srq;
	rpma::cq rcq;
	rpma::endpoint endpoint;
	rpma::conn_cfg cfg;
	rpma::conn_req req;
	{
		/* the objects from which they were created are destroyed first */
		auto peer = rpma::peer::open(where.addr);
		region = peer.reg(rpma::memory::zeroed(64), usage::recv);
		srq = peer.srq();
		rcq = srq.rcq();
		endpoint = peer.listen(where.addr, where.port.c_str());
		cfg.srq(srq);
		req = peer.request(where.addr, where.port.c_str(), &cfg);
	}
	srq.recv(region.slice());
	srq = rpma::srq();
	REQUIRE(!rcq.poll());
	auto conn = std::move(req).start();
	const auto cq = conn.cq();
	conn = rpma::conn();
	REQUIRE(!cq.poll());
}

/*
 * The objects that another one needs are deleted right after it, however early the program has released them.
 */
static void deleted(const place &where) {
	char bytes[64];
	const auto sole = [&](auto make) {
		auto it = make(rpma::peer::open(where.addr));
		REQUIRE(deletions() == "");
		it = decltype(it)();
		const auto by_assignment = deletions();
		{
			const auto last = make(rpma::peer::open(where.addr));
		}
		REQUIRE(deletions() == by_assignment);
		return by_assignment;
	};
	const auto request = [&](rpma::peer peer) { return peer.request(where.addr, where.port.c_str()); };
	REQUIRE(sole([](rpma::peer peer) { return peer; }) == "peer_delete ");
	REQUIRE(sole([&](rpma::peer peer) { return peer.reg(bytes, usage::send); }) == "mr_dereg peer_delete ");
	REQUIRE(sole([](rpma::peer peer) { return peer.reg(rpma::memory::zeroed(64), usage::send); }) == "mr_dereg peer_delete ");
	REQUIRE(sole([](rpma::peer peer) { return peer.srq(); }) == "srq_delete peer_delete ");
	REQUIRE(sole([](rpma::peer peer) { return peer.srq().rcq(); }) == "srq_delete peer_delete ");
	REQUIRE(sole([&](rpma::peer peer) { return peer.listen(where.addr, where.port.c_str()); }) == "ep_shutdown peer_delete ");
	REQUIRE(sole([&](rpma::peer peer) { return request(std::move(peer)); }) == "conn_req_delete peer_delete ");
	REQUIRE(sole([&](rpma::peer peer) { return request(std::move(peer)).start(); }) == "conn_delete peer_delete ");
	REQUIRE(sole([&](rpma::peer peer) { return request(std::move(peer)).start().cq(); }) == "conn_delete peer_delete ");
	REQUIRE(sole([&](rpma::peer peer) {
		rpma::conn_cfg cfg;
		cfg.srq(peer.srq());
		return peer.request(where.addr, where.port.c_str(), &cfg).start();
	}) == "conn_delete srq_delete peer_delete ");
	REQUIRE(sole([&](rpma::peer peer) {
		rpma::conn_cfg cfg;
		cfg.srq(peer.srq());
		return peer.request(where.addr, where.port.c_str(), &cfg);
	}) == "conn_req_delete srq_delete peer_delete ");

	/* before 1.4 a request uses the event channel of its endpoint until it is accepted */
	for (const bool is_accepted : {false, true}) {
		auto peer = rpma::peer::open(where.addr);
		auto endpoint = peer.listen(where.addr, where.port.c_str());
		auto asking = peer.request(where.addr, where.port.c_str()).start();
		auto req = endpoint.next();
		endpoint.reset();
		REQUIRE(!endpoint && deletions() == "");
		auto conn = is_accepted ? std::move(req).start() : rpma::conn();
		req.reset();
		REQUIRE(deletions() == (is_accepted ? "ep_shutdown " : "conn_req_delete ep_shutdown "));
		asking = rpma::conn();
		conn = rpma::conn();
		peer = rpma::peer();
		REQUIRE(deletions() == (is_accepted ? "conn_delete conn_delete peer_delete " : "conn_delete peer_delete "));
	}
}

static void unwinding(const place &where) {
	try {
		auto peer = rpma::peer::open(where.addr);
		auto region = peer.reg(rpma::memory::zeroed(64), usage::recv);
		auto endpoint = peer.listen(where.addr, where.port.c_str());
		auto req = peer.request(where.addr, where.port.c_str());
		auto conn = std::move(req).start();
		throw on_purpose();
	} catch (const on_purpose &) {
	}
	/* all objects are deleted: the port is free */
	auto peer = rpma::peer::open(where.addr);
	auto endpoint = peer.listen(where.addr, where.port.c_str());
}

std::vector<test> alone() {
	return {{"codes", {}, codes}, {"reasons", {}, reasons}, {"unmappable-memory", {}, unmappable_memory},
		{"too-much-memory", {}, too_much_memory},
		{"moved-from", {}, moved_from}, {"ranges", {}, ranges}, {"failing-deletion", {}, failing_deletion},
		{"order", {}, order}, {"deleted", {}, deleted}, {"unwinding", {}, unwinding}};
}
