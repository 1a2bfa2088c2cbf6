package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/runtimes/slurm/accounting"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// Rules are the planning rules of this runtime. They need no host.
type Rules struct{}

// Impact implements plan.Rules.
func (Rules) Impact(verb plan.Verb, member string, before, after *plan.Unit) plan.Impact {
	switch verb {
	case plan.Create:
		now, err := clusterOf(after)
		if err != nil {
			return plan.Impact{} // the action fails too, before any effect
		}
		return plan.Impact{Notes: append(configNotes(nil, &now.set), now.withoutEffect()...)}
	case plan.Configure:
		return configureImpact(before, after)
	case plan.Cordon:
		return plan.Impact{Notes: []string{member + " takes no new jobs, and running ones go on"}}
	case plan.Label:
		m, _ := before.Member(member)
		return plan.Impact{Differences: []plan.Difference{{What: "comment of node " + m.Node, Class: plan.ClassLive}}}
	case plan.Leave, plan.Drain, plan.Replace, plan.Remove:
		m, ok := before.Member(member)
		if !ok {
			return plan.Impact{}
		}
		i := plan.Impact{Drains: []string{m.Node}, Differences: []plan.Difference{{What: "node " + m.Node, Class: plan.ClassDrain}}}
		if verb != plan.Drain {
			i.Terms = sizeTermsOf(before, after)
		}
		return endsBy(i, OnJobs(m, cmp.Or(after, before)), plan.JobRule{Nodes: []string{m.Node}, Leave: !Stays(verb, m.Node, after)})
	case plan.Start, plan.Restart:
		m, ok := after.Member(member)
		switch {
		case !ok:
			return plan.Impact{}
		case verb == plan.Start && m.ControlPlane:
			return plan.Impact{Restarts: []string{"control plane"}}
		case verb == plan.Start:
			return plan.Impact{Restarts: []string{slurmdOn(m)}}
		case m.ControlPlane:
			return plan.Impact{Restarts: []string{"control plane"}, Interruption: withoutSlurmctld}
		}
		return plan.Impact{Restarts: []string{slurmdOn(m)}, Interruption: withoutSlurmd}
	case plan.AcceptLoss:
		return plan.Impact{Notes: []string{"of what the host has lost, it begins anew and empty: jobs that slurmctld no longer knows " +
			"end, and records that accounting no longer has are gone"}}
	case plan.AbandonUsage:
		return plan.Impact{Notes: []string{"if accounting cannot be read when the unit is stopped or deleted, the usage of jobs that " +
			"berth/status lacks is given up"}}
	case plan.Stop:
		return ends(plan.Impact{Drains: WorkerNodes(before)}, before, plan.JobRule{All: true})
	case plan.Delete:
		return ends(plan.Impact{Drains: WorkerNodes(before),
			Notes: []string{"its records in sacct are removed for good, and the usage that Berth recorded stays"}}, before,
			plan.JobRule{All: true, CancelsQueued: true})
	}
	return plan.Impact{}
}

// Stays reports whether a node stays in slurm.conf after a verb on its worker: it is only drained, or joins again with another shape.
// after may be nil.
func Stays(verb plan.Verb, node string, after *plan.Unit) bool {
	joinsAgain := verb == plan.Leave && after != nil &&
		slices.ContainsFunc(after.Members, func(o plan.Member) bool { return o.Node == node })
	return verb == plan.Drain || joinsAgain
}

// Interruptions that users notice while daemons restart, the worst first.
const (
	withoutSlurmctld = "no job starts for some seconds"
	withoutSlurmd    = "no job starts on a node while its slurmd restarts"
	withoutSlurmdbd  = "sacct does not answer while slurmdbd restarts"
)

// ends adds what happens to the jobs of rule by the on_jobs of u.
func ends(i plan.Impact, u *plan.Unit, rule plan.JobRule) plan.Impact {
	if u == nil {
		return endsBy(i, nil, rule)
	}
	return endsBy(i, u.Effective.OnJobs, rule)
}

// endsBy adds what happens to the jobs of rule; nil: the action waits for them.
func endsBy(i plan.Impact, on *schema.OnJobs, rule plan.JobRule) plan.Impact {
	if on != nil {
		rule.CancelAfter = on.CancelAfterSeconds
	}
	i.EndsJobs = i.EndsJobs || rule.CancelAfter > 0
	i.Jobs = append(i.Jobs, rule)
	return i
}

// configNotes describes the effects of a changed config that no file shows. old is nil where a unit is created.
func configNotes(old, now *Config) (notes []string) {
	if now.Confinement == ConfinementNone && (old == nil || old.Confinement != ConfinementNone) {
		notes = append(notes, "jobs are not confined to their CPUs, memory and GPUs (confinement: none)")
	}
	if old == nil {
		return notes
	}
	if was, is := old.defaultPartition(), now.defaultPartition(); was != is {
		notes = append(notes, fmt.Sprintf("jobs that name no partition go to %s, and no longer to %s", is, was))
	}
	if now.Retention.isShorterThan(old.Retention) {
		notes = append(notes, "accounting records older than retention are removed for good")
	}
	notes = append(notes, programNotes(old, now)...)
	switch {
	case old.Identity == now.Identity:
	case now.Identity == identityExternal:
		notes = append(notes, "Berth makes no accounts on hosts from then on and removes those that it made on workers: the directory "+
			"service of the hosts must have each user with the declared uid")
	default:
		notes = append(notes, "Berth makes the accounts of users on hosts that lack them, and removes those of users who leave")
	}
	return notes
}

// configureImpact compares the files of both units, and returns the impact of configure on the host for their difference.
func configureImpact(before, after *plan.Unit) plan.Impact {
	if before == nil || after == nil {
		return plan.Impact{}
	}
	old, now, diff, err := compareUnits(before, after)
	if err != nil {
		return plan.Impact{Notes: []string{"cannot be rendered: " + err.Error()}} // the action fails too, before any effect
	}
	todo := diff.Steps()
	i := plan.Impact{Reconfigure: todo.Reconfigure && !todo.Restart}
	for _, ch := range diff.Changes {
		i.Differences = append(i.Differences, plan.Difference{What: ch.What, Class: ch.Class})
	}
	i.Restarts, i.Interruption = restarts(todo, before)
	was := old.withoutEffect()
	notes := append(configNotes(&old.set, &now.set),
		slices.DeleteFunc(now.withoutEffect(), func(note string) bool { return slices.Contains(was, note) })...)
	reserved, waits := reservationDifferences(old, now)
	i.Differences = append(i.Differences, reserved...)
	i.Notes = append(notes, waits...)
	if partitions := old.partitionsLost(now); len(partitions) > 0 {
		i = ends(i, after, plan.JobRule{Partitions: partitions, CancelsQueued: true})
	}
	i = termsImpact(accountingImpact(i, old, now), old, now)
	if !reflect.DeepEqual(old.set.Partitions, now.set.Partitions) {
		i.Terms = append(i.Terms, sizeTerms(old, now)...)
	}
	return i
}

// restarts returns the daemons of a unit that restart for steps, and the worst interruption by it.
func restarts(todo Steps, u *plan.Unit) (daemons []string, interruption string) {
	if todo.Database {
		daemons, interruption = append(daemons, profile.Slurmdbd), withoutSlurmdbd
	}
	if todo.Workers {
		interruption = withoutSlurmd
	}
	if todo.Restart {
		daemons, interruption = append(daemons, profile.Slurmctld), withoutSlurmctld
	}
	for _, m := range u.Members {
		if todo.Workers && !m.ControlPlane {
			daemons = append(daemons, slurmdOn(m))
		}
	}
	return daemons, interruption
}

// compareUnits compares the clusters of two units on the same host.
func compareUnits(before, after *plan.Unit) (old, now *Cluster, diff Diff, err error) {
	if old, err = clusterOf(before); err != nil {
		return nil, nil, diff, err
	}
	if now, err = clusterOf(after); err != nil {
		return nil, nil, diff, err
	}
	if diff, err = Compare(old, now); err == nil {
		err = diff.Unreadable
	}
	return old, now, diff, err
}

// accountingImpact adds what changes in accounting, and the jobs of removed users and QoS.
// Queued jobs of a removed QoS go on with the default one.
func accountingImpact(i plan.Impact, before, after *Cluster) plan.Impact {
	old, err := before.Accounting()
	if err != nil {
		return i // the action fails too, before any effect
	}
	now, err := after.Accounting()
	if err != nil {
		return i
	}
	changed, removed := map[string]bool{}, map[accounting.Kind][]string{}
	for _, ch := range accounting.Diff(old, now) {
		for _, name := range ch.Names {
			changed[ch.Kind.String()+" "+name] = true
		}
		if ch.Verb == accounting.Remove {
			removed[ch.Kind] = append(removed[ch.Kind], ch.Names...)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(changed)) {
		i.Differences = append(i.Differences, plan.Difference{What: what, Class: plan.ClassLive})
	}
	withdrawn := accounting.Withdrawn(old, now)
	for _, q := range slices.Sorted(maps.Keys(withdrawn)) {
		note := fmt.Sprintf("queued jobs of %d users in QoS %s go on with the default QoS", len(withdrawn[q]), q)
		if len(withdrawn[q]) == 1 {
			note = fmt.Sprintf("queued jobs of user %s in QoS %s go on with the default QoS", withdrawn[q][0], q)
		}
		i.Notes = append(i.Notes, note)
	}
	return removedJobs(i, before.unit, after.unit, old, removed)
}

// removedJobs adds the jobs of detached projects, and of users and QoS that are removed. A job is
// in one rule: those of a detached project in that of its account.
func removedJobs(i plan.Impact, before, after *plan.Unit, old accounting.Tree, removed map[accounting.Kind][]string) plan.Impact {
	detached := map[string]bool{}
	for _, a := range Detached(before, nil, after) {
		detached[a.ProjectID] = true
		i = endsBy(i, cmp.Or(a.OnJobs, after.Effective.OnJobs), plan.JobRule{Accounts: []string{a.ProjectID}, CancelsQueued: true})
	}
	elsewhere := func(user string) bool { // than in detached projects
		for place := range old.Users[user].Associations {
			if !detached[place.Account] {
				return true
			}
		}
		return false
	}
	if users := slices.DeleteFunc(removed[accounting.OfUser], func(name string) bool { return !elsewhere(name) }); len(users) > 0 {
		i = ends(i, after, plan.JobRule{Users: users, CancelsQueued: true})
	}
	var qos []string
	for _, name := range removed[accounting.OfQoS] {
		project, isGuarantee := strings.CutSuffix(name, GuaranteedSuffix)
		switch {
		case detached[project]:
		case isGuarantee:
			i = endsBy(i, nil, plan.JobRule{QoS: []string{name}})
		default:
			qos = append(qos, name)
		}
	}
	if len(qos) > 0 {
		i = ends(i, after, plan.JobRule{QoS: qos})
	}
	return i
}

// Detached returns the attachments that have jobs to end if a unit, with those that are being detached, becomes another one.
func Detached(before *plan.Unit, detaching []schema.EffectiveAttachment, after *plan.Unit) []schema.EffectiveAttachment {
	all := slices.Clone(before.Effective.Attachments)
	for _, a := range detaching {
		if !isAttached(all, a.ProjectID) {
			all = append(all, a)
		}
	}
	return slices.DeleteFunc(all, func(a schema.EffectiveAttachment) bool { return isAttached(after.Effective.Attachments, a.ProjectID) })
}

// OnJobs returns what becomes of the jobs on a member's node that leaves: a lent node has a rule
// of its own.
func OnJobs(m plan.Member, u *plan.Unit) *schema.OnJobs {
	if m.Loan != nil {
		return cmp.Or(m.Loan.OnJobs, u.Effective.OnJobs)
	}
	return u.Effective.OnJobs
}

func slurmdOn(m plan.Member) string { return profile.Slurmd + " on " + m.Node }

// WorkerNodes returns the nodes of the workers of a unit, sorted.
func WorkerNodes(u *plan.Unit) []string {
	var out []string
	if u != nil {
		for _, m := range u.Members {
			if !m.ControlPlane {
				out = append(out, m.Node)
			}
		}
	}
	slices.Sort(out)
	return out
}
