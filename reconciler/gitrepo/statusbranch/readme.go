package statusbranch

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/reconciler"
	"berth/reconciler/gitrepo/object"
	"berth/reconciler/plan"
	"berth/schema"
)

// maxListed bounds each list of the overview.
const maxListed = 20

// tally counts the resources on berth/status. With it, the cost of the overview
// follows the changes and the failing resources, not the size of the estate.
type tally struct {
	kinds   map[schema.Kind]int
	phases  map[unitPhase]int
	failing map[schema.Key]string
}

// unitPhase is a phase of the units of a kind.
type unitPhase struct {
	kind  schema.Kind
	phase plan.Phase
}

func newTally() *tally {
	return &tally{map[schema.Kind]int{}, map[unitPhase]int{}, map[schema.Key]string{}}
}

func (t *tally) clone() *tally {
	return &tally{maps.Clone(t.kinds), maps.Clone(t.phases), maps.Clone(t.failing)}
}

// take replaces the counts of files in x by those of the new files. Each key
// occurs once.
func (t *tally) take(x *statusIndex, files []statusFile) {
	for _, f := range files {
		if s := x.units.Get(f.Key); s != nil {
			t.unit(s, -1)
		}
		if s := x.things[f.Key]; s != nil {
			t.count(s.Key, -1)
		}
		delete(t.failing, f.Key)
		switch {
		case f.Status != nil:
			t.unit(f.Status, 1)
			if stalled(string(f.Status.Phase), f.Status.Conditions) {
				t.failing[f.Key] = cmp.Or(f.Status.FailureReason, string(f.Status.Phase))
			}
		case f.Thing != nil:
			t.count(f.Key, 1)
			if stalled(f.Thing.Phase, f.Thing.Conditions) {
				t.failing[f.Key] = cmp.Or(why(f.Thing.Conditions), f.Thing.Phase)
			}
		}
	}
}

func (t *tally) unit(s *plan.Status, by int) {
	t.count(s.Key, by)
	at := unitPhase{s.Key.Kind, s.Phase}
	if t.phases[at] += by; t.phases[at] == 0 {
		delete(t.phases, at)
	}
}

func (t *tally) count(key schema.Key, by int) {
	if t.kinds[key.Kind] += by; t.kinds[key.Kind] == 0 {
		delete(t.kinds, key.Kind)
	}
}

// readme returns the overview that a forge shows for berth/status, with files
// applied to x. It has no time or counter, so it changes only with the estate.
func readme(rev reconciler.Revision, x *statusIndex, files []statusFile) []byte {
	t := x.tally.clone()
	t.take(x, files)
	kinds := t.kinds
	failing := slices.SortedFunc(maps.Keys(t.failing), schema.Key.Compare)

	var b bytes.Buffer
	b.WriteString("# Estate at a glance\n\nBerth writes this branch. It is what Berth saw and did; changing it changes nothing.\n\n")
	if rev.Frozen != "" {
		fmt.Fprintf(&b, "**Synchronization is frozen:** %s\n\n", code(rev.Frozen))
	}
	b.WriteString("| | |\n|---|---|\n")
	fmt.Fprintf(&b, "| Configuration | %s |\n", code(cmp.Or(rev.Commit, "none yet")))
	t.units(&b, "Instances", schema.KindInstance)
	if kinds[schema.KindSharedRuntime] > 0 {
		t.units(&b, "Shared runtimes", schema.KindSharedRuntime)
	}
	delete(kinds, schema.KindInstance)
	delete(kinds, schema.KindSharedRuntime)
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(&b, "| Of kind %s | %d |\n", k, kinds[k])
	}
	fmt.Fprintf(&b, "| Documents held | %d |\n", len(rev.Held))
	list(&b, "Need attention", len(failing), func(i int) string {
		path, err := failing[i].StatusPath()
		if err != nil {
			return code(failing[i].String())
		}
		return fmt.Sprintf("[%s](%s): %s", failing[i], path, code(t.failing[failing[i]]))
	})
	list(&b, "Tenants' repositories", len(rev.Notices), func(i int) string { return code(rev.Notices[i]) })
	list(&b, "Held", len(rev.Held), func(i int) string { return code(object.HeldLine(rev.Held[i])) })
	return b.Bytes()
}

// units writes how many units of a kind there are, in all and in each phase.
func (t *tally) units(b *bytes.Buffer, title string, kind schema.Kind) {
	fmt.Fprintf(b, "| %s | %d |\n", title, t.kinds[kind])
	of := map[plan.Phase]int{}
	for at, n := range t.phases {
		if at.kind == kind {
			of[at.phase] = n
		}
	}
	for _, p := range slices.Sorted(maps.Keys(of)) {
		fmt.Fprintf(b, "| … %s | %d |\n", object.OneLine(string(p), 40), of[p])
	}
}

func list(b *bytes.Buffer, title string, n int, item func(int) string) {
	if n == 0 {
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n", title)
	for i := range min(n, maxListed) {
		fmt.Fprintf(b, "- %s\n", item(i))
	}
	if n > maxListed {
		fmt.Fprintf(b, "- … and %d more\n", n-maxListed)
	}
}

// stalled reports whether a resource needs attention.
func stalled(phase string, conditions []plan.Condition) bool {
	return phase == string(plan.PhaseFailed) || slices.ContainsFunc(conditions, isStalled)
}

func isStalled(c plan.Condition) bool {
	return c.Type == plan.ConditionStalled && c.Status == plan.ConditionTrue
}

// why returns the message of the Stalled condition.
func why(conditions []plan.Condition) string {
	if i := slices.IndexFunc(conditions, isStalled); i >= 0 {
		return conditions[i].Message
	}
	return ""
}

// code returns s as a Markdown code span that s cannot end.
func code(s string) string {
	s = strings.ReplaceAll(object.OneLine(s, object.MaxLine), "`", "'")
	return "`" + strings.ReplaceAll(s, "|", "¦") + "`"
}
