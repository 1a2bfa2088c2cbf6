package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/cmd/internal/cli"
	"berth/reconciler/gitrepo"
	"berth/reconciler/loop"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/schema"
)

// Why Once ends although an estate has not converged.
var (
	errStuck   = errors.New("waiting does not help")
	errTimeout = errors.New("the timeout passed")
)

// Outcome is the result of Once for one estate.
type Outcome struct {
	Summary
	Left     []string // resources that have not converged
	Warnings []string // about the work tree of a local repository
	Ran      bool     // false: the estate could not be started, and the summary is empty
	Err      error    // nil: converged
}

// Once converges all estates in parallel. It calls report for each estate at its end, one at a
// time, and progress once for each unit that it created, changed or deleted, with a line.
func (d *Daemon) Once(ctx context.Context, timeout time.Duration, progress func(string), report func(Outcome)) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, e := range d.all {
		wg.Go(func() {
			o := Outcome{Summary: Summary{Estate: e.config.Load().Estate}}
			err := e.withController(ctx, func(c *controller) error {
				c.work.progress = progress
				o = c.once(ctx, timeout)
				return o.Err
			})
			o.Err = err
			mu.Lock()
			defer mu.Unlock()
			report(o)
		})
	}
	wg.Wait()
}

// once runs the loop until the estate has converged, waiting does not help, or the
// timeout has passed.
func (d *controller) once(ctx context.Context, timeout time.Duration) Outcome {
	began := time.Now()
	left, err := d.converge(ctx, timeout)
	o := Outcome{Ran: true, Err: err}
	if err == nil || left != nil {
		var bad error
		o.Warnings, bad = d.config.uncommitted(ctx)
		o.Err = errors.Join(err, bad)
	}
	for _, l := range left {
		o.Left = append(o.Left, l.What)
	}
	o.Summary = d.summary(began)
	o.Converged = o.Err == nil
	if left != nil {
		o.Err = fmt.Errorf("not converged %s; %w; next: %s", o.Text(), o.Err, nextStep(left, o.Held))
	}
	return o
}

// converge is once without the summary. It returns the unconverged resources.
func (d *controller) converge(ctx context.Context, timeout time.Duration) ([]loop.Left, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	run, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- d.loop.Run(run) }()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			return d.interrupted(ctx, err)
		case <-tick.C:
		}
		if err := d.loop.OperatorError(); err != nil {
			stop()
			return nil, errors.Join(err, <-ended)
		}
		left := d.loop.Unsettled()
		stuck := !slices.ContainsFunc(left, func(l loop.Left) bool { return !l.Stuck })
		if !stuck && ctx.Err() == nil {
			continue
		}
		stop()
		if err := <-ended; err != nil {
			return nil, err
		}
		switch {
		case len(left) == 0:
			return nil, nil
		case stuck:
			return left, errStuck
		}
		return left, errTimeout
	}
}

// interrupted is the result of converge if the loop ended with err before everything was settled.
func (d *controller) interrupted(ctx context.Context, err error) ([]loop.Left, error) {
	switch {
	case err != nil:
		return nil, err
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return d.loop.Unsettled(), errTimeout
	}
	return nil, ctx.Err()
}

// nextStep returns the advice to the user for an estate that has not converged.
func nextStep(left []loop.Left, held int) string {
	switch {
	case slices.ContainsFunc(left, func(l loop.Left) bool { return !l.Stuck }):
		return "run it again, or with a longer --timeout"
	case held > 0:
		return "fix what is named above and commit it, or revert the commit; then run it again"
	}
	return "do what is named above, then run it again"
}

// uncommitted describes the uncommitted changes in a local repository's work tree.
// Berth reads only commits of its branch.
func (c *Config) uncommitted(ctx context.Context) (warnings []string, err error) {
	dir, ok := c.LocalRepository()
	if !ok {
		return nil, nil
	}
	w, err := gitrepo.WorkTreeState(ctx, dir)
	if err != nil || w == nil {
		return nil, err
	}
	if n := len(w.Changed); n > 0 {
		names := w.Changed
		if n > maxNames {
			names = append(slices.Clone(names[:maxNames]), "…")
		}
		warnings = append(warnings, fmt.Sprintf("%s in %s not committed, so not in force: %s; next: git add . && git commit",
			cli.Count(n, "file"), dir, strings.Join(names, ", ")))
	}
	if w.Branch != c.Repository.Branch {
		warnings = append(warnings, fmt.Sprintf("%s has %s checked out; Berth reads %s; next: git switch %s", dir, w.Branch,
			c.Repository.Branch, c.Repository.Branch))
	}
	return warnings, nil
}

// workLog records a controller's actions on instances.
type workLog struct {
	progress func(string) // gets a line for the first action on each unit
	mu       sync.Mutex
	done     map[schema.Key]string // "created", "changed" or "deleted"
}

// record is called after an action succeeded.
func (w *workLog) record(key schema.Key, verb plan.Verb) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done == nil {
		w.done = map[schema.Key]string{}
	}
	if w.done[key] == "" && w.progress != nil {
		defer func() { w.progress(w.done[key] + " " + key.ResourceName()) }()
	}
	switch verb {
	case plan.Create:
		w.done[key] = "created"
	case plan.Delete:
		w.done[key] = "deleted"
	default:
		if w.done[key] == "" {
			w.done[key] = "changed"
		}
	}
}

// named returns the instances that were created, changed or deleted, sorted.
func (w *workLog) named(what string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	names := []string{}
	for _, key := range slices.SortedFunc(maps.Keys(w.done), schema.Key.Compare) {
		if w.done[key] == what {
			names = append(names, key.ResourceName())
		}
	}
	return names
}

// recordingRuntime is a runtime whose successful actions are recorded.
type recordingRuntime struct {
	runtimes.Runtime
	work *workLog
}

// Unwrap returns the runtime itself, which may also be a runtimes.Meter.
func (r recordingRuntime) Unwrap() runtimes.Runtime { return r.Runtime }

// Apply implements runtimes.Runtime.
func (r recordingRuntime) Apply(ctx context.Context, c runtimes.Change) error {
	err := r.Runtime.Apply(ctx, c)
	if err == nil {
		r.work.record(c.Plan.Key, c.Action.Verb)
	}
	return err
}

// Summary is the state of an estate at the end of Once, and the changes made. Its
// JSON is a contract.
type Summary struct {
	Format    string             `json:"format"` // berth.sync/v1
	Estate    string             `json:"estate"`
	Converged bool               `json:"converged"`
	Commit    string             `json:"commit"` // of main, the last one decided; "": none
	Phases    map[plan.Phase]int `json:"phases"` // instances by phase
	Held      int                `json:"held"`   // documents
	Created   []string           `json:"created"`
	Changed   []string           `json:"changed"`
	Deleted   []string           `json:"deleted"`
	Seconds   float64            `json:"seconds"`
}

// summary returns the current state, and the changes since began.
func (d *controller) summary(began time.Time) Summary {
	s := Summary{
		Format: "berth.sync/v1", Estate: d.config.Estate, Phases: map[plan.Phase]int{},
		Created: d.work.named("created"), Changed: d.work.named("changed"), Deleted: d.work.named("deleted"),
		Seconds: time.Since(began).Round(100 * time.Millisecond).Seconds(),
	}
	view, ok := d.loop.View()
	if !ok {
		return s
	}
	s.Commit, s.Held = view.Main, len(view.Held)
	for _, key := range view.Units.Keys() {
		if p := view.Units.Get(key).Phase; p != plan.PhaseDeleted {
			s.Phases[p]++
		}
	}
	return s
}

// Text is the summary as one line.
func (s Summary) Text() string {
	took := time.Duration(s.Seconds * float64(time.Second)).Round(100 * time.Millisecond)
	if s.Commit == "" {
		return fmt.Sprintf("no commit was decided (%s)", took)
	}
	total := 0
	var counts []string
	for _, p := range slices.Sorted(maps.Keys(s.Phases)) {
		total += s.Phases[p]
		counts = append(counts, fmt.Sprintf("%d %s", s.Phases[p], p))
	}
	instances := "no instances"
	switch {
	case total == 1:
		instances = "1 instance " + strings.TrimPrefix(counts[0], "1 ")
	case len(counts) == 1:
		instances = strings.Replace(counts[0], " ", " instances ", 1)
	case total > 1:
		instances = fmt.Sprintf("%d instances (%s)", total, strings.Join(counts, ", "))
	}
	if s.Held > 0 {
		instances += fmt.Sprintf("; %s held", cli.Count(s.Held, "document"))
	}
	return fmt.Sprintf("at %.10s: %s; %s (%s)", s.Commit, instances, s.changes(), took)
}

// maxNames bounds how many names a line lists; more are counted.
const maxNames = 5

// changes lists the changes, or returns "no changes made".
func (s Summary) changes() string {
	var parts []string
	for _, done := range []struct {
		what  string
		names []string
	}{{"created", s.Created}, {"changed", s.Changed}, {"deleted", s.Deleted}} {
		switch n := len(done.names); {
		case n > maxNames:
			parts = append(parts, fmt.Sprintf("%s %d", done.what, n))
		case n > 0:
			parts = append(parts, done.what+" "+strings.Join(done.names, ", "))
		}
	}
	if len(parts) == 0 {
		return "no changes made"
	}
	return strings.Join(parts, "; ")
}
