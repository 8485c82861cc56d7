/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpi.c -- ranks of MPI: a sum, and a ring of messages whose bytes are verified. Rank 0 prints "mpi works".
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#define ROUNDS 20
#define LENGTH (1 << 20)

static char out[LENGTH], in[LENGTH];

int
main(int argc, char **argv)
{
	int rank, ranks, mine, sum, bad = 0, all_bad;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	mine = rank + 1;
	MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	for (int round = 0; round < ROUNDS; round++) {
		/* short messages and long ones */
		int length = round % 2 == 0 ? LENGTH - round : 8 + round, from = (rank + ranks - 1) % ranks;

		memset(out, rank + round, (size_t)length);
		MPI_Sendrecv(out, length, MPI_BYTE, (rank + 1) % ranks, round, in, length, MPI_BYTE, from, round, MPI_COMM_WORLD,
			MPI_STATUS_IGNORE);
		for (int at = 0; at < length; at++)
			bad += in[at] != (char)(from + round);
	}
	MPI_Allreduce(&bad, &all_bad, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (sum != ranks * (ranks + 1) / 2 || all_bad != 0)
		printf("rank %d: sum %d, %d bad bytes\n", rank, sum, all_bad);
	else if (rank == 0)
		printf("mpi works: %d ranks\n", ranks);
	MPI_Finalize();
	return all_bad != 0;
}
