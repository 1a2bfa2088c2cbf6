package slurm

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/reconciler/plan"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
)

// members returns the state of each member that exists.
func (v *observation) members() []plan.MemberState {
	var out []plan.MemberState
	add := func(m plan.Member, state plan.State, detail string) {
		out = append(out, plan.MemberState{Name: m.Name, Node: m.Node, State: state, Detail: detail})
	}
	if m, ok := v.ctl.rec.Unit.Control(); ok {
		state, detail := v.controlState()
		add(m, state, detail)
	}
	wanted := v.ctl.rec.slurmds()
	for _, m := range v.ctl.rec.Joined {
		state, detail := v.workerState(m, wanted)
		add(m, state, detail)
		joined := &out[len(out)-1]
		joined.References = map[string]string{"cluster": v.ctl.rec.Cluster, "node": m.Node}
		reserved := v.reserved[m.Node]
		if reserved.isMaintenance {
			reserved.text = "" // OutOfService has it
		}
		joined.Note = joinNotes(cluster.UnusedHardware(m, v.ctl.rec.Found[m.Node]), reserved.text, v.jobs.failedLaunches(m.Node))
		if v.serving {
			n, known := findNode(v.nodes, m.Node)
			joined.Scheduler = viewOf(n, known)
			joined.HasJobs = n.State == "allocated" || n.State == "mixed" || n.Has("COMPLETING")
		}
		if state == plan.Running && v.serving {
			joined.OutOfService = v.outOfService(m.Node)
		}
	}
	return out
}

func (v *observation) controlState() (plan.State, string) {
	var down []string
	for i, name := range controlServices() {
		if st := v.services[i]; !st.Running {
			down = append(down, strings.TrimSuffix(name+" down: "+st.Detail, ": "))
		}
	}
	switch {
	case !v.ctl.rec.Complete && len(down) < len(controlServices()):
		return plan.Partial, "creation is not complete"
	case len(down) > 0:
		return plan.Stopped, strings.Join(down, "; ")
	case !v.serving && v.modified[v.ctl.stack.Conf()] != "":
		// Its clients read that file, so their failure says nothing about slurmctld.
		return plan.Running, "slurmctld runs; whether it answers is unknown until slurm.conf is restored"
	case !v.serving:
		return plan.Hung, "slurmctld runs and does not answer: " + v.silence
	case v.database != "":
		return plan.Hung, v.database
	}
	return plan.Running, ""
}

func (v *observation) workerState(m plan.Member, wanted wantedSlurmds) (plan.State, string) {
	w := v.workers[m.Name]
	switch {
	case w.err != nil:
		return plan.Unreachable, w.err.Error()
	case w.isMissing:
		return plan.Missing, ""
	case w.record.Cluster != v.ctl.stack.Cluster:
		return plan.Partial, fmt.Sprintf("%s on %s is missing, damaged, or of another cluster", profile.WorkerRecord, m.Node)
	case len(w.down) > 0:
		return plan.Stopped, strings.TrimSuffix(strings.Join(w.down, ", ")+" down: "+w.detail, ": ")
	case w.lacks != "" && !v.ctl.rec.closing(nodeTarget(m.Node)) && !v.ctl.rec.closing(v.ctl.clusterTarget()):
		return plan.Partial, w.lacks
	case !v.serving:
		return plan.Running, "the controller does not answer"
	}
	n, ok := findNode(v.nodes, m.Node)
	if v.mismatch {
		w.earlier = "" // nobody knows what it should be
	}
	isFit := n.State != "inval" && !n.Has("INVALID_REG") && hasShape(n, cluster.WithShape(m, v.ctl.rec.Found[m.Node]))
	fault := wanted.fault(n, w.earlier, isFit && hasLostJobs(n, v.jobs.earliest, v.controllerAge()))
	switch {
	case !ok:
		return plan.Partial, "slurmd runs but the controller does not know the node"
	case v.ctl.rec.closing(nodeTarget(m.Node)):
		return plan.Draining, "finishes its jobs before it leaves"
	case v.ctl.rec.closing(v.ctl.clusterTarget()):
		return plan.Draining, "finishes its jobs before the cluster stops"
	case fault.detail != "":
		return fault.state, fault.detail
	case n.State == "down": // an administrator's
		return plan.Running, ""
	case !isFit:
		return plan.Partial, fmt.Sprintf("the controller has the node as %s, %d CPUs, %d MiB, gres %q: %s", stateOf(n), n.CPUs, n.Memory,
			n.Gres, n.Reason)
	case n.Has("DRAIN") && drainOwnerOf(n) == drainUnfit: // another repair than that of its disk: it begins at once
		return plan.Stopped, "its disk can be written again, and it takes jobs when the drain " + n.Reason + " ends"
	case n.Has("DRAIN") && drainOwnerOf(n).isOwn():
		return plan.Partial, "still drained by Berth (" + n.Reason + ") although no member leaves"
	}
	return plan.Running, ""
}

// outOfService returns why a node takes no jobs although its slurmd serves, with who said so and when; empty: it takes jobs.
func (v *observation) outOfService(name string) string {
	n, _ := findNode(v.nodes, name)
	what := ""
	switch {
	case n.State == "down":
		what = "down"
	case n.Has("DRAIN"):
		what = "drained"
	case n.Has("FAIL"):
		what = "set to fail"
	default:
		if by := v.reserved[name]; by.isMaintenance {
			return by.text
		}
		return ""
	}
	said := []string{}
	if n.ReasonBy != "" {
		said = append(said, n.ReasonBy)
	}
	if n.ReasonAt > 0 {
		said = append(said, time.Unix(n.ReasonAt, 0).UTC().Format("2006-01-02 15:04 UTC"))
	}
	what += ": " + cmp.Or(n.Reason, "no reason is given")
	if len(said) > 0 {
		what += " (" + strings.Join(said, ", ") + ")"
	}
	return what
}

// viewOf returns what slurmctld says about a node that it has, if it is known.
func viewOf(n node, known bool) plan.SchedulerView {
	switch {
	case !known:
		return plan.NoView
	case n.Has("NOT_RESPONDING"):
		return plan.Unresponsive
	}
	return plan.Responds
}

// controllerAge returns how long slurmctld has run.
func (v *observation) controllerAge() time.Duration {
	return v.ctl.env.now().Sub(v.services[slices.Index(controlServices(), profile.Slurmctld)].Since)
}

// joinNotes joins those that are not empty.
func joinNotes(notes ...string) string {
	return strings.Join(slices.DeleteFunc(notes, func(n string) bool { return n == "" }), "; ")
}
