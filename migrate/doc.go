// Package migrate moves a dataset from another store into an empty tree, in
// phases that each survive a crash:
//
//	read    records become entries, which are sorted on disk
//	check   the entries are counted, and keys that come twice are found, before
//	        anything is loaded
//	load    the entries go to the service as chunks of a bulk load session
//	verify  the tree is compared with what was loaded, if asked for
//
// A folder holds all that a run must find again: state.json, which is replaced
// as a whole, the sorted entries under spool, the chunk that is on its way, and
// rejects.ndjson. The state tells of an entry only once the entry is durable,
// and of a chunk before it is sent, so that it can be sent again byte for byte.
// How many chunks are loaded is what the service says.
//
// A source whose keys ascend bytewise can do without the sorting: its pages then
// become chunks, and position and chunk index are saved together.
package migrate
