package plan

import "slices"

// JobTerms are the limits on the jobs of an account or of a QoS before and after an action. They
// say which queued jobs can start. Running jobs go on, whatever the limits are.
type JobTerms struct {
	Account string    `json:"account,omitempty"` // "": any
	QoS     string    `json:"qos,omitempty"`     // "": any
	Before  JobLimits `json:"before,omitzero"`
	After   JobLimits `json:"after,omitzero"`
}

// JobLimits say which queued jobs can start. A resource that is not named has no limit.
type JobLimits struct {
	Without  []string       `json:"without_partitions,omitempty"` // partitions that take none of the jobs
	PerJob   map[string]int `json:"per_job,omitempty"`            // the most that one job can ask for
	Together map[string]int `json:"together,omitempty"`           // the most that the running jobs have together
	// Sizes are the workers of each partition; nil: they are not compared.
	Sizes map[string]PartitionSize `json:"partition_sizes,omitempty"`
}

// PartitionSize is the nodes of a partition. Nodes with the same resources are one entry.
type PartitionSize []SameNodes

// SameNodes are nodes with the same resources.
type SameNodes struct {
	Count int           `json:"count"`
	Has   NodeResources `json:"has"`
}

// NodeResources is what a node has for jobs, or the least that it must have for one. A zero value asks for nothing.
type NodeResources struct {
	CPUs      int            `json:"cpus,omitempty"`
	MemoryMiB int            `json:"memory_mib,omitempty"`
	GPUs      map[string]int `json:"gpus,omitempty"`     // by type; "" of a job: of any type
	Features  []string       `json:"features,omitempty"` // of a job: all of them
}

// has reports whether a node has the least that a job asks for.
func (n *NodeResources) has(least *NodeResources) bool {
	all := 0
	for _, count := range n.GPUs {
		all += count
	}
	for kind, count := range least.GPUs {
		if kind == "" && count > all || kind != "" && count > n.GPUs[kind] {
			return false
		}
	}
	return least.CPUs <= n.CPUs && least.MemoryMiB <= n.MemoryMiB &&
		!slices.ContainsFunc(least.Features, func(f string) bool { return !slices.Contains(n.Features, f) })
}

// takes reports whether a partition can ever have all that a job asks for. The maximum
// number of nodes of a waiting job is unknown, so its totals are compared with all suitable nodes.
func (s PartitionSize) takes(g *JobGroup) bool {
	nodes, gpus, cpus := 0, 0, 0
	for i := range s {
		if same := &s[i]; same.Has.has(&g.Each) {
			nodes, cpus = nodes+same.Count, cpus+same.Count*same.Has.CPUs
			for _, count := range same.Has.GPUs {
				gpus += same.Count * count
			}
		}
	}
	return max(g.NodeCount, 1) <= nodes && g.GPUs <= gpus && g.CPUs <= cpus
}

// takes reports whether one of the partitions of a job can have it, and each of its parts.
func (l *JobLimits) takes(g *JobGroup) bool {
	if l.Sizes == nil || len(g.Partitions) == 0 {
		return true
	}
	fits := func(g *JobGroup) bool {
		return slices.ContainsFunc(g.Partitions, func(p string) bool {
			size, known := l.Sizes[p]
			return !known || size.takes(g)
		})
	}
	return fits(g) && !slices.ContainsFunc(g.Parts, func(part JobGroup) bool { return !fits(&part) })
}

// Resources that JobLimits name.
const (
	ResourceGPUs    = "GPUs"
	ResourceCPUs    = "CPUs"
	ResourceMinutes = "minutes"
	ResourceJobs    = "jobs"
)

// JobPreemption says whose running jobs may end for those of others from an action on.
type JobPreemption struct {
	QoS          []string `json:"qos"`                     // of the jobs that may end
	Mode         string   `json:"mode"`                    // schema.PreemptRequeue or schema.PreemptCancel
	GraceSeconds int      `json:"grace_seconds,omitempty"` // between the signal to a job and its end
	For          []string `json:"for"`                     // accounts whose guaranteed share they end for
}

// asks returns what each job of a group asks for, all its parts together.
func (g *JobGroup) asks() map[string]int {
	all := map[string]int{ResourceGPUs: g.GPUs, ResourceCPUs: g.CPUs, ResourceMinutes: g.Minutes, ResourceJobs: 1}
	for _, part := range g.Parts {
		all[ResourceGPUs] += part.GPUs
		all[ResourceCPUs] += part.CPUs
	}
	return all
}

// start is whether a queued job can start by the limits on it.
type start int

const (
	startsFreely start = iota
	startsLater        // when running jobs with the same limits have ended
	startsNever        // it asks for more than one job can have
)

func (t *JobTerms) selects(g *JobGroup) bool {
	return (t.Account == "" || t.Account == g.Account) && (t.QoS == "" || t.QoS == g.QoS)
}

// under returns whether a queued job can start by l while running jobs have used.
func (t *JobTerms) under(l *JobLimits, g *JobGroup, used map[string]int) start {
	if len(g.Partitions) > 0 && !slices.ContainsFunc(g.Partitions, func(p string) bool { return !slices.Contains(l.Without, p) }) {
		return startsNever
	}
	if !l.takes(g) {
		return startsNever
	}
	result := startsFreely
	for resource, n := range g.asks() {
		most, limited := l.PerJob[resource]
		// A job that asks for no time has that of the limit, and follows it. Nothing distinguishes it
		// from a job that asks for exactly that time.
		follows := resource == ResourceMinutes && n == t.Before.PerJob[resource]
		if limited && n > most && !follows {
			return startsNever
		}
		if most, limited = l.Together[resource]; limited && n > 0 && used[resource]+n > most {
			result = startsLater
		}
	}
	return result
}

// effects are what actions do to jobs.
type effects struct {
	rules    []JobRule
	terms    []JobTerms
	preempts []JobPreemption
	used     []map[string]int // by the running jobs of each of terms
	leaving  []string         // nodes
	joins    bool             // a node joins
}

func effectsOf(actions []Action, groups []JobGroup) effects {
	var e effects
	isSized := func(t JobTerms) bool { return t.Before.Sizes != nil }
	for _, a := range actions {
		e.rules = append(e.rules, a.Impact.Jobs...)
		e.joins = e.joins || a.Verb == Join
		for _, r := range a.Impact.Jobs {
			if r.Leave {
				e.leaving = append(e.leaving, r.Nodes...)
			}
		}
		for _, t := range a.Impact.Terms {
			if !isSized(t) || !slices.ContainsFunc(e.terms, isSized) { // the sized ones of a plan are equal
				e.terms = append(e.terms, t)
			}
		}
		e.preempts = append(e.preempts, a.Impact.Preempts...)
	}
	for i := range e.terms {
		e.used = append(e.used, e.terms[i].usedBy(groups))
	}
	return e
}

// usedBy adds up what running jobs that the terms select use, by resource.
func (t *JobTerms) usedBy(groups []JobGroup) map[string]int {
	used := map[string]int{}
	for k := range groups {
		g := &groups[k]
		if g.Pending || !t.selects(g) {
			continue
		}
		for resource, n := range g.asks() {
			used[resource] += n * g.Count
		}
	}
	return used
}

// later returns what becomes of jobs that no rule selects.
func (e *effects) later(g *JobGroup) fate {
	if !g.Pending {
		if slices.ContainsFunc(e.preempts, func(p JobPreemption) bool { return g.QoS != "" && slices.Contains(p.QoS, g.QoS) }) {
			return preemptible
		}
		return continues
	}
	if e.excludesAllThatStay(g) {
		return cannotStart
	}
	before, after := startsFreely, startsFreely
	for i := range e.terms {
		if t := &e.terms[i]; t.selects(g) {
			before = max(before, t.under(&t.Before, g, e.used[i]))
			after = max(after, t.under(&t.After, g, e.used[i]))
		}
	}
	switch {
	case after < before:
		return mayStart
	case after == before:
		return continues
	case after == startsNever:
		return cannotStart
	}
	return delayed
}

// excludesAllThatStay reports whether a job, or a part of it, excludes so many nodes by name that too few of the others stay.
// A node that joins may be one more.
func (e *effects) excludesAllThatStay(g *JobGroup) bool {
	lacks := func(g *JobGroup) bool {
		left := slices.DeleteFunc(slices.Clone(g.Allowed), func(n string) bool { return slices.Contains(e.leaving, n) })
		return len(left) < max(g.NodeCount, 1) && len(g.Allowed) >= max(g.NodeCount, 1)
	}
	return !e.joins && (lacks(g) || slices.ContainsFunc(g.Parts, func(p JobGroup) bool { return lacks(&p) }))
}
