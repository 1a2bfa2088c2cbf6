package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/storage/filesystem"
	"github.com/go-git/go-git/v5/storage/filesystem/dotgit"

	"berth/reconciler"
	"berth/reconciler/gitrepo/object"
	"berth/reconciler/gitrepo/statusbranch"
)

// localDescriptors bounds the open pack files of a local repository.
const localDescriptors = 64

// localBranch is the branch of a local repository that holds the estate.
const localBranch = "main"

// Local reads a repository on this machine. It is safe for concurrent use.
type Local struct {
	*history
	*statusbranch.View
	gitDir string
}

// OpenLocal opens a local repository for reading, bare or with a work tree;
// `berth plan` uses it. dir is a path or a file:// URL, and may be below the root
// of the work tree. Nothing is written to the repository, not even by a merge.
func OpenLocal(dir string) (*Local, error) {
	at, err := Locate(dir)
	if err != nil {
		return nil, err
	}
	gitDir, common := at.GitDir, at.CommonDir
	scratch, err := os.MkdirTemp("", "berth-merge-")
	if err != nil {
		return nil, err
	}
	if err := object.InitStore(scratch); err != nil {
		return nil, errors.Join(err, os.RemoveAll(scratch))
	}
	files := osfs.New(gitDir)
	if common != gitDir {
		files = dotgit.NewRepositoryFilesystem(files, osfs.New(common))
	}
	objects := &object.Reader{
		Log: slog.New(slog.DiscardHandler),
		Mirror: object.NewStore(common, files,
			filesystem.Options{MaxOpenDescriptors: localDescriptors, LargeObjectThreshold: object.LargeObject,
				AlternatesFS: osfs.New("/")}),
		Scratch: object.OpenStore(scratch),
	}
	return &Local{history: newHistory(objects), View: statusbranch.NewView(objects), gitDir: gitDir}, nil
}

// Close closes the repository and removes the trees of merges.
func (l *Local) Close() error {
	return errors.Join(l.Mirror.Close(), l.Scratch.Close(), os.RemoveAll(l.Scratch.Dir))
}

// Fetch returns the tips of the repository's branches, or of those of the remote
// origin if it has no own branch. It contacts no remote.
func (l *Local) Fetch(context.Context) (reconciler.Tips, error) {
	own, _, err := l.Sides()
	if err == nil && own.Main == "" {
		err = fmt.Errorf("%s has no branch %q: %w", l.Mirror.Dir, localBranch, reconciler.ErrNotFound)
	}
	return own, err
}

// Sides returns the tips of a local view: its own branches, and those of the
// remote origin. Either may be older. A branch that exists on one side only has
// the same tip on both.
func (l *Local) Sides() (own, origin reconciler.Tips, err error) {
	find := func(branch string, own, origin *plumbing.Hash) error {
		var err [2]error
		*own, err[0] = l.Mirror.Ref(plumbing.NewBranchReferenceName(branch))
		*origin, err[1] = l.Mirror.Ref(plumbing.NewRemoteReferenceName("origin", branch))
		if own.IsZero() {
			*own = *origin
		} else if origin.IsZero() {
			*origin = *own
		}
		return errors.Join(err[:]...)
	}
	var here, there Tips
	err = errors.Join(
		find(localBranch, &here.Main, &there.Main),
		find(reconciler.BranchInForce, &here.InForce, &there.InForce),
		find(reconciler.BranchStatus, &here.status, &there.status),
	)
	if err != nil {
		return own, origin, err
	}
	return here.public(), there.public(), nil
}

// Latest returns the tips of the side with the newer berth/status: the
// repository's own branches, or those of the remote origin. Its own side wins
// only if origin has no berth/status, or the own branch descends from it. A
// branch that exists on one side only has the same tip on both. Nothing is
// fetched.
func (l *Local) Latest(ctx context.Context) (reconciler.Tips, error) {
	own, origin, err := l.Sides()
	if err != nil {
		return own, err
	}
	fetched, err := l.Mirror.Ref(plumbing.NewRemoteReferenceName("origin", reconciler.BranchStatus))
	switch {
	case err != nil:
		return own, err
	case fetched.IsZero():
		return own, nil
	case own.Status == origin.Status:
		return origin, nil
	}
	base, err := l.MergeBase(ctx, own.Status, origin.Status)
	if errors.Is(err, reconciler.ErrNotFound) { // unrelated histories: origin's is the shared one
		return origin, nil
	}
	if err != nil {
		return own, err
	}
	if base == origin.Status {
		return own, nil
	}
	return origin, nil
}

// Staged lists, sorted, the files of the estate that differ between the index of
// a work tree and HEAD.
func (l *Local) Staged(ctx context.Context, at Place) ([]string, error) {
	return l.listWork(ctx, at, "diff-index", "--cached", "--name-only", "--no-renames", "-z", "HEAD")
}

// Ignored lists, sorted, the files of the estate in a work tree that Git ignores.
func (l *Local) Ignored(ctx context.Context, at Place) ([]string, error) {
	return l.listWork(ctx, at, "ls-files", "--others", "--ignored", "--exclude-standard", "-z")
}

// listWork runs a git command that lists files of the estate in a work tree. The
// list is empty for a bare repository. args must not be commands that run
// programs from the repository's configuration.
func (l *Local) listWork(ctx context.Context, at Place, args ...string) ([]string, error) {
	if at.WorkTree == "" {
		return nil, nil
	}
	if err := l.checkGit(); err != nil {
		return nil, err
	}
	args = append(append([]string{"-c", "core.fsmonitor=false"}, args...), "--", ":(top)platform", ":(top)"+object.TenantsDir)
	out, _, err := object.Run(ctx, []string{"GIT_DIR=" + at.GitDir, "GIT_WORK_TREE=" + at.WorkTree, "GIT_OPTIONAL_LOCKS=0"}, args...)
	if err != nil {
		return nil, fmt.Errorf("files of %s: %w", at.WorkTree, err)
	}
	paths := slices.DeleteFunc(strings.Split(out, "\x00"), func(p string) bool { return p == "" })
	slices.Sort(paths)
	return paths, nil
}

// Resolve returns the commit of a revision such as HEAD, a branch, a tag, a short
// id or HEAD~2. The error is reconciler.ErrNotFound if it does not exist.
func (l *Local) Resolve(ctx context.Context, revision string) (string, error) {
	bad := strings.ContainsFunc(revision, func(c rune) bool { return c <= 0x20 || c == 0x7f })
	if bad || revision == "" || strings.HasPrefix(revision, "-") || len(revision) > 250 {
		return "", fmt.Errorf("%q is not a revision", revision)
	}
	if err := l.checkGit(); err != nil {
		return "", err
	}
	l.Swap.RLock()
	defer l.Swap.RUnlock()
	out, code, err := object.Run(ctx, []string{"GIT_DIR=" + l.gitDir}, "rev-parse", "--verify", "--quiet", "--end-of-options",
		revision+"^{commit}")
	if err != nil {
		return "", fmt.Errorf("revision %q in %s: %w", revision, l.gitDir, err)
	}
	h, err := object.ParseID(strings.TrimSpace(out))
	if code != 0 || err != nil {
		return "", fmt.Errorf("revision %q in %s: %w%s", revision, l.gitDir, reconciler.ErrNotFound, l.branches(ctx))
	}
	return h.String(), nil
}

// branches lists the newest branches of people, for a message.
func (l *Local) branches(ctx context.Context) string {
	const most = 8
	out, code, err := object.Run(ctx, []string{"GIT_DIR=" + l.gitDir}, "for-each-ref", "--sort=-committerdate",
		"--format=%(refname:lstrip=2)", "refs/heads")
	names := slices.DeleteFunc(strings.Fields(out), func(name string) bool { return strings.HasPrefix(name, "berth/") })
	if err != nil || code != 0 || len(names) == 0 {
		return ""
	}
	if len(names) > most {
		names = append(names[:most], "others")
	}
	return "; the branches are " + strings.Join(names, ", ")
}
