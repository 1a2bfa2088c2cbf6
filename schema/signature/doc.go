// Package signature proves by the signature of a commit who made it: a person whose key
// a role binding in force names, or a service account by a key of its own (requirements
// A9, B2).
//
// Only the keys that the estate declares count, not a keyring of the machine. The
// commit's own bytes are verified, so a signature covers exactly the tree, the parents
// and the message that the commit's id identifies.
//
// Findings has one code:
//
//	key.unusable   a declared key that proves nothing (warning; an error in the change that declares it)
//
// The package is pure. It knows no Git storage, forge, HTTP or scheduler, and reads no
// clock.
package signature
