// Package cli has what the programs of Berth share on the command line: exit
// codes, output forms, tables, colors and safe text. It must not know what the
// commands are about.
package cli
