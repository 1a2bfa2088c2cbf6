package report

import (
	"fmt"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/authority"
)

// entry is one line of a list: place, problem and next step. Equal entries of several
// places are merged.
type entry struct {
	places []string // Markdown
	what   string   // Markdown
	next   string   // Markdown; "": part of what
}

type entries []entry

func (all *entries) add(place, what, next string) {
	if i := slices.IndexFunc(*all, func(e entry) bool { return e.what == what && e.next == next }); i >= 0 {
		(*all)[i].places = append((*all)[i].places, place)
		return
	}
	*all = append(*all, entry{[]string{place}, what, next})
}

// maxOpen limits the unfolded lines of a list.
const maxOpen = 20

// list writes entries below a title, if there are any.
func (d *doc) list(title string, all entries) {
	if len(all) == 0 {
		return
	}
	d.line(bold(title), "")
	d.entries(all[:min(len(all), maxOpen)])
	d.line("")
	if len(all) > maxOpen {
		d.section(fmt.Sprintf("%d more", len(all)-maxOpen), func() { d.entries(all[maxOpen:]) })
	}
	for _, e := range all {
		if len(e.places) > maxNamed {
			d.section(count(len(e.places), "place"), func() {
				for _, place := range e.places {
					d.line("- " + place)
				}
			})
		}
	}
}

func (d *doc) entries(all entries) {
	for _, e := range all {
		place := sentence(e.places)
		if n := len(e.places); n > maxNamed {
			place = fmt.Sprintf("%d places", n)
		}
		line := "- " + place + ": " + e.what
		if e.next != "" {
			line += "<br>→ " + e.next
		}
		d.line(line)
	}
}

// blocking lists the obstacles of a merge except invalid documents, each with its next
// step.
func (d *page) blocking(permitted []schema.Diagnostic) {
	var all entries
	for _, f := range d.p.Conflicts {
		all.add(d.place(f, 0, 0), "changed in the branch and in the base", "")
	}
	for _, x := range d.p.Authority {
		if !x.Allowed {
			all.add(d.place(x.File, 0, 0), prose(x.Reason), approval(x))
		}
	}
	for _, f := range permitted {
		if f.Severity != schema.SeverityError || d.isRefused(f) {
			continue
		}
		next := nextStep(f)
		if acknowledgement(f) != "" || f.Code == plan.CodePartialMove {
			f.Message, _, _ = strings.Cut(f.Message, ": ") // the rest is the next step, or a finding of its own
		}
		all.add(d.place(f.File, f.Line, 0), finding(f), next)
	}
	for _, u := range inOrder(d.p) {
		for _, b := range d.p.Obstacles(u) {
			all.add(unitCode(u.Key), prose(b.Message), unblock[b.Code])
		}
	}
	for _, h := range unexplained(d.p) {
		all.add(d.place(h.File, 0, 0), prose(h.Message), release[h.Reason])
	}
	d.list("Blocking", all)
}

// isRefused reports whether a finding says what a refused decision of authority says, which is listed.
func (d *page) isRefused(f schema.Diagnostic) bool {
	return family(f.Code) == "authority" &&
		slices.ContainsFunc(d.p.Authority, func(x authority.Decision) bool { return !x.Allowed && x.File == f.File })
}

// waiting lists changes that need only time.
func (d *page) waiting() {
	var all entries
	for _, u := range inOrder(d.p) {
		for _, b := range u.Blocked {
			if b.Wait && !isAttachedBy(d.p, u) {
				all.add(unitCode(u.Key), prose(b.Message), unblock[b.Code])
			}
		}
	}
	d.list("Waiting", all)
}

// approval returns the next step after a missing permission.
func approval(x authority.Decision) string {
	if len(x.Holders) == 0 {
		return prose(x.Next)
	}
	return strings.Join(each(x.Holders, code), " or ") + " approves this pull request; no new push is needed"
}

// unblock has the next step for a blocked unit, by code.
var unblock = map[plan.BlockedCode]string{
	plan.CodeUnknown:      "Berth plans it again when the host answers",
	plan.CodeSuspended:    "to resume: remove `suspend: true` from the document",
	plan.CodeUnreachable:  "Berth continues when the host answers",
	plan.CodeUnavailable:  "Berth continues when they run again; a greater `max_unavailable` of the role lets more members leave at once",
	plan.CodeStopped:      "to apply them: set `desired_state: running`",
	plan.CodeBackend:      "delete it in one pull request, and create it again in the next",
	plan.CodeShared:       "Berth attaches the project when an Attachment of that shared runtime states terms for it",
	plan.CodeNoNode:       "ask for fewer or other nodes in the document, or let the platform add a node; Berth then places it",
	plan.CodeStays:        "Berth moves it when a suitable node is free",
	plan.CodeControlPlane: "keep region and SKU; or delete it in one pull request, and create it again in the next",
	plan.CodeDenied:       "comply with the rule, or have the rule changed first in a pull request of its own",
	plan.CodeUnverified:   "Berth continues when the artifact is verified",
}

// release has the next step for a held document, by reason.
var release = map[schema.HeldReason]string{
	schema.HeldNeeds:        "bring that document into force first, in this or another pull request",
	schema.HeldDenied:       "comply with the rule, or have the rule changed first in a pull request of its own",
	schema.HeldQuota:        "wait for the next month, or have the quota raised in a pull request of its own",
	schema.HeldUnauthorised: "a user with the permission approves this pull request",
}

// nextStep returns the next step after an error of policy, authority or the deletion
// rule.
func nextStep(f schema.Diagnostic) string {
	switch family := family(f.Code); {
	case family == "base":
		return "merge the policy in a pull request of its own first"
	case f.Code == plan.CodePartialMove:
		return "resolve the other errors: both documents then come into force together"
	case f.Code == "policy.wider":
		return "narrow that line to what the layers above it allow"
	case f.Code == "deletion.attached":
		return "delete its attachments in this pull request too, with the instances and contributions of those projects that name it"
	case family == "policy":
		return "change that line, or have the rule changed first in a pull request of its own"
	case family == "authority":
		return "a user with the permission approves this pull request; no new push is needed"
	case f.Code == "deletion.protected":
		return "set `deletion_protection: false` in one pull request, and delete it in the next"
	}
	if digest := acknowledgement(f); digest != "" {
		return fmt.Sprintf("to confirm exactly these: a user with `deletions.acknowledge` comments %s, or commits with the trailer %s",
			code("/berth ack-delete "+digest), code("Berth-Ack-Delete: "+digest))
	}
	return ""
}

// findings lists errors, then warnings and notes.
func (d *page) findings(ds []schema.Diagnostic) {
	var errors, warnings entries
	title := "Notes"
	for _, f := range bySeverity(ds) {
		switch at := d.place(f.File, f.Line, f.Column); f.Severity {
		case schema.SeverityError:
			errors.add(at, finding(f), "")
		case schema.SeverityWarning:
			title = "Warnings"
			fallthrough
		default:
			warnings.add(at, finding(f), "")
		}
	}
	d.list("Errors", errors)
	d.list(title, warnings)
}
