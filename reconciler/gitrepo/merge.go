package gitrepo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/reconciler"
	"berth/reconciler/gitrepo/object"
)

// merger runs git programs on the scratch store, which borrows the objects of the
// mirror. Safe for concurrent use.
type merger struct {
	*object.Reader
	checkGit func() error    // whether the git program can be used; checked once
	branches func() []string // the commits that must be readable; of a local view none
	made     atomic.Int64    // merges since the scratch store was made
	merges   merges
	bases    object.Known[[2]string, string] // of two commits, their best common ancestor
	patches  object.Known[string, string]    // by the arguments of git
}

func newMerger(r *object.Reader) *merger {
	return &merger{Reader: r, checkGit: sync.OnceValue(object.Check), branches: func() []string { return nil }}
}

// Merge merges head into base as the forge would, without a work tree. It
// returns the merged tree, or the paths in conflict. What it makes is kept
// apart from the mirror, and for a while: an hour at least, unless very much is
// merged.
//
// The error is reconciler.ErrNotFound if a commit is not there, or not any more:
// FetchPull brings it again.
func (r *merger) Merge(ctx context.Context, base, head string) (tree string, conflicts []string, err error) {
	if err := r.Known(base, head); err != nil {
		return "", nil, fmt.Errorf("merge: %w", err)
	}
	pair := [2]string{base, head}
	if m, ok := r.merges.get(pair); ok && r.HasTree(m.tree) {
		return m.tree, slices.Clone(m.conflicts), nil
	}
	r.made.Add(1)
	defer func() {
		if err == nil && r.whole() {
			r.merges.put(pair, merged{tree, slices.Clone(conflicts)})
		}
	}()
	out, code, err := r.git(ctx, "merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", base, head)
	if err != nil {
		return "", nil, fmt.Errorf("merge %s into %s: %w", head, base, err)
	}
	fields := strings.Split(strings.TrimSuffix(out, "\x00"), "\x00")
	if _, err := object.ParseID(fields[0]); err != nil || code > 1 {
		return "", nil, fmt.Errorf("merge %s into %s: git merge-tree ended with status %d", head, base, code)
	}
	if code == 0 {
		return fields[0], nil, nil
	}
	conflicts = slices.DeleteFunc(fields[1:], func(s string) bool { return s == "" })
	slices.Sort(conflicts)
	return "", slices.Compact(conflicts), nil
}

// whole says whether all history is there: with more of it, two commits could have
// another base.
func (r *merger) whole() bool { return !object.FileExists(filepath.Join(r.Mirror.Dir, "shallow")) }

// merged is what merging two commits came to, which is the same each time.
type merged struct {
	tree      string // "": they conflict
	conflicts []string
}

// maxMerged bounds how many are remembered: the newest so many, and as many before
// them.
const maxMerged = 1000

// merges remembers merges: open pull requests are planned again far more often
// than they or main move.
type merges struct {
	mu       sync.Mutex
	now, old map[[2]string]merged
}

func (m *merges) get(pair [2]string) (merged, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if got, ok := m.now[pair]; ok {
		return got, true
	}
	got, ok := m.old[pair]
	return got, ok
}

func (m *merges) put(pair [2]string, what merged) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.now == nil || len(m.now) == maxMerged {
		m.now, m.old = map[[2]string]merged{}, m.now
	}
	m.now[pair] = what
}

// forget is for when what merges made may be gone.
func (m *merges) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now, m.old = nil, nil
}

// MergeBase is the best common ancestor; reconciler.ErrNotFound if there is
// none.
func (r *merger) MergeBase(ctx context.Context, a, b string) (string, error) {
	if err := r.Known(a, b); err != nil {
		return "", fmt.Errorf("merge base: %w", err)
	}
	pair := [2]string{a, b}
	if base, ok := r.bases.Get(pair); ok {
		return base, nil
	}
	out, code, err := r.git(ctx, "merge-base", a, b)
	if err != nil {
		return "", fmt.Errorf("merge base of %s and %s: %w", a, b, err)
	}
	if code == 1 {
		return "", fmt.Errorf("%s and %s have no common history: %w", a, b, reconciler.ErrNotFound)
	}
	h, err := object.ParseID(strings.TrimSpace(out))
	if err != nil || code != 0 {
		return "", fmt.Errorf("merge base of %s and %s: git ended with status %d", a, b, code)
	}
	if r.whole() {
		r.bases.Add(pair, h.String(), 10)
	}
	return h.String(), nil
}

// Log lists the commits reachable from to and not from from, newest first,
// first parents only, at most limit. An empty from excludes nothing.
func (r *merger) Log(ctx context.Context, from, to string, limit int) ([]reconciler.Commit, error) {
	ids := []string{to}
	if from != "" {
		ids = append(ids, from)
	}
	if err := r.Known(ids...); err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	if limit <= 0 {
		return nil, nil
	}
	args := []string{"rev-list", "--first-parent", "--max-count=" + strconv.Itoa(limit), to}
	if from != "" {
		args = append(args, "^"+from)
	}
	out, code, err := r.git(ctx, args...)
	if err == nil && code != 0 {
		err = fmt.Errorf("git rev-list ended with status %d", code)
	}
	if err != nil {
		return nil, fmt.Errorf("log %s..%s: %w", from, to, err)
	}
	var commits []reconciler.Commit
	for id := range strings.FieldsSeq(out) {
		h, err := object.ParseID(id)
		if err != nil {
			return nil, err
		}
		c, err := r.Commit(h)
		if err != nil {
			return nil, err
		}
		commits = append(commits, c.Public())
	}
	return commits, nil
}

// known says whether all ids are commits that are there, where git programs
// look. It is also what keeps anything but 40 hex digits from git's command
// line.
func (r *merger) Known(ids ...string) error {
	for _, id := range ids {
		h, err := object.ParseID(id)
		if err != nil {
			return err
		}
		if _, err := r.Commit(h); err != nil {
			return err
		}
		if !r.Current(h) {
			return fmt.Errorf("commit %s: %w any more; fetch it again", h, reconciler.ErrNotFound)
		}
	}
	return nil
}

// git runs git on the scratch repository, which borrows the mirror's objects;
// so neither configuration nor attributes of an estate, or of the repository
// looked at, take part. It returns the exit status where git ran to its end.
func (r *merger) git(ctx context.Context, args ...string) (stdout string, code int, err error) {
	var out bytes.Buffer
	code, err = r.gitTo(ctx, &out, args...)
	return out.String(), code, err
}

// gitTo is git with its output going to out.
func (r *merger) gitTo(ctx context.Context, out io.Writer, args ...string) (code int, err error) {
	if err := r.checkGit(); err != nil {
		return 0, err
	}
	code, err = r.gitOn(ctx, out, args...)
	if object.Died(err) {
		r.suspect(ctx, err)
	}
	return code, err
}

// suspect notes that the mirror is damaged if git cannot read where its branches
// stand, or their history, after git died with err. What git was asked for then may
// be anybody's, and odd: that is no reason to fetch everything anew.
func (r *merger) suspect(ctx context.Context, err error) {
	branches := r.branches()
	if len(branches) == 0 {
		return
	}
	for _, args := range [][]string{{"rev-list", "--quiet"}, {"rev-list", "--quiet", "--objects", "--no-walk"}} {
		if _, found := r.gitOn(ctx, io.Discard, append(args, branches...)...); object.Died(found) {
			r.Damaged("run git", errors.Join(err, found))
			return
		}
	}
}

// gitOn runs git for gitTo.
func (r *merger) gitOn(ctx context.Context, out io.Writer, args ...string) (code int, err error) {
	r.Swap.RLock()
	defer r.Swap.RUnlock()
	env := []string{"GIT_DIR=" + r.Scratch.Dir, object.AllocLimit(object.MaxMemory), "GIT_ALTERNATE_OBJECT_DIRECTORIES=" + strconv.Quote(filepath.Join(r.Mirror.Dir, "objects"))}
	if shallow := filepath.Join(r.Mirror.Dir, "shallow"); object.FileExists(shallow) {
		env = append(env, "GIT_SHALLOW_FILE="+shallow)
	}
	ctx, cancel := context.WithTimeout(ctx, object.Timeout)
	defer cancel()
	return object.ExecTo(ctx, nil, out, env, args...)
}

// repack puts the mirror's small packs together, the smallest first, so that
// the work done over time is small too. Nobody else may use the mirror.
func (r *merger) repack(ctx context.Context) error {
	if err := r.checkGit(); err != nil {
		return err
	}
	_, code, err := object.Run(ctx, []string{"GIT_DIR=" + r.Mirror.Dir}, "repack", "-q", "-d", "--geometric=2", "--no-write-bitmap-index")
	if err == nil && code != 0 {
		err = fmt.Errorf("git repack ended with status %d", code)
	}
	return err
}

// between are the commits after from to to, first parents only, oldest first, at
// most limit of them.
func (r *merger) Between(ctx context.Context, from, to plumbing.Hash, limit int) ([]plumbing.Hash, error) {
	out, code, err := r.git(ctx, "rev-list", "--first-parent", to.String(), "^"+from.String())
	if err == nil && code != 0 {
		err = fmt.Errorf("git rev-list ended with status %d", code)
	}
	if err != nil {
		return nil, err
	}
	lines := strings.Fields(out)
	lines = lines[max(0, len(lines)-limit):]
	ids := make([]plumbing.Hash, 0, len(lines))
	for _, line := range slices.Backward(lines) {
		h, err := object.ParseID(line)
		if err != nil {
			return nil, err
		}
		ids = append(ids, h)
	}
	return ids, nil
}

// packOf is a pack of what wants hold and haves, where they are known, do not.
func (r *merger) PackOf(ctx context.Context, wants, haves []plumbing.Hash) ([]byte, error) {
	if err := r.checkGit(); err != nil {
		return nil, err
	}
	var in strings.Builder
	for _, h := range wants {
		in.WriteString(h.String() + "\n")
	}
	for _, h := range haves {
		if r.Mirror.Has(h) {
			in.WriteString("^" + h.String() + "\n")
		}
	}
	r.Swap.RLock()
	defer r.Swap.RUnlock()
	ctx, cancel := context.WithTimeout(ctx, object.Timeout)
	defer cancel()
	out, code, err := object.Execute(ctx, strings.NewReader(in.String()), []string{"GIT_DIR=" + r.Mirror.Dir, object.AllocLimit(object.MaxMemory)},
		"-c", "core.bigFileThreshold=1m", "-c", "pack.threads=1", "pack-objects", "-q", "--revs", "--stdout")
	if err == nil && code != 0 {
		err = fmt.Errorf("git pack-objects ended with status %d", code)
	}
	return []byte(out), err
}

// Shadowed is nothing in an estate of one repository.
func (r *Repo) Shadowed(context.Context, string, string) ([]string, error) { return nil, nil }
