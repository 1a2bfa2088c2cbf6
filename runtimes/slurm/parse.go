package slurm

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"berth/runtimes"
)

// node is a node as the controller sees it.
type node struct {
	Name   string   `json:"name"`
	State  string   `json:"state"`       // base state: idle, mixed, allocated, down, unknown, inval…
	Flags  []string `json:"state_flags"` // DRAIN, NOT_RESPONDING, COMPLETING…
	Reason string   `json:"reason"`
	Gres   string   `json:"gres"`
	CPUs   int      `json:"cpus"`
	Memory int      `json:"real_memory"`
}

// parseNodes reads `sinfo --json` with the version of Slurm.
func parseNodes(raw []byte) (nodes []node, version string, err error) {
	var doc struct {
		Meta struct {
			Slurm struct {
				Release string `json:"release"`
			} `json:"Slurm"`
		} `json:"meta"`
		Errors []json.RawMessage `json:"errors"`
		Nodes  []node            `json:"nodes"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, "", fmt.Errorf("sinfo --json: %w", err)
	}
	if len(doc.Errors) > 0 {
		return nil, "", fmt.Errorf("sinfo --json: %s", doc.Errors[0])
	}
	return doc.Nodes, doc.Meta.Slurm.Release, nil
}

func (n *node) flag(f string) bool { return slices.Contains(n.Flags, f) }

// registered reports whether the node's slurmd is registered and responds.
func (n *node) registered() bool {
	return !n.flag("NOT_RESPONDING") && !n.flag("INVALID_REG") && slices.Contains([]string{"idle", "mixed", "allocated"}, n.State)
}

// queued is a job in the queue, without fields that users write.
type queued struct {
	ID    string
	State string // compact: PD, R, CG, S…
	UID   int
	// Partitions are those of the submission while the job is pending, and otherwise
	// the one where it runs.
	Partitions []string
}

func (q queued) pending() bool { return q.State == "PD" }

// parseQueue reads the output of squeue with profile.QueueFormat.
func parseQueue(raw []byte) ([]queued, error) {
	var jobs []queued
	for line := range strings.Lines(string(raw)) {
		words := strings.Fields(line)
		if len(words) != 4 {
			return nil, fmt.Errorf("squeue: want id, state, user and partitions, got %q", strings.TrimSpace(line))
		}
		uid, err := strconv.Atoi(words[2])
		if err != nil {
			return nil, fmt.Errorf("squeue: %q is not a user id", words[2])
		}
		jobs = append(jobs, queued{ID: words[0], State: words[1], UID: uid, Partitions: strings.Split(words[3], ",")})
	}
	return jobs, nil
}

// jobIDs returns the ids of jobs without duplicates: the tasks of an array share one.
func jobIDs(jobs []queued) []string {
	var ids []string
	for _, j := range jobs {
		if !slices.Contains(ids, j.ID) {
			ids = append(ids, j.ID)
		}
	}
	return ids
}

// hashMatches reports whether `scontrol show config` says that the running
// configuration is that of the file.
func hashMatches(res runtimes.Result) bool {
	if res.Exit != 0 {
		return false
	}
	for line := range strings.Lines(string(res.Data)) {
		name, value, ok := strings.Cut(line, "=")
		if ok && strings.TrimSpace(name) == "HASH_VAL" {
			return strings.HasPrefix(strings.TrimSpace(value), "Match")
		}
	}
	return false
}

// parsePartitions reads the names in `scontrol show partitions`.
func parsePartitions(raw []byte) []string {
	var names []string
	for line := range strings.Lines(string(raw)) {
		if name, ok := strings.CutPrefix(line, "PartitionName="); ok {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names
}

// parseAssociated reads the sorted names of the cluster's users from `scontrol show
// assoc_mgr`.
func parseAssociated(raw []byte) []string {
	var names []string
	for line := range strings.Lines(string(raw)) {
		_, user, ok := strings.Cut(line, " Account="+account+" UserName=")
		name, _, isUser := strings.Cut(user, "(")
		if ok && isUser {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// pingUp reads `scontrol ping`.
func pingUp(raw []byte) bool {
	return strings.Contains(string(raw), "is UP")
}
