package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"syscall"

	"github.com/go-git/go-git/v5/plumbing/transport"
	gitfile "github.com/go-git/go-git/v5/plumbing/transport/file"

	"berth/reconciler"
	"berth/reconciler/gitrepo/object"
)

// newLocalRemote returns the remote for a repository in a local directory, bare
// or with a work tree. The upload-pack and receive-pack of git access it. So
// Berth never touches a work tree or an index, and git refuses to move a branch
// that is checked out.
func newLocalRemote(u *url.URL, o Options) (*remote, error) {
	if u.Host != "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || !strings.HasPrefix(u.Path, "/") {
		return nil, fmt.Errorf("repository URL %s: want file:///PATH with an absolute path", Redact(u.String()))
	}
	return &remote{
		url: u.String(), local: true, timeout: o.Timeout, dialing: make(chan struct{}, 1),
		transport: gitfile.DefaultClient, endpoint: &transport.Endpoint{Protocol: "file", Path: u.Path},
	}, nil
}

// explainLocal adds the next step to an error of git about the directory.
func (r *remote) explainLocal(err error) error {
	path := r.endpoint.Path
	_, missing := os.Stat(path)
	switch {
	case missing != nil:
		err = fmt.Errorf("no such directory; check repository.url: %w", missing)
	case errors.Is(err, transport.ErrRepositoryNotFound):
		err = fmt.Errorf("%s is not a Git repository; run there: git init -b main && git add . && git commit -m estate", path)
	case strings.Contains(err.Error(), "dubious ownership"):
		err = fmt.Errorf("%s belongs to another user; run Berth as that user, or run: git config --global --add safe.directory %s", path, path)
	case strings.Contains(err.Error(), "branch is currently checked out"):
		err = fmt.Errorf("berth/in-force or berth/status is checked out, so git does not let Berth move it; switch that work tree to another branch (to find it: git -C %s worktree list)", path)
	default:
		return err
	}
	return &reconciler.OperatorError{Err: err}
}

// firstCommit returns the next step if the remote lacks the branch that people
// merge to.
func (r *Repo) firstCommit(d *download) string {
	branch := r.Options.Branch
	var others []string
	for name := range d.refs {
		if b, ok := strings.CutPrefix(name, "refs/heads/"); ok && b != "berth" && !strings.HasPrefix(b, "berth/") {
			others = append(others, b)
		}
	}
	switch {
	case len(others) == 1 && r.main.local:
		return fmt.Sprintf("rename the branch there: git branch -m %s %s; or set repository.branch: %s", others[0], branch, others[0])
	case len(others) == 1:
		return fmt.Sprintf("it has %s: set repository.branch: %s, or push a first commit to %s", others[0], others[0], branch)
	case r.main.local && len(others) == 0:
		return "make a first commit there: git add . && git commit -m estate"
	}
	return fmt.Sprintf("push a first commit to it, or set repository.branch to another of its %d branches", len(others))
}

// WorkTree is the difference between a local work tree and its commits.
type WorkTree struct {
	Branch  string   // checked-out branch; "(detached)" without a branch
	Changed []string // uncommitted paths below platform/ and tenants/
}

// WorkTreeState reads the state of the work tree in dir. It returns nil for a
// repository without a work tree. It changes nothing, the index included.
func WorkTreeState(ctx context.Context, dir string) (*WorkTree, error) {
	at, err := Locate(dir)
	if err != nil || at.WorkTree == "" {
		return nil, err
	}
	// git status runs programs that the repository's configuration names, so only
	// the owner of the repository may run it.
	if info, err := os.Stat(at.GitDir); err != nil || info.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
		return nil, err
	}
	env := []string{"GIT_DIR=" + at.GitDir, "GIT_WORK_TREE=" + at.WorkTree, "GIT_OPTIONAL_LOCKS=0"}
	out, code, err := object.Run(ctx, env, "-c", "core.fsmonitor=false", "status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all", "--no-renames",
		"--", ":(top)platform", ":(top)tenants")
	if err != nil || code != 0 {
		return nil, errors.Join(err, fmt.Errorf("git status in %s: exit status %d", dir, code))
	}
	w := &WorkTree{}
	for line := range strings.SplitSeq(out, "\x00") {
		kind, rest, _ := strings.Cut(line, " ")
		switch kind {
		case "#":
			if b, ok := strings.CutPrefix(rest, "branch.head "); ok {
				w.Branch = b
			}
		case "?":
			w.Changed = append(w.Changed, rest)
		case "1": // XY sub mH mI mW hH hI path
			if f := strings.SplitN(rest, " ", 8); len(f) == 8 {
				w.Changed = append(w.Changed, f[7])
			}
		case "u": // XY sub m1 m2 m3 mW h1 h2 h3 path
			if f := strings.SplitN(rest, " ", 10); len(f) == 10 {
				w.Changed = append(w.Changed, f[9])
			}
		}
	}
	return w, nil
}
