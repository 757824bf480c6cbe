// Package durable writes files that are there whole or not at all: written
// beside their place, synced, renamed, and the folder synced. What a crash
// leaves half-written is called *.tmp and is swept away by the next owner.
package durable
