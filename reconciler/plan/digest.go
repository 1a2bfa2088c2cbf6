package plan

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
)

// Structural is what of an observation a plan rests on and a status remembers:
// presence, what was applied, the members' states and what drifted. Reasons,
// details, jobs and the runtime's own facts are left out, members and drift
// are sorted.
func Structural(o Observed) Observed {
	s := Observed{Key: o.Key, Presence: o.Presence, Complete: o.Complete && o.Presence == Present, Unit: o.Unit}
	for _, m := range o.Members {
		s.Members = append(s.Members, MemberState{Name: m.Name, Node: m.Node, State: m.State})
	}
	slices.SortFunc(s.Members, func(a, b MemberState) int {
		return cmp.Or(compareNames(a.Name, b.Name), cmp.Compare(a.Node, b.Node))
	})
	for _, d := range o.Drift {
		s.Drift = append(s.Drift, Drift{Member: d.Member, What: d.What})
	}
	slices.SortFunc(s.Drift, func(a, b Drift) int {
		return cmp.Or(compareNames(a.Member, b.Member), cmp.Compare(a.What, b.What))
	})
	s.Drift = slices.Compact(s.Drift)
	return s
}

// digest is the sha256, in hex, of v's canonical JSON: keys sorted, nulls and
// empty lists and objects left out, so that a round trip through a status file
// changes nothing.
func digest(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(prune(decode(v))); err != nil {
		panic(fmt.Sprintf("plan: encode %T: %v", v, err)) // it has just been decoded
	}
	sum := sha256.Sum256(b.Bytes())
	return hex.EncodeToString(sum[:])
}

func prune(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if e = prune(e); e == nil {
				delete(v, k)
			} else {
				v[k] = e
			}
		}
		if len(v) == 0 {
			return nil
		}
	case []any:
		if len(v) == 0 {
			return nil
		}
		for i, e := range v {
			v[i] = prune(e) // a null keeps its place
		}
	}
	return v
}

// seal computes the plan's digests. What people read (reasons, placements,
// messages) is no part of them, nor is anything that differs between two looks
// at the same state.
func (p *Plan) seal(o Observed) {
	structural := Structural(o)
	structural.Key = p.Key // whether the runtime said it or not
	p.Observed = digest(structural)
	actions := slices.Clone(p.Actions)
	for i := range actions {
		actions[i].Reason = ""
	}
	p.Digest = digest(struct {
		Format   string   `json:"format"`
		Key      any      `json:"key"`
		After    *Unit    `json:"after"`
		Observed Observed `json:"observed"`
		Actions  []Action `json:"actions"`
	}{p.Format, p.Key, p.After, structural, actions})
}

// actionID names an action by what it does.
func actionID(a Action, content any) string {
	return digest(struct {
		Key     any      `json:"key"`
		Verb    Verb     `json:"verb"`
		Member  string   `json:"member"`
		Node    string   `json:"node"`
		Changes []Change `json:"changes"`
		Content any      `json:"content"`
	}{a.Key, a.Verb, a.Member, a.Node, a.Changes, content})[:12]
}
