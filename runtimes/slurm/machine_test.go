//go:build machines

package slurm_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth/examples/need"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/host"
	"berth/runtimes/host/lab"
	"berth/runtimes/slurm"
	"berth/runtimes/slurm/cluster"
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
const patience = 10 * time.Minute

func newSite(t *testing.T) *site {
	t.Helper()
	need.Root(t)
	s := &stage{control: nodeDoc("ctl", "10.77.0.10", 0), workers: []*schema.Node{nodeDoc("gpu-1", "10.77.0.11", 2)}}
	s.control.Spec.Capacity.CPUs = 1
	s.workers[0].Spec.Capacity.CPUs = 2
	self, err := os.Executable()
	require.NoError(t, err)
	config := lab.Config{
		Dir: filepath.Join(t.TempDir(), "lab"), Helper: self, Auto: true,
		Machines: true, Unprepared: true, Image: os.Getenv("BERTH_LAB_IMAGE"), Packages: slurmtest.Packages(),
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
	hosts, err := host.NewSSH(host.SSHOptions{User: s.lab.User(), KeyFile: s.lab.KeyFile(), KnownHosts: s.lab.KnownHosts(),
		DialTimeout: time.Minute, KeepAlive: 30 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, hosts.Close()) })
	s.hosts = &faulty{inner: hosts, cut: map[string]bool{}}
	c := &company{stage: s}
	c.rt = slurm.New(slurm.Options{Hosts: s.hosts, Timeouts: slurm.Timeouts{Call: time.Minute, Ready: patience, Look: time.Minute}})
	u := c.unit(onePartition, []schema.UnixUser{alice}, nil, 0)
	site := &site{company: c, T: t, unit: u, cluster: cluster.Name(u.Effective.Key), begun: begun}
	site.tell("two machines are up")
	site.followGuide()
	return site
}

// followGuide prepares the machines by the commands of deploy/hosts.md, word by word. A
// block belongs to the role that the text before it names. The image has the packages
// already, whose services an installation enables and starts; one that runs is enough here.
func (s *site) followGuide() {
	s.Helper()
	page, err := os.ReadFile("../../deploy/hosts.md")
	require.NoError(s, err)
	_, steps, _ := strings.Cut(string(page), "\n## Steps")
	steps, _, _ = strings.Cut(steps, "\n## ")
	parts := strings.Split(steps, "```")
	require.Greater(s, len(parts), 18, "the page has fewer commands")
	helper, err := os.ReadFile(filepath.Join(s.lab.Dir, "berth-host"))
	require.NoError(s, err)
	key, err := exec.CommandContext(s.Context(), "ssh-keygen", "-y", "-f", s.lab.KeyFile()).Output()
	require.NoError(s, err)
	known, err := os.ReadFile(s.lab.KnownHosts())
	require.NoError(s, err)
	g, ctx := errgroup.WithContext(s.Context())
	for node, role := range map[string]string{"ctl": "controller", "gpu-1": "worker"} {
		services := map[string]string{"controller": "munge mariadb slurmdbd slurmctld", "worker": "munge slurmd"}[role]
		script := "cd /etc/systemd/system/multi-user.target.wants; ln -s $(printf '/lib/systemd/system/%s.service ' " + services + ") .\n" +
			"cd; systemctl daemon-reload; systemctl start munge; mkdir bin; cat >bin/berth-host\n" +
			"echo '#!/bin/sh' >check\n" // a health check of the site
		for i := 1; i < len(parts); i += 2 {
			text, commands := strings.ToLower(strings.Join(strings.Fields(parts[i-1]), " ")), parts[i]
			if !strings.HasPrefix(commands, "\n") { // an example of a document
				continue
			}
			if strings.Contains(text, "on a worker") && role != "worker" || strings.Contains(text, "on a controller") &&
				role != "controller" {
				continue
			}
			commands = strings.ReplaceAll(commands, "ssh-ed25519 AAAA… berth", strings.TrimSpace(string(key)))
			commands = strings.ReplaceAll(commands, "apt-get update", "true") // the machine reaches no mirror
			if strings.Contains(commands, "195:0") {                          // numbers of machines of the lab that any user may open
				commands = strings.ReplaceAll(commands, "195:0", "10:229") + strings.NewReplacer("195:0", "10:237", "nvidia0",
					"nvidia1").Replace(commands)
			}
			script += commands
		}
		g.Go(func() error {
			cmd, err := s.lab.Command(ctx, node, "bash", "-ec", script)
			if err != nil {
				return err
			}
			cmd.Stdin = bytes.NewReader(helper)
			out, err := cmd.CombinedOutput()
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			hostKey := strings.Fields(lines[len(lines)-1] + " . .") // the last command prints it
			if err != nil || !strings.Contains(string(known), hostKey[0]+" "+hostKey[1]) {
				return fmt.Errorf("%s: %v: %s", node, err, out)
			}
			return nil
		})
	}
	require.NoError(s, g.Wait())
	s.tell("both machines are prepared as the guide says")
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
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Second) { // the pace of the looks
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

// settled waits until the cluster is as declared without any action of Berth, as after a
// boot. Workers may have lost jobs.
func (s *site) settled() {
	s.Helper()
	s.wait("the cluster comes up by itself", func() (bool, string) {
		o := s.observe(s.T, s.unit)
		ok := o.Presence == plan.Present && len(o.Drift) == 0
		for _, m := range o.Members {
			ok = ok && (m.State == plan.Running || m.State == plan.Hung && strings.Contains(m.Detail, "from before the boot"))
		}
		return ok, fmt.Sprintf("%s %v %v", o.Reason, o.Members, o.Drift)
	})
}

// confines requires that a job has the GPUs, the memory and the CPUs that it asked for and no
// others, and leaves no process (S4). See TestJobsAreConfined for groups of version 1.
func (s *site) confines() {
	s.Helper()
	output := func(end slurmtest.State, script string, options ...string) (slurmtest.Job, string) {
		id, err := s.trySubmit(s.T, s.unit, alice, "exec >/tmp/out.$SLURM_JOB_ID 2>&1\n"+script+"\n", options...)
		require.NoError(s, err)
		return s.job(id, end), s.on("gpu-1", "cat /tmp/out."+id)
	}
	_, out := output(slurmtest.Completed, `setsid sleep 4711 & nproc
		for g in 0 1; do if (: <>/dev/nvidia$g) 2>/dev/null; then echo "$g opened"; else echo "$g denied"; fi; done`, "--gres=gpu:1", "--cpus-per-task=1")
	require.Equal(s, "1\n0 opened\n1 denied", out)
	s.wait("no process of the job is left", func() (bool, string) {
		left := s.on("gpu-1", "grep -alz '[4]711' /proc/[0-9]*/cmdline || true")
		return !strings.Contains(left, "proc"), left
	})
	// The scope of all jobs goes on after the memory of one was exceeded.
	beside := s.run("sleep 3600")
	job, _ := output(slurmtest.Failed, "head -c 400M /dev/zero | tail -n 1 >/dev/null; sleep 1", "--mem=100")
	require.Contains(s, job.Detail, "OUT_OF_MEMORY")
	require.Equal(s, beside, s.job(beside.ID, slurmtest.Running))
	s.tool(s.T, s.unit, "scancel "+beside.ID)
	s.tell("jobs are confined")
}

func (s *site) slurmd() string { return "berth-" + profile.Slurmd + "-" + s.cluster + ".service" }

// property reads a property of a unit.
func (s *site) property(node, unit, name string) string {
	s.Helper()
	return s.on(node, "systemctl show --value --property="+name+" "+unit)
}

// bootedWell requires that the units started in order and none failed, and each started
// once. Only slurmd, whose controller boots at the same time, tries until that serves.
func (s *site) bootedWell(together bool) {
	s.Helper()
	for node, order := range map[string][]string{
		"ctl":   {"munged-" + s.cluster, "slurmdbd-" + s.cluster, "slurmctld-" + s.cluster},
		"gpu-1": {"munged-worker-" + s.cluster, "slurmd-" + s.cluster},
	} {
		s.on(node, "systemctl is-system-running --wait || { systemctl --failed; exit 1; }")
		ready := map[string]int{} // microseconds after the boot
		for block := range strings.SplitSeq(s.on(node,
			"systemctl show --property=Id,NRestarts,ActiveEnterTimestampMonotonic 'berth-*.service'"), "\n\n") {
			values := map[string]string{}
			for line := range strings.Lines(block) {
				name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
				values[name] = value
			}
			if !together || values["Id"] != s.slurmd() {
				require.Equal(s, "0", values["NRestarts"], "%s: %s", node, block)
			}
			var err error
			ready[strings.TrimSuffix(strings.TrimPrefix(values["Id"], "berth-"), ".service")],
				err = strconv.Atoi(values["ActiveEnterTimestampMonotonic"])
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

// requeued waits until slurmctld queues a job again whose processes a boot ended (S9).
func (s *site) requeued(job slurmtest.Job) {
	s.Helper()
	s.wait("job "+job.ID+" is queued again", func() (bool, string) {
		now, err := slurmtest.Jobs{Hosts: s.hosts}.Job(s.Context(), &s.unit, job.ID)
		return err == nil && now.Submitted.After(job.Submitted), fmt.Sprintf("%+v, %v", now, err)
	})
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

// waitsForDevice requires that slurmd, of that pid, waits for a missing device file, and that
// the status names it (S8).
func (s *site) waitsForDevice(pid string) {
	s.Helper()
	s.on("gpu-1", "mv /dev/nvidia1 /dev/gone; kill -9 "+pid)
	s.wait("the status names the device", func() (bool, string) {
		o := s.observe(s.T, s.unit)
		seen := fmt.Sprint(o.Members)
		return strings.Contains(seen, "slurmd down: no device file /dev/nvidia1 on this host"), seen
	})
	require.ErrorContains(s, s.apply(s.T, s.plan(s.T, s.unit, false)), "no device file /dev/nvidia1 on this host")
	s.on("gpu-1", "mv /dev/gone /dev/nvidia1")
	s.settled() // systemd starts it
	s.tell("slurmd came back with its device file")
}

// TestMachineWholeLife is the life of a cluster on hosts with systemd and control groups of
// version 2. The numbers are those of the findings on such machines.
func TestMachineWholeLife(t *testing.T) {
	s := newSite(t)
	require.Empty(s, s.settle(s.unit, false), "no action fails on a slow host")
	s.tell("created and joined")
	s.confines()

	// S3: the limits of a job.
	job := s.run(`scontrol update jobid=$SLURM_JOB_ID comment="memlock=$(ulimit -Sl)/$(ulimit -Hl) stack=$(ulimit -Hs)"; sleep 3600`)
	s.wait("no limits in the job", func() (bool, string) {
		seen := s.tool(t, s.unit, "scontrol -o show job "+job.ID)
		return strings.Contains(seen, " Comment=memlock=unlimited/unlimited stack=unlimited"), seen
	})
	unit := strings.Fields(s.on("gpu-1", "systemctl show --property=Delegate,OOMPolicy,KillMode,Restart "+s.slurmd()))
	require.ElementsMatch(s, []string{"Delegate=yes", "OOMPolicy=continue", "KillMode=process", "Restart=always"}, unit)

	// slurmd restarts under the job, and S10: the verb kill ends slurmd alone.
	s.on("gpu-1", "systemctl restart "+s.slurmd())
	pid := s.property("gpu-1", s.slurmd(), "MainPID")
	worker := workersOf(s.unit).Members[0]
	_, err := s.hosts.inner.Host(worker).Do(t.Context(), runtimes.Stamp{Epoch: 1},
		runtimes.Op{Service: &runtimes.Service{Name: profile.Slurmd, Unit: s.cluster, Verb: "kill", TimeoutMS: 60_000}})
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
	require.Equal(s, "worker-0 unit", drift[0].Member+" "+string(drift[0].What))
	require.Empty(s, s.settle(s.unit, false))
	require.Equal(s, "always "+pid, s.property("gpu-1", s.slurmd(), "Restart")+" "+s.property("gpu-1", s.slurmd(), "MainPID"))

	s.waitsForDevice(pid)
	require.Equal(s, job, s.job(job.ID, slurmtest.Running))

	// The worker reboots: the node comes back by itself, and its job is queued again.
	s.boots([]string{"gpu-1"}, s.lab.Reboot)
	s.settled()
	s.bootedWell(false)
	s.requeued(job)
	s.tell("the job is queued again after the reboot of its worker")
	s.tool(t, s.unit, "scancel "+job.ID)
	s.completes()

	// The controller reboots: the job goes on, and slurmctld starts after slurmdbd (S7).
	job = s.run("sleep 3600")
	s.saved(t, s.unit, job.ID)
	s.boots([]string{"ctl"}, s.lab.Reboot)
	s.settled()
	s.bootedWell(false)
	require.Equal(s, job, s.job(job.ID, slurmtest.Running))
	s.tell("the job survived the reboot of the controller")

	// Both lose power.
	for _, n := range []string{"ctl", "gpu-1"} {
		require.NoError(s, s.lab.Kill(n))
	}
	s.boots([]string{"ctl", "gpu-1"}, s.lab.Boot)
	s.settled()
	s.bootedWell(true)
	s.wait("the lost job is queued again", func() (bool, string) {
		s.settle(s.unit, false)
		now, err := slurmtest.Jobs{Hosts: s.hosts}.Job(t.Context(), &s.unit, job.ID)
		return err == nil && now.Submitted.After(job.Submitted), fmt.Sprintf("%+v, %v", now, err)
	})
	s.tool(t, s.unit, "scancel "+job.ID)
	s.completes()
	s.tell("back after power loss of both")

	s.leavesNothing()
}

// leavesNothing removes the worker and then the cluster. Nothing of them is left (S5).
func (s *site) leavesNothing() {
	s.Helper()
	require.NotEmpty(s, s.on("gpu-1", "systemctl list-units --plain --no-legend '*slurmstepd.scope'"))
	require.Empty(s, s.settle(s.company.unit(onePartition, []schema.UnixUser{alice}, nil), false))
	s.tell("the worker left")
	require.Empty(s, s.settle(s.unit, true))
	s.tell("deleted")
	require.Empty(s, s.remains(s.T, s.unit))
	for _, node := range []string{"ctl", "gpu-1"} {
		require.Empty(s, s.on(node, `systemctl list-units --all --plain --no-legend 'berth-*' '*slurmstepd.scope'
			systemctl list-unit-files --no-legend 'berth-*' || true # it fails without any
			systemctl --failed --no-legend --plain; ps -e -o comm= | grep -E 'slurm|munge|maria' || true; find /sys/fs/cgroup /etc/systemd -name '*slurm*'`), node)
	}
}

// ahead returns by how much the clock of the worker is ahead of this machine's, as berth describe node shows it.
func (s *site) ahead() time.Duration {
	s.Helper()
	begun := time.Now()
	facts, err := runtimes.NodeHosts{Hosts: s.hosts}.ReadFacts(s.Context(), s.workers[0])
	require.NoError(s, err)
	return facts.At.Sub(begun.Add(time.Since(begun) / 2)).Round(time.Minute)
}

// TestMachineWrongClock: two minutes off, the clock of a worker is a fact of its node, and jobs run as before. Six minutes off, munge
// refuses what the controller and the worker tell each other: slurmctld says that the node does not respond. No job is lost, and all is
// as before once the clock is right (requirement E3).
func TestMachineWrongClock(t *testing.T) {
	s := newSite(t)
	require.Empty(s, s.settle(s.unit, false))
	require.Zero(s, s.ahead())
	job := s.run("sleep 36000")

	s.on("gpu-1", "timedatectl set-ntp false 2>/dev/null || true; date -s '+2 minutes'")
	require.Equal(s, 2*time.Minute, s.ahead())
	s.completes()
	require.Empty(s, s.settle(s.unit, false))
	s.tell("two minutes ahead, jobs run as before")

	view := func() plan.MemberState { return s.observe(t, s.unit).Members[1] }
	s.on("gpu-1", "date -s '+4 minutes'")
	require.Equal(s, 6*time.Minute, s.ahead())
	s.wait("the node does not respond", func() (bool, string) {
		m := view()
		return m.Scheduler == plan.Unresponsive, fmt.Sprintf("%+v", m)
	})
	require.True(s, view().HasJobs, "the job is still there")
	s.tell("six minutes ahead: %+v", view())

	s.on("gpu-1", "date -s '-6 minutes'")
	require.Zero(s, s.ahead())
	s.wait("the node responds", func() (bool, string) {
		s.settle(s.unit, false)
		m := view()
		return m.Scheduler == plan.Responds && m.State == plan.Running, fmt.Sprintf("%+v", m)
	})
	now := s.job(job.ID, slurmtest.Running) // slurmctld may have queued it again when the node registered
	s.tell("the clock is right again; job queued again: %v", now.Submitted.After(job.Submitted))
	s.completes()
}
