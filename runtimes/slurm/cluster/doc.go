// Package cluster describes the wanted Slurm cluster and the effects of a change. It is pure: a Cluster follows from a Declaration,
// and from it follow the files of its control stack (Files), its accounting, its reservations, and the impact of each verb of a plan
// (Rules). The plan shows an impact, the host gets the files, and an observation compares with both: all three derive them here.
//
//	config.cue ─▶ Config ─┐
//	unit, workers, users ─┴▶ Cluster ─▶ Files, Accounting, WantedReservations
//	                          two of them ─▶ change ─▶ Steps, plan.Impact
//
// It must not know a host, a context, a record or a call of Slurm's tools. The output of slurmctld comes as values of package cli.
package cluster
