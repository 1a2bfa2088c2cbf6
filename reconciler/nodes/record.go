package nodes

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/reconciler/plan"
	"berth/schema"
)

// Record is what the status of a node on berth/status says beside its phase and its conditions.
type Record struct {
	Transitions int       `json:"attempt"` // number of transitions so far; it distinguishes their events
	Previous    State     `json:"previous_status,omitempty"`
	Region      string    `json:"region,omitempty"` // declared
	Since       time.Time `json:"since,omitzero"`
	Answered    time.Time `json:"answered_at,omitzero"` // at the time of writing
	Silence     int64     `json:"silence_seconds,omitempty"`
	Found       *Found    `json:"found,omitempty"` // nil: the host never answered
	Host        *Host     `json:"host,omitempty"`
	Measured    *Measured `json:"measured,omitempty"` // at Answered
}

// Measured is what differs from one answer of a host to the next. It places nothing.
type Measured struct {
	Load         *float64 `json:"load,omitempty"`                 // average of one minute; nil: unknown
	AvailableMiB int      `json:"memory_available_mib,omitempty"` // for new programs without swapping
	Disks        []Disk   `json:"disks,omitempty"`
	// ClockOffset is by how many milliseconds the host's clock is ahead of the daemon's; half of the time that the answer took is
	// the error at most.
	ClockOffset int64 `json:"clock_offset_ms"`
}

// Disk is the file system that a path of a host is on.
type Disk struct {
	Path    string `json:"path"`
	SizeGiB int64  `json:"size_gib"`
	FreeGiB int64  `json:"free_gib"` // for users without privileges
}

// Found is the capacity that the host of a node has. A zero value is unknown.
type Found struct {
	CPUs      int      `json:"cpus,omitempty"`
	MemoryMiB int      `json:"memory_mib,omitempty"`
	DiskGiB   int      `json:"disk_gib,omitempty"` // of the largest measured file system
	GPUs      *int     `json:"gpus,omitempty"`     // nil: unknown
	GPUModels []string `json:"gpu_models,omitempty"`
	Missing   []string `json:"missing_devices,omitempty"` // declared device files that the host lacks
}

// Host identifies the software of the host of a node.
type Host struct {
	Kernel   string `json:"kernel,omitempty"`
	BootID   string `json:"boot_id,omitempty"`
	Helper   string `json:"helper_version,omitempty"`
	Protocol int    `json:"helper_protocol,omitempty"`
}

// ReadRecord returns the record of a status of a node. A field of another type is left out: the branch is not trusted to be well
// formed.
func ReadRecord(s *plan.ThingStatus) (r Record) {
	if s != nil {
		_ = json.Unmarshal(s.Detail, &r)
	}
	return r
}

// StateOf returns the state that the phase of a status names; Unknown if it names none.
func StateOf(phase string) State {
	if s := State(phase); slices.Contains(States(), s) {
		return s
	}
	return Unknown
}

// Restore returns the state of a node that its status on berth/status and the decoded record in it describe; the zero value for nil.
// No observation counts as made: the time in which no daemon ran is no silence.
func Restore(s *plan.ThingStatus, r Record) Status {
	if s == nil || !slices.Contains(States(), State(s.Phase)) {
		return Status{}
	}
	out := Status{State: State(s.Phase), Since: r.Since, Answered: r.Answered, Silence: time.Duration(max(r.Silence, 0)) * time.Second,
		Transitions: r.Transitions}
	if c := s.Condition(plan.ConditionReady); c != nil {
		out.Reason = c.Reason
	}
	return out
}

// Missing lists what the host of a node has less than its document declares, with numbers.
func Missing(declared schema.Capacity, found Found) (out []string) {
	less := func(have, want int, unit string) {
		if have > 0 && have < want {
			out = append(out, fmt.Sprintf("%d of %d %s", have, want, unit))
		}
	}
	less(found.CPUs, declared.CPUs, "CPUs")
	less(found.MemoryMiB, declared.MemoryMiB, "MiB of memory")
	less(found.DiskGiB, declared.DiskGiB, "GiB of disk")
	gpus := 0
	for _, g := range declared.GPUs {
		gpus += g.Count
	}
	switch {
	case len(found.Missing) > 0:
		out = append(out, "no device file "+strings.Join(found.Missing, ", "))
	case found.GPUs != nil:
		less(*found.GPUs, gpus, "GPUs")
	}
	return out
}

// clockLimit is the difference between two clocks that is a condition. It is far above what an answer takes, and below what schedulers
// accept between their hosts.
const clockLimit = time.Minute

// ClockCondition compares the clock of the host of a node with the daemon's. was is the condition before; nil: none. A condition that
// holds ends at half of the limit, so that it does not alternate near it.
func ClockCondition(was *plan.Condition, m Measured) plan.Condition {
	offset, limit := time.Duration(m.ClockOffset)*time.Millisecond, clockLimit
	if was.Is(plan.ConditionTrue) {
		limit /= 2
	}
	if offset.Abs() < limit {
		return plan.Condition{Type: plan.ConditionClockDiffers, Status: plan.ConditionFalse, Reason: plan.ReasonClockAgrees}
	}
	side := "ahead of"
	if offset < 0 {
		side = "behind"
	}
	return plan.Condition{Type: plan.ConditionClockDiffers, Status: plan.ConditionTrue, Reason: plan.ReasonClockOff,
		Message: fmt.Sprintf("the clock of the host is %s %s the daemon's; synchronize both, as hosts of a scheduler refuse each other "+
			"when their clocks differ by minutes", offset.Abs().Round(time.Second), side)}
}

// CapacityCondition compares the declared capacity of a node with the found one.
func CapacityCondition(declared schema.Capacity, found Found) plan.Condition {
	missing := Missing(declared, found)
	if len(missing) == 0 {
		return plan.Condition{Type: plan.ConditionCapacityDiffers, Status: plan.ConditionFalse, Reason: plan.ReasonCapacityAsDeclared}
	}
	return plan.Condition{Type: plan.ConditionCapacityDiffers, Status: plan.ConditionTrue, Reason: plan.ReasonCapacityMissing,
		Message: "the host has " + strings.Join(missing, ", ") + "; correct spec.capacity or the host"}
}
