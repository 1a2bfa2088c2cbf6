package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/storage/filesystem"
	"github.com/go-git/go-git/v5/storage/filesystem/dotgit"

	"berth/reconciler"
	"berth/reconciler/gitrepo/object"
)

// localDescriptors bounds the open pack files of a local repository.
const localDescriptors = 64

// OpenLocal opens a local repository for reading, bare or with a work tree;
// `berth plan` uses it. dir is a path or a file:// URL, and may be below the root
// of the work tree. Nothing is written to the repository, not even by a merge.
// Fetch returns its branches, or those of the remote origin if it has no own
// branch.
func OpenLocal(dir string) (*Repo, error) {
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
	log := slog.New(slog.DiscardHandler)
	objects := &object.Reader{
		Log: log,
		Mirror: object.NewStore(common, files,
			filesystem.Options{MaxOpenDescriptors: localDescriptors, LargeObjectThreshold: object.LargeObject, AlternatesFS: osfs.New("/")}),
		Scratch: object.OpenStore(scratch),
	}
	r := &Repo{merger: newMerger(objects), Options: Options{Branch: "main", Log: log, Now: time.Now}, local: gitDir}
	r.openStatus()
	return r, nil
}

// MirrorDir returns the directory of Berth's mirror below Options.Dir. OpenLocal
// can open it like any repository.
func MirrorDir(dir string) string { return filepath.Join(dir, "mirror.git") }

// Place holds the directories of a local repository.
type Place struct {
	WorkTree  string // root of the work tree; "" for a bare repository
	GitDir    string // directory with HEAD
	CommonDir string // directory with objects and branches; differs from GitDir for an additional work tree
}

// Locate finds the repository that contains dir, a path or a file:// URL. The
// error wraps reconciler.ErrNotFound if dir is not in a repository.
func Locate(dir string) (Place, error) {
	start, err := filepath.Abs(strings.TrimPrefix(dir, "file://"))
	if err != nil {
		return Place{}, err
	}
	p, err := findGitDir(start)
	if err != nil {
		return p, err
	}
	if p.CommonDir, err = commonDir(p.GitDir); err != nil {
		return p, fmt.Errorf("%s: %w", dir, err)
	}
	return p, nil
}

func findGitDir(start string) (Place, error) {
	for at := start; ; at = filepath.Dir(at) {
		dot := filepath.Join(at, ".git")
		if isGitDir(dot) {
			return Place{WorkTree: at, GitDir: dot}, nil
		}
		if b, err := os.ReadFile(dot); err == nil { // an additional work tree
			if to, ok := strings.CutPrefix(strings.TrimSpace(string(b)), "gitdir: "); ok {
				if !filepath.IsAbs(to) {
					to = filepath.Join(at, to)
				}
				return Place{WorkTree: at, GitDir: to}, nil
			}
		}
		if isGitDir(at) {
			return Place{GitDir: at}, nil
		}
		if at == filepath.Dir(at) {
			return Place{}, fmt.Errorf("%s is not in a Git repository: %w", start, reconciler.ErrNotFound)
		}
	}
}

func isGitDir(dir string) bool {
	return object.FileExists(filepath.Join(dir, "HEAD")) && object.FileExists(filepath.Join(dir, "objects")) && object.FileExists(filepath.Join(dir, "refs"))
}

// commonDir returns the directory with the objects of a Git directory. It differs
// from gitDir only for an additional work tree.
func commonDir(gitDir string) (string, error) {
	b, err := os.ReadFile(filepath.Join(gitDir, "commondir"))
	if errors.Is(err, os.ErrNotExist) {
		return gitDir, nil
	}
	if err != nil {
		return "", err
	}
	common := strings.TrimSpace(string(b))
	if !filepath.IsAbs(common) {
		common = filepath.Join(gitDir, common)
	}
	return common, nil
}

// localTips is Fetch for a local view.
func (r *Repo) localTips() (reconciler.Tips, error) {
	own, _, err := r.Sides()
	if err == nil && own.Main == "" {
		err = fmt.Errorf("%s has no branch %q: %w", r.Mirror.Dir, r.Options.Branch, reconciler.ErrNotFound)
	}
	return own, err
}

// Sides returns the tips of a local view: its own branches, and those of the
// remote origin. Either may be older. A branch that exists on one side only has
// the same tip on both.
func (r *Repo) Sides() (own, origin reconciler.Tips, err error) {
	find := func(branch string, own, origin *plumbing.Hash) error {
		var err [2]error
		*own, err[0] = r.Mirror.Ref(plumbing.NewBranchReferenceName(branch))
		*origin, err[1] = r.Mirror.Ref(plumbing.NewRemoteReferenceName("origin", branch))
		if own.IsZero() {
			*own = *origin
		} else if origin.IsZero() {
			*origin = *own
		}
		return errors.Join(err[:]...)
	}
	var here, there Tips
	err = errors.Join(
		find(r.Options.Branch, &here.Main, &there.Main),
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
func (r *Repo) Latest(ctx context.Context) (reconciler.Tips, error) {
	own, origin, err := r.Sides()
	if err != nil {
		return own, err
	}
	fetched, err := r.Mirror.Ref(plumbing.NewRemoteReferenceName("origin", reconciler.BranchStatus))
	switch {
	case err != nil:
		return own, err
	case fetched.IsZero():
		return own, nil
	case own.Status == origin.Status:
		return origin, nil
	}
	base, err := r.MergeBase(ctx, own.Status, origin.Status)
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
func (r *Repo) Staged(ctx context.Context, at Place) ([]string, error) {
	return r.listWork(ctx, at, "diff-index", "--cached", "--name-only", "--no-renames", "-z", "HEAD")
}

// Ignored lists, sorted, the files of the estate in a work tree that Git ignores.
func (r *Repo) Ignored(ctx context.Context, at Place) ([]string, error) {
	return r.listWork(ctx, at, "ls-files", "--others", "--ignored", "--exclude-standard", "-z")
}

// listWork runs a git command that lists files of the estate in a work tree. The
// list is empty for a bare repository. args must not be commands that run
// programs from the repository's configuration.
func (r *Repo) listWork(ctx context.Context, at Place, args ...string) ([]string, error) {
	if at.WorkTree == "" {
		return nil, nil
	}
	if err := r.checkGit(); err != nil {
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
func (r *Repo) Resolve(ctx context.Context, revision string) (string, error) {
	bad := strings.ContainsFunc(revision, func(c rune) bool { return c <= 0x20 || c == 0x7f })
	if bad || revision == "" || strings.HasPrefix(revision, "-") || len(revision) > 250 {
		return "", fmt.Errorf("%q is not a revision", revision)
	}
	if err := r.checkGit(); err != nil {
		return "", err
	}
	r.Swap.RLock()
	defer r.Swap.RUnlock()
	dir := r.local
	if dir == "" {
		dir = r.Mirror.Dir
	}
	out, code, err := object.Run(ctx, []string{"GIT_DIR=" + dir}, "rev-parse", "--verify", "--quiet", "--end-of-options", revision+"^{commit}")
	if err != nil {
		return "", fmt.Errorf("revision %q in %s: %w", revision, dir, err)
	}
	h, err := object.ParseID(strings.TrimSpace(out))
	if code != 0 || err != nil {
		return "", fmt.Errorf("revision %q in %s: %w", revision, dir, reconciler.ErrNotFound)
	}
	return h.String(), nil
}
