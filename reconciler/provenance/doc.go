// Package provenance finds out who made each commit of main: the merged pull
// request that brought it, or else its signature, and what the commit asks for in
// its trailers.
//
// It must not know how a decision is carried out, what runs on hosts, or how
// anything is shown.
package provenance
