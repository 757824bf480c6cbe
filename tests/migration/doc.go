// Package migration takes `lattice migrate` through whole migrations with the
// real programs: from real servers into a folder and into Azurite, killed and
// resumed at random moments, and compared entry by entry with what the test put
// into the source, by code that shares nothing with the tool.
package migration
