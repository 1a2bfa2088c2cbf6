package report

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/authority"
)

// obstacle is one thing in the way, and how it is cleared.
type obstacle struct {
	what string   // Markdown
	why  string   // Markdown
	next string   // Markdown; "": why says it
	of   []string // files it is the same of, if several
}

// inTheWay lists what keeps a merge from doing all that is asked, apart from what
// is written wrongly, each with its next step: whom to ask, which line to change,
// what to command.
func (d *doc) inTheWay(p *plan.Proposal, allowed []schema.Diagnostic) {
	var all, waits []obstacle
	for _, f := range p.Conflicts {
		all = append(all, obstacle{what: code(f), why: "was changed on both sides"})
	}
	all = append(all, unpermitted(p.Authority)...)
	all = append(all, refusals(slices.DeleteFunc(slices.Clone(allowed), func(f schema.Diagnostic) bool {
		return slices.ContainsFunc(p.Authority, func(x authority.Decision) bool {
			return !x.Allowed && x.File == f.File && family(f.Code) == "authority"
		})
	}))...)
	for _, u := range inOrder(p.Plans) {
		for _, b := range u.Blocked {
			o := obstacle{what: code(unitName(u.Key)), why: "is **blocked**: " + prose(short(b.Message, 1000)), next: wayOut[b.Code]}
			if !b.Wait {
				if !p.Comes(u.Key) { // else it is told with what is released
					all = append(all, o)
				}
				continue
			}
			o.why = "waits: " + prose(short(b.Message, 1000))
			waits = append(waits, o)
		}
	}
	for _, h := range p.Held {
		if !told(h, p.Diagnostics) {
			all = append(all, obstacle{what: code(h.File), why: fmt.Sprintf("is held (%s): %s", prose(h.Why()), prose(short(h.Message, 1000)))})
		}
	}
	d.obstacles("In the way", all)
	d.obstacles("Waits", waits)
}

func (d *doc) obstacles(title string, all []obstacle) {
	if len(all) == 0 {
		return
	}
	d.line("**"+title+"**", "")
	for _, o := range all {
		line := "- " + o.what + " " + o.why
		if o.next != "" {
			line += "<br>→ " + o.next
		}
		d.line(line)
	}
	d.line("")
	for _, o := range all {
		if len(o.of) > 1 {
			d.details(strings.TrimSuffix(o.what, ":")+" of which this is said", func() {
				for _, f := range o.of {
					d.line("- " + f)
				}
			})
		}
	}
}

// unpermitted are the permissions that nobody has who stands behind the change,
// one for all documents for which the same is said.
func unpermitted(ds []authority.Decision) []obstacle {
	type lack struct{ permission, reason string }
	at := map[lack]int{}
	var all []obstacle
	for _, x := range ds {
		if x.Allowed {
			continue
		}
		l := lack{string(x.Permission), x.Reason}
		i, again := at[l]
		if !again {
			i, at[l] = len(all), len(all)
			all = append(all, obstacle{
				what: code(x.File) + ":",
				why:  fmt.Sprintf("%s needs %s, and %s", prose(short(x.Why, maxValue)), code(string(x.Permission)), prose(short(x.Reason, 1000))),
				next: "their approval of this head is enough: nobody has to push again",
			})
		} else {
			all[i].what = count(len(all[i].of)+1, "document") + ":"
		}
		all[i].of = append(all[i].of, code(x.File))
	}
	return all
}

// refusals are the errors of policy, authority and guards, one for all files of
// which the same is said.
func refusals(ds []schema.Diagnostic) []obstacle {
	type said struct{ code, message string }
	at := map[said]int{}
	var all []obstacle
	for _, f := range ds {
		if f.Severity != schema.SeverityError {
			continue
		}
		s := said{f.Code, f.Message}
		i, again := at[s]
		if !again {
			at[s] = len(all)
			all = append(all, obstacle{
				what: code(place(f.File, f.Line, 0)) + ":", of: []string{code(place(f.File, f.Line, 0))},
				why: prose(short(f.Message, 1000)) + " (" + code(f.Code) + ")", next: nextFor(f),
			})
			continue
		}
		all[i].of = append(all[i].of, code(place(f.File, f.Line, 0)))
		all[i].what = count(len(all[i].of), "document") + ":"
	}
	return all
}

// wayOut is the next step out of what blocks a unit, by its code.
var wayOut = map[string]string{
	plan.CodeUnknown:      "is planned again by itself when somebody can say what is there",
	plan.CodeSuspended:    "take `suspend: true` out of the document that says so when it is meant to be",
	plan.CodeUnreachable:  "goes on by itself when the host answers",
	plan.CodeStopped:      "they come with `desired_state: running`",
	plan.CodeBackend:      "delete it in one pull request and declare it anew in the next",
	plan.CodeNoNode:       "ask for fewer, or for others, in its document; or have the platform add a node: it is then placed by itself",
	plan.CodeStays:        "it moves by itself when a node that fits comes free",
	plan.CodeControlPlane: "leave its region and SKU as they are; or delete it in one pull request and declare it anew in the next",
	plan.CodeDenied:       "comply with the rule in its document, or have the rule changed first, in a pull request of its own",
	"artifact.unverified": "goes on by itself when the bytes were seen",
}

var hexDigest = regexp.MustCompile(`\b[0-9a-f]{16}\b`)

// nextFor is the next step after a refusal.
func nextFor(f schema.Diagnostic) string {
	_, rest, _ := strings.Cut(f.Code, ".")
	switch family := family(f.Code); {
	case family == "base":
		return "merge the policy in a pull request of its own first; this one can follow"
	case f.Code == "policy.wider":
		return "narrow that line to what the layers above it allow"
	case family == "policy":
		return "change that line, or have the rule changed first, in a pull request of its own"
	case family == "authority":
		return "their approval of this head is enough: nobody has to push again"
	case family == "deletion" && rest == "protected":
		return "set `deletion_protection: false` in a pull request of its own, and delete it in the next"
	case family == "deletion":
		if digest := hexDigest.FindString(f.Message); digest != "" {
			return fmt.Sprintf("if just these are meant, somebody with `deletions.acknowledge` says so: %s in a comment, or %s at the end of a commit message", code("/berth ack-delete "+digest), code("Berth-Ack-Delete: "+digest))
		}
	}
	return ""
}

// family is the first part of a code.
func family(code string) string {
	family, _, _ := strings.Cut(code, ".")
	return family
}

// mild is findings without the errors.
func mild(ds []schema.Diagnostic) []schema.Diagnostic {
	return slices.DeleteFunc(slices.Clone(ds), func(f schema.Diagnostic) bool { return f.Severity == schema.SeverityError })
}

// findings lists findings, the gravest first and the same one once for all its
// places; what is beyond a screenful is folded away.
func (d *doc) findings(grave, light string, ds []schema.Diagnostic) {
	if len(ds) == 0 {
		return
	}
	title := light
	if schema.HasErrors(ds) {
		title = grave
	}
	d.line(fmt.Sprintf("**%s** (%s)", title, severities(ds)), "")
	ds = gravest(ds)
	show := func(ds []schema.Diagnostic) {
		of := map[string][]schema.Diagnostic{}
		for _, f := range ds {
			of[f.File] = append(of[f.File], f)
		}
		for _, f := range ds {
			here := of[f.File]
			delete(of, f.File)
			if len(here) == 1 {
				d.line(fmt.Sprintf("- %s at %s: %s", severity(f), code(place(f.File, f.Line, f.Column)), finding(f)))
				continue
			}
			for i, f := range here {
				if i == 0 {
					d.line("- " + code(f.File))
				}
				at := ""
				if f.Line > 0 {
					at = " at " + code(strings.TrimPrefix(place("", f.Line, f.Column), ":"))
				}
				d.line(fmt.Sprintf("  - %s%s: %s", severity(f), at, finding(f)))
			}
		}
	}
	open := min(len(ds), maxOpen)
	show(ds[:open])
	d.line("")
	if rest := ds[open:]; len(rest) > 0 {
		d.details(severities(rest)+" more", func() { show(rest) })
	}
}

func severity(f schema.Diagnostic) string {
	if f.Severity == schema.SeverityError {
		return "**error**"
	}
	return word(string(f.Severity))
}

func finding(f schema.Diagnostic) string {
	return prose(short(f.Message, 1000)) + " (" + code(f.Code) + ")"
}
