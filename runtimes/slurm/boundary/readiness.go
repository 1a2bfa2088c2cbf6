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

// Proof is the evidence of one precondition: seen if it holds, otherwise what was seen instead.
func Proof(p Precondition, holds bool, seen, otherwise string) queue.Evidence {
	if !holds {
		seen = otherwise
	}
	return queue.Evidence{Precondition: string(p), Holds: holds, Seen: seen}
}

// Ready returns nil if each precondition holds and its evidence has a Seen. The error lists the other preconditions. It
// is a configuration error if only the policy or the runbook is wrong, which the platform corrects, else an
// operational failure: the same fault has the same class in each mode.
func Ready(evidence []queue.Evidence) error {
	var missing []string
	class := queue.ErrConfiguration
	for _, p := range Preconditions() {
		i := slices.IndexFunc(evidence, func(e queue.Evidence) bool { return e.Precondition == string(p) })
		isChecked := i >= 0 && evidence[i].Seen != ""
		switch {
		case !isChecked:
			missing = append(missing, string(p)+": not checked")
		case !evidence[i].Holds:
			missing = append(missing, string(p)+": "+evidence[i].Seen)
		default:
			continue
		}
		if !isChecked || p != PolicyValid && p != RunbookPublished {
			class = queue.ErrUnavailable
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: mode %s does not serve: %s", class, RealPolicy, strings.Join(missing, "; "))
	}
	return nil
}
