package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"berth/cmd/internal/labtest"
	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/host"
	"berth/runtimes/host/lab"
	"berth/runtimes/memory"
	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
	"berth/webhooks/github/githubtest"
)

// stage has an estate in Git, a forge, a lab and a daemon, for the demo and the tests.
type stage struct {
	dir, helper string
	berth       string // the program berth
	memory      bool
	mergeMethod githubtest.Method
	nodes       []lab.Node
	files       map[string]string // the estate at the start

	git    *gittest.Server
	forge  *githubtest.Server
	lab    *lab.Lab
	hosts  runtimes.Hosts
	jobs   slurmtest.Jobs
	daemon *served
	repo   *gitrepo.Local // reads the estate
	pull   int            // of the demo's first pull request
}

const demoSecret = "demo-webhook-secret"

func newStage(o demoOptions) (*stage, error) {
	s := &stage{dir: o.dir, helper: o.helper, berth: o.berth, memory: o.memory, mergeMethod: githubtest.Merge, files: labtest.Files()}
	for path, text := range s.files {
		if strings.HasPrefix(path, "platform/nodes/") {
			var doc struct {
				Metadata struct{ Name string }
				Spec     schema.NodeSpec
			}
			if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			s.nodes = append(s.nodes, lab.NodeOf(doc.Metadata.Name, doc.Spec))
		}
	}
	slices.SortFunc(s.nodes, func(a, b lab.Node) int { return strings.Compare(a.Name, b.Name) })
	return s, nil
}

func (s *stage) hostsName() string {
	if s.memory {
		return "no hosts"
	}
	return "a lab"
}

// labImpossible returns why no lab can run here, or "".
func labImpossible(ctx context.Context) string {
	if os.Geteuid() != 0 {
		return "this is not root"
	}
	for _, p := range []string{"sshd", "slurmctld", "slurmd", "slurmdbd", "munged", "mariadbd", "ip", "sudo"} {
		if _, err := exec.LookPath(p); err != nil {
			if _, err := os.Stat("/usr/sbin/" + p); err != nil {
				return p + " is not installed (deploy/prepare installs Debian's packages)"
			}
		}
	}
	if err := lab.Possible(ctx); err != nil {
		return err.Error()
	}
	return ""
}

// openEstate makes the repository and the forge.
func (s *stage) openEstate() (err error) {
	if s.git, err = gittest.Start(gittest.Options{Dir: filepath.Join(s.dir, "estate"), Files: s.files}); err != nil {
		return err
	}
	s.forge, err = githubtest.New(githubtest.Options{
		RepoDir: s.git.Dir, Owner: "example", Repo: "estate",
		Tokens:      map[string]githubtest.Token{labtest.Token: {Login: labtest.App, App: true}},
		Permissions: map[string]string{labtest.ProjectAdmin: "write", labtest.ProjectMember: "write", labtest.AssemblyOwner: "write"},
		Secret:      []byte(demoSecret),
		Log:         slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	s.repo, err = gitrepo.OpenLocal(s.git.Dir)
	return err
}

func (s *stage) labUp(ctx context.Context) (err error) {
	log, err := os.Create(filepath.Join(s.dir, "lab.log"))
	if err != nil {
		return err
	}
	l := slog.New(slog.NewTextHandler(log, nil))
	if s.lab, err = lab.Up(ctx, lab.Config{Dir: filepath.Join(s.dir, "lab"), Helper: s.helper, Nodes: s.nodes, Auto: true, Log: l}); err != nil {
		return err
	}
	// The lab chose free addresses; write them into the estate.
	for _, n := range s.nodes {
		now, _ := s.lab.Node(n.Name)
		path := "platform/nodes/" + n.Name + ".yaml"
		s.files[path] = strings.Replace(s.files[path], "address: "+n.Address, "address: "+now.Address, 1)
	}
	if s.hosts, err = host.NewSSH(host.SSHOptions{User: s.lab.User(), KeyFile: s.lab.KeyFile(), KnownHosts: s.lab.KnownHosts(), Log: l}); err != nil {
		return err
	}
	s.jobs = slurmtest.Jobs{Hosts: s.hosts}
	return nil
}

// world returns the files of the daemon's memory runtime.
func (s *stage) world() (*memory.World, error) {
	return memory.OpenWorld(filepath.Join(s.dir, "world"))
}

// until calls ok until it returns true or an error, or the limit has passed.
func (s *stage) until(ctx context.Context, what string, limit time.Duration, ok func() (bool, error)) error {
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
func (s *stage) propose(branch, title, login string, c gittest.Commit) (pull int, err error) {
	c.Message, c.Parent = title, s.git.Tip("main")
	if err := s.push(branch, login, c); err != nil {
		return 0, err
	}
	return s.forge.OpenPull(branch, title, login)
}

// push pushes a commit to a branch as a user.
func (s *stage) push(branch, login string, c gittest.Commit) error {
	c.Author = login + " <" + login + "@example.org>"
	if _, err := s.git.Commit(branch, c); err != nil {
		return err
	}
	return s.forge.Sync()
}

// merge merges a pull request after its plan was posted, because an unreviewed plan
// is held. It ignores the result of the checks.
func (s *stage) merge(ctx context.Context, pull int, login string) (commit string, err error) {
	if err := s.until(ctx, fmt.Sprintf("the plan of pull request %d is shown", pull), 20*time.Second, func() (bool, error) {
		return labtest.PlanShown(s.forge, pull), nil
	}); err != nil {
		return "", err
	}
	return s.forge.Merge(pull, s.mergeMethod, login)
}

// train is a commit that sets the number of workers of labtest.Train.
func train(workers int) gittest.Commit {
	return gittest.Commit{Files: map[string]string{labtest.TrainFile: labtest.InstanceYAML(labtest.Train.Name, workers)}}
}

// statusTree reads the status branch.
func (s *stage) statusTree(ctx context.Context) (reconciler.StatusTree, error) {
	tip := s.git.Tip(reconciler.BranchStatus)
	if tip == "" {
		return reconciler.StatusTree{}, nil
	}
	return s.repo.ReadStatus(ctx, tip)
}

func (s *stage) status(ctx context.Context, key schema.Key) (*plan.Status, error) {
	tree, err := s.statusTree(ctx)
	if err != nil {
		return nil, err
	}
	if tree.Units.Get(key) == nil {
		return nil, fmt.Errorf("%s has no status", key)
	}
	return tree.Units.Get(key), nil
}

func (s *stage) untilPhase(ctx context.Context, key schema.Key, phase plan.Phase) (*plan.Status, error) {
	var last *plan.Status
	err := s.until(ctx, fmt.Sprintf("%s is %s", key, phase), time.Minute, func() (bool, error) {
		tree, err := s.statusTree(ctx)
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

func (s *stage) untilGone(ctx context.Context, key schema.Key) error {
	// The phase changes first; the status file is deleted a moment later.
	return s.until(ctx, key.String()+" is gone", time.Minute, func() (bool, error) {
		tree, err := s.statusTree(ctx)
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
func (s *stage) untilWorkers(ctx context.Context, workers int) error {
	return s.until(ctx, fmt.Sprintf("%s runs with %d workers", labtest.Train, workers), time.Minute, func() (bool, error) {
		st, err := s.status(ctx, labtest.Train)
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
func (s *stage) unit(ctx context.Context, key schema.Key) (*plan.Unit, runtimes.Stamp, error) {
	tree, err := s.statusTree(ctx)
	if err != nil {
		return nil, runtimes.Stamp{}, err
	}
	st := tree.Units.Get(key)
	if st == nil || st.Observed == nil || st.Observed.Unit == nil {
		return nil, runtimes.Stamp{}, fmt.Errorf("%s is not there", key)
	}
	return st.Observed.Unit, runtimes.Stamp{Epoch: tree.Revision.Epoch, Leader: tree.Revision.Leader, Commit: st.Revision, CorrelationID: st.CorrelationID}, nil
}

// close ends everything, in an order that leaves no processes or files. A second
// call has no effect.
func (s *stage) close() error {
	var errs []error
	if s.daemon != nil {
		errs = append(errs, s.daemon.stop())
		s.daemon = nil
	}
	if s.hosts != nil {
		errs = append(errs, s.hosts.Close())
		s.hosts = nil
	}
	if s.lab != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		errs = append(errs, s.lab.Down(ctx))
		s.lab = nil
	}
	if s.repo != nil {
		errs = append(errs, s.repo.Close())
		s.repo = nil
	}
	if s.forge != nil {
		s.forge.Close()
		s.forge = nil
	}
	if s.git != nil {
		s.git.Close()
		s.git = nil
	}
	return errors.Join(errs...)
}

// residentMiB is the resident memory of a process.
func residentMiB(pid int) (float64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if kib, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(kib), " kB"), 64)
			return n / 1024, err
		}
	}
	return 0, fmt.Errorf("memory of process %d unknown", pid)
}
