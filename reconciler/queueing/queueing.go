// Package queueing answers for the queue of a unit: it finds the unit, the project's map of queues and
// the account of the caller, and asks the runtime of the unit (requirement B1).
//
// It must not know HTTP, any scheduler, or permissions, which the caller checks.
package queueing

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/schema"
	"berth/schema/queue"
)

// Options say what a Service works with. All are needed.
type Options struct {
	View func() (plan.View, bool)
	// Stamp returns what this daemon leads with; false: another daemon leads.
	Stamp  func() (runtimes.Stamp, bool)
	Queues map[string]runtimes.Queue // by runtime_backend; a backend without queues is missing
}

// Bounds of calls: the hosts answer the loop as well, and each project should get its turn.
const (
	perControl = 4 // calls at a time that ask one control plane's host
	perTenant  = 3 // of them by one tenant
	perCaller  = 2 // of those by one login, or by the service accounts of a project
	patience   = 10 * time.Second
)

// Service finds and asks queues. It keeps nothing but which calls are under way, and is safe for concurrent use.
type Service struct {
	o  Options
	mu sync.Mutex
	// slots are the calls under way by host, and by host and caller.
	slots map[string]chan struct{}
}

// New returns a Service.
func New(o Options) *Service { return &Service{o: o, slots: map[string]chan struct{}{}} }

// enter waits for a turn at the host of a control plane: as the caller, as the tenant, then as anybody.
// So the calls of one tenant leave a turn to others, however many people make them. The caller calls
// leave when its call has ended.
func (s *Service) enter(ctx context.Context, c Caller, at runtimes.QueueScope) (leave func(), err error) {
	control, _ := at.Unit.Control()
	tenant := control.Node + " " + c.Instance.Tenant
	var taken []func()
	leave = func() {
		for _, give := range taken {
			give()
		}
	}
	for _, bound := range []struct {
		name string
		size int
	}{{tenant + " " + cmp.Or(c.Login, c.Instance.ProjectID()), perCaller}, {tenant, perTenant}, {control.Node, perControl}} {
		give, err := s.take(ctx, bound.name, bound.size)
		if err != nil {
			leave()
			return nil, err
		}
		taken = append(taken, give)
	}
	return leave, nil
}

func (s *Service) take(ctx context.Context, name string, size int) (leave func(), err error) {
	s.mu.Lock()
	slot := s.slots[name]
	if slot == nil {
		slot = make(chan struct{}, size)
		s.slots[name] = slot
	}
	s.mu.Unlock()
	wait := time.NewTimer(patience)
	defer wait.Stop()
	select {
	case slot <- struct{}{}:
		return func() { <-slot }, nil
	case <-wait.C:
	case <-ctx.Done():
	}
	return nil, fmt.Errorf("%w: too many calls wait for this scheduler; ask less often", queue.ErrUnavailable)
}

// Caller asks for an instance of a project.
type Caller struct {
	Instance      schema.Key // its project is the caller's
	Login         string     // "" for a service account
	CorrelationID string
	Verb          string // for the ledgers of hosts, such as queue.submit
}

// scope is where a call goes.
type scope struct {
	runtimes.QueueScope
	queue runtimes.Queue
	view  plan.View
	leave func() // ends the call's turn at the host
}

// scope finds the queue of a call, and waits for its turn. The caller calls leave unless there is an error.
func (s *Service) scope(ctx context.Context, c Caller) (scope, error) {
	view, ok := s.o.View()
	stamp, leads := s.o.Stamp()
	if !ok || !leads {
		return scope{}, fmt.Errorf("%w: this daemon does not lead yet", queue.ErrUnavailable)
	}
	status := view.Units.Get(c.Instance)
	if status != nil && status.Observed != nil && status.Observed.Unit != nil && status.Observed.Unit.Effective.SharedRuntime != "" {
		u := status.Observed.Unit.Effective
		status = view.Units.Get(schema.SharedRuntimeKey(c.Instance.Tenant, u.ControlPlaneScope, u.SharedRuntime))
	}
	if status == nil || status.Observed == nil || status.Observed.Presence != plan.Present || status.Observed.Unit == nil {
		return scope{}, fmt.Errorf("%w: %s is not deployed yet", queue.ErrUnavailable, c.Instance)
	}
	if p := view.Desired.Platform.Pause; p != nil && !p.Suspend {
		return scope{}, fmt.Errorf("%w: the platform is paused: %s", queue.ErrUnavailable, p.Spec.Reason)
	}
	at := s.o.Queues[status.RuntimeBackend]
	if at == nil {
		return scope{}, fmt.Errorf("%w: %s has no queue: %s runs no jobs", queue.ErrDenied, c.Instance, cmp.Or(status.RuntimeBackend, "its backend"))
	}
	stamp.Commit, stamp.CorrelationID, stamp.Verb = status.Revision, c.CorrelationID, c.Verb
	m := view.Desired.QueueMapOf(status.App, c.Instance.Tenant, c.Instance.Project)
	to := runtimes.QueueScope{
		Unit: status.Observed.Unit, ProjectID: c.Instance.ProjectID(), Map: m, HasRunbook: m != nil && view.Desired.Publishes(m.Spec.Runbook), Stamp: stamp,
	}
	leave, err := s.enter(ctx, c, to)
	return scope{to, at, view, leave}, err
}

// Submit submits a job as the caller's Unix user.
func (s *Service) Submit(ctx context.Context, c Caller, key string, r queue.Request) (queue.Job, error) {
	at, err := s.scope(ctx, c)
	if err != nil {
		return queue.Job{}, err
	}
	defer at.leave()
	user, err := userOf(at.view.Desired, c)
	if err != nil {
		return queue.Job{}, err
	}
	if !slices.Contains(at.Unit.Effective.Users, user) {
		return queue.Job{}, fmt.Errorf("%w: the Unix user %s is not on the hosts of %s yet: wait until the last change of roles.yaml is applied", queue.ErrUnavailable, user.Name, c.Instance)
	}
	return at.queue.Submit(ctx, at.QueueScope, queue.Submission{ProjectID: at.ProjectID, User: user, IdempotencyKey: key, CorrelationID: c.CorrelationID, Request: r})
}

// userOf returns the Unix user of the caller in the role bindings of the project, else of its tenant.
func userOf(d *schema.Desired, c Caller) (schema.UnixUser, error) {
	if c.Login == "" {
		return schema.UnixUser{}, fmt.Errorf("%w: a service account has no Unix user, and a job runs as one: a person submits it", queue.ErrDenied)
	}
	var bindings []*schema.RoleBinding
	if t := d.Tenants[c.Instance.Tenant]; t != nil {
		if p := t.Projects[c.Instance.Project]; p != nil {
			bindings = append(bindings, p.Roles)
		}
		bindings = append(bindings, t.Roles)
	}
	for _, b := range bindings {
		if b == nil || b.Suspend {
			continue
		}
		for _, m := range b.Spec.Members {
			if strings.EqualFold(m.Login, c.Login) && m.UnixUser != nil {
				return *m.UnixUser, nil
			}
		}
	}
	return schema.UnixUser{}, fmt.Errorf("%w: %s has no unix_user in roles.yaml of %s or its tenant: add one", queue.ErrDenied, c.Login, c.Instance.ProjectID())
}

// Jobs lists the project's jobs.
func (s *Service) Jobs(ctx context.Context, c Caller) ([]queue.Job, error) {
	at, err := s.scope(ctx, c)
	if err != nil {
		return nil, err
	}
	defer at.leave()
	return at.queue.Jobs(ctx, at.QueueScope)
}

// Job returns a job of the project.
func (s *Service) Job(ctx context.Context, c Caller, ref queue.Ref) (queue.Job, error) {
	at, err := s.scope(ctx, c)
	if err != nil {
		return queue.Job{}, err
	}
	defer at.leave()
	return at.queue.Job(ctx, at.QueueScope, ref)
}

// Cancel ends a job of the project.
func (s *Service) Cancel(ctx context.Context, c Caller, ref queue.Ref) (queue.Job, error) {
	at, err := s.scope(ctx, c)
	if err != nil {
		return queue.Job{}, err
	}
	defer at.leave()
	return at.queue.Cancel(ctx, at.QueueScope, ref)
}

// Output returns the end of a job's output.
func (s *Service) Output(ctx context.Context, c Caller, ref queue.Ref, limit int) (queue.Output, error) {
	at, err := s.scope(ctx, c)
	if err != nil {
		return queue.Output{}, err
	}
	defer at.leave()
	return at.queue.Output(ctx, at.QueueScope, ref, limit)
}

// Nodes lists the nodes of the unit, with their names, which are the platform's.
func (s *Service) Nodes(ctx context.Context, c Caller) ([]queue.Node, error) {
	at, err := s.scope(ctx, c)
	if err != nil {
		return nil, err
	}
	defer at.leave()
	return at.queue.Nodes(ctx, at.QueueScope)
}

// Readiness says whether the queue takes jobs of the project, with the evidence.
func (s *Service) Readiness(ctx context.Context, c Caller) (queue.Readiness, error) {
	at, err := s.scope(ctx, c)
	if err != nil {
		return queue.Readiness{}, err
	}
	defer at.leave()
	r, err := at.queue.Readiness(ctx, at.QueueScope)
	if at.Map != nil {
		r.QueueMap = at.Map.Key.Name
	}
	return r, err
}
