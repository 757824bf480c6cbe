// Package subprocess runs a server as a child that does not outlive its parent,
// where the system can see to that.
package subprocess
