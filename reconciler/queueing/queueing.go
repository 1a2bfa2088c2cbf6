// Package queueing answers for the queue of a unit: it finds the unit, the project's map of queues and
// the account of the caller, and asks the runtime of the unit (requirement B1). It answers also what a project used of its
// units until now. Reads are answered from the last observation of the whole unit, and show a project its own jobs only.
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

	"berth/reconciler/fair"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/schema"
	"berth/schema/queue"
	"berth/schema/usage"
)

// Options are the dependencies of a Service. All are needed, except Usage and Submitted.
type Options struct {
	View func() (plan.View, bool)
	// Stamp returns what this daemon leads with; false: another daemon leads.
	Stamp  func() (runtimes.Stamp, bool)
	Queues map[string]runtimes.Queue // by runtime_backend; a backend without queues is missing
	// Usage reads what jobs used of a unit until now; nil: no unit has usage.
	Usage func(ctx context.Context, unit schema.Key) (usage.LiveUsage, error)
	// Submitted is called after each submission, also one that is refused. requested is the queue that it named.
	Submitted func(c Caller, requested string, job queue.Job, err error)
}

// Bounds of calls: the hosts answer the loop as well, and each project should get its turn.
const (
	perControl = 4 // calls at a time that ask one control plane's host
	perTenant  = 3 // of them by one tenant
	perCaller  = 2 // of those by one login, or by the service accounts of a project
	patience   = 10 * time.Second
)

// Service finds, reads and asks queues. It keeps which calls are under way and the last observations, and is safe for
// concurrent use.
type Service struct {
	o     Options
	jobs  *observations[[]queue.Job] // of all projects
	nodes *observations[[]queue.Node]
	usage *observations[usage.LiveUsage] // of all projects
	mu    sync.Mutex
	// slots are the calls under way by host, and by host and caller.
	slots map[string]*fair.Slots
}

// New returns a Service.
func New(o Options) *Service {
	if o.Submitted == nil {
		o.Submitted = func(Caller, string, queue.Job, error) {}
	}
	return &Service{
		o: o, slots: map[string]*fair.Slots{}, jobs: newObservations[[]queue.Job](observeEvery, 0),
		nodes: newObservations[[]queue.Node](observeEvery, 0), usage: newObservations[usage.LiveUsage](usageEvery, observeEvery),
	}
}

// entry says for whom a call takes slots.
type entry struct {
	class  string // the tenant, or the kind of an observation for several
	owner  string // who takes turns in the class
	caller string
	tenant string // whose turn it is at hosts
}

// observationOf is the entry of an observation of a unit, with a class of its own.
func observationOf(unit schema.Key, class string) entry {
	return entry{class: class, owner: unit.Tenant, caller: unit.String(), tenant: unit.Tenant}
}

// enter waits for a free slot of the caller, then of the class, then of the host of the control plane. So the calls of one
// tenant leave slots to others, however many people make them. Owners take turns in a class, and classes at the host. The caller
// makes the call with the context that enter returns, and calls leave when it has ended.
func (s *Service) enter(ctx context.Context, u *plan.Unit, by entry) (call context.Context, leave func(), err error) {
	control, _ := u.Control()
	class := control.Node + " " + by.class
	var taken []func()
	leave = func() {
		for _, give := range taken {
			give()
		}
	}
	for _, bound := range []struct {
		name  string
		size  int
		owner string
	}{{class + " " + by.caller, perCaller, ""}, {class, perTenant, by.owner}, {control.Node, perControl, by.class}} {
		give, err := s.take(ctx, bound.name, bound.size, bound.owner)
		if err != nil {
			leave()
			return nil, nil, err
		}
		taken = append(taken, give)
	}
	return runtimes.WithTenant(ctx, by.tenant), leave, nil
}

func (s *Service) take(ctx context.Context, name string, size int, owner string) (leave func(), err error) {
	s.mu.Lock()
	slots := s.slots[name]
	if slots == nil {
		slots = fair.NewSlots(size)
		s.slots[name] = slots
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if leave, err = slots.Take(ctx, owner); err != nil {
		return nil, fmt.Errorf("%w: too many calls wait for this scheduler; ask less often", queue.ErrUnavailable)
	}
	return leave, nil
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
	key    unitKey
	tenant string // of the caller
	caller string // login; the service accounts of a project are one caller
	queue  runtimes.Queue
	view   plan.View
}

// entry is that of a call for the caller.
func (s scope) entry() entry {
	return entry{class: s.tenant, owner: s.caller, caller: s.caller, tenant: s.tenant}
}

// scope finds the queue of a call. It asks no host.
func (s *Service) scope(c Caller) (scope, error) {
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
		return scope{}, fmt.Errorf("%w: %s has no queue: %s runs no jobs", queue.ErrDenied, c.Instance,
			cmp.Or(status.RuntimeBackend, "its backend"))
	}
	stamp.Commit, stamp.CorrelationID, stamp.Verb = status.Revision, c.CorrelationID, c.Verb
	m := view.Desired.QueueMapOf(status.App, c.Instance.Tenant, c.Instance.Project)
	to := runtimes.QueueScope{
		Unit: status.Observed.Unit, ProjectID: c.Instance.ProjectID(), Map: m, HasRunbook: m != nil &&
			view.Desired.Publishes(m.Spec.Runbook), Stamp: stamp,
	}
	key := unitKey{status.Key, status.Revision, status.Attempt}
	return scope{to, key, c.Instance.Tenant, cmp.Or(c.Login, c.Instance.ProjectID()), at, view}, nil
}

// turn finds the queue of a call and waits for its turn at the host. The caller makes the call with the context that it returns,
// and calls leave unless there is an error.
func (s *Service) turn(ctx context.Context, c Caller) (call context.Context, at scope, leave func(), err error) {
	if at, err = s.scope(c); err != nil {
		return nil, scope{}, nil, err
	}
	call, leave, err = s.enter(ctx, at.Unit, at.entry())
	return call, at, leave, err
}

// changed notes that the caller may have changed the queue, also by a call that failed: its answer may be lost and its
// effect not.
func (s *Service) changed(at scope) {
	s.jobs.changed(at.key, at.caller)
	s.nodes.changed(at.key, at.caller)
}

// Submit submits a job as the caller's Unix user.
func (s *Service) Submit(ctx context.Context, c Caller, key string, r queue.Request) (queue.Job, error) {
	job, err := s.submit(ctx, c, key, r)
	s.o.Submitted(c, r.Queue, job, err)
	return job, err
}

func (s *Service) submit(ctx context.Context, c Caller, key string, r queue.Request) (queue.Job, error) {
	ctx, at, leave, err := s.turn(ctx, c)
	if err != nil {
		return queue.Job{}, err
	}
	defer leave()
	user, err := userOf(at.view.Desired, c)
	if err != nil {
		return queue.Job{}, err
	}
	if !slices.Contains(at.Unit.Effective.Users, user) {
		return queue.Job{}, fmt.Errorf("%w: the Unix user %s is not on the hosts of %s yet: wait until the last change of roles.yaml is "+
			"applied", queue.ErrUnavailable, user.Name, c.Instance)
	}
	defer s.changed(at)
	return at.queue.Submit(ctx, at.QueueScope,
		queue.Submission{ProjectID: at.ProjectID, User: user, IdempotencyKey: key, CorrelationID: c.CorrelationID, Request: r})
}

// userOf returns the Unix user of the caller in the role bindings of the project, else of its tenant.
func userOf(d *schema.Desired, c Caller) (schema.UnixUser, error) {
	if c.Login == "" {
		return schema.UnixUser{}, fmt.Errorf("%w: a service account has no Unix user, and a job runs as one: a person submits it",
			queue.ErrDenied)
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
	return schema.UnixUser{}, fmt.Errorf("%w: %s has no unix_user in roles.yaml of %s or its tenant: add one", queue.ErrDenied, c.Login,
		c.Instance.ProjectID())
}

// ask is a question of a runtimes.QueueReader for the whole unit.
type ask[T any] func(context.Context, *plan.Unit, runtimes.Stamp) (T, error)

// observe returns the last observation of a unit. A new one has a turn of its own among the calls to hosts: people of several tenants
// may wait for it, so that slow calls of one tenant must not delay it.
func observe[T any](ctx context.Context, s *Service, o *observations[T], at scope, live bool, ask ask[T]) (T, queue.Observation, error) {
	got, err := o.read(ctx, at.key, at.caller, live, func(ctx context.Context) (found T, err error) {
		ctx, leave, err := s.enter(ctx, at.Unit, observationOf(at.key.unit, "*")) // no tenant has this name
		if err != nil {
			return found, err
		}
		defer leave()
		return ask(ctx, at.Unit, at.Stamp)
	})
	return got.found, observedAt(got.at), err
}

// observedAt is an observation that began at a time, for an answer now.
func observedAt(at time.Time) queue.Observation {
	return queue.Observation{ObservedAt: at.UTC(), AgeSeconds: int(time.Since(at) / time.Second)}
}

// Jobs lists the project's jobs of the last observation. live: the unit is asked now.
func (s *Service) Jobs(ctx context.Context, c Caller, live bool) (queue.JobList, error) {
	at, err := s.scope(c)
	if err != nil {
		return queue.JobList{}, err
	}
	all, seen, err := observe(ctx, s, s.jobs, at, live, at.queue.Jobs)
	if err != nil {
		return queue.JobList{}, err
	}
	list := queue.JobList{Observation: seen, Items: []queue.Job{}}
	for i := range all {
		if all[i].ProjectID == at.ProjectID {
			list.Items = append(list.Items, all[i])
		}
	}
	return list, nil
}

// Job returns a job of the project: that of the last observation, else as the unit has it now. The unit is asked for the
// one job with live, for a job that the observation lacks, such as one that only the accounting has, and while the
// observation lacks an effect of the caller's: then one job is a shorter question than all.
func (s *Service) Job(ctx context.Context, c Caller, ref queue.Ref, live bool) (queue.ObservedJob, error) {
	at, err := s.scope(c)
	if err != nil {
		return queue.ObservedJob{}, err
	}
	if !live && !s.jobs.isBehind(at.key, at.caller) {
		all, seen, err := observe(ctx, s, s.jobs, at, false, at.queue.Jobs)
		if err != nil {
			return queue.ObservedJob{}, err
		}
		isAsked := func(j queue.Job) bool {
			return j.ProjectID == at.ProjectID && j.JobID == ref.JobID && (ref.Submitted.IsZero() || j.Submitted.Equal(ref.Submitted))
		}
		if i := slices.IndexFunc(all, isAsked); i >= 0 {
			return queue.ObservedJob{Job: all[i], Observation: seen}, nil
		}
	}
	ctx, leave, err := s.enter(ctx, at.Unit, at.entry())
	if err != nil {
		return queue.ObservedJob{}, err
	}
	defer leave()
	asked := time.Now()
	job, err := at.queue.Job(ctx, at.QueueScope, ref)
	if err == nil && job.ProjectID != at.ProjectID {
		err = fmt.Errorf("%w: job %s", queue.ErrNotFound, ref.JobID)
	}
	if err != nil {
		return queue.ObservedJob{}, err
	}
	return queue.ObservedJob{Job: job, Observation: observedAt(asked)}, nil
}

// Nodes lists the nodes of the unit at the last observation, with their names, which are the platform's. live: the
// unit is asked now.
func (s *Service) Nodes(ctx context.Context, c Caller, live bool) (queue.NodeList, error) {
	at, err := s.scope(c)
	if err != nil {
		return queue.NodeList{}, err
	}
	all, seen, err := observe(ctx, s, s.nodes, at, live, at.queue.Nodes)
	if err != nil {
		return queue.NodeList{}, err
	}
	return queue.NodeList{Observation: seen, Items: append([]queue.Node{}, all...)}, nil
}

// Cancel ends a job of the project.
func (s *Service) Cancel(ctx context.Context, c Caller, ref queue.Ref) (queue.Job, error) {
	ctx, at, leave, err := s.turn(ctx, c)
	if err != nil {
		return queue.Job{}, err
	}
	defer leave()
	defer s.changed(at)
	return at.queue.Cancel(ctx, at.QueueScope, ref)
}

// Output returns the end of a job's output.
func (s *Service) Output(ctx context.Context, c Caller, ref queue.Ref, limit int) (queue.Output, error) {
	ctx, at, leave, err := s.turn(ctx, c)
	if err != nil {
		return queue.Output{}, err
	}
	defer leave()
	return at.queue.Output(ctx, at.QueueScope, ref, limit)
}

// Readiness says whether the queue takes jobs of the project, with the evidence.
func (s *Service) Readiness(ctx context.Context, c Caller) (queue.Readiness, error) {
	ctx, at, leave, err := s.turn(ctx, c)
	if err != nil {
		return queue.Readiness{}, err
	}
	defer leave()
	r, err := at.queue.Readiness(ctx, at.QueueScope)
	if at.Map != nil {
		r.QueueMap = at.Map.Key.Name
	}
	return r, err
}
