// use of deleted function\|call to implicitly-deleted copy constructor\|copy constructor is implicitly deleted
// SPDX-License-Identifier: BSD-3-Clause
#include <rpma.hpp>

rpma::local_region same(rpma::local_region &region) {
#ifdef RIGHT
	return std::move(region);
#else
	return region;
#endif
}
