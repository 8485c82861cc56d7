// no matching\|cannot convert\|could not convert\|no viable conversion
// SPDX-License-Identifier: BSD-3-Clause
#include <rpma.hpp>

#include <vector>
rpma::local_region dangling(rpma::peer &peer, std::vector<char> &kept) {
#ifdef RIGHT
	return peer.reg(kept, rpma::usage::send);
#else
	return peer.reg(std::vector<char>(64), rpma::usage::send);
#endif
}
