package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/schema/queue"
)

// job is a job of a unit. Its script is not run: it runs until it is cancelled or World.EndJob ends it.
type job struct {
	queue.Job
	Digest string `json:"digest"` // of the request
	Output []byte `json:"output,omitempty"`
}

var _ runtimes.Queue = (*Runtime)(nil)

// withQueue calls f with the jobs of a unit, and keeps what f returns.
func (r *Runtime) withQueue(ctx context.Context, applied *plan.Unit, s runtimes.Stamp, what string, f func(*unit) ([]job, error)) error {
	control, ok := applied.Control()
	if err := ctx.Err(); err != nil || !ok {
		return fmt.Errorf("%w: %s", queue.ErrUnavailable, what)
	}
	var failed error
	err := r.world.step(s, applied.Effective.Key, control.Node, what, func(u *unit) {
		if m := u.Members[control.Name]; !u.Complete || m.State != plan.Running {
			failed = fmt.Errorf("%w: %s does not run", queue.ErrUnavailable, control.Name)
			return
		}
		var left []job
		if left, failed = f(u); failed == nil {
			u.Queue = left
		}
	})
	if err != nil && !errors.Is(err, runtimes.ErrStaleEpoch) {
		err = fmt.Errorf("%w: %w", queue.ErrUnavailable, err)
	}
	if err != nil {
		return err
	}
	return failed
}

// Submit implements runtimes.Queue.
func (r *Runtime) Submit(ctx context.Context, at runtimes.QueueScope, s queue.Submission) (out queue.Job, err error) {
	if err := errors.Join(queue.CheckKey(s.IdempotencyKey), s.Check()); err != nil {
		return queue.Job{}, err
	}
	resolved := queue.Resolution{Adapter: "memory", RequestedQueue: s.Queue, ResolvedQueue: s.Queue}
	err = r.withQueue(ctx, at.Unit, at.Stamp, "submit", func(u *unit) ([]job, error) {
		for _, j := range u.Queue {
			if j.IdempotencyKey != s.IdempotencyKey || j.User != s.User.Name || j.ProjectID != s.ProjectID {
				continue
			}
			if j.Digest != s.Digest() {
				return nil, fmt.Errorf("%w: %q is that of job %s, whose request differs; use another key", queue.ErrConflict,
					s.IdempotencyKey, j.JobID)
			}
			out = j.Job
			return u.Queue, nil
		}
		if !slices.Contains(u.Applied.Effective.Users, s.User) {
			return nil, fmt.Errorf("%w: %s is not a user of the unit", queue.ErrDenied, s.User.Name)
		}
		now := time.Now().UTC().Truncate(time.Second)
		out = queue.Job{
			JobID: strconv.Itoa(len(u.Queue) + 1), Submitted: now, ProjectID: s.ProjectID, User: s.User.Name, Name: s.Name, Queue: s.Queue,
			State:          "RUNNING",
			IdempotencyKey: s.IdempotencyKey, Durability: queue.Durable, Run: queue.Run{Started: now, GPUs: s.GPUs, Minutes: s.Minutes},
		}
		for _, m := range u.Applied.Members {
			if !m.ControlPlane && u.Members[m.Name].State == plan.Running {
				out.Members = []string{m.Name}
				break
			}
		}
		if out.Members == nil {
			out.State, out.Reason, out.Started = "PENDING", "no worker runs", time.Time{}
		}
		return append(slices.Clone(u.Queue), job{Job: out, Digest: s.Digest()}), nil
	})
	if err == nil {
		out.Resolution = &resolved
	}
	return out, err
}

// Jobs implements runtimes.Queue.
func (r *Runtime) Jobs(ctx context.Context, applied *plan.Unit, s runtimes.Stamp) (all []queue.Job, err error) {
	err = r.withQueue(ctx, applied, s, "list jobs", func(u *unit) ([]job, error) {
		for _, j := range u.Queue {
			all = append(all, j.Job)
		}
		return u.Queue, nil
	})
	return all, err
}

// find returns the place of a job of the project.
func (u *unit) find(at runtimes.QueueScope, ref queue.Ref) (int, error) {
	i := slices.IndexFunc(u.Queue, func(j job) bool {
		return j.JobID == ref.JobID && j.ProjectID == at.ProjectID && (ref.Submitted.IsZero() || ref.Submitted.Equal(j.Submitted))
	})
	if i < 0 {
		return i, fmt.Errorf("%w: job %s", queue.ErrNotFound, ref.JobID)
	}
	return i, nil
}

// Job implements runtimes.Queue.
func (r *Runtime) Job(ctx context.Context, at runtimes.QueueScope, ref queue.Ref) (out queue.Job, err error) {
	err = r.withQueue(ctx, at.Unit, at.Stamp, "read a job", func(u *unit) ([]job, error) {
		i, err := u.find(at, ref)
		if err == nil {
			out = u.Queue[i].Job
		}
		return u.Queue, err
	})
	return out, err
}

// Cancel implements runtimes.Queue.
func (r *Runtime) Cancel(ctx context.Context, at runtimes.QueueScope, ref queue.Ref) (out queue.Job, err error) {
	err = r.withQueue(ctx, at.Unit, at.Stamp, "cancel a job", func(u *unit) ([]job, error) {
		i, err := u.find(at, ref)
		if err != nil {
			return nil, err
		}
		jobs := slices.Clone(u.Queue)
		if jobs[i].Ended.IsZero() {
			jobs[i].State, jobs[i].Ended = "CANCELLED", time.Now().UTC().Truncate(time.Second)
		}
		out = jobs[i].Job
		return jobs, nil
	})
	return out, err
}

// Output implements runtimes.Queue.
func (r *Runtime) Output(ctx context.Context, at runtimes.QueueScope, ref queue.Ref, limit int) (out queue.Output, err error) {
	err = r.withQueue(ctx, at.Unit, at.Stamp, "read an output", func(u *unit) ([]job, error) {
		i, err := u.find(at, ref)
		if err == nil {
			text := u.Queue[i].Output
			out = queue.Output{Text: text[max(0, len(text)-limit):], Truncated: len(text) > limit}
		}
		return u.Queue, err
	})
	return out, err
}

// Nodes implements runtimes.Queue.
func (r *Runtime) Nodes(ctx context.Context, applied *plan.Unit, s runtimes.Stamp) (all []queue.Node, err error) {
	err = r.withQueue(ctx, applied, s, "list nodes", func(u *unit) ([]job, error) {
		for _, m := range u.Applied.Members {
			state, ok := u.Members[m.Name]
			if !ok || m.ControlPlane {
				continue
			}
			n := queue.Node{Member: m.Name, Node: m.Node, State: []string{string(state.State)}, CPUs: m.CPUs}
			for _, g := range m.GPUs {
				n.GPUs += g.Count
			}
			all = append(all, n)
		}
		return u.Queue, nil
	})
	return all, err
}

// Readiness implements runtimes.Queue. The runtime has no modes: it needs its control plane only.
func (r *Runtime) Readiness(ctx context.Context, at runtimes.QueueScope) (queue.Readiness, error) {
	err := r.withQueue(ctx, at.Unit, at.Stamp, "check readiness", func(u *unit) ([]job, error) { return u.Queue, nil })
	out := queue.Readiness{Adapter: "memory", Serves: err == nil}
	seen := queue.Evidence{Precondition: "control plane reachable", Holds: err == nil, Seen: "the control plane runs"}
	if errors.Is(err, queue.ErrUnavailable) {
		seen.Seen, err = err.Error(), nil
	}
	out.Preconditions = []queue.Evidence{seen}
	return out, err
}
