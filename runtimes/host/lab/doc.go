// Package lab makes hosts on one machine. Each is a set of namespaces with a root
// filesystem of its own: its own processes, network address, host name, users, packages,
// devices, control groups, sshd and berth-host. The changes of a host are kept in memory
// and removed with it.
//
// A lab is for tests, the demo and trials. The root of a host starts as that of the
// machine, or as an image of a Debian suite. No init runs on a host.
//
// The hosts of a lab can be emulated machines instead: slower, but with systemd,
// control groups of version 2, and a disk that a reboot or a power loss keeps.
//
// The package must not know particular runtimes.
package lab
