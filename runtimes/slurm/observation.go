package slurm

import (
	"slices"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/accounting"
)

// observation is the state of an existing unit.
type observation struct {
	ctl      *control
	services []*runtimes.ServiceStatus // as controlServices

	remains string // the host, which has the state of the unit and a database, and no record of it
	lost    error  // the control host became unreachable
	jobs    snapshot
	fileReading
	key      runtimes.FileStat // the munge key on the controller
	keyFault string            // how it is not the cluster's
	accountingReading
	controllerReading
	workers map[string]workerReading
	wrong   string // how the installed version differs from the declared one
}

// controllerReading is what slurmctld has, and what of it is otherwise than its file and the config.
type controllerReading struct {
	serving      bool   // slurmctld answers
	silence      string // why it does not answer
	nodes        []node
	version      string
	mismatch     bool     // it runs a configuration other than its file
	byHand       []string // what a person changed by scontrol
	reservations []string // how they differ from the declared ones
	// reserved has the reservation that a person made and that a node is in now, by node.
	reserved map[string]handReservation
}

// accountingReading is the state of slurmdbd, and of the users.
type accountingReading struct {
	database   string              // why slurmdbd does not serve although it runs
	unwritable string              // why slurmdbd serves and cannot write
	accounting []accounting.Change // what it has otherwise than declared; nil: nothing, or unknown
	people     string              // how users differ from the declared ones; empty: no difference, or unknown
}

// fileReading is the state of the files of a complete stack.
type fileReading struct {
	modified map[string]string // how those differ that were changed or removed
	// directories of the controller that are otherwise than Berth made them, and how.
	directories map[string]string
	disks       []string   // of the controller, on which nothing can be written
	unrendered  error      // they cannot be rendered
	change      fileChange // what the record gives otherwise than the files that worked last
	fetched     fetched    // what workers have of them
}

type workerReading struct {
	err    error
	record workerRecord
	// isMissing: the host has no state of the worker, and none of its daemons runs.
	isMissing bool
	down      []string // daemons that do not run
	detail    string
	// outdated are daemons whose unit of systemd was changed.
	outdated []string
	wrong    string // how its installed version differs from the declared one
	lacks    string // what the host lacks of what a worker needs
	hasKey   bool   // it has the cluster's munge key
	earlier  string // which file its slurmd has not fetched
}

// modify notes how a file of the controller differs from what Berth wrote.
func (v *observation) modify(path, how string) {
	if v.modified == nil {
		v.modified = map[string]string{}
	}
	v.modified[path] = how
}

// runs reports whether a daemon of the control stack runs.
func (v *observation) runs(service string) bool {
	return v.services[slices.Index(controlServices(), service)].Running
}

// snapshot is the jobs of an observation.
type snapshot struct {
	*plan.Jobs
	// earliest has the start of the earliest running job of each node, seconds since 1970.
	earliest map[string]int64
	// launches has the held jobs that a node could not start, by node.
	launches map[string][]string
}

// handReservation is a reservation that a person made, at one of its nodes.
type handReservation struct {
	text          string
	isMaintenance bool // no job starts on the node
}
