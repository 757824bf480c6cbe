package tree

import "errors"

// ErrReshardInProgress: a reshard to another number of shards is running.
var ErrReshardInProgress = errors.New("a reshard to another shard count is in progress")

// ReshardStatus is how far the change of a tree's shard count has come.
type ReshardStatus struct {
	// Complete says that no reshard is running.
	Complete bool
	// Start is the number of shards when the reshard was asked for, Current the
	// number that own slots now, Target the number wanted. When no reshard is
	// running all three are the current number.
	Start, Current, Target int
}
