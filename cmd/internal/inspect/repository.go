// Package inspect reads what Berth recorded and decided in an estate, as the commands
// show it. It reads a local repository, and fetches and changes nothing. It must not
// know flags.
package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/daemon"
	"berth/cmd/internal/localestate"
	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/statusbranch"
)

// Source names the repository to read. If all is empty, it is the local repository that
// ./berth.yaml names, or the working directory.
type Source struct {
	Repo   string // Git repository of the estate, or a directory in it
	Config string // berth.yaml that names the repository, or the directory of the daemon's mirror
	Rev    string // revision of berth/status; "": the branch
}

// Repository is an open repository and the commit of berth/status to read.
type Repository struct {
	*gitrepo.Local
	tips   reconciler.Tips
	status string
}

// directory returns the directory of the repository to read.
func (s Source) directory() (string, error) {
	const implied = "berth.yaml"
	path := s.Config
	switch {
	case s.Repo != "" && s.Config != "":
		return "", errors.New("--repo and --config name two repositories; give one of them")
	case s.Repo != "":
		return s.Repo, nil
	case path == "":
		if _, err := os.Stat(implied); err != nil {
			return ".", nil
		}
		path = implied
	}
	c, err := daemon.ReadConfig(path)
	if err != nil && s.Config == "" {
		err = fmt.Errorf("%w\ncorrect it, or give --repo . to read the working directory", err)
	}
	if err != nil {
		return "", err
	}
	dir, ok := c.LocalRepository()
	switch {
	case ok:
		return dir, nil
	case s.Config == "":
		return ".", nil // a clone with the daemon's configuration in it
	}
	mirror := gitrepo.MirrorDir(c.Repository.Directory)
	if _, err := os.Stat(mirror); err == nil {
		return mirror, nil
	}
	return "", fmt.Errorf("%s: neither repository.url %s nor the daemon's mirror in %s is on this machine; run the command in a clone, "+
		"after git fetch", path, cli.Visible(c.Repository.URL), mirror)
}

// Refs returns the directories with the refs of the repository, as watch.Files takes them.
func (s Source) Refs() (gitDir, commonDir string, err error) {
	dir, err := s.directory()
	if err != nil {
		return "", "", err
	}
	at, err := gitrepo.Locate(dir)
	return at.GitDir, at.CommonDir, err
}

// fetchBranches fetches Berth's branches into a clone, whatever its configuration.
const fetchBranches = "git fetch origin 'refs/heads/berth/*:refs/remotes/origin/berth/*'"

// Open opens the repository, which must have berth/status. The caller closes it,
// unless there is an error.
func (s Source) Open(ctx context.Context) (*Repository, error) {
	l, err := s.openAny(ctx)
	if err != nil {
		return nil, err
	}
	if l.status == "" {
		return nil, errors.Join(fmt.Errorf("branch %s not found here or at origin; in a clone, run %s; in an estate of your own, run "+
			"Berth first: berth sync -c berth.yaml --once", reconciler.BranchStatus, fetchBranches), l.Close())
	}
	return l, nil
}

// With calls do with the open repository, which must have berth/status.
func (s Source) With(ctx context.Context, do func(*Repository) error) error {
	r, err := s.Open(ctx)
	if err != nil {
		return err
	}
	return errors.Join(do(r), r.Close())
}

// openAny is Open for a repository that may have no berth/status.
func (s Source) openAny(ctx context.Context) (*Repository, error) {
	dir, err := s.directory()
	if err != nil {
		return nil, cli.Usage(err)
	}
	repo, err := gitrepo.OpenLocal(dir)
	if err != nil {
		return nil, cli.Usage(localestate.NoRepository(dir, "--repo DIR", err))
	}
	l := &Repository{Local: repo}
	l.tips, err = repo.Latest(ctx)
	if l.status = l.tips.Status; s.Rev != "" && err == nil {
		if l.status, err = repo.Resolve(ctx, s.Rev); err == nil {
			err = l.isStatus(s.Rev)
		}
	}
	if err != nil {
		return nil, cli.Usage(errors.Join(err, repo.Close()))
	}
	return l, nil
}

// isStatus refuses a revision of another branch: nothing of the estate would look as if nothing had happened.
func (r *Repository) isStatus(rev string) error {
	is, err := r.IsStatus(r.status)
	if err == nil && !is {
		err = fmt.Errorf("--rev: %s is not a commit of %s: it has no events, audit or status", rev, reconciler.BranchStatus)
	}
	return err
}

// order reads in an order, and warns on w of files that are not part of the log.
func order(w io.Writer, newestFirst bool) statusbranch.LogOrder {
	return statusbranch.LogOrder{NewestFirst: newestFirst, Stray: func(path, why string) {
		fmt.Fprintf(w, "warning: %s: %s\n", cli.Visible(path), why)
	}}
}
