// Package schema holds the nouns of Berth: the documents people declare in an
// estate, what they mean after policy, and the findings about them.
//
// It is the vocabulary every other package speaks. It must not know YAML, CUE,
// Git, a forge, a host or a scheduler, and imports the standard library only.
//
// The words:
//
//   - An estate is the Git tree people declare things in (DESIGN §2).
//   - A document is one file of it; its Key says what it declares. Tenant and
//     project come from the path and nowhere else.
//   - Desired is everything one tree declares, valid documents only.
//   - Effective is Desired after policy: what shall run, with a Decision for
//     each thing that policy refused or changed.
//   - A Diagnostic is a finding at a place in a file.
package schema
