package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/go-git/go-git/v5/plumbing/format/config"

	"berth/reconciler"
	"berth/reconciler/gitrepo/object"
)

// ErrSHA256: Berth cannot read the repository.
var ErrSHA256 = errors.New("this repository names objects by SHA-256, and Berth reads SHA-1 repositories only: make one with git init " +
	"--object-format=sha1, and commit the files there")

// Place holds the directories of a local repository.
type Place struct {
	WorkTree  string // root of the work tree; "" for a bare repository
	GitDir    string // directory with HEAD
	CommonDir string // directory with objects and branches; differs from GitDir for an additional work tree
}

// Locate finds the repository that contains dir, a path or a file:// URL. The
// error wraps reconciler.ErrNotFound if dir is not in a repository, and ErrSHA256 if Berth
// cannot read that.
func Locate(dir string) (Place, error) {
	start, err := filepath.Abs(strings.TrimPrefix(dir, "file://"))
	if err != nil {
		return Place{}, err
	}
	if _, err := os.Stat(start); errors.Is(err, fs.ErrNotExist) { // a repository around it is not meant
		return Place{}, fmt.Errorf("directory %s: %w", start, reconciler.ErrNotFound)
	}
	p, err := findGitDir(start)
	if err != nil {
		return p, err
	}
	if p.CommonDir, err = commonDir(p.GitDir); err != nil {
		return p, fmt.Errorf("%s: %w", dir, err)
	}
	if namesBySHA256(p.CommonDir) {
		return p, fmt.Errorf("%s: %w", dir, ErrSHA256)
	}
	return p, nil
}

// namesBySHA256 reports whether the configuration of a repository says so (git-config(1),
// extensions.objectFormat). An unreadable one is another error, of whoever needs it.
func namesBySHA256(dir string) bool {
	f, err := os.Open(filepath.Join(dir, "config"))
	if err != nil {
		return false
	}
	defer f.Close()
	c := config.New()
	return config.NewDecoder(f).Decode(c) == nil && c.Section("extensions").Option("objectformat") == "sha256"
}

func findGitDir(start string) (Place, error) {
	for at := start; ; at = filepath.Dir(at) {
		dot := filepath.Join(at, ".git")
		if isGitDir(dot) {
			return Place{WorkTree: at, GitDir: dot}, nil
		}
		if to := additionalGitDir(dot); to != "" {
			return Place{WorkTree: at, GitDir: to}, nil
		}
		if isGitDir(at) {
			return Place{GitDir: at}, nil
		}
		if at == filepath.Dir(at) {
			return Place{}, fmt.Errorf("%s is not in a Git repository: %w", start, reconciler.ErrNotFound)
		}
	}
}

// additionalGitDir returns the Git directory that the file .git of an additional work tree names; "" for another file.
func additionalGitDir(dot string) string {
	b, err := os.ReadFile(dot)
	to, ok := strings.CutPrefix(strings.TrimSpace(string(b)), "gitdir: ")
	switch {
	case err != nil || !ok:
		return ""
	case filepath.IsAbs(to):
		return to
	}
	return filepath.Join(filepath.Dir(dot), to)
}

func isGitDir(dir string) bool {
	return object.FileExists(filepath.Join(dir, "HEAD")) && object.FileExists(filepath.Join(dir, "objects")) &&
		object.FileExists(filepath.Join(dir, "refs"))
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
	out, code, err := object.Run(ctx, env, "-c", "core.fsmonitor=false", "status", "--porcelain=v2", "--branch", "-z",
		"--untracked-files=all", "--no-renames",
		"--", ":(top)platform", ":(top)tenants")
	if err != nil || code != 0 {
		return nil, errors.Join(err, fmt.Errorf("git status in %s: exit status %d", dir, code))
	}
	return workTreeOf(out), nil
}

// workTreeOf parses the output of git status.
func workTreeOf(out string) *WorkTree {
	fields := map[string]int{
		"?": 1,  // path
		"1": 8,  // XY sub mH mI mW hH hI path
		"u": 10, // XY sub m1 m2 m3 mW h1 h2 h3 path
	}
	w := &WorkTree{}
	for line := range strings.SplitSeq(out, "\x00") {
		kind, rest, _ := strings.Cut(line, " ")
		if branch, ok := strings.CutPrefix(line, "# branch.head "); ok {
			w.Branch = branch
		} else if n := fields[kind]; n > 0 && strings.Count(rest, " ") >= n-1 {
			w.Changed = append(w.Changed, strings.SplitN(rest, " ", n)[n-1])
		}
	}
	return w
}
