package decide

import (
	"fmt"
	"maps"
	"slices"

	"berth/schema"
	"berth/schema/load"
	"berth/schema/policy"
)

// CodeMoved is the code of a finding about an instance that would change its
// name with its uid kept.
const CodeMoved = "identity.moved"

// refuse holds documents of instances that policy denies. What is in force
// stays as it is, whatever the rules become.
func refuse(before *schema.Desired) load.Check {
	return func(d *schema.Desired) []schema.Diagnostic {
		return policy.Findings(policy.Evaluate(d, existing(before)).Decisions)
	}
}

// moved finds the instances that go from one name to another between two trees,
// and refuses both ends. Its uid says that it is the same instance, which is
// there to keep what runs; and what runs cannot be carried to another name.
// Without the uid, the one is deleted and the other made.
func moved(before, main *schema.Desired) []schema.Diagnostic {
	was, now := instancesByUID(before), instancesByUID(main)
	var out []schema.Diagnostic
	for _, uid := range slices.Sorted(maps.Keys(now)) {
		from, to := was[uid], now[uid]
		if from == nil || from.Key == to.Key || main.Instance(from.Key) != nil {
			continue
		}
		at := to.At("metadata.uid")
		out = append(out, schema.Diagnostic{
			Severity: schema.SeverityError, Code: CodeMoved, File: to.File, Line: at.Line, Column: at.Column, Path: "metadata.uid",
			Message: fmt.Sprintf("by its uid this is %s, and what runs cannot be carried to another name; move it back, or take the uid away to have the old one deleted and a new one made", from.Key),
		}, schema.Diagnostic{
			Severity: schema.SeverityError, Code: CodeMoved, File: from.File, Line: 1, Column: 1,
			Message: fmt.Sprintf("by its uid it went to %s, and what runs cannot be carried to another name", to.Key),
		})
	}
	return out
}

// always is a check that finds the same whatever is in force: both ends of a
// move are held, also when one of them is back already.
func always(found []schema.Diagnostic) load.Check {
	return func(*schema.Desired) []schema.Diagnostic { return found }
}

func instancesByUID(d *schema.Desired) map[string]*schema.Instance {
	out := map[string]*schema.Instance{}
	for _, t := range d.Tenants {
		for _, p := range t.Projects {
			for _, i := range p.Instances {
				// Of two that claim one uid neither is known by it.
				if _, twice := out[i.UID]; twice {
					out[i.UID] = nil
				} else if i.UID != "" {
					out[i.UID] = i
				}
			}
		}
	}
	maps.DeleteFunc(out, func(_ string, i *schema.Instance) bool { return i == nil })
	return out
}
