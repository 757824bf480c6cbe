// Package azurite runs Azurite, the emulator of Azure Storage, as a child
// process: it finds the program, starts it, waits until both of its services
// answer, and stops it. It is a tool for laptops and tests: Azurite keeps its
// tables as one JSON document that it writes every few seconds, so it loses the
// latest rows when it is killed and fails near a million rows.
package azurite
