// Package azuretable is the store.Table over Azure Table storage.
//
// A row is one entity: PartitionKey, RowKey, Len (the payload's length) and the
// payload in binary properties P0, P1, … of 63,999 bytes each. A transaction of
// one operation is a plain entity request; one of several is an entity-group
// transaction, all of it on one partition.
//
// The requests go through the pipeline of azcore, which authenticates and
// traces; bodies and answers are written and read here. The client of aztables
// hides what the contract needs: the ETags of a transaction, which of its
// operations failed and why, and whether its answer was complete. It also costs
// several times as much per row. It still makes the table.
package azuretable
