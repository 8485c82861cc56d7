# SPDX-License-Identifier: BSD-3-Clause
#
# Two processes over software RDMA: the program of one release is the target, that of another, or the same, the
# initiator; each with every way to get completions in its release.

declare -A QUEUES=([0.9]="conn" [0.10]="conn cq" [0.11]="cq wc" [0.12]="wc" [0.13]="wc" [0.14]="wc" [1.0]="wc channel")

# connect TARGET QUEUE INITIATOR QUEUE: programs; their messages are in target.err and initiator.err.
connect() {
	local target initiator port
	export LD_LIBRARY_PATH=$LIBDIR LD_BIND_NOW=1 RPMA_PROVIDER=soft
	: >target.out
	"$OUT/$1" target "$2" 127.0.0.1 >>target.out 2>target.err &
	target=$!
	while ! grep -q '^listening ' target.out; do
		kill -0 $target 2>/dev/null || break
		sleep 0.01
	done
	port=$(sed -n 's/^listening //p' target.out)
	"$OUT/$3" initiator "$4" 127.0.0.1 "${port:-0}" >initiator.out 2>initiator.err &
	initiator=$!
	wait $initiator
	initiator_status=$?
	# without an initiator, the target would wait for one
	[ $initiator_status -eq 0 ] || { sleep 0.5; kill $target 2>/dev/null; }
	wait $target
	target_status=$?
}

# Both succeed and have verified something, without a message of the library or the loader.
pair() { # TARGET QUEUE INITIATOR QUEUE: releases
	local side status=0
	connect "$1/program" "$2" "$3/program" "$4"
	[ $target_status -eq 0 ] && [ $initiator_status -eq 0 ] || status=1
	for side in target initiator; do
		grep -q '^verified: ' $side.out || status=1
		[ ! -s $side.err ] || status=1
		sed "s/^/$side: /" $side.out $side.err
	done
	[ $status -eq 0 ] || die "target's status $target_status, initiator's $initiator_status"
}

# The program of 0.9 with its 24-byte struct, bound to the function of 0.10 with its 32 bytes: the program
# must detect that.
longer_struct() { # INITIATOR QUEUE
	connect 0.9/relinked conn "$1/program" "$2"
	[ $target_status -eq 1 ] || die "target's status $target_status instead of 1"
	grep -q 'memory after the fields of the completion' target.err || die "target: $(cat target.err)"
}

run_pairs() {
	local target initiator here there
	for target in $RELEASES; do
		for here in ${QUEUES[$target]}; do
			for initiator in $RELEASES; do
				for there in ${QUEUES[$initiator]}; do
					try "$target $here: written to by $initiator $there" 30 pair "$target" "$here" \
						"$initiator" "$there"
				done
			done
		done
	done
	try "0.9: notices a longer struct" 30 longer_struct 0.9 conn
	try "0.9: notices immediate data in a longer struct" 30 longer_struct 1.0 wc
}
