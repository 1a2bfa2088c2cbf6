package slurm

import "strings"

// steps are those of a change that a crash may interrupt.
type steps struct {
	Restart     bool `json:"restart,omitempty"`     // of slurmctld
	Workers     bool `json:"workers,omitempty"`     // a restart of the slurmd of each worker
	Reconfigure bool `json:"reconfigure,omitempty"` // so that nodes get slurmctld's files
	Database    bool `json:"database,omitempty"`    // a restart of slurmdbd
	Settle      bool `json:"settle,omitempty"`      // reconcileNodes after a start
}

// or returns the steps of both.
func (o steps) or(p steps) steps {
	return steps{o.Restart || p.Restart, o.Workers || p.Workers, o.Reconfigure || p.Reconfigure, o.Database || p.Database, o.Settle || p.Settle}
}

// without returns the steps of o that p lacks.
func (o steps) without(p steps) steps {
	return steps{o.Restart && !p.Restart, o.Workers && !p.Workers, o.Reconfigure && !p.Reconfigure, o.Database && !p.Database, o.Settle && !p.Settle}
}

func (o steps) String() string {
	var words []string
	for _, w := range []struct {
		is   bool
		name string
	}{{o.Restart, "restart of slurmctld"}, {o.Workers, "restart of slurmd on the workers"}, {o.Reconfigure, "reconfigure"}, {o.Database, "restart of slurmdbd"}, {o.Settle, "check of the nodes after a start"}} {
		if w.is {
			words = append(words, w.name)
		}
	}
	return strings.Join(words, ", ")
}
