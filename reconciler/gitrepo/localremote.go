package gitrepo

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/transport"
	gitfile "github.com/go-git/go-git/v5/plumbing/transport/file"

	"berth/reconciler"
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
		err = fmt.Errorf("%s belongs to another user; run Berth as that user, or run: git config --global --add safe.directory %s", path,
			path)
	case strings.Contains(err.Error(), "branch is currently checked out"):
		err = fmt.Errorf("berth/in-force or berth/status is checked out, so git does not let Berth move it; switch that work tree to "+
			"another branch (to find it: git -C %s worktree list)", path)
	default:
		return err
	}
	return &reconciler.OperatorError{Err: err}
}
