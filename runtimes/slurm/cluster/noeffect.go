package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"berth/reconciler/plan"
	"berth/schema"
)

// withoutEffect returns the fields of a config that Slurm takes and that change nothing, or that no job can meet,
// because of other fields.
func (s *Config) withoutEffect() []schema.ConfigProblem {
	c := configCheck{set: s}
	c.uselessPreemption()
	if s.Priority != nil && s.Priority.Type == priorityBasic && s.Priority.Weights != (priorityWeights{}) {
		c.add("priority.weights", "have no effect with priority.type: %s", priorityBasic)
	}
	longest := s.longest()
	bounded := !slices.ContainsFunc(s.Partitions, func(p Partition) bool { return s.maxTime(p) == 0 })
	for i, q := range s.QoS {
		if bounded && q.MaxTimeMinutes > longest && len(s.Partitions) > 0 && !q.isLong() {
			c.add(item("qos", i)+".max_time_minutes", "is %d, and no partition allows more than %d", q.MaxTimeMinutes, longest)
		}
		c.uselessLimits(item("qos", i)+".per_user", q)
		c.uselessQoS(item("qos", i), q)
	}
	if j := s.Jobs; j != nil && j.MaxTimeMinutes > 0 {
		if most := max(longest, j.MaxTimeMinutes); bounded && j.DefaultTimeMinutes > most {
			c.add("jobs.default_time_minutes", "is %d, and no partition allows more than %d", j.DefaultTimeMinutes, most)
		}
		if c.noPartition(func(p Partition) bool { return p.MaxTimeMinutes == 0 }) {
			c.add("jobs.max_time_minutes", "each partition has a max_time_minutes of its own")
		}
	}
	c.uselessOptions()
	return c.configProblems
}

// noPartition reports whether none of the partitions meets a condition. Without any partition it is false.
func (c *configCheck) noPartition(is func(Partition) bool) bool {
	return len(c.set.Partitions) > 0 && !slices.ContainsFunc(c.set.Partitions, is)
}

// uselessLimits finds limits of a user that another limit makes useless. at is the field with them.
func (c *configCheck) uselessLimits(at string, q QoS) {
	for _, l := range []struct {
		field      string
		user, most int
	}{{"gpus", q.PerUser.GPUs, q.Group.GPUs}, {"cpus", q.PerUser.CPUs, q.Group.CPUs}, {"jobs", q.PerUser.Jobs, q.Group.Jobs},
		{"submits", q.PerUser.Submits, q.Group.Submits}} {
		if l.most > 0 && l.user > l.most {
			c.add(at+"."+l.field, "is %d, and all users together have %d", l.user, l.most)
		}
	}
	if q.PerUser.Submits > 0 && q.PerUser.Jobs > q.PerUser.Submits {
		c.add(at+".jobs", "%d exceeds per_user.submits, which is %d", q.PerUser.Jobs, q.PerUser.Submits)
	}
}

// uselessQoS finds a QoS that no job can use. at is its field.
func (c *configCheck) uselessQoS(at string, q QoS) {
	if c.noPartition(func(p Partition) bool { return len(p.AllowQOS) == 0 || slices.Contains(p.AllowQOS, q.Name) }) {
		c.add(at+".name", "no partition takes a job of this QoS: each has an allow_qos without %s", q.Name)
	}
	if q.Name == defaultQoS(c.set.QoS) && slices.Contains(q.Flags, "requires_reservation") {
		c.add(at+".flags", "this QoS is the default, so Slurm refuses each job that names no reservation")
	}
}

// uselessOptions finds values of options that Slurm takes and that switch something off, or have no effect.
func (c *configCheck) uselessOptions() {
	if from, to, ok := span(string(c.set.Options["SrunPortRange"])); ok {
		switch {
		case from > to:
			c.add("options.SrunPortRange", "begins at %d, above its end", from)
		case from <= slurmdPort && slurmdPort <= to:
			c.add("options.SrunPortRange", "contains %d, the port of slurmd: begin above it", slurmdPort)
		}
	}
	for _, name := range []string{"RequeueExit", "RequeueExitHold"} {
		for part := range strings.SplitSeq(string(c.set.Options[name]), ",") {
			from, to, ok := span(part)
			switch {
			case !ok:
			case to > 255:
				c.add("options."+name, "%s: no exit code is above 255", part)
			case from == 0:
				c.add("options."+name, "0 is the exit code of success: Slurm would requeue each successful job without end")
			}
		}
	}
}

// againstAdvice says which numbers Slurm takes though slurm.conf(5) advises otherwise.
func (s *Config) againstAdvice() (notes []string) {
	number := func(name string, byDefault int) int {
		if n, err := strconv.Atoi(string(s.Options[name])); err == nil {
			return n
		}
		return byDefault
	}
	if array, jobs := number("MaxArraySize", 1001), number("MaxJobCount", 10000); array >= jobs {
		notes = append(notes, fmt.Sprintf("MaxArraySize is %d and MaxJobCount %d: one array can hold all jobs that slurmctld keeps, and "+
			"then it refuses others", array, jobs))
	}
	if connect, message := number("TCPTimeout", 2), number("MessageTimeout", 10); connect > message {
		notes = append(notes, fmt.Sprintf("TCPTimeout (%d s) is longer than MessageTimeout (%d s): a request fails before the connection "+
			"does", connect, message))
	}
	hold := strings.Split(string(s.Options["RequeueExitHold"]), ",")
	for part := range strings.SplitSeq(string(s.Options["RequeueExit"]), ",") {
		from, to, ok := span(part)
		if ok && slices.ContainsFunc(hold, func(h string) bool { a, b, ok := span(h); return ok && a <= to && from <= b }) {
			notes = append(notes, "the exit codes "+part+" are in RequeueExit and RequeueExitHold: write each in one")
		}
	}
	return notes
}

// slurmdPort is the port of each slurmd (profile.Parameter SlurmdPort).
const slurmdPort = 6818

// span reads 6000-7000, or 7 alone; false: it is neither.
func span(text string) (from, to int, ok bool) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	from, err := strconv.Atoi(first)
	to, err2 := strconv.Atoi(last)
	return from, to, err == nil && err2 == nil
}

// withoutWorkers says which partitions and switches have none of the workers of a cluster that has some, and which
// workers no switch has.
func (s *Config) withoutWorkers(workers []plan.Member) (notes []string) {
	if len(workers) == 0 {
		return nil
	}
	notes = s.againstAdvice()
	for _, p := range s.Partitions {
		if p.Nodes != nil && !slices.ContainsFunc(workers, p.Nodes.selects) {
			notes = append(notes, "no worker is in the partition "+p.Name+", so its jobs wait: check its nodes")
		}
	}
	names := nodesOf(workers)
	for _, sw := range s.Topology.Switches {
		if len(sw.Nodes) > 0 && !slices.ContainsFunc(sw.Nodes, func(n string) bool { return slices.Contains(names, n) }) {
			notes = append(notes, "no worker is below the switch "+sw.Name+": its nodes are not members")
		}
	}
	if len(s.Topology.Switches) == 0 {
		return notes
	}
	for _, sw := range s.Topology.Switches {
		names = slices.DeleteFunc(names, func(n string) bool { return slices.Contains(sw.Nodes, n) })
	}
	if len(names) > 0 {
		notes = append(notes, "no switch of the topology lists "+strings.Join(names, ", ")+
			": Berth puts them below a switch of their own, far from the others")
	}
	return notes
}

func (c *configCheck) uselessPreemption() {
	p := c.set.Preemption
	switch {
	case p == nil:
	case p.By == "" || p.By == preemptNone:
		if p.Mode != "" {
			c.add("preemption.mode", "has no effect without preemption.by")
		}
		if p.ExemptMinutes > 0 {
			c.add("preemption.exempt_minutes", "has no effect without preemption.by")
		}
	case p.By == preemptQOS:
		if !slices.ContainsFunc(c.set.QoS, func(q QoS) bool { return len(q.Preempts) > 0 }) {
			c.add("preemption.by", "no job preempts another, as no QoS has preempts")
		}
	case p.By == preemptPartition:
		tiers := map[int]bool{}
		for _, of := range c.set.Partitions {
			tier := 1 // slurm.conf(5)
			if of.PriorityTier != nil {
				tier = *of.PriorityTier
			}
			tiers[tier] = true
		}
		if len(tiers) < 2 {
			c.add("preemption.by", "no job preempts another, as all partitions have the same priority_tier")
		}
	}
}

// isLong reports whether jobs of a QoS may run longer than their partition allows.
func (q QoS) isLong() bool { return slices.Contains(q.Flags, "ignore_partition_max_time") }

func (s *Config) hasLongQoS() bool { return slices.ContainsFunc(s.QoS, QoS.isLong) }
