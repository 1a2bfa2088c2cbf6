package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/cmd/internal/labtest"
	"berth/examples/await"
	"berth/examples/need"
	"berth/reconciler"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
	"berth/runtimes/host/hosttest"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/profile"
	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
)

// scene is a stage under test: a lab, a repository, a forge, and the daemon as
// a process of its own. The tests check only the state that users can see: the
// status branch, hosts, events, metrics.
type scene struct {
	*stage
	*testing.T
	base   map[string]string // the estate every test begins with
	config daemonConfig      // of the daemon
	slurm  cli.Version       // of the hosts
}

// catalogFile is the only version of Slurm in the estate.
const catalogFile = "platform/catalog/slurm/22-05.yaml"

// newScene brings up a lab whose hosts have the given Debian suite ("": this machine's
// system) and deploys two instances on it: train with two workers and assembly with one,
// on one controller.
func newScene(t *testing.T, image string) *scene {
	t.Helper()
	return newSceneOf(t, image, func(map[string]string) {})
}

// newSceneOf is newScene with a changed estate, whose nodes are the hosts of the lab.
func newSceneOf(t *testing.T, image string, change func(files map[string]string)) *scene {
	t.Helper()
	hosttest.NeedLab(t)
	need.Programs(t, slurmtest.Programs()...)
	st, err := newStage(demoOptions{dir: t.TempDir(), berth: filepath.Join(programs, "berth"),
		helper: filepath.Join(programs, "berth-host"), image: image, patience: await.Limit})
	require.NoError(t, err)
	change(st.files)
	st.nodes, err = nodesOf(st.files)
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := st.close(); err != nil {
			t.Error(err)
		}
	})
	require.NoError(t, st.labUp(t.Context()))
	version, err := st.lab.PackageVersion(t.Context(), st.nodes[0].Name, "slurmctld")
	require.NoError(t, err)
	if why := slurmtest.NotRun(version); why != "" {
		t.Skip(why)
	}
	// The estate declares the Slurm of Debian 12; the hosts may have another one.
	const declared = "version: 22.05.8"
	require.Contains(t, st.files[catalogFile], declared)
	upstream, _, _ := strings.Cut(version, "-") // without Debian's revision
	st.files[catalogFile] = strings.Replace(st.files[catalogFile], declared, "version: "+upstream, 1)
	require.NoError(t, st.remote.open(st.dir, st.files))
	s := &scene{stage: st, T: t, base: maps.Clone(st.files), slurm: cli.Version(upstream)}
	s.base[pathOf(t, labtest.Train)] = labtest.InstanceYAML(labtest.Train.Name, 2)
	s.base[pathOf(t, labtest.Assembly)] = labtest.AssemblyYAML()
	s.config = daemonConfig{name: "berth", url: st.git.URL, more: map[string]any{
		"interval": "5s", "poll": "10s", "flush_window": "300ms",
		// Permissions are not under test: every user may push to main.
		"authority": map[string]any{"trust_main": true},
	}}
	return s
}

func pathOf(t testing.TB, key schema.Key) string {
	t.Helper()
	p, err := key.Path()
	require.NoError(t, err)
	return p
}

// play runs one bad day, starting with a converged estate. It logs the end of the
// daemon's log on failure.
func (s *scene) play(name string, day func(*scene)) {
	s.Run(name, func(t *testing.T) {
		d := *s
		d.T = t
		defer func() {
			if t.Failed() {
				t.Logf("the daemon's last words:\n%s", lastLines(filepath.Join(d.dir, "berth.log"), 40))
			}
		}()
		d.calm()
		day(&d)
		linesFoundByIDs(t, filepath.Join(d.dir, "berth.log"), "")
	})
}

// calm resets the scene after the previous day: no faults, the daemon running, the
// base declared and in force.
func (s *scene) calm() {
	s.Helper()
	s.git.SetFaults(gittest.Faults{})
	for _, n := range s.nodes {
		s.on(n.Name, "ip link set eth0 up; pidof sshd >/dev/null || /usr/sbin/sshd -f /etc/berth/sshd_config")
		s.sshd(n.Name, "CONT")
	}
	s.declare(s.base)
	s.serve()
	for _, key := range []schema.Key{labtest.Train, labtest.Assembly} {
		s.ready(key)
		s.cancelJobs(key)
	}
}

// serve makes sure that the daemon is ready and receives webhooks.
func (s *scene) serve() {
	s.Helper()
	if s.daemon != nil {
		select {
		case <-s.daemon.ended:
			s.daemon = nil
		default:
		}
	}
	if s.daemon == nil {
		d, err := s.launch(s.config)
		require.NoError(s, err)
		s.daemon = d
	}
	s.forge.SetWebhook("http://" + s.daemon.listen + "/webhooks/github")
	require.NoError(s, s.untilReady(s.Context(), s.daemon))
}

// declare makes files main's tree, if they are not.
func (s *scene) declare(files map[string]string) {
	s.Helper()
	now, err := s.git.Files("main")
	require.NoError(s, err)
	c := gittest.Commit{Message: "as declared", Files: map[string]string{}}
	for p, text := range files {
		if now[p] != text {
			c.Files[p] = text
		}
	}
	for p := range now {
		if _, ok := files[p]; !ok {
			c.Remove = append(c.Remove, p)
		}
	}
	if len(c.Files)+len(c.Remove) > 0 {
		s.push(c)
	}
}

// push makes a commit on main and lets the forge send its webhook.
func (s *scene) push(c gittest.Commit) string {
	s.Helper()
	id := s.git.MustCommit(s, "main", c)
	require.NoError(s, s.forge.Sync())
	return id
}

// merge brings a commit to main by a pull request, which is merged as soon as its
// plan is shown, whatever the result of its checks.
func (s *scene) merge(title string, c gittest.Commit) (pull int) {
	s.Helper()
	c.Message, c.Parent = title, s.git.Tip("main")
	s.git.MustCommit(s, "change", c)
	require.NoError(s, s.forge.Sync())
	pull, err := s.forge.OpenPull("change", title, "anna-lattice")
	require.NoError(s, err)
	s.eventually("the plan is shown", func() string {
		if labtest.PlanShown(s.forge, pull) {
			return ""
		}
		return "not yet"
	})
	_, err = s.forge.Merge(pull, s.mergeMethod, "anna-lattice")
	require.NoError(s, err)
	return pull
}

// put changes one document.
func (s *scene) put(message string, key schema.Key, text string) string {
	s.Helper()
	return s.push(gittest.Commit{Message: message, Files: map[string]string{pathOf(s, key): text}})
}

// eventually calls look until it returns "", or fails with the last returned text. Most
// looks start processes on hosts, so there are at most twenty a second.
func (s *scene) eventually(what string, look func() string) {
	s.Helper()
	said, pace := "", time.NewTicker(50*time.Millisecond) // the pace of the looks
	defer pace.Stop()
	await.True(s, what, func() bool {
		said = look()
		if said != "" {
			<-pace.C
		}
		return said == ""
	}, func() any { return said })
}

// tree returns the current content of the status branch.
func (s *scene) tree() reconciler.StatusTree {
	s.Helper()
	tree, err := s.statusTree(s.Context())
	require.NoError(s, err)
	require.Empty(s, tree.Warnings)
	return tree
}

func (s *scene) statusOf(key schema.Key) plan.Status {
	s.Helper()
	st := s.tree().Units.Get(key)
	if st == nil {
		return plan.Status{Key: key}
	}
	return *st
}

// ready waits until a unit runs, settled, at main.
func (s *scene) ready(key schema.Key) plan.Status {
	s.Helper()
	var st plan.Status
	s.eventually(key.String()+" runs", func() string {
		tree := s.tree()
		if tree.Units.Get(key) == nil {
			return "it has no status"
		}
		st = *tree.Units.Get(key)
		if tree.Revision.Commit != s.git.Tip("main") {
			return "main is not decided: " + show(tree.Revision)
		}
		if st.Phase != plan.PhaseRunning || condition(st, "Ready").Status != "True" || !settled(st) {
			return show(st)
		}
		return ""
	})
	return st
}

func settled(st plan.Status) bool {
	return condition(st, "Reconciling").Status == "False" && condition(st, "Stalled").Status == "False"
}

func condition(st plan.Status, typ plan.ConditionType) plan.Condition {
	if c := st.Condition(typ); c != nil {
		return *c
	}
	return plan.Condition{}
}

func member(st plan.Status, name string) plan.MemberStatus {
	for _, m := range st.Members {
		if m.Name == name {
			return m
		}
	}
	return plan.MemberStatus{}
}

// history are the messages and statuses of a unit at every commit of the
// status branch after from, oldest first.
func (s *scene) history(from string, key schema.Key) []plan.Status {
	s.Helper()
	out, err := s.git.Git("rev-list", "--reverse", from+".."+reconciler.BranchStatus)
	require.NoError(s, err)
	var all []plan.Status
	for _, commit := range strings.Fields(out) {
		tree, err := s.repo.ReadStatus(s.Context(), commit)
		require.NoError(s, err)
		if st := tree.Units.Get(key); st != nil {
			all = append(all, *st)
		}
	}
	return all
}

// told returns all events on the status branch in order of their segments. It fails
// on a repeated event or a missing segment.
func (s *scene) told() []plan.Event {
	s.Helper()
	tip := s.git.Tip(reconciler.BranchStatus) // the daemon writes meanwhile
	files, err := s.git.Files(tip)
	require.NoError(s, err)
	s.tree() // brings that commit
	tree, err := s.repo.ReadStatus(s.Context(), tip)
	require.NoError(s, err)
	var segments []string
	for p := range files {
		if strings.HasPrefix(p, "events/") {
			segments = append(segments, p)
		}
	}
	sequence := func(p string) (first int) {
		name, _, _ := strings.Cut(filepath.Base(p), "-")
		n, err := strconv.Atoi(name)
		require.NoError(s, err, p)
		return n
	}
	slices.SortFunc(segments, func(a, b string) int { return sequence(a) - sequence(b) })
	var all []plan.Event
	seen := map[string]bool{}
	for _, p := range segments {
		for line := range strings.Lines(files[p]) {
			var e plan.Event
			require.NoError(s, json.Unmarshal([]byte(line), &e), p)
			require.False(s, seen[e.EventID], "event %s is published twice, the second time in %s: %s", e.EventID, p, line)
			seen[e.EventID] = true
			all = append(all, e)
		}
	}
	require.EqualValues(s, len(all), tree.Revision.Sequence, "events are lost: %v", segments)
	return all
}

// toldOf are the types of a unit's events since the first n of all.
func (s *scene) toldOf(key schema.Key, since int) []string {
	s.Helper()
	types := []string{}
	for _, e := range s.told()[since:] {
		var payload struct {
			Project  string `json:"project_id"`
			Instance string `json:"app_instance_id"`
		}
		require.NoError(s, json.Unmarshal(e.Payload, &payload))
		if payload.Project == key.ProjectID() && payload.Instance == key.Name {
			types = append(types, strings.TrimPrefix(e.EventType, "apps.instance."))
		}
	}
	return types
}

// on runs a line of shell inside a host.
func (s *scene) on(node, script string) string {
	s.Helper()
	out, err := s.lab.Run(s.Context(), node, "bash", "-c", script)
	require.NoError(s, err)
	return strings.TrimSpace(out)
}

// sshd sends a signal to every sshd of a host, or starts it with "start".
func (s *scene) sshd(node, what string) {
	s.Helper()
	if what == "start" {
		s.on(node, "/usr/sbin/sshd -f /etc/berth/sshd_config")
		return
	}
	// pidof sees this host's processes only. From OpenSSH 9.8 on, connections have
	// processes of other names.
	s.on(node, "for p in $(pidof sshd sshd-session sshd-auth); do kill -"+what+" $p; done")
}

// daemons returns the number of daemons on a host by program. A daemon and its forks
// count once.
func (s *scene) daemons(node string) map[string]int {
	s.Helper()
	out := s.on(node, `for p in /proc/[0-9]*; do
	exe=$(readlink $p/exe) || continue
	name=${exe##*/} name=${name%-wlm} # Debian's name for it
	case $name in slurmctld|slurmd|slurmdbd|munged|mariadbd) ;; *) continue ;; esac
	parent=$(sed -n 's/^PPid:\t//p' $p/status 2>/dev/null) || continue
	[ "$(readlink /proc/$parent/exe)" = "$exe" ] || echo "$name"
done; true`)
	count := map[string]int{}
	for _, program := range strings.Fields(out) {
		count[program]++
	}
	return count
}

// asDeclared waits until the units run and every host has exactly the daemons of its
// members: none is missing, duplicated or left over.
func (s *scene) asDeclared(keys ...schema.Key) {
	s.Helper()
	s.eventually("hosts are as declared", func() string {
		want := map[string]map[string]int{}
		for _, n := range s.nodes {
			want[n.Name] = map[string]int{}
		}
		for _, key := range keys {
			for _, m := range s.ready(key).Members {
				w := want[m.Node]
				w["munged"]++
				if m.ControlPlane {
					w["slurmctld"]++
					w["slurmdbd"]++
					w["mariadbd"] = 1
				} else {
					w["slurmd"]++
				}
			}
		}
		for _, n := range s.nodes {
			if got := s.daemons(n.Name); !maps.Equal(want[n.Name], got) {
				return n.Name + " has " + show(got) + ", and shall have " + show(want[n.Name])
			}
		}
		return ""
	})
}

// nodesOf returns the nodes of a cluster from its own controller: name and state, one
// per line.
func (s *scene) nodesOf(key schema.Key) string {
	s.Helper()
	var state struct{ Conf, Controller string }
	require.NoError(s, json.Unmarshal(s.statusOf(key).RuntimeState, &state))
	return s.on(state.Controller, "SLURM_CONF="+state.Conf+" sinfo -h -N -o '%N %T' | sort -u")
}

// startedAt returns the start time of a host's process, which distinguishes it from
// a later process with the same number; "" without a process.
func (s *scene) startedAt(node, pidFile string) string {
	s.Helper()
	return s.on(node, "p=$(cat "+pidFile+") && t=$(cut -d' ' -f22 /proc/$p/stat 2>/dev/null) && echo $p $t || true")
}

// controllerPID is the pid file of a cluster's slurmctld.
func (s *scene) controllerPID(key schema.Key) string {
	s.Helper()
	cluster, _, err := s.clusterOf(s.Context(), key)
	require.NoError(s, err)
	return profile.Stack{Cluster: cluster}.Run() + "/slurmctld.pid"
}

// jobOf is a job as its cluster has it.
func (s *scene) jobOf(key schema.Key, id string) (slurmtest.Job, error) {
	unit, _, err := s.unit(s.Context(), key)
	if err != nil {
		return slurmtest.Job{}, err
	}
	return s.jobs.Job(s.Context(), unit, id)
}

// logged are the daemon's log lines after an offset that hold a text, and where
// the log ends.
func (s *scene) logged(since int64, text string) (lines []string, end int64) {
	s.Helper()
	data, err := os.ReadFile(filepath.Join(s.dir, s.config.name+".log"))
	require.NoError(s, err)
	whole := bytes.LastIndexByte(data, '\n') + 1
	for line := range strings.Lines(string(data[min(since, int64(whole)):whole])) {
		if strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return lines, int64(whole)
}

// show is a value as a person reads it in a failure.
func show(v any) string {
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// repaired kills a worker's slurmd and waits until it runs again.
func (s *scene) repaired(node string) {
	s.Helper()
	s.again(node, profile.WorkerPID)
}

// restarted is repaired for a cluster's slurmctld.
func (s *scene) restarted(key schema.Key) {
	s.Helper()
	s.again("dev-lab-1", s.controllerPID(key))
}

func (s *scene) again(node, pidFile string) {
	s.Helper()
	was := ""
	s.eventually(pidFile+" on "+node+" names a process", func() string {
		if was = s.startedAt(node, pidFile); was == "" {
			return "it does not"
		}
		return ""
	})
	pid, _, _ := strings.Cut(was, " ")
	s.on(node, "kill -9 "+pid+" || true") // gone already is as good
	s.eventually(pidFile+" on "+node+" names another process", func() string {
		if now := s.startedAt(node, pidFile); now == "" || now == was {
			return "it is " + now + ", it was " + was
		}
		return ""
	})
}

// cancelJobs cancels all jobs of a cluster, so that they do not block other days.
func (s *scene) cancelJobs(key schema.Key) {
	s.Helper()
	var state struct{ Conf, Controller string }
	require.NoError(s, json.Unmarshal(s.statusOf(key).RuntimeState, &state))
	s.on(state.Controller, "export SLURM_CONF="+state.Conf+"; squeue -h -o %A | xargs -r scancel")
	s.eventually("an empty queue of "+key.Name, func() string { return s.on(state.Controller, "SLURM_CONF="+state.Conf+" squeue -h") })
}

// lastDelivery returns the id of the webhook for the last push to main.
func (s *scene) lastDelivery() string {
	s.Helper()
	s.forge.Settle()
	for _, d := range slices.Backward(s.forge.Deliveries()) {
		if d.Event == "push" && bytes.Contains(d.Body, []byte(`"refs/heads/main"`)) {
			return d.ID
		}
	}
	require.FailNow(s, "the forge sent no push webhook")
	return ""
}

// partitionsOf returns the partitions of a cluster with their time limits, one per
// line.
func (s *scene) partitionsOf(key schema.Key) string {
	s.Helper()
	var state struct{ Conf, Controller string }
	require.NoError(s, json.Unmarshal(s.statusOf(key).RuntimeState, &state))
	return s.on(state.Controller, "SLURM_CONF="+state.Conf+" sinfo -h -o '%R %l' | sort -u")
}
