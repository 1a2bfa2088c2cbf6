package slurm

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

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
}

func (q queued) pending() bool { return q.State == "PD" }

// parseQueue reads the output of squeue with profile.QueueFormat.
func parseQueue(raw []byte) ([]queued, error) {
	var jobs []queued
	for line := range strings.Lines(string(raw)) {
		words := strings.Fields(line)
		if len(words) != 3 {
			return nil, fmt.Errorf("squeue: want id, state and user, got %q", strings.TrimSpace(line))
		}
		uid, err := strconv.Atoi(words[2])
		if err != nil {
			return nil, fmt.Errorf("squeue: %q is not a user id", words[2])
		}
		jobs = append(jobs, queued{ID: words[0], State: words[1], UID: uid})
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

// job has the fields that are read from both squeue and `sacct --json`.
type job struct {
	ID      int
	State   string
	Reason  string
	Nodes   string
	Comment string
	Submit  time.Time
}

// parseQueueJob finds a job in the output of squeue with profile.JobFormat. The tasks
// of an array have a line each; the first one counts.
func parseQueueJob(raw []byte, id string) (job, bool, error) {
	for line := range strings.Lines(string(raw)) {
		words := strings.Split(strings.TrimSuffix(line, "\n"), "|")
		if len(words) != 5 {
			return job{}, false, fmt.Errorf("squeue: want id, state, time, nodes and reason, got %q", strings.TrimSpace(line))
		}
		if words[0] != id {
			continue
		}
		number, err := strconv.Atoi(id)
		if err != nil {
			return job{}, false, fmt.Errorf("squeue: job %q is not a number", id)
		}
		at, err := strconv.ParseInt(words[2], 10, 64)
		if err != nil {
			return job{}, false, fmt.Errorf("squeue: %q is not a time", words[2])
		}
		return job{ID: number, State: words[1], Submit: time.Unix(at, 0).UTC(), Nodes: words[3], Reason: words[4]}, true, nil
	}
	return job{}, false, nil
}

// parseAccountedJob finds the latest job of an id in `sacct --json`. Slurm may reuse
// ids.
func parseAccountedJob(raw []byte, id string) (job, bool, error) {
	var doc struct {
		Jobs []struct {
			JobID int    `json:"job_id"`
			Nodes string `json:"nodes"`
			State struct {
				Current string `json:"current"`
				Reason  string `json:"reason"`
			} `json:"state"`
			Comment struct {
				Job string `json:"job"`
			} `json:"comment"`
			Time struct {
				Submission int64 `json:"submission"`
			} `json:"time"`
		} `json:"jobs"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		return job{}, false, fmt.Errorf("sacct --json: %w", err)
	}
	var best job
	found := false
	for _, j := range doc.Jobs {
		at := time.Unix(j.Time.Submission, 0).UTC()
		if strconv.Itoa(j.JobID) == id && (!found || at.After(best.Submit)) {
			best, found = job{j.JobID, j.State.Current, j.State.Reason, j.Nodes, j.Comment.Job, at}, true
		}
	}
	return best, found, nil
}
