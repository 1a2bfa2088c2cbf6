package report

import (
	"strings"

	"berth/reconciler/plan"
)

// maxDifferences limits the differences that a sentence names.
const maxDifferences = 4

// staleText describes how a plan differs from the reviewed one.
func staleText(s *plan.StalePlan) string {
	if s.Reviewed == "" {
		return "merged before a plan of it was shown"
	}
	return "the plan differs from the reviewed one: " + strings.Join(atMost(maxDifferences, differences(s.Diff), ""), "; ")
}

// sinceText describes how a plan differs from that of the previous head.
func sinceText(diff []plan.DiffLine) string {
	if parts := differences(diff); len(parts) > 0 {
		return strings.Join(atMost(maxDifferences, parts, ""), "; ")
	}
	return "no change to the plan"
}

// differences describes the lines of a difference. It joins two lines that differ only
// in the last word: "join worker-3 on dev-gpu-9, not dev-gpu-7".
func differences(diff []plan.DiffLine) []string {
	var out []string
	used := map[int]bool{}
	for i, l := range diff {
		if used[i] || l.Sign != "-" && l.Sign != "+" {
			continue
		}
		text := prose(short(strings.TrimSpace(l.Text), maxValue))
		switch other := counterpart(diff, i, used); {
		case other >= 0:
			used[other] = true
			was, is := l, diff[other]
			if l.Sign == "+" {
				was, is = is, was
			}
			out = append(out, prose(short(strings.TrimSpace(is.Text), maxValue))+", not "+
				prose(short(strings.TrimPrefix(was.Text, allButLastWord(was)), maxValue)))
		case l.Sign == "-":
			out = append(out, "no longer: "+text)
		default:
			out = append(out, "new: "+text)
		}
	}
	return out
}

// counterpart returns the unused line of the same section that has the other sign and differs from line i only in the last
// word; -1 without one.
func counterpart(diff []plan.DiffLine, i int, used map[int]bool) int {
	begin := allButLastWord(diff[i])
	for j := i + 1; j < len(diff) && diff[j].Sign != "@" && begin != ""; j++ {
		if !used[j] && diff[j].Sign != diff[i].Sign && diff[j].Sign != " " && allButLastWord(diff[j]) == begin {
			return j
		}
	}
	return -1
}

func allButLastWord(l plan.DiffLine) string { return l.Text[:strings.LastIndexByte(l.Text, ' ')+1] }
