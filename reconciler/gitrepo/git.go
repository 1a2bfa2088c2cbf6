package gitrepo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/reconciler/gitrepo/object"
)

// git runs git on the scratch repository, which borrows the mirror's objects. So
// configuration and attributes of the estate, or of a local repository, have no
// effect. It returns the exit status of git.
func (r *history) git(ctx context.Context, args ...string) (stdout string, code int, err error) {
	var out bytes.Buffer
	code, err = r.gitTo(ctx, &out, args...)
	return out.String(), code, err
}

// gitTo is git with the output written to out.
func (r *history) gitTo(ctx context.Context, out io.Writer, args ...string) (code int, err error) {
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
func (r *history) suspect(ctx context.Context, err error) {
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
func (r *history) gitOn(ctx context.Context, out io.Writer, args ...string) (code int, err error) {
	r.Swap.RLock()
	defer r.Swap.RUnlock()
	env := []string{"GIT_DIR=" + r.Scratch.Dir, object.AllocLimit(object.MaxMemory),
		"GIT_ALTERNATE_OBJECT_DIRECTORIES=" + strconv.Quote(filepath.Join(r.Mirror.Dir, "objects"))}
	if shallow := filepath.Join(r.Mirror.Dir, "shallow"); object.FileExists(shallow) {
		env = append(env, "GIT_SHALLOW_FILE="+shallow)
	}
	ctx, cancel := context.WithTimeout(ctx, object.Timeout)
	defer cancel()
	return object.ExecTo(ctx, nil, out, env, args...)
}

// PackOf returns a pack with the objects of wants that the known commits of haves
// do not contain.
func (r *history) PackOf(ctx context.Context, wants, haves []plumbing.Hash) ([]byte, error) {
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
	out, code, err := object.Execute(ctx, strings.NewReader(in.String()),
		[]string{"GIT_DIR=" + r.Mirror.Dir, object.AllocLimit(object.MaxMemory)},
		"-c", "core.bigFileThreshold=1m", "-c", "pack.threads=1", "pack-objects", "-q", "--revs", "--stdout")
	if err == nil && code != 0 {
		err = fmt.Errorf("git pack-objects ended with status %d", code)
	}
	return []byte(out), err
}
