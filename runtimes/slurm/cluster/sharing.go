package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"berth/reconciler/plan"
	"berth/runtimes/slurm/accounting"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// GuaranteedSuffix ends the name of the QoS of jobs within a guaranteed share. No name of a
// project has an underscore.
const GuaranteedSuffix = "_guaranteed"

// account is an account of the cluster: that of an attached project, or membersAccount.
type account struct {
	name     string
	Settings accounting.Settings
	ownQoS   map[string]accounting.Settings
	standard string   // QoS of a job that names none
	QoS      []string // QoS that each user may use
	users    []string // nil: all users of the unit
	Optional []QoS    // QoS of the config that only some users may use
}

// Attachments returns the attachments of a unit, and those that are being detached, which take no new jobs, by project.
func Attachments(u *plan.Unit, detaching []schema.EffectiveAttachment) []schema.EffectiveAttachment {
	all := slices.Clone(u.Effective.Attachments)
	for _, a := range detaching {
		if !isAttached(all, a.ProjectID) {
			a.Closed = true
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b schema.EffectiveAttachment) int { return strings.Compare(a.ProjectID, b.ProjectID) })
	return all
}

// Users returns the users of a unit, and those among people of projects that are being detached.
func Users(u *plan.Unit, people []schema.UnixUser, detaching []schema.EffectiveAttachment) []schema.UnixUser {
	users := slices.Clone(u.Effective.Users)
	for _, p := range people {
		isMember := slices.ContainsFunc(detaching, func(a schema.EffectiveAttachment) bool { return slices.Contains(a.Users, p.Name) })
		if isMember && !slices.Contains(UserNames(users), p.Name) {
			users = append(users, p)
		}
	}
	slices.SortFunc(users, func(a, b schema.UnixUser) int { return strings.Compare(a.Name, b.Name) })
	return users
}

// UserNames returns the names of users, sorted.
func UserNames(users []schema.UnixUser) []string {
	var out []string
	for _, u := range users {
		out = append(out, u.Name)
	}
	slices.Sort(out)
	return out
}

// UnionOfUsers returns the users of both lists without duplicates, by name.
func UnionOfUsers(a, b []schema.UnixUser) []schema.UnixUser {
	all := slices.Concat(a, b)
	slices.SortFunc(all, func(a, b schema.UnixUser) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return slices.Compact(all)
}

func isAttached(all []schema.EffectiveAttachment, project string) bool {
	return slices.ContainsFunc(all, func(a schema.EffectiveAttachment) bool { return a.ProjectID == project })
}

// accounts returns the accounts of the cluster except root.
func (c *Cluster) accounts() []account {
	set := &c.set
	if len(c.attached) == 0 {
		return []account{set.membersAccount()}
	}
	var preempted []string
	for _, a := range c.attached {
		preempted = append(preempted, a.ProjectID)
	}
	for _, q := range set.QoS {
		preempted = append(preempted, q.Name)
	}
	members := set.membersAccount()
	members.name, members.users = MembersAccount, []string{} // a partition that takes no project's jobs names it
	all := []account{members}
	for _, a := range c.attached {
		all = append(all, set.projectAccount(a, preempted))
	}
	return all
}

// membersAccount returns the account of all users of a unit without attachments.
func (s *Config) membersAccount() account {
	a := account{name: s.UsersAccount(), Settings: accounting.Settings{}, standard: defaultQoS(s.QoS)}
	a.QoS = []string{accounting.Normal}
	for _, q := range s.QoS {
		a.QoS = slices.DeleteFunc(a.QoS, func(name string) bool { return name == q.Name })
		if q.Users == nil {
			a.QoS = append(a.QoS, q.Name)
		} else {
			a.Optional = append(a.Optional, q)
		}
	}
	if len(s.QoS) > 0 {
		a.Settings["qos"], a.Settings["defaultqos"] = accounting.Join(a.QoS...), a.standard
	}
	return a
}

// projectAccount returns the account of an attached project. It has all limits of the project, so
// they hold in each QoS. The QoS of the project refuse a job that alone exceeds a limit, also one
// of the account. preempted are the QoS whose jobs end for those of a guaranteed share.
func (s *Config) projectAccount(a schema.EffectiveAttachment, preempted []string) account {
	out := account{name: a.ProjectID, Settings: limitSettings(a), standard: a.ProjectID, QoS: []string{a.ProjectID},
		users: append([]string{}, a.Users...)}
	how := preemptionOf(a)
	plain := accounting.Settings{"flags": "DenyOnLimit", "preemptmode": how.Mode}
	setNumber(plain, "priority", a.Priority)
	setNumber(plain, "gracetime", how.GraceSeconds)
	out.ownQoS = map[string]accounting.Settings{a.ProjectID: plain}
	if a.Guaranteed != (schema.Amount{}) {
		out.standard = a.ProjectID + GuaranteedSuffix
		out.QoS = append(out.QoS, out.standard)
		// A limit of the group would replace that of the account (resource_limits(5)). The limit of a
		// resource without a guarantee is 0, as a job without a limit could take all of it.
		out.ownQoS[out.standard] = accounting.Settings{
			"flags": "DenyOnLimit", "preempt": accounting.Join(preempted...), "priority": strconv.Itoa(s.guaranteedPriority()),
			"maxtresperaccount": accounting.Join(fmt.Sprintf("cpu=%d", a.Guaranteed.CPUs), fmt.Sprintf("gres/gpu=%d", a.Guaranteed.GPUs)),
		}
	}
	for _, q := range s.QoS {
		switch {
		case q.replacesLimit(a.SubmissionLimits):
		case q.Users == nil:
			out.QoS = append(out.QoS, q.Name)
		default:
			out.Optional = append(out.Optional, q)
		}
	}
	out.Settings["qos"], out.Settings["defaultqos"] = accounting.Join(out.QoS...), out.standard
	return out
}

// limitSettings returns the limits and the share of a project as settings of its account.
func limitSettings(a schema.EffectiveAttachment) accounting.Settings {
	s := accounting.Settings{}
	if a.Share > 0 && a.Share != 1 {
		s["fairshare"] = strconv.Itoa(a.Share)
	}
	setNumber(s, "grpjobs", a.MaxRunningJobs)
	setNumber(s, "grpsubmitjobs", a.MaxSubmittedJobs)
	if a.Closed {
		s["grpsubmitjobs"] = "0"
	}
	setNumber(s, "maxwalldurationperjob", a.MaxWalltimeMinutes)
	for name, most := range map[accounting.Setting]QoSLimits{
		"grptres": {GPUs: a.MaxGPUs, CPUs: a.MaxCPUs}, "maxtresperjob": {GPUs: a.MaxGPUsPerJob, CPUs: a.MaxCPUsPerJob},
	} {
		if words := most.tres(); len(words) > 0 {
			s[name] = accounting.Join(words...)
		}
	}
	return s
}

func setNumber(s accounting.Settings, name accounting.Setting, n int) {
	if n > 0 {
		s[name] = strconv.Itoa(n)
	}
}

// replacesLimit reports whether slurmctld would use a limit of the QoS in place of one of the
// account, which is then not in force: a limit of the QoS goes first (resource_limits(5)).
func (q QoS) replacesLimit(l schema.SubmissionLimits) bool {
	return q.Group.Submits > 0 || // also that with which an account is closed
		l.MaxWalltimeMinutes > 0 && q.MaxTimeMinutes > l.MaxWalltimeMinutes ||
		l.MaxGPUs > 0 && q.Group.GPUs > 0 || l.MaxCPUs > 0 && q.Group.CPUs > 0 || l.MaxRunningJobs > 0 && q.Group.Jobs > 0
}

// withoutEffect says which partitions and switches have no worker, and which terms of attachments have no
// effect. They are not errors: a worker may come later, and one project must not hold up the others.
func (c *Cluster) withoutEffect() (notes []string) {
	set := &c.set
	notes = set.withoutWorkers(c.workers)
	known := PartitionNames(set.Partitions)
	for _, a := range c.unit.Effective.Attachments {
		for _, queue := range a.Queues {
			if !slices.Contains(known, queue) {
				notes = append(notes, fmt.Sprintf("project %s may use the queue %s, which is no partition: there is %s", a.ProjectID, queue,
					strings.Join(known, ", ")))
			}
		}
		if hasGuarantee(a) && set.preemptsByPartition() {
			notes = append(notes, fmt.Sprintf("the guaranteed share of project %s preempts nobody, as config.preemption.by is %s",
				a.ProjectID, preemptPartition))
		}
	}
	return notes
}

// Admitted returns the partitions of the config with the accounts and QoS that each of them takes.
// A partition of a unit without attachments is as the config has it.
func (c *Cluster) Admitted() []Partition {
	set := &c.set
	if len(c.attached) == 0 {
		return set.Partitions
	}
	own := map[string][]string{}
	for _, a := range c.accounts() {
		own[a.name] = slices.Sorted(maps.Keys(a.ownQoS))
	}
	out := slices.Clone(set.Partitions)
	for i := range out {
		p := &out[i]
		var accounts []string
		qos := p.AllowQOS
		if qos == nil {
			for _, q := range set.QoS {
				qos = append(qos, q.Name)
			}
		}
		for _, a := range c.attached {
			if set.admits(*p, a) {
				accounts, qos = append(accounts, a.ProjectID), slices.Concat(qos, own[a.ProjectID])
			}
		}
		if len(accounts) == 0 { // from 24.11 on, root means all accounts below it
			accounts = []string{MembersAccount}
		}
		if len(qos) == 0 {
			qos = []string{accounting.Normal}
		}
		p.AllowAccounts, p.AllowQOS = accounts, strings.Split(accounting.Join(qos...), ",")
	}
	return out
}

// admits reports whether a partition takes jobs of a project. The QoS of a partition must not
// replace a limit of the project.
func (s *Config) admits(p Partition, a schema.EffectiveAttachment) bool {
	if a.Queues != nil && !slices.Contains(a.Queues, p.Name) || p.AllowAccounts != nil && !slices.Contains(p.AllowAccounts, a.ProjectID) {
		return false
	}
	return !slices.ContainsFunc(s.QoS, func(q QoS) bool { return q.Name == p.QOS && q.replacesLimit(a.SubmissionLimits) })
}

// sharingParameters returns the parameters of slurm.conf that guaranteed shares need. Preemption
// by QoS is on from the first attachment, so a change of terms restarts nothing.
func (c *Cluster) sharingParameters() map[string]string {
	set := &c.set
	if len(c.attached) == 0 || set.preemptsByPartition() {
		return nil
	}
	how := preemption{Mode: schema.PreemptRequeue}
	if p := set.Preemption; p != nil {
		if how.ExemptMinutes = p.ExemptMinutes; p.By == preemptQOS {
			how.Mode = p.Mode
		}
	}
	how.By = preemptQOS
	values := how.parameters()
	if slices.ContainsFunc(c.attached, hasGuarantee) && set.Priority != nil && set.Priority.Type != priorityBasic {
		values["PriorityWeightQOS"] = strconv.Itoa(set.weightOfGuarantee())
	}
	return values
}

// The depths of a queue that slurmctld has by default (slurm.conf(5), SchedulerParameters).
const (
	mainDepth     = 100
	backfillDepth = 500
)

// Scheduler returns the scheduler of the config with the depths that guaranteed shares need, where
// the config has none. slurmctld counts jobs that a limit holds, so the queue of one project must
// not use up the depth of all. Backfill ends a job of others for each job that it tries, also if
// only some of them fit the share: it tries no more jobs of a user than fill the largest share,
// rounded up to a power of two, so that few changes of a share change the file.
func (c *Cluster) Scheduler() scheduler {
	s, largest := c.set.Scheduler, 0
	for _, a := range c.attached {
		largest = max(largest, a.Guaranteed.GPUs, a.Guaranteed.CPUs)
	}
	if largest == 0 {
		return s
	}
	largest = 1 << bits.Len(uint(largest-1))
	s.DefaultQueueDepth = cmp.Or(s.DefaultQueueDepth, mainDepth*len(c.attached))
	s.BFMaxJobTest = cmp.Or(s.BFMaxJobTest, max(backfillDepth, largest)*len(c.attached))
	if s.BFMaxJobUser == 0 { // which is such a limit too
		s.bfMaxJobAssoc = min(largest, s.BFMaxJobTest)
	}
	return s
}

func hasGuarantee(a schema.EffectiveAttachment) bool { return a.Guaranteed != schema.Amount{} }

func (s *Config) preemptsByPartition() bool {
	return s.Preemption != nil && s.Preemption.By == preemptPartition
}

// maxPriority is the highest priority of an attachment (schema/cue/shared.cue).
const maxPriority = 1000

// guaranteeFactor returns by what the weight of QoS and the highest priority are multiplied, so
// that a job within a guaranteed share goes before all others, whatever their age and fair share
// are. slurmctld divides the priority of a QoS by the highest one, so other QoS keep their weight.
func (s *Config) guaranteeFactor() int {
	w := s.priorityWeights()
	return (w.Age+w.Fairshare+w.JobSize+w.Partition)/max(w.QOS, 1) + 2
}

// weightOfGuarantee returns PriorityWeightQOS. At its maximum, other weights may outweigh a
// guaranteed share.
func (s *Config) weightOfGuarantee() int {
	return min(profile.MaxWeight, s.guaranteeFactor()*max(s.priorityWeights().QOS, 1))
}

func (s *Config) priorityWeights() priorityWeights {
	if s.Priority == nil {
		return priorityWeights{}
	}
	return s.Priority.Weights
}

// guaranteedPriority returns the priority of the QoS of guaranteed shares.
func (s *Config) guaranteedPriority() int {
	const most = 4_000_000_000 // slurmdbd has 32 bits
	highest := maxPriority
	for _, q := range s.QoS {
		highest = max(highest, q.Priority)
	}
	return min(most, s.guaranteeFactor()*highest)
}
