// Package cli has the common command-line parts of Berth's programs: exit codes,
// output forms, tables, colors and safe text. It must not know the purpose of any
// command.
package cli
