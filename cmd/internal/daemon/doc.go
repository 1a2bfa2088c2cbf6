// Package daemon is what `berth serve` and `berth sync` run: it reads berth.yaml,
// connects the packages of Berth for each estate, receives deliveries, and takes up
// changes of the configuration. It must not know what people type.
package daemon
