# SPDX-License-Identifier: BSD-3-Clause
#
# Loading the program of each release with this library, with the others, and with the original. All functions
# are bound at the start, so that every missing one is detected.

# The number of functions of a release.
declare -A FUNCTIONS=([0.9]=57 [0.10]=71 [0.11]=69 [0.12]=68 [0.13]=69 [0.14]=68 [1.0]=84)

start_with() { # LIBDIR PROGRAM ARGS...
	LD_LIBRARY_PATH=$1 LD_BIND_NOW=1 RPMA_PROVIDER=soft "${@:2}"
}

# asks RELEASE: the program requires the soname, one node of it, and from that node exactly the release's
# functions.
asks() {
	local program=$OUT/$1/program node
	node=$(generate "$1" node)
	readelf -dW "$program" | grep -q '(NEEDED).*\[librpma\.so\.0\]' || die "librpma.so.0 is not needed"
	readelf -VW "$program" | awk '
		/File: / { ours = 0 }
		/File: librpma\.so\.0 / { ours = 1; next }
		ours && match($0, /Name: [A-Za-z0-9_.]+/) { print substr($0, RSTART + 6, RLENGTH - 6) }' >nodes
	echo "$node" | diff - nodes || die "other nodes are needed"
	nm -D --undefined-only --with-symbol-versions "$program" | awk '/rpma_/ { sub("@@", "@", $2); print $2 }' |
		sort >asked
	generate "$1" map | awk -v node="$node" '/rpma_/ { sub(";", "", $1); print $1 "@" node }' | sort >had
	diff had asked || die "other functions are needed"
	[ "$(wc -l <asked)" -eq "${FUNCTIONS[$1]}" ] || die "$(wc -l <asked) functions instead of ${FUNCTIONS[$1]}"
}

# finds RELEASE LIBDIR: every function, in that library, at the release's node.
finds() {
	local said
	said=$(start_with "$2" "$OUT/$1/program" names "$2/librpma.so.0") || die "status $?: $said"
	[ "$said" = "${FUNCTIONS[$1]} functions at $(generate "$1" node)" ] || die "$said"
}

# calls_it RELEASE: with a library whose functions only abort, the program starts, and aborts.
calls_it() {
	local queues=${QUEUES[$1]}
	ulimit -c 0
	start_with "$OUT/$1" "$OUT/$1/program" target "${queues%% *}" 127.0.0.1
	local status=$?
	[ $status -eq 134 ] || die "status $status instead of 134, SIGABRT"
}

# does_not_start RELEASE LIBDIR WHY: the loader refuses with this message.
does_not_start() {
	start_with "$2" "$OUT/$1/program" names "$2/librpma.so.0" >said 2>&1
	local status=$?
	cat said
	[ $status -ne 0 ] || die "it started"
	grep -qF "$3" said || die "the loader did not say: $3"
}

# Releases that share a node differ in their functions.
on_no_other() { # RELEASE
	local other node
	node=$(generate "$1" node)
	for other in $RELEASES; do
		[ "$other" != "$1" ] || continue
		if [ "$(generate "$other" node)" = "$node" ]; then
			does_not_start "$1" "$OUT/$other" "undefined symbol: rpma_" || return
		else
			does_not_start "$1" "$OUT/$other" "version \`$node' not found" || return
		fi
	done
}

run_loading() {
	local release
	for release in $RELEASES; do
		try "$release: asks for its node" 20 asks "$release"
		try "$release: finds every function" 20 finds "$release" "$LIBDIR"
		try "$release: calls the library" 20 calls_it "$release"
		try "$release: starts with no other release" 60 on_no_other "$release"
	done
}
