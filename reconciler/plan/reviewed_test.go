package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth/reconciler/plan"
	"berth/schema"
)

// reviewable returns a plan for an instance with wanted workers, of which there run on
// nodes with that name, and the observation of the plan.
func reviewable(there, wanted int, node, motd string, state plan.MemberState) (plan.Plan, plan.Observed) {
	key := schema.InstanceKey("physics", "lhc", "train")
	unit := func(workers int, config string) *plan.Unit {
		u := &plan.Unit{Effective: schema.EffectiveUnit{
			Key: key, AppSelection: schema.AppSelection{App: "slurm", Version: "24.05", RuntimeBackend: "bare_metal"},
			DesiredState: schema.DesiredRunning, Config: []byte(config),
			Roles: []schema.EffectiveRole{{Name: "controller", ControlPlane: true, Count: 1}, {Name: "worker", Count: workers}},
		}}
		u.Members = append(u.Members, plan.Member{Name: "controller-0", Role: "controller", ControlPlane: true, Node: "lab-1"})
		for i := range workers {
			u.Members = append(u.Members, plan.Member{Name: fmt.Sprintf("worker-%d", i), Role: "worker",
				Node: fmt.Sprintf("%s-%d", node, i)})
		}
		return u
	}
	o := plan.Observed{Key: key, Presence: plan.Absent}
	if there >= 0 {
		o = plan.Observed{Key: key, Presence: plan.Present, Complete: true, Unit: unit(there, `{"motd":"old"}`)}
		for _, m := range o.Unit.Members {
			o.Members = append(o.Members, plan.MemberState{Name: m.Name, Node: m.Node, State: plan.Running})
		}
		if state.Name != "" {
			for i := range o.Members {
				if o.Members[i].Name == state.Name {
					o.Members[i].State = state.State
				}
			}
		}
	}
	after := unit(wanted, fmt.Sprintf(`{"motd":%q}`, motd))
	return plan.Make(plan.Input{Key: key, After: &after.Effective, Members: after.Members, Observed: o}), o
}

func words(s *plan.StalePlan) string {
	var b strings.Builder
	for _, l := range s.Diff {
		b.WriteString(l.Sign + " " + l.Text + "\n")
	}
	return b.String()
}

func TestStalePlanIsDescribed(t *testing.T) {
	p, o := reviewable(2, 3, "gpu", "old", plan.MemberState{})
	reviewed := plan.Reviewed(p, o)
	require.Nil(t, plan.Stale(&reviewed, p, o), "the same plan is not stale")

	now, seen := reviewable(2, 3, "gpu", "old", plan.MemberState{Name: "worker-1", State: plan.Stopped})
	s := plan.Stale(&reviewed, now, seen)
	require.Equal(t, p.Digest, s.Reviewed)
	require.Equal(t, now.Digest, s.Now)
	require.Contains(t, words(s), "+ start worker-1 on gpu-1")
	require.Contains(t, words(s), "- worker-1 on gpu-1 is running\n+ worker-1 on gpu-1 is stopped")
	require.NotContains(t, words(s), "controller-0 on lab-1 is running", "unchanged lines appear only beside changed ones")

	now, seen = reviewable(2, 3, "gpu", "new", plan.MemberState{})
	require.Contains(t, words(plan.Stale(&reviewed, now, seen)), "+   config.motd: old → new")

	s = plan.Stale(nil, now, seen)
	require.Empty(t, s.Reviewed)
	require.Contains(t, words(s), "+ join worker-2 on gpu-2", "without a review all steps are shown")
	require.NotContains(t, words(s), "\n- ")

	// A creation differs only in its inputs.
	p, o = reviewable(-1, 1, "gpu", "old", plan.MemberState{})
	reviewed = plan.Reviewed(p, o)
	now, seen = reviewable(-1, 1, "gpu", "new", plan.MemberState{})
	require.Contains(t, words(plan.Stale(&reviewed, now, seen)), "- made with config.motd = old\n+ made with config.motd = new")
}

// After a push, a plan that is new is named, and one that was there is compared by its steps: the
// comment has the steps of the new one.
func TestSinceDoesNotRepeatNewPlan(t *testing.T) {
	shown := func(head string, units ...plan.ReviewedUnit) *plan.Shown {
		return &plan.Shown{Head: head, Digest: head, Units: units}
	}
	two, o := reviewable(2, 3, "gpu", "old", plan.MemberState{})
	three, _ := reviewable(2, 4, "gpu", "old", plan.MemberState{})
	key := two.Key.String()
	none := plan.ReviewedUnit{Key: two.Key, Digest: "blocked", Steps: []string{"blocked: place.no_node"}}
	require.Equal(t, []plan.DiffLine{{Sign: "@", Text: key}, {Sign: "+", Text: "plan of " + key}},
		plan.Since(shown("a"), shown("b", plan.Reviewed(two, o))))
	require.Equal(t, []plan.DiffLine{{Sign: "@", Text: key}, {Sign: "+", Text: "plan of " + key}},
		plan.Since(shown("a", none), shown("b", plan.Reviewed(two, o))))
	require.Equal(t, []plan.DiffLine{{Sign: "@", Text: key}, {Sign: "-", Text: "plan of " + key}},
		plan.Since(shown("a", plan.Reviewed(two, o)), shown("b")))
	require.Contains(t, plan.Since(shown("a", plan.Reviewed(two, o)), shown("b", plan.Reviewed(three, o))),
		plan.DiffLine{Sign: "+", Text: "join worker-3 on gpu-3"})
}

// A hand-written review of any size costs no more to compare than one from Berth.
func TestStaleAcceptsReviewOfAnySize(t *testing.T) {
	p, o := reviewable(2, 3, "gpu", "old", plan.MemberState{})
	huge := plan.ReviewedUnit{Key: p.Key, Digest: "x"}
	for i := range 200_000 {
		huge.Steps = append(huge.Steps, fmt.Sprint("step ", i))
		huge.Facts = append(huge.Facts, fmt.Sprint("fact ", i))
	}
	s := plan.Stale(&huge, p, o)
	require.LessOrEqual(t, len(s.Diff), 81)
	require.Equal(t, "@", s.Diff[len(s.Diff)-1].Sign)
}

// Two plans with different digests have different text, so that a user can approve
// one of them. The kept text of each is bounded.
func TestDifferentPlansHaveDifferentText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) (plan.Plan, plan.Observed) {
			state := plan.MemberState{Name: rapid.SampledFrom([]string{"", "worker-0", "worker-1"}).Draw(t, name+" of"),
				State: rapid.SampledFrom([]plan.State{plan.Stopped, plan.Partial, plan.Unreachable}).Draw(t, name+" state")}
			return reviewable(rapid.IntRange(-1, 90).Draw(t, name+" there"), rapid.IntRange(0, 90).Draw(t, name+" wanted"),
				rapid.SampledFrom([]string{"gpu", "cpu"}).Draw(t, name+" node"),
				rapid.SampledFrom([]string{"old", "new", strings.Repeat("long", 200)}).Draw(t, name+" motd"), state)
		}
		a, seenA := draw("a")
		b, seenB := draw("b")
		reviewed := plan.Reviewed(a, seenA)
		require.LessOrEqual(t, len(reviewed.Steps), 60)
		require.LessOrEqual(t, len(reviewed.Facts), 61)
		for _, l := range append(reviewed.Steps, reviewed.Facts...) {
			require.LessOrEqual(t, len([]rune(l)), 220)
		}
		s := plan.Stale(&reviewed, b, seenB)
		if a.Digest == b.Digest {
			require.Nil(t, s)
			return
		}
		require.NotEmpty(t, s.Diff)
		require.True(t, strings.Contains(words(s), "+ ") || strings.Contains(words(s), "- "))
	})
}
