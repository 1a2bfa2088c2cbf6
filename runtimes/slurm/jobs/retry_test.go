package jobs

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/schema"
	"berth/schema/queue"
)

// counted is a host that counts the calls of a program.
type counted struct {
	*tools
	program string
	calls   int
}

func (h *counted) Host(plan.Member) runtimes.Host { return h }

func (h *counted) Do(ctx context.Context, stamp runtimes.Stamp, ops ...runtimes.Op) ([]runtimes.Result, error) {
	for _, op := range ops {
		if op.Run != nil && op.Run.Program == h.program {
			h.calls++
		}
	}
	return h.tools.Do(ctx, stamp, ops...)
}

// A submission that gets no answer, or one without the id of a job, is sent at most three more
// times, after 100, 200 and 400 ms (requirement C7). One that is refused is not sent again.
func TestSubmissionIsRetriedThreeTimes(t *testing.T) {
	const unknown = "sbatch: error: Unable to contact slurm controller (connect failure)"
	for name, c := range map[string]struct {
		program string // that is called once a try
		host    tools
		calls   int
		waited  time.Duration
		want    error
	}{
		"host does not answer": {"squeue", tools{err: runtimes.ErrUnreachable}, 4, 700 * time.Millisecond, queue.ErrUnavailable},
		"slurmctld does not answer": {"sbatch", tools{answers: map[string]runtimes.Result{"sbatch": fails(unknown)}}, 4,
			700 * time.Millisecond, queue.ErrUnavailable},
		"answer without an id": {"sbatch", tools{answers: map[string]runtimes.Result{"sbatch": {}}}, 4, 700 * time.Millisecond,
			queue.ErrUnavailable},
		"answer with another's id": {"sbatch", tools{answers: map[string]runtimes.Result{"sbatch": {Data: []byte("77\n")}}}, 4,
			700 * time.Millisecond, queue.ErrUnavailable},
		"failure without a message": {"sbatch", tools{answers: map[string]runtimes.Result{"sbatch": {Exit: 1}}}, 4,
			700 * time.Millisecond, queue.ErrUnavailable},
		"estimate instead of an id": {"sbatch",
			tools{answers: map[string]runtimes.Result{"sbatch": {Stderr: []byte("sbatch: Job 7 to start at 2026-01-02T03:04:05")}}}, 1, 0,
			queue.ErrDenied},
		"refusal is not tried again": {"sbatch",
			tools{answers: map[string]runtimes.Result{"sbatch": fails("sbatch: error: QOSMaxSubmitJobPerUserLimit")}}, 1, 0,
			queue.ErrDenied},
		"list of jobs is not readable": {"squeue",
			tools{answers: map[string]runtimes.Result{"squeue": fails("slurm_load_jobs error: Socket timed out on send/recv operation")}},
			4, 700 * time.Millisecond, queue.ErrUnavailable},
	} {
		for _, mode := range []string{schema.ModePassthrough, schema.ModeStubPolicy} {
			t.Run(name+" in "+mode, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					host := &counted{tools: &c.host, program: c.program}
					began := time.Now()
					q := New(Options{Hosts: host, Cluster: func(schema.Key) string { return "north" },
						Account: func(*plan.Unit) string { return "members" }, Timeout: time.Minute,
						KeepsEnded: func(*plan.Unit) time.Duration { return time.Hour }, Now: time.Now})
					_, err := q.Submit(t.Context(), scope(mode, nil), ask("main"))
					require.ErrorIs(t, err, c.want)
					require.Equal(t, c.calls, host.calls)
					require.Equal(t, c.waited, time.Since(began))
				})
			})
		}
	}
}
