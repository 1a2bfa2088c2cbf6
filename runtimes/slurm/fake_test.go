package slurm

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/examples/await"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/accounting"
	"berth/runtimes/slurm/accounting/accountingtest"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// fakeHosts are hosts in memory for states that are hard to reach with real daemons.
// Files and services work, and a test sets the output of programs.
type fakeHosts struct {
	mu    sync.Mutex
	hosts map[string]*fakeHost
}

type fakeHost struct {
	all      *fakeHosts
	name     string
	files    map[string][]byte
	modes    map[string]uint32 // of written files
	services map[string]bool
	users    map[string]int
	runs     []string // every program that ran, with its arguments, as "squeue --all"
	// answer returns the output of a program and its exit status; nil: no output and 0.
	answer func(run *runtimes.Run) (string, int)
	// before is called before every operation; an error of it is the operation's.
	before func(op runtimes.Op) error
	asked  func(runtimes.Stamp)
	// request is called before every request; an error of it is the request's.
	request   func(ops []runtimes.Op) error
	noCgroups bool // it has no control groups
	// changedDirs are the modes of directories of a worker that are not as Berth makes them; 0: one is missing.
	changedDirs map[string]uint32
	full        string // a directory whose disk is full
	// fetched has the file of ctl of which slurmd has a copy, by the path of the copy.
	fetched map[string]string
	// made says which files Berth made; nil: all.
	made func(path string) bool
}

func (f *fakeHosts) Host(m plan.Member) runtimes.Host { return f.host(m.Node) }

func (f *fakeHosts) Close() error { return nil }

func (f *fakeHosts) host(name string) *fakeHost {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.hosts[name]
	if h == nil {
		h = &fakeHost{all: f, name: name, files: map[string][]byte{}, modes: map[string]uint32{}, services: map[string]bool{},
			users: map[string]int{}}
		f.hosts[name] = h
	}
	return h
}

func (h *fakeHost) Name() string { return h.name }

func (h *fakeHost) Do(ctx context.Context, stamp runtimes.Stamp, ops ...runtimes.Op) ([]runtimes.Result, error) {
	var out []runtimes.Result
	if h.asked != nil {
		h.asked(stamp)
	}
	if h.request != nil {
		if err := h.request(ops); err != nil {
			return nil, err
		}
	}
	for _, op := range ops {
		if err := ctx.Err(); err != nil {
			return out, err
		}
		if h.before != nil {
			if err := h.before(op); err != nil {
				return out, err
			}
		}
		h.all.mu.Lock()
		res, err := h.one(op)
		h.all.mu.Unlock()
		if err != nil {
			return out, err
		}
		out = append(out, res)
	}
	return out, nil
}

// directory returns the mode of a directory of a worker, as Berth makes it unless a test changed it; 0: it is missing.
func (h *fakeHost) directory(p string) (mode uint32, isOne bool) {
	if mode, isChanged := h.changedDirs[p]; isChanged {
		return mode, true
	}
	for _, d := range workerDirectories(profile.Stack{Cluster: path.Base(p)}) {
		if d.path == p {
			return d.mode, true
		}
	}
	return 0, false
}

func (h *fakeHost) one(op runtimes.Op) (res runtimes.Result, err error) {
	switch {
	case op.Read != nil:
		data, ok := h.files[op.Read.Path]
		return runtimes.Result{Data: slices.Clone(data), Missing: !ok}, nil
	case op.Write != nil:
		res.Changed = string(h.files[op.Write.Path]) != string(op.Write.Data)
		h.files[op.Write.Path], h.modes[op.Write.Path] = slices.Clone(op.Write.Data), op.Write.Mode
	case op.Remove != nil:
		for name := range h.files {
			if op.Remove.IfEmpty {
				break // there are no directories here
			}
			if name == op.Remove.Path || strings.HasPrefix(name, op.Remove.Path+"/") {
				delete(h.files, name)
			}
		}
	case op.Secret != nil:
		if h.files[op.Secret.Path] == nil {
			h.files[op.Secret.Path], h.modes[op.Secret.Path] = []byte("secret"), op.Secret.Mode
		}
	case op.Stat != nil:
		for _, p := range op.Stat.Paths {
			data, ok := h.files[p]
			if here := h.fetched[p]; here != "" {
				data, ok = h.all.hosts["ctl"].files[here]
			}
			sum := sha256.Sum256(data)
			st := runtimes.FileStat{Path: p, Exists: ok, Mode: h.modes[p], SHA256: hex.EncodeToString(sum[:]), Made: ok &&
				(h.made == nil || h.made(p))}
			if strings.HasPrefix(p, "/dev/") {
				st.Exists, st.Type = true, "char"
			}
			if strings.HasPrefix(p, "/sys/fs/cgroup/") {
				st.Exists = !h.noCgroups
			}
			// Directories of a worker are as Berth makes them, unless a test removes or changes one.
			if mode, isOne := h.directory(p); isOne {
				st = runtimes.FileStat{Path: p, Exists: mode > 0, Type: "dir", Mode: mode, Made: true}
			}
			st.Full = p == h.full
			res.Stats = append(res.Stats, st)
		}
	case op.List != nil:
		for name := range h.files {
			if path.Dir(name) == op.List.Path {
				res.Names = append(res.Names, path.Base(name))
			}
		}
		slices.Sort(res.Names)
	case op.Dir != nil:
		delete(h.changedDirs, op.Dir.Path)
	case op.UserDir != nil:
		dir := fmt.Sprintf("%s/%s-%d", op.UserDir.In, op.UserDir.Name, op.UserDir.UID)
		res.Changed = h.files[dir] == nil
		h.files[dir] = []byte{}
	case op.Service != nil:
		was := h.services[op.Service.Name]
		if op.Service.Verb != "state" {
			h.services[op.Service.Name] = op.Service.Verb != "stop" && op.Service.Verb != "clear"
			res.Changed = was != h.services[op.Service.Name] || op.Service.Verb == "restart"
			h.runs = append(h.runs, op.Service.Verb+" "+op.Service.Name)
		}
		res.Service = &runtimes.ServiceStatus{Running: h.services[op.Service.Name]}
	case op.Run != nil:
		h.runs = append(h.runs, op.Run.Program+" "+strings.Join(op.Run.Args, " "))
		var said string
		if h.answer != nil {
			said, res.Exit = h.answer(op.Run)
		}
		res.Data = []byte(said)
		if res.Exit != 0 {
			res.Stderr = []byte(said)
		}
		if res.Exit != 0 && !op.Run.AllowExit {
			return res, &runtimes.OpError{Host: h.name, Op: "run " + op.Run.Program, Message: said, Code: "exit", Exit: res.Exit}
		}
	case op.User != nil && op.User.Absent:
		delete(h.users, op.User.Name)
	case op.User != nil:
		h.users[op.User.Name] = op.User.UID
	case op.Info != nil:
		res.Info = &runtimes.HostInfo{Hostname: h.name}
	}
	return res, nil
}

// ran reports whether a command line with all of words was run.
func (h *fakeHost) ran(words ...string) bool { return h.when(words...) >= 0 }

// when returns the number of the first such command, or -1.
func (h *fakeHost) when(words ...string) int {
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	return slices.IndexFunc(h.runs, func(line string) bool {
		return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) })
	})
}

// fakeCluster is a complete unit on fake hosts, with the answers of its Slurm.
type fakeCluster struct {
	hosts      *fakeHosts
	rt         *Runtime
	unit       plan.Unit
	ctl        *fakeHost
	wk         *fakeHost
	now        time.Time
	mu         sync.Mutex
	queue      []string                 // lines of squeue
	excluded   []string                 // lines of squeue about excluded nodes
	lastJob    int                      // the highest id of a job in accounting
	readOnly   int                      // whether its database server is
	partitions []string                 // as slurmctld has them; "main DOWN": in a state other than UP
	db         *accountingtest.Database // slurmctld has the same
	node       string                   // JSON of the one node; empty: slurmctld knows none
	hardware   string                   // what slurmd -C prints of CPUs and their shape
	version    string                   // of Slurm
	sinfo      string                   // what sinfo --json prints instead of its list of nodes
	hash       string                   // the line of show config
	workerHash string
}

const idleNode = `{"name":"gpu-1","state":"idle","state_flags":[],"reason":"","gres":"gpu:a100:1","features":"worker,gpu,a100","partitions":["main"],"weight":1,"cpus":4,"alloc_cpus":0,"real_memory":4000,"slurmd_version":"x","boot_time":1}`

// newerNode turns a node of 22.05 into the shape of 24.11.
var newerNode = strings.NewReplacer(`"state":"idle","state_flags":[]`, `"state":["IDLE"]`, `"state":"idle","state_flags":["`,
	`"state":["IDLE","`, `"features":"worker,gpu,a100"`, `"features":["worker","gpu","a100"]`, "slurmd_version", "version", `"boot_time":1`,
	`"boot_time":{"set":true,"infinite":false,"number":1}`)

func nodeDrained(reason string) string {
	return strings.NewReplacer(`[]`, `["DRAIN"]`, `"reason":""`, `"reason":"`+reason+`"`).Replace(idleNode)
}

// runtime returns the runtime of a daemon that waits so long for a start.
func (c *fakeCluster) runtime(ready time.Duration) *Runtime {
	return New(Options{Hosts: c.hosts, Timeouts: Timeouts{Call: time.Minute, Ready: ready, Look: time.Minute},
		Now: func() time.Time { return c.now }})
}

func newCluster(t *testing.T) *fakeCluster {
	t.Helper()
	f := &fakeHosts{hosts: map[string]*fakeHost{}}
	c := &fakeCluster{
		hosts: f, ctl: f.host("ctl"), wk: f.host("gpu-1"), now: time.Unix(1_700_000_000, 0),
		partitions: []string{"main"}, node: idleNode, version: "22.05.8",
		hardware: "CPUs=4 Boards=1 SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=1", hash: "HASH_VAL = Match",
		workerHash: "HASH_VAL = Match",
	}
	c.rt = c.runtime(await.Limit)
	c.unit = plan.Unit{
		Effective: schema.EffectiveUnit{
			Key: schema.InstanceKey("t", "p", "one"), DesiredState: schema.DesiredRunning,
			Users: []schema.UnixUser{{Name: "alice", UID: 2001}},
		},
		Members: []plan.Member{
			{Name: "controller-0", Role: "controller", ControlPlane: true, Node: "ctl", Address: "10.77.0.10"},
			{Name: "worker-0", Role: "worker", Node: "gpu-1", Address: "10.77.0.11", CPUs: 4, MemoryMiB: 4000,
				GPUs: []schema.GPU{{Type: "a100", Count: 1, Devices: "/dev/nvidia0"}}},
		},
	}
	rec := c.freshRecord()
	c.put(t, rec)
	tree, err := rec.accounting()
	require.NoError(t, err)
	c.db = &accountingtest.Database{Tree: tree}
	c.ctl.files[profile.DatabaseData], c.ctl.files[profile.DatabaseInstalled] = nil, nil
	for _, name := range controlServices() {
		c.ctl.services[name] = true
	}
	mine := workerRecord{Format: workerFormat, Cluster: rec.Cluster, Key: c.unit.Effective.Key, Node: "gpu-1",
		Users: c.unit.Effective.Users}
	c.wk.files[workerRecordPath] = mine.encode()
	c.wk.files[profile.WorkerMungeKey], c.wk.modes[profile.WorkerMungeKey] = []byte("key"), keyMode
	for _, u := range c.unit.Effective.Users {
		c.wk.files[profile.Stack{Cluster: rec.Cluster}.JobsOf(u.Name, u.UID)] = []byte{}
	}
	c.wk.fetched = map[string]string{}
	for here, there := range (profile.Stack{Cluster: rec.Cluster}).FetchedFiles() {
		c.wk.fetched[there] = here
	}
	c.wk.services[profile.MungedWorker], c.wk.services[profile.Slurmd] = true, true
	c.ctl.users["alice"], c.wk.users["alice"] = 2001, 2001
	c.ctl.answer, c.wk.answer = c.answer, c.answer
	return c
}

// freshRecord returns the record of the unit after its creation.
func (c *fakeCluster) freshRecord() record {
	rec := record{
		Format: recordFormat, Cluster: cluster.Name(c.unit.Effective.Key), Unit: c.unit, phase: phase{Complete: true}, Hostname: "ctl",
		Ports:  cluster.Ports{Slurmctld: cluster.FirstPort, Slurmdbd: cluster.FirstPort + 1},
		upkeep: upkeep{MungeKey: digest([]byte("key")), BackedUp: c.now},
	}
	rec.setJoined(c.unit.Members[1])
	return rec
}

// put writes a record and its files.
func (c *fakeCluster) put(t *testing.T, rec record) {
	t.Helper()
	all, err := files(&rec)
	require.NoError(t, err)
	for name, f := range all {
		c.ctl.files[name], c.ctl.modes[name] = f.Data, f.Mode
	}
	s := profile.Stack{Cluster: rec.Cluster}
	c.ctl.files[s.Record()], c.ctl.files[s.RecordCopy()] = rec.encode(), rec.encode()
	c.ctl.files[s.Munge().Key()], c.ctl.modes[s.Munge().Key()] = []byte("key"), keyMode
	c.ctl.files[profile.DatabaseInstalled] = nil
	c.ctl.files[s.StateMark()] = []byte(rec.Cluster)
}

// loseRecord removes the record and its copy.
func (c *fakeCluster) loseRecord() {
	s := profile.Stack{Cluster: cluster.Name(c.unit.Effective.Key)}
	delete(c.ctl.files, s.Record())
	delete(c.ctl.files, s.RecordCopy())
}

// record reads the current record.
func (c *fakeCluster) record(t *testing.T) record {
	t.Helper()
	s := profile.Stack{Cluster: cluster.Name(c.unit.Effective.Key)}
	of := func(path string) runtimes.Result {
		text, found := c.ctl.files[path]
		return runtimes.Result{Data: text, Missing: !found}
	}
	rec, _, err := eitherRecord(of(s.Record()), of(s.RecordCopy()))
	require.NoError(t, err)
	return rec
}

// answer returns the output of Slurm's tools.
func (c *fakeCluster) answer(run *runtimes.Run) (string, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	line := run.Program + " " + strings.Join(run.Args, " ")
	switch {
	case strings.HasPrefix(line, "sdiag"):
		return "Agent queue size:     0\nAgent count:          0\n", 0
	case run.Program == "mariadb" && strings.Contains(string(run.Stdin), "MAX(id_job)"):
		return fmt.Sprintln(c.lastJob), 0
	case run.Program == "mariadb" && strings.Contains(line, "read_only"):
		return fmt.Sprintln(c.readOnly), 0
	case line == "slurmd -C":
		return "NodeName=gpu-1 " + c.hardware + " RealMemory=4000\nUpTime=0-01:00:00\n", 0
	case line == "scontrol ping":
		return "Slurmctld(primary) at ctl is UP\n", 0
	case line == "scontrol show config" && strings.HasPrefix(run.Env["SLURM_CONF"], profile.WorkerConfLink):
		return "SLURM_VERSION = " + c.version + "\n" + c.workerHash + "\n", 0
	case line == "scontrol show config":
		return "SLURM_VERSION = " + c.version + "\n" + c.hash + "\n", 0
	case slices.Equal(run.Args, []string{"-V"}):
		return "slurm-wlm " + c.version + "\n", 0
	case line == "scontrol show reservations --oneliner":
		return "No reservations in the system\n", 0
	case line == "scontrol show partitions":
		if len(c.partitions) == 0 {
			return "No partitions in the system\n", 0
		}
		var b strings.Builder
		for _, p := range c.partitions {
			name, state, _ := strings.Cut(p, " ")
			fmt.Fprintf(&b, "PartitionName=%s\n   AllowGroups=ALL\n   State=%s\n\n", name, cmp.Or(state, "UP"))
		}
		return b.String(), 0
	case line == "scontrol show assoc_mgr flags=qos":
		var b strings.Builder
		b.WriteString("Current Association Manager state\n\nQOS Records\n\n")
		for name := range c.db.QoS {
			fmt.Fprintf(&b, "QOS=%s(1)\n", name)
		}
		return b.String(), 0
	case strings.HasPrefix(line, "scontrol show assoc_mgr"):
		var b strings.Builder
		b.WriteString("Current Association Manager state\n\nAssociation Records\n\n")
		for name, u := range c.db.Users {
			for p := range u.Associations {
				fmt.Fprintf(&b, "ClusterName=x Account=%s UserName=%s(1) Partition= Priority=0 ID=4\n", p.Account, name)
			}
		}
		return b.String(), 0
	case run.Program == "id":
		var b strings.Builder
		for _, name := range run.Args[1:] {
			if uid, ok := c.ctl.users[name]; ok {
				fmt.Fprintln(&b, uid)
			}
		}
		return b.String(), 0
	case strings.HasPrefix(line, "scontrol update nodename="):
		switch {
		case strings.Contains(line, "state=undrain"):
			c.node = idleNode
		case strings.Contains(line, "state=drain"):
			_, reason, _ := strings.Cut(line, "reason=")
			c.node = nodeDrained(reason)
		}
	case line == "scontrol reconfigure":
		for _, name := range cluster.ParseConf([]byte(c.conf())).Partitions() {
			if !slices.ContainsFunc(c.partitions, func(p string) bool { return strings.HasPrefix(p+" ", name+" ") }) {
				c.partitions = append(c.partitions, name)
			}
		}
	case strings.HasPrefix(line, "scontrol delete partitionname="):
		c.partitions = slices.DeleteFunc(c.partitions, func(p string) bool { return strings.HasSuffix(line, "="+p) })
	case line == "scontrol show nodes --json=v0.0.42" && !strings.HasPrefix(c.version, "22."):
		return `{"errors":[],"nodes":[` + newerNode.Replace(c.node) + `]}`, 0
	case line == "sinfo --json" && c.sinfo != "":
		return c.sinfo, 0
	case line == "sinfo --json":
		return `{"meta":{"Slurm":{"release":"22.05.8"}},"errors":[],"nodes":[` + c.node + `]}`, 0
	case run.Program == "squeue" && slices.Contains(run.Args, profile.EndedFormat):
		return endedHeading, 0
	case run.Program == "squeue" && slices.ContainsFunc(run.Args, func(a string) bool { return strings.HasPrefix(a, "--Format=") }):
		return c.snapshot(), 0
	case run.Program == "squeue" && slices.Contains(run.Args, profile.ExcludedFormat):
		return "JOBID EXC_NODES\n" + strings.Join(append(slices.Clone(c.excluded), ""), "\n"), 0
	case run.Program == "squeue":
		out := "JOBID ST UID PARTITION\n"
		for _, job := range c.queue {
			words := strings.Fields(job)
			out += strings.Join(words[:min(len(words), 4)], " ") + "\n"
		}
		return out, 0
	case run.Program == "scancel":
		c.queue = slices.DeleteFunc(c.queue, func(job string) bool { return slices.Contains(run.Args, strings.Fields(job)[0]) })
	case run.Program == "sacctmgr" && slices.Contains(run.Args, "list"):
		return c.db.List(run.Args), 0
	case run.Program == "sacctmgr" && !slices.Contains(run.Args, "load"):
		if err := c.db.Run(run.Args); err != nil {
			return err.Error(), 1
		}
	}
	return "", 0
}

// snapshot returns what squeue prints of all jobs.
func (c *fakeCluster) snapshot() string {
	out := "JOBID|JOBID|ST|USER|ACCOUNT|QOS|PARTITION|NODELIST|TRES_ALLOC|START_TIME|TIME_LIMIT|REQ_NODES|REASON|MIN_CPUS|MIN_MEMORY|TRES_PER_NODE|FEATURES|\n"
	for _, job := range c.queue {
		words := strings.Fields(job)
		named := strings.Join(words[4:], "") // the nodes that it asks for by name
		out += words[0] + "|" + words[0] + "|" + words[1] + "|" + words[2] + "|members|normal|" + words[3] + "||cpu=1|1795395501|5:00|" +
			named +
			"|None|1|1M|N/A|(null)|\n"
	}
	return out
}

// people returns the users with an association.
func (c *fakeCluster) people() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(c.db.Users)), func(name string) bool { return name == accounting.Root })
}

// say changes the answers of Slurm, also during a call.
func (c *fakeCluster) say(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *fakeCluster) apply(t *testing.T, verb plan.Verb, after plan.Unit) error {
	t.Helper()
	before := c.record(t).Unit
	p := plan.Plan{Key: c.unit.Effective.Key, Before: &before, After: &after}
	a := plan.Action{ID: "action.1", Verb: verb, Member: "worker-0", Node: "gpu-1"}
	return c.rt.Apply(t.Context(), runtimes.Change{Plan: &p, Action: a, Stamp: runtimes.Stamp{Epoch: 1, ActionID: a.ID}})
}

func (c *fakeCluster) observe(t *testing.T) plan.Observed {
	t.Helper()
	return c.rt.Observe(t.Context(), runtimes.Scope{Key: c.unit.Effective.Key, Members: c.unit.Members[:1]})
}

// on returns the lifecycle of the cluster with its record loaded.
func (c *fakeCluster) on(t *testing.T) lifecycle {
	t.Helper()
	ctl := newLifecycle(newControl(c.rt.env, c.unit.Members[0], c.unit.Effective.Key, runtimes.Stamp{Epoch: 1, ActionID: "action.1"}))
	require.NoError(t, ctl.load(t.Context()))
	return ctl
}

// withPartition returns the unit with one partition of that name.
func (c *fakeCluster) withPartition(name string) plan.Unit {
	u := c.unit
	u.Effective.Config = partitionNamed(name)
	return u
}

var errCrash = errors.New("scripted crash")
