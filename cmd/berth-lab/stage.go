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
	image       string // Debian suite of the hosts; "": this machine's system
	berth       string // the program berth
	memory      bool
	nodes       []lab.Node
	files       map[string]string // the estate at the start

	remote
	lab    *lab.Lab
	hosts  runtimes.Hosts
	jobs   slurmtest.Jobs
	daemon *served
	pull   int // of the demo's first pull request
}

func newStage(o demoOptions) (*stage, error) {
	s := &stage{dir: o.dir, helper: o.helper, image: o.image, berth: o.berth, memory: o.memory,
		remote: remote{mergeMethod: githubtest.Merge, patience: o.patience}, files: labtest.Files()}
	var err error
	s.nodes, err = nodesOf(s.files)
	return s, err
}

// nodesOf returns the hosts of an estate's Node documents, by name.
func nodesOf(files map[string]string) ([]lab.Node, error) {
	var nodes []lab.Node
	for path, text := range files {
		if strings.HasPrefix(path, "platform/nodes/") {
			var doc struct {
				Metadata struct{ Name string }
				Spec     schema.NodeSpec
			}
			if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			nodes = append(nodes, lab.NodeOf(doc.Metadata.Name, doc.Spec))
		}
	}
	slices.SortFunc(nodes, func(a, b lab.Node) int { return strings.Compare(a.Name, b.Name) })
	return nodes, nil
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
	nodes, err := nodesOf(labtest.Files())
	if err == nil {
		err = lab.Possible(ctx, nodes...)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

func (s *stage) labUp(ctx context.Context) (err error) {
	log, err := os.Create(filepath.Join(s.dir, "lab.log"))
	if err != nil {
		return err
	}
	l := slog.New(slog.NewTextHandler(log, nil))
	if s.lab, err = lab.Up(ctx, lab.Config{Dir: filepath.Join(s.dir, "lab"), Helper: s.helper, Nodes: s.nodes, Image: s.image,
		Packages: slurmtest.Packages(), Auto: true, Log: l}); err != nil {
		return err
	}
	// The lab chose free addresses; write them into the estate.
	for _, n := range s.nodes {
		now, _ := s.lab.Node(n.Name)
		path := "platform/nodes/" + n.Name + ".yaml"
		s.files[path] = strings.Replace(s.files[path], "address: "+n.Address, "address: "+now.Address, 1)
	}
	if s.hosts, err = host.NewSSH(host.SSHOptions{User: s.lab.User(), KeyFile: s.lab.KeyFile(), KnownHosts: s.lab.KnownHosts(),
		Log: l}); err != nil {
		return err
	}
	s.jobs = slurmtest.Jobs{Hosts: s.hosts}
	return nil
}

// world returns the files of the daemon's memory runtime.
func (s *stage) world() (*memory.World, error) {
	return memory.OpenWorld(filepath.Join(s.dir, "world"))
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
		ctx, cancel := context.WithTimeout(context.Background(), max(30*time.Second, s.patience))
		defer cancel()
		errs = append(errs, s.lab.Down(ctx))
		s.lab = nil
	}
	return errors.Join(append(errs, s.remote.close())...)
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
