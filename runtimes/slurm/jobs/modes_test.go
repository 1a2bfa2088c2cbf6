package jobs

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/schema"
	"berth/schema/queue"
)

// tools is a host whose programs answer as scripted. The zero value is a healthy cluster without jobs; sbatch
// refuses each job.
type tools struct {
	answers map[string]runtimes.Result // by the first words of a call
	err     error                      // of each call
}

func (h *tools) Host(plan.Member) runtimes.Host { return h }
func (h *tools) Close() error                   { return nil }
func (h *tools) Name() string                   { return "ctl-7" }

func (h *tools) Do(_ context.Context, _ runtimes.Stamp, ops ...runtimes.Op) (all []runtimes.Result, err error) {
	if h.err != nil {
		return nil, h.err
	}
	for _, op := range ops {
		if op.Run == nil {
			all = append(all, runtimes.Result{})
			continue
		}
		call := strings.Join(append([]string{op.Run.Program}, op.Run.Args...), " ")
		answer := runtimes.Result{}
		for _, known := range []map[string]runtimes.Result{healthy(), h.answers} {
			for words, a := range known {
				if strings.HasPrefix(call, words) {
					answer = a
				}
			}
		}
		all = append(all, answer)
	}
	return all, nil
}

func healthy() map[string]runtimes.Result {
	return map[string]runtimes.Result{
		"scontrol ping":            {Data: []byte("Slurmctld(primary) at ctl-7 is UP\n")},
		"scontrol show partitions": {Data: []byte("PartitionName=main AllowAccounts=physics.lattice AllowQos=high State=UP\n")},
		"sacctmgr":                 {Data: []byte("north\n")},
		"sbatch":                   {Exit: 1, Stderr: []byte("sbatch: error: Batch job submission failed: Unspecified error\n")},
	}
}

func fails(text string) runtimes.Result { return runtimes.Result{Exit: 1, Stderr: []byte(text + "\n")} }

// scope is the project physics.lattice on a shared cluster, with a map in a mode.
func scope(mode string, change func(*schema.QueueMap)) runtimes.QueueScope {
	m := &schema.QueueMap{Spec: schema.QueueMapSpec{App: "slurm", Mode: mode, Runbook: "platform/queues/README.md",
		Queues: []schema.QueueMapping{{Queue: "main", Partition: "main", QOS: "high", MaxWalltimeMinutes: 60}}}}
	if change != nil {
		change(m)
	}
	unit := schema.EffectiveUnit{Key: schema.Key{Kind: schema.KindSharedRuntime, Tenant: "physics", Name: "pool"}}
	return runtimes.QueueScope{
		ProjectID: "physics.lattice", Map: m, HasRunbook: m.Spec.Runbook != "",
		Unit: &plan.Unit{Effective: unit,
			Members: []plan.Member{{Name: "controller-0", ControlPlane: true, Node: "ctl-7", Address: "10.0.0.7"}}},
	}
}

func newQueue(h *tools) *Queue {
	return New(Options{Hosts: h, Cluster: func(schema.Key) string { return "north" }, Account: func(*plan.Unit) string { return "members" },
		Timeout: time.Second, KeepsEnded: func(*plan.Unit) time.Duration { return time.Hour }, Now: time.Now})
}

func ask(name string) queue.Submission {
	return queue.Submission{ProjectID: "physics.lattice", User: schema.UnixUser{Name: "ada", UID: 2001},
		IdempotencyKey: queue.NewKey(time.Now(), "k"), Request: queue.Request{Script: "#!/bin/sh\n", Queue: name}}
}

// One fault has one class in each mode (requirement C3). A queue that only the person names is denied; what the map
// names is the platform's.
func TestFaultHasOneClassInEachMode(t *testing.T) {
	const passthrough, stub, real = schema.ModePassthrough, schema.ModeStubPolicy, schema.ModeRealPolicy
	each := []string{passthrough, stub, real}
	for name, c := range map[string]struct {
		host   tools
		change func(*schema.QueueMap)
		ask    func(*queue.Submission)
		modes  []string
		want   error
	}{
		"host does not answer": {host: tools{err: runtimes.ErrUnreachable}, modes: each, want: queue.ErrUnavailable},
		"slurmctld does not run": {host: tools{answers: map[string]runtimes.Result{"scontrol ping": fails("Slurmctld(primary) at ctl-7 " +
			"is DOWN"), "sbatch": fails("sbatch: error: Unable to contact slurm controller (connect failure)")}}, modes: each,
			want: queue.ErrUnavailable},
		"squeue times out": {host: tools{answers: map[string]runtimes.Result{"squeue": fails("slurm_load_jobs error: Socket timed " +
			"out on send/recv operation")}}, modes: each, want: queue.ErrUnavailable},
		"limit of the QoS": {host: tools{answers: map[string]runtimes.Result{"sbatch": fails("sbatch: error: " +
			"QOSMaxSubmitJobPerUserLimit")}}, modes: each, want: queue.ErrDenied},
		"queue nobody has": {host: tools{answers: map[string]runtimes.Result{"sbatch": fails("sbatch: error: invalid partition " +
			"specified: night")}}, ask: func(s *queue.Submission) {
			s.Queue = "night"
		}, modes: each, want: queue.ErrDenied},
		"name that is an option": {ask: func(s *queue.Submission) { s.Queue = "--uid=0" }, modes: each, want: queue.ErrDenied},
		"too much time": {host: tools{answers: map[string]runtimes.Result{"sbatch": fails("sbatch: error: Requested time limit is " +
			"invalid (missing or exceeds some limit)")}}, ask: func(s *queue.Submission) {
			s.Minutes = 61
		}, modes: each, want: queue.ErrDenied},
		"partition is gone": {host: tools{answers: map[string]runtimes.Result{"sbatch": fails("sbatch: error: invalid partition " +
			"specified: gone")}}, change: func(m *schema.QueueMap) {
			m.Spec.Queues[0].Partition = "gone"
		}, modes: []string{stub, real}, want: queue.ErrConfiguration},
		"QoS is gone": {host: tools{answers: map[string]runtimes.Result{"sbatch": fails("sbatch: error: Invalid qos specification")}},
			change: func(m *schema.QueueMap) {
				m.Spec.Queues[0].QOS = "gone"
			}, modes: []string{stub, real}, want: queue.ErrConfiguration},
		"account of another": {change: func(m *schema.QueueMap) { m.Spec.Queues[0].Account = "bio.genes" },
			modes: []string{stub, real}, want: queue.ErrConfiguration},
		"fallback is not a queue": {change: func(m *schema.QueueMap) { m.Spec.FallbackQueue = "night" },
			ask: func(s *queue.Submission) { s.Queue = "" }, modes: []string{stub, real}, want: queue.ErrConfiguration},
		"unknown mode": {change: func(m *schema.QueueMap) { m.Spec.Mode = "other" }, modes: each, want: queue.ErrConfiguration},
	} {
		for _, mode := range c.modes {
			s := ask("main")
			if c.ask != nil {
				c.ask(&s)
			}
			var job queue.Job
			var err error
			synctest.Test(t, func(t *testing.T) { job, err = newQueue(&c.host).Submit(t.Context(), scope(mode, c.change), s) })
			require.ErrorIs(t, err, c.want, "%s in %s", name, mode)
			require.Zero(t, job, name)
			for _, other := range []error{queue.ErrConfiguration, queue.ErrDenied, queue.ErrUnavailable} {
				require.Equal(t, other == c.want, errors.Is(err, other), "%s in %s: %v", name, mode, err)
			}
		}
	}
}

// Readiness shows the evidence of the refusal, before and while real-policy serves, and names no host
// (requirement C4).
func TestReadinessIsTheEvidenceOfTheRefusal(t *testing.T) {
	noRunbook := func(m *schema.QueueMap) { m.Spec.Runbook = "" }
	for name, c := range map[string]struct {
		host   tools
		change func(*schema.QueueMap)
		fails  string // precondition
		seen   string
	}{
		"ready": {},
		"slurmctld": {host: tools{answers: map[string]runtimes.Result{"scontrol ping": fails("Slurmctld(primary) at ctl-7 is " +
			"DOWN")}}, fails: "control plane reachable", seen: "Slurmctld(primary) at controller-0 is DOWN"},
		"munged": {host: tools{answers: map[string]runtimes.Result{"munge": fails("munge: Error: Failed to access socket")}},
			fails: "credentials of the environment readable", seen: "Failed to access socket"},
		"slurmdbd": {host: tools{answers: map[string]runtimes.Result{"sacctmgr": fails("sacctmgr: error: failed to open " +
			"persistent connection to host:10.0.0.7:7031")}}, fails: "dependencies healthy", seen: "host:controller-0:7031"},
		"another cluster": {host: tools{answers: map[string]runtimes.Result{"sacctmgr": {Data: []byte("south\n")}}},
			fails: "dependencies healthy", seen: "south"},
		"partition": {change: func(m *schema.QueueMap) { m.Spec.Queues[0].Partition = "gone" }, fails: "policy valid",
			seen: "partition gone"},
		"no runbook": {change: noRunbook, fails: "rollback runbook published", seen: "spec.runbook of the map is missing"},
		"host does not answer": {host: tools{err: runtimes.ErrUnreachable}, fails: "control plane reachable",
			seen: "the host of the control plane does not answer"},
	} {
		for _, mode := range []string{schema.ModeStubPolicy, schema.ModeRealPolicy} {
			q, at := newQueue(&c.host), scope(mode, c.change)
			r, err := q.Readiness(t.Context(), at)
			require.NoError(t, err, name)
			require.Len(t, r.Preconditions, 5, name)
			ready := true
			for _, e := range r.Preconditions {
				ready = ready && e.Holds
				require.NotEmpty(t, e.Seen, "%s: %s", name, e.Precondition)
				require.NotContains(t, e.Seen, "ctl-7", name)
				require.NotContains(t, e.Seen, "10.0.0.7", name)
				if e.Precondition == c.fails {
					require.False(t, e.Holds, name)
					require.Contains(t, e.Seen, c.seen, name)
				}
			}
			require.Equal(t, c.fails == "", ready, name)
			require.Equal(t, ready || mode == schema.ModeStubPolicy && c.host.err == nil, r.Serves, "%s in %s", name, mode)
			if mode != schema.ModeRealPolicy || c.host.err != nil {
				continue
			}
			_, err = q.Submit(t.Context(), at, ask("main"))
			for _, e := range r.Preconditions {
				if !e.Holds {
					require.ErrorContains(t, err, e.Precondition+": "+e.Seen, name)
				}
			}
			require.Equal(t, ready, !strings.Contains(err.Error(), "does not serve"), name)
		}
	}
	// A named page that is not in force counts as missing.
	at := scope(schema.ModeRealPolicy, nil)
	at.HasRunbook = false
	r, err := newQueue(&tools{}).Readiness(t.Context(), at)
	require.NoError(t, err)
	require.Equal(t, queue.Evidence{Precondition: "rollback runbook published",
		Seen: "platform/queues/README.md is neither a README.md in force below platform/ nor an https link"}, r.Preconditions[4])
	require.False(t, r.Serves)
}
