package slurm_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/examples/await"
	"berth/examples/need"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/host"
	"berth/runtimes/host/agent"
	"berth/runtimes/host/hosttest"
	"berth/runtimes/host/lab"
	"berth/runtimes/slurm"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
)

// TestMain acts as berth-host if it is started under that name: the hosts of the lab
// get a copy of the test binary, so they run the code under test.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "berth-host" {
		a := agent.New(agent.Options{Profiles: []runtimes.Profile{profile.Profile()}, Version: "test"})
		if err := a.Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	if err := flag.Set("test.parallel", fmt.Sprint(2*sideBySide)); err != nil { // the tests wait most of their time
		panic(err)
	}
	code := m.Run()
	if err := stages().down(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// needSlurm skips a test where this machine cannot run real Slurm on lab hosts.
func needSlurm(t testing.TB) {
	t.Helper()
	hosttest.NeedLab(t)
	need.Programs(t, slurmtest.Programs()...)
}

// stage is a lab with a runtime and a way to cause faults.
type stage struct {
	spoiled bool // the lab is not lent again
	lab     *lab.Lab
	version cli.Version
	hosts   *faulty
	control *schema.Node
	workers []*schema.Node
	attempt int // number of actions, each of which has an id of its own

	machine schema.Shape // of this machine, as slurmd finds it on each host

	notRun     string          // why its version of Slurm is not tested, or this machine is too small
	hasCluster bool            // the base cluster is there
	pictures   map[bool]string // of the hosts as first lent, with and without the cluster
}

// twoCores is the shape that the nodes of a lab declare: two jobs run side by side on any machine
// with two cores, also if each core has two threads.
var twoCores = schema.Shape{Sockets: 1, CoresPerSocket: 2, ThreadsPerCore: 1}

func nodeDoc(name, address string, gpus int) *schema.Node {
	n := &schema.Node{
		Header: schema.Header{Key: schema.Key{Kind: schema.KindNode, Name: name}},
		Spec: schema.NodeSpec{
			Address: address, SSHPort: 22, Region: "lab", SKU: "lab", Capacity: schema.Capacity{CPUs: 2, Shape: twoCores, MemoryMiB: 4000},
		},
	}
	if gpus > 0 {
		n.Spec.Capacity.GPUs = []schema.GPU{{Type: "a100", Count: gpus, Devices: fmt.Sprintf("/dev/nvidia[0-%d]", gpus-1)}}
	}
	return n
}

// newStageOf returns a stage of the test's own, with a number of hosts for workers, the first of which have
// the names.
func newStageOf(t testing.TB, workers int, names ...string) *stage {
	t.Helper()
	needSlurm(t)
	s, err := makeStage(workers, names...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.down()) })
	if s.notRun != "" {
		t.Skip(s.notRun)
	}
	return s
}

// makeStage makes a lab with a number of hosts for workers.
func makeStage(workers int, names ...string) (s *stage, err error) {
	s = &stage{control: nodeDoc("ctl", "10.77.0.10", 0), pictures: map[bool]string{}}
	for i := range workers {
		name := fmt.Sprintf("gpu-%d", i+1)
		if i < len(names) {
			name = names[i]
		}
		s.workers = append(s.workers, nodeDoc(name, fmt.Sprintf("10.77.0.%d", 11+i), 2))
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := temporaryDir()
	if err != nil {
		return nil, err
	}
	config := lab.Config{Dir: dir, Helper: self, Auto: true, Image: hosttest.Image(), Packages: slurmtest.Packages()}
	for _, n := range append([]*schema.Node{s.control}, s.workers...) {
		config.Nodes = append(config.Nodes, lab.NodeOf(n.Key.Name, n.Spec))
	}
	ctx := context.Background()
	if s.lab, err = lab.Up(ctx, config); err != nil {
		return nil, errors.Join(err, os.RemoveAll(filepath.Dir(dir)))
	}
	version, err := s.lab.PackageVersion(ctx, s.control.Key.Name, "slurmctld")
	if err != nil {
		return nil, errors.Join(err, s.lab.Down(ctx), os.Remove(filepath.Dir(dir)))
	}
	upstream, _, _ := strings.Cut(version, "-") // without Debian's revision
	s.version, s.notRun = cli.Version(upstream), slurmtest.NotRun(version)
	var has cli.Resources
	found, err := s.lab.Run(ctx, s.workers[0].Key.Name, "slurmd", "-C")
	if err == nil {
		has, err = cli.Hardware().Decode(cli.Answer{Stdout: []byte(found)})
	}
	if err != nil {
		return nil, errors.Join(err, s.lab.Down(ctx), os.Remove(filepath.Dir(dir)))
	}
	s.machine = schema.Shape{Sockets: has.Sockets, CoresPerSocket: has.CoresPerSocket, ThreadsPerCore: has.ThreadsPerCore}
	if cores := s.machine.Cores(); cores < twoCores.Cores() && s.notRun == "" {
		s.notRun = fmt.Sprintf("this machine has %d whole cores, and the nodes of a lab two", cores)
	}
	for _, n := range append([]*schema.Node{s.control}, s.workers...) {
		if have, ok := s.lab.Node(n.Key.Name); ok {
			n.Spec.Address = have.Address
		}
	}
	hosts, err := host.NewSSH(host.SSHOptions{
		User: s.lab.User(), KeyFile: s.lab.KeyFile(), KnownHosts: s.lab.KnownHosts(),
		DialTimeout: time.Minute, KeepAlive: time.Minute, Margin: time.Minute,
	})
	if err != nil {
		return nil, errors.Join(err, s.lab.Down(ctx), os.Remove(filepath.Dir(dir)))
	}
	s.hosts = &faulty{inner: hosts, cut: map[string]bool{}}
	return s, nil
}

// down removes the lab.
func (s *stage) down() error {
	return errors.Join(s.hosts.Close(), s.lab.Down(context.Background()), os.Remove(filepath.Dir(s.lab.Dir)))
}

// generous are deadlines that end only what hangs. A test whose matter is a deadline has its own.
var generous = slurm.Timeouts{Call: time.Minute, Ready: 90 * time.Second, Probe: time.Minute, Look: time.Minute}

func (s *stage) runtime(t testing.TB) *slurm.Runtime {
	return slurm.New(slurm.Options{Hosts: s.hosts, Timeouts: generous})
}

// records returns the clusters that a control host has records of, by the key of their unit.
func (s *stage) records(t testing.TB, node string) map[schema.Key]string {
	t.Helper()
	out, err := s.lab.Run(t.Context(), node, "sh", "-c", "cat /var/lib/berth/instances/*_*.json 2>/dev/null || true")
	require.NoError(t, err)
	found := map[schema.Key]string{}
	dec := json.NewDecoder(strings.NewReader(out))
	for dec.More() {
		var rec struct {
			Cluster string    `json:"cluster"`
			Unit    plan.Unit `json:"unit"`
		}
		require.NoError(t, dec.Decode(&rec))
		found[rec.Unit.Effective.Key] = rec.Cluster
	}
	return found
}

// services are the unit's services, as (host, service), with their processes.
func (s *stage) services(t testing.TB, u plan.Unit) map[string]int {
	t.Helper()
	cluster := cluster.Name(u.Effective.Key)
	out := map[string]int{}
	for _, m := range u.Members {
		names := []string{profile.MungedWorker, profile.Slurmd}
		if m.ControlPlane {
			names = []string{profile.Munged, profile.MariaDB, profile.Slurmdbd, profile.Slurmctld}
		}
		for _, name := range names {
			unit := cluster
			if name == profile.MariaDB {
				unit = ""
			}
			res, err := s.hosts.inner.Host(m).Do(t.Context(), runtimes.Stamp{},
				runtimes.Op{Service: &runtimes.Service{Name: name, Unit: unit, Verb: "state"}})
			require.NoError(t, err)
			out[m.Node+" "+name+" since "+res[0].Service.Since.String()] = res[0].Service.PID
		}
	}
	return out
}

// fingerprint changes when a daemon is restarted. Where a reconfigure restarts Slurm's daemons,
// they are left out.
func (s *stage) fingerprint(t *testing.T, u plan.Unit) string {
	all := s.services(t, u)
	maps.DeleteFunc(all, func(name string, _ int) bool {
		return s.version.Reexecutes() && (strings.Contains(name, " slurmd ") || strings.Contains(name, " slurmctld "))
	})
	return fmt.Sprint(all) // maps print sorted
}

func (s *stage) kill(t *testing.T, u plan.Unit, member string) {
	t.Helper()
	m, ok := u.Member(member)
	require.True(t, ok, member)
	service := profile.Slurmd
	if m.ControlPlane {
		service = profile.Slurmctld
	}
	s.killServices(t, u, m, service)
}

// killServices kills the processes of services on the host of a member.
func (s *stage) killServices(t *testing.T, u plan.Unit, m plan.Member, services ...string) {
	t.Helper()
	for name, pid := range s.services(t, plan.Unit{Effective: u.Effective, Members: []plan.Member{m}}) {
		if !slices.Contains(services, strings.Fields(name)[1]) {
			continue
		}
		_, err := s.lab.Run(t.Context(), m.Node, "sh", "-c", fmt.Sprintf("kill -9 %d; while test -d /proc/%[1]d; do sleep 0.01; done", pid))
		require.NoError(t, err)
	}
}

// remains lists the leftovers of a unit on all hosts: files and processes with the name
// of its cluster, its database, a worker's files, and accounts.
func (s *stage) remains(t testing.TB, u plan.Unit) []string {
	t.Helper()
	cluster := cluster.Name(u.Effective.Key)
	var left []string
	add := func(node, script string) {
		out, err := s.lab.Run(t.Context(), node, "sh", "-c", script)
		require.NoError(t, err)
		for line := range strings.Lines(out) {
			left = append(left, node+": "+strings.TrimSpace(line))
		}
	}
	others := len(s.records(t, s.control.Key.Name))
	for _, m := range u.Members {
		// files vanish meanwhile
		add(m.Node, "find /etc /run /var /home -path /var/cache/berth-lab -prune -o -name '*"+cluster+"*' -print 2>/dev/null || true")
		add(m.Node, "grep -lsaz 'BERTH_SERVICE=.*/"+cluster+"' /proc/[0-9]*/environ || true")
		if !m.ControlPlane {
			add(m.Node, "ls -d /etc/munge/berth-worker.key /var/lib/berth/instances/worker.json /run/slurm/conf "+
				"/var/lib/slurm/berth-slurmd /var/log/slurm/berth-slurmd.log 2>/dev/null || true")
			add(m.Node, "ps -e -o comm= | grep -E 'slurm|munge|maria' || true")
			add(m.Node, "grep berthtest /etc/passwd || true")
		} else if others == 0 {
			add(m.Node, "ls -d /var/lib/slurm/berth-mariadb /run/berth-mariadb 2>/dev/null || true")
			add(m.Node, "ps -e -o comm= | grep -E 'slurm|munge|maria' || true")
			add(m.Node, "grep berthtest /etc/passwd || true")
		} else {
			out, err := s.lab.Run(t.Context(), m.Node, "mariadb", "--no-defaults", "--batch", "--skip-column-names", "--user=root",
				"--socket="+profile.DatabaseSocket, "-e", "show databases; select Db from mysql.db")
			require.NoError(t, err)
			if strings.Contains(strings.ReplaceAll(out, `\`, ""), cluster) {
				left = append(left, m.Node+": database: "+out)
			}
		}
	}
	return left
}

// faulty forwards operations except those that a test makes fail.
type faulty struct {
	inner runtimes.Hosts

	mu  sync.Mutex
	cut map[string]bool
	in  int // operations to go; 0: none fails
	err error
	at  string // the scontrol command that fails next, if any
	run func(*runtimes.Run)
}

// failAt makes the next scontrol command of that name fail.
func (f *faulty) failAt(command string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at, f.err = command, err
}

func (f *faulty) Host(m plan.Member) runtimes.Host { return faultyHost{f, f.inner.Host(m)} }

func (f *faulty) Close() error { return f.inner.Close() }

// reset ends all faults.
func (f *faulty) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.cut)
	f.in, f.at, f.err, f.run = 0, "", nil, nil
}

func (f *faulty) setReachable(node string, reachable bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cut[node] = !reachable
}

func (f *faulty) failStep(n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.in, f.err = n, err
}

type faultyHost struct {
	f     *faulty
	inner runtimes.Host
}

func (h faultyHost) Name() string { return h.inner.Name() }

func (h faultyHost) Do(ctx context.Context, stamp runtimes.Stamp, ops ...runtimes.Op) ([]runtimes.Result, error) {
	h.f.mu.Lock()
	if h.f.cut[h.Name()] {
		h.f.mu.Unlock()
		return nil, fmt.Errorf("host %s: %w", h.Name(), runtimes.ErrUnreachable)
	}
	strike := -1
	var fault error
	if works(ops) && h.f.in > 0 {
		if h.f.in <= len(ops) {
			strike, fault, h.f.in = h.f.in-1, h.f.err, 0
		} else {
			h.f.in -= len(ops)
		}
	}
	for i, op := range ops {
		if op.Run != nil && h.f.at != "" && op.Run.Args[0] == h.f.at {
			strike, fault, h.f.at = i, h.f.err, ""
		}
	}
	run := h.f.run
	h.f.mu.Unlock()
	for _, op := range ops {
		if run != nil && op.Run != nil {
			run(op.Run)
		}
	}
	if strike < 0 {
		return h.inner.Do(ctx, stamp, ops...)
	}
	var res []runtimes.Result
	if strike > 0 {
		var err error
		if res, err = h.inner.Do(ctx, stamp, ops[:strike]...); err != nil {
			return res, err
		}
	}
	return res, fmt.Errorf("host %s: %w", h.Name(), fault)
}

// programs are those of the profile. It compiles many expressions.
var programs = sync.OnceValue(func() map[string]runtimes.Program { return profile.Profile().Programs })

// works reports whether a batch has an effect.
func works(ops []runtimes.Op) bool {
	return slices.ContainsFunc(ops, func(op runtimes.Op) bool {
		switch {
		case op.Read != nil, op.Stat != nil, op.List != nil, op.Info != nil, op.Service != nil && op.Service.Verb == "state":
			return false
		case op.Run != nil:
			reads := programs()[op.Run.Program].Reads
			return reads == nil || !reads(op.Run.Args)
		}
		return true
	})
}

// eventually calls ok until it is true, for decisions of the scheduler. It calls it less often
// with time, as it may start programs.
func eventually(t testing.TB, what string, ok func() (bool, string)) {
	t.Helper()
	var seen string
	await.True(t, what, func() (done bool) { done, seen = ok(); return done }, func() any { return seen })
}
