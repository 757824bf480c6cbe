// Package engines gives tests real servers: Redis, PostgreSQL, MariaDB and an
// emulator of Cosmos DB to migrate from, and a Prometheus to ask. Each is on a
// free port of the loopback address, with a folder and, where it knows one, a
// password of its own. A server is killed by its
// process id when the test ends, and dies with the test binary. A missing program
// is never a reason to skip a test: it is installed, and if that fails the test
// fails. Under -short tests that need a server are left out.
//
// PostgreSQL and MariaDB refuse to run as root; for root they run as the users
// that their Debian packages create.
package engines
