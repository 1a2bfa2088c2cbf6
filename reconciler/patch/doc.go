// Package patch applies a patch to a tree without a work tree: it returns the estate
// with a change that is not committed yet.
//
// A patch is applied exactly, as a commit made of it would be: context at another
// line, or different from the patch, is a conflict at its place in the base. A patch
// is untrusted input, so its size, its paths and its modes are bounded before
// anything is read.
//
// The package must not know the meaning of the files. It has no effect: it writes
// nothing, not even objects.
package patch
