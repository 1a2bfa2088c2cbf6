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
// mirror. It is safe for concurrent use.
type merger struct {
	*object.Reader
	checkGit func() error    // returns an error if git cannot be used; checked once
	branches func() []string // commits that must be readable; empty for a local view
	made     atomic.Int64    // merges since the scratch store was created
	merges   merges
	bases    object.Known[[2]string, string] // best common ancestor of two commits
	patches  object.Known[string, string]    // by the arguments of git
}

func newMerger(r *object.Reader) *merger {
	return &merger{Reader: r, checkGit: sync.OnceValue(object.Check), branches: func() []string { return nil }}
}

// Merge merges head into base as the forge would, without a work tree. It returns
// the merged tree, or the paths in conflict. The tree is stored outside the
// mirror, for at least an hour unless very many merges are made.
//
// The error is reconciler.ErrNotFound if a commit is missing or was removed;
// FetchPull fetches it again.
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

// whole reports whether all history is present. A shallow history may give
// another merge base.
func (r *merger) whole() bool { return !object.FileExists(filepath.Join(r.Mirror.Dir, "shallow")) }

// merged is the deterministic result of merging two commits.
type merged struct {
	tree      string // "" after a conflict
	conflicts []string
}

// maxMerged bounds the results in each of the two generations.
const maxMerged = 1000

// merges caches merge results: open pull requests are planned far more often than
// they or main change.
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

// forget clears the cache, because the merged trees may be gone.
func (m *merges) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now, m.old = nil, nil
}

// MergeBase returns the best common ancestor, or reconciler.ErrNotFound.
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

// Log lists the commits reachable from to and not from from. It lists at most
// limit commits, newest first, first parents only. An empty from excludes
// nothing.
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

// Known returns an error unless all ids are commits that git programs can read.
// It also keeps anything but 40 hex digits off git's command line.
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

// git runs git on the scratch repository, which borrows the mirror's objects. So
// configuration and attributes of the estate, or of a local repository, have no
// effect. It returns the exit status of git.
func (r *merger) git(ctx context.Context, args ...string) (stdout string, code int, err error) {
	var out bytes.Buffer
	code, err = r.gitTo(ctx, &out, args...)
	return out.String(), code, err
}

// gitTo is git with the output written to out.
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

// suspect marks the mirror as damaged if git cannot read the history of its
// branches. It runs after git died with err. The input of that command may be
// hostile, so its failure alone does not mean damage.
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

// repack combines the mirror's small packs, the smallest first, which keeps the
// total work small. The caller holds the mirror exclusively.
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

// Between returns the commits after from up to to, oldest first, first parents
// only, at most limit of them.
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

// PackOf returns a pack with the objects of wants that the known commits of haves
// do not contain.
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

// Shadowed returns no files, because the estate has one repository.
func (r *Repo) Shadowed(context.Context, string, string) ([]string, error) { return nil, nil }
