// Package signature proves by a commit's signature who made it: a person whose
// key a role binding in force names, or a service account by a key of its own
// (requirements A9, B2; DESIGN §5).
//
// Only the keys that the estate declares count, never a keyring of the machine.
// What is verified is the commit's own bytes, so a signature says something of
// exactly the tree, the parents and the message that the commit's id stands for.
//
// Findings has one code:
//
//	key.unusable   a declared key that can prove nothing (warning)
//
// The package is pure. It must not know Git's storage, a forge, HTTP or a
// scheduler, and it reads no clock.
package signature
