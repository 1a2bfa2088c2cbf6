package slurm

import (
	"slices"
	"strconv"
	"strings"

	"berth/reconciler/plan"
	"berth/schema"
)

// withoutEffect returns the fields of a config that Slurm takes and that change nothing, or that no job can meet,
// because of other fields.
func (s *settings) withoutEffect() []schema.ConfigProblem {
	var c configProblems
	s.uselessPreemption(&c)
	if s.Priority != nil && s.Priority.Type == priorityBasic && s.Priority.Weights != (priorityWeights{}) {
		c.add("priority.weights", "have no effect with priority.type: %s", priorityBasic)
	}
	longest, bounded := 0, true
	for _, p := range s.Partitions {
		bounded = bounded && s.maxTime(p) > 0
		longest = max(longest, s.maxTime(p))
	}
	for i, q := range s.QoS {
		at := item("qos", i)
		if bounded && q.MaxTimeMinutes > longest && len(s.Partitions) > 0 && !q.isLong() {
			c.add(at+".max_time_minutes", "is %d, and no partition allows more than %d", q.MaxTimeMinutes, longest)
		}
		for _, l := range []struct {
			field      string
			user, most int
		}{{"gpus", q.PerUser.GPUs, q.Group.GPUs}, {"cpus", q.PerUser.CPUs, q.Group.CPUs}, {"jobs", q.PerUser.Jobs, q.Group.Jobs}, {"submits", q.PerUser.Submits, q.Group.Submits}} {
			if l.most > 0 && l.user > l.most {
				c.add(at+".per_user."+l.field, "is %d, and all users together have %d", l.user, l.most)
			}
		}
		if q.Name == defaultQoS(s.QoS) && slices.Contains(q.Flags, "requires_reservation") {
			c.add(at+".flags", "this QoS is the default, so Slurm refuses each job that names no reservation")
		}
	}
	if j := s.Jobs; j != nil && j.MaxTimeMinutes > 0 {
		if most := max(longest, j.MaxTimeMinutes); bounded && j.DefaultTimeMinutes > most {
			c.add("jobs.default_time_minutes", "is %d, and no partition allows more than %d", j.DefaultTimeMinutes, most)
		}
		if len(s.Partitions) > 0 && !slices.ContainsFunc(s.Partitions, func(p partition) bool { return p.MaxTimeMinutes == 0 }) {
			c.add("jobs.max_time_minutes", "each partition has a max_time_minutes of its own")
		}
	}
	if first, last, isRange := strings.Cut(string(s.Options["SrunPortRange"]), "-"); isRange {
		from, err := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err == nil && err2 == nil && from > to {
			c.add("options.SrunPortRange", "begins at %d, above its end", from)
		}
	}
	return c
}

// withoutWorkers says which partitions and switches have none of the workers of a cluster that has some.
func (s *settings) withoutWorkers(workers []plan.Member) (notes []string) {
	if len(workers) == 0 {
		return nil
	}
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
	return notes
}

func (s *settings) uselessPreemption(c *configProblems) {
	p := s.Preemption
	switch {
	case p == nil:
	case p.By == "" || p.By == preemptNone:
		if p.Mode != "" {
			c.add("preemption.mode", "has no effect without preemption.by")
		}
		if p.ExemptMinutes > 0 {
			c.add("preemption.exempt_minutes", "has no effect without preemption.by")
		}
	case p.By == preemptPartition:
		tiers := map[int]bool{}
		for _, of := range s.Partitions {
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
func (q qos) isLong() bool { return slices.Contains(q.Flags, "ignore_partition_max_time") }

func (s *settings) hasLongQoS() bool { return slices.ContainsFunc(s.QoS, qos.isLong) }
