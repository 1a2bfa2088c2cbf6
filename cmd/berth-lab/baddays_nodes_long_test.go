//go:build long

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/cmd/internal/labtest"
	"berth/reconciler/nodes"
	"berth/reconciler/plan"
	"berth/runtimes/host/hosttest"
	"berth/runtimes/slurm/profile"
	"berth/schema"
	"berth/schema/event"
)

// TestLongBadDaysOfNodes injects failures of whole hosts and of a site on real Slurm, and checks that each ends as declared: the
// states of nodes, their events, the members, the jobs, and what is left on hosts (requirements E3, E5).
func TestLongBadDaysOfNodes(t *testing.T) {
	s := newHalls(t)
	s.play("a worker loses power and waits", poweredOff)
	s.play("a worker is cut off and replaced", replaced)
	s.play("sshd hangs, then slurmd too, under a job", hangsUnderJob)
	s.play("the disk of a worker is full", diskFull)
	s.play("a site is cut off", siteCutOff)
	require.Empty(s, s.forge.Violations(), "calls that the forge forbids")
}

// The hosts of the second site: a controller and the worker of assembly.
const southController, southWorker = "dev-lab-2", "dev-gpu-3"

// newHalls returns a scene with two sites: train is in the north, assembly is wholly in the south.
func newHalls(t *testing.T) *scene {
	t.Helper()
	s := newSceneOf(t, hosttest.Image(), func(files map[string]string) {
		move := func(text string) string { return strings.Replace(text, "region: lab\n", "region: annex\n", 1) }
		files["platform/nodes/"+southWorker+".yaml"] = move(files["platform/nodes/"+southWorker+".yaml"])
		files["platform/nodes/"+southController+".yaml"] = move(strings.NewReplacer("dev-lab-1", southController,
			"10.77.0.10", "10.77.0.20").Replace(files["platform/nodes/dev-lab-1.yaml"]))
		files["platform/policy/lab.yaml"] = strings.Replace(files["platform/policy/lab.yaml"], "[lab]", "[lab, annex]", 1)
		for site, region := range map[string]string{"north": "lab", "south": "annex"} {
			files["platform/sites/"+site+".yaml"] = fmt.Sprintf("apiVersion: berth/v1\nkind: Site\nmetadata: {name: %s}\n"+
				"spec: {display_name: Hall, regions: [%s]}\n", site, region)
		}
		files["platform/hooks/full-disk.yaml"] = `apiVersion: berth/v1
kind: HookRule
metadata: {name: full-disk}
spec:
  when: {threshold: {metric: node_disk_free_gib, below: 1}}
  then: [{alert: {severity: critical, summary: a disk is full}}]
  cooldown_seconds: 0
`
	})
	train, assembly := pathOf(t, labtest.Train), pathOf(t, labtest.Assembly)
	s.base[train] = strings.Replace(s.base[train], "spec:\n", "spec:\n  regions: [lab]\n", 1)
	s.base[assembly] = strings.Replace(s.base[assembly], "spec:\n", "spec:\n  regions: [annex]\n", 1)
	s.config.more["nodes"] = map[string]any{"heartbeat": "1s", "not_ready_after": "8s", "lost_after": "20s"}
	return s
}

// withRole returns the document of train whose role worker has more lines. Slurm asks a silent worker three times in its timeout.
func (s *scene) withRole(lines string, timeout int) string {
	text := strings.Replace(s.base[pathOf(s, labtest.Train)], "      sku:", lines+"      sku:", 1)
	return text + fmt.Sprintf("  config:\n    nodes: {timeout_seconds: %d}\n", timeout)
}

// untilNode waits until the status of a node has a state, with the reason of its condition Ready.
func (s *scene) untilNode(name string, state nodes.State, reason plan.Reason) {
	s.Helper()
	s.eventually(fmt.Sprintf("%s is %s: %s", name, state, reason), func() string {
		st := s.nodeOf(name)
		if c := st.Condition(plan.ConditionReady); st.Phase != string(state) || c == nil || c.Reason != reason {
			return show(st)
		}
		return ""
	})
}

func (s *scene) nodeOf(name string) plan.ThingStatus {
	s.Helper()
	if st := s.tree().Things[schema.Key{Kind: schema.KindNode, Name: name}]; st != nil {
		return *st
	}
	return plan.ThingStatus{}
}

// nodeEvents are the events of each node since the first n of all, without the prefix of their types.
func (s *scene) nodeEvents(since int) map[string][]string {
	s.Helper()
	out := map[string][]string{}
	for _, e := range s.told()[since:] {
		var p event.Node
		if typ, ok := strings.CutPrefix(e.EventType, "berth.node."); ok {
			require.NoError(s, json.Unmarshal(e.Payload, &p))
			out[p.ResourceName] = append(out[p.ResourceName], typ)
		}
	}
	return out
}

// lostAndBack returns the events of a lost node without unknown, which comes only if Slurm reports the silence late.
func (s *scene) lostAndBack(since int, node string) []string {
	s.Helper()
	return slices.DeleteFunc(s.nodeEvents(since)[node], func(typ string) bool { return typ == "unknown" })
}

// powerOff ends a host as a power failure does: no process is left, and nothing answers. Its disk stays.
func (s *scene) powerOff(node string) {
	s.Helper()
	s.on(node, "ip link set eth0 down; kill -KILL -1; true") // all but this shell and the first process
}

// powerOn is the boot of a host: the directories of running services are empty, and only sshd runs.
func (s *scene) powerOn(node string) {
	s.Helper()
	s.on(node, "find /run -mindepth 1 -xdev -delete 2>/dev/null; mkdir -p /run/sshd /run/lock; ip link set eth0 up; "+
		"/usr/sbin/sshd -f /etc/berth/sshd_config")
}

// poweredOff: a worker of a role that waits loses power. Nothing is replaced, and it joins again by itself.
func poweredOff(s *scene) {
	s.put("train: wait for lost nodes", labtest.Train, s.withRole("      on_node_lost: {wait: true}\n", 30))
	before := s.ready(labtest.Train)
	s.asDeclared(labtest.Train, labtest.Assembly)
	neighbour, err := s.fingerprint(s.Context(), labtest.Assembly)
	require.NoError(s, err)
	events := len(s.told())

	s.powerOff("dev-gpu-2")
	s.untilNode("dev-gpu-2", nodes.NotReady, plan.ReasonHostSilent)
	s.untilNode("dev-gpu-2", nodes.Lost, plan.ReasonHostAndSchedulerSilent)
	s.observed(6)
	s.repaired("dev-gpu-1") // others go on
	s.eventually("train runs with one worker less", func() string {
		st := s.statusOf(labtest.Train)
		require.Equal(s, placesOf(before), placesOf(st), "a member was replaced")
		require.Empty(s, st.Abandoned)
		if st.Phase != plan.PhaseRunning || condition(st, "Degraded").Status != plan.ConditionTrue {
			return show(st)
		}
		return ""
	})

	s.powerOn("dev-gpu-2")
	s.untilNode("dev-gpu-2", nodes.Ready, plan.ReasonHostAnswers)
	require.Equal(s, placesOf(before), placesOf(s.ready(labtest.Train)))
	s.asDeclared(labtest.Train, labtest.Assembly)
	s.eventually("both workers serve", func() string { return differs("dev-gpu-1 idle\ndev-gpu-2 idle", s.nodesOf(labtest.Train)) })
	require.Equal(s, []string{"not_ready", "lost", "ready"}, s.lostAndBack(events, "dev-gpu-2"))
	require.NotContains(s, s.toldOf(labtest.Train, events), "berth.members.moved")
	now, err := s.fingerprint(s.Context(), labtest.Assembly)
	require.NoError(s, err)
	require.Equal(s, neighbour, now, "the neighbour was touched")
}

// differs returns "" if both texts are the same, else the second one.
func differs(want, got string) string {
	if want == got {
		return ""
	}
	return got
}

// placesOf are the nodes of a unit's members.
func placesOf(st plan.Status) map[string]string {
	places := map[string]string{}
	for _, m := range st.Members {
		places[m.Name] = m.Node
	}
	return places
}

// replaced: the cable of a worker is out, while its daemons run. It gets another node after the declared time. When the cable is in
// again, what is left is stopped and removed, and then the node can be used.
func replaced(s *scene) {
	s.put("train: replace workers of lost nodes", labtest.Train,
		s.withRole("      max_unavailable: 1\n      on_node_lost: {replace_after_seconds: 60}\n", 30))
	before := placesOf(s.ready(labtest.Train))
	s.asDeclared(labtest.Train, labtest.Assembly)
	neighbour, err := s.fingerprint(s.Context(), labtest.Assembly)
	require.NoError(s, err)
	events, moved := len(s.told()), "worker-1"
	lost := before[moved]
	spare := map[string]string{"dev-gpu-1": "dev-gpu-4", "dev-gpu-2": "dev-gpu-4", "dev-gpu-4": "dev-gpu-1"}[lost]
	require.NotContains(s, slices.Collect(maps.Values(before)), spare)
	require.NotZero(s, s.daemons(lost)["slurmd"])

	s.on(lost, "ip link set eth0 down")
	s.untilNode(lost, nodes.Lost, plan.ReasonHostAndSchedulerSilent)
	s.eventually("the member has another node", func() string {
		st := s.statusOf(labtest.Train)
		if m := member(st, moved); m.Node != spare || m.State != plan.Running || !settled(st) {
			return show(st)
		}
		return ""
	})
	st := s.statusOf(labtest.Train)
	require.Len(s, st.Abandoned, 1)
	require.Equal(s, lost+" "+moved, st.Abandoned[0].Node+" "+st.Abandoned[0].Name)
	require.NotZero(s, s.daemons(lost)["slurmd"], "the host was reached without its cable")
	// Nothing is placed where something is left: a third worker waits.
	s.put("train: a third worker", labtest.Train, strings.Replace(s.withRole(
		"      max_unavailable: 1\n      on_node_lost: {replace_after_seconds: 60}\n", 30), "count: 2 #", "count: 3 #", 1))
	s.decided()
	s.observed(6)
	third := member(s.statusOf(labtest.Train), "worker-2")
	require.NotEqual(s, plan.Running, third.State)
	require.Empty(s, third.Node, "a member is placed where something is left")

	tip := s.git.Tip("berth/status")
	s.on(lost, "ip link set eth0 up")
	s.untilNode(lost, nodes.Ready, plan.ReasonHostAnswers)
	st = s.ready(labtest.Train)
	require.Empty(s, st.Abandoned)
	require.Equal(s, map[string]string{"controller-0": before["controller-0"], "worker-0": before["worker-0"], moved: spare, "worker-2": lost},
		placesOf(st))
	for _, was := range s.history(tip, labtest.Train) {
		if m := member(was, "worker-2"); m.Node != "" && m.State == plan.Running {
			require.Empty(s, was.Abandoned, "the new member ran before the old one was removed")
		}
	}
	s.asDeclared(labtest.Train, labtest.Assembly)
	require.Equal(s, []string{"not_ready", "lost", "ready"}, s.lostAndBack(events, lost))
	told := s.toldOf(labtest.Train, events)
	require.Equal(s, 1, countOf(told, "berth.members.moved"), told)
	require.NotContains(s, told, "deleting")
	now, err := s.fingerprint(s.Context(), labtest.Assembly)
	require.NoError(s, err)
	require.Equal(s, neighbour, now, "the neighbour was touched")
}

func countOf(all []string, one string) (n int) {
	for _, s := range all {
		if s == one {
			n++
		}
	}
	return n
}

// hangsUnderJob: sshd of a worker with a job hangs. As Slurm says that the node responds, the node is never lost. Then slurmd hangs
// too: the node is lost, and its member stays as long as it has the job.
func hangsUnderJob(s *scene) {
	s.put("train: replace workers of lost nodes", labtest.Train,
		s.withRole("      max_unavailable: 1\n      on_node_lost: {replace_after_seconds: 60}\n", 300))
	before := placesOf(s.ready(labtest.Train))
	job, err := s.startJob(s.Context(), labtest.Train, sleeper)
	require.NoError(s, err)
	s.eventually("the job is observed", func() string {
		for _, m := range s.statusOf(labtest.Train).Members {
			if m.Node == job.Nodes[0] && m.State == plan.Running {
				return ""
			}
		}
		return show(s.statusOf(labtest.Train))
	})
	node, events := job.Nodes[0], len(s.told())

	s.sshd(node, "STOP")
	s.untilNode(node, nodes.NotReady, plan.ReasonHostSilent)
	s.untilNode(node, nodes.Unknown, plan.ReasonHostSilent)
	s.observed(10)
	require.Equal(s, []string{"not_ready", "unknown"}, s.nodeEvents(events)[node])

	s.on(node, "kill -STOP $(cat "+profile.WorkerPID+")")
	s.untilNode(node, nodes.Lost, plan.ReasonHostAndSchedulerSilent)
	s.eventually("the node is lost for longer than the declared time", func() string {
		st := s.nodeOf(node)
		since := nodes.ReadRecord(&st).Since
		isDue := time.Since(since) > 65*time.Second // the moment at which a member without a job would be replaced
		if st.Phase != string(nodes.Lost) || !isDue {
			return fmt.Sprint(st.Phase, " since ", since)
		}
		return ""
	})
	s.observed(3)
	st := s.statusOf(labtest.Train)
	require.Equal(s, before, placesOf(st), "a member with a job was replaced")
	require.Empty(s, st.Abandoned)

	s.on(node, "kill -CONT $(cat "+profile.WorkerPID+")")
	s.sshd(node, "CONT")
	s.untilNode(node, nodes.Ready, plan.ReasonHostAnswers)
	require.Equal(s, before, placesOf(s.ready(labtest.Train)))
	require.NoError(s, s.stillRunning(s.Context(), labtest.Train, job))
	s.asDeclared(labtest.Train, labtest.Assembly)
	require.Equal(s, []string{"not_ready", "unknown", "lost", "ready"}, s.nodeEvents(events)[node])
	require.NotContains(s, s.toldOf(labtest.Train, events), "berth.members.moved")
	s.cancelJobs(labtest.Train)
}

// diskFull: the disk with Berth's files is full on a worker whose slurmd is killed. The rule of the estate alerts, the status names the
// host, others go on, and the worker is repaired once the disk has space.
func diskFull(s *scene) {
	before, events := s.ready(labtest.Train), len(s.told())
	const dir = "/var/lib/berth"
	node, other := placesOf(before)["worker-1"], placesOf(before)["worker-0"]
	files := s.on(node, "cd "+dir+"; find . -type f ! -name ledger.jsonl -exec sha256sum {} + | sort")
	s.on(node, "cp -a "+dir+" /root/berth; mount -t tmpfs -o size=4m,mode=700 tmpfs "+dir+"; cp -a /root/berth/. "+dir+
		"; dd if=/dev/zero of="+dir+"/full bs=4k 2>/dev/null || true")
	s.eventually("the rule fires", func() string {
		if told := s.nodeEvents(events)[node]; !slices.Equal(told, []string{"threshold_exceeded"}) {
			return show(told)
		}
		return ""
	})
	s.kill(node, profile.WorkerPID)
	s.eventually("the status says why the worker is not repaired", func() string {
		st := s.statusOf(labtest.Train)
		if text := show(st); !strings.Contains(text, "no space left on device") && !strings.Contains(text, "is full") {
			return text
		}
		return ""
	})
	s.Logf("the status says: %s", show(s.statusOf(labtest.Train).Conditions))
	s.repaired(other)
	s.restarted(labtest.Train)
	require.Equal(s, placesOf(before), placesOf(s.statusOf(labtest.Train)))

	s.on(node, "rm "+dir+"/full")
	s.ready(labtest.Train)
	s.asDeclared(labtest.Train, labtest.Assembly)
	s.on(node, "cp -a "+dir+"/. /root/berth; umount -l "+dir+"; cp -a /root/berth/. "+dir+"; rm -r /root/berth")
	require.Equal(s, files, s.on(node, "cd "+dir+"; find . -type f ! -name ledger.jsonl -exec sha256sum {} + | sort"), "a file was damaged")
	s.eventually("the threshold has ended", func() string {
		return differs(show([]string{"threshold_exceeded", "threshold_ended"}), show(s.nodeEvents(events)[node]))
	})
	require.Equal(s, 1, countOf(typesOf(s.told()[events:]), string(event.RuleFired)))
	s.asDeclared(labtest.Train, labtest.Assembly)
}

func typesOf(all []plan.Event) (types []string) {
	for _, e := range all {
		types = append(types, e.EventType)
	}
	return types
}

// siteCutOff: no host of the south answers. The north goes on, and nothing of the south is replaced or lost. When the south is back, it
// is as before.
func siteCutOff(s *scene) {
	south, events := []string{southController, southWorker}, len(s.told())
	require.Equal(s, map[string]string{"controller-0": southController, "worker-0": southWorker}, placesOf(s.ready(labtest.Assembly)))
	before, err := s.fingerprint(s.Context(), labtest.Assembly)
	require.NoError(s, err)
	for _, node := range south {
		s.on(node, "ip link set eth0 down")
	}
	for _, node := range south {
		s.untilNode(node, nodes.NotReady, plan.ReasonHostSilent)
	}
	s.eventually("the state of assembly is unknown", func() string {
		c := condition(s.statusOf(labtest.Assembly), "Ready")
		if c.Status != plan.ConditionUnknown || !strings.Contains(c.Message, southController) {
			return show(c)
		}
		return ""
	})
	// The north takes a change and repairs. A change of the south waits.
	s.put("assembly: another limit", labtest.Assembly,
		strings.Replace(s.base[pathOf(s, labtest.Assembly)], "max_time_minutes: 30", "max_time_minutes: 45", 1))
	s.put("train: a third worker", labtest.Train, strings.Replace(s.base[pathOf(s, labtest.Train)], "count: 2 #", "count: 3 #", 1))
	north := s.ready(labtest.Train)
	require.Len(s, north.Members, 4)
	s.repaired(placesOf(north)["worker-0"])
	for _, node := range south {
		s.untilNode(node, nodes.Unknown, plan.ReasonHostSilent)
	}
	st := s.statusOf(labtest.Assembly)
	require.Equal(s, map[string]string{"controller-0": southController, "worker-0": southWorker}, placesOf(st))
	require.Equal(s, plan.ConditionUnknown, condition(st, "Ready").Status)
	now, err := s.fingerprint(s.Context(), labtest.Assembly)
	require.NoError(s, err)
	require.Equal(s, before, now, "a daemon was touched")

	for _, node := range south {
		s.on(node, "ip link set eth0 up")
	}
	s.ready(labtest.Assembly)
	require.Contains(s, s.partitionsOf(labtest.Assembly), "quick 45:00")
	s.asDeclared(labtest.Train, labtest.Assembly)
	for _, node := range south {
		s.untilNode(node, nodes.Ready, plan.ReasonHostAnswers)
		require.Equal(s, []string{"not_ready", "unknown", "ready"}, s.nodeEvents(events)[node])
	}
	require.NotContains(s, s.toldOf(labtest.Assembly, events), "deleting")
	require.NotContains(s, s.toldOf(labtest.Assembly, events), "berth.members.moved")
}
