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

// readme is the estate at a glance, as a forge shows it at the top of
// berth/status: what stands once files are taken into x. It holds no time and
// no counter, so that it changes only when there is something to see.
func readme(rev reconciler.Revision, x *statusIndex, files []statusFile) []byte {
	changed := map[schema.Key]bool{}
	for _, f := range files {
		changed[f.key] = true
	}
	phases := map[plan.Phase]int{}
	kinds := map[schema.Kind]int{}
	var failing []attention
	unit := func(s *plan.Status) {
		kinds[s.Key.Kind]++
		phases[s.Phase]++
		if stalled(string(s.Phase), s.Conditions) {
			failing = append(failing, attention{s.Key, cmp.Or(s.FailureReason, string(s.Phase))})
		}
	}
	thing := func(s *plan.ThingStatus) {
		kinds[s.Key.Kind]++
		if stalled(s.Phase, s.Conditions) {
			failing = append(failing, attention{s.Key, cmp.Or(why(s.Conditions), s.Phase)})
		}
	}
	for key, s := range x.units.All() {
		if !changed[key] {
			unit(s)
		}
	}
	for key, s := range x.things {
		if !changed[key] {
			thing(s)
		}
	}
	for _, f := range files {
		switch {
		case f.status != nil:
			unit(f.status)
		case f.thing != nil:
			thing(f.thing)
		}
	}
	slices.SortFunc(failing, func(a, b attention) int { return a.key.Compare(b.key) })

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
		path, err := statusPath(failing[i].key)
		if err != nil {
			return code(failing[i].key.String())
		}
		return fmt.Sprintf("[%s](%s): %s", failing[i].key, path, code(failing[i].what))
	})
	list(&b, "Held", len(rev.Held), func(i int) string { return code(heldLine(rev.Held[i])) })
	return b.Bytes()
}

// attention is something that somebody should look at, and why.
type attention struct {
	key  schema.Key
	what string
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
