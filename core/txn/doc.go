// Package txn keeps the decisions of atomic batches that span shards: one row
// for each transaction, whose change from pending to committed is the moment at
// which the batch happens.
//
// A transaction is begun by its row, then prepared on its shards, then decided
// in the row, and then the shards are told: two-phase commit with presumed abort
// (Mohan, Lindsay, Obermarck, "Transaction management in the R* distributed
// database management system", 1986), whose coordinator may vanish at any moment,
// because anybody can read the row, and abort what is overdue. Nobody waits for
// a process.
//
// Conflicts follow wound-wait (Rosenkrantz, Stearns, Lewis, "System level
// concurrency control for distributed database systems", 1978): who started
// earlier aborts who started later, and who started later waits. So there is no
// deadlock, and the oldest always gets through.
//
// A row serves all attempts of one batch, one after the other. The id of an
// attempt names its row and its number, so that what an earlier attempt left
// behind is known to be void.
package txn
