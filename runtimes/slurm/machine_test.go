//go:build machines

package slurm_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/host"
	"berth/runtimes/host/lab"
	"berth/runtimes/slurm"
	"berth/runtimes/slurm/profile"
	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
)

// site is a unit on emulated machines with systemd: a controller and a worker.
type site struct {
	*company
	*testing.T
	unit    plan.Unit
	cluster string
	begun   time.Time
}

// patience is how long anything may take on emulated machines beside other tests.
const patience = 5 * time.Minute

func newSite(t *testing.T) *site {
	t.Helper()
	needRoot(t)
	s := &stage{control: nodeDoc("ctl", "10.77.0.10", 0), workers: []*schema.Node{nodeDoc("gpu-1", "10.77.0.11", 2)}}
	s.control.Spec.Capacity.CPUs = 1
	s.workers[0].Spec.Capacity.CPUs = 2
	self, err := os.Executable()
	require.NoError(t, err)
	config := lab.Config{
		Dir: filepath.Join(t.TempDir(), "lab"), Helper: self, Auto: true,
		Machines: true, Image: os.Getenv("BERTH_LAB_IMAGE"), Packages: slurmtest.Packages(),
	}
	for _, n := range []*schema.Node{s.control, s.workers[0]} {
		n.Spec.Capacity.MemoryMiB = 1000
		config.Nodes = append(config.Nodes, lab.NodeOf(n.Key.Name, n.Spec))
	}
	begun := time.Now()
	s.lab, err = lab.Up(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.lab.Down(context.Background())) })
	for _, n := range []*schema.Node{s.control, s.workers[0]} {
		have, _ := s.lab.Node(n.Key.Name)
		n.Spec.Address = have.Address
	}
	hosts, err := host.NewSSH(host.SSHOptions{User: s.lab.User(), KeyFile: s.lab.KeyFile(), KnownHosts: s.lab.KnownHosts(), DialTimeout: time.Minute, KeepAlive: 30 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, hosts.Close()) })
	s.hosts = &faulty{inner: hosts, cut: map[string]bool{}}
	c := &company{stage: s}
	c.rt = slurm.New(slurm.Options{Hosts: s.hosts, Timeouts: slurm.Timeouts{Call: time.Minute, Ready: patience, Look: time.Minute}})
	u := c.unit(onePartition, []schema.UnixUser{alice}, nil, 0)
	site := &site{company: c, T: t, unit: u, cluster: slurm.ClusterName(u.Instance.Key), begun: begun}
	site.tell("two machines are up")
	return site
}

// tell logs an event with the time since the begin.
func (s *site) tell(format string, args ...any) {
	s.Logf("%4.0f s: %s", time.Since(s.begun).Seconds(), fmt.Sprintf(format, args...))
}

// on runs a script on a machine.
func (s *site) on(node, script string) string {
	s.Helper()
	out, err := s.lab.Run(s.Context(), node, "bash", "-ec", script)
	require.NoError(s, err, out)
	return strings.TrimSpace(out)
}

func (s *site) wait(what string, ok func() (bool, string)) {
	s.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Second) {
		done, seen := ok()
		if done {
			return
		}
		if time.Now().After(deadline) {
			require.FailNow(s, what+": not within "+patience.String(), seen)
		}
	}
}

// settle makes the cluster as declared, as the daemon does: it observes and applies until
// nothing is left to do. It returns the errors of actions.
func (s *site) settle(u plan.Unit, gone bool) (errs []string) {
	s.Helper()
	s.wait("nothing left to do", func() (bool, string) {
		p := s.plan(s.T, u, gone)
		switch {
		case len(p.Blocked) > 0:
			return false, fmt.Sprint(p.Blocked)
		case p.Empty():
			return true, ""
		}
		for _, a := range p.Actions {
			s.tell("%s %s: %s", a.Verb, a.Member, a.Reason)
		}
		if err := s.apply(s.T, p); err != nil {
			s.tell("%v", err)
			errs = append(errs, err.Error())
		}
		return false, strings.Join(errs, "\n")
	})
	return errs
}

// job waits for a state of a job. A cluster that restarts does not answer for a while.
func (s *site) job(id string, want slurmtest.State) slurmtest.Job {
	s.Helper()
	var job slurmtest.Job
	s.wait("job "+id+" is "+string(want), func() (bool, string) {
		var err error
		job, err = slurmtest.Jobs{Hosts: s.hosts}.Job(s.Context(), &s.unit, id)
		return err == nil && job.State == want, fmt.Sprintf("%+v, %v", job, err)
	})
	return job
}

// run submits a job of one GPU and waits until it runs.
func (s *site) run(script string) slurmtest.Job {
	s.Helper()
	return s.job(s.submit(s.T, s.unit, alice, script, 1), slurmtest.Running)
}

func (s *site) completes() {
	s.Helper()
	s.job(s.submit(s.T, s.unit, alice, "test -c /dev/nvidia0 && test $CUDA_VISIBLE_DEVICES = 0", 1), slurmtest.Completed)
}

// settled waits until the cluster is as declared without any action of Berth, as after a boot.
func (s *site) settled() {
	s.Helper()
	s.wait("the cluster comes up by itself", func() (bool, string) {
		o := s.observe(s.T, s.unit)
		ok := o.Presence == plan.Present && len(o.Drift) == 0
		for _, m := range o.Members {
			ok = ok && m.State == plan.Running
		}
		return ok, fmt.Sprintf("%s %v %v", o.Reason, o.Members, o.Drift)
	})
}

func (s *site) slurmd() string { return "berth-" + profile.Slurmd + "-" + s.cluster + ".service" }

// property reads a property of a unit.
func (s *site) property(node, unit, name string) string {
	s.Helper()
	return s.on(node, "systemctl show --value --property="+name+" "+unit)
}

// bootedWell requires that each unit started once, in order, and none failed.
func (s *site) bootedWell() {
	s.Helper()
	for node, order := range map[string][]string{
		"ctl":   {"munged-" + s.cluster, "slurmdbd-" + s.cluster, "slurmctld-" + s.cluster},
		"gpu-1": {"munged-worker-" + s.cluster, "slurmd-" + s.cluster},
	} {
		s.on(node, "systemctl is-system-running --wait || { systemctl --failed; exit 1; }")
		ready := map[string]int{} // microseconds after the boot
		for block := range strings.SplitSeq(s.on(node, "systemctl show --property=Id,NRestarts,ActiveEnterTimestampMonotonic 'berth-*.service'"), "\n\n") {
			values := map[string]string{}
			for line := range strings.Lines(block) {
				name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
				values[name] = value
			}
			require.Equal(s, "0", values["NRestarts"], "%s: %s", node, block)
			var err error
			ready[strings.TrimSuffix(strings.TrimPrefix(values["Id"], "berth-"), ".service")], err = strconv.Atoi(values["ActiveEnterTimestampMonotonic"])
			require.NoError(s, err, block)
		}
		if node == "ctl" {
			require.Less(s, ready["mariadbd"], ready["slurmdbd-"+s.cluster])
		}
		for i := 1; i < len(order); i++ {
			require.Positive(s, ready[order[i-1]], order[i-1])
			require.Less(s, ready[order[i-1]], ready[order[i]], "%s: %s starts before %s", node, order[i-1], order[i])
		}
	}
}

// boots waits for functions that boot machines, side by side.
func (s *site) boots(nodes []string, boot func(context.Context, string) error) {
	s.Helper()
	g, ctx := errgroup.WithContext(s.Context())
	for _, n := range nodes {
		g.Go(func() error { return boot(ctx, n) })
	}
	require.NoError(s, g.Wait())
	s.tell("booted: %v", nodes)
}

// TestMachineWholeLife is the life of a cluster on hosts with systemd and control groups of
// version 2. The numbers are those of the findings on such machines.
func TestMachineWholeLife(t *testing.T) {
	s := newSite(t)
	require.Empty(s, s.settle(s.unit, false), "no action fails on a slow host")
	s.tell("created and joined")

	// S3: the limits of a job.
	job := s.run(`scontrol update jobid=$SLURM_JOB_ID comment="memlock=$(ulimit -Hl) stack=$(ulimit -Hs)"; sleep 3600`)
	s.wait("the job tells its limits", func() (bool, string) {
		job = s.job(job.ID, slurmtest.Running)
		return job.Comment != "", job.Comment
	})
	require.Contains(s, job.Comment, "memlock=unlimited stack=unlimited")
	require.Equal(s, "yes continue process", s.on("gpu-1", "echo $(systemctl show --value --property=Delegate,OOMPolicy,KillMode "+s.slurmd()+" | sort -r | sed '/^$/d')"))

	// slurmd restarts under the job, and S10: the verb kill ends slurmd alone.
	s.on("gpu-1", "systemctl restart "+s.slurmd())
	pid := s.property("gpu-1", s.slurmd(), "MainPID")
	worker := workersOf(s.unit).Members[0]
	_, err := s.hosts.inner.Host(worker).Do(t.Context(), runtimes.Stamp{Epoch: 1}, runtimes.Op{Service: &runtimes.Service{Name: profile.Slurmd, Unit: s.cluster, Verb: "kill", TimeoutMS: 60_000}})
	require.NoError(s, err)
	s.on("gpu-1", "! test -e /proc/"+pid+" && pgrep -x sleep")
	require.Empty(s, s.settle(s.unit, false))
	require.Equal(s, job, s.job(job.ID, slurmtest.Running))
	s.tell("the job survived a restart and the verb kill of slurmd")

	// S10: a changed unit is drift, and its repair restarts nothing.
	pid = s.property("gpu-1", s.slurmd(), "MainPID")
	s.on("gpu-1", "sed -i 's/^Restart=always/Restart=no/' /etc/systemd/system/"+s.slurmd()+"; systemctl daemon-reload")
	drift := s.observe(t, s.unit).Drift
	require.Len(s, drift, 1)
	require.Equal(s, "worker-0 unit", drift[0].Member+" "+drift[0].What)
	require.Empty(s, s.settle(s.unit, false))
	require.Equal(s, "always "+pid, s.property("gpu-1", s.slurmd(), "Restart")+" "+s.property("gpu-1", s.slurmd(), "MainPID"))

	// S8: slurmd waits for a missing device file, and the status names it.
	s.on("gpu-1", "mv /dev/nvidia1 /dev/gone; kill -9 "+pid)
	s.wait("the status names the device", func() (bool, string) {
		o := s.observe(t, s.unit)
		seen := fmt.Sprint(o.Members)
		return strings.Contains(seen, "slurmd down: no device file /dev/nvidia1 on this host"), seen
	})
	require.ErrorContains(s, s.apply(t, s.plan(t, s.unit, false)), "no device file /dev/nvidia1 on this host")
	s.on("gpu-1", "mv /dev/gone /dev/nvidia1")
	s.settled() // systemd starts it
	require.Equal(s, job, s.job(job.ID, slurmtest.Running))
	s.tell("slurmd came back with its device file")

	// The worker reboots: the node comes back by itself, and its job runs again.
	s.boots([]string{"gpu-1"}, s.lab.Reboot)
	s.settled()
	s.bootedWell()
	s.tell("job after the reboot of its worker: %+v", s.job(job.ID, slurmtest.Running))
	s.tool(t, s.unit, "scancel "+job.ID)
	s.completes()

	// The controller reboots: the job goes on, and slurmctld starts after slurmdbd (S7).
	job = s.run("sleep 3600")
	time.Sleep(6 * time.Second) // slurmctld saves a job within 5 s
	s.boots([]string{"ctl"}, s.lab.Reboot)
	s.settled()
	s.bootedWell()
	require.Equal(s, job, s.job(job.ID, slurmtest.Running))
	s.tell("the job survived the reboot of the controller")

	// Both lose power.
	for _, n := range []string{"ctl", "gpu-1"} {
		require.NoError(s, s.lab.Kill(n))
	}
	s.boots([]string{"ctl", "gpu-1"}, s.lab.Boot)
	s.settled()
	s.bootedWell()
	s.tool(t, s.unit, "scancel "+job.ID)
	s.completes()
	s.tell("back after power loss of both")

	// Leave and delete, and nothing is left (S5).
	require.NotEmpty(s, s.on("gpu-1", "systemctl list-units --plain --no-legend '*slurmstepd.scope'"))
	require.Empty(s, s.settle(s.company.unit(onePartition, []schema.UnixUser{alice}, nil), false))
	s.tell("the worker left")
	require.Empty(s, s.settle(s.unit, true))
	s.tell("deleted")
	require.Empty(s, s.remains(t, s.unit))
	for _, node := range []string{"ctl", "gpu-1"} {
		require.Empty(s, s.on(node, `systemctl list-units --all --plain --no-legend 'berth-*' '*slurmstepd.scope'
			systemctl list-unit-files --no-legend 'berth-*'
			systemctl --failed --no-legend --plain; pgrep -l 'slurm|munge|maria' || true; find /sys/fs/cgroup -name '*slurm*'`), node)
	}
}
