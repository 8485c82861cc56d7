// SPDX-License-Identifier: BSD-3-Clause
// Writes a text to the memory that another process shares, and makes it persistent in its file.
#include <rpma.hpp>

#include <cstdio>
#include <cstring>
#include <string>

int main(int argc, char **argv) {
	if (argc != 4)
		return std::fprintf(stderr, "usage: %s ADDR PORT TEXT\n", argv[0]), 2;
	try {
		auto peer = rpma::peer::open_to(argv[1]);
		auto conn = peer.connect(argv[1], argv[2]);
		auto remote = conn.remote();
		std::string text(argv[3], std::strlen(argv[3]) + 1);
		auto local = peer.reg(text, rpma::usage::write_src);
		auto there = remote.slice(0, text.size()); // an error, if the text is too long

		// only the flush has a completion; it is that of the write, too
		conn.write(there, local.slice(), {nullptr, rpma::completes::on_error});
		conn.flush(there, rpma::flush_type::persistent);
		conn.cq().next().check();
		std::printf("%zu bytes are persistent\n", text.size());
		conn.close();
	} catch (const rpma::error &error) {
		return std::fprintf(stderr, "%s\n", error.what()), 1;
	}
}
