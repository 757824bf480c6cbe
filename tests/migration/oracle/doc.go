// Package oracle makes datasets for migrations, puts them into sources, and
// knows what a tree must hold afterwards: each record is made of a seed and its
// number, so that nothing need be remembered. It shares nothing with the code
// that migrates.
package oracle
