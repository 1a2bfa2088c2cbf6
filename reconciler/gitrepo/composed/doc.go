// Package composed is an estate whose tenants may have their own repositories
// (requirement F8). It fetches them and composes their trees with the platform's
// tree. The result is on a branch that only Berth writes and that is read like
// any estate.
//
// It must not know the meaning of documents, except through Composition.Document.
package composed
