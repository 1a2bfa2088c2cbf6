package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/schema"
)

// termsImpact adds the effects of changed terms of attachments on jobs. A queued job that exceeds a limit
// waits with the name of the limit as its reason, and one in a partition that its project loses with
// PartitionConfig, until its owner changes it or the terms become wider. Running jobs go on.
func termsImpact(i plan.Impact, before, after *Cluster) plan.Impact {
	was, now := newSharing(before), newSharing(after)
	for _, a := range after.unit.Effective.Attachments {
		if old, ok := attachmentOf(before.unit, a.ProjectID); ok {
			i.Terms = append(i.Terms, changedTerms(was, now, old, a)...)
		}
	}
	i.Preempts = preemptions(was, now)
	return i
}

// sizeTermsOf is sizeTerms for units, of which one may be nil or not valid.
func sizeTermsOf(before, after *plan.Unit) []plan.JobTerms {
	if before == nil || after == nil {
		return nil
	}
	old, err := clusterOf(before)
	if err != nil {
		return nil
	}
	now, err := clusterOf(after)
	if err != nil {
		return nil
	}
	return sizeTerms(old, now)
}

// sizeTerms returns the sizes of partitions that stay, if a whole change makes one of them smaller or larger: each action
// that does so has the same ones.
func sizeTerms(before, after *Cluster) []plan.JobTerms {
	was, now := before.partitionSizes(), after.partitionSizes()
	// a JobRule covers removed partitions
	maps.DeleteFunc(was, func(name string, _ plan.PartitionSize) bool { _, is := now[name]; return !is })
	maps.DeleteFunc(now, func(name string, _ plan.PartitionSize) bool { _, is := was[name]; return !is })
	if reflect.DeepEqual(was, now) {
		return nil
	}
	return []plan.JobTerms{{Before: plan.JobLimits{Sizes: was}, After: plan.JobLimits{Sizes: now}}}
}

// partitionSizes returns the resources of the workers of each partition.
func (c *Cluster) partitionSizes() map[string]plan.PartitionSize {
	sizes := map[string]plan.PartitionSize{}
	for _, p := range c.set.Partitions {
		size := plan.PartitionSize{}
		for _, m := range c.unit.Members {
			if m.ControlPlane || p.Nodes != nil && !p.Nodes.selects(m) {
				continue
			}
			has := nodeResources(m)
			if i := slices.IndexFunc(size, func(s plan.SameNodes) bool { return reflect.DeepEqual(s.Has, has) }); i >= 0 {
				size[i].Count++
			} else {
				size = append(size, plan.SameNodes{Count: 1, Has: has})
			}
		}
		slices.SortFunc(size, func(a, b plan.SameNodes) int { return strings.Compare(fmt.Sprint(a.Has), fmt.Sprint(b.Has)) })
		sizes[p.Name] = size
	}
	return sizes
}

// nodeResources returns the resources for jobs on the node of a member.
func nodeResources(m plan.Member) plan.NodeResources {
	shape := plan.NodeResources{CPUs: m.CPUs, MemoryMiB: m.MemoryMiB, Features: strings.Split(memberFeatures(m), ",")}
	for _, g := range m.GPUs {
		if shape.GPUs == nil {
			shape.GPUs = map[string]int{}
		}
		shape.GPUs[g.Type] += g.Count
	}
	return shape
}

// sharing is a unit with what its partitions take.
type sharing struct {
	unit       *plan.Unit
	set        Config
	partitions []Partition // as Admitted returns them
}

func newSharing(c *Cluster) *sharing { return &sharing{c.unit, c.set, c.Admitted()} }

func attachmentOf(u *plan.Unit, project string) (schema.EffectiveAttachment, bool) {
	i := slices.IndexFunc(u.Effective.Attachments, func(a schema.EffectiveAttachment) bool { return a.ProjectID == project })
	if i < 0 {
		return schema.EffectiveAttachment{}, false
	}
	return u.Effective.Attachments[i], true
}

// changedTerms returns the limits of a project if they change: those of its account and of the QoS
// of its guaranteed share, which are both in force for a job within that share.
func changedTerms(was, now *sharing, old, a schema.EffectiveAttachment) []plan.JobTerms {
	// A new partition has no jobs, and terms do not decide about the jobs in a removed one.
	stays := func(partition string) bool {
		return slices.Contains(PartitionNames(was.partitions), partition) && slices.Contains(PartitionNames(now.partitions), partition)
	}
	all := []plan.JobTerms{{Account: a.ProjectID, Before: was.limits(old, stays), After: now.limits(a, stays)}}
	if hasGuarantee(old) && hasGuarantee(a) {
		all = append(all, plan.JobTerms{QoS: a.ProjectID + GuaranteedSuffix, Before: guaranteedLimits(old), After: guaranteedLimits(a)})
	}
	if !slices.ContainsFunc(all, func(t plan.JobTerms) bool { return !reflect.DeepEqual(t.Before, t.After) }) {
		return nil
	}
	return all
}

// limits returns the limits of the account of a project, as limitSettings has them, in partitions
// that stay.
func (s *sharing) limits(a schema.EffectiveAttachment, stays func(partition string) bool) plan.JobLimits {
	l := plan.JobLimits{PerJob: map[string]int{}, Together: map[string]int{}}
	put := func(into map[string]int, resource string, limits ...int) {
		for _, n := range limits {
			if most, limited := into[resource]; n > 0 && (!limited || n < most) {
				into[resource] = n
			}
		}
	}
	put(l.PerJob, plan.ResourceGPUs, a.MaxGPUs, a.MaxGPUsPerJob)
	put(l.PerJob, plan.ResourceCPUs, a.MaxCPUs, a.MaxCPUsPerJob)
	put(l.PerJob, plan.ResourceMinutes, a.MaxWalltimeMinutes)
	put(l.Together, plan.ResourceGPUs, a.MaxGPUs)
	put(l.Together, plan.ResourceCPUs, a.MaxCPUs)
	put(l.Together, plan.ResourceJobs, a.MaxRunningJobs)
	for _, p := range s.partitions {
		if stays(p.Name) && !slices.Contains(p.AllowAccounts, a.ProjectID) {
			l.Without = append(l.Without, p.Name)
		}
	}
	slices.Sort(l.Without)
	return l
}

// guaranteedLimits returns the limits of the jobs within a guaranteed share. What is not guaranteed
// is 0.
func guaranteedLimits(a schema.EffectiveAttachment) plan.JobLimits {
	amount := map[string]int{plan.ResourceGPUs: a.Guaranteed.GPUs, plan.ResourceCPUs: a.Guaranteed.CPUs}
	return plan.JobLimits{PerJob: amount, Together: amount}
}

// preemptions returns whose running jobs may end for guaranteed shares that become greater, or in
// another way than before.
func preemptions(was, now *sharing) []plan.JobPreemption {
	if now.set.preemptsByPartition() {
		return nil
	}
	var guaranteed, greater []string
	for _, a := range now.unit.Effective.Attachments {
		if !hasGuarantee(a) {
			continue
		}
		guaranteed = append(guaranteed, a.ProjectID)
		old, _ := attachmentOf(was.unit, a.ProjectID)
		if was.set.preemptsByPartition() || a.Guaranteed.GPUs > old.Guaranteed.GPUs || a.Guaranteed.CPUs > old.Guaranteed.CPUs {
			greater = append(greater, a.ProjectID)
		}
	}
	var all []plan.JobPreemption
	add := func(qos string, how schema.Preemption, changed bool) {
		of := greater
		if changed {
			of = guaranteed
		}
		if len(of) == 0 {
			return
		}
		same := func(p plan.JobPreemption) bool {
			return p.Mode == how.Mode && p.GraceSeconds == how.GraceSeconds && slices.Equal(p.For, of)
		}
		if i := slices.IndexFunc(all, same); i >= 0 {
			all[i].QoS = append(all[i].QoS, qos)
			return
		}
		all = append(all, plan.JobPreemption{QoS: []string{qos}, Mode: how.Mode, GraceSeconds: how.GraceSeconds, For: of})
	}
	for _, a := range now.unit.Effective.Attachments {
		if old, ok := attachmentOf(was.unit, a.ProjectID); ok {
			add(a.ProjectID, preemptionOf(a), preemptionOf(a) != preemptionOf(old))
		}
	}
	for _, q := range now.set.QoS {
		mode, old := now.preemptMode(), was.preemptMode()
		add(q.Name, schema.Preemption{Mode: mode}, mode != old)
	}
	return all
}

// preemptionOf returns how jobs of a project beyond its guaranteed share end for others.
func preemptionOf(a schema.EffectiveAttachment) schema.Preemption {
	p := schema.Preemption{}
	if a.Preemption != nil {
		p = *a.Preemption
	}
	p.Mode = cmp.Or(p.Mode, schema.PreemptRequeue)
	return p
}

// preemptMode returns how jobs of a QoS end that has no mode of its own.
func (s *sharing) preemptMode() string {
	if p := s.set.Preemption; p != nil && p.By == preemptQOS {
		return p.Mode
	}
	return schema.PreemptRequeue
}
