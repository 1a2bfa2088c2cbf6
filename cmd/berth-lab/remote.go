package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/labtest"
	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/schema"
	"berth/webhooks/github/githubtest"
)

const demoSecret = "demo-webhook-secret"

// remote is the repository of an estate and its forge, as users see them.
type remote struct {
	git         *gittest.Server
	forge       *githubtest.Server
	repo        *gitrepo.Local // reads the estate
	mergeMethod githubtest.Method
	patience    time.Duration // least limit of each wait, for a slow machine
}

// open makes the repository in a directory, and the forge.
func (r *remote) open(dir string, files map[string]string) (err error) {
	if r.git, err = gittest.Start(gittest.Options{Dir: filepath.Join(dir, "estate"), Files: files}); err != nil {
		return err
	}
	r.forge, err = githubtest.New(githubtest.Options{
		RepoDir: r.git.Dir, Owner: "example", Repo: "estate",
		Tokens:      map[string]githubtest.Token{labtest.Token: {Login: labtest.App, App: true}},
		Permissions: map[string]string{labtest.ProjectAdmin: "write", labtest.ProjectMember: "write", labtest.AssemblyOwner: "write"},
		Secret:      []byte(demoSecret),
		Log:         slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	r.repo, err = gitrepo.OpenLocal(r.git.Dir)
	return err
}

// close ends the servers. A second call has no effect.
func (r *remote) close() (err error) {
	if r.repo != nil {
		err = r.repo.Close()
	}
	if r.forge != nil {
		r.forge.Close()
	}
	if r.git != nil {
		r.git.Close()
	}
	r.repo, r.forge, r.git = nil, nil, nil
	return err
}

// until calls ok until it returns true or an error, or the limit has passed.
func (r *remote) until(ctx context.Context, what string, limit time.Duration, ok func() (bool, error)) error {
	limit = max(limit, r.patience)
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		done, err := ok()
		if done || err != nil {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-limited.Done():
			if ctx.Err() != nil {
				return fmt.Errorf("interrupted while waiting: %s: %w", what, context.Cause(ctx))
			}
			return fmt.Errorf("not within %v: %s", limit, what)
		}
	}
}

// propose opens a pull request with one commit on the tip of main.
func (r *remote) propose(branch, title, login string, c gittest.Commit) (pull int, err error) {
	c.Message, c.Parent = title, r.git.Tip("main")
	if err := r.push(branch, login, c); err != nil {
		return 0, err
	}
	return r.forge.OpenPull(branch, title, login)
}

// push pushes a commit to a branch as a user.
func (r *remote) push(branch, login string, c gittest.Commit) error {
	c.Author = login + " <" + login + "@example.org>"
	if _, err := r.git.Commit(branch, c); err != nil {
		return err
	}
	return r.forge.Sync()
}

// merge merges a pull request after its plan was posted, because an unreviewed plan
// is held. It ignores the result of the checks.
func (r *remote) merge(ctx context.Context, pull int, login string) (commit string, err error) {
	if err := r.until(ctx, fmt.Sprintf("the plan of pull request %d is shown", pull), 20*time.Second, func() (bool, error) {
		return labtest.PlanShown(r.forge, pull), nil
	}); err != nil {
		return "", err
	}
	return r.forge.Merge(pull, r.mergeMethod, login)
}

// train is a commit that sets the number of workers of labtest.Train.
func train(workers int) gittest.Commit {
	return gittest.Commit{Files: map[string]string{labtest.TrainFile: labtest.InstanceYAML(labtest.Train.Name, workers)}}
}

// statusTree reads the status branch.
func (r *remote) statusTree(ctx context.Context) (reconciler.StatusTree, error) {
	tip := r.git.Tip(reconciler.BranchStatus)
	if tip == "" {
		return reconciler.StatusTree{}, nil
	}
	return r.repo.ReadStatus(ctx, tip)
}

func (r *remote) status(ctx context.Context, key schema.Key) (*plan.Status, error) {
	tree, err := r.statusTree(ctx)
	if err != nil {
		return nil, err
	}
	if tree.Units.Get(key) == nil {
		return nil, fmt.Errorf("%s has no status", key)
	}
	return tree.Units.Get(key), nil
}

func (r *remote) untilPhase(ctx context.Context, key schema.Key, phase plan.Phase) (*plan.Status, error) {
	var last *plan.Status
	err := r.until(ctx, fmt.Sprintf("%s is %s", key, phase), time.Minute, func() (bool, error) {
		tree, err := r.statusTree(ctx)
		if err != nil {
			return false, err
		}
		last = tree.Units.Get(key)
		if last != nil && last.Phase == plan.PhaseFailed {
			return false, fmt.Errorf("%s failed: %s", key, last.FailureReason)
		}
		return last != nil && last.Phase == phase, nil
	})
	return last, err
}

func (r *remote) untilGone(ctx context.Context, key schema.Key) error {
	// The phase changes first; the status file is deleted a moment later.
	return r.until(ctx, key.String()+" is gone", time.Minute, func() (bool, error) {
		tree, err := r.statusTree(ctx)
		if err != nil {
			return false, err
		}
		st := tree.Units.Get(key)
		if st != nil && st.Phase != plan.PhaseDeleted && st.FailureReason != "" {
			return false, fmt.Errorf("%s cannot be deleted: %s", key, st.FailureReason)
		}
		return st == nil || st.Phase == plan.PhaseDeleted, nil
	})
}

// untilWorkers waits until train runs with a number of workers.
func (r *remote) untilWorkers(ctx context.Context, workers int) error {
	return r.until(ctx, fmt.Sprintf("%s runs with %d workers", labtest.Train, workers), time.Minute, func() (bool, error) {
		st, err := r.status(ctx, labtest.Train)
		if err != nil || st.Phase == plan.PhaseFailed {
			return false, errors.Join(err, failed(st))
		}
		return st.Phase == plan.PhaseRunning && countRunning(st) == workers+1, nil
	})
}

func failed(s *plan.Status) error {
	if s == nil || s.FailureReason == "" {
		return nil
	}
	return errors.New(s.FailureReason)
}

func countRunning(s *plan.Status) int {
	n := 0
	for _, m := range s.Members {
		if m.State == plan.Running {
			n++
		}
	}
	return n
}

// unit returns the observed state of an instance and the stamp for actions on it.
func (r *remote) unit(ctx context.Context, key schema.Key) (*plan.Unit, runtimes.Stamp, error) {
	tree, err := r.statusTree(ctx)
	if err != nil {
		return nil, runtimes.Stamp{}, err
	}
	st := tree.Units.Get(key)
	if st == nil || st.Observed == nil || st.Observed.Unit == nil {
		return nil, runtimes.Stamp{}, fmt.Errorf("%s is not there", key)
	}
	return st.Observed.Unit, runtimes.Stamp{Epoch: tree.Revision.Epoch, Leader: tree.Revision.Leader, Commit: st.Revision,
		CorrelationID: st.CorrelationID}, nil
}

// decided waits until a commit of main is decided.
func (r *remote) decided(ctx context.Context, commit string) (rev reconciler.Revision, err error) {
	err = r.until(ctx, "the commit "+cli.ShortCommit(commit)+" is decided", 20*time.Second, func() (bool, error) {
		tree, err := r.statusTree(ctx)
		rev = tree.Revision
		return rev.Commit == commit, err
	})
	return rev, err
}

// untilAuthorized waits until the condition Authorized of train has a status.
func (r *remote) untilAuthorized(ctx context.Context, status plan.ConditionStatus) error {
	return r.until(ctx, fmt.Sprintf("%s: Authorized=%s", labtest.Train, status), 20*time.Second, func() (bool, error) {
		st, err := r.status(ctx, labtest.Train)
		return err == nil && slices.ContainsFunc(st.Conditions, func(c plan.Condition) bool {
			return c.Type == plan.ConditionAuthorized && c.Status == status
		}), err
	})
}

// checkSeen is a check as the page of a pull request shows it.
type checkSeen struct {
	name, title, conclusion, summary string
	annotations                      []string
}

// untilCheck waits until both checks of a branch are completed with a conclusion:
// success if both succeed, failure if one fails. It returns the failed check, or
// berth/plan.
func (r *remote) untilCheck(ctx context.Context, branch, conclusion string) (seen checkSeen, err error) {
	commit := r.git.Tip(branch)
	err = r.until(ctx, fmt.Sprintf("a check that says %s", conclusion), 20*time.Second, func() (bool, error) {
		newest := map[string]githubtest.Check{}
		for _, c := range r.forge.Checks(commit) {
			newest[c.Name] = c
		}
		var failed *githubtest.Check
		for _, name := range []string{plan.CheckPlan, plan.CheckValidate} {
			c := newest[name]
			if c.Status != "completed" {
				return false, nil
			}
			if c.Conclusion != "success" {
				failed = &c
			}
		}
		c := newest[plan.CheckPlan]
		if failed != nil {
			c = *failed
		}
		seen = checkSeen{name: c.Name, title: c.Title, conclusion: c.Conclusion, summary: c.Summary}
		for _, a := range c.Annotations {
			seen.annotations = append(seen.annotations, fmt.Sprintf("%s:%d: %s", a.Path, a.StartLine, a.Message))
		}
		if c.Conclusion != conclusion {
			return false, fmt.Errorf("the check %s says %s, not %s: %s\n%s", c.Name, c.Conclusion, conclusion, c.Title, c.Summary)
		}
		return true, nil
	})
	return seen, err
}

// untilComment waits until Berth's comment contains a text.
func (r *remote) untilComment(ctx context.Context, pull int, word string) (body string, err error) {
	err = r.until(ctx, fmt.Sprintf("a comment on pull request %d that says %q", pull, word), 20*time.Second, func() (bool, error) {
		comments := r.forge.Comments(pull)
		if len(comments) > 1 {
			return false, fmt.Errorf("%d comments on pull request %d, not one", len(comments), pull)
		}
		if len(comments) == 1 {
			body = comments[0].Body
		}
		return strings.Contains(strings.ToLower(body), strings.ToLower(word)), nil
	})
	return body, err
}
