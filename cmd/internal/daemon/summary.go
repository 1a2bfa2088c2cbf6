package daemon

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	neturl "net/url"
	"path/filepath"
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

// newLogger logs for people on a terminal and as JSON otherwise. Durations carry
// their units in both.
func NewLogger(w io.Writer) *slog.Logger {
	if cli.IsTerminal(w) {
		return slog.New(slog.NewTextHandler(w, nil))
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration {
			a.Value = slog.StringValue(a.Value.Duration().String())
		}
		return a
	}}))
}

// workLog records what a daemon did to instances, for the summary of sync --once.
type workLog struct {
	mu   sync.Mutex
	done map[schema.Key]string // "created", "changed" or "deleted"
}

// record is called after an action succeeded.
func (w *workLog) record(key schema.Key, verb plan.Verb) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done == nil {
		w.done = map[schema.Key]string{}
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

// maxNames bounds how many instances the summary names; more are counted.
const maxNames = 5

// named returns the instances to which one thing was done, sorted.
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

// Apply implements runtimes.Runtime.
func (r recordingRuntime) Apply(ctx context.Context, c runtimes.Change) error {
	err := r.Runtime.Apply(ctx, c)
	if err == nil {
		r.work.record(c.Plan.Key, c.Action.Verb)
	}
	return err
}

// summary is what stands at the end of sync --once, and what was done.
type summary struct {
	Format    string             `json:"format"` // berth.sync/v1
	Estate    string             `json:"estate"`
	Converged bool               `json:"converged"`
	Commit    string             `json:"commit"` // of main, the last one decided; "": none was
	Phases    map[plan.Phase]int `json:"phases"` // instances by phase
	Held      int                `json:"held"`   // documents
	Created   []string           `json:"created"`
	Changed   []string           `json:"changed"`
	Deleted   []string           `json:"deleted"`
	Seconds   float64            `json:"seconds"`
}

// summary returns what stands now and what was done since began.
func (d *daemon) summary(began time.Time) summary {
	s := summary{
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

// text is the summary as one line.
func (s summary) text() string {
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
	stands := "no instances"
	switch {
	case total == 1:
		stands = "1 instance " + strings.TrimPrefix(counts[0], "1 ")
	case len(counts) == 1:
		stands = strings.Replace(counts[0], " ", " instances ", 1)
	case total > 1:
		stands = fmt.Sprintf("%d instances (%s)", total, strings.Join(counts, ", "))
	}
	if s.Held > 0 {
		stands += fmt.Sprintf("; %s held", cli.Count(s.Held, "document"))
	}
	return fmt.Sprintf("at %.10s: %s; %s (%s)", s.Commit, stands, s.work(), took)
}

// work is what was done, in words; "no changes made" if nothing was.
func (s summary) work() string {
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

// nextStep is what a person does about what is not converged.
func nextStep(left []loop.Left, held int) string {
	switch {
	case slices.ContainsFunc(left, func(l loop.Left) bool { return !l.Stuck }):
		return "run it again, or with a longer --timeout"
	case held > 0:
		return "fix what is named above and commit it, or revert the commit; then run it again"
	}
	return "do what is named above, then run it again"
}

// warnUncommitted tells what a local repository's work tree has that Berth does not
// read, since it reads commits of its branch only.
func (c *config) warnUncommitted(ctx context.Context, out io.Writer) error {
	dir, ok := LocalRepository("", c.Repository.URL)
	if !ok {
		return nil
	}
	w, err := gitrepo.WorkTreeState(ctx, dir)
	if err != nil || w == nil {
		return err
	}
	if n := len(w.Changed); n > 0 {
		_, err = fmt.Fprintf(out, "%s in %s not committed, so not in force: %s; next: git add . && git commit\n", cli.Count(n, "file"), dir, cli.Visible(firstNames(w.Changed)))
	}
	if err == nil && w.Branch != c.Repository.Branch {
		_, err = fmt.Fprintf(out, "%s has %s checked out; Berth reads %s; next: git switch %s\n", dir, w.Branch, c.Repository.Branch, c.Repository.Branch)
	}
	return err
}

// firstNames names the first of some things.
func firstNames(names []string) string {
	if len(names) > maxNames {
		return strings.Join(names[:maxNames], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}

// localRepository is the directory of a repository.url that is a path, which is
// relative to the file that says it, or a file:// URL.
func LocalRepository(config, url string) (dir string, ok bool) {
	if u, err := neturl.Parse(url); err == nil && u.Scheme == "file" {
		return u.Path, true
	}
	if strings.Contains(url, "://") {
		return "", false
	}
	if filepath.IsAbs(url) {
		return url, true
	}
	return filepath.Join(filepath.Dir(config), url), true
}
