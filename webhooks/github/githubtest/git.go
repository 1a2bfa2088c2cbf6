package githubtest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// git runs Git's own commands on the bare repository: Berth uses go-git, and the server
// side is real Git.
type git struct{ dir string }

// environment excludes the machine's and the user's Git configuration.
func environment() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "LC_ALL=C",
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
	}
}

func (g git) runEnv(env []string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", append([]string{"--git-dir", g.dir}, args...)...)
	cmd.Env = append(environment(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimRight(string(out), "\n"), nil
}

func (g git) run(args ...string) (string, error) { return g.runEnv(nil, args...) }

// branches returns the commit of each branch.
func (g git) branches() (map[string]string, error) {
	out, err := g.run("for-each-ref", "--format=%(objectname) %(refname)", "refs/heads")
	if err != nil {
		return nil, err
	}
	m := map[string]string{}
	for line := range strings.Lines(out) {
		commit, ref, _ := strings.Cut(strings.TrimSpace(line), " ")
		m[strings.TrimPrefix(ref, "refs/heads/")] = commit
	}
	return m, nil
}

// merge is the tree of a merge; ok is false if there are conflicts.
func (g git) merge(base, head string) (tree string, ok bool) {
	out, err := g.run("merge-tree", "--write-tree", "--no-messages", base, head)
	tree, _, _ = strings.Cut(out, "\n")
	return tree, err == nil
}

// commit makes a commit and returns its id.
func (g git) commit(tree, message, login string, at time.Time, parents ...string) (string, error) {
	args := []string{"commit-tree", tree, "-m", message}
	for _, p := range parents {
		args = append(args, "-p", p)
	}
	date := fmt.Sprintf("%d +0000", at.Unix())
	return g.runEnv([]string{
		"GIT_AUTHOR_NAME=" + login, "GIT_AUTHOR_EMAIL=" + login + "@users.noreply.example.com", "GIT_AUTHOR_DATE=" + date,
		"GIT_COMMITTER_NAME=GitHub", "GIT_COMMITTER_EMAIL=noreply@example.com", "GIT_COMMITTER_DATE=" + date,
	}, args...)
}

// zeros is the id of no commit.
const zeros = "0000000000000000000000000000000000000000"

// update moves a ref from old; "": the ref is absent.
func (g git) update(ref, to, old string) error {
	if old == "" {
		old = zeros
	}
	_, err := g.run("update-ref", ref, to, old)
	return err
}

// logged is a commit as events show it.
type logged struct {
	id, tree, message     string
	author, authorMail    string
	committer, mail, date string
}

func (c logged) shape() obj {
	return obj{
		"id": c.id, "tree_id": c.tree, "message": c.message, "timestamp": c.date,
		"author": obj{"name": c.author, "email": c.authorMail}, "committer": obj{"name": c.committer, "email": c.mail},
	}
}

// log lists the commits from (not included) to to, oldest first, at most 20. An
// empty from lists the newest only.
func (g git) log(from, to string) ([]logged, error) {
	args := []string{"log", "-z", "--reverse", "--max-count=20", "--format=%H%x01%T%x01%an%x01%ae%x01%cn%x01%ce%x01%cI%x01%B", to}
	if from == "" {
		args = append(args, "--max-count=1")
	} else {
		args = append(args, "^"+from)
	}
	out, err := g.run(append(args, "--")...)
	if err != nil {
		return nil, err
	}
	var list []logged
	for _, entry := range strings.Split(strings.TrimRight(out, "\x00"), "\x00") {
		f := strings.SplitN(entry, "\x01", 8)
		if len(f) == 8 {
			list = append(list, logged{f[0], f[1], strings.TrimSpace(f[7]), f[2], f[3], f[4], f[5], f[6]})
		}
	}
	return list, nil
}

// fetch fetches a branch's objects, without a ref.
func (g git) fetch(from, branch string) error {
	_, err := g.run("fetch", "-q", "--no-write-fetch-head", "--no-tags", from, "refs/heads/"+branch)
	return err
}
