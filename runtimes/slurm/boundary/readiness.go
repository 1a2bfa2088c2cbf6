package boundary

import (
	"fmt"
	"slices"
	"strings"

	"berth/schema/queue"
)

// Precondition must hold before RealPolicy serves (requirement C4).
type Precondition string

// The five preconditions of CUT.
const (
	ControlPlaneReachable Precondition = "control plane reachable"
	CredentialsReadable   Precondition = "credentials of the environment readable"
	PolicyValid           Precondition = "policy valid"
	DependenciesHealthy   Precondition = "dependencies healthy"
	RunbookPublished      Precondition = "rollback runbook published"
)

// Preconditions lists the five, in the order of CUT.
func Preconditions() []Precondition {
	return []Precondition{ControlPlaneReachable, CredentialsReadable, PolicyValid, DependenciesHealthy, RunbookPublished}
}

// Evidence is the result of the check of one precondition.
type Evidence struct {
	Precondition Precondition `json:"precondition"`
	Holds        bool         `json:"holds"`
	Seen         string       `json:"seen"` // output of the check, such as the answer of a ping
}

// Ready returns nil if each precondition holds and its Evidence has a Seen. The error is an operational
// failure and lists the other preconditions.
func Ready(evidence []Evidence) error {
	var missing []string
	for _, p := range Preconditions() {
		i := slices.IndexFunc(evidence, func(e Evidence) bool { return e.Precondition == p })
		switch {
		case i < 0 || evidence[i].Holds && evidence[i].Seen == "":
			missing = append(missing, string(p)+": not checked")
		case !evidence[i].Holds:
			missing = append(missing, string(p)+": "+evidence[i].Seen)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: mode %s does not serve: %s", queue.ErrUnavailable, RealPolicy, strings.Join(missing, "; "))
	}
	return nil
}
