package auth

import (
	"fmt"
	"slices"
)

// Role is what a credential may do. Reader, writer and admin include each
// other in this order; internal stands apart.
type Role uint8

// The roles. The zero value may do nothing.
const (
	RoleNone Role = iota
	// RoleReader reads entries, and what describes trees.
	RoleReader
	// RoleWriter also changes entries.
	RoleWriter
	// RoleAdmin also creates, changes and deletes trees.
	RoleAdmin
	// RoleInternal runs what stands under /internal, and nothing else.
	RoleInternal
)

var roleNames = []string{RoleNone: "none", RoleReader: "reader", RoleWriter: "writer", RoleAdmin: "admin", RoleInternal: "internal"}

// String returns the name of the role.
func (r Role) String() string {
	if int(r) < len(roleNames) {
		return roleNames[r]
	}
	return fmt.Sprintf("Role(%d)", uint8(r))
}

// ParseRole returns the role of a name, spelt exactly.
func ParseRole(name string) (Role, error) {
	if i := slices.Index(roleNames, name); i > 0 {
		return Role(i), nil
	}
	return RoleNone, fmt.Errorf("a role is one of reader, writer, admin, internal")
}

// Includes reports whether r may do what needs the role needed. Nobody may do
// what needs RoleNone: that is what nobody thought about.
func (r Role) Includes(needed Role) bool {
	if needed == RoleNone || r == RoleInternal || needed == RoleInternal {
		return needed != RoleNone && r == needed
	}
	return r >= needed
}
