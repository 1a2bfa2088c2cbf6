// Package lab makes real hosts on one machine: each is a set of namespaces
// with its own processes, network address, host name, accounts, files and
// devices, its own sshd, and berth-host behind it. What a host changes is kept
// in memory and goes with it.
//
// A lab serves tests, the demo, and whoever wants a playground. It must not
// know what will run on its hosts: programs come from the machine they stand
// on, and what they are for is the runtimes' to know.
package lab
