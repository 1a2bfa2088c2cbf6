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
	changed := map[schema.Key]*plan.Status{}
	for _, f := range files {
		changed[f.key] = f.status
	}
	phases := map[plan.Phase]int{}
	var failing []*plan.Status
	total := 0
	count := func(s *plan.Status) {
		total++
		phases[s.Phase]++
		if stalled(s) {
			failing = append(failing, s)
		}
	}
	for key, s := range x.units {
		if _, ok := changed[key]; !ok {
			count(s)
		}
	}
	for _, s := range changed {
		if s != nil {
			count(s)
		}
	}
	slices.SortFunc(failing, func(a, b *plan.Status) int { return a.Key.Compare(b.Key) })

	var b bytes.Buffer
	b.WriteString("# Estate at a glance\n\nBerth writes this branch. It is what Berth saw and did; changing it changes nothing.\n\n")
	if rev.Frozen != "" {
		fmt.Fprintf(&b, "**The sync stands still:** %s\n\n", code(rev.Frozen))
	}
	b.WriteString("| | |\n|---|---|\n")
	fmt.Fprintf(&b, "| Configuration | %s |\n", code(cmp.Or(rev.Commit, "none yet")))
	fmt.Fprintf(&b, "| Instances | %d |\n", total)
	for _, p := range slices.Sorted(maps.Keys(phases)) {
		fmt.Fprintf(&b, "| … %s | %d |\n", oneLine(string(p), 40), phases[p])
	}
	fmt.Fprintf(&b, "| Documents held | %d |\n", len(rev.Held))
	list(&b, "Need attention", len(failing), func(i int) string {
		path, err := failing[i].Key.Path()
		if err != nil {
			return code(failing[i].Key.String())
		}
		return fmt.Sprintf("[%s](%s): %s", failing[i].Key, path, code(cmp.Or(failing[i].FailureReason, string(failing[i].Phase))))
	})
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

// stalled says whether somebody should look at a unit.
func stalled(s *plan.Status) bool {
	return s.Phase == plan.PhaseFailed || slices.ContainsFunc(s.Conditions, func(c plan.Condition) bool {
		return c.Type == "Stalled" && c.Status == "True"
	})
}

// code is text as a Markdown code span, which no text can end.
func code(s string) string {
	s = strings.ReplaceAll(oneLine(s, maxLine), "`", "'")
	return "`" + strings.ReplaceAll(s, "|", "¦") + "`"
}
