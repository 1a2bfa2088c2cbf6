package slurm_test

import (
	"fmt"
	"testing"
	"time"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/runtimetest"
	"berth/schema"
)

// TestSlurmConformance runs the conformance suite with real Slurm on hosts that are
// reached over SSH.
func TestSlurmConformance(t *testing.T) {
	t.Parallel()
	s := newStageOf(t, 3)
	s.haveOwnFiles(t)
	runtimetest.Run(t, runtimetest.Harness{
		New:     func() runtimes.Runtime { return s.runtime(t) },
		Control: s.control, Workers: s.workers,
		Instance: func(i schema.EffectiveUnit) schema.EffectiveUnit {
			i.RuntimeBackend, i.SoftwareVersion = "slurm", string(s.version)
			i.Config = []byte(`{"partitions":[{"name":"main","default":true}],"scheduler":{"interval_seconds":30},"identity":"managed"}`)
			return i
		},
		SetReachable: s.hosts.setReachable,
		FailStep:     s.hosts.failStep,
		Kill:         s.kill,
		Fingerprint:  s.fingerprint,
		Starts:       func(t *testing.T, u plan.Unit) string { return fmt.Sprint(s.services(t, u)) },
		Remains:      func(t *testing.T, u plan.Unit) []string { return s.remains(t, u) },
		Snapshot:     s.snapshot,
		Occupy:       s.occupy,
		Timeout:      2 * time.Minute,
	})
}
