package gitrepo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/reconciler"
)

// gitTimeout bounds one run of the git program; it works on local files.
const gitTimeout = time.Minute

// mergeMemory bounds one allocation of a merge, which holds files whole.
const mergeMemory = 4 * maxObject

// Merge merges head into base as the forge would, without a work tree. It
// returns the merged tree, or the paths in conflict. What it makes is kept
// apart from the mirror, and for a while: an hour at least, unless very much is
// merged.
//
// The error is reconciler.ErrNotFound if a commit is not there, or not any more:
// FetchPull brings it again.
func (r *Repo) Merge(ctx context.Context, base, head string) (tree string, conflicts []string, err error) {
	if err := r.known(base, head); err != nil {
		return "", nil, fmt.Errorf("merge: %w", err)
	}
	pair := [2]string{base, head}
	if m, ok := r.merges.get(pair); ok && r.hasTree(m.tree) {
		return m.tree, slices.Clone(m.conflicts), nil
	}
	r.use.merges.Add(1)
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
	if _, err := parseID(fields[0]); err != nil || code > 1 {
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
func (r *Repo) whole() bool { return !fileExists(filepath.Join(r.mirror.dir, "shallow")) }

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

// hasTree says whether a tree that a merge made is still there; the scratch store
// is made anew now and then. A conflict needs none.
func (r *Repo) hasTree(id string) bool {
	if id == "" {
		return true
	}
	h, err := parseID(id)
	if err != nil {
		return false
	}
	r.swap.RLock()
	defer r.swap.RUnlock()
	return r.mirror.has(h) || r.scratch.has(h)
}

// MergeBase is the best common ancestor; reconciler.ErrNotFound if there is
// none.
func (r *Repo) MergeBase(ctx context.Context, a, b string) (string, error) {
	if err := r.known(a, b); err != nil {
		return "", fmt.Errorf("merge base: %w", err)
	}
	pair := [2]string{a, b}
	if base, ok := r.bases.get(pair); ok {
		return base, nil
	}
	out, code, err := r.git(ctx, "merge-base", a, b)
	if err != nil {
		return "", fmt.Errorf("merge base of %s and %s: %w", a, b, err)
	}
	if code == 1 {
		return "", fmt.Errorf("%s and %s have no common history: %w", a, b, reconciler.ErrNotFound)
	}
	h, err := parseID(strings.TrimSpace(out))
	if err != nil || code != 0 {
		return "", fmt.Errorf("merge base of %s and %s: git ended with status %d", a, b, code)
	}
	if r.whole() {
		r.bases.add(pair, h.String(), 10)
	}
	return h.String(), nil
}

// Log lists the commits reachable from to and not from from, newest first,
// first parents only, at most limit. An empty from excludes nothing.
func (r *Repo) Log(ctx context.Context, from, to string, limit int) ([]reconciler.Commit, error) {
	ids := []string{to}
	if from != "" {
		ids = append(ids, from)
	}
	if err := r.known(ids...); err != nil {
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
		h, err := parseID(id)
		if err != nil {
			return nil, err
		}
		c, err := r.commit(h)
		if err != nil {
			return nil, err
		}
		commits = append(commits, c.public())
	}
	return commits, nil
}

// known says whether all ids are commits that are there, where git programs
// look. It is also what keeps anything but 40 hex digits from git's command
// line.
func (r *Repo) known(ids ...string) error {
	for _, id := range ids {
		h, err := parseID(id)
		if err != nil {
			return err
		}
		if _, err := r.commit(h); err != nil {
			return err
		}
		if !r.current(h) {
			return fmt.Errorf("commit %s: %w any more; fetch it again", h, reconciler.ErrNotFound)
		}
	}
	return nil
}

// current says whether an object is in a store that git programs work on. What
// they make refers to it, so the older scratch store is none: it goes first.
func (r *Repo) current(h plumbing.Hash) bool {
	r.swap.RLock()
	defer r.swap.RUnlock()
	return r.older == nil || r.mirror.has(h) || r.scratch.has(h)
}

// git runs git on the scratch repository, which borrows the mirror's objects;
// so neither configuration nor attributes of an estate, or of the repository
// looked at, take part. It returns the exit status where git ran to its end.
func (r *Repo) git(ctx context.Context, args ...string) (stdout string, code int, err error) {
	var out bytes.Buffer
	code, err = r.gitTo(ctx, &out, args...)
	return out.String(), code, err
}

// gitTo is git with its output going to out.
func (r *Repo) gitTo(ctx context.Context, out io.Writer, args ...string) (code int, err error) {
	if err := r.gitOnce(); err != nil {
		return 0, err
	}
	code, err = r.gitOn(ctx, out, args...)
	if gitDied(err) {
		r.suspect(ctx, err)
	}
	return code, err
}

// gitDied returns true if a git program could not go on with what it found. It
// returns false for one that is missing, too old, or was killed.
func gitDied(err error) bool {
	const status = 128
	var exit *exec.ExitError
	return errors.As(err, &exit) && exit.ExitCode() == status
}

// suspect notes that the mirror is damaged if git cannot read where its branches
// stand, or their history, after git died with err. What git was asked for then may
// be anybody's, and odd: that is no reason to fetch everything anew.
func (r *Repo) suspect(ctx context.Context, err error) {
	r.swap.RLock()
	seen := r.seen()
	r.swap.RUnlock()
	var branches []string
	for _, h := range []plumbing.Hash{seen.main, seen.source, seen.inForce} {
		if !h.IsZero() {
			branches = append(branches, h.String())
		}
	}
	if len(branches) == 0 {
		return
	}
	for _, args := range [][]string{{"rev-list", "--quiet"}, {"rev-list", "--quiet", "--objects", "--no-walk"}} {
		if _, found := r.gitOn(ctx, io.Discard, append(args, branches...)...); gitDied(found) {
			r.damaged("run git", errors.Join(err, found))
			return
		}
	}
}

// gitOn runs git for gitTo.
func (r *Repo) gitOn(ctx context.Context, out io.Writer, args ...string) (code int, err error) {
	r.swap.RLock()
	defer r.swap.RUnlock()
	env := []string{"GIT_DIR=" + r.scratch.dir, allocLimit(mergeMemory), "GIT_ALTERNATE_OBJECT_DIRECTORIES=" + strconv.Quote(filepath.Join(r.mirror.dir, "objects"))}
	if shallow := filepath.Join(r.mirror.dir, "shallow"); fileExists(shallow) {
		env = append(env, "GIT_SHALLOW_FILE="+shallow)
	}
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	return execGitTo(ctx, nil, out, env, args...)
}

// allocLimit bounds the memory that git takes at once, in bytes: a few bytes of a
// pull request may unfold to a file that no machine holds.
func allocLimit(n int64) string { return "GIT_ALLOC_LIMIT=" + strconv.FormatInt(n, 10) }

// indexPack runs git index-pack, which takes a pack into the repository dir,
// within the memory given in bytes for any one object (0: no bound), and, if it
// is strict, only if git finds no fault with any of the objects. What an
// interrupted run leaves is cleared away.
func indexPack(ctx context.Context, dir string, pack io.Reader, memory int64, strict bool) error {
	env := []string{"GIT_DIR=" + dir}
	if memory > 0 {
		env = append(env, allocLimit(memory))
	}
	// Large blobs are streamed; two threads would need twice the memory.
	args := []string{"-c", "core.bigFileThreshold=1m", "-c", "pack.threads=1", "index-pack", "--stdin"}
	if strict {
		args = append(args, "--strict")
	}
	_, code, err := execGit(ctx, pack, env, args...)
	if err == nil && code != 0 {
		err = fmt.Errorf("git index-pack ended with status %d", code)
	}
	if err != nil {
		err = errors.Join(err, clearLeft(dir))
	}
	return err
}

// repack puts the mirror's small packs together, the smallest first, so that
// the work done over time is small too. Nobody else may use the mirror.
func (r *Repo) repack(ctx context.Context) error {
	if err := r.gitOnce(); err != nil {
		return err
	}
	_, code, err := runGit(ctx, []string{"GIT_DIR=" + r.mirror.dir}, "repack", "-q", "-d", "--geometric=2", "--no-write-bitmap-index")
	if err == nil && code != 0 {
		err = fmt.Errorf("git repack ended with status %d", code)
	}
	return err
}

// runGit runs git without input, for gitTimeout at most.
func runGit(ctx context.Context, env []string, args ...string) (stdout string, code int, err error) {
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	return execGit(ctx, nil, env, args...)
}

// execGit runs git with nothing of the user's environment but PATH.
func execGit(ctx context.Context, stdin io.Reader, env []string, args ...string) (stdout string, code int, err error) {
	var out bytes.Buffer
	code, err = execGitTo(ctx, stdin, &out, env, args...)
	if err != nil {
		return "", 0, err
	}
	return out.String(), code, nil
}

// execGitTo is execGit with its output going to out.
func execGitTo(ctx context.Context, stdin io.Reader, out io.Writer, env []string, args ...string) (code int, err error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Env = append(env, "PATH="+os.Getenv("PATH"), "HOME=/nonexistent", "LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0", "GIT_NO_REPLACE_OBJECTS=1",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*")
	cmd.Dir = "/"
	cmd.WaitDelay = time.Second
	var problem bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, out, &problem
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		return 1, nil
	}
	if err != nil {
		return 0, fmt.Errorf("git %s: %w: %s", command(args), errors.Join(err, ctx.Err()), oneLine(problem.String(), 500))
	}
	return 0, nil
}

// command is the name of the git program that args run.
func command(args []string) string {
	for len(args) > 2 && strings.HasPrefix(args[0], "-") {
		args = args[2:]
	}
	return args[0]
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// checkGit says whether the git program can merge without a work tree.
func checkGit() error {
	out, _, err := runGit(context.Background(), nil, "version")
	if err != nil {
		return fmt.Errorf("the git program is needed to merge: %w; install git 2.38 or newer", err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(out, "git version %d.%d", &major, &minor); err != nil {
		return fmt.Errorf("git version cannot be told from %q", oneLine(out, 80))
	}
	if major < 2 || (major == 2 && minor < 38) {
		return fmt.Errorf("git %d.%d cannot merge without a work tree; install 2.38 or newer", major, minor)
	}
	return nil
}

// lookup is what stands at a path below tree; an entry without id is nothing.
func (r *Repo) lookup(tree plumbing.Hash, path string) (entry, error) {
	at := entry{mode: modeDir, id: tree}
	for name := range strings.SplitSeq(path, "/") {
		if !at.dir() {
			return entry{}, nil
		}
		entries, err := r.tree(at.id)
		if err != nil {
			return entry{}, err
		}
		i := slices.IndexFunc(entries, func(e entry) bool { return pathName(e.name) == name })
		if i < 0 {
			return entry{}, nil
		}
		at = entries[i]
	}
	return at, nil
}
