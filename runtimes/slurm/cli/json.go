package cli

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// list decodes the elements of an answer's list. It refuses an answer with errors,
// without the key, and elements without one of the fields of raw, which are pointers.
func list[Raw, T any](key string, convert func(*Raw) (T, error)) func([]byte) ([]T, error) {
	return func(out []byte) ([]T, error) {
		var doc map[string]json.RawMessage
		if err := json.Unmarshal(out, &doc); err != nil {
			return nil, fmt.Errorf("the answer is not JSON: %w", err)
		}
		var problems []json.RawMessage
		var raw []*Raw
		for name, to := range map[string]any{"errors": &problems, key: &raw} {
			if field := doc[name]; len(field) == 0 || field[0] != '[' {
				return nil, fmt.Errorf("the answer has no list %q", name)
			} else if err := json.Unmarshal(field, to); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		if len(problems) > 0 {
			return nil, fmt.Errorf("the answer has the error %s", problems[0])
		}
		all := make([]T, 0, len(raw))
		for i, r := range raw {
			if r == nil {
				return nil, fmt.Errorf("%s[%d] is null", key, i)
			}
			if field := absent(reflect.ValueOf(r).Elem()); field != "" {
				return nil, fmt.Errorf("%s[%d] has no %s", key, i, field)
			}
			v, err := convert(r)
			if err != nil {
				return nil, fmt.Errorf("%s[%d]: %w", key, i, err)
			}
			all = append(all, v)
		}
		return all, nil
	}
}

// absent returns the name of a field that is missing or null, or "".
func absent(v reflect.Value) string {
	for i := range v.NumField() {
		name, optional, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		switch f := v.Field(i); {
		case v.Type().Field(i).Anonymous:
			if inner := absent(f); inner != "" {
				return inner
			}
		case f.Kind() != reflect.Pointer || optional != "":
		case f.IsNil():
			return name
		case f.Elem().Kind() == reflect.Struct:
			if inner := absent(f.Elem()); inner != "" {
				return name + "." + inner
			}
		}
	}
	return ""
}

// number is how the JSON of 24.11 and 26.05 writes a number that may be unset.
type number struct {
	Set      *bool  `json:"set"`
	Infinite *bool  `json:"infinite"`
	Number   *int64 `json:"number"`
}

// node2205 and node2411 are nodes as the tools print them.
// nodeFields are the fields of a node that all versions write alike.
type nodeFields struct {
	Name       *string   `json:"name"`
	Reason     *string   `json:"reason"`
	ReasonBy   string    `json:"reason_set_by_user"`
	Comment    string    `json:"comment"`
	Gres       *string   `json:"gres"`
	Partitions *[]string `json:"partitions"`
	Weight     *int      `json:"weight"`
	CPUs       *int      `json:"cpus"`
	AllocCPUs  *int      `json:"alloc_cpus"`
	Memory     *int      `json:"real_memory"`
	Address    string    `json:"address"`
}

func (n *nodeFields) node() Node {
	return Node{
		Name: *n.Name, NodeReason: NodeReason{Reason: *n.Reason, ReasonBy: n.ReasonBy}, Comment: n.Comment, Gres: *n.Gres,
		Partitions: *n.Partitions, Weight: *n.Weight, CPUs: *n.CPUs, AllocCPUs: *n.AllocCPUs, Memory: *n.Memory, Address: n.Address,
	}
}

type node2205 struct {
	nodeFields
	State    *string   `json:"state"`
	Flags    *[]string `json:"state_flags"`
	ReasonAt int64     `json:"reason_changed_at"`
	Features *string   `json:"features"`
	Version  string    `json:"slurmd_version"` // null before slurmd registers
	Booted   *int64    `json:"boot_time"`
}

type node2411 struct {
	nodeFields
	State    *[]string `json:"state"`
	ReasonAt number    `json:"reason_changed_at"`
	Features *[]string `json:"features"`
	Version  *string   `json:"version"`
	Booted   *number   `json:"boot_time"`
}

// baseStates are the states of which a node has exactly one.
var baseStates = []string{"UNKNOWN", "DOWN", "IDLE", "ALLOCATED", "ERROR", "MIXED", "FUTURE", "INVALID"}

var decodeNodes2205 = list("nodes", func(n *node2205) (Node, error) {
	state := strings.ToUpper(*n.State)
	if !slices.Contains(baseStates, state) {
		return Node{}, fmt.Errorf("unknown state %q", *n.State)
	}
	node := n.node()
	node.State, node.Flags, node.ReasonAt = strings.ToLower(state), *n.Flags, n.ReasonAt
	node.Features, node.Version, node.Booted = splitList(*n.Features), n.Version, *n.Booted
	return node, nil
})

var decodeNodes2411 = list("nodes", func(n *node2411) (Node, error) {
	node := n.node()
	node.Features, node.Version = *n.Features, *n.Version
	if at := n.ReasonAt.Number; at != nil {
		node.ReasonAt = *at
	}
	if *n.Booted.Set {
		node.Booted = *n.Booted.Number
	}
	for _, word := range *n.State {
		switch {
		case !slices.Contains(baseStates, word):
			node.Flags = append(node.Flags, word)
		case node.State != "":
			return node, fmt.Errorf("two states in %v", *n.State)
		default:
			node.State = strings.ToLower(word)
		}
	}
	if node.State == "" {
		return node, fmt.Errorf("no known state in %v", *n.State)
	}
	return node, nil
})

func splitList(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

// first returns the base state of a job, which stands before its flags.
func first(words []string) (string, error) {
	if len(words) == 0 {
		return "", fmt.Errorf("the job has no state")
	}
	return words[0], nil
}

type accounted2205 struct {
	ID    *int    `json:"job_id"`
	Nodes *string `json:"nodes"`
	State *struct {
		Current *string `json:"current"`
		Reason  *string `json:"reason"`
	} `json:"state"`
	Comment *comment `json:"comment"`
	Time    *times   `json:"time"`
}

type accounted2411 struct {
	ID    *int    `json:"job_id"`
	Nodes *string `json:"nodes"`
	State *struct {
		Current *[]string `json:"current"`
		Reason  *string   `json:"reason"`
	} `json:"state"`
	Comment *comment `json:"comment"`
	Time    *times   `json:"time"`
}

type comment struct {
	Job string `json:"job"` // null on 22.05 if the job has none
}

type times struct {
	Submission *int64 `json:"submission"`
}

// emptyResult is the error with which sacct of 22.05 lists no job, with exit status 0
// (ESLURM_REST_EMPTY_RESULT).
const emptyResult = 9003

// decodeAccounting2205 also reads the answer for a job that slurmdbd does not have.
func decodeAccounting2205(out []byte) ([]Accounted, error) {
	var doc struct {
		Errors []struct {
			Number int `json:"error_number"`
		} `json:"errors"`
		Jobs []json.RawMessage `json:"jobs"`
	}
	if json.Unmarshal(out, &doc) == nil && doc.Jobs != nil && len(doc.Jobs) == 0 && len(doc.Errors) == 1 &&
		doc.Errors[0].Number == emptyResult {
		return nil, nil
	}
	return listAccounting2205(out)
}

var listAccounting2205 = list("jobs", func(j *accounted2205) (Accounted, error) {
	return Accounted{ID: *j.ID, State: *j.State.Current, Reason: *j.State.Reason, Nodes: *j.Nodes, Comment: j.Comment.Job,
		Submitted: *j.Time.Submission}, nil
})

var decodeAccounting2411 = list("jobs", func(j *accounted2411) (Accounted, error) {
	state, err := first(*j.State.Current)
	return Accounted{ID: *j.ID, State: state, Reason: *j.State.Reason, Nodes: *j.Nodes, Comment: j.Comment.Job,
		Submitted: *j.Time.Submission}, err
})
