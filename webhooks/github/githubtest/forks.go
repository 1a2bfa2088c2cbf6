package githubtest

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// fork is a user's fork of the repository.
type fork struct {
	id       int64
	login    string
	git      git
	branches map[string]string // as last seen
}

// Fork makes a user's fork and returns the directory of its bare repository, which Close
// removes. Sync notices changes made there without the server.
func (s *Server) Fork(login string) (dir string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.forks[login]; f != nil {
		return f.git.dir, nil
	}
	if login == s.o.Owner {
		return "", fmt.Errorf("%s owns the repository", login)
	}
	temp, err := os.MkdirTemp("", "githubtest-fork-")
	if err != nil {
		return "", err
	}
	dir = filepath.Join(temp, s.o.Repo+".git")
	cmd := exec.Command("git", "clone", "-q", "--bare", s.git.dir, dir)
	cmd.Env = environment()
	if out, err := cmd.CombinedOutput(); err != nil {
		os.RemoveAll(temp)
		return "", fmt.Errorf("fork for %s: %w: %s", login, err, out)
	}
	f := &fork{id: s.id(), login: login, git: git{dir}}
	if f.branches, err = f.git.branches(); err != nil {
		os.RemoveAll(temp)
		return "", err
	}
	s.forks[login] = f
	return dir, nil
}

// ForkURL is the Git URL of a fork, with a token of its owner; nobody else can read it.
func (s *Server) ForkURL(login string) string {
	return fmt.Sprintf("%s/%s/%s.git", s.url, login, s.o.Repo)
}

// DeleteFork deletes a fork. Its pull requests stay open without a head repository.
func (s *Server) DeleteFork(login string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.forks[login]; f != nil {
		os.RemoveAll(filepath.Dir(f.git.dir))
		delete(s.forks, login)
	}
}

// OpenForkPull opens a pull request of a fork's branch to the default branch, as the
// fork's owner, and returns its number.
func (s *Server) OpenForkPull(login, branch, title string) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.sync(); err != nil {
		return 0, err
	}
	f := s.forks[login]
	if f == nil {
		return 0, fmt.Errorf("%s has no fork", login)
	}
	head := f.branches[branch]
	if head == "" {
		return 0, fmt.Errorf("no branch %q in the fork of %s", branch, login)
	}
	if err := s.git.fetch(f.git.dir, branch); err != nil {
		return 0, err
	}
	return s.open(f, branch, head, title, login)
}

// syncForks notices changes of the forks' branches.
func (s *Server) syncForks() (news []Delivery, err error) {
	for _, login := range slices.Sorted(maps.Keys(s.forks)) {
		f := s.forks[login]
		now, err := f.git.branches()
		if err != nil {
			return nil, err
		}
		before := f.branches
		f.branches = now
		for _, p := range s.pulls {
			from, to := before[p.branch], now[p.branch]
			if !p.open || p.fork != f || from == to {
				continue
			}
			if to != "" {
				if err := s.git.fetch(f.git.dir, p.branch); err != nil {
					return nil, err
				}
			}
			d, err := s.headMoved(p, to)
			if err != nil {
				return nil, err
			}
			news = append(news, d...)
		}
	}
	return news, nil
}

// fetch fetches a branch's objects, without a ref.
func (g git) fetch(from, branch string) error {
	_, err := g.run("fetch", "-q", "--no-write-fetch-head", "--no-tags", from, "refs/heads/"+branch)
	return err
}

// forkOf returns the fork of a path of the Git transport, and the path's prefix.
func (s *Server) forkOf(path string) (f *fork, prefix string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	login, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if f = s.forks[login]; f == nil || !strings.HasPrefix(rest, s.o.Repo+".git/") {
		return nil, ""
	}
	return f, "/" + login + "/" + s.o.Repo + ".git"
}
