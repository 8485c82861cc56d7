// SPDX-License-Identifier: BSD-3-Clause
/*
 * rpma.hpp - remote persistent memory access for C++17 and newer
 *
 * librpma.h with objects that delete what they own. Everything is inline: a program that includes it links
 * with librpma alone. The comment of each class names the object of librpma that it owns. A function with the
 * name of a function of librpma calls it and has its contract, which is on its manual page and not repeated
 * here, unless its comment says otherwise.
 *
 * ERRORS
 *
 * A function that can fail has a last parameter ec. Without this argument a failure throws rpma::error. A
 * std::error_code is set by a failure and cleared by success; after a failure the result is an empty object,
 * nullptr or 0, and rpma_err_last() has the reason if a function of librpma failed. The same applies to
 * constructors: the object is then empty. No destructor throws; librpma logs what it could not release.
 *
 * OBJECTS
 *
 * Objects can be moved but not copied. A moved-from object is empty: it converts to false, and functions that
 * use it fail with errc::invalid. A default-constructed object is empty, too, unless it is a configuration.
 * An object keeps alive what librpma needs for it: a peer is deleted after all objects that were made from
 * it, an endpoint after its requests (required by releases before 1.4), a shared receive queue after its
 * connections and requests, a connection after its completion queues. They may be destroyed in any order.
 * Three things keep nothing alive:
 * - A slice refers to its region, as a std::string_view to its string, and must not be used after it.
 * - A region of memory of the program must be destroyed before that memory is freed; one of rpma::memory owns
 *   it.
 * - An operation does not own its buffer. If the region is destroyed first, the operation fails and the
 *   connection ends; once the destructor has returned, nothing accesses the memory through the region any
 *   more.
 *
 * Memory that a peer may write can change at any time: read it when a completion or a message says that it is
 * complete, or through atomic objects.
 *
 * THREADS
 *
 * As the manual page of each function says. Destructors, moves and assignments, close(), reset() and revoke()
 * must not run concurrently with any other use of the object.
 */

#ifndef LIBRPMA_HPP
#define LIBRPMA_HPP 1

#include <librpma.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <shared_mutex>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#if __cplusplus >= 202002L
#include <span>
#endif

/*
 * Calls a function of librpma and reports its result to ec; _ON is for the first argument get(), _GET returns
 * the value of the last, output parameter.
 */
#define RPMA_HPP_DO(function, ...) ec.ok(function(__VA_ARGS__), #function)
#define RPMA_HPP_ON(function, ...) ec.ok(function(__VA_ARGS__), #function, get())
#define RPMA_HPP_GET(type, function, object) detail::value<type>(function, #function, object, ec)

namespace rpma {
enum class errc;
}
template <>
struct std::is_error_code_enum<rpma::errc> : std::true_type {};

/* Visible, so that all shared objects of a program have the same exceptions and error categories. */
namespace rpma __attribute__((visibility("default"))) {

/* ---- errors ---- */

/** Why a call failed: an error code of librpma, or one of those that this header adds. */
enum class errc {
	unknown = RPMA_E_UNKNOWN,
	not_supported = RPMA_E_NOSUPP,
	provider = RPMA_E_PROVIDER,
	out_of_memory = RPMA_E_NOMEM,
	invalid = RPMA_E_INVAL,
	no_completion = RPMA_E_NO_COMPLETION,
	no_event = RPMA_E_NO_EVENT,
	again = RPMA_E_AGAIN,
	shared_channel = RPMA_E_SHARED_CHANNEL,
	not_shared_channel = RPMA_E_NOT_SHARED_CHNL,
	/** a range is not inside its region, or the lengths of source and destination differ */
	out_of_range = 1,
	/** a region is not registered for this use */
	not_permitted,
	/** a connection was not established: RPMA_CONN_REJECTED, _UNREACHABLE, _CLOSED or _LOST */
	rejected,
	unreachable,
	closed,
	lost,
};

namespace detail {

struct call_category final : std::error_category {
	const char *name() const noexcept override { return "rpma"; }

	std::string message(int value) const override {
		switch (errc(value)) {
		case errc::out_of_range: return "Out of range";
		case errc::not_permitted: return "Not permitted";
		case errc::rejected: return "Connection rejected";
		case errc::unreachable: return "Peer unreachable";
		case errc::closed: return "Connection closed";
		case errc::lost: return "Connection lost";
		default: return rpma_err_2str(value);
		}
	}

	std::error_condition default_error_condition(int value) const noexcept override {
		switch (errc(value)) {
		case errc::not_supported: return std::errc::not_supported;
		case errc::out_of_memory: return std::errc::not_enough_memory;
		case errc::invalid:
		case errc::out_of_range: return std::errc::invalid_argument;
		case errc::no_completion:
		case errc::no_event:
		case errc::again: return std::errc::resource_unavailable_try_again;
		case errc::not_permitted: return std::errc::permission_denied;
		case errc::rejected: return std::errc::connection_refused;
		case errc::unreachable: return std::errc::host_unreachable;
		case errc::closed: return std::errc::not_connected;
		case errc::lost: return std::errc::connection_reset;
		default: return {value, *this};
		}
	}
};

/* Without ibv_wc_status_str, so that librpma is all that a program links with. */
struct status_category final : std::error_category {
	const char *name() const noexcept override { return "ibv_wc_status"; }

	std::string message(int value) const override {
		static constexpr const char *texts[] = {"success", "local length error", "local QP operation error",
			"local EE context operation error", "local protection error", "work request flushed error",
			"memory window bind error", "bad response error", "local access error", "remote invalid request error",
			"remote access error", "remote operation error", "transport retry counter exceeded",
			"RNR retry counter exceeded"};
		const bool is_known = value >= 0 && static_cast<std::size_t>(value) < std::size(texts);
		return is_known ? texts[value] : "enum ibv_wc_status " + std::to_string(value);
	}
};

} // namespace detail

/** The category of errc. */
inline const std::error_category &category() noexcept {
	static const detail::call_category it;
	return it;
}

/** The category of the statuses of completions, enum ibv_wc_status. */
inline const std::error_category &wc_category() noexcept {
	static const detail::status_category it;
	return it;
}

inline std::error_code make_error_code(errc code) noexcept { return {static_cast<int>(code), category()}; }

/** A failed call or operation. what() is the reason and the text of the code. */
class error : public std::system_error {
public:
	error(std::error_code code, const char *call, const std::string &reason)
		: std::system_error(code, reason), call_(call), reason_(std::make_shared<const std::string>(reason)) {
	}

	/** The function that failed, of librpma or of this header. */
	const char *call() const noexcept { return call_; }

	/** What rpma_err_last() returned, or which argument is wrong and why. */
	const std::string &reason() const noexcept { return *reason_; }

private:
	const char *call_;
	std::shared_ptr<const std::string> reason_;
};

/** How a call reports a failure: through a std::error_code of the caller or, by default, an exception. */
class ec_ref {
public:
	ec_ref() = default;
	ec_ref(std::error_code &code) noexcept : code_(&code) {}

	/** Whether the last call reported a failure; always false if failures are exceptions. */
	bool failed() const noexcept { return code_ && *code_; }

	bool succeed() const noexcept {
		if (code_)
			code_->clear();
		return true;
	}

	[[gnu::cold, gnu::noinline]] bool fail(std::error_code code, [[maybe_unused]] const char *call,
		[[maybe_unused]] const std::string &reason) const {
		if (code_) {
			*code_ = code;
			return false;
		}
#if defined(__cpp_exceptions)
		throw error(code, call, reason);
#else
		std::abort();
#endif
	}

	/** Reports a failure of a function of this header. */
	bool fail(errc code, const char *call, const std::string &why) const {
		return fail(make_error_code(code), call, std::string(call) + ": " + why);
	}

	/** Reports the result of a function of librpma; returns whether it succeeded. */
	bool ok(int ret, const char *call) const {
		return ret == 0 ? succeed() : fail(make_error_code(errc(ret)), call, rpma_err_last());
	}

	/** The same for a function of an object: librpma says of an empty connection only that it is NULL. */
	bool ok(int ret, const char *call, const rpma_conn *conn) const {
		return ret == 0 ? succeed() : fail_of(conn, ret, call);
	}
	bool ok(int ret, const char *call, const void *) const { return ok(ret, call); }

private:
	[[gnu::cold, gnu::noinline]] bool fail_of(const rpma_conn *conn, int ret, const char *call) const {
		return conn ? ok(ret, call) : fail(errc(ret), call, "the connection was closed or moved from");
	}

	std::error_code *code_ = nullptr;
};

/* ---- memory ---- */

/**
 * A view of bytes: made from a pointer and a length, or from an array, std::vector, std::string or std::span
 * of trivially copyable elements; it converts to a std::span. bytes are writable. It keeps nothing alive.
 */
template <class Byte>
class basic_bytes {
	template <class C>
	using element = std::remove_pointer_t<decltype(std::data(std::declval<C &>()))>;
	/* a temporary that owns its elements does not convert to writable bytes */
	template <class C>
	using from = std::conditional_t<std::is_lvalue_reference_v<C> || std::is_const_v<Byte>, C, const C>;
	template <class C>
	using enable_for = std::enable_if_t<!std::is_base_of_v<basic_bytes, std::decay_t<C>> &&
		std::is_trivially_copyable_v<element<C>> && (std::is_const_v<Byte> || !std::is_const_v<element<from<C>>>)>;

public:
	using pointer = std::conditional_t<std::is_const_v<Byte>, const void *, void *>;

	basic_bytes() = default;
	basic_bytes(pointer data, std::size_t size) noexcept : data_(static_cast<Byte *>(data)), size_(size) {}
	template <class C, class = enable_for<C>>
	basic_bytes(C &&all) noexcept : basic_bytes(std::data(all), std::size(all) * sizeof(element<C>)) {
	}

	Byte *data() const noexcept { return data_; }
	std::size_t size() const noexcept { return size_; }
	Byte *begin() const noexcept { return data_; }
	Byte *end() const noexcept { return data_ + size_; }

private:
	Byte *data_ = nullptr;
	std::size_t size_ = 0;
};

using bytes = basic_bytes<std::byte>;
using const_bytes = basic_bytes<const std::byte>;

/** A memory mapping, which it owns. */
class memory {
public:
	memory() = default;

	/**
	 * Pages of zeros, of a memfd that is sealed against shrinking, so that peers on the same host can map
	 * it (librpma_providers(7), Memory); anonymous memory if a limit or a sandbox forbids that.
	 *
	 * The memfd is allocated at once. If it would take more than half of what the host has available
	 * (MemAvailable of /proc/meminfo), the memory is anonymous, too, and allocated when it is first used.
	 * Fails with std::errc::not_enough_memory if the kernel refuses it, as it does for more than the host
	 * has (unless vm.overcommit_memory is 1), and with std::errc::invalid_argument for a size of 0.
	 */
	static memory zeroed(std::size_t size, ec_ref ec = {}) {
		const int fd = sealed(size);
		void *const at = map(size, fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd);
		if (at == MAP_FAILED && fd >= 0) {
			const int reason = errno;
			::close(fd); // before the failure is reported, perhaps by an exception
			errno = reason;
		}
		memory zeros(at, size, "rpma::memory::zeroed", nullptr, ec);
		if (zeros)
			zeros.it_.get_deleter().fd = fd; // needed at the registration
		return zeros;
	}

	/**
	 * A shared mapping of the beginning of a file, which is created, or extended with zeros, as needed.
	 */
	static memory file(const char *path, std::size_t size, ec_ref ec = {}) {
		constexpr auto call = "rpma::memory::file";
		const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
		const std::shared_ptr<const void> closer(nullptr, [fd](const void *) { ::close(fd); });
		const off_t end = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
		if (end < 0 || (static_cast<std::size_t>(end) < size && ftruncate(fd, static_cast<off_t>(size)) != 0))
			return memory(nullptr, size, call, path, ec);
		return {map(size, MAP_SHARED, fd), size, call, path, ec};
	}

	explicit operator bool() const noexcept { return it_ != nullptr; }
	std::byte *data() const noexcept { return it_.get(); }
	std::size_t size() const noexcept { return it_ ? it_.get_deleter().size : 0; }

private:
	struct unmap {
		std::size_t size;
		int fd; // of the memfd, or -1
		void operator()(std::byte *at) const noexcept {
			munmap(at, size);
			if (fd >= 0)
				::close(fd);
		}
	};

	/**
	 * A sealed memfd, or -1; also -1 if the program already uses many descriptors and may need the rest,
	 * or if there is too little memory.
	 */
	static int sealed(std::size_t size) noexcept {
		constexpr int max_descriptor = 256;
		rlimit limit{}; // beyond it the kernel would send SIGXFSZ
		if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur < size || !may_allocate(size))
			return -1;
		const int fd = memfd_create("rpma", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		if (fd < 0 || (fd < max_descriptor && posix_fallocate(fd, 0, static_cast<off_t>(size)) == 0
				&& fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0))
			return fd;
		::close(fd);
		return -1;
	}

	/**
	 * Whether the size may be allocated at once: at most half of the available memory. If memory runs
	 * out, the OOM killer ends processes, this one or others. For a small size /proc/meminfo is not read,
	 * which takes longer than the allocation.
	 */
	static bool may_allocate(std::size_t size) noexcept {
		constexpr std::size_t compared_from = 1 << 20;
		if (size < compared_from)
			return true;
		char text[512]; // the third line says it
		const int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
		const ssize_t len = fd < 0 ? 0 : ::read(fd, text, sizeof(text) - 1);
		text[len < 0 ? 0 : len] = '\0';
		if (fd >= 0)
			::close(fd);
		constexpr const char *name = "MemAvailable:";
		const char *const at = std::strstr(text, name);
		return !at || size / 1024 <= std::strtoull(at + std::strlen(name), nullptr, 10) / 2;
	}

	static void *map(std::size_t size, int flags, int fd) noexcept {
		return mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, fd, 0);
	}

	/** From a mapping, or from the errno of what failed. */
	memory(void *at, std::size_t size, const char *call, const char *path, ec_ref ec) {
		if (at && at != MAP_FAILED && ec.succeed())
			it_ = std::unique_ptr<std::byte, unmap>(static_cast<std::byte *>(at), unmap{size, -1});
		else
			ec.fail({errno, std::generic_category()}, call, std::string(call) + ": " +
				(path ? path + std::string(", ") : "") + "a size of " + std::to_string(size) + " bytes");
	}

	std::unique_ptr<std::byte, unmap> it_{nullptr, unmap{0, -1}};
};

/**
 * RPMA_MR_USAGE_*: the operations that memory is registered for.
 *
 * flush_persistent is for memory::file and persistent memory. Other memory is registered with it, too; if the
 * program then declares it (local_region::offer), a flush of it succeeds and makes nothing durable: what was
 * written is lost with the process.
 */
enum class usage : int {
	none = 0,
	read_src = RPMA_MR_USAGE_READ_SRC,
	read_dst = RPMA_MR_USAGE_READ_DST,
	write_src = RPMA_MR_USAGE_WRITE_SRC,
	write_dst = RPMA_MR_USAGE_WRITE_DST,
	flush_visible = RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY,
	flush_persistent = RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT,
	send = RPMA_MR_USAGE_SEND,
	recv = RPMA_MR_USAGE_RECV,
};

constexpr usage operator|(usage a, usage b) noexcept { return usage(int(a) | int(b)); }
constexpr usage operator&(usage a, usage b) noexcept { return usage(int(a) & int(b)); }

/** As a length: to the end of the region. */
constexpr std::size_t to_end = SIZE_MAX;

/** The length of a descriptor, whose last byte is the usage, and the bytes of local_region::offer. */
constexpr std::size_t descriptor_len = 21;
using offer_bytes = std::array<std::byte, descriptor_len + 1>;

/** A range of a region. A default-constructed one denotes no memory. */
template <class Region>
struct slice_of {
	Region *mr = nullptr;
	std::size_t offset = 0;
	std::size_t len = 0;
	/** the length of the region from offset on, and its usage */
	std::size_t rest = 0;
	usage permitted = usage::none;
};
using local_slice = slice_of<rpma_mr_local>;
using remote_slice = slice_of<rpma_mr_remote>;

namespace detail {

/** An object of librpma with one owner, and what must outlive it. */
template <class T, int (*Delete)(T **)>
class owner {
public:
	owner() = default;
	owner(owner &&from) noexcept : p_(std::exchange(from.p_, nullptr)), needs_(std::move(from.needs_)) {}
	owner &operator=(owner &&from) noexcept {
		owner other(std::move(from));
		std::swap(p_, other.p_);
		needs_.swap(other.needs_);
		return *this;
	}
	~owner() { release(); }

	explicit operator bool() const noexcept { return p_ != nullptr; }

	/** For calls of librpma; this object remains the owner. */
	T *get() const noexcept { return p_; }

	/** Deletes it now. */
	void reset() noexcept { release(); }

protected:
	int release() noexcept {
		const int ret = p_ ? Delete(&p_) : 0;
		/* a peer may still write to memory that could not be deregistered: it stays mapped */
		if (ret != 0 && std::is_same_v<T, rpma_mr_local>)
			static_cast<void>(new (std::nothrow) std::shared_ptr<const void>(needs_));
		needs_.reset();
		return ret;
	}

	T *p_ = nullptr;
	std::shared_ptr<const void> needs_;
};

/** An object of librpma that the objects that need it keep alive, too. */
template <class T>
class shared {
public:
	shared() = default;
	shared(shared &&) = default;
	shared &operator=(shared &&) = default;

	explicit operator bool() const noexcept { return p_ != nullptr; }
	T *get() const noexcept { return p_.get(); }

protected:
	~shared() = default;
	std::shared_ptr<T> p_;
};

template <class T, class Function, class Object>
T value(Function function, const char *call, Object object, ec_ref ec) {
	T it{};
	ec.ok(function(object, &it), call, object);
	return it;
}

/** An endpoint, and what must outlive it. */
struct listener {
	listener() = default;
	listener(listener &&) = delete;
	~listener() { rpma_ep_shutdown(&ep); }

	std::shared_ptr<const void> peer;
	rpma_ep *ep = nullptr;
};

/** What must outlive a connection request. */
struct requested {
	std::shared_ptr<const void> peer, srq, endpoint;
};

/** What must outlive a region that owns its memory. */
struct registered {
	std::shared_ptr<rpma_peer> peer;
	rpma::memory memory;
};

/** A region, local or remote, and its slices. */
template <class T, int (*Delete)(T **)>
class region : public owner<T, Delete> {
public:
	std::size_t size() const noexcept { return this->p_ ? size_ : 0; }
	usage permitted() const noexcept { return usage_; }

	/**
	 * A range of the region, which must outlive the slice. Fails with errc::out_of_range if it is not
	 * inside.
	 */
	slice_of<T> slice(std::size_t offset = 0, std::size_t len = to_end, ec_ref ec = {}) const & {
		const std::size_t rest = offset <= size() ? size() - offset : 0;
		const std::size_t wanted = len == to_end ? rest : len;
		if (!this->p_)
			ec.fail(errc::invalid, "rpma::slice", "the region is empty");
		else if (offset > size() || wanted > rest)
			ec.fail(errc::out_of_range, "rpma::slice", std::to_string(wanted) + " bytes at offset " +
				std::to_string(offset) + " are outside the region of " + std::to_string(size()) + " bytes");
		else if (ec.succeed())
			return {this->p_, offset, wanted, rest, usage_};
		return {};
	}
	slice_of<T> slice(std::size_t = 0, std::size_t = to_end, ec_ref = {}) const && = delete;

protected:
	std::size_t size_ = 0;
	usage usage_ = usage::none;
};

} // namespace detail

/** rpma_mr_local: registered memory. Made by peer::reg. */
class local_region : public detail::region<rpma_mr_local, rpma_mr_dereg> {
public:
	local_region() = default;

	std::byte *data() const noexcept { return p_ ? data_ : nullptr; }
	rpma::bytes bytes() const noexcept { return {data(), size()}; }

	/** rpma_mr_dereg: no peer can access the memory from then on. */
	void revoke(ec_ref ec = {}) {
		if (p_)
			ec.ok(release(), "rpma_mr_dereg");
		else
			ec.fail(errc::invalid, "rpma_mr_dereg", "the region is empty");
	}

	/** Copies bytes to or from the region, at an offset. Fails as slice() does. */
	void copy_in(std::size_t offset, const_bytes from, ec_ref ec = {}) {
		if (const auto to = slice(offset, from.size(), ec); to.len)
			std::memcpy(data_ + to.offset, from.data(), to.len);
	}
	void copy_out(std::size_t offset, rpma::bytes to, ec_ref ec = {}) const {
		if (const auto from = slice(offset, to.size(), ec); from.len)
			std::memcpy(to.data(), data_ + from.offset, from.len);
	}

	/**
	 * What a peer needs to access the region: the descriptor of rpma_mr_get_descriptor, followed by that
	 * of a peer configuration with direct_write_to_pmem, which declares that a flush to persistence is
	 * possible. With the soft provider, declare it for files alone: nobody checks it, and a flush of
	 * other memory succeeds without making anything durable. Otherwise see
	 * rpma_peer_cfg_set_direct_write_to_pmem. conn_private_data sends the offer with the connection.
	 */
	offer_bytes offer(bool direct_write_to_pmem = false, ec_ref ec = {}) const {
		offer_bytes it{};
		if (RPMA_HPP_DO(rpma_mr_get_descriptor, p_, it.data()))
			it.back() = std::byte(direct_write_to_pmem);
		return it;
	}

	void advise(std::size_t offset, std::size_t len, int advice, std::uint32_t flags = 0, ec_ref ec = {}) {
		RPMA_HPP_DO(rpma_mr_advise, p_, offset, len, advice, flags);
	}

private:
	friend class peer;
	std::byte *data_ = nullptr;
};

/** rpma_mr_remote: memory of a peer. It is not bound to a connection. */
class remote_region : public detail::region<rpma_mr_remote, rpma_mr_remote_delete> {
public:
	remote_region() = default;

	/**
	 * From the bytes of one offer or of rpma_mr_get_descriptor; bytes behind the descriptor are ignored.
	 */
	explicit remote_region(const_bytes descriptor, ec_ref ec = {}) {
		if (RPMA_HPP_DO(rpma_mr_remote_from_descriptor, descriptor.data(), descriptor.size(), &p_))
			rpma_mr_remote_get_size(p_, &size_);
		if (p_ && descriptor.size() >= descriptor_len)
			usage_ = usage(descriptor.data()[descriptor_len - 1]);
	}

private:
	friend class conn;
};

/**
 * The private data that are sent with a connection: offers of memory, by local_region::offer, and bytes of
 * the program; or such bytes alone. A copy of at most 255 bytes; devices allow fewer, RoCE 56 in a request
 * and 196 in a reply. conn::remote reads the offers, and so do the packages rpma for Rust and Python, which
 * use the same format. For a program in C, which reads one descriptor, send const_bytes(region.offer()).
 */
class conn_private_data {
	template <class C>
	using element = std::remove_cv_t<std::remove_pointer_t<decltype(std::data(std::declval<C &>()))>>;
	/* containers of offers do not convert to bytes of the program */
	template <class C>
	using enable_for = std::enable_if_t<std::is_convertible_v<const C &, const_bytes> &&
		!std::is_same_v<C, offer_bytes> && !std::is_same_v<element<const C>, offer_bytes>>;

public:
	conn_private_data() = default;
	template <class C, class = enable_for<C>>
	conn_private_data(const C &own) noexcept { append(own); }
	conn_private_data(const offer_bytes &offer, const_bytes own = {}) noexcept : conn_private_data(&offer, 1, own) {}
	conn_private_data(std::initializer_list<offer_bytes> offers, const_bytes own = {}) noexcept
		: conn_private_data(offers.begin(), offers.size(), own) {
	}
	conn_private_data(const offer_bytes *offers, std::size_t count, const_bytes own = {}) noexcept {
		const std::array head{mark, std::byte(count), std::byte(own.size())};
		append(head);
		append({offers, count * sizeof(*offers)});
		append(own);
	}

private:
	friend class conn;
	friend class conn_req;

	/* the first byte of private data with offers */
	static constexpr auto mark = std::byte(0xa7);

	/* start() reports data that are too long. */
	void append(const_bytes more) noexcept {
		if (more.size() != 0 && size_ <= all_.size() && more.size() <= all_.size() - size_)
			std::memcpy(all_.data() + size_, more.data(), more.size());
		size_ += more.size();
	}

	/*
	 * Received private data: offers and bytes of the program, or only the latter if they have another
	 * format.
	 */
	struct parts {
		explicit parts(const_bytes all) : own(all) {
			constexpr std::size_t head = 3;
			const std::byte *const at = all.data();
			if (all.size() < head || at[0] != mark)
				return;
			const auto number = static_cast<std::size_t>(at[1]), len = static_cast<std::size_t>(at[2]);
			const std::size_t end = head + number * sizeof(offer_bytes);
			if (end + len > all.size())
				return;
			std::error_code ec;
			for (std::size_t i = 0; i < number; i++)
				if (remote_region({at + head + i * sizeof(offer_bytes), descriptor_len}, ec); ec)
					return;
			has_offers = true;
			offers = at + head;
			count = number;
			own = {at + end, len};
		}

		bool has_offers = false;
		const std::byte *offers = nullptr;
		std::size_t count = 0;
		const_bytes own;
	};

	std::array<std::byte, UINT8_MAX> all_;
	std::size_t size_ = 0;
};

/* ---- configurations ---- */

/** rpma_peer_cfg: what a peer declares. Not needed with local_region::offer and conn::remote. */
class peer_cfg : public detail::owner<rpma_peer_cfg, rpma_peer_cfg_delete> {
public:
	explicit peer_cfg(ec_ref ec = {}) { RPMA_HPP_DO(rpma_peer_cfg_new, &p_); }
	explicit peer_cfg(const_bytes descriptor, ec_ref ec = {}) {
		RPMA_HPP_DO(rpma_peer_cfg_from_descriptor, descriptor.data(), descriptor.size(), &p_);
	}

	void direct_write_to_pmem(bool is, ec_ref ec = {}) { RPMA_HPP_DO(rpma_peer_cfg_set_direct_write_to_pmem, p_, is); }
	bool direct_write_to_pmem(ec_ref ec = {}) const { return RPMA_HPP_GET(bool, rpma_peer_cfg_get_direct_write_to_pmem, p_); }
	std::byte descriptor(ec_ref ec = {}) const {
		std::byte it{};
		RPMA_HPP_DO(rpma_peer_cfg_get_descriptor, p_, &it);
		return it;
	}
};

/** rpma_srq_cfg: the sizes of a shared receive queue and of its completion queue. */
class srq_cfg : public detail::owner<rpma_srq_cfg, rpma_srq_cfg_delete> {
public:
	explicit srq_cfg(ec_ref ec = {}) { RPMA_HPP_DO(rpma_srq_cfg_new, &p_); }

	void rq_size(std::uint32_t entries, ec_ref ec = {}) { RPMA_HPP_DO(rpma_srq_cfg_set_rq_size, p_, entries); }
	void rcq_size(std::uint32_t entries, ec_ref ec = {}) { RPMA_HPP_DO(rpma_srq_cfg_set_rcq_size, p_, entries); }
};

class srq;

/** rpma_conn_cfg: the timeout and the queues of a connection. */
class conn_cfg : public detail::owner<rpma_conn_cfg, rpma_conn_cfg_delete> {
public:
	explicit conn_cfg(ec_ref ec = {}) { RPMA_HPP_DO(rpma_conn_cfg_new, &p_); }

	void timeout_ms(int time, ec_ref ec = {}) { RPMA_HPP_DO(rpma_conn_cfg_set_timeout, p_, time); }
	void cq_size(std::uint32_t entries, ec_ref ec = {}) { RPMA_HPP_DO(rpma_conn_cfg_set_cq_size, p_, entries); }
	void sq_size(std::uint32_t entries, ec_ref ec = {}) { RPMA_HPP_DO(rpma_conn_cfg_set_sq_size, p_, entries); }
	void rq_size(std::uint32_t entries, ec_ref ec = {}) { RPMA_HPP_DO(rpma_conn_cfg_set_rq_size, p_, entries); }
	void rcq_size(std::uint32_t entries, ec_ref ec = {}) { RPMA_HPP_DO(rpma_conn_cfg_set_rcq_size, p_, entries); }
	void compl_channel(bool is_shared, ec_ref ec = {}) { RPMA_HPP_DO(rpma_conn_cfg_set_compl_channel, p_, is_shared); }
	/** Connections with this configuration keep the queue alive. */
	void srq(const rpma::srq &queue, ec_ref ec = {});

private:
	friend class conn_req;
	std::shared_ptr<const void> srq_;
};

/* ---- completions ---- */

/** A work completion, as rpma_cq_get_wc returns it. */
struct completion : ibv_wc {
	completion() noexcept : ibv_wc{} {}
	explicit completion(const ibv_wc &wc) noexcept : ibv_wc(wc) {}

	bool ok() const noexcept { return status == IBV_WC_SUCCESS; }

	/** The context of the operation. */
	template <class T = void>
	T *context() const noexcept { return reinterpret_cast<T *>(static_cast<std::uintptr_t>(wr_id)); }

	/** The immediate data, if any, in host byte order. */
	std::optional<std::uint32_t> imm() const noexcept {
		return ok() && (wc_flags & IBV_WC_WITH_IMM) ? std::optional(ntohl(imm_data)) : std::nullopt;
	}

	/** Fails with the status, in wc_category(), unless the operation was successful. */
	const completion &check(ec_ref ec = {}) const {
		if (ok())
			ec.succeed();
		else
			ec.fail({int(status), wc_category()}, "rpma_cq_get_wc", reason());
		return *this;
	}

private:
	friend class cq;

	/* The soft provider has a reason for the last completion that was polled, if it failed. */
	void polled() {
		if (const char *const last = ok() ? "" : rpma_err_last(); std::strncmp(last, "rpma_cq_get_wc: ", 16) == 0)
			text_ = last;
	}

	std::string reason() const {
		return !text_.empty() ? text_ : "rpma_cq_get_wc: wr_id " + std::to_string(wr_id) + ", queue pair " +
			std::to_string(qp_num) + ", vendor error " + std::to_string(vendor_err);
	}

	std::string text_;
};

namespace detail {

/** Waits until a descriptor is readable, a signal was handled or the time has passed; -1: no limit. */
inline bool readable(int fd, int limit_ms, ec_ref ec) {
	pollfd it{fd, POLLIN, 0};
	const int ret = ::poll(&it, 1, limit_ms);
	if (ret < 0 && errno != EINTR)
		ec.fail({errno, std::generic_category()}, "poll", "poll");
	return ret > 0;
}

} // namespace detail

/** rpma_cq: a completion queue. It keeps its connection, or its shared receive queue, alive. */
class cq : public detail::shared<rpma_cq> {
public:
	cq() = default;

	int fd(ec_ref ec = {}) const { return RPMA_HPP_GET(int, rpma_cq_get_fd, get()); }

	/** False if the descriptor is non-blocking and no event is pending. */
	bool wait(ec_ref ec = {}) const {
		const int ret = rpma_cq_wait(get());
		return ec.ok(ret == RPMA_E_NO_COMPLETION ? 0 : ret, "rpma_cq_wait") && ret == 0;
	}

	/** rpma_cq_get_wc for up to count completions, whatever their status; returns their number. */
	int poll(ibv_wc *wc, int count, ec_ref ec = {}) const {
		int got = 0;
		const int ret = rpma_cq_get_wc(get(), count, wc, &got);
		return ec.ok(ret == RPMA_E_NO_COMPLETION ? 0 : ret, "rpma_cq_get_wc") ? got : 0;
	}

	/** The same for one completion. */
	std::optional<completion> poll(ec_ref ec = {}) const {
		completion it;
		if (!poll(&it, 1, ec))
			return std::nullopt;
		it.polled();
		return it;
	}

	/**
	 * Waits for the next completion, whatever its status. If the wait fails, the result is not ok().
	 *
	 * It has no time limit, and waits for ever if nothing was posted that generates a completion. To wait
	 * with a limit, call poll(); without a completion poll(2) on fd(), then wait() and poll() again.
	 */
	[[nodiscard]] completion next(ec_ref ec = {}) const {
		completion it;
		it.status = IBV_WC_GENERAL_ERR;
		while (!poll(&it, 1, ec)) {
			if (!ec.failed() && !wait(ec) && !ec.failed())
				detail::readable(fd(ec), -1, ec);
			if (ec.failed())
				return it;
		}
		it.polled();
		return it;
	}

private:
	friend class srq;
	friend class conn;
	cq(const std::shared_ptr<const void> &of, rpma_cq *queue) { p_ = queue ? std::shared_ptr<rpma_cq>(of, queue) : nullptr; }
};

/* ---- connections ---- */

/** enum rpma_conn_event */
enum class event : int {
	none = RPMA_CONN_UNDEFINED,
	established = RPMA_CONN_ESTABLISHED,
	closed = RPMA_CONN_CLOSED,
	lost = RPMA_CONN_LOST,
	rejected = RPMA_CONN_REJECTED,
	unreachable = RPMA_CONN_UNREACHABLE,
};

/** When an operation generates a completion. */
enum class completes : int {
	on_error = RPMA_F_COMPLETION_ON_ERROR,
	always = RPMA_F_COMPLETION_ALWAYS,
};

/** What a flush guarantees. */
enum class flush_type {
	persistent = RPMA_FLUSH_TYPE_PERSISTENT,
	visible = RPMA_FLUSH_TYPE_VISIBILITY,
};

/**
 * The context of an operation, which its completion returns, and when it has one. A pointer converts to it.
 */
struct op {
	op(const void *returned = nullptr, completes when = completes::always) noexcept : context(returned), flags(int(when)) {}
	const void *context;
	int flags;
};

namespace detail {

/** A connection, and what must outlive it. */
struct connection {
	enum { connecting, up, leaving };

	connection() = default;
	connection(connection &&) = delete;
	~connection() { rpma_conn_delete(&conn); }

	bool has_ended() const noexcept { return ending != event::none; }
	bool is(int what) const noexcept { return phase == what && !has_ended(); }

	std::shared_ptr<const void> peer, srq;
	rpma_conn *conn = nullptr;
	std::atomic<int> phase{connecting};
	/* the event that ended it, for calls after the one that took it */
	std::atomic<event> ending{event::none};
	/* shared by calls of rpma_conn_next_event that may block; exclusive for one that must not */
	std::shared_mutex events;
};

/* Checks before a work request is posted. */
inline bool fits(std::size_t remote, std::size_t local, const char *call, ec_ref ec) {
	return remote == local || ec.fail(errc::out_of_range, call,
		"the remote range has " + std::to_string(remote) + " bytes, not " + std::to_string(local));
}

template <class Region>
bool may(const slice_of<Region> &slice, usage any, const char *name, const char *call, ec_ref ec) {
	constexpr auto of = std::is_same_v<Region, rpma_mr_local> ? "the local" : "the remote";
	return !slice.mr || (slice.permitted & any) != usage::none || ec.fail(errc::not_permitted, call,
		of + std::string(" region is not registered for usage::") + name);
}

} // namespace detail

/** rpma_srq: a shared receive queue. Made by peer::srq. */
class srq : public detail::shared<rpma_srq> {
public:
	srq() = default;

	void recv(local_slice dst, const void *context = nullptr, ec_ref ec = {}) {
		if (detail::may(dst, usage::recv, "recv", "rpma::srq::recv", ec))
			RPMA_HPP_DO(rpma_srq_recv, get(), dst.mr, dst.offset, dst.len, context);
	}

	/** Its completion queue; an empty one if it has none. */
	cq rcq(ec_ref ec = {}) const { return {p_, RPMA_HPP_GET(rpma_cq *, rpma_srq_get_rcq, get())}; }

private:
	friend class conn_cfg;
	friend class peer;
};

inline void conn_cfg::srq(const rpma::srq &queue, ec_ref ec) {
	if (RPMA_HPP_DO(rpma_conn_cfg_set_srq, p_, queue.get()))
		srq_ = queue.p_;
}

/**
 * rpma_conn: a connection.
 *
 * Operations are posted, and generate a completion in cq(). Their slices are checked first:
 * errc::out_of_range if the lengths differ, errc::not_permitted if a region is not registered for the
 * operation. An empty slice, {}, means no data. The destructor disconnects and does not wait for the peer;
 * close() does.
 */
class conn {
public:
	conn() = default;
	conn(conn &&) = default;
	conn &operator=(conn &&from) noexcept {
		conn other(std::move(from));
		it_.swap(other.it_);
		return *this;
	}
	~conn() {
		if (it_ && it_->is(detail::connection::up))
			rpma_conn_disconnect(it_->conn);
	}

	explicit operator bool() const noexcept { return it_ != nullptr; }
	rpma_conn *get() const noexcept { return it_ ? it_->conn : nullptr; }

	/**
	 * event::none if the descriptor is non-blocking and no event is pending. The waits of this class
	 * ignore an event that librpma does not define, for which this function fails with errc::unknown.
	 */
	event next_event(ec_ref ec = {}) {
		const auto lock = it_ ? std::shared_lock(it_->events) : std::shared_lock<std::shared_mutex>();
		return take_event(ec);
	}

	/**
	 * Waits until it is established. Fails with errc::rejected, unreachable, closed or lost if it is not,
	 * or no longer; with errc::closed also after disconnect().
	 */
	void wait_established(ec_ref ec = {}) {
		constexpr auto no_limit = std::chrono::steady_clock::time_point::max();
		const event got = take_until([](auto &it) { return !it.is(detail::connection::connecting); }, no_limit, ec);
		if (ec.failed() || it_->is(detail::connection::up))
			return;
		const event how = it_->ending; // none: only disconnect() was called
		const errc code = how == event::rejected ? errc::rejected : how == event::unreachable ? errc::unreachable :
			how == event::lost ? errc::lost : errc::closed;
		if (how != event::none && got == how)
			ec.fail(make_error_code(code), "rpma_conn_next_event", rpma_err_last());
		else
			ec.fail(code, "rpma::conn::wait_established",
				how == event::none ? "the connection was disconnected" : "the connection has ended");
	}

	/**
	 * Waits until it has ended, and returns how: event::closed or event::lost, or event::rejected or
	 * event::unreachable if it was not established. Each call returns this, on any thread, also after
	 * next_event() returned it.
	 */
	event wait_closed(ec_ref ec = {}) {
		constexpr auto no_limit = std::chrono::steady_clock::time_point::max();
		take_until([](auto &it) { return it.has_ended(); }, no_limit, ec);
		return ec.failed() ? event::none : it_->ending.load();
	}

	void disconnect(ec_ref ec = {}) {
		if (RPMA_HPP_ON(rpma_conn_disconnect, get()))
			it_->phase = detail::connection::leaving;
	}

	/**
	 * Disconnects, waits until the connection has ended, and deletes it. Fails with std::errc::timed_out
	 * if that takes longer than the limit; it is deleted in any case.
	 */
	void close(std::chrono::milliseconds limit = std::chrono::seconds(1), ec_ref ec = {}) {
		conn self(std::move(*this));
		ec.succeed();
		if (!self || self.it_->is(detail::connection::up))
			self.disconnect(ec);
		if (ec.failed() || !self.it_->is(detail::connection::leaving))
			return;
		self.take_until([](auto &it) { return it.has_ended(); }, std::chrono::steady_clock::now() + limit, ec);
		if (!ec.failed() && !self.it_->has_ended())
			ec.fail(std::make_error_code(std::errc::timed_out), "rpma::conn::close", "rpma::conn::close");
	}

	int event_fd(ec_ref ec = {}) const { return RPMA_HPP_GET(int, rpma_conn_get_event_fd, get()); }
	std::uint32_t qp_num(ec_ref ec = {}) const { return RPMA_HPP_GET(std::uint32_t, rpma_conn_get_qp_num, get()); }

	/**
	 * The private data of the peer's program, without its offers. If it made no offers, zeros may follow,
	 * which RoCE appends. They belong to the connection.
	 */
	const_bytes private_data(ec_ref ec = {}) const { return conn_private_data::parts(received(ec)).own; }

	/**
	 * Memory that the peer offered with the connection: one of its offers, or the descriptor that a
	 * program in C sent. Fails with errc::out_of_range if there are not so many offers. Otherwise as
	 * remote(const_bytes).
	 */
	remote_region remote(std::size_t index, ec_ref ec = {}) {
		const const_bytes all = received(ec);
		const conn_private_data::parts parts(all);
		if (ec.failed())
			return {};
		const std::size_t count = parts.has_offers ? parts.count : may_be_descriptor(all) ? 1 : 0;
		if (index >= count)
			ec.fail(errc::out_of_range, "rpma::conn::remote", count == 0 ? "the peer offered no region" :
				"the peer offered " + std::to_string(count) + (count == 1 ? " region" : " regions") +
				"; there is no number " + std::to_string(index));
		else if (parts.has_offers)
			return remote({parts.offers + index * sizeof(offer_bytes), sizeof(offer_bytes)}, ec);
		else if (all.size() > descriptor_len && all.data()[descriptor_len] == std::byte(0))
			/* the zero may be one that RoCE appended, and not a declaration */
			return remote({all.data(), descriptor_len}, ec);
		else
			return remote(all, ec);
		return {};
	}
	remote_region remote(ec_ref ec = {}) { return remote(std::size_t(0), ec); }

	/**
	 * Memory of the peer from the bytes of local_region::offer, received in any way. If they declare that
	 * a flush to persistence is possible, this is applied to the connection; if they declare that it is
	 * not, the region does not permit one. A descriptor alone declares nothing.
	 */
	remote_region remote(const_bytes offer, ec_ref ec = {}) {
		remote_region it(offer, ec);
		if (it && offer.size() > descriptor_len) {
			if (const const_bytes declared(offer.data() + descriptor_len, 1); *declared.data() != std::byte(0))
				apply(peer_cfg(declared, ec), ec);
			else
				it.usage_ = usage(int(it.usage_) & ~int(usage::flush_persistent));
		}
		return ec.failed() ? remote_region() : std::move(it);
	}
	void apply(const peer_cfg &cfg, ec_ref ec = {}) { RPMA_HPP_ON(rpma_conn_apply_remote_peer_cfg, get(), cfg.get()); }

	/** The main and the separate receive completion queue; the latter is empty if there is none. */
	rpma::cq cq(ec_ref ec = {}) const { return {it_, RPMA_HPP_GET(rpma_cq *, rpma_conn_get_cq, get())}; }
	rpma::cq rcq(ec_ref ec = {}) const { return {it_, RPMA_HPP_GET(rpma_cq *, rpma_conn_get_rcq, get())}; }

	/**
	 * A shared completion channel: its descriptor, and rpma_conn_wait, which returns the queue to poll,
	 * if any.
	 */
	int compl_fd(ec_ref ec = {}) const { return RPMA_HPP_GET(int, rpma_conn_get_compl_fd, get()); }
	rpma::cq wait(ec_ref ec = {}) {
		rpma_cq *queue = nullptr;
		const int ret = rpma_conn_wait(get(), 0, &queue, nullptr);
		ec.ok(ret == RPMA_E_NO_COMPLETION ? 0 : ret, "rpma_conn_wait", get());
		return {it_, queue};
	}

	void read(local_slice dst, remote_slice src, op how = {}, ec_ref ec = {}) {
		constexpr auto call = "rpma::conn::read";
		/* what may be flushed may be read: a flush may be executed as a read */
		constexpr auto any = usage::read_src | usage::flush_visible | usage::flush_persistent;
		if (detail::fits(src.len, dst.len, call, ec) && detail::may(dst, usage::read_dst, "read_dst", call, ec) &&
			detail::may(src, any, "read_src", call, ec))
			RPMA_HPP_ON(rpma_read, get(), dst.mr, dst.offset, src.mr, src.offset, dst.len, how.flags, how.context);
	}

	void write(remote_slice dst, local_slice src, op how = {}, ec_ref ec = {}) {
		if (may_write(dst, src, "rpma::conn::write", ec))
			RPMA_HPP_ON(rpma_write, get(), dst.mr, dst.offset, src.mr, src.offset, dst.len, how.flags, how.context);
	}

	void write_with_imm(remote_slice dst, local_slice src, std::uint32_t imm, op how = {}, ec_ref ec = {}) {
		if (may_write(dst, src, "rpma::conn::write_with_imm", ec))
			RPMA_HPP_ON(rpma_write_with_imm, get(), dst.mr, dst.offset, src.mr, src.offset, dst.len, how.flags, imm,
				how.context);
	}

	/**
	 * Writes a value, in the byte order of this host, to a slice of 8 bytes, as one store. The address of
	 * the remote region plus the offset must be a multiple of 8, otherwise it is not one store. Fails
	 * with errc::invalid if the offset is not a multiple of 8; the address of the region is not checked.
	 */
	void atomic_write(remote_slice dst, std::uint64_t value, op how = {}, ec_ref ec = {}) {
		constexpr auto call = "rpma::conn::atomic_write";
		char src[sizeof(value)];
		std::memcpy(src, &value, sizeof(value));
		if (detail::fits(dst.len, sizeof(src), call, ec) && detail::may(dst, usage::write_dst, "write_dst", call, ec))
			RPMA_HPP_ON(rpma_atomic_write, get(), dst.mr, dst.offset, src, how.flags, how.context);
	}

	/**
	 * Fails with errc::out_of_range if the region has fewer than 8 bytes: a flush may be executed as a
	 * read of 8.
	 */
	void flush(remote_slice dst, flush_type type, op how = {}, ec_ref ec = {}) {
		constexpr std::size_t least = 8;
		/* a flush of the last bytes begins earlier, so that the 8 bytes are inside the region */
		if (dst.mr && dst.rest < least && dst.offset + dst.rest >= least) {
			const std::size_t before = least - dst.rest;
			dst.offset -= before;
			dst.len += before;
			dst.rest = least;
		}
		if (dst.mr && dst.rest < least)
			ec.fail(errc::out_of_range, "rpma::conn::flush", "the region has less than 8 bytes");
		else if (dst.mr && type == flush_type::persistent && (dst.permitted & usage::flush_persistent) == usage::none)
			ec.fail(errc::not_supported, "rpma::conn::flush",
				"the peer does not declare that a flush of this region to persistence is possible");
		else
			RPMA_HPP_ON(rpma_flush, get(), dst.mr, dst.offset, dst.len, rpma_flush_type(type), how.flags,
				how.context);
	}

	void send(local_slice src, op how = {}, ec_ref ec = {}) {
		if (detail::may(src, usage::send, "send", "rpma::conn::send", ec))
			RPMA_HPP_ON(rpma_send, get(), src.mr, src.offset, src.len, how.flags, how.context);
	}

	void send_with_imm(local_slice src, std::uint32_t imm, op how = {}, ec_ref ec = {}) {
		if (detail::may(src, usage::send, "send", "rpma::conn::send_with_imm", ec))
			RPMA_HPP_ON(rpma_send_with_imm, get(), src.mr, src.offset, src.len, how.flags, imm, how.context);
	}

	void recv(local_slice dst, const void *context = nullptr, ec_ref ec = {}) {
		if (detail::may(dst, usage::recv, "recv", "rpma::conn::recv", ec))
			RPMA_HPP_ON(rpma_recv, get(), dst.mr, dst.offset, dst.len, context);
	}

private:
	friend class conn_req;

	const_bytes received(ec_ref ec) const {
		const auto it = RPMA_HPP_GET(rpma_conn_private_data, rpma_conn_get_private_data, get());
		return {it.ptr, it.len};
	}

	event take_event(ec_ref ec, bool ignores_unknown = false) {
		rpma_conn_event got = RPMA_CONN_UNDEFINED;
		const int ret = rpma_conn_next_event(get(), &got);
		const bool is_none = ret == RPMA_E_NO_EVENT || (ret == RPMA_E_UNKNOWN && ignores_unknown);
		if (!ec.ok(is_none ? 0 : ret, "rpma_conn_next_event", get()) || ret != 0)
			return event::none;
		int connecting = detail::connection::connecting;
		event none = event::none;
		if (got == RPMA_CONN_ESTABLISHED)
			it_->phase.compare_exchange_strong(connecting, detail::connection::up);
		else
			it_->ending.compare_exchange_strong(none, event(got)); // may be delivered twice
		return event(got);
	}

	/*
	 * Takes events until a condition holds, the time has passed or a call fails, also if the descriptor
	 * is non-blocking. Returns the last event that it took. It ignores events that librpma does not
	 * define, such as RDMA_CM_EVENT_ADDR_CHANGE when a bond fails over: the connection works.
	 */
	template <class Condition>
	event take_until(Condition holds, std::chrono::steady_clock::time_point end, ec_ref ec) {
		using std::chrono::milliseconds;
		// If another thread takes the event, poll() does not return.
		constexpr milliseconds interval(100);
		event got = event::none;
		const int fd = event_fd(ec);
		for (bool is_first = true; !ec.failed() && !holds(*it_); is_first = false) {
			const auto left = std::chrono::ceil<milliseconds>(end - std::chrono::steady_clock::now());
			if (detail::readable(fd, static_cast<int>(std::clamp(left, milliseconds(0), interval).count()), ec)) {
				const std::unique_lock lock(it_->events, std::try_to_lock);
				if (!lock)
					::poll(nullptr, 0, 1); // the thread that has it takes the event
				else if (detail::readable(fd, 0, ec))
					got = take_event(ec, true);
			}
			/* at least two rounds: ESTABLISHED may precede the event that ended the connection */
			if (!is_first && std::chrono::steady_clock::now() >= end)
				break;
		}
		return got;
	}

	/* RoCE appends zeros also to no private data. */
	static bool may_be_descriptor(const_bytes all) noexcept {
		return all.size() >= descriptor_len &&
			std::any_of(all.begin(), all.end(), [](std::byte it) { return it != std::byte(0); });
	}

	static bool may_write(const remote_slice &dst, const local_slice &src, const char *call, ec_ref ec) {
		return detail::fits(dst.len, src.len, call, ec) && detail::may(dst, usage::write_dst, "write_dst", call, ec) &&
			detail::may(src, usage::write_src, "write_src", call, ec);
	}

	std::shared_ptr<detail::connection> it_;
};

/** rpma_conn_req: a connection request. The destructor rejects an incoming one. */
class conn_req : public detail::owner<rpma_conn_req, rpma_conn_req_delete> {
public:
	conn_req() = default;

	/** As conn::private_data. They belong to the request, then to the connection. */
	const_bytes private_data(ec_ref ec = {}) const {
		const auto it = RPMA_HPP_GET(rpma_conn_private_data, rpma_conn_req_get_private_data, p_);
		return conn_private_data::parts({it.ptr, it.len}).own;
	}

	/** Posts a receive for the first message. */
	void recv(local_slice dst, const void *context = nullptr, ec_ref ec = {}) {
		if (detail::may(dst, usage::recv, "recv", "rpma::conn_req::recv", ec))
			RPMA_HPP_DO(rpma_conn_req_recv, p_, dst.mr, dst.offset, dst.len, context);
	}

	/** rpma_conn_req_connect: sends or accepts it, and does not wait for the peer. */
	conn start(const conn_private_data &private_data = {}, ec_ref ec = {}) && {
		conn it;
		auto parts = std::make_shared<detail::connection>();
		const auto len = static_cast<std::uint8_t>(private_data.size_);
		rpma_conn_private_data data = {const_cast<std::byte *>(private_data.all_.data()), len};
		if (private_data.size_ > UINT8_MAX)
			ec.fail(errc::invalid, "rpma_conn_req_connect", "more than 255 bytes of private data");
		else if (RPMA_HPP_DO(rpma_conn_req_connect, &p_, len ? &data : nullptr, &parts->conn)) {
			const auto &needs = *static_cast<const detail::requested *>(needs_.get());
			parts->peer = needs.peer;
			parts->srq = needs.srq;
			needs_.reset();
			it.it_ = std::move(parts);
		}
		return it;
	}

	/** The same, and waits until the connection is established. Fails as conn::wait_established does. */
	conn connect(const conn_private_data &private_data = {}, ec_ref ec = {}) && {
		conn it = std::move(*this).start(private_data, ec);
		if (it)
			it.wait_established(ec);
		return ec.failed() ? conn() : std::move(it);
	}

private:
	friend class endpoint;
	friend class peer;

	/* The request that a call makes with the configuration of the caller. */
	template <class Make>
	static conn_req made(detail::requested needs, const conn_cfg *cfg, const char *call, ec_ref ec, Make make) {
		conn_req it;
		if (cfg && !*cfg)
			ec.fail(errc::invalid, call, "the configuration is empty");
		else if (ec.ok(make(cfg ? cfg->get() : nullptr, &it.p_), call) && it) {
			needs.srq = cfg ? cfg->srq_ : nullptr;
			it.needs_ = std::make_shared<detail::requested>(std::move(needs));
		}
		return it;
	}
};

/**
 * rpma_ep: listens for connection requests. Made by peer::listen. Requests keep it alive, and listening,
 * until they are accepted or destroyed; connections do not.
 */
class endpoint {
public:
	endpoint() = default;
	endpoint(endpoint &&) = default;
	endpoint &operator=(endpoint &&) = default;

	explicit operator bool() const noexcept { return it_ != nullptr; }
	rpma_ep *get() const noexcept { return it_ ? it_->ep : nullptr; }

	/** Shuts it down now, or with its last request. */
	void reset() noexcept { it_.reset(); }

	int fd(ec_ref ec = {}) const { return RPMA_HPP_GET(int, rpma_ep_get_fd, get()); }

	/** rpma_ep_next_conn_req. Empty if the descriptor is non-blocking and no request is pending. */
	conn_req next(const conn_cfg *cfg = nullptr, ec_ref ec = {}) {
		detail::requested needs{it_ ? it_->peer : nullptr, nullptr, it_};
		return conn_req::made(std::move(needs), cfg, "rpma_ep_next_conn_req", ec, [this](auto with, auto req) {
			const int ret = rpma_ep_next_conn_req(get(), with, req);
			return ret == RPMA_E_NO_EVENT ? 0 : ret;
		});
	}

	/**
	 * Accepts the next request, and waits until the connection is established. Fails as conn_req::connect
	 * does.
	 */
	conn accept(const conn_private_data &private_data = {}, const conn_cfg *cfg = nullptr, ec_ref ec = {}) {
		conn_req req;
		while (!req) {
			const int descriptor = fd(ec);
			if (!ec.failed())
				detail::readable(descriptor, -1, ec);
			if (!ec.failed())
				req = next(cfg, ec);
			if (ec.failed())
				return {};
		}
		return std::move(req).connect(private_data, ec);
	}

private:
	friend class peer;
	std::shared_ptr<detail::listener> it_;
};

/* ---- peers ---- */

/** rpma_peer: a device of this host, from which all other objects are made. */
class peer : public detail::shared<rpma_peer> {
public:
	peer() = default;

	/** On a device of the program, which must outlive the peer and all that was made from it. */
	explicit peer(ibv_context *device, ec_ref ec = {}) {
		rpma_peer *it = nullptr;
		if (RPMA_HPP_DO(rpma_peer_new, device, &it))
			p_ = std::shared_ptr<rpma_peer>(it, [](rpma_peer *last) { rpma_peer_delete(&last); });
	}

	/** On the device that has this local address; see rpma_utils_get_ibv_context. */
	static peer open(const char *addr, ec_ref ec = {}) { return of(addr, RPMA_UTIL_IBV_CONTEXT_LOCAL, ec); }

	/** On the device through which this remote address is reached. */
	static peer open_to(const char *addr, ec_ref ec = {}) { return of(addr, RPMA_UTIL_IBV_CONTEXT_REMOTE, ec); }

	/** rpma_mr_reg. The region owns the memory. */
	local_region reg(rpma::memory memory, usage what, ec_ref ec = {}) {
		const bytes all(memory.data(), memory.size());
		return reg(all, what, std::make_shared<detail::registered>(detail::registered{p_, std::move(memory)}), ec);
	}

	/** The same for memory of the program, which must outlive the region. */
	local_region reg(bytes memory, usage what, ec_ref ec = {}) { return reg(memory, what, p_, ec); }

	endpoint listen(const char *addr, const char *port, ec_ref ec = {}) {
		endpoint it;
		auto parts = std::make_shared<detail::listener>();
		parts->peer = p_;
		if (is_port(port, "rpma_ep_listen", ec) && RPMA_HPP_DO(rpma_ep_listen, get(), addr, port, &parts->ep))
			it.it_ = std::move(parts);
		return it;
	}

	/**
	 * rpma_conn_req_new: a connection request to a remote peer. Receives can be posted before it is sent.
	 */
	conn_req request(const char *addr, const char *port, const conn_cfg *cfg = nullptr, ec_ref ec = {}) {
		if (!is_port(port, "rpma_conn_req_new", ec))
			return {};
		return conn_req::made({p_, nullptr, nullptr}, cfg, "rpma_conn_req_new", ec, [&](auto with, auto req) {
			return rpma_conn_req_new(get(), addr, port, with, req);
		});
	}

	/**
	 * Connects to a remote peer, and waits until the connection is established. Fails as
	 * conn_req::connect does.
	 */
	conn connect(const char *addr, const char *port, const conn_private_data &private_data = {},
		const conn_cfg *cfg = nullptr, ec_ref ec = {}) {
		conn_req req = request(addr, port, cfg, ec);
		return ec.failed() ? conn() : std::move(req).connect(private_data, ec);
	}

	/** rpma_srq_new, by default with the default configuration of librpma. */
	rpma::srq srq(const srq_cfg *cfg = nullptr, ec_ref ec = {}) {
		rpma::srq it;
		rpma_srq *queue = nullptr;
		if (cfg && !*cfg)
			ec.fail(errc::invalid, "rpma_srq_new", "the configuration is empty");
		else if (RPMA_HPP_DO(rpma_srq_new, get(), cfg ? cfg->get() : nullptr, &queue))
			it.p_ = std::shared_ptr<rpma_srq>(queue, [peer = p_](rpma_srq *last) { rpma_srq_delete(&last); });
		return it;
	}

private:
	/* A number that is no port would only be said to be an unsupported name. librpma checks all else. */
	static bool is_port(const char *port, const char *call, ec_ref ec) {
		char *end = nullptr;
		const long number = port ? std::strtol(port, &end, 10) : 0;
		return !port || end == port || *end != '\0' || (number >= 0 && number <= UINT16_MAX) ||
			ec.fail(errc::invalid, call, std::string("port ") + port + " is not in 0..65535");
	}

	static peer of(const char *addr, rpma_util_ibv_context_type type, ec_ref ec) {
		ibv_context *device = nullptr;
		return RPMA_HPP_DO(rpma_utils_get_ibv_context, addr, type, &device) ? peer(device, ec) : peer();
	}

	local_region reg(bytes memory, usage what, std::shared_ptr<const void> needs, ec_ref ec) {
		local_region it;
		if (RPMA_HPP_DO(rpma_mr_reg, get(), memory.data(), memory.size(), int(what), &it.p_)) {
			it.needs_ = std::move(needs);
			it.data_ = memory.data();
			it.size_ = memory.size();
			it.usage_ = what;
		}
		return it;
	}
};

} // namespace rpma

#if defined(__cpp_lib_span)
template <class Byte>
inline constexpr bool std::ranges::enable_borrowed_range<rpma::basic_bytes<Byte>> = true;
#endif

#undef RPMA_HPP_DO
#undef RPMA_HPP_ON
#undef RPMA_HPP_GET

#endif // LIBRPMA_HPP
