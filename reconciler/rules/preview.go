package rules

import (
	"fmt"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/event"
)

// codePreview is the code of the note about a rule that a change adds or edits.
const codePreview = "hook.preview"

// maxNamed is how many resources a note names.
const maxNamed = 5

// Preview returns a note for each rule that a change adds or edits: the resources that it covers, and how often it would have fired
// on the events of the last seven days. events returns those, oldest first, and is called once at most; its error says why
// they cannot be read.
func Preview(before, after *schema.Desired, events func() ([]plan.Event, error)) (out []schema.Diagnostic) {
	was := map[schema.Key]string{}
	for _, r := range before.HookRules() {
		was[r.Key] = r.Blob
	}
	var log []plan.Event
	var err error
	isRead := false
	for _, r := range after.HookRules() {
		if blob, ok := was[r.Key]; ok && blob == r.Blob {
			continue
		}
		if !isRead && r.Spec.When.Threshold == nil {
			log, err = events()
			isRead = true
		}
		note := r.Warning("spec.when", codePreview, "%s; %s", covered(r, after), fired(r, log, err))
		note.Severity = schema.SeverityNote
		out = append(out, note)
	}
	return out
}

// covered describes the declared resources that a rule watches.
func covered(r *schema.HookRule, d *schema.Desired) string {
	kinds := []schema.Kind{schema.KindInstance, schema.KindSharedRuntime} // what fails more than once
	if r.Spec.When.Threshold != nil {
		kinds = []schema.Kind{schema.KindNode}
	}
	if c := r.Spec.When.Condition; c != nil {
		kinds = c.Kinds()
	}
	typ := r.Spec.When.Event
	if a := r.Spec.When.Absence; a != nil {
		typ = a.Event
	}
	for _, of := range event.Definitions() {
		if string(of.Type) == typ {
			kinds = []schema.Kind{of.Kind}
		}
	}
	if !slices.Contains([]schema.Kind{schema.KindInstance, schema.KindSharedRuntime, schema.KindNode}, kinds[0]) {
		return "covers events of kind " + string(kinds[0])
	}
	var names []string
	for _, key := range d.Covered(r, kinds...) {
		names = append(names, key.ResourceName())
	}
	if len(names) == 0 {
		return "covers nothing that is declared now"
	}
	return "covers " + listed(names)
}

// fired describes how often a rule would have fired.
func fired(r *schema.HookRule, log []plan.Event, err error) string {
	const week = "in the last 7 days it would have fired "
	if r.Spec.When.Threshold != nil {
		return "how often it would have fired is unknown, as metrics are not recorded"
	}
	if c := r.Spec.When.Condition; c != nil && err == nil && !hasChanges(log, c.Type) {
		return "how often it would have fired is unknown: changes of " + c.Type + " are recorded only while a rule in force names it"
	}
	n, on := Count(r, log)
	names := make([]string, 0, len(on))
	for _, about := range on {
		names = append(names, about.Name)
	}
	slices.Sort(names)
	text := week + "0 times"
	switch {
	case n == 1:
		text = week + "once, on " + listed(names)
	case n > 1:
		text = fmt.Sprintf("%s%d times, on %s", week, n, listed(names))
	}
	if err != nil {
		text += " by the events that can be read here: " + err.Error()
	}
	return text
}

// hasChanges reports whether a log has changes of conditions of a type.
func hasChanges(log []plan.Event, condition string) bool {
	h := NewHistory()
	return slices.ContainsFunc(log, func(e plan.Event) bool {
		d, s, _, ok := h.read(e)
		return ok && d.Type == event.ConditionChanged && s.Condition == condition
	})
}

// listed joins the first names, and counts the rest.
func listed(names []string) string {
	if more := len(names) - maxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}
