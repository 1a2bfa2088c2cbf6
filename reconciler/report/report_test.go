package report_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"berth/reconciler/plan"
	"berth/reconciler/report"
	"berth/schema"
	"berth/schema/policy"
)

var update = flag.Bool("update", false, "rewrite the expected files of testdata")

func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			ar, err := txtar.ParseFile(file)
			require.NoError(t, err)
			given, want := map[string][]byte{}, map[string]string{}
			got := &txtar.Archive{Comment: ar.Comment}
			for _, f := range ar.Files {
				if strings.HasSuffix(f.Name, ".yaml") || strings.HasSuffix(f.Name, ".json") {
					given[f.Name] = f.Data
					got.Files = append(got.Files, f)
				}
				want[f.Name] = string(f.Data)
			}
			add := func(name, data string) {
				got.Files = append(got.Files, txtar.File{Name: name, Data: []byte(data)})
			}
			switch {
			case given["proposal.yaml"] != nil:
				var p plan.Proposal
				var c plan.PullContext
				decodeYAML(t, given["proposal.yaml"], &p)
				decodeYAML(t, given["context.yaml"], &c)
				checkProposal(t, p, c)
				if given["again.yaml"] != nil {
					again := p
					decodeYAML(t, given["again.yaml"], &again)
					require.NotEqual(t, p.Base, again.Base)
					require.NotEqual(t, report.Plan(p, c), report.Plan(again, c))
					require.Equal(t, report.Key(p, c), report.Key(again, c))
				}
				add("plan.txt", report.Text(p))
				add("comment.md", report.Plan(p, c))
				add("checks.md", shown(report.Checks(p, c)))
			case given["rollout.yaml"] != nil:
				var r plan.Rollout
				decodeYAML(t, given["rollout.yaml"], &r)
				checkMarkdown(t, report.Rollout(r))
				add("comment.md", report.Rollout(r))
			case given["answer.yaml"] != nil:
				var a plan.Answer
				var e *policy.Explanation
				decodeYAML(t, given["answer.yaml"], &a)
				decodeYAML(t, given["explanation.yaml"], &e)
				line, details := report.Answer(a, e)
				require.NotContains(t, line, "\n")
				checkMarkdown(t, line)
				checkMarkdown(t, details)
				add("line.md", line+"\n")
				if details != "" {
					add("details.md", details)
				}
			default:
				t.Fatalf("%s holds no proposal, no rollout and no answer", file)
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
			require.Len(t, ar.Files, len(got.Files))
		})
	}
}

func decodeYAML(t *testing.T, data []byte, into any) {
	t.Helper()
	require.NoError(t, yaml.UnmarshalStrict(data, into))
}

// shown formats checks for a golden file.
func shown(checks []plan.Check) string {
	var b strings.Builder
	for _, k := range checks {
		fmt.Fprintf(&b, "[%s] %s: %s\n\n%s", k.Name, k.Conclusion, k.Title, k.Summary)
		for _, n := range k.Notes {
			fmt.Fprintf(&b, "beside the line: %s\n", n)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// path matches file names that need no escaping.
var path = regexp.MustCompile(`^[a-z0-9/._-]+$`)

// checkProposal checks every displayed proposal.
func checkProposal(t *testing.T, p plan.Proposal, c plan.PullContext) {
	t.Helper()
	comment, checks := report.Plan(p, c), report.Checks(p, c)
	checkMarkdown(t, comment)
	checkText(t, report.Text(p))
	require.Len(t, checks, 2)
	require.Equal(t, plan.CheckValidate, checks[0].Name)
	require.Equal(t, plan.CheckPlan, checks[1].Name)
	whole := ""
	for _, k := range checks {
		checkMarkdown(t, k.Summary)
		checkText(t, k.Title)
		require.NotEmpty(t, k.Title)
		require.NotContains(t, k.Title, "\n")
		require.LessOrEqual(t, utf8.RuneCountInString(k.Title), 140)
		require.LessOrEqual(t, len(k.Key), 200)
		for _, n := range k.Notes {
			require.True(t, c.Lines.Has(n.File, n.Line), "a note is at no line of the change: %s", n)
		}
		whole += k.Summary + fmt.Sprint(k.Notes)
	}
	require.Equal(t, p.Blocked(), checks[1].Conclusion == plan.Failure)
	linked := c
	linked.Files = files
	checkMarkdown(t, report.Plan(p, linked))
	for _, k := range report.Checks(p, linked) {
		checkMarkdown(t, k.Summary)
	}
	if checks[0].Conclusion == plan.Failure {
		require.Equal(t, plan.Failure, checks[1].Conclusion, "a merge does not apply an invalid document")
	}
	if !strings.Contains(whole+comment, "more lines do not fit") {
		for _, d := range p.Diagnostics {
			if path.MatchString(d.File) && !strings.Contains(whole, d.File) {
				t.Errorf("no check reports %s", d)
			}
		}
	}
	for _, u := range p.Plans {
		if len(u.Actions) > 0 && u.Actions[0].Verb == plan.Delete {
			require.Contains(t, comment, "> [!CAUTION]")
		}
	}

	// Values that change without a new plan do not change the key.
	key := report.Key(p, c)
	other, busy := p, c
	if p.Base != "" {
		other.Base = strings.Repeat("e", 40)
	}
	other.Plans = slices.Clone(p.Plans)
	for i := range other.Plans {
		other.Plans[i].Placed = map[string]string{"worker-0": "another reason"}
	}
	busy.Jobs = slices.Clone(c.Jobs)
	for i := range busy.Jobs {
		busy.Jobs[i].Continue.Count += 77
		busy.Jobs[i].Ended = plan.JobSet{Count: 5, Users: []plan.UserJobs{{User: "zoe", Count: 5}}}
	}
	busy.Since, busy.Observed = []plan.DiffLine{{Sign: "+", Text: "join worker-1"}}, time.Unix(1, 0)
	require.Equal(t, key, report.Key(other, busy))
	for i, k := range report.Checks(other, busy) {
		require.Equal(t, checks[i].Key, k.Key)
	}
	if len(p.Digest) == 64 {
		other.Digest = p.Digest[:63] + map[bool]string{true: "1", false: "0"}[p.Digest[63] == '0']
		require.NotEqual(t, key, report.Key(other, busy), "another plan has another key, even with a similar digest")
		for i, k := range report.Checks(other, busy) {
			require.NotEqual(t, checks[i].Key, k.Key)
		}
	}
	if len(p.Plans) > 0 && len(c.Jobs) == 0 { // jobs that become known change the key
		known := c
		known.Jobs = []plan.UnitJobs{{Key: p.Plans[0].Key, JobImpact: plan.JobImpact{Continue: plan.JobSet{Count: 1}, At: time.Unix(7, 0)}}}
		require.Equal(t, report.Plan(p, known) == comment, report.Key(p, known) == key)
	}
	other.Head = strings.Repeat("f", 40)
	require.NotEqual(t, key, report.Key(other, busy), "another head has another key")

	junitOf(t, p)
	raw, err := report.JSON(p)
	require.NoError(t, err)
	var back plan.Proposal
	require.NoError(t, json.Unmarshal(raw, &back))
	require.Equal(t, p.Digest, back.Digest)
	require.Len(t, back.Plans, len(p.Plans))
}

// Patterns that a forge makes active in text outside code.
var active = []*regexp.Regexp{
	regexp.MustCompile(`@[A-Za-z0-9]`),
	regexp.MustCompile(`://`),
	regexp.MustCompile(`(?i)www\.`),
	regexp.MustCompile(`(?i)mailto:`),
	regexp.MustCompile(`#\d`),
	regexp.MustCompile(`(?i)\bGH-\d`),
	regexp.MustCompile(`:[a-z0-9_+-]+:`),
	regexp.MustCompile(`(^|[^\\])!\[`),
	regexp.MustCompile(`(^|[^\\])\]\(`),
	regexp.MustCompile(`(^|[^\\])\$`),
}

// files is the address of files at the forge in these tests.
const files = "https://forge.example/lab/estate/blob/"

// link matches the only kind of link that this package writes: code, and a file of the
// estate at a commit.
var link = regexp.MustCompile("\\[(`+.*?`+)\\]\\(" + regexp.QuoteMeta(files) + `[0-9a-f]{40}(?:/[A-Za-z0-9%.-]+)+(?:#L[0-9]+)?\)`)

// ours matches the HTML of this package.
var ours = regexp.MustCompile(`</?(details|summary|sub|code)>|<br>`)

// htmlCode matches code that a forge does not read as Markdown: no text in it becomes
// active.
var htmlCode = regexp.MustCompile(`<code>[^<>&]*</code>`)

// block matches the beginning of a Markdown block.
var block = regexp.MustCompile("^(?:[-+*](?:[ \\t]|$)|[0-9]+[.)](?:[ \\t]|$)|#{1,6}(?:[ \\t]|$)|>|=+[ \\t]*$|-+[ \\t]*$|(?:[-_*][ " +
	"\\t]*){3,}$|~{3}|`{3,}[^`]*$|[ \\t])")

// ourBlocks matches the blocks of this package.
var ourBlocks = regexp.MustCompile("^(?:### (?:Berth plan|Berth roll-out|Plan of `.*`|Plan of –|–)$|> (?:- )?|>$|(?:  )?- )")

// checkMarkdown checks all text for a forge.
func checkMarkdown(t *testing.T, md string) {
	t.Helper()
	require.True(t, utf8.ValidString(md))
	require.LessOrEqual(t, len(md), report.MaxMarkdown)
	require.NotContains(t, md, "<!--", "a comment of ours holds no marker but the one its sender adds")
	var open string
	depth, columns := 0, 0
	for i, line := range strings.Split(md, "\n") {
		where := lineOf{i + 1, line}
		if open != "" {
			if line == open {
				open = ""
			}
			continue
		}
		if ticks := line[:len(line)-len(strings.TrimLeft(line, "`"))]; len(ticks) > 2 && !strings.Contains(line[len(ticks):], "`") {
			open = ticks
			continue
		}
		plain := htmlCode.ReplaceAllString(withoutCode(link.ReplaceAllString(line, "$1")), "")
		depth += strings.Count(plain, "<details>") - strings.Count(plain, "</details>")
		require.GreaterOrEqual(t, depth, 0, where)
		for _, re := range active {
			lacks(t, re, plain, where)
		}
		require.NotContains(t, ours.ReplaceAllString(plain, ""), "<", where)
		if strings.HasPrefix(line, "|") {
			n := strings.Count(strings.ReplaceAll(line, `\|`, ""), "|")
			if columns == 0 {
				columns = n
			}
			require.Equal(t, columns, n, "cells of %s", where)
		} else {
			columns = 0
			text := ourBlocks.ReplaceAllString(line, "")
			lacks(t, block, text, where)
			lacks(t, evil, text, where)
		}
		lacks(t, invisible, line, where)
	}
	require.Empty(t, open, "unclosed fence")
	require.Zero(t, depth, "unclosed details")
}

var invisible = regexp.MustCompile(`[\x00-\x1f\x{202a}-\x{202e}\x{2066}-\x{2069}\x{200b}]`)

// lineOf is a line and its number, as text only in a failure.
type lineOf struct {
	number int
	line   string
}

func (l lineOf) String() string { return fmt.Sprintf("line %d: %q", l.number, l.line) }

// lacks is require.NotRegexp without its cost for text that lacks re.
func lacks(t *testing.T, re *regexp.Regexp, text string, where lineOf) {
	t.Helper()
	if re.MatchString(text) {
		require.NotRegexp(t, re, text, where)
	}
}

// withoutCode removes the code spans of a line. As in Markdown, a run of backticks
// closes with the next run of the same length.
func withoutCode(line string) string {
	var b strings.Builder
	for i := 0; i < len(line); {
		if line[i] == '\\' && i+1 < len(line) {
			b.WriteString(line[i : i+2])
			i += 2
			continue
		}
		if line[i] != '`' {
			b.WriteByte(line[i])
			i++
			continue
		}
		n := len(line[i:]) - len(strings.TrimLeft(line[i:], "`"))
		end := -1
		for j := i + n; j < len(line); {
			if line[j] != '`' {
				j++
				continue
			}
			m := len(line[j:]) - len(strings.TrimLeft(line[j:], "`"))
			if m == n {
				end = j + m
				break
			}
			j += m
		}
		if end < 0 {
			b.WriteString(line[i : i+n])
			i += n
			continue
		}
		i = end
	}
	return b.String()
}

// checkText checks all text for a terminal.
func checkText(t *testing.T, s string) {
	t.Helper()
	require.True(t, utf8.ValidString(s))
	require.NotRegexp(t, regexp.MustCompile(`[\x00-\x09\x0b-\x1f\x7f\x{202a}-\x{202e}\x{2066}-\x{2069}]`), s)
}

// many returns a proposal with n units, each with values of length size.
func many(n, size int) plan.Proposal {
	p := plan.Proposal{Base: strings.Repeat("b", 40), Head: strings.Repeat("a", 40), Digest: strings.Repeat("d", 64)}
	for i := range n {
		key := schema.InstanceKey("physics", "lhc", fmt.Sprintf("train-%d", i))
		p.Plans = append(p.Plans, plan.Plan{Key: key, Before: &plan.Unit{}, After: &plan.Unit{}, Actions: []plan.Action{{
			ID: "c", Verb: plan.Configure, Key: key, Node: "dev-lab-1", Reason: "configuration changed",
			Changes: []plan.Change{{Field: "display_name", Before: strings.Repeat("x", size), After: strings.Repeat("`", size)}},
		}}})
	}
	p.Plans[n-1].Actions[0].Verb = plan.Delete
	return p
}

// A change of a thousand instances lists all losses, merges equal rows, and names
// the command that prints everything.
func TestLargeChangeListsLossesFirst(t *testing.T) {
	p := many(1000, 20)
	checkProposal(t, p, plan.PullContext{Number: 7})
	md := report.Plan(p, plan.PullContext{Number: 7})
	head, _, _ := strings.Cut(md, "<details>")
	require.Contains(t, head, "**Ready to merge.** Deletes 1 instance and changes 999.")
	require.Contains(t, head, "**`physics.lhc/train-999` is deleted with all its state**")
	require.Contains(t, head, "`physics.lhc/train-0`<br>`physics.lhc/train-1`<br>997 more")
	require.Less(t, len(head), 3000, "equal rows are merged")
	require.Contains(t, md, "more lines do not fit")
}

// A runtime without drains removes a node at once, and the first line names it. Of a node that joins
// in the place of another, it names the one that leaves.
func TestFirstLineNamesRemovedNode(t *testing.T) {
	p := many(2, 20)
	u := &p.Plans[1]
	u.Actions = []plan.Action{
		{ID: "l", Verb: plan.Leave, Key: u.Key, Member: "worker-0", Node: "gpu-1", Reason: "no longer declared"},
		{ID: "j", Verb: plan.Join, Key: u.Key, Member: "worker-1", Node: "gpu-2", Reason: "new member",
			Impact: plan.Impact{Restarts: []string{"slurmctld"}}},
	}
	require.Contains(t, report.Text(p), "Ready to merge. Removes node gpu-1 from physics.lhc/train-1 and changes physics.lhc/train-0.\n")
	u.Actions = u.Actions[1:]
	require.Contains(t, report.Text(p), "Ready to merge. Adds node gpu-2 to physics.lhc/train-1 and changes physics.lhc/train-0.\n")
}

// Many deletions are counted and the first are named. The text names the command
// that lists the others, even in a shortened comment.
func TestManyDeletionsAreCounted(t *testing.T) {
	for _, n := range []int{4, 60, 61, 600} {
		p := many(n, 20)
		for i := range p.Plans {
			p.Plans[i].Actions[0].Verb = plan.Delete
			p.Plans[i].Actions[0].Impact.Notes = []string{"evil"}
		}
		checkProposal(t, p, plan.PullContext{Number: 7})
		texts := []string{report.Plan(p, plan.PullContext{Number: 7}), report.Checks(p, plan.PullContext{Number: 7})[1].Summary}
		for _, text := range texts {
			_, box, found := strings.Cut(text, "> [!CAUTION]\n")
			require.True(t, found)
			box, _, _ = strings.Cut(box, "\n\n")
			require.Contains(t, box, fmt.Sprintf("**%d instances are deleted with all their state:**", n))
			named := strings.Count(box, "`physics.lhc/train-")
			if n <= 60 {
				require.Equal(t, n, named)
				continue
			}
			require.Equal(t, 59, named)
			require.Contains(t, box, fmt.Sprintf("and %d more.", n-59))
			require.Contains(t, box, "All of them are named by `berth plan --base bbbbbbbbbb --head aaaaaaaaaa`.")
		}
	}
}

func BenchmarkShow(b *testing.B) {
	for _, n := range []int{50, 1000} {
		p := many(n, 20)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				report.Checks(p, plan.PullContext{})
				report.Key(p, plan.PullContext{})
				report.Plan(p, plan.PullContext{})
			}
		})
	}
}

func TestLongPlanStatesOmission(t *testing.T) {
	for _, n := range []int{10, 100, 300, 2000} {
		for size := 1; size < 400; size += 57 { // different sizes cut tables, fences and the text between them
			p := many(n, size)
			md := report.Markdown(p)
			checkMarkdown(t, md)
			cut := strings.Contains(md, "more lines do not fit")
			require.True(t, cut || n < 300, "%d units of %d", n, size)
			require.False(t, cut && n < 20, "%d units of %d", n, size)
			require.True(t, strings.Contains(md, fmt.Sprintf("train-%d`", n-1)), "losses come first and are not omitted")
			require.True(t, strings.Contains(md, "`dddddddddd`"), "the digest stays")
			if cut {
				require.Greater(t, len(md), report.MaxMarkdown-1500, "no more is omitted than necessary")
				require.True(t, strings.Contains(md, "`berth plan --base bbbbbbbbbb --head aaaaaaaaaa`"))
			}
		}
	}
}
