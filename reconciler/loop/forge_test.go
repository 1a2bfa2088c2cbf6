package loop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/reconciler"
	"berth/reconciler/patch"
	"berth/reconciler/plan"
	"berth/reconciler/pulls"
	"berth/reconciler/report"
)

// forge is an in-memory forge: a write of equal content has no effect. Comments keep
// their data so that tests can read it.
type forge struct {
	mu     sync.Mutex
	pulls  []reconciler.PullRequest
	shown  map[int][]plan.Proposal // every plan rendered for a comment
	follow []plan.Rollout
	down   error
	fails  func(call string) error // error of a write; nil: no write fails

	checks   map[string]map[string]plan.Check // commit → name → newest check
	comments map[int]map[string]string        // pull request → part → text
	writes   []string                         // effective writes in order
	calls    int                              // write calls, with or without effect
	settled  []string

	approvers []string       // for every pull request
	asked     map[string]int // reads of the pull requests of a commit
	read      int            // reads of a pull request

	remarks     map[int][]reconciler.CommandComment
	answered    map[int64]bool // commands marked as answered in the comment
	reactions   map[int64]reconciler.Reaction
	permissions map[string]reconciler.Permission
}

func newForge() *forge {
	return &forge{
		asked: map[string]int{}, shown: map[int][]plan.Proposal{}, checks: map[string]map[string]plan.Check{},
		comments: map[int]map[string]string{},
		remarks:  map[int][]reconciler.CommandComment{}, answered: map[int64]bool{}, reactions: map[int64]reconciler.Reaction{},
		permissions: map[string]reconciler.Permission{},
	}
}

// render renders a record as a forge would, except that a comment stays data.
func render() pulls.Render {
	encode := func(v any) string {
		data, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		return string(data)
	}
	return pulls.Render{
		Checks: report.Checks, Key: report.Key, Lines: patch.Lines,
		Plan:    func(p plan.Proposal, _ plan.PullContext) string { return encode(p) },
		Rollout: func(r plan.Rollout) string { return encode(r) },
		Answer:  report.Answer,
	}
}

func (f *forge) Approvers(context.Context, reconciler.PullRequest) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.approvers, nil
}

func (f *forge) OpenPulls(context.Context) ([]reconciler.PullRequest, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []reconciler.PullRequest
	for _, p := range f.pulls {
		if p.Open {
			out = append(out, p)
		}
	}
	return out, f.down
}

func (f *forge) Pull(_ context.Context, n int) (reconciler.PullRequest, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.read++
	for _, p := range f.pulls {
		if p.Number == n {
			return p, f.down
		}
	}
	return reconciler.PullRequest{}, reconciler.ErrNotFound
}

func (f *forge) PullsOf(_ context.Context, commit string) ([]reconciler.PullRequest, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked[commit]++
	var out []reconciler.PullRequest
	for _, p := range f.pulls {
		if p.Merged && p.MergeCommit == commit {
			out = append(out, p)
		}
	}
	return out, f.down
}

// write records a write unless it fails. The caller holds mu.
func (f *forge) write(call string) error {
	if f.down != nil {
		return f.down
	}
	if f.fails != nil {
		if err := f.fails(call); err != nil {
			return err
		}
	}
	f.writes = append(f.writes, call)
	return nil
}

func (f *forge) Report(_ context.Context, commit string, c plan.Check) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if c.Key == "" || len(c.Key) > 200 || len([]rune(c.Title)) > 140 {
		return fmt.Errorf("invalid check: %+v", c)
	}
	if f.checks[commit][c.Name].Key == c.Key {
		return f.down
	}
	if err := f.write(fmt.Sprintf("check %s %s %s", c.Name, commit, c.Conclusion)); err != nil {
		return err
	}
	if f.checks[commit] == nil {
		f.checks[commit] = map[string]plan.Check{}
	}
	f.checks[commit][c.Name] = c
	return nil
}

func (f *forge) CancelChecks(_ context.Context, commit string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settled = append(f.settled, commit)
	return f.down
}

func (f *forge) Comment(_ context.Context, n int, c reconciler.Comment) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if !slices.ContainsFunc(f.pulls, func(p reconciler.PullRequest) bool { return p.Number == n }) {
		return reconciler.ErrNotFound
	}
	next := maps.Clone(f.comments[n])
	if next == nil {
		next = map[string]string{}
	}
	for part, text := range map[string]*string{"plan": c.Plan, "rollout": c.Rollout} {
		if text != nil {
			next[part] = *text
		}
	}
	for _, a := range c.Answers {
		if !f.answered[a.Command] {
			next["answers"] += a.Line + "\n"
			next["details"] = a.Details + "\n" + next["details"]
		}
	}
	if maps.Equal(next, f.comments[n]) &&
		!slices.ContainsFunc(c.Answers, func(a reconciler.Answer) bool { return !f.answered[a.Command] }) {
		return f.down
	}
	if err := f.write(fmt.Sprintf("comment %d", n)); err != nil {
		return err
	}
	if next["plan"] != f.comments[n]["plan"] {
		var p plan.Proposal
		if err := json.Unmarshal([]byte(next["plan"]), &p); err != nil {
			return err
		}
		f.shown[n] = append(f.shown[n], p)
	}
	if next["rollout"] != f.comments[n]["rollout"] {
		var r plan.Rollout
		if err := json.Unmarshal([]byte(next["rollout"]), &r); err != nil {
			return err
		}
		f.follow = append(f.follow, r)
	}
	f.comments[n] = next
	for _, a := range c.Answers {
		f.answered[a.Command] = true
	}
	return nil
}

func (f *forge) Commands(_ context.Context, since time.Time) ([]reconciler.CommandComment, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []reconciler.CommandComment
	for _, commands := range f.remarks {
		for _, r := range commands {
			if !r.When.Before(since) {
				r.Answered = f.answered[r.ID]
				out = append(out, r)
			}
		}
	}
	slices.SortFunc(out, func(a, b reconciler.CommandComment) int { return a.When.Compare(b.When) })
	return out, f.down
}

func (f *forge) CommandsOf(_ context.Context, n int) ([]reconciler.CommandComment, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := slices.Clone(f.remarks[n])
	for i := range out {
		out[i].Answered = f.answered[out[i].ID]
	}
	return out, f.down
}

func (f *forge) React(_ context.Context, r reconciler.CommandComment, with reconciler.Reaction) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.write(fmt.Sprintf("react %d %s", r.ID, with)); err != nil {
		return err
	}
	f.reactions[r.ID] = with
	return nil
}

func (f *forge) Permission(_ context.Context, login string) (reconciler.Permission, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.permissions[login], f.down
}

func (f *forge) set(prs ...reconciler.PullRequest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pulls = prs
}

func (f *forge) last(n int) (plan.Proposal, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ps := f.shown[n]
	if len(ps) == 0 {
		return plan.Proposal{}, false
	}
	return ps[len(ps)-1], true
}

// check returns the newest check of that name on a commit.
func (f *forge) check(commit, name string) plan.Check {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.checks[commit][name]
}

// written returns the writes that begin with prefix.
func (f *forge) written(prefix string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.writes), func(s string) bool { return !strings.HasPrefix(s, prefix) })
}
