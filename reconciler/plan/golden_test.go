package plan_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"berth/reconciler/plan"
	"berth/schema"
)

var update = flag.Bool("update", false, "rewrite the expected files of testdata")

// A case is a life: estates one after the other, each planned against what
// applying the one before left behind.
//
//	-- N.yaml --   an estate (type estate), and what happened to the units meanwhile
//	-- N.plan --   the plans expected, as people read them
//	-- N.json --   the same as JSON, where the case has that file
type estate struct {
	Nodes     map[string]schema.NodeSpec `json:"nodes"`
	Instances []instance                 `json:"instances"`
	Denied    []schema.Decision          `json:"denied"`
	// Meanwhile has the events of units since the last plan was applied.
	Meanwhile map[string]happening `json:"meanwhile"`
}

type instance struct {
	ID string `json:"id"` // tenant.project/name
	schema.EffectiveUnit
}

type happening struct {
	Unknown string                `json:"unknown"`
	Half    bool                  `json:"half"` // the creation is incomplete
	States  map[string]plan.State `json:"states"`
	Gone    []string              `json:"gone"` // members without remains
	Drift   []plan.Drift          `json:"drift"`
	Forgot  bool                  `json:"forgot"` // berth/status lost the unit, the runtime did not
}

func keyOf(id string) schema.Key {
	project, name, _ := strings.Cut(id, "/")
	tenant, project, _ := strings.Cut(project, ".")
	return schema.InstanceKey(tenant, project, name)
}

func (e *estate) effective() *schema.Effective {
	nodes := map[string]*schema.Node{}
	for name, spec := range e.Nodes {
		nodes[name] = &schema.Node{Header: schema.Header{Key: schema.Key{Kind: schema.KindNode, Name: name}}, Spec: spec}
	}
	var instances []*schema.EffectiveUnit
	for _, i := range e.Instances {
		inst := i.EffectiveUnit
		inst.Key = keyOf(i.ID)
		if inst.DesiredState == "" {
			inst.DesiredState = schema.DesiredRunning
		}
		if inst.Config == nil {
			inst.Config = json.RawMessage("{}")
		}
		instances = append(instances, &inst)
	}
	eff := effectiveOf(nodes, instances...)
	for _, d := range e.Denied {
		d.Key.Kind, d.Verdict = schema.KindInstance, schema.Deny
		decide(eff, d)
	}
	return eff
}

// effectiveOf returns an effective estate with these instances.
func effectiveOf(nodes map[string]*schema.Node, instances ...*schema.EffectiveUnit) *schema.Effective {
	eff := &schema.Effective{Tenants: map[string]*schema.EffectiveTenant{}, Nodes: nodes}
	for _, i := range instances {
		projectOf(eff, i.Key).Units[i.Key.Name] = i
	}
	return eff
}

// projectOf returns the project of a key and creates it if missing.
func projectOf(eff *schema.Effective, key schema.Key) *schema.EffectiveProject {
	t := eff.Tenants[key.Tenant]
	if t == nil {
		t = &schema.EffectiveTenant{Projects: map[string]*schema.EffectiveProject{}}
		eff.Tenants[key.Tenant] = t
	}
	if t.Projects[key.Project] == nil {
		t.Projects[key.Project] = &schema.EffectiveProject{Units: map[string]*schema.EffectiveUnit{}}
	}
	return t.Projects[key.Project]
}

// decide adds a decision.
func decide(eff *schema.Effective, d schema.Decision) {
	p := projectOf(eff, d.Key)
	p.Decisions = append(p.Decisions, d)
	slices.SortStableFunc(p.Decisions, func(a, b schema.Decision) int { return a.Key.Compare(b.Key) })
}

// world has the units of the runtimes and the records of berth/status.
type world struct {
	real map[schema.Key]plan.Observed
	mem  plan.Memory
}

// rules are those of the tests' backend.
type rules struct{}

func (rules) Impact(v plan.Verb, member string, before, after *plan.Unit) plan.Impact {
	switch {
	case v == plan.Leave:
		return plan.Impact{Drains: []string{member}}
	case v == plan.Delete:
		return plan.Impact{EndsJobs: true, Drains: []string{"all"}}
	case v == plan.Configure && before != nil && string(before.Effective.Config) != string(after.Effective.Config):
		return plan.Impact{Restarts: []string{"control plane"}}
	case v == plan.Configure:
		return plan.Impact{Reconfigure: true}
	}
	return plan.Impact{}
}

func (w *world) happen(m map[string]happening) {
	for id, h := range m {
		key := keyOf(id)
		o := w.real[key]
		o.Key = key
		if h.Unknown != "" {
			o = plan.Observed{Key: key, Presence: plan.Unknown, Reason: h.Unknown}
		}
		if h.Half {
			o.Complete = false
		}
		o.Drift = h.Drift
		o.Members = slices.DeleteFunc(slices.Clone(o.Members), func(s plan.MemberState) bool { return slices.Contains(h.Gone, s.Name) })
		for i, s := range o.Members {
			if state, ok := h.States[s.Name]; ok {
				o.Members[i].State, o.Members[i].Detail = state, "as the case says"
			}
		}
		w.real[key] = o
		if h.Forgot {
			w.mem = w.mem.Without(key)
		}
	}
}

func (w *world) observe(key schema.Key) plan.Observed {
	if o, ok := w.real[key]; ok {
		return o
	}
	return plan.Observed{Key: key, Presence: plan.Absent}
}

// plans makes the plan of every declared or recorded unit. Like the loop, it observes
// first and places with the observations.
func (w *world) plans(eff *schema.Effective) []plan.Plan {
	keys := map[schema.Key]bool{}
	for k := range eff.All() {
		keys[k] = true
	}
	for k := range w.real {
		keys[k] = true
		st := plan.Status{Key: k, Phase: plan.PhaseRunning}
		if known := w.mem.Get(k); known != nil {
			st = *known
		}
		if o := plan.Structural(w.real[k]); o.Presence != plan.Unknown {
			st.Observed = &o
		}
		w.mem = w.mem.With(&st)
	}
	placed := plan.Place(eff, w.mem)
	var out []plan.Plan
	for _, k := range slices.SortedFunc(maps.Keys(keys), schema.Key.Compare) {
		out = append(out, plan.Make(plan.Input{
			Key: k, After: eff.Unit(k), Members: placed.Members(k), Unplaced: placed.Unplaced(k),
			Denied: eff.Denied(k), Observed: w.observe(k), Rules: rules{},
		}))
	}
	return out
}

// apply does the work of a perfect runtime.
func (w *world) apply(p plan.Plan) {
	o := w.observe(p.Key)
	at := map[string]plan.MemberState{}
	for _, m := range o.Members {
		at[m.Name] = m
	}
	for _, a := range p.Actions {
		switch a.Verb {
		case plan.Create:
			o.Presence, o.Complete, o.Unit = plan.Present, true, p.After
			for _, m := range p.After.Members {
				if m.ControlPlane {
					at[m.Name] = plan.MemberState{Name: m.Name, Node: m.Node, State: plan.Running}
				}
			}
		case plan.Configure:
			o.Unit, o.Drift = p.After, nil
		case plan.Join, plan.Start:
			at[a.Member] = plan.MemberState{Name: a.Member, Node: a.Node, State: plan.Running}
		case plan.Leave:
			delete(at, a.Member)
		case plan.Stop:
			for n, m := range at {
				if m.State != plan.Unreachable {
					m.State = plan.Stopped
					at[n] = m
				}
			}
		case plan.Delete:
			delete(w.real, p.Key)
			w.mem = w.mem.Without(p.Key)
			return
		}
	}
	if o.Presence == plan.Absent {
		return
	}
	o.Members = slices.SortedFunc(maps.Values(at), func(a, b plan.MemberState) int { return strings.Compare(a.Name, b.Name) })
	w.real[p.Key] = o
	st := &plan.Status{Key: p.Key, Phase: plan.PhaseRunning}
	if o.Presence != plan.Unknown {
		s := plan.Structural(o)
		st.Observed = &s
	} else if w.mem.Get(p.Key) != nil {
		st.Observed = w.mem.Get(p.Key).Observed
	}
	if p.After != nil {
		for _, m := range p.After.Members {
			st.Members = append(st.Members, plan.MemberStatus{Member: m, State: at[m.Name].State, Placed: m.Reason})
		}
	}
	w.mem = w.mem.With(st)
}

// text formats the plans for the golden files.
func text(ps []plan.Plan) string {
	var b strings.Builder
	for _, p := range ps {
		fmt.Fprintf(&b, "%s\n", p.Key)
		if p.Empty() {
			b.WriteString("  nothing to do\n")
		}
		names := map[string]string{}
		for _, a := range p.Actions {
			names[a.ID] = strings.TrimSpace(string(a.Verb) + " " + a.Member)
			fmt.Fprintf(&b, "  %s", names[a.ID])
			if a.Node != "" {
				fmt.Fprintf(&b, " @ %s", a.Node)
			}
			fmt.Fprintf(&b, ": %s\n", a.Reason)
			for _, c := range a.Changes {
				fmt.Fprintf(&b, "    %s: %s → %s\n", c.Field, orDash(c.Before), orDash(c.After))
			}
			named := func(word string, ids []string) {
				var before []string
				for _, id := range ids {
					before = append(before, names[id])
				}
				slices.Sort(before)
				if len(before) > 0 {
					fmt.Fprintf(&b, "    %s %s\n", word, strings.Join(before, ", "))
				}
			}
			named("needs", a.Needs)
			named("after", a.After)
			if i := a.Impact; i.EndsJobs || i.Reconfigure || len(i.Restarts)+len(i.Drains) > 0 {
				raw, _ := json.Marshal(i)
				fmt.Fprintf(&b, "    impact %s\n", raw)
			}
		}
		for _, k := range p.Blocked {
			wait := ""
			if k.Wait {
				wait = " (waits)"
			}
			fmt.Fprintf(&b, "  blocked %s%s: %s\n", k.Code, wait, k.Message)
		}
		for _, n := range slices.Sorted(maps.Keys(p.Placed)) {
			fmt.Fprintf(&b, "  %s: %s\n", n, p.Placed[n])
		}
	}
	return b.String()
}

func orDash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			ar, err := txtar.ParseFile(file)
			require.NoError(t, err)
			w := &world{real: map[schema.Key]plan.Observed{}}
			got := &txtar.Archive{Comment: ar.Comment}
			want := map[string]string{}
			for _, f := range ar.Files {
				want[f.Name] = string(f.Data)
			}
			for _, f := range ar.Files {
				step, isEstate := strings.CutSuffix(f.Name, ".yaml")
				if !isEstate {
					continue
				}
				var e estate
				require.NoError(t, yaml.UnmarshalStrict(f.Data, &e), f.Name)
				eff := e.effective()
				w.happen(e.Meanwhile)
				ps := w.plans(eff)
				for _, p := range ps {
					checkPlan(t, p)
				}
				checkSameBytes(t, w, &e, ps)
				got.Files = append(got.Files, f, txtar.File{Name: step + ".plan", Data: []byte(text(ps))})
				if _, ok := want[step+".json"]; ok {
					raw, err := json.MarshalIndent(ps, "", "  ")
					require.NoError(t, err)
					got.Files = append(got.Files, txtar.File{Name: step + ".json", Data: append(raw, '\n')})
				}

				for _, p := range ps {
					w.apply(p)
				}
				for later := ps; slices.ContainsFunc(later, func(p plan.Plan) bool { return isBlocked(p, plan.CodeUnavailable) }); {
					later = w.plans(eff)
					for _, p := range later {
						checkPlan(t, p)
						w.apply(p)
					}
				}
				waits := map[schema.Key]bool{}
				for _, p := range ps {
					waits[p.Key] = slices.ContainsFunc(p.Blocked, func(b plan.Blocked) bool { return b.Code == plan.CodeNoNode && b.Wait })
				}
				for _, p := range w.plans(eff) {
					if waits[p.Key] {
						require.NotEmpty(t, p.Actions, "%s of step %s was to go on once a node came free", p.Key, step)
						continue
					}
					require.Empty(t, p.Actions, "%s of step %s, planned again after it was applied:\n%s", p.Key, step, text([]plan.Plan{p}))
				}
			}
			if *update {
				require.NoError(t, os.WriteFile(file, txtar.Format(got), 0o644))
				return
			}
			for _, f := range got.Files {
				if diff := cmp.Diff(want[f.Name], string(f.Data)); diff != "" {
					t.Errorf("%s (-want +got; -update rewrites):\n%s", f.Name, diff)
				}
			}
			require.Len(t, ar.Files, len(got.Files), "unexpected golden file")
		})
	}
}

func isBlocked(p plan.Plan, code plan.BlockedCode) bool {
	return slices.ContainsFunc(p.Blocked, func(b plan.Blocked) bool { return b.Code == code })
}

// checkPlan checks the invariants of every plan.
func checkPlan(t require.TestingT, p plan.Plan) {
	done := map[string]bool{}
	for _, a := range p.Actions {
		require.Equal(t, p.Key, a.Key)
		require.NotEmpty(t, a.Reason, "%s %s", a.Verb, a.Member)
		require.False(t, done[a.ID], "two actions of one id: %s %s", a.Verb, a.Member)
		for _, need := range slices.Concat(a.Needs, a.After) {
			require.True(t, done[need], "%s %s needs what does not stand before it", a.Verb, a.Member)
		}
		done[a.ID] = true
		if a.Verb == plan.Delete {
			require.NotNil(t, p.Before, "a deletion has Before")
			require.Nil(t, p.After)
		} else {
			require.NotNil(t, p.After)
		}
	}
	for _, b := range p.Blocked {
		require.NotEmpty(t, b.Code)
		require.NotEmpty(t, b.Message)
	}
	require.Len(t, p.Digest, 64)
	require.Len(t, p.Observed, 64)
}

// checkSameBytes makes the same plans again: from other maps, from memory after a round
// trip through a status file, and with every irrelevant value changed.
func checkSameBytes(t *testing.T, w *world, e *estate, want []plan.Plan) {
	for range 3 {
		other := &world{real: map[schema.Key]plan.Observed{}}
		for k, o := range w.real {
			o = roundTrip(t, o)
			o.Jobs = &plan.Jobs{Running: 17, Pending: 4}
			o.RuntimeState = json.RawMessage(`{"pid": 4711}`)
			slices.Reverse(o.Members)
			for i := range o.Members {
				o.Members[i].Detail = "another word for it"
			}
			other.real[k] = o
		}
		for _, s := range w.mem.All() {
			st := roundTrip(t, *s)
			st.Revision, st.CorrelationID, st.Attempt = "another commit", "c9", 12
			other.mem = other.mem.With(&st)
		}
		got := other.plans(e.effective())
		require.Len(t, got, len(want))
		for i := range got {
			require.Equal(t, want[i].Digest, got[i].Digest, "digest of %s", want[i].Key)
			require.Equal(t, want[i].Observed, got[i].Observed, "observed digest of %s", want[i].Key)
		}
		require.Equal(t, text(want), text(got))
	}
}

// roundTrip returns v after a round trip through the status branch.
func roundTrip[T any](t *testing.T, v T) T {
	raw, err := yaml.Marshal(v)
	require.NoError(t, err)
	var out T
	require.NoError(t, yaml.Unmarshal(raw, &out))
	return out
}
