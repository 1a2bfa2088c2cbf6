package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"berth/runtimes/slurm/accounting"
	"berth/runtimes/slurm/profile"
)

// QoS is a quality of service: limits, a priority and its users. A limit of 0 means no limit.
type QoS struct {
	Name           string    `json:"name"`
	Priority       int       `json:"priority,omitempty"`
	MaxTimeMinutes int       `json:"max_time_minutes,omitempty"`
	PerUser        QoSLimits `json:"per_user,omitzero"`
	Group          QoSLimits `json:"group,omitzero"`
	Preempts       []string  `json:"preempts,omitempty"`
	UsagePercent   *int      `json:"usage_percent,omitempty"` // nil: 100
	Flags          []string  `json:"flags,omitempty"`
	// Users may use it; nil: all users of the instance. A name that is not a user has no
	// effect.
	Users   []string `json:"users,omitempty"`
	Default bool     `json:"default,omitempty"`
}

// QoSLimits are limits of all jobs of a user, or of all users together.
type QoSLimits struct {
	GPUs    int `json:"gpus,omitempty"`
	CPUs    int `json:"cpus,omitempty"`
	Jobs    int `json:"jobs,omitempty"`    // that run
	Submits int `json:"submits,omitempty"` // that run or wait
}

// qosFlags are the flags of a QoS by their name in the config (sacctmgr(1), Flags of QOS).
var qosFlags = map[string]string{
	"deny_on_limit": "DenyOnLimit", "no_decay": "NoDecay", "no_reserve": "NoReserve", "override_partition_qos": "OverPartQOS",
	"ignore_partition_max_nodes": "PartitionMaxNodes", "ignore_partition_min_nodes": "PartitionMinNodes",
	"ignore_partition_max_time": "PartitionTimeLimit",
	"requires_reservation":      "RequiresReservation",
}

// allQoS refuses names and references that slurmdbd would refuse, or read as others.
func (c *configCheck) allQoS() {
	seen := map[string]bool{}
	standard := defaultQoS(c.set.QoS)
	for i, q := range c.set.QoS {
		at := item("qos", i)
		switch {
		case !isFree(q.Name):
			c.add(at+".name", "invalid name %q", q.Name)
		case seen[q.Name]:
			c.add(at+".name", "the QoS %s is listed twice: Slurm keeps names of QoS in lower case", q.Name)
		}
		seen[q.Name] = true
		if q.Default && q.Name != standard {
			c.add(at+".default", "only one QoS can be the default, and %s is", standard)
		}
		if q.Name == standard && q.Users != nil {
			c.add(at+".users", "the QoS %s is the default, which is for all users: leave them out, or declare another default", q.Name)
		}
		c.qos(at, q)
	}
}

func (c *configCheck) qos(at string, q QoS) {
	for _, n := range []int{q.Priority, q.MaxTimeMinutes, q.PerUser.GPUs, q.PerUser.CPUs, q.PerUser.Jobs, q.PerUser.Submits, q.Group.GPUs,
		q.Group.CPUs, q.Group.Jobs, q.Group.Submits} {
		if n < 0 {
			c.add(at, "%d is negative", n)
		}
	}
	if n := q.UsagePercent; n != nil && *n < 0 {
		c.add(at+".usage_percent", "is negative")
	}
	for i, other := range q.Preempts {
		if known := c.set.qosNames(); other == q.Name || !slices.Contains(known, other) {
			c.add(item(at+".preempts", i), "%s is no other QoS: there is %s", other, strings.Join(known, ", "))
		}
	}
	if !slices.Contains(q.Preempts, q.Name) && c.preempts(q.Name, q.Name, map[string]bool{}) {
		c.add(at+".preempts", "the QoS %s would preempt itself through others, which slurmdbd refuses", q.Name)
	}
	if len(q.Preempts) > 0 && (c.set.Preemption == nil || c.set.Preemption.By != preemptQOS) {
		c.add(at+".preempts", "has no effect without preemption.by: %s", preemptQOS)
	}
	for i, f := range q.Flags {
		if qosFlags[f] == "" {
			c.add(item(at+".flags", i), "unknown flag %q", f)
		}
	}
	for i, u := range q.Users {
		if !profile.IsUser(u) {
			c.add(item(at+".users", i), "%q is not the name of a user", u)
		}
	}
}

// preempts reports whether a QoS preempts another one, itself or through others.
func (c *configCheck) preempts(name, other string, seen map[string]bool) bool {
	seen[name] = true
	i := slices.IndexFunc(c.set.QoS, func(q QoS) bool { return q.Name == name })
	return i >= 0 && slices.ContainsFunc(c.set.QoS[i].Preempts, func(next string) bool {
		return next == other || !seen[next] && c.preempts(next, other, seen)
	})
}

// defaultQoS returns the QoS of jobs that name none.
func defaultQoS(list []QoS) string {
	for _, q := range list {
		if q.Default {
			return q.Name
		}
	}
	return accounting.Normal
}

// Settings returns the QoS as slurmdbd has it.
func (q QoS) Settings() accounting.Settings {
	s := accounting.Settings{}
	number := func(name accounting.Setting, n int) {
		if n > 0 {
			s[name] = strconv.Itoa(n)
		}
	}
	words := func(name accounting.Setting, list ...string) {
		if len(list) > 0 {
			s[name] = accounting.Join(list...)
		}
	}
	number("priority", q.Priority)
	number("maxwall", q.MaxTimeMinutes)
	number("maxjobsperuser", q.PerUser.Jobs)
	number("maxsubmitjobsperuser", q.PerUser.Submits)
	number("grpjobs", q.Group.Jobs)
	number("grpsubmitjobs", q.Group.Submits)
	words("maxtresperuser", q.PerUser.tres()...)
	words("grptres", q.Group.tres()...)
	words("preempt", q.Preempts...)
	var flags []string
	for _, f := range q.Flags {
		flags = append(flags, qosFlags[f])
	}
	words("flags", flags...)
	if q.UsagePercent != nil {
		s["usagefactor"] = strconv.FormatFloat(float64(*q.UsagePercent)/100, 'f', -1, 64)
	}
	return s
}

func (m QoSLimits) tres() []string {
	var words []string
	if m.CPUs > 0 {
		words = append(words, fmt.Sprintf("cpu=%d", m.CPUs))
	}
	if m.GPUs > 0 {
		words = append(words, fmt.Sprintf("gres/gpu=%d", m.GPUs))
	}
	return words
}

// MembersAccount is the account of all users of a unit without attachments whose config names none.
// With attachments it has no users.
const MembersAccount = "members"

// Accounting returns what slurmdbd should have of the cluster. The account of a user gives
// access to each QoS that is for all its users: slurmctld 24.11 does not hand on a change of the
// account root to users two levels below.
func (c *Cluster) Accounting() (accounting.Tree, error) {
	t := accounting.NewTree(c.name)
	for _, q := range c.set.QoS {
		t.QoS[q.Name] = q.Settings()
	}
	for _, u := range c.users {
		if err := CheckUser(u); err != nil {
			return t, err
		}
	}
	all := c.accounts()
	for _, a := range all {
		for name := range a.ownQoS {
			if _, isDeclared := t.QoS[name]; isDeclared && name != accounting.Normal {
				return t, fmt.Errorf("the QoS %s of the config has the name of one of the attached project %s: rename it", name, a.name)
			}
		}
	}
	for _, a := range all {
		maps.Copy(t.QoS, a.ownQoS)
		t.Accounts[a.name] = accounting.Account{Parent: accounting.Root, Settings: a.Settings}
	}
	// The first account of a user is the default one.
	slices.SortStableFunc(all, func(a, b account) int {
		switch {
		case c.detaches(a.name) == c.detaches(b.name):
			return 0
		case c.detaches(b.name):
			return -1
		}
		return 1
	})
	for _, a := range all {
		for _, u := range c.users {
			if a.users == nil || slices.Contains(a.users, u.Name) {
				t.AddUser(u.Name, a.name, a.userSettings(u.Name))
			}
		}
	}
	return t, nil
}

// userSettings returns the settings of a user's association with the account. A list of QoS
// replaces the inherited one, and its default has to be in it.
func (a *account) userSettings(user string) accounting.Settings {
	own := slices.Clone(a.QoS)
	for _, q := range a.Optional {
		if slices.Contains(q.Users, user) {
			own = append(own, q.Name)
		}
	}
	if len(own) == len(a.QoS) {
		return accounting.Settings{}
	}
	return accounting.Settings{"qos": accounting.Join(own...), "defaultqos": a.standard}
}
