package cluster

import "strings"

// Steps are what follows a change of files. A crash may interrupt them.
type Steps struct {
	Restart     bool `json:"restart,omitempty"`     // of slurmctld
	Workers     bool `json:"workers,omitempty"`     // a restart of the slurmd of each worker
	Reconfigure bool `json:"reconfigure,omitempty"` // so that nodes get slurmctld's files
	Database    bool `json:"database,omitempty"`    // a restart of slurmdbd
	Settle      bool `json:"settle,omitempty"`      // a check of the nodes after a start
}

// Or returns the steps of both.
func (o Steps) Or(p Steps) Steps {
	return Steps{o.Restart || p.Restart, o.Workers || p.Workers, o.Reconfigure || p.Reconfigure, o.Database || p.Database, o.Settle ||
		p.Settle}
}

// Without returns the steps of o that p lacks.
func (o Steps) Without(p Steps) Steps {
	return Steps{o.Restart && !p.Restart, o.Workers && !p.Workers, o.Reconfigure && !p.Reconfigure, o.Database && !p.Database, o.Settle &&
		!p.Settle}
}

func (o Steps) String() string {
	var words []string
	for _, w := range []struct {
		is   bool
		name string
	}{{o.Restart, "restart of slurmctld"}, {o.Workers, "restart of slurmd on the workers"}, {o.Reconfigure, "reconfigure"},
		{o.Database, "restart of slurmdbd"}, {o.Settle, "check of the nodes after a start"}} {
		if w.is {
			words = append(words, w.name)
		}
	}
	return strings.Join(words, ", ")
}
