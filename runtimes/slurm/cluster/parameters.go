package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/schema"
)

// Values of the parameters of slurm.conf that depend on an instance's config. A parameter
// without a value has no line.

// longest returns the longest time of a job in any partition in minutes.
func (s *Config) longest() int {
	minutes := 0
	for _, p := range s.Partitions {
		minutes = max(minutes, s.maxTime(p))
	}
	return minutes
}

// The least bf_window, and the one from which backfill would need too much memory and time
// (slurm.conf(5)), in minutes.
const (
	minWindow = 24 * 60
	maxWindow = 30 * 24 * 60
)

// Parameters returns SchedulerParameters. Backfill looks ahead as far as the longest
// job lasts, or large jobs would wait for ever, and less precisely the farther it looks.
func (s scheduler) Parameters(longest int) map[string]string {
	const all = "SchedulerParameters"
	words := []string{fmt.Sprintf("sched_interval=1,batch_sched_delay=0,bf_interval=%d", s.IntervalSeconds)}
	if s.CycleSeconds > 0 {
		window := min(max(longest, minWindow), maxWindow)
		words = []string{
			fmt.Sprintf("sched_interval=%d,batch_sched_delay=%d,bf_interval=%d", s.CycleSeconds, s.BatchDelaySeconds, s.IntervalSeconds),
			fmt.Sprintf("bf_continue,bf_window=%d,bf_resolution=%d", window, max(60, window/24)),
		}
	}
	for _, depth := range []struct {
		name  string
		value int
	}{
		{"bf_max_job_assoc", s.bfMaxJobAssoc}, {"bf_max_job_part", s.BFMaxJobPart}, {"bf_max_job_test", s.BFMaxJobTest},
		{"bf_max_job_user", s.BFMaxJobUser},
		{"default_queue_depth", s.DefaultQueueDepth}, {"max_rpc_cnt", s.MaxRPCCount},
	} {
		if depth.value > 0 {
			words = append(words, fmt.Sprintf("%s=%d", depth.name, depth.value))
		}
	}
	return map[string]string{all: strings.Join(words, ",")}
}

func (s *Config) jobParameters() map[string]string {
	if s.Jobs == nil {
		return nil
	}
	return map[string]string{"KillWait": fmt.Sprint(s.Jobs.KillWaitSeconds),
		"UnkillableStepTimeout": fmt.Sprint(s.Jobs.UnkillableStepSeconds)}
}

// jobDefaults returns what a job gets of nodes with each CPU or GPU if it does not ask for
// it: the share of the node that has least of it. The memory of a confined job is a
// limit.
func (s *Config) jobDefaults(workers []plan.Member) map[string]string {
	least := func(share func(plan.Member) int) string {
		n := 0
		for _, m := range workers {
			if got := share(m); got > 0 && (n == 0 || got < n) {
				n = got
			}
		}
		return fmt.Sprint(max(n, 1))
	}
	values := map[string]string{"DefMemPerCPU": least(func(m plan.Member) int { return m.MemoryMiB / max(m.CPUs, 1) })}
	if s.Jobs != nil && s.Jobs.GPUDefaults == gpuDefaultsShare &&
		slices.ContainsFunc(workers, func(m plan.Member) bool { return GPUCount(m) > 0 }) {
		values["DefMemPerGPU"] = least(func(m plan.Member) int { return m.MemoryMiB / max(GPUCount(m), 1) * min(GPUCount(m), 1) })
		values["DefCpuPerGPU"] = least(cpusPerGPU)
	}
	return values
}

// cpusPerGPU returns a GPU's share of the CPUs of a node, in whole cores where it has so many: a job
// gets whole cores, and with rounded up ones the last GPU would have none. 0: the node has no GPU.
func cpusPerGPU(m plan.Member) int {
	if GPUCount(m) == 0 {
		return 0
	}
	share, ofCore := m.CPUs/GPUCount(m), max(m.CPUs/max(m.Shape.Cores(), 1), 1)
	if m.Shape == (schema.Shape{}) || share < ofCore {
		return share
	}
	return share - share%ofCore
}

// GPUCount returns how many GPUs a member has.
func GPUCount(m plan.Member) int {
	n := 0
	for _, g := range m.GPUs {
		n += g.Count
	}
	return n
}

func (s *Config) nodeParameters() map[string]string {
	n := s.Nodes
	if n == nil {
		n = &nodeSettings{TimeoutSeconds: 60, ReturnToService: 2}
	}
	return map[string]string{"SlurmdTimeout": fmt.Sprint(n.TimeoutSeconds), "ReturnToService": fmt.Sprint(n.ReturnToService)}
}

func (p *priority) parameters() map[string]string {
	if p == nil {
		return nil
	}
	values := map[string]string{"PriorityType": "priority/" + p.Type}
	if p.Type == priorityBasic {
		return values
	}
	for name, weight := range map[string]int{
		"Age": p.Weights.Age, "Fairshare": p.Weights.Fairshare, "JobSize": p.Weights.JobSize, "Partition": p.Weights.Partition,
		"QOS": p.Weights.QOS,
	} {
		values["PriorityWeight"+name] = fmt.Sprint(weight)
	}
	values["PriorityDecayHalfLife"], values["PriorityMaxAge"] = hours(p.DecayHalfLifeHours), hours(p.MaxAgeHours)
	return values
}

func hours(n int) string {
	if n == 0 {
		return "0"
	}
	return fmt.Sprintf("%d:00:00", n)
}

func (p *preemption) parameters() map[string]string {
	switch {
	case p == nil:
		return nil
	case p.By == preemptNone:
		return map[string]string{"PreemptType": "preempt/none", "PreemptMode": "OFF"}
	}
	kind := map[string]string{preemptPartition: "preempt/partition_prio", preemptQOS: "preempt/qos"}[p.By]
	values := map[string]string{"PreemptType": kind, "PreemptMode": strings.ToUpper(p.Mode)}
	if p.ExemptMinutes > 0 {
		values["PreemptExemptTime"] = fmt.Sprintf("%02d:%02d:00", p.ExemptMinutes/60, p.ExemptMinutes%60)
	}
	return values
}

// otherParameters returns PrivateData, TopologyPlugin and the options.
func (s *Config) otherParameters(workers int) map[string]string {
	values := map[string]string{"PrivateData": strings.Join(s.PrivateData, ",")}
	if len(s.Topology.Switches) > 0 && workers > 0 {
		values["TopologyPlugin"] = "topology/tree"
	}
	for name, value := range s.Options {
		values[name] = string(value)
	}
	return values
}

// partition returns the keys and values of the line of a partition. One that is INACTIVE
// starts no job and accepts none.
func (s *Config) partition(p Partition, state string, workers []plan.Member) []string {
	words := []string{"PartitionName", p.Name}
	add := func(key, value string) {
		if value != "" {
			words = append(words, key, value)
		}
	}
	if p.Nodes == nil {
		add("Nodes", "ALL")
	} else { // a partition without a node has no key Nodes
		workers = slices.DeleteFunc(slices.Clone(workers), func(m plan.Member) bool { return !p.Nodes.selects(m) })
		add("Nodes", strings.Join(nodesOf(workers), ","))
	}
	add("State", state)
	if minutes := s.defaultTime(p); minutes > 0 {
		add("DefaultTime", fmt.Sprint(minutes))
	}
	if minutes := s.maxTime(p); minutes > 0 {
		add("MaxTime", fmt.Sprint(minutes))
	} else {
		add("MaxTime", "UNLIMITED")
	}
	if p.Default {
		add("Default", "YES")
	}
	if p.PriorityTier != nil {
		add("PriorityTier", fmt.Sprint(*p.PriorityTier))
	}
	add("AllowAccounts", strings.Join(p.AllowAccounts, ","))
	add("AllowQos", strings.Join(p.AllowQOS, ","))
	add("QOS", p.QOS)
	add("PreemptMode", strings.ToUpper(p.PreemptMode))
	if b := s.billingOf(p); b != nil {
		add("TRESBillingWeights", fmt.Sprintf("CPU=%d,Mem=%dG,GRES/gpu=%d", b.CPU, b.MemoryGiB, b.GPU))
	}
	if p.Nodes != nil && len(workers) > 0 {
		values := s.jobDefaults(workers)
		for _, key := range []string{"DefMemPerCPU", "DefMemPerGPU", "DefCpuPerGPU"} {
			add(key, values[key])
		}
	}
	return words
}

// selects reports whether a worker meets each list of the selection.
func (n *nodeSel) selects(m plan.Member) bool {
	has := func(list []string, one string) bool { return len(list) == 0 || slices.Contains(list, one) }
	hasGPU := len(n.GPUTypes) == 0
	for _, g := range m.GPUs {
		hasGPU = hasGPU || slices.Contains(n.GPUTypes, g.Type)
	}
	return has(n.Roles, m.Role) && has(n.Names, m.Node) && hasGPU
}

func nodesOf(workers []plan.Member) []string {
	var names []string
	for _, m := range workers {
		names = append(names, m.Node)
	}
	return names
}

// The switches that Berth adds, so that each worker reaches each other one.
const (
	rootSwitch     = "root"     // above all switches without a parent
	unlistedSwitch = "unlisted" // for workers that no switch lists
)

// switchTree has the nodes or switches below each switch that leads to a node.
type switchTree map[string][]string

// addNodes adds the workers of the switches and returns those that no switch lists.
func (t switchTree) addNodes(switches []networkSwitch, workers []string) (rest []string) {
	for _, sw := range switches {
		for _, node := range sw.Nodes {
			if i := slices.Index(workers, node); i >= 0 {
				t[sw.Name] = append(t[sw.Name], node)
				workers = slices.Delete(slices.Clone(workers), i, i+1)
			}
		}
	}
	return workers
}

// addSwitches adds one level of switches that lead to a node.
func (t switchTree) addSwitches(switches []networkSwitch) {
	for _, sw := range switches {
		for _, child := range sw.Switches {
			if len(t[child]) > 0 && !slices.Contains(t[sw.Name], child) {
				t[sw.Name] = append(t[sw.Name], child)
			}
		}
	}
}

// top returns the switches without a parent, sorted.
func (t switchTree) top() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(t)) {
		isBelow := false
		for _, below := range t {
			isBelow = isBelow || slices.Contains(below, name)
		}
		if !isBelow {
			names = append(names, name)
		}
	}
	return names
}

// topologyConf returns topology.conf, or nil for a cluster without a topology. Nodes
// that are no workers, and switches without nodes, are left out: slurmctld refuses them.
func (c *Cluster) topologyConf() ([]byte, error) {
	workers := nodesOf(c.workers)
	if len(c.set.Topology.Switches) == 0 || len(workers) == 0 {
		return nil, nil
	}
	tree, switches := switchTree{}, slices.Clone(c.set.Topology.Switches)
	if rest := tree.addNodes(switches, workers); len(rest) > 0 {
		tree[unlistedSwitch] = rest
		switches = append(switches, networkSwitch{Name: unlistedSwitch, Nodes: rest})
	}
	for range switches {
		tree.addSwitches(switches)
	}
	if top := tree.top(); len(top) > 1 {
		tree[rootSwitch] = top
		switches = append(switches, networkSwitch{Name: rootSwitch, Switches: top})
	}
	l := &lines{}
	l.b.WriteString(header)
	for _, sw := range switches {
		key := "Nodes"
		if len(sw.Switches) > 0 {
			key = "Switches"
		}
		if below := tree[sw.Name]; len(below) > 0 {
			slices.Sort(below)
			l.set("SwitchName", sw.Name, key, strings.Join(below, ","))
		}
	}
	return l.bytes()
}

// values returns the ages at which slurmdbd removes records.
func (r retention) values() map[string]string {
	out := map[string]string{}
	if r.UsageMonths > 0 {
		out["PurgeUsageAfter"] = fmt.Sprintf("%dmonths", r.UsageMonths)
	}
	if r.RecordsMonths > 0 {
		for _, name := range []string{"Event", "Job", "Resv", "Step", "Suspend", "TXN"} {
			out["Purge"+name+"After"] = fmt.Sprintf("%dmonths", r.RecordsMonths)
		}
	}
	return out
}
