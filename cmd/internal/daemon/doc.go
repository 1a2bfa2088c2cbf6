// Package daemon implements `berth serve` and `berth sync`: it reads berth.yaml,
// connects the packages of Berth for each estate, receives deliveries, and applies
// changes of the configuration. It must not know the command line.
package daemon
