package gitrepo

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
)

// maxListed bounds each list of the overview.
const maxListed = 20

// tally counts what stands on berth/status, so that to tell it at a glance costs
// what changes and what needs attention, not what there is.
type tally struct {
	kinds   map[schema.Kind]int
	phases  map[plan.Phase]int // of units
	failing map[schema.Key]string
}

func newTally() *tally {
	return &tally{map[schema.Kind]int{}, map[plan.Phase]int{}, map[schema.Key]string{}}
}

func (t *tally) clone() *tally {
	return &tally{maps.Clone(t.kinds), maps.Clone(t.phases), maps.Clone(t.failing)}
}

// take counts files, each of another key, in the place of what x has of them.
func (t *tally) take(x *statusIndex, files []statusFile) {
	for _, f := range files {
		if s := x.units.Get(f.key); s != nil {
			t.unit(s, -1)
		}
		if s := x.things[f.key]; s != nil {
			t.count(s.Key, -1)
		}
		delete(t.failing, f.key)
		switch {
		case f.status != nil:
			t.unit(f.status, 1)
			if stalled(string(f.status.Phase), f.status.Conditions) {
				t.failing[f.key] = cmp.Or(f.status.FailureReason, string(f.status.Phase))
			}
		case f.thing != nil:
			t.count(f.key, 1)
			if stalled(f.thing.Phase, f.thing.Conditions) {
				t.failing[f.key] = cmp.Or(why(f.thing.Conditions), f.thing.Phase)
			}
		}
	}
}

func (t *tally) unit(s *plan.Status, by int) {
	t.count(s.Key, by)
	if t.phases[s.Phase] += by; t.phases[s.Phase] == 0 {
		delete(t.phases, s.Phase)
	}
}

func (t *tally) count(key schema.Key, by int) {
	if t.kinds[key.Kind] += by; t.kinds[key.Kind] == 0 {
		delete(t.kinds, key.Kind)
	}
}

// readme is the estate at a glance, as a forge shows it at the top of
// berth/status: what stands once files are taken into x. It holds no time and
// no counter, so that it changes only when there is something to see.
func readme(rev reconciler.Revision, x *statusIndex, files []statusFile) []byte {
	t := x.tally.clone()
	t.take(x, files)
	kinds, phases := t.kinds, t.phases
	failing := slices.SortedFunc(maps.Keys(t.failing), schema.Key.Compare)

	var b bytes.Buffer
	b.WriteString("# Estate at a glance\n\nBerth writes this branch. It is what Berth saw and did; changing it changes nothing.\n\n")
	if rev.Frozen != "" {
		fmt.Fprintf(&b, "**The sync stands still:** %s\n\n", code(rev.Frozen))
	}
	b.WriteString("| | |\n|---|---|\n")
	fmt.Fprintf(&b, "| Configuration | %s |\n", code(cmp.Or(rev.Commit, "none yet")))
	fmt.Fprintf(&b, "| Instances | %d |\n", kinds[schema.KindInstance])
	for _, p := range slices.Sorted(maps.Keys(phases)) {
		fmt.Fprintf(&b, "| … %s | %d |\n", oneLine(string(p), 40), phases[p])
	}
	delete(kinds, schema.KindInstance)
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
	list(&b, "Held", len(rev.Held), func(i int) string { return code(heldLine(rev.Held[i])) })
	return b.Bytes()
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

// stalled says whether somebody should look at a unit or thing.
func stalled(phase string, conditions []plan.Condition) bool {
	return phase == string(plan.PhaseFailed) || slices.ContainsFunc(conditions, isStalled)
}

func isStalled(c plan.Condition) bool { return c.Type == "Stalled" && c.Status == "True" }

// why is what a Stalled condition says.
func why(conditions []plan.Condition) string {
	if i := slices.IndexFunc(conditions, isStalled); i >= 0 {
		return conditions[i].Message
	}
	return ""
}

// code is text as a Markdown code span, which no text can end.
func code(s string) string {
	s = strings.ReplaceAll(oneLine(s, maxLine), "`", "'")
	return "`" + strings.ReplaceAll(s, "|", "¦") + "`"
}
