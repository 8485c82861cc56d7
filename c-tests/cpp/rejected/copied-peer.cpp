// use of deleted function\|call to implicitly-deleted copy constructor\|copy constructor is implicitly deleted
// SPDX-License-Identifier: BSD-3-Clause
#include <rpma.hpp>

rpma::peer same(rpma::peer &peer) {
#ifdef RIGHT
	return std::move(peer);
#else
	return peer;
#endif
}
