// Package lab makes hosts on one machine. Each is a set of namespaces with its own
// processes, network address, host name, accounts, files, devices, sshd and
// berth-host. The changes of a host are kept in memory and removed with it.
//
// A lab is for tests, the demo and trials. The programs on its hosts are those of the
// machine. It must not know which runtime uses the hosts.
package lab
